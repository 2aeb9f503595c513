"""``python -m pnc_vol.bench records``: many record variables that grow together, with a flush every so many records.

A model writes one record of each of its variables in each step, and makes sure now and then that readers see them. In
the file the records of the variables lie interleaved, so a flush has as many pieces as records.

Knows: the works, and how each library defines, appends and flushes. Does not know: clocks.

Rules
-----
1. Each peer is written as its own documentation tells a user who wants speed: h5py with chunks of several records,
   netCDF4 without prefilling, PnetCDF with posted requests and one wait a flush, pnc_vol and scipy by plain assignment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import Watch
from pnc_vol.bench.serial import Peer, Work, check, clear, installed, times

__all__ = ["peers", "works"]

Array = npt.NDArray[Any]

VARIABLES, WIDTH = 20, 16
QUADRATIC = "writes the whole file anew at each flush"
NAMES = [f"v{i}" for i in range(VARIABLES)]


def works(scale: float) -> list[Work]:
    """The works, at `scale` times their real size."""
    count = times(scale, 2_000)
    return [_interleaved(count, every) for every in (1, 50)]


def _interleaved(count: int, every: int) -> Work:
    title = f"{VARIABLES} record variables x {count:,} records of {WIDTH}, a flush every {every}"
    phases = [f"{title}, write", f"{title}, read a variable at a time"]

    def run(peer: Any, watch: Watch) -> None:
        values = np.random.default_rng(6).random((VARIABLES, count, WIDTH))
        clear(peer.path)
        with watch(phases[0]):
            peer.append(values, every)
        out = np.zeros_like(values)
        with watch(phases[1]):
            peer.read(out)
        check(f"{phases[1]}, {peer.path}", out, values)
        clear(peer.path)

    size = 8 * VARIABLES * count * WIDTH
    return Work(
        {phases[0]: (size, VARIABLES * count), phases[1]: (size, VARIABLES)},
        run,
        slow={"scipy": QUADRATIC},
        hopeless=frozenset({"scipy"} if every == 1 else ()),
    )


class _H5py(Peer):
    """h5py, and pnc_vol, which has the same interface and no chunks."""

    def append(self, values: Array, every: int) -> None:
        with self.module.File(self.path, "w") as f:
            made = [
                f.create_dataset(name, (0, WIDTH), "f8", maxshape=(None, WIDTH), chunks=(256, WIDTH)) for name in NAMES
            ]
            for t in range(values.shape[1]):
                for x, rows in zip(made, values, strict=True):
                    x.resize(t + 1, axis=0)
                    x[t] = rows[t]
                if (t + 1) % every == 0:
                    f.flush()

    def read(self, out: Array) -> None:
        with self.module.File(self.path, "r") as f:
            for name, rows in zip(NAMES, out, strict=True):
                f[name].read_direct(rows)


class _NetCDF4(Peer):
    """netCDF4-python, CDF-5."""

    def create(self) -> Any:
        f = self.module.Dataset(self.path, "w", format="NETCDF3_64BIT_DATA")
        f.set_fill_off()
        return f

    def old(self) -> Any:
        f = self.module.Dataset(self.path)
        f.set_auto_mask(False)
        return f

    def append(self, values: Array, every: int) -> None:
        with self.create() as f:
            f.createDimension("t", None)
            f.createDimension("n", WIDTH)
            made = [f.createVariable(name, "f8", ("t", "n")) for name in NAMES]
            for t in range(values.shape[1]):
                for x, rows in zip(made, values, strict=True):
                    x[t] = rows[t]
                if (t + 1) % every == 0:
                    f.sync()

    def read(self, out: Array) -> None:
        with self.old() as f:
            for name, rows in zip(NAMES, out, strict=True):
                rows[:] = f.variables[name][:]


class _Scipy(_NetCDF4):
    """scipy.io.netcdf_file, CDF-2: the file is held in memory, and written anew at each flush."""

    def create(self) -> Any:
        return self.module.netcdf_file(self.path, "w", version=2)

    def old(self) -> Any:
        return self.module.netcdf_file(self.path, "r", mmap=False)


class _PnetCDF(Peer):
    """PnetCDF-Python: one wait completes the requests of a flush."""

    def append(self, values: Array, every: int) -> None:
        f = self.module.File(self.path, mode="w", format="NC_64BIT_DATA")
        dims = f.def_dim("t", -1), f.def_dim("n", WIDTH)
        made = [f.def_var(name, "f8", dims) for name in NAMES]
        f.enddef()
        for t in range(values.shape[1]):
            for x, rows in zip(made, values, strict=True):
                x.iput_var(rows[t], start=(t, 0), count=(1, WIDTH))
            if (t + 1) % every == 0:
                f.wait_all()
        f.wait_all()
        f.close()

    def read(self, out: Array) -> None:
        f = self.module.File(self.path, mode="r")
        for name, rows in zip(NAMES, out, strict=True):
            f.variables[name].iget_var(rows)
        f.wait_all()
        f.close()


def peers(folder: str) -> dict[str, Any]:
    """Those that are installed; for the others the reason."""
    return installed(
        folder, {"pnc_vol": _H5py, "h5py": _H5py, "netCDF4": _NetCDF4, "scipy": _Scipy, "PnetCDF-Python": _PnetCDF}
    )
