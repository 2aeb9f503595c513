"""A reader that looks again while another process writes."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest
from other_process import Other

import pnc_vol
from pnc_vol.errors import ClosedFileError
from pnc_vol.testing.faults import HookedSystem


def test_what_another_process_flushes_is_seen(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"

    def writer() -> Iterator[None]:
        f = pnc_vol.File(path, "w", libver="latest")
        t = f.create_dataset("g/t", (2, 3), "f8", maxshape=(None, 3))
        t[:], f["g"].attrs["n"] = 1, 1
        f["names"], f["pair"], f["alias"], f["gone"] = ["a", "b"], np.zeros(2, "i4,f8"), f["g/t"], 1
        f.flush()
        f.swmr_mode = True
        yield
        t.resize(5, axis=0)
        t[2:] = [[2, 3, 4]] * 3
        yield
        t.flush()
        yield
        f["more/x"], f["g"].attrs["n"], f.attrs["long"] = np.arange(4), 2, "x" * 20000
        del f["gone"]
        f.flush()
        yield
        f["names"][1], f["pair"][1], t[0] = "much longer", (3, 0.5), 9
        f.flush()
        yield
        t.resize(50, axis=0)
        t[49] = 7
        f.close()

    with Other(writer) as other:
        assert other() == "done"
        look(other, path)


def look(other: Other, path: pathlib.Path) -> None:
    with pnc_vol.File(path, swmr=True) as f:
        assert f.swmr_mode
        t, group, names, gone, pair = f["g/t"], f["g"], f["names"], f["gone"], f["pair"]
        assert t.shape == (2, 3)

        # records
        assert other() == "done"
        t.refresh()
        assert t.shape == (2, 3), "nothing is said before the flush"
        assert other() == "done"
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
        assert other() == "done"
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
        assert other() == "done"
        t.refresh()
        assert names[:].tolist() == [b"a", b"much longer"]
        assert pair[1].tolist() == (3, 0.5)
        assert t[0].tolist() == [9, 9, 9]

        # in the middle of a file that goes on
        assert other() == "done"
        t.refresh()
        assert t.shape == (50, 3)
        assert t[49, 0] == 7


def test_a_dataset_that_is_gone_says_so(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"

    def writer() -> Iterator[None]:
        with pnc_vol.File(path, "w") as f:
            f["x"], f["y"] = 1, [1, 2]
            f.flush()
            yield
            del f["x"], f["y"]
            f["y"] = "text"
            f.flush()
            yield

    with Other(writer) as other:
        assert other() == "done"
        with pnc_vol.File(path) as f:
            x, y = f["x"], f["y"]
            assert other() == "done"
            with pytest.raises(ClosedFileError):
                x.refresh()
            assert y[()] == b"text"
            assert y.shape == ()
            assert other() == "done"
            os.unlink(path)
            with pytest.raises(FileNotFoundError):
                y.refresh()
            assert y[()] == b"text", "what was open is still there"


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
    with pnc_vol.File(path, "w", system=HookedSystem()) as f:
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
