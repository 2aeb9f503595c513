"""The works of `io`, with the calls of each library.

Knows: the interfaces of h5py (and pnc_vol), netCDF4, scipy, PnetCDF-Python and the operating system. Does not know:
clocks, what is measured.

Rules
-----
1. Each peer is written as its own documentation tells a user who wants speed: netCDF4 without prefilling, PnetCDF with
   posted requests and one wait, pnc_vol and h5py by plain assignment.
2. What a library cannot do is left out; the work says so (`Work.without`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.serial import Peer, installed
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at, write_all

__all__ = ["peers"]

Array = npt.NDArray[Any]


def peers(folder: str) -> dict[str, Any]:
    """Those that are installed; for the others the reason."""
    return installed(
        folder,
        {
            "pnc_vol": _PncVol,
            "h5py": _H5py,
            "netCDF4": _NetCDF4,
            "scipy": _Scipy,
            "PnetCDF-Python": _PnetCDF,
            "os.pwrite": _Raw,
        },
    )


class _Indexed(Peer):
    """A library whose variables are indexed like arrays."""

    def new(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
        """A new file with one variable, and the variable."""
        raise NotImplementedError

    def old(self) -> tuple[Any, Any]:
        """The file, and its variables by name."""
        raise NotImplementedError

    def write(self, values: Array) -> None:
        f, x = self.new(values.shape, values.dtype)
        with f:
            x[:] = values

    def read(self) -> Array:
        f, variables = self.old()
        with f:
            found: Array = variables["x"][:]
        return found

    def write_rows(self, rows: Array) -> None:
        f, x = self.new(rows.shape, rows.dtype)
        with f:
            for i, row in enumerate(rows):
                x[i] = row

    def read_rows(self, out: Array) -> None:
        f, variables = self.old()
        with f:
            x = variables["x"]
            for i in range(len(out)):
                out[i] = x[i]

    def write_pieces(self, size: int, starts: Array, values: Array) -> None:
        n = values.shape[1]
        f, x = self.new((size,), values.dtype)
        with f:
            for at, piece in zip(starts.tolist(), values, strict=True):
                x[at : at + n] = piece

    def read_pieces(self, starts: Array, out: Array) -> None:
        n = out.shape[1]
        f, variables = self.old()
        with f:
            x = variables["x"]
            for i, at in enumerate(starts.tolist()):
                out[i] = x[at : at + n]

    def read_many(self, out: Array) -> None:
        f, variables = self.old()
        with f:
            for i in range(len(out)):
                out[i] = variables[f"v{i}"][:]


class _H5py(_Indexed):
    """h5py, and pnc_vol, which has the same interface."""

    def new(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
        f = self.module.File(self.path, "w")
        return f, f.create_dataset("x", shape, dtype)

    def old(self) -> tuple[Any, Any]:
        f = self.module.File(self.path, "r")
        return f, f

    def write(self, values: Array) -> None:
        with self.module.File(self.path, "w") as f:
            f.create_dataset("x", data=values)

    def read_into(self, out: Array) -> None:
        with self.module.File(self.path, "r") as f:
            f["x"].read_direct(out)

    def write_filled(self, values: Array, fill: float | None, step: int) -> None:
        with self.module.File(self.path, "w") as f:
            x = f.create_dataset("x", values.shape, values.dtype, fillvalue=fill)
            for low in range(0, len(values), step):
                x[low : low + step] = values[low : low + step]

    def write_many(self, values: Array) -> None:
        with self.module.File(self.path, "w") as f:
            for i, row in enumerate(values):
                f.create_dataset(f"v{i}", data=row)


class _PncVol(_H5py):
    """What h5py does not have: requests."""

    def request_rows(self, out: Array) -> None:
        with self.module.File(self.path, "r") as f:
            ds = f["x"]
            for i in range(len(out)):
                ds.iget(i, out[i])
            f.wait_all()

    def request_pieces(self, starts: Array, out: Array) -> None:
        n = out.shape[1]
        with self.module.File(self.path, "r") as f:
            ds = f["x"]
            requests = [ds.iget(slice(at, at + n)) for at in starts.tolist()]
            f.wait_all()
            for piece, request in zip(out, requests, strict=True):
                piece[:] = request.array

    def write_list(self, size: int, starts: Array, values: Array) -> None:
        f, ds = self.new((size,), values.dtype)
        with f:
            ds.iput_many(starts[:, None], np.full((len(starts), 1), values.shape[1]), values)

    def read_list(self, starts: Array, out: Array) -> None:
        with self.module.File(self.path, "r") as f:
            counts = np.full((len(starts), 1), out.shape[1])
            f["x"].iget_many(starts[:, None], counts, out.reshape(-1)).wait()


class _NetCDF4(_Indexed):
    """netCDF4-python, CDF-5."""

    def create(self, shape: tuple[int, ...]) -> tuple[Any, tuple[str, ...]]:
        """A new file, and its dimensions, one for each axis."""
        f = self.module.Dataset(self.path, "w", format="NETCDF3_64BIT_DATA")
        f.set_fill_off()
        return f, _dimensions(f, shape)

    def new(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
        f, dims = self.create(shape)
        return f, f.createVariable("x", dtype, dims)

    def write_filled(self, values: Array, fill: float | None, step: int) -> None:
        with self.module.Dataset(self.path, "w", format="NETCDF3_64BIT_DATA") as f:
            x = f.createVariable("x", values.dtype, _dimensions(f, values.shape), fill_value=fill or False)
            for low in range(0, len(values), step):
                x[low : low + step] = values[low : low + step]

    def old(self) -> tuple[Any, Any]:
        f = self.module.Dataset(self.path)
        f.set_auto_mask(False)
        return f, f.variables

    def write_many(self, values: Array) -> None:
        f, dims = self.create(values.shape[1:])
        with f:
            for i, row in enumerate(values):
                f.createVariable(f"v{i}", row.dtype, dims)[:] = row


class _Scipy(_NetCDF4):
    """scipy.io.netcdf_file, CDF-2: the file is held in memory until it is closed."""

    def create(self, shape: tuple[int, ...]) -> tuple[Any, tuple[str, ...]]:
        f = self.module.netcdf_file(self.path, "w", version=2)
        return f, _dimensions(f, shape)

    def old(self) -> tuple[Any, Any]:
        f = self.module.netcdf_file(self.path, "r", mmap=False)
        return f, f.variables

    def read(self) -> Array:
        stored = super().read()
        return stored.astype(stored.dtype.newbyteorder("="))


def _dimensions(f: Any, shape: tuple[int, ...]) -> tuple[str, ...]:
    dims = tuple("nm"[: len(shape)])
    for dim, n in zip(dims, shape, strict=True):
        f.createDimension(dim, n)
    return dims


class _PnetCDF(Peer):
    """PnetCDF-Python: requests are posted, one wait completes them."""

    def _new(self, dims: dict[str, int], dtype: Any, names: list[str]) -> tuple[Any, list[Any]]:
        f = self.module.File(self.path, mode="w", format="NC_64BIT_DATA")
        for name, n in dims.items():
            f.def_dim(name, n)
        made = [f.def_var(name, dtype, tuple(dims)) for name in names]
        f.enddef()
        return f, made

    def _old(self) -> Any:
        return self.module.File(self.path, mode="r")

    def write(self, values: Array) -> None:
        f, (x,) = self._new({"n": len(values)}, values.dtype, ["x"])
        x.put_var_all(values)
        f.close()

    def read(self) -> Array:
        f = self._old()
        x = f.variables["x"]
        found = np.empty(x.shape, x.dtype)
        x.get_var_all(found)
        f.close()
        return found

    def read_into(self, out: Array) -> None:
        f = self._old()
        f.variables["x"].get_var_all(out)
        f.close()

    def write_filled(self, values: Array, fill: float | None, step: int) -> None:
        f = self.module.File(self.path, mode="w", format="NC_64BIT_DATA")
        f.def_dim("n", len(values))
        x = f.def_var("x", values.dtype, ("n",))
        if fill is not None:
            x.def_fill(no_fill=0, fill_value=np.array(fill, values.dtype))
        f.enddef()
        for low in range(0, len(values), step):
            x.iput_var(values[low : low + step], start=(low,), count=(len(values[low : low + step]),))
        f.wait_all()
        f.close()

    def write_rows(self, rows: Array) -> None:
        f, (x,) = self._new({"n": rows.shape[0], "m": rows.shape[1]}, rows.dtype, ["x"])
        for i, row in enumerate(rows):
            x.iput_var(row, start=(i, 0), count=(1, len(row)))
        f.wait_all()
        f.close()

    def read_rows(self, out: Array) -> None:
        f = self._old()
        f.begin_indep()
        x = f.variables["x"]
        for i, row in enumerate(out):
            x.get_var(row, start=(i, 0), count=(1, len(row)))
        f.end_indep()
        f.close()

    def request_rows(self, out: Array) -> None:
        f = self._old()
        x = f.variables["x"]
        for i, row in enumerate(out):
            x.iget_var(row, start=(i, 0), count=(1, len(row)))
        f.wait_all()
        f.close()

    def write_pieces(self, size: int, starts: Array, values: Array) -> None:
        n = values.shape[1]
        f, (x,) = self._new({"n": size}, values.dtype, ["x"])
        for at, piece in zip(starts.tolist(), values, strict=True):
            x.iput_var(piece, start=(at,), count=(n,))
        f.wait_all()
        f.close()

    def read_pieces(self, starts: Array, out: Array) -> None:
        n = out.shape[1]
        f = self._old()
        f.begin_indep()
        x = f.variables["x"]
        for at, piece in zip(starts.tolist(), out, strict=True):
            x.get_var(piece, start=(at,), count=(n,))
        f.end_indep()
        f.close()

    def request_pieces(self, starts: Array, out: Array) -> None:
        n = out.shape[1]
        f = self._old()
        x = f.variables["x"]
        for at, piece in zip(starts.tolist(), out, strict=True):
            x.iget_var(piece, start=(at,), count=(n,))
        f.wait_all()
        f.close()

    def write_list(self, size: int, starts: Array, values: Array) -> None:
        f, (x,) = self._new({"n": size}, values.dtype, ["x"])
        x.put_varn_all(values, len(starts), starts[:, None], np.full((len(starts), 1), values.shape[1]))
        f.close()

    def read_list(self, starts: Array, out: Array) -> None:
        f = self._old()
        counts = np.full((len(starts), 1), out.shape[1])
        f.variables["x"].get_varn_all(out, len(starts), starts[:, None], counts)
        f.close()

    def write_many(self, values: Array) -> None:
        f, made = self._new({"m": values.shape[1]}, values.dtype, [f"v{i}" for i in range(len(values))])
        for x, row in zip(made, values, strict=True):
            x.iput_var(row)
        f.wait_all()
        f.close()

    def read_many(self, out: Array) -> None:
        f = self._old()
        for i, row in enumerate(out):
            f.variables[f"v{i}"].iget_var(row)
        f.wait_all()
        f.close()


class _Raw(Peer):
    """`os.pwrite` and `os.preadv` of native bytes: what the machine can carry."""

    def _open(self, *, new: bool) -> int:
        return REAL.open(self.path, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if new else 0))

    def _put(self, offsets: Array, pieces: Array, size: int = 0) -> None:
        fd = self._open(new=True)
        if size:
            REAL.ftruncate(fd, size)
        for at, piece in zip(offsets.tolist(), pieces, strict=True):
            write_all(REAL, fd, piece.data.cast("B"), at)
        REAL.close(fd)

    def _get(self, offsets: Array, pieces: Array) -> None:
        fd = self._open(new=False)
        for at, piece in zip(offsets.tolist(), pieces, strict=True):
            read_at(REAL, fd, piece.data.cast("B"), at)
        REAL.close(fd)

    def write(self, values: Array) -> None:
        self._put(np.zeros(1, int), values[None])

    def read(self) -> Array:
        found = np.empty(REAL.stat(self.path).st_size // 8, "f8")
        self._get(np.zeros(1, int), found[None])
        return found

    def read_into(self, out: Array) -> None:
        self._get(np.zeros(1, int), out[None])

    def write_rows(self, rows: Array) -> None:
        self._put(np.arange(len(rows)) * rows[0].nbytes, rows)

    def read_rows(self, out: Array) -> None:
        self._get(np.arange(len(out)) * out[0].nbytes, out)

    def write_pieces(self, size: int, starts: Array, values: Array) -> None:
        self._put(starts * values.itemsize, values, size * values.itemsize)

    def read_pieces(self, starts: Array, out: Array) -> None:
        self._get(starts * out.itemsize, out)

    write_many = write_rows
    read_many = read_rows
