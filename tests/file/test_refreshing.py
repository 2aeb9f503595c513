"""A reader that looks again while another process writes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import ClosedFileError
from pnc_vol.system import System

WRITER = """
import sys, numpy as np, pnc_vol
f = None
for line in sys.stdin:
    try:
        exec(line)
        print("done", flush=True)
    except BaseException as error:
        print(repr(error), flush=True)
"""


class Writer:
    """Another process, which runs lines of Python when it is told to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        told = self.process.stdout.readline().strip()
        assert told == "done", told

    def end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer()
    yield made
    made.end()


def test_what_another_process_flushes_is_seen(writer: Writer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    writer(f"f = pnc_vol.File({str(path)!r}, 'w', libver='latest')")
    writer("t = f.create_dataset('g/t', (2, 3), 'f8', maxshape=(None, 3)); t[:] = 1; f['g'].attrs['n'] = 1")
    writer("f['names'] = ['a', 'b']; f['pair'] = np.zeros(2, 'i4,f8'); f['alias'] = f['g/t']; f['gone'] = 1; f.flush()")
    writer("f.swmr_mode = True")
    with pnc_vol.File(path, swmr=True) as f:
        assert f.swmr_mode
        t, group, names, gone, pair = f["g/t"], f["g"], f["names"], f["gone"], f["pair"]
        assert t.shape == (2, 3)

        # records
        writer("t.resize(5, axis=0); t[2:] = [[2, 3, 4]] * 3")
        t.refresh()
        assert t.shape == (2, 3), "nothing is said before the flush"
        writer("t.flush()")
        assert t.shape == (2, 3)
        t.refresh()
        assert t.shape == (5, 3)
        assert t[4].tolist() == [2, 3, 4]
        assert f.numrecs == 5
        assert f["alias"] == t
        node = t.id.node
        t.refresh()
        assert t.id.node is node

        # definitions: objects, attributes, names; a layout that is made anew, which is another file
        before = os.stat(path).st_ino
        writer(
            "f['more/x'] = np.arange(4); f['g'].attrs['n'] = 2; del f['gone']; f.attrs['long'] = 'x' * 20000; f.flush()"
        )
        assert os.stat(path).st_ino != before
        assert t[4].tolist() == [2, 3, 4]
        assert group.attrs["n"] == 1
        t.refresh()
        assert f["more/x"][:].tolist() == [0, 1, 2, 3]
        assert group.attrs["n"] == 2
        assert len(f.attrs["long"]) == 20000
        assert "gone" not in f
        assert not gone
        with pytest.raises(ClosedFileError):
            gone[()]
        assert f["g/t"] == t == f["alias"]
        assert t[4].tolist() == [2, 3, 4]
        assert pair[1].tolist() == (0, 0)

        # values of what was there are never held back
        writer("f['names'][1] = 'much longer'; f['pair'][1] = (3, 0.5); t[0] = 9; f.flush()")
        t.refresh()
        assert names[:].tolist() == [b"a", b"much longer"]
        assert pair[1].tolist() == (3, 0.5)
        assert t[0].tolist() == [9, 9, 9]

        # in the middle of a file that goes on
        writer("t.resize(50, axis=0); t[49] = 7; f.close()")
        t.refresh()
        assert t.shape == (50, 3)
        assert t[49, 0] == 7


def test_a_dataset_that_is_gone_says_so(writer: Writer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    writer(f"f = pnc_vol.File({str(path)!r}, 'w'); f['x'] = 1; f['y'] = [1, 2]; f.flush()")
    with pnc_vol.File(path) as f:
        x, y = f["x"], f["y"]
        writer("del f['x']; del f['y']; f['y'] = 'text'; f.flush()")
        with pytest.raises(ClosedFileError):
            x.refresh()
        assert y[()] == b"text"
        assert y.shape == ()
        writer("f.close()")
        os.unlink(path)
        with pytest.raises(FileNotFoundError):
            y.refresh()
        assert y[()] == b"text", "what was open is still there"


def test_a_reader_never_sees_half_of_a_flush(writer: Writer, tmp_path: pathlib.Path) -> None:
    """While headers are replaced, and files: what the attributes say is there, and its values are."""
    path = tmp_path / "x.nc"
    writer(
        f"f = pnc_vol.File({str(path)!r}, 'w', libver='latest');t = f.create_dataset('t', (0,), 'i4', maxshape=(None,))"
    )
    writer("f.attrs['n'] = 0; f.attrs['text'] = ''; f.flush()")
    assert writer.process.stdin is not None
    steps = 150
    work = (
        "[(t.resize((i + 1,)), t.__setitem__(i, i), f.attrs.__setitem__('text', 'y' * (i * 37 % 1000)),"
        f" f.attrs.__setitem__('n', i + 1), f.flush()) for i in range({steps})]"
    )
    with pnc_vol.File(path, swmr=True) as f:
        t, seen = f["t"], set()
        writer.process.stdin.write(work + "\n")
        writer.process.stdin.flush()
        while f.attrs["n"] < steps:
            t.refresh()
            n = int(f.attrs["n"])
            assert t.shape[0] >= n, "the attributes and the record count are one header"
            assert len(f.attrs["text"]) == ((n - 1) * 37 % 1000 if n else 0)
            assert t[:n].tolist() == list(range(n))
            seen.add(n)
    assert writer.process.stdout is not None
    assert writer.process.stdout.readline() == "done\n"
    assert len(seen) >= 2


def test_who_writes_is_never_behind(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f, pnc_vol.File(path, "r", swmr=True) as g:
        f["x"] = [1, 2]
        f["x"].refresh()
        g["x"].refresh()
        assert g["x"][:].tolist() == [1, 2]
        assert g.swmr_mode
        assert not f.swmr_mode


@pytest.mark.parametrize("driver", ["posix", "trace | posix", "fileobj"])
def test_each_driver(tmp_path: pathlib.Path, driver: str) -> None:
    """By a door of its own, a writer of this process is another one."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", system=System()) as f:
        t = f.create_dataset("t", (1,), "i4", maxshape=(None,))
        f.flush()
        with (
            open(path, "rb", buffering=0) as stream,
            pnc_vol.File(stream if driver == "fileobj" else path, driver=driver) as g,
        ):
            t.resize((4,))
            t[:] = np.arange(4)
            f.flush()
            g["t"].refresh()
            assert g["t"][:].tolist() == [0, 1, 2, 3]
