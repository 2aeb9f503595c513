"""A peer writes and reads files with the calls of one library, in one process or on many ranks.

Knows: the interfaces of pnc_vol, h5py, netCDF4, scipy, PnetCDF-Python, mpi4py's `MPI.File`, numpy and the operating
system. Does not know: clocks, what is measured.

Rules
-----
1. Each peer is written as its own documentation advises users who want speed: netCDF4 without prefilling, PnetCDF with
   posted requests and one wait, h5py with chunks of several records, pnc_vol and h5py by plain assignment.
2. All are a `Peer`. A library lacks the method for what it cannot do, and the work leaves it out (`Work.without`).
3. Loops over many small writes are here and call the library itself: a call more would be measured with them.
4. On many ranks `create`, `open`, `flush` and `close` are called by all of them; `write` and `read` as often on every
   rank, perhaps of nothing. Data are in the file, or in the arrays, after `flush`. A peer writes at `write` what its
   library cannot post.
5. The raw peers keep native bytes, one variable behind the other, without a header: they are the limit, not a format.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at, write_all

__all__ = [
    "LIBRARIES", "H5py", "MpiFilePeer", "Peer", "PncVol", "PnetCDF", "Raw", "Spec", "index_of", "installed", "load",
    "nbytes_of", "on_ranks",
]  # fmt: skip

Array = npt.NDArray[Any]
Place = tuple[int, ...]
_NONE: Mapping[str, Any] = {}
CHUNK = 4096
"""Elements of a chunk of a record variable, where a library has chunks."""


class Spec(NamedTuple):
    """A variable to be defined.

    dims : names of its dimensions; by default one for each length.
    grows : whether its first axis may grow.
    decomposition : for blobs, which elements a rank owns.
    """

    shape: tuple[int, ...]
    dtype: Any
    dims: tuple[str, ...] | None = None
    attrs: Mapping[str, Any] = _NONE
    fill: Any = None
    grows: bool = False
    decomposition: Any = None


Specs = Mapping[str, Spec]


def load(name: str) -> Any:
    """Return the module `name`, or the reason why it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            return f"{name} is not installed"
        return f"{name} cannot be imported: {error}"


def index_of(start: Sequence[int], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the index of a subarray."""
    return tuple(slice(at, at + n) for at, n in zip(start, shape, strict=True))


def nbytes_of(specs: Specs) -> int:
    """Return the number of bytes of all variables."""
    return sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs.values())


class Peer:
    """A library and its file, whose variables are indexed as arrays unless a class has other calls.

    name, path : str
    module : the library.
    comm : mpi4py.MPI.Intracomm or None
    file : what the library opened.
    variables : by name, the library's variables.
    """

    is_netcdf = True

    def __init__(self, name: str, module: Any, folder: str = "", comm: Any = None, **options: Any) -> None:
        self.name, self.module, self.folder, self.comm, self.options = name, module, folder, comm, options
        self.path = os.path.join(folder, f"{name.replace(' ', '_')}.bench")
        self.file: Any = None
        self.variables: Any = {}

    @property
    def how(self) -> dict[str, Any]:
        """Keywords with which the library opens a file."""
        return self.options if self.comm is None else {"comm": self.comm, **self.options}

    def new(self) -> None:
        """Make a file without variables."""
        raise NotImplementedError

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        """Define variables, attributes of the file, and dimensions that are in the file in this order."""
        raise NotImplementedError

    def enddef(self) -> None:
        """End the definitions, where a library wants to know."""

    def create(self, specs: Specs, attrs: Mapping[str, Any] = _NONE) -> Any:
        """Make a file with variables; the variables by name."""
        self.new()
        self.define(specs, attrs)
        self.enddef()
        return self.variables

    def open(self, mode: str = "r") -> Any:
        """Open the file; its variables by name."""
        raise NotImplementedError

    def write(self, name: str, start: Place, values: Array) -> None:
        """Write a subarray of `values`' shape, of nothing if its size is 0."""
        if values.size:
            self.variables[name][index_of(start, values.shape)] = values

    def read(self, name: str, start: Place, out: Array) -> None:
        """Read a subarray into `out`."""
        if out.size:
            out[...] = self.variables[name][index_of(start, out.shape)]

    def write_runs(self, name: str, starts: Array, counts: Array, values: Array, parts: int = 1) -> None:
        """Write many subarrays by one description.

        Parameters
        ----------
        values : ndarray
            Of all subarrays, one behind the other.
        parts : int
            Into how many calls of equal size `values` goes, where the library can go on in a description.
        """
        for start, one in _subarrays(starts, counts, values):
            self.write(name, start, one)

    def read_runs(self, name: str, starts: Array, counts: Array, out: Array, parts: int = 1) -> None:
        """Read many subarrays into `out` by one description."""
        for start, one in _subarrays(starts, counts, out):
            self.read(name, start, one)

    def begin_record(self, record: int, names: Sequence[str]) -> None:
        """Do what must be done before the first write of a record."""

    def flush(self, *, durable: bool = False) -> None:
        """Complete what was posted, and let readers see it."""
        self.file.sync()

    def close(self) -> None:
        """Complete and close."""
        self.file.close()

    def native(self, got: Any) -> Any:
        """Return what was read in the machine's byte order and in memory of its own."""
        return got

    def get(self, name: str) -> Any:
        """Return all of a variable in a new array."""
        return self.variables[name][:]

    def save(self, values: Mapping[str, Array]) -> None:
        """Make a file of whole variables, and close it."""
        self.create({name: Spec(one.shape, one.dtype) for name, one in values.items()})
        for name, one in values.items():
            self.variables[name][:] = one
        self.close()

    def read_all(self, out: Mapping[str, Array]) -> None:
        """Read whole variables into arrays, from the opening to the close."""
        variables = self.open()
        for name, one in out.items():
            one[...] = variables[name][:]
        self.close()

    def places(self, index: Sequence[int | slice], values: Array) -> Any:
        """Prepare what `write_each` and the like need of the places of rows (int) or of pieces (slice)."""
        return index

    def write_each(self, places: Any, values: Array) -> None:
        """Write each row of `values` to its place in the variable ``x``, with a call each."""
        x = self.variables["x"]
        for key, value in zip(places, values, strict=True):
            x[key] = value

    def read_each(self, places: Any, out: Array) -> None:
        """Read each row of `out` from its place, with a call each."""
        x = self.variables["x"]
        for i, key in enumerate(places):
            out[i] = x[key]

    def append(self, x: Any, record: int, row: Array) -> None:
        """Write the next record of a variable."""
        x[record] = row


def _subarrays(starts: Array, counts: Array, values: Array) -> Iterator[tuple[Place, Array]]:
    flat, at = values.reshape(-1), 0
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        n = math.prod(count)
        yield tuple(start), flat[at : at + n].reshape(count)
        at += n


class H5py(Peer):
    """h5py, alone or over a parallel HDF5; there its datasets do not grow, which would need chunks.

    collective : whether all ranks write and read together.
    """

    collective = False

    def new(self) -> None:
        self.file, self.variables = self.module.File(self.path, "w", **self.how), {}

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        for key, value in attrs.items():
            self.file.attrs[key] = value
        for name, spec in specs.items():
            x = self.file.create_dataset(name, spec.shape, spec.dtype, fillvalue=spec.fill, **self._more(spec))
            for key, value in spec.attrs.items():
                x.attrs[key] = value
            self.variables[name] = x

    def _more(self, spec: Spec) -> Mapping[str, Any]:
        if not spec.grows or self.comm is not None:
            return _NONE
        inner = spec.shape[1:]
        return {"maxshape": (None, *inner), "chunks": (max(1, CHUNK // math.prod(inner)), *inner)}

    def open(self, mode: str = "r") -> Any:
        self.file = self.variables = self.module.File(self.path, mode, **self.how)
        return self.file

    def _together(self, name: str) -> Any:
        return self.variables[name].collective if self.collective else contextlib.nullcontext()

    def write(self, name: str, start: Place, values: Array) -> None:
        if self.collective or values.size:
            with self._together(name):
                self.variables[name][index_of(start, values.shape)] = values

    def read(self, name: str, start: Place, out: Array) -> None:
        if self.collective or out.size:
            with self._together(name):
                out[...] = self.variables[name][index_of(start, out.shape)]

    def flush(self, *, durable: bool = False) -> None:
        self.file.flush()

    def save(self, values: Mapping[str, Array]) -> None:
        with self.module.File(self.path, "w") as f:
            for name, one in values.items():
                f.create_dataset(name, data=one)

    def read_into(self, out: Mapping[str, Array]) -> None:
        """Do as `read_all` does, without an array of the library's own."""
        f = self.open()
        for name, one in out.items():
            f[name].read_direct(one)
        self.close()

    def append(self, x: Any, record: int, row: Array) -> None:
        x.resize(record + 1, axis=0)
        x[record] = row

    def attributes(self, x: Any) -> dict[str, Any]:
        """Return all attributes of a variable."""
        return dict(x.attrs)

    def set_attribute(self, x: Any, key: str, value: Any) -> None:
        """Change an attribute of a variable."""
        x.attrs[key] = value

    def create_group(self, name: str) -> None:
        """Make a group."""
        self.file.create_group(name)


class PncVol(H5py):
    """pnc_vol: assignments and reads are posted, a flush completes them."""

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        for name, n in dims.items():
            self.file.create_dimension(name, n)
        # a text of fixed length is one element
        texts = {
            name: spec._replace(shape=spec.shape[:-1], dtype=f"S{spec.shape[-1]}") if spec.dtype == "S1" else spec
            for name, spec in specs.items()
        }
        super().define(texts, attrs)

    def _more(self, spec: Spec) -> Mapping[str, Any]:
        more: dict[str, Any] = {"maxshape": (None, *spec.shape[1:])} if spec.grows else {}
        if spec.dims is not None:
            more["dims"] = spec.dims
        if spec.decomposition is not None:
            more["decomposition"] = spec.decomposition
        return more

    def open(self, mode: str = "r") -> Any:
        # a file knows its layout
        how = {key: value for key, value in self.how.items() if key not in ("layout", "subfiles", "header_reserve")}
        self.file = self.variables = self.module.File(self.path, mode, **how)
        return self.file

    def write(self, name: str, start: Place, values: Array) -> None:
        if values.dtype == "S1":
            start, values = start[:-1], values.view(f"S{values.shape[-1]}")[..., 0]
        if values.size:
            self.variables[name][index_of(start, values.shape)] = values

    def read(self, name: str, start: Place, out: Array) -> None:
        if out.size:
            self.variables[name].iget(index_of(start, out.shape), out)

    def write_runs(self, name: str, starts: Array, counts: Array, values: Array, parts: int = 1) -> None:
        self.variables[name].iput_many(starts, counts, values if values.ndim == 1 else values.reshape(-1))

    def read_runs(self, name: str, starts: Array, counts: Array, out: Array, parts: int = 1) -> None:
        self.variables[name].iget_many(starts, counts, out if out.ndim == 1 else out.reshape(-1))

    def flush(self, *, durable: bool = False) -> None:
        self.file.flush(durable=durable)

    def post_each(self, places: Any, values: Array) -> None:
        """Do as `write_each` does, with requests."""
        x = self.variables["x"]
        for key, value in zip(places, values, strict=True):
            x.iput(key, value)
        self.file.wait_all()

    def request_each(self, places: Any, out: Array) -> None:
        """Do as `read_each` does, with requests."""
        x = self.variables["x"]
        for key, one in zip(places, out, strict=True):
            x.iget(key, one)
        self.file.wait_all()


class _Dimensioned(Peer):
    """A library whose variables have named dimensions."""

    def _dimensions(self, spec: Spec, known: set[str]) -> tuple[str, ...]:
        """Return the names of a variable's dimensions, which are defined if they are new."""
        names = spec.dims or ["t" if spec.grows and axis == 0 else f"n{n}" for axis, n in enumerate(spec.shape)]
        for axis, (name, n) in enumerate(zip(names, spec.shape, strict=True)):
            if name not in known:
                known.add(name)
                self._define(name, None if spec.grows and axis == 0 else n)
        return tuple(names)

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        for key, value in attrs.items():
            self.set_attribute(self.file, key, value)
        for name, n in dims.items():
            self._define(name, n)
        known = set(dims)
        self.variables = {
            name: self._variable(name, spec, self._dimensions(spec, known)) for name, spec in specs.items()
        }

    def _define(self, name: str, n: int | None) -> None:
        """Define a dimension; None for the one that grows."""
        self.file.createDimension(name, n)

    def _variable(self, name: str, spec: Spec, dims: tuple[str, ...]) -> Any:
        """Define a variable with its attributes."""
        x = self.file.createVariable(name, spec.dtype, dims)
        for key, value in spec.attrs.items():
            setattr(x, key, value)
        return x

    def set_attribute(self, x: Any, key: str, value: Any) -> None:
        """Change an attribute of a variable."""
        setattr(x, key, value)


class NetCDF4(_Dimensioned):
    """netCDF4-python, CDF-5."""

    def new(self) -> None:
        self.file = self.module.Dataset(self.path, "w", format="NETCDF3_64BIT_DATA")

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        if all(spec.fill is None for spec in specs.values()):
            self.file.set_fill_off()
        super().define(specs, attrs, dims)

    def _variable(self, name: str, spec: Spec, dims: tuple[str, ...]) -> Any:
        x = self.file.createVariable(name, spec.dtype, dims, fill_value=spec.fill)
        if spec.attrs:
            x.setncatts(spec.attrs)
        return x

    def open(self, mode: str = "r") -> Any:
        self.file = self.module.Dataset(self.path, mode)
        self.file.set_auto_mask(False)
        self.variables = self.file.variables
        return self.variables

    def attributes(self, x: Any) -> dict[str, Any]:
        """Return all attributes of a variable."""
        return {key: x.getncattr(key) for key in x.ncattrs()}


class Scipy(_Dimensioned):
    """scipy.io.netcdf_file, CDF-2: the file is held in memory, and written anew at each flush."""

    mapped = False

    def new(self) -> None:
        self.file = self.module.netcdf_file(self.path, "w", version=2)

    def open(self, mode: str = "r") -> Any:
        self.file = self.module.netcdf_file(self.path, "r" if mode == "r" else "a", mmap=self.mapped)
        self.variables = self.file.variables
        return self.variables

    def close(self) -> None:
        # its memory map cannot be closed while arrays refer to it
        self.variables = {}
        super().close()

    def get(self, name: str) -> Any:
        return self.native(super().get(name))

    def native(self, got: Any) -> Any:
        return [self.native(x) for x in got] if isinstance(got, list) else got.astype(got.dtype.newbyteorder("="))

    def attributes(self, x: Any) -> dict[str, Any]:
        """Return all attributes of a variable."""
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in x._attributes.items()}


class ScipyMapped(Scipy):
    """scipy over a memory map; results are made native, which a user would have to do, too."""

    mapped = True


class PnetCDF(_Dimensioned):
    """PnetCDF-Python: requests are posted, one wait completes them."""

    def new(self) -> None:
        self.file = self.module.File(self.path, mode="w", format="NC_64BIT_DATA", **self.how)
        self._reset()

    def _reset(self) -> None:
        # PnetCDF reads arrays when it waits, and swaps their bytes in place
        self._kept: list[Array] = []
        self._lent: set[str] = set()
        self._copies: list[tuple[Array, Array]] = []
        self._filled: set[str] = set()

    def _define(self, name: str, n: int | None) -> None:
        self.file.def_dim(name, -1 if n is None else n)

    def _variable(self, name: str, spec: Spec, dims: tuple[str, ...]) -> Any:
        dtype = np.dtype(spec.dtype)
        x = self.file.def_var(name, dtype, dims)
        if spec.fill is not None:
            x.def_fill(no_fill=0, fill_value=np.array(spec.fill, dtype))
            self._filled.add(name)
        for key, value in spec.attrs.items():
            x.put_att(key, value)
        return x

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        for key, value in attrs.items():
            self.file.put_att(key, value)
        super().define(specs, _NONE, dims)

    def enddef(self) -> None:
        self.file.enddef()

    def open(self, mode: str = "r") -> Any:
        self.file = self.module.File(self.path, mode=mode, **({} if self.comm is None else {"comm": self.comm}))
        self._reset()
        self.variables = self.file.variables
        return self.variables

    def begin_record(self, record: int, names: Sequence[str]) -> None:
        for name in names:
            if name in self._filled:
                self.variables[name].fill_rec(record)

    def write(self, name: str, start: Place, values: Array) -> None:
        if values.size:
            # a scalar has neither start nor count
            self._kept.append(np.ascontiguousarray(values))
            at = {"start": start, "count": values.shape} if values.ndim else {}
            self.variables[name].iput_var(self._kept[-1], **at)

    def read(self, name: str, start: Place, out: Array) -> None:
        if out.size:
            self.variables[name].iget_var(out, start=start, count=out.shape)

    def write_runs(self, name: str, starts: Array, counts: Array, values: Array, parts: int = 1) -> None:
        values = np.ascontiguousarray(values).reshape(-1)
        if name in self._lent:
            # a second request of the same array before a wait
            values = values.copy()
        self._lent.add(name)
        counts = np.ascontiguousarray(counts)
        self._kept += [starts, counts, values]
        if len(starts):
            self.variables[name].iput_varn(values, len(starts), starts, counts, *_kind(values))

    def read_runs(self, name: str, starts: Array, counts: Array, out: Array, parts: int = 1) -> None:
        into = out.reshape(-1) if out.flags.c_contiguous else np.empty(out.size, out.dtype)
        if not out.flags.c_contiguous:
            self._copies.append((out, into))
        counts = np.ascontiguousarray(counts)
        self._kept += [starts, counts, into]
        if len(starts):
            self.variables[name].iget_varn(into, len(starts), starts, counts, *_kind(into))

    def flush(self, *, durable: bool = False) -> None:
        self.file.wait_all()
        for out, found in self._copies:
            out[...] = found.reshape(out.shape)
        for kept in (self._kept, self._lent, self._copies):
            kept.clear()
        if durable:
            self.file.flush()

    def close(self) -> None:
        self.flush()
        self.file.close()

    def attributes(self, x: Any) -> dict[str, Any]:
        """Return all attributes of a variable."""
        return {key: x.get_att(key) for key in x.ncattrs()}

    def set_attribute(self, x: Any, key: str, value: Any) -> None:
        self.file.redef()
        x.put_att(key, value)
        self.file.enddef()

    def get(self, name: str) -> Any:
        x = self.variables[name]
        found = np.empty(x.shape, x.dtype)
        x.get_var_all(found)
        return found

    def save(self, values: Mapping[str, Array]) -> None:
        self.create({name: Spec(one.shape, one.dtype) for name, one in values.items()})
        for name, one in values.items():
            self.variables[name].iput_var(one)
        self.close()

    def read_all(self, out: Mapping[str, Array]) -> None:
        variables = self.open()
        for name, one in out.items():
            variables[name].iget_var(one)
        self.close()

    read_into = read_all

    def places(self, index: Sequence[int | slice], values: Array) -> Any:
        """Start and count of each."""
        n = values.shape[1]
        return [((at.start,), (n,)) if isinstance(at, slice) else ((at, 0), (1, n)) for at in index]

    def write_each(self, places: Any, values: Array) -> None:
        x = self.variables["x"]
        for (start, count), value in zip(places, values, strict=True):
            x.iput_var(value, start=start, count=count)
        self.file.wait_all()

    post_each = write_each

    def read_each(self, places: Any, out: Array) -> None:
        x = self.variables["x"]
        self.file.begin_indep()
        for (start, count), one in zip(places, out, strict=True):
            x.get_var(one, start=start, count=count)
        self.file.end_indep()

    def request_each(self, places: Any, out: Array) -> None:
        """Do as `read_each` does, with requests."""
        x = self.variables["x"]
        for (start, count), one in zip(places, out, strict=True):
            x.iget_var(one, start=start, count=count)
        self.file.wait_all()

    def append(self, x: Any, record: int, row: Array) -> None:
        x.iput_var(row, start=(record, 0), count=(1, len(row)))


def _kind(values: Array) -> tuple[Any, ...]:
    """Return the size and MPI type of numbers in memory; without a type PnetCDF takes their bytes for what the file
    holds."""
    from mpi4py import MPI

    kinds = {"f8": MPI.DOUBLE, "i4": MPI.INT}
    return (values.size, kinds[values.dtype.str[1:]]) if values.dtype.str[1:] in kinds else ()


class _Headerless(Peer):
    """Native bytes at places that follow from the variables alone."""

    is_netcdf = False

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        at = 0
        self.layout: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for name, spec in specs.items():
            itemsize = np.dtype(spec.dtype).itemsize
            self.layout[name] = (at, spec.shape, itemsize)
            at += math.prod(spec.shape) * itemsize
        self.nbytes = at


class Raw(_Headerless):
    """`os.pwrite` and `os.preadv` of each contiguous run, by each rank for itself: what the machine can carry."""

    def new(self) -> None:
        if self.comm is None or self.comm.rank == 0:
            REAL.close(REAL.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        if self.comm is not None:
            self.comm.Barrier()
        self.file = REAL.open(self.path, os.O_RDWR)

    def open(self, mode: str = "r") -> Any:
        self.file = REAL.open(self.path, os.O_RDONLY)

    def write(self, name: str, start: Place, values: Array) -> None:
        values = np.ascontiguousarray(values)
        for at, run in self._runs(name, start, values):
            write_all(REAL, self.file, run, at)

    def read(self, name: str, start: Place, out: Array) -> None:
        for at, run in self._runs(name, start, out):
            read_at(REAL, self.file, run, at)

    def _runs(self, name: str, start: Place, values: Array) -> list[tuple[int, Any]]:
        """Return the offset in the file and bytes of each contiguous run of a subarray."""
        begin, shape, itemsize = self.layout[name]
        if not values.size:
            return []
        inner = values.ndim
        while inner > 1 and values.shape[inner - 1] == shape[inner - 1]:
            inner -= 1
        strides = [itemsize * math.prod(shape[axis + 1 :]) for axis in range(values.ndim)]
        at = np.full((), begin + int(np.dot(strides, start)), np.int64)
        for axis in range(inner - 1):
            at = at[..., None] + np.arange(values.shape[axis]) * strides[axis]
        rows = values.reshape(at.size, -1).view("u1")
        return [(offset, row.data) for offset, row in zip(at.ravel().tolist(), rows, strict=True)]

    def flush(self, *, durable: bool = False) -> None:
        if durable:
            REAL.fsync(self.file)

    def close(self) -> None:
        REAL.close(self.file)
        if self.comm is not None:
            self.comm.Barrier()

    def get(self, name: str) -> Any:
        _, shape, _ = self.layout[name]
        found = np.empty(shape)
        self.read(name, (0,) * len(shape), found)
        return found

    def save(self, values: Mapping[str, Array]) -> None:
        self.create({name: Spec(one.shape, one.dtype) for name, one in values.items()})
        for name, one in values.items():
            write_all(REAL, self.file, one.data.cast("B"), self.layout[name][0])
        self.close()

    def read_all(self, out: Mapping[str, Array]) -> None:
        self.open()
        for name, one in out.items():
            read_at(REAL, self.file, one.data.cast("B"), self.layout[name][0])
        self.close()

    read_into = read_all

    def places(self, index: Sequence[int | slice], values: Array) -> Any:
        """Return the offset of each."""
        return [at.start * values.itemsize if isinstance(at, slice) else at * values[0].nbytes for at in index]

    def write_each(self, places: Any, values: Array) -> None:
        REAL.ftruncate(self.file, self.nbytes)
        for at, value in zip(places, values, strict=True):
            write_all(REAL, self.file, value.data.cast("B"), at)

    def read_each(self, places: Any, out: Array) -> None:
        for at, one in zip(places, out, strict=True):
            read_at(REAL, self.file, one.data.cast("B"), at)


class Swapped(Raw):
    """`os.pwrite` and `os.preadv`, each run turned into the byte order of NetCDF: the least work of any library."""

    def write(self, name: str, start: Place, values: Array) -> None:
        for at, run in self._runs(name, start, np.ascontiguousarray(values)):
            write_all(REAL, self.file, np.frombuffer(run, values.dtype).byteswap().view("u1").data, at)

    def read(self, name: str, start: Place, out: Array) -> None:
        for at, run in self._runs(name, start, out):
            read_at(REAL, self.file, run, at)
            # while it is in the cache
            np.frombuffer(run, out.dtype).byteswap(inplace=True)


class Mapped(_Headerless):
    """A memory map of native bytes, copied: what the machine can carry. All variables are float32, of one shape."""

    def new(self) -> None:
        self._flags = os.O_RDWR | os.O_CREAT

    def enddef(self) -> None:
        """Map variables whose records lie interleaved; the map lives as long as they do."""
        first, *inner = next(iter(self.layout.values()))[1]
        fd, writable = REAL.open(self.path, self._flags), self._flags != os.O_RDONLY
        try:
            if writable:
                REAL.ftruncate(fd, self.nbytes)
            whole = np.frombuffer(REAL.mmap(fd, self.nbytes, writable=writable), "f4")
            whole = whole.reshape(first, len(self.layout), *inner)
            self.variables = {name: whole[:, i] for i, name in enumerate(self.layout)}
        finally:
            REAL.close(fd)

    def open(self, mode: str = "r") -> Any:
        self._flags = os.O_RDONLY
        self.enddef()
        return self.variables

    def close(self) -> None:
        self.variables = {}

    def native(self, got: Any) -> Any:
        return [np.array(x) for x in got] if isinstance(got, list) else np.array(got)


class MpiFilePeer(_Headerless):
    """mpi4py's `MPI.File`: a file type for each subarray, written together or by each rank alone; `module` is MPI."""

    collective = True

    def new(self) -> None:
        self._begin(self.module.MODE_CREATE | self.module.MODE_RDWR)

    def open(self, mode: str = "r") -> Any:
        self._begin(self.module.MODE_RDONLY)

    def _begin(self, mode: int) -> None:
        self.file = self.module.File.Open(self.comm, self.path, mode)
        self.put = self.file.Write_all if self.collective else self.file.Write
        self.take = self.file.Read_all if self.collective else self.file.Read

    def enddef(self) -> None:
        self.file.Set_size(self.nbytes)

    def _move(self, name: str, start: Place, values: Array, call: Callable[[Any], None]) -> None:
        begin, shape, itemsize = self.layout[name]
        byte, kind = self.module.BYTE, None
        if not values.size:
            self.file.Set_view(begin)
        elif values.shape[1:] == shape[1:]:
            self.file.Set_view(begin + start[0] * itemsize * math.prod(shape[1:]))
        else:
            kind = byte.Create_subarray([*shape, itemsize], [*values.shape, itemsize], [*start, 0]).Commit()
            self.file.Set_view(begin, byte, kind)
        call([values, values.nbytes, byte])
        if kind is not None:
            kind.Free()

    def write(self, name: str, start: Place, values: Array) -> None:
        self._move(name, start, np.ascontiguousarray(values), self.put)

    def read(self, name: str, start: Place, out: Array) -> None:
        self._move(name, start, out, self.take)

    def move_runs(self, begin: int, offsets: Array, lengths: Array, parts: Array, call: Callable[[Any], None]) -> None:
        """Write or read `parts`, one call each, through one view of runs of bytes."""
        kind = self.module.BYTE.Create_hindexed(lengths.tolist(), offsets.tolist()).Commit()
        self.file.Set_view(begin, self.module.BYTE, kind)
        for part in parts:
            call([part, part.nbytes, self.module.BYTE])
        kind.Free()

    def _rows(self, name: str, starts: Array, counts: Array, values: Array, call: Callable[[Any], None]) -> None:
        begin, shape, itemsize = self.layout[name]
        if tuple(counts[0, 1:]) != shape[1:] or (counts != counts[0]).any():
            raise ValueError("a view here is of whole rows, as many in each subarray")
        at = starts[:, 0] * (math.prod(shape[1:]) * itemsize)
        self.move_runs(begin, at, np.prod(counts, axis=1) * itemsize, values, call)

    def write_runs(self, name: str, starts: Array, counts: Array, values: Array, parts: int = 1) -> None:
        self._rows(name, starts, counts, values.reshape(parts, -1), self.put)

    def read_runs(self, name: str, starts: Array, counts: Array, out: Array, parts: int = 1) -> None:
        self._rows(name, starts, counts, out.reshape(parts, -1), self.take)

    def flush(self, *, durable: bool = False) -> None:
        if durable:
            self.file.Sync()

    def close(self) -> None:
        self.file.Close()


_SERIAL: dict[str, tuple[str, type[Peer]]] = {
    "pnc_vol": ("pnc_vol", PncVol),
    "h5py": ("h5py", H5py),
    "netCDF4": ("netCDF4", NetCDF4),
    "scipy": ("scipy.io", Scipy),
    "scipy mmap": ("scipy.io", ScipyMapped),
    "PnetCDF-Python": ("pnetcdf", PnetCDF),
    "os.pwrite": ("os", Raw),
    "numpy.memmap": ("numpy", Mapped),
}
LIBRARIES = ("pnc_vol", "h5py", "netCDF4", "scipy", "PnetCDF-Python")


def installed(folder: str, names: Sequence[str] = (*LIBRARIES, "os.pwrite")) -> dict[str, Any]:
    """Return the peers of one process, of these names; for those whose modules cannot be imported the reason."""
    modules = {name: load(_SERIAL[name][0]) for name in names}
    return {
        name: module if isinstance(module, str) else _SERIAL[name][1](name, module, folder)
        for name, module in modules.items()
    }


def on_ranks(comm: Any, **options: Any) -> dict[str, Any]:
    """Return the peers of many ranks; for those that cannot be had the reason.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    options : more keywords of `pnc_vol.File`, such as ``hints``.
    """
    # the process that starts the ranks loads this module, and must not start MPI itself
    from mpi4py import MPI

    pnc_vol, pnetcdf, h5py = load("pnc_vol"), load("pnetcdf"), load("h5py")
    if not isinstance(h5py, str) and not h5py.get_config().mpi:
        h5py = "this h5py was built without MPI"
    found: dict[str, Any] = {
        "pnc_vol": PncVol("pnc_vol", pnc_vol, comm=comm, **options),
        "pnc_vol posix": PncVol("pnc_vol posix", pnc_vol, comm=comm, **{**options, "driver": "posix"}),
        "MPI.File collective": MpiFilePeer("MPI.File collective", MPI, comm=comm),
        "MPI.File independent": MpiFilePeer("MPI.File independent", MPI, comm=comm),
        "PnetCDF-Python": pnetcdf if isinstance(pnetcdf, str) else PnetCDF("PnetCDF-Python", pnetcdf, comm=comm),
        "h5py collective": h5py,
        "h5py independent": h5py,
        "os.pwrite": Raw("os.pwrite", None, comm=comm),
    }
    for name in ("h5py collective", "h5py independent") if not isinstance(h5py, str) else ():
        found[name] = H5py(name, h5py, comm=comm, driver="mpio")
    for name in ("MPI.File independent", "h5py collective"):
        if not isinstance(found[name], str):
            found[name].collective = name.endswith("collective")
    return found
