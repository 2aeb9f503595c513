"""``python -m pnc_vol.bench io``: large variables, rows, many small variables, written and read back.

The works are those of users: one large array, a program that appends rows, a file of many small variables. Every
peer gets the same values, writes a file of its own kind, and is checked by reading all of it back.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import Result, alternate, timed
from pnc_vol.system import REAL, exists, read_at, temporary_directory, write_all

__all__ = ["PEERS", "run"]

PEERS = ("pnc_vol", "h5py", "netCDF4", "os.pwrite")

WORKS = (
    "1 GiB variable, write",
    "1 GiB variable, read",
    "100,000 rows of 128, write",
    "10,000 variables of 1,000, write",
    "10,000 variables of 1,000, read",
)

Array = npt.NDArray[Any]


class _H5py:
    """h5py, and by the promise of this package pnc_vol too."""

    def __init__(self, name: str, folder: str) -> None:
        self.module = importlib.import_module(name)
        self.path = os.path.join(folder, f"{name}.bench")

    def write_big(self, values: Array) -> None:
        with self.module.File(self.path, "w") as f:
            f.create_dataset("x", data=values)

    def read_big(self) -> Array:
        with self.module.File(self.path, "r") as f:
            found: Array = f["x"][...]
        return found

    def write_rows(self, rows: Array) -> None:
        with self.module.File(self.path, "w") as f:
            ds = f.create_dataset("x", rows.shape, rows.dtype)
            for i, row in enumerate(rows):
                ds[i] = row

    def write_many(self, values: Array) -> None:
        with self.module.File(self.path, "w") as f:
            for i, row in enumerate(values):
                f.create_dataset(f"v{i}", data=row)

    def read_many(self, count: int) -> Array:
        with self.module.File(self.path, "r") as f:
            return np.stack([f[f"v{i}"][...] for i in range(count)])


class _NetCDF4:
    """netCDF4-python, CDF-5, without prefilling: what a user who wants speed writes."""

    def __init__(self, folder: str) -> None:
        self.module = importlib.import_module("netCDF4")
        self.path = os.path.join(folder, "netCDF4.bench")

    def _create(self) -> Any:
        f = self.module.Dataset(self.path, "w", format="NETCDF3_64BIT_DATA")
        f.set_fill_off()
        return f

    def write_big(self, values: Array) -> None:
        with self._create() as f:
            f.createDimension("n", len(values))
            f.createVariable("x", values.dtype, ("n",))[:] = values

    def read_big(self) -> Array:
        with self.module.Dataset(self.path) as f:
            f.set_auto_mask(False)
            found: Array = f["x"][:]
        return found

    def write_rows(self, rows: Array) -> None:
        with self._create() as f:
            f.createDimension("n", rows.shape[0])
            f.createDimension("m", rows.shape[1])
            x = f.createVariable("x", rows.dtype, ("n", "m"))
            for i, row in enumerate(rows):
                x[i] = row

    def write_many(self, values: Array) -> None:
        with self._create() as f:
            f.createDimension("m", values.shape[1])
            for i, row in enumerate(values):
                f.createVariable(f"v{i}", row.dtype, ("m",))[:] = row

    def read_many(self, count: int) -> Array:
        with self.module.Dataset(self.path) as f:
            f.set_auto_mask(False)
            return np.stack([f[f"v{i}"][:] for i in range(count)])


class _Raw:
    """`os.pwrite` and `os.pread` of native bytes: what the machine can carry."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "raw.bench")
        self.shape: tuple[int, ...] = ()

    def _rows(self, rows: Array) -> None:
        fd = REAL.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        at = 0
        for row in rows:
            write_all(REAL, fd, row.data.cast("B"), at)
            at += row.nbytes
        REAL.close(fd)

    def write_big(self, values: Array) -> None:
        self._rows(values[None])

    def read_big(self) -> Array:
        fd = REAL.open(self.path, os.O_RDONLY)
        found = np.empty(REAL.fstat(fd).st_size // 8, "f8")
        read_at(REAL, fd, found.data.cast("B"), 0)
        REAL.close(fd)
        return found

    def write_rows(self, rows: Array) -> None:
        self._rows(rows)

    def write_many(self, values: Array) -> None:
        self._rows(values)

    def read_many(self, count: int) -> Array:
        fd = REAL.open(self.path, os.O_RDONLY)
        each = REAL.fstat(fd).st_size // count
        found = np.empty((count, each // 4), "f4")
        for i in range(count):
            read_at(REAL, fd, found[i].data.cast("B"), i * each)
        REAL.close(fd)
        return found


def run(*, quick: bool = False, rounds: int | None = None, folder: str | None = None) -> list[Result]:
    """Measure all works.

    Parameters
    ----------
    quick : bool
        3 rounds instead of 5, and without netCDF4 where it takes minutes.
    rounds : int, optional
    folder : str, optional
        Where the files go: a new folder in it, removed at the end.

    Returns
    -------
    list of Result
    """
    rng = np.random.default_rng(0)
    big = rng.random(1 << 27)
    rows = rng.random((100_000, 128))
    many = rng.random((10_000, 1000), "f4")
    cleanup = contextlib.ExitStack()
    place = cleanup.enter_context(temporary_directory(folder))
    try:
        peers: dict[str, Any] = {"pnc_vol": _H5py("pnc_vol", place)}
        if importlib.util.find_spec("h5py"):
            peers["h5py"] = _H5py("h5py", place)
        if importlib.util.find_spec("netCDF4"):
            peers["netCDF4"] = _NetCDF4(place)
        peers["os.pwrite"] = _Raw(place)
        works: dict[str, dict[str, Callable[[], float]]] = {name: {} for name in WORKS}
        for name, peer in peers.items():
            big_write, big_read, row_write, many_write, many_read = works.values()
            big_write[name] = _writing(peer, lambda p: p.write_big(big))
            big_read[name] = _reading(peer, lambda p: p.read_big(), big)
            row_write[name] = _writing(peer, lambda p: p.write_rows(rows), lambda p: p.read_big(), rows)
            many_write[name] = _writing(peer, lambda p: p.write_many(many))
            many_read[name] = _reading(peer, lambda p: p.read_many(len(many)), many)
        skip = {}
        if "netCDF4" in peers:
            reason = (
                "left out: defining variables takes it quadratic time, about two minutes here (run without --quick)"
            )
            if quick:
                skip = {(work, "netCDF4"): reason for work in works if work.startswith("10,000")}
        return alternate(works, rounds or (3 if quick else 5), skip=skip)
    finally:
        cleanup.close()


def _writing(
    peer: Any,
    write: Callable[[Any], None],
    read: Callable[[Any], Array] | None = None,
    values: Array | None = None,
) -> Callable[[], float]:
    def once() -> float:
        if exists(REAL, peer.path):
            REAL.unlink(peer.path)
        seconds, _ = timed(lambda: write(peer))
        if read is not None and values is not None:
            _check(peer, read(peer), values)
        return seconds

    return once


def _reading(peer: Any, read: Callable[[Any], Array], values: Array) -> Callable[[], float]:
    def once() -> float:
        seconds, found = timed(lambda: read(peer))
        _check(peer, found, values)
        return seconds

    return once


def _check(peer: Any, found: Array, values: Array) -> None:
    if found.size != values.size or not np.array_equal(found.reshape(values.shape), values):
        raise AssertionError(f"{peer.path} does not hold what was written to it")
