"""One file of many ranks, with the calls of each library: variables, subarrays, a flush.

Knows: the interfaces of pnc_vol, mpi4py's `MPI.File`, the operating system, PnetCDF-Python and parallel h5py. Does not
know: clocks, patterns, what is measured.

Rules
-----
1. `create`, `open`, `flush` and `close` are called by all ranks; `put` and `get` as often on every rank, perhaps of
   nothing. Data are in the file, or in the arrays, after `flush`.
2. A carrier writes at `put` what its library cannot post.
3. The raw carriers keep native bytes, one variable behind the other, without a header: they are the limit, not a
   format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.peers import load
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at, write_all

__all__ = ["Carrier", "PnetCDFCarrier", "Posix", "carriers", "index_of", "nbytes_of"]

Array = npt.NDArray[Any]
Variables = Mapping[str, tuple[tuple[int, ...], Any]]
Attributes = Mapping[str, Any]
Place = tuple[int, ...]

_NONE: Attributes = {}


class Carrier:
    """What all have in common; the names of variables stand for their shapes and types."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm

    def create(self, path: str, variables: Variables, attrs: Attributes = _NONE, *, records: bool = False) -> None:
        """Make a file; with `records` the first axis of every variable may grow."""
        raise NotImplementedError

    def open(self, path: str, variables: Variables) -> None:
        """Open a file for reading that `create` made."""
        raise NotImplementedError

    def put(self, name: str, start: Place, values: Array) -> None:
        """Write a subarray of `values`' shape, of nothing if its size is 0."""
        raise NotImplementedError

    def get(self, name: str, start: Place, out: Array) -> None:
        """Read a subarray into `out`."""
        raise NotImplementedError

    def put_view(self, name: str, starts: Array, counts: Array, values: Array, parts: int) -> None:
        """Write many subarrays by one description.

        Parameters
        ----------
        starts, counts : int64[n, ndim]
        values : ndarray
            Of all subarrays, one behind the other.
        parts : int
            Into how many calls of equal size `values` goes, where the library can go on in a description.
        """
        for start, one in _subarrays(starts, counts, values):
            self.put(name, start, one)

    def get_view(self, name: str, starts: Array, counts: Array, out: Array, parts: int) -> None:
        """Read many subarrays into `out` by one description."""
        for start, one in _subarrays(starts, counts, out):
            self.get(name, start, one)

    def flush(self, *, durable: bool = False) -> None:
        """Complete what was posted."""

    def close(self) -> None:
        """Complete and close."""
        raise NotImplementedError


class Objects(Carrier):
    """What parallel h5py and pnc_vol have in common."""

    def __init__(self, comm: Any, module: Any, **options: Any) -> None:
        super().__init__(comm)
        self._module = module
        self._options = options

    def create(self, path: str, variables: Variables, attrs: Attributes = _NONE, *, records: bool = False) -> None:
        self._file = self._module.File(path, "w", comm=self.comm, **self._options)
        self._sets = {
            name: self._file.create_dataset(name, shape, dtype, **self._growing(shape) if records else {})
            for name, (shape, dtype) in variables.items()
        }
        for key, value in attrs.items():
            self._file.attrs[key] = value

    def _growing(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Arguments for a dataset whose first axis may grow."""
        return {}

    def open(self, path: str, variables: Variables) -> None:
        self._file = self._module.File(path, "r", comm=self.comm, **self._options)
        self._sets = {name: self._file[name] for name in variables}

    def flush(self, *, durable: bool = False) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class PncVolCarrier(Objects):
    """pnc_vol: assignments that are posted, reads that are posted, a flush."""

    def _growing(self, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"maxshape": (None, *shape[1:])}

    def put(self, name: str, start: Place, values: Array) -> None:
        if values.size:
            self._sets[name][index_of(start, values.shape)] = values

    def get(self, name: str, start: Place, out: Array) -> None:
        if out.size:
            self._sets[name].iget(index_of(start, out.shape), out)

    def put_view(self, name: str, starts: Array, counts: Array, values: Array, parts: int) -> None:
        self._sets[name].iput_many(starts, counts, values.reshape(-1))

    def get_view(self, name: str, starts: Array, counts: Array, out: Array, parts: int) -> None:
        self._sets[name].iget_many(starts, counts, out.reshape(-1))

    def flush(self, *, durable: bool = False) -> None:
        self._file.flush(durable=durable)


class ParallelH5py(Objects):
    """h5py over a parallel HDF5; its datasets do not grow, which would need chunks."""

    def __init__(self, comm: Any, module: Any, *, collective: bool) -> None:
        super().__init__(comm, module, driver="mpio")
        self._collective = collective

    def put(self, name: str, start: Place, values: Array) -> None:
        ds = self._sets[name]
        if self._collective:
            with ds.collective:
                ds[index_of(start, values.shape)] = values
        elif values.size:
            ds[index_of(start, values.shape)] = values

    def get(self, name: str, start: Place, out: Array) -> None:
        ds = self._sets[name]
        if self._collective:
            with ds.collective:
                out[...] = ds[index_of(start, out.shape)]
        elif out.size:
            out[...] = ds[index_of(start, out.shape)]


class MpiFileCarrier(Carrier):
    """mpi4py's `MPI.File`: a file type for each subarray, written together or by each rank alone."""

    def __init__(self, comm: Any, *, collective: bool) -> None:
        # the process that starts the ranks loads this module, and must not start MPI itself
        from mpi4py import MPI

        super().__init__(comm)
        self._mpi = MPI
        self._collective = collective

    def _begin(self, path: str, variables: Variables, mode: int) -> None:
        self._layout = _layout(variables)
        self._file = self._mpi.File.Open(self.comm, path, mode)
        self._write = self._file.Write_all if self._collective else self._file.Write
        self._read = self._file.Read_all if self._collective else self._file.Read

    def create(self, path: str, variables: Variables, attrs: Attributes = _NONE, *, records: bool = False) -> None:
        self._begin(path, variables, self._mpi.MODE_CREATE | self._mpi.MODE_RDWR)
        self._file.Set_size(nbytes_of(variables))

    def open(self, path: str, variables: Variables) -> None:
        self._begin(path, variables, self._mpi.MODE_RDONLY)

    def _move(self, name: str, start: Place, values: Array, call: Callable[[Any], None]) -> None:
        begin, shape, itemsize = self._layout[name]
        if not values.size:
            self._file.Set_view(begin)
            call([values, 0, self._mpi.BYTE])
            return
        if values.shape[1:] == shape[1:]:
            self._file.Set_view(begin + start[0] * itemsize * int(np.prod(shape[1:])))
            call([values, values.nbytes, self._mpi.BYTE])
            return
        kind = self._mpi.BYTE.Create_subarray([*shape, itemsize], [*values.shape, itemsize], [*start, 0]).Commit()
        self._file.Set_view(begin, self._mpi.BYTE, kind)
        call([values, values.nbytes, self._mpi.BYTE])
        kind.Free()

    def put(self, name: str, start: Place, values: Array) -> None:
        self._move(name, start, np.ascontiguousarray(values), self._write)

    def get(self, name: str, start: Place, out: Array) -> None:
        self._move(name, start, out, self._read)

    def _view(
        self, name: str, starts: Array, counts: Array, values: Array, parts: int, call: Callable[[Any], None]
    ) -> None:
        begin, shape, itemsize = self._layout[name]
        sizes = np.prod(counts, axis=1) * itemsize
        inner = tuple(counts[0, 1:]) == shape[1:] and bool((counts == counts[0]).all())
        if not inner:
            raise ValueError("a view here is of whole rows, as many in each subarray")
        at = starts[:, 0] * (int(np.prod(shape[1:])) * itemsize)
        kind = self._mpi.BYTE.Create_hindexed(sizes.tolist(), at.tolist()).Commit()
        self._file.Set_view(begin, self._mpi.BYTE, kind)
        for part in values.reshape(parts, -1):
            call([part, part.nbytes, self._mpi.BYTE])
        kind.Free()

    def put_view(self, name: str, starts: Array, counts: Array, values: Array, parts: int) -> None:
        self._view(name, starts, counts, values, parts, self._write)

    def get_view(self, name: str, starts: Array, counts: Array, out: Array, parts: int) -> None:
        self._view(name, starts, counts, out, parts, self._read)

    def flush(self, *, durable: bool = False) -> None:
        if durable:
            self._file.Sync()

    def close(self) -> None:
        self._file.Close()


class Posix(Carrier):
    """`os.pwrite` and `os.preadv` of each contiguous run, by each rank for itself."""

    def create(self, path: str, variables: Variables, attrs: Attributes = _NONE, *, records: bool = False) -> None:
        if self.comm.rank == 0:
            REAL.close(REAL.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        self.comm.Barrier()
        self._layout = _layout(variables)
        self._fd = REAL.open(path, os.O_RDWR)

    def open(self, path: str, variables: Variables) -> None:
        self._layout = _layout(variables)
        self._fd = REAL.open(path, os.O_RDONLY)

    def put(self, name: str, start: Place, values: Array) -> None:
        values = np.ascontiguousarray(values)
        for at, run in self._runs(name, start, values):
            write_all(REAL, self._fd, run, at)

    def get(self, name: str, start: Place, out: Array) -> None:
        for at, run in self._runs(name, start, out):
            read_at(REAL, self._fd, run, at)

    def _runs(self, name: str, start: Place, values: Array) -> list[tuple[int, Any]]:
        """Offset in the file and bytes of each contiguous run of a subarray."""
        begin, shape, itemsize = self._layout[name]
        if not values.size:
            return []
        inner = values.ndim
        while inner > 1 and values.shape[inner - 1] == shape[inner - 1]:
            inner -= 1
        inner = max(inner - 1, 0)
        strides = itemsize * np.concatenate([np.cumprod(np.array((shape[1:]), np.int64)[::-1])[::-1], [1]]).astype(
            np.int64
        )
        at = np.full((), begin + int(np.dot(strides, start)), np.int64)
        for axis in range(inner):
            at = at[..., None] + np.arange(values.shape[axis]) * strides[axis]
        rows = values.reshape(at.size, -1).view("u1")
        return [(offset, row.data) for offset, row in zip(at.ravel().tolist(), rows, strict=True)]

    def flush(self, *, durable: bool = False) -> None:
        if durable:
            REAL.fsync(self._fd)

    def close(self) -> None:
        REAL.close(self._fd)
        self.comm.Barrier()


class PnetCDFCarrier(Carrier):
    """PnetCDF-Python: requests are posted, `wait_all` completes them."""

    def __init__(self, comm: Any, module: Any, **options: Any) -> None:
        super().__init__(comm)
        self._module = module
        self._options = options
        self._kept: list[Array] = []

    def create(self, path: str, variables: Variables, attrs: Attributes = _NONE, *, records: bool = False) -> None:
        f = self._file = self._module.File(path, mode="w", format="NC_64BIT_DATA", comm=self.comm, **self._options)
        for key, value in attrs.items():
            f.put_att(key, value)
        dims: dict[int, str] = {}
        made: dict[str, Any] = {}
        for name, (shape, dtype) in variables.items():
            kinds = [-1 if records and axis == 0 else n for axis, n in enumerate(shape)]
            for n in kinds:
                if n not in dims:
                    dims[n] = f"n{n}" if n >= 0 else "time"
                    f.def_dim(dims[n], n)
            made[name] = f.def_var(name, np.dtype(dtype), tuple(dims[n] for n in kinds))
        f.enddef()
        self._sets = made

    def open(self, path: str, variables: Variables) -> None:
        self._file = self._module.File(path, mode="r", comm=self.comm)
        self._sets = {name: self._file.variables[name] for name in variables}

    def put(self, name: str, start: Place, values: Array) -> None:
        if values.size:
            # PnetCDF reads it when it waits
            self._kept.append(np.ascontiguousarray(values))
            self._sets[name].iput_var(self._kept[-1], start=start, count=values.shape)

    def get(self, name: str, start: Place, out: Array) -> None:
        if out.size:
            self._sets[name].iget_var(out, start=start, count=out.shape)

    def put_view(self, name: str, starts: Array, counts: Array, values: Array, parts: int) -> None:
        self._kept += [values, starts, counts := np.ascontiguousarray(counts)]
        self._sets[name].iput_varn(values.reshape(-1), len(starts), starts, counts)

    def get_view(self, name: str, starts: Array, counts: Array, out: Array, parts: int) -> None:
        self._kept += [starts, counts := np.ascontiguousarray(counts)]
        self._sets[name].iget_varn(out.reshape(-1), len(starts), starts, counts)

    def flush(self, *, durable: bool = False) -> None:
        self._file.wait_all()
        self._kept.clear()
        if durable:
            self._file.flush()

    def close(self) -> None:
        self.flush()
        self._file.close()


def nbytes_of(variables: Variables) -> int:
    """Bytes of all variables."""
    return sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in variables.values())


def index_of(start: Place, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The index of a subarray."""
    return tuple(slice(at, at + n) for at, n in zip(start, shape, strict=True))


def _subarrays(starts: Array, counts: Array, values: Array) -> Iterator[tuple[Place, Array]]:
    flat, at = values.reshape(-1), 0
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        n = int(np.prod(count))
        yield tuple(start), flat[at : at + n].reshape(count)
        at += n


def _layout(variables: Variables) -> dict[str, tuple[int, tuple[int, ...], int]]:
    """Begin, shape and bytes of an element of each variable of a raw file."""
    found, at = {}, 0
    for name, (shape, dtype) in variables.items():
        itemsize = np.dtype(dtype).itemsize
        found[name] = (at, tuple(shape), itemsize)
        at += int(np.prod(shape)) * itemsize
    return found


def carriers(comm: Any, options: Mapping[str, Any]) -> dict[str, Carrier | str]:
    """All carriers; for those that cannot be had, the reason.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    options : mapping
        More keywords of `pnc_vol.File`, such as ``hints``.
    """
    found: dict[str, Carrier | str] = {
        "pnc_vol": PncVolCarrier(comm, pnc_vol, **options),
        "pnc_vol posix": PncVolCarrier(comm, pnc_vol, **{**options, "driver": "posix"}),
        "MPI.File collective": MpiFileCarrier(comm, collective=True),
        "MPI.File independent": MpiFileCarrier(comm, collective=False),
    }
    module = load("pnetcdf")
    found["PnetCDF-Python"] = module if isinstance(module, str) else PnetCDFCarrier(comm, module)
    h5 = load("h5py")
    if not isinstance(h5, str) and not h5.get_config().mpi:
        h5 = "this h5py was built without MPI"
    for kind in (True, False):
        name = f"h5py {'collective' if kind else 'independent'}"
        found[name] = h5 if isinstance(h5, str) else ParallelH5py(comm, h5, collective=kind)
    found["os.pwrite"] = Posix(comm)
    return found
