"""``File.cancel``: all that is posted and not in the file is dropped, with a handle or without."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import FlushError
from pnc_vol.testing.faults import HookedSystem


class FullDisk(HookedSystem):
    """Writes that reach beyond an offset fail while there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.behind: int | None = None

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.behind is not None and name in ("pwrite", "pwritev"):
            memory = args[1] if name == "pwritev" else [args[1]]
            if args[2] + sum(memoryview(part).nbytes for part in memory) <= self.behind:
                return super().call(name, args, kwargs)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().call(name, args, kwargs)


def fails(file: pnc_vol.File, system: FullDisk, name: str) -> None:
    """A flush that cannot write a variable, nor what is behind it."""
    system.behind = file[name].id.get_offset()
    with pytest.raises(FlushError):
        file.flush()
    system.behind = None


def stored(path: pathlib.Path) -> dict[str, Any]:
    """What the file holds, as another opening of its bytes sees it."""
    with open(path, "rb") as disk, pnc_vol.File(disk) as f:
        return {name: f[name][()] for name in f}


def test_the_way_out_of_a_flush_error(path: pathlib.Path) -> None:
    system = FullDisk()
    with pnc_vol.File(path, "w", system=system) as f:
        a, x = f.create_dataset("a", (4,), "i4"), f.create_dataset("x", (8,), "i4")
        names = f.create_dataset("names", (2,), pnc_vol.string_dtype())
        x[:], names[:] = 1, ["old", "older"]
        f.flush()
        a[:], x[:], x[::2], x[[1, 5]], names[0] = 2, 2, 3, 4, "new"
        handle, read = x.iput(3, 9), x.iget(slice(None))
        fails(f, system, "x")
        fails(f, system, "x")
        assert handle.status == "failed"
        f.cancel()
        assert (handle.status, read.status, f.requests) == ("cancelled", "done", {})
        assert x[:].tolist() == [1] * 8
        assert names.asstr()[:].tolist() == ["old", "older"]
        assert a[:].tolist() == [2] * 4
        assert f.plan().requests == 0
        f.flush()
        x[0] = 5
    found = stored(path)
    assert found["x"].tolist() == [5, *[1] * 7]
    assert found["a"].tolist() == [2] * 4


def test_every_kind_of_post(path: pathlib.Path) -> None:
    """Runs, lists of runs, lent arrays, compounds, records; some spilled, in a file of its own."""
    kind = np.dtype([("t", "f4"), ("n", "i2")])
    index = np.arange(0, 4000, 3)
    with pnc_vol.File(path, "w", buffer_size=1 << 20) as f:
        big = f.create_dataset("big", (1 << 18,), "f8")
        few, c = f.create_dataset("few", (4000,), "i4"), f.create_dataset("c", (3,), kind)
        r = f.create_dataset("r", (5, 100), "i2", maxshape=(None, 100), fillvalue=3)
        f.flush()
        requests = [big.iput(slice(None), np.ones(1 << 18)), few.iput(slice(0, 8), np.ones(8, "i4"))]
        for _ in range(3):
            few[index] = 5
            c[1], r[2:4], few[0], few[5] = (1, 2), 9, 1, 1
            requests.append(few.iput_many([[1], [9]], [[2], [1]], [1, 2, 3]))
        f.cancel()
        assert {one.status for one in requests} == {"cancelled"}
        for name in ("big", "few"):
            assert not f[name][:].any()
        assert c[:].tolist() == [(0, 0)] * 3
        assert (r[:] == 3).all()
    found = stored(path)
    assert not found["few"].any()
    assert (found["r"] == 3).all()


def test_arrays_of_varying_length_go_back_to_what_is_in_the_file(path: pathlib.Path) -> None:
    system = FullDisk()
    with pnc_vol.File(path, "w", system=system) as f:
        v = f.create_dataset("v", (3,), pnc_vol.vlen_dtype("i4"), maxshape=(5,))
        v[0], v[1] = [1, 2], [3]
        f.flush()
        v[1] = [8, 8, 8]
        f.cancel()
        assert [row.tolist() for row in v[:]] == [[1, 2], [3], []]
        v[2] = [4]
        f.flush()
        v[0] = [7] * 50
        system.behind = 0
        with pytest.raises(OSError):
            f.flush()
        system.behind = None
        v.resize((2,))
        f.cancel()
        assert [row.tolist() for row in v[:]] == [[1, 2], [3]]
    assert [row.tolist() for row in stored(path)["v"]] == [[1, 2], [3]]


def test_the_last_request_of_another_file_is_not_cancelled(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f, pnc_vol.File(path.with_name("y.nc"), "w") as g:
        x, y = f.create_dataset("x", (2,), "i4"), g.create_dataset("y", (2,), "i4")
        x[:] = 1
        other = y.iput(slice(None), [1, 2])
        with pytest.raises(ValueError, match="another file"):
            f.cancel(other)
        assert x[:].tolist() == [1, 1]
        with pnc_vol.File(path, "r") as reading:
            mine = x.iput(0, 5)
            reading.cancel(mine)
        assert (other.status, mine.status) == ("pending", "cancelled")


def test_nothing_is_cancelled_if_one_of_them_is_done(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        x = f.create_dataset("x", (4,), "i4")
        done = x.iput(0, 1)
        f.flush()
        waits = x.iput(1, 2)
        with pytest.raises(ValueError, match="carried out already"):
            f.cancel([waits, done])
        assert waits.status == "pending"


@pytest.mark.parametrize("whole", [False, True])
def test_a_log_whose_posts_were_all_cancelled_is_removed_at_the_close(path: pathlib.Path, whole: bool) -> None:
    for layout in ("canonical", "blob"):
        with pnc_vol.File(path, "w", burst_buf=True, layout=layout) as f:
            x = f.create_dataset("x", (4,), "i4")
            f.flush()
            before = {one.name for one in path.parent.iterdir() if "pncbb" not in one.name}
            request = x.iput(1, 2)
            f.cancel() if whole else request.cancel()
        assert {one.name for one in path.parent.iterdir()} == before
        for name in before:
            path.with_name(name).unlink()


@pytest.mark.parametrize("failed", [False, True])
def test_what_is_cancelled_does_not_come_back_from_a_log(path: pathlib.Path, failed: bool) -> None:
    logs = path.with_name("logs")
    logs.mkdir()
    child = os.fork()
    if not child:
        code = 1
        try:
            system = FullDisk()
            f = pnc_vol.File(path, "w", burst_buf=True, burst_buf_dirname=str(logs), system=system)
            a, x = f.create_dataset("a", (4,), "i4"), f.create_dataset("x", (4,), "i4")
            x[:] = 1
            f.flush()
            a[:], x[:], x[::2] = 2, 2, 3
            if failed:
                system.behind = x.id.get_offset()
                try:
                    f.flush()
                except FlushError:
                    code = 2
                system.behind = None
            f.cancel()
            assert x[:].tolist() == [1] * 4
            x[3] = 4
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with pnc_vol.File(path, "r+", burst_buf=True, burst_buf_dirname=str(logs), recover=True) as f:
        assert f["x"][:].tolist() == [1, 1, 1, 4]
        assert f["a"][:].tolist() == [2 if failed else 0] * 4


def test_what_hdf5_blobs_keep_after_a_flush_stays(path: pathlib.Path) -> None:
    """A flush returned for it, so no cancel drops it, in whichever way: only what was posted since."""
    with pnc_vol.File(path, "w", layout="hdf5blob") as f:
        x, r = f.create_dataset("x", (3,), "i4"), f.create_dataset("r", (2, 2), "f8", maxshape=(None, 2))
        v = f.create_dataset("v", (2,), pnc_vol.vlen_dtype("i4"))
        x[:], r[:], v[0] = 2, 5, [1, 2]
        handle = x.iput(0, 7)
        f.flush()
        assert handle.status == "done"
        x[:], r[0], v[0], v[1] = 9, 9, [9], [9]
        later = x.iput(1, 8)
        f.cancel()
        assert later.status == "cancelled"
        assert x[:].tolist() == [7, 2, 2]
        assert r[:].tolist() == [[5, 5]] * 2
        assert [one.tolist() for one in v[:]] == [[1, 2], []]
        f.flush()
        x[2] = 4
        f.flush()
        f.cancel()
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [7, 2, 4]
        assert f["r"][:].tolist() == [[5, 5]] * 2
        assert [one.tolist() for one in f["v"][:]] == [[1, 2], []]
