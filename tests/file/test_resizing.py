"""Datasets that get another shape while posts wait in each of the stores."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import CHANGING, FaultSystem, HookedSystem

STORES: dict[str, dict[str, Any]] = {
    "memory": {},
    "spill": {"buffer_size": 65536},
    "log": {"burst_buf": True},
    "full log": {"burst_buf": True, "hints": {"nc_burst_buf_capacity": 5000}},
    "full log, small buffer": {"burst_buf": True, "buffer_size": 65536, "hints": {"nc_burst_buf_capacity": 5000}},
}
PAIR = np.dtype([("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("dtype", ["i4", PAIR], ids=["numbers", "compounds"])
@pytest.mark.parametrize("store", STORES)
def test_a_new_shape_in_each_store(store: str, dtype: Any, flushed: bool, tmp_path: Path) -> None:
    """A log that is full when the elements are copied makes room by a flush, which must not meet both shapes."""
    path = tmp_path / "f.nc"
    model = np.zeros((8, 700), dtype)
    with pnc_vol.File(path, "w", **STORES[store]) as f:
        d = f.create_dataset("g/d", model.shape, dtype, maxshape=(40, 1400))
        for rows, columns in ((12, 805), (5, 900), (30, 650)):
            if flushed:
                model[...] = np.full((), rows, dtype)
                d[...] = model
                f.flush()
            d.resize((rows, columns))
            old, model = model, np.zeros((rows, columns), dtype)
            common = tuple(slice(min(a, b)) for a, b in zip(old.shape, model.shape, strict=True))
            model[common] = old[common]
            for k in range(rows):
                model[k, :600] = d[k, :600] = np.full(600, 100 * rows + k, dtype)
            assert (d[...] == model).all()
        assert list(f["g"]) == ["d"]
    with pnc_vol.File(path) as f:
        assert list(f["g"]) == ["d"]
        assert (f["g/d"][...] == model).all()


@pytest.mark.parametrize("store", ["log", "full log"])
@pytest.mark.parametrize("dtype", ["i4", PAIR], ids=["numbers", "compounds"])
def test_a_kill_leaves_the_old_shape_or_the_new_one(store: str, dtype: Any, tmp_path: Path) -> None:
    """With a log every post that returned is there, too."""
    first, last = np.full((6, 50), 3, dtype), np.full((2, 70), 4, dtype)

    def program(path: str, system: HookedSystem) -> None:
        f = pnc_vol.File(path, "w", system=system, **STORES[store])
        d = f.create_dataset("d", (6, 50), dtype, maxshape=(9, 90))
        d[...] = first
        os.write(told, b"1")
        d.resize((9, 70))
        os.write(told, b"2")
        d[7:] = last
        os.write(told, b"3")
        f.close()

    for at in range(1, 400):
        folder = tmp_path / str(at)
        folder.mkdir()
        path = str(folder / "f.nc")
        told = os.open(folder / "told", os.O_CREAT | os.O_WRONLY, 0o600)
        child = os.fork()
        if child == 0:
            program(path, _Killed(at))
            os._exit(0)
        ended = os.waitpid(child, 0)[1]
        os.close(told)
        done = len((folder / "told").read_bytes())
        if ended == 0:
            assert done == 3
            break
        if not os.path.exists(path):
            assert done == 0
            continue
        with pnc_vol.File(path, "r+", recover=True) as f:
            if "d" not in f:
                assert done == 0
                continue
            d = f["d"]
            assert list(f) == ["d"]
            assert d.shape in ((6, 50), (9, 70)), at
            if done >= 1:
                assert (d[:6, :50] == first).all(), at
            if done >= 2:
                assert d.shape == (9, 70), at
            if done >= 3:
                assert (d[7:] == last).all(), at
    else:
        pytest.fail("the program did not end")


class _Killed(HookedSystem):
    """Ends the process before the n-th call that changes something."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def call(self, name: str, args: Any, kwargs: Any) -> Any:
        if name in CHANGING:
            self.left -= 1
            if not self.left:
                os._exit(9)
        return super().call(name, args, kwargs)


def test_no_room_for_the_copy_leaves_the_old_shape(tmp_path: Path) -> None:
    """All variables of a compound keep their shapes, and the file can be used as before."""
    path = tmp_path / "f.nc"
    model = np.zeros((60, 300), PAIR)
    model["a"], model["b"] = 5, np.arange(300)
    failed = 0
    for at in range(1, 40):
        system = FaultSystem(fail_at=10**9, errno=errno.ENOSPC, calls={"pwrite", "pwritev"})
        with pnc_vol.File(path, "w", buffer_size=65536, burst_buf=True, system=system) as f:
            d = f.create_dataset("d", model.shape, PAIR, maxshape=(80, 400))
            d[...] = model
            f.flush()
            system.fail_at = system.count + at
            try:
                d.resize((70, 310))
            except OSError:
                failed += 1
            system.fail_at = 0
            shape = d.shape
            assert shape in (model.shape, (70, 310))
            d[3, 4] = (9, 9.0)
        expected = np.zeros(shape, PAIR)
        expected[:60, :300] = model
        expected[3, 4] = (9, 9.0)
        with pnc_vol.File(path) as f:
            assert list(f) == ["d"]
            assert (f["d"][...] == expected).all(), at
        if not system.fired:
            break
    assert failed > 3
