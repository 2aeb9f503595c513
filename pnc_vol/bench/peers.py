"""A peer writes and reads files with the calls of one library, in one process or on many ranks.

Knows: the interfaces of pnc_vol, h5py, netCDF4, scipy, PnetCDF-Python, mpi4py's `MPI.File`, numpy and the operating
system. Does not know: clocks, what is measured.

Rules
-----
1. Each library is used as its own documentation advises users who want speed: netCDF4 without prefilling, PnetCDF with
   posted requests and one wait, h5py with chunks of several records, pnc_vol and h5py by plain assignment.
2. All are a `Peer`, which has netCDF4's calls; a class has what its library does in another way. What it cannot do is
   not in `ways`, and a work leaves it out.
3. Loops over many small writes are here and call the library itself: a call more would be measured with them.
4. On many ranks `create`, `open`, `flush` and `close` are called by all of them; `move` as often on every rank, perhaps
   of nothing. Data are in the file, or in the arrays, after `flush`. A peer moves at once what its library cannot
   post.
5. The raw peers keep native bytes, without a header, records interleaved: they are the limit, not a format.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at, write_all

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


def nbytes_of(specs: Specs) -> int:
    """Return the number of bytes of all variables."""
    return sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs.values())


class Peer:
    """A library and its file, whose variables are indexed as arrays: netCDF4, unless a class has other calls.

    module : the library.
    comm : mpi4py.MPI.Intracomm or None
    file, variables : what the library opened; its variables by name.
    ways : the names of what else it can do: "post" and "request" in `each`, "runs", "into", "groups".
    """

    is_netcdf = True
    collective = False
    ways: frozenset[str] = frozenset()

    def __init__(self, name: str, module: Any, comm: Any = None, **options: Any) -> None:
        self.name, self.module, self.comm, self.options = name, module, comm, options
        self.how = options if comm is None else {"comm": comm, **options}
        self.folder = self.path = ""
        self.file: Any = None
        self.variables: Any = {}

    def new(self) -> None:
        """Make a file without variables."""
        self.file, self.known = self.opened("w"), set[str]()

    def opened(self, mode: str) -> Any:
        """Return the library's file, made ("w") or opened."""
        file = self.module.Dataset(self.path, mode, format="NETCDF3_64BIT_DATA")
        file.set_auto_mask(False)
        return file

    def variable(self, name: str, spec: Spec) -> Any:
        """Define a variable with its attributes."""
        if spec.fill is None:
            self.file.set_fill_off()
        x = self.file.createVariable(name, spec.dtype, self.dimensions(spec), fill_value=spec.fill)
        if spec.attrs:
            x.setncatts(spec.attrs)
        return x

    def dimensions(self, spec: Spec) -> tuple[str, ...]:
        """Return the names of a variable's dimensions, which are defined if they are new."""
        names = spec.dims or ["t" if spec.grows and axis == 0 else f"n{n}" for axis, n in enumerate(spec.shape)]
        for axis, (name, n) in enumerate(zip(names, spec.shape, strict=True)):
            if name not in self.known:
                self.dimension(name, None if spec.grows and axis == 0 else n)
        return tuple(names)

    def dimension(self, name: str, n: int | None) -> None:
        """Define a dimension."""
        self.known.add(name)
        self.file.createDimension(name, n)

    def attributes(self, x: Any) -> dict[str, Any]:
        """Return all attributes of a variable."""
        return {key: x.getncattr(key) for key in x.ncattrs()}

    def put(self, x: Any, key: str, value: Any) -> None:
        """Set an attribute of a variable, or of the file."""
        setattr(x, key, value)

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        """Define attributes of the file, dimensions that are in the file in this order, and variables."""
        for key, value in attrs.items():
            self.put(self.file, key, value)
        for name, n in dims.items():
            self.dimension(name, n)
        variable = self.variable
        self.variables = {name: variable(name, spec) for name, spec in specs.items()}

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
        self.file = self.opened(mode)
        self.variables = self.file.variables
        return self.variables

    def move(self, how: str, name: str, start: Place, values: Array) -> None:
        """Write ("write") or read a subarray of `values`' shape, of nothing if its size is 0."""
        if values.size or self.collective:
            at = tuple(slice(first, first + n) for first, n in zip(start, values.shape, strict=True))
            if how == "write":
                self.variables[name][at] = values
            else:
                values[...] = self.variables[name][at]

    def runs(self, how: str, name: str, starts: Array, counts: Array, values: Array) -> None:
        """Move many subarrays by one description; `values` are those of all, one behind the other."""
        flat, at = values.reshape(-1), 0
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            n = math.prod(count)
            self.move(how, name, tuple(start), flat[at : at + n].reshape(count))
            at += n

    def all(self, how: str, name: str, values: Array) -> None:
        """Move all of a variable; "into" reads without an array of the library's own, if it has such a call."""
        if how == "write":
            self.variables[name][:] = values
        else:
            values[...] = self.variables[name][:]

    def begin_record(self, record: int) -> None:
        """Do what must be done before the first write of a record."""

    def flush(self, *, durable: bool = False) -> None:
        """Complete what was posted, and let readers see it."""
        self.file.sync()

    def close(self) -> None:
        """Complete and close; a memory map cannot be closed while arrays refer to it."""
        self.variables = {}
        self.file.close()

    def native(self, got: Any) -> Any:
        """Return what was read in the machine's byte order and in memory of its own."""
        return got

    def get(self, name: str) -> Any:
        """Return all of a variable in a new array."""
        return self.native(self.variables[name][:])

    def whole(self, name: str) -> Any:
        """Return all of a variable of the file, which is opened and closed."""
        self.open()
        found = self.get(name)
        self.close()
        return found

    def save(self, values: Mapping[str, Array]) -> None:
        """Make a file of whole variables, and close it."""
        self.create({name: Spec(one.shape, one.dtype) for name, one in values.items()})
        for name, one in values.items():
            self.all("write", name, one)
        self.close()

    def load(self, out: Mapping[str, Array], how: str = "read") -> None:
        """Read whole variables into arrays, from the opening to the close."""
        self.open()
        for name, one in out.items():
            self.all(how, name, one)
        self.close()

    def places(self, index: Sequence[int | slice], values: Array) -> Any:
        """Prepare what `each` needs of the places of rows (int) or of pieces (slice)."""
        return index

    def each(self, how: str, places: Any, rows: Array) -> None:
        """Write each of the rows to its place in the variable ``x``, or read it ("read"), with a call each."""
        x = self.variables["x"]
        if how == "read":
            for i, key in enumerate(places):
                rows[i] = x[key]
        else:
            for key, value in zip(places, rows, strict=True):
                x[key] = value

    def append(self, x: Any, record: int, row: Array) -> None:
        """Write the next record of a variable."""
        x[record] = row

    def set_attribute(self, name: str, key: str, value: Any) -> None:
        """Change an attribute of a variable."""
        self.put(self.variables[name], key, value)


class H5py(Peer):
    """h5py, alone or over a parallel HDF5; there all ranks move data together, or (`collective`) each by itself."""

    ways = frozenset({"into", "groups"})

    def opened(self, mode: str) -> Any:
        # a file that is there has its layout
        its_own = () if mode == "w" else ("layout", "subfiles", "header_reserve")
        return self.module.File(self.path, mode, **{key: self.how[key] for key in self.how.keys() - its_own})

    def open(self, mode: str = "r") -> Any:
        self.variables = self.file = self.opened(mode)
        self.enddef()
        return self.variables

    def variable(self, name: str, spec: Spec) -> Any:
        more: dict[str, Any] = {}
        if spec.grows and self.comm is None:
            # over a parallel HDF5 datasets do not grow, which would need chunks
            inner = spec.shape[1:]
            more = {"maxshape": (None, *inner), "chunks": (max(1, CHUNK // math.prod(inner)), *inner)}
        return self._defined(name, spec, spec.shape, spec.dtype, more)

    def _defined(self, name: str, spec: Spec, shape: tuple[int, ...], dtype: Any, more: dict[str, Any]) -> Any:
        x = self.file.create_dataset(name, shape, dtype, fillvalue=spec.fill, **more)
        for key, value in spec.attrs.items():
            x.attrs[key] = value
        return x

    def attributes(self, x: Any) -> dict[str, Any]:
        return dict(x.attrs)

    def put(self, x: Any, key: str, value: Any) -> None:
        x.attrs[key] = value

    def enddef(self) -> None:
        if self.collective:
            self.variables = dict(self.variables)
            for x in self.variables.values():
                x.collective.__enter__()

    def flush(self, *, durable: bool = False) -> None:
        self.file.flush()

    def save(self, values: Mapping[str, Array]) -> None:
        with self.module.File(self.path, "w") as f:
            for name, one in values.items():
                f.create_dataset(name, data=one)

    def all(self, how: str, name: str, values: Array) -> None:
        if how == "into":
            self.variables[name].read_direct(values)
        else:
            super().all(how, name, values)

    def append(self, x: Any, record: int, row: Array) -> None:
        x.resize(record + 1, axis=0)
        x[record] = row


class PncVol(H5py):
    """pnc_vol: assignments and reads are posted, a flush completes them; blobs get a rank's part in one piece."""

    ways = H5py.ways | {"post", "request", "runs"}
    record = 0
    specs: Specs = _NONE

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        self.specs = specs
        super().define(specs, attrs, dims)

    def dimension(self, name: str, n: int | None) -> None:
        self.file.create_dimension(name, n)

    def variable(self, name: str, spec: Spec) -> Any:
        shape, dtype = spec.shape, spec.dtype
        if dtype == "S1":
            # a text of fixed length is one element
            shape, dtype = shape[:-1], f"S{shape[-1]}"
        more: dict[str, Any] = {"maxshape": (None, *shape[1:])} if spec.grows else {}
        if spec.dims is not None:
            more["dims"] = spec.dims
        if spec.decomposition is not None:
            more["decomposition"] = spec.decomposition
        return self._defined(name, spec, shape, dtype, more)

    def move(self, how: str, name: str, start: Place, values: Array) -> None:
        if how == "read":
            if values.size:
                at = tuple(slice(first, first + n) for first, n in zip(start, values.shape, strict=True))
                self.variables[name].iget(at, values)
            return
        if values.dtype == "S1":
            start, values = start[:-1], values.view(f"S{values.shape[-1]}")[..., 0]
        super().move(how, name, start, values)

    def begin_record(self, record: int) -> None:
        self.record = record

    def runs(self, how: str, name: str, starts: Array, counts: Array, values: Array) -> None:
        spec, x = self.specs.get(name), self.variables[name]
        if how == "write" and spec is not None and spec.decomposition is not None:
            x.iput((self.record, spec.decomposition) if spec.grows else spec.decomposition, values)
        else:
            move = x.iput_many if how == "write" else x.iget_many
            move(starts, counts, values if values.ndim == 1 else values.reshape(-1))

    def flush(self, *, durable: bool = False) -> None:
        self.file.flush(durable=durable)

    def each(self, how: str, places: Any, rows: Array) -> None:
        if how in ("read", "write"):
            super().each(how, places, rows)
            return
        x = self.variables["x"]
        move = x.iput if how == "post" else x.iget
        for key, row in zip(places, rows, strict=True):
            move(key, row)
        self.file.wait_all()


class PnetCDF(Peer):
    """PnetCDF-Python: requests are posted, one wait completes them."""

    ways = frozenset({"post", "request", "runs", "into"})

    def opened(self, mode: str) -> Any:
        # PnetCDF reads arrays when it waits, and swaps their bytes in place
        self._kept: list[Any] = []
        self.filled: set[str] = set()
        made = {"format": "NC_64BIT_DATA", **self.how}
        return self.module.File(
            self.path, mode=mode, **(made if mode == "w" else {"comm": self.comm} if self.comm else {})
        )

    def variable(self, name: str, spec: Spec) -> Any:
        dtype = np.dtype(spec.dtype)
        x = self.file.def_var(name, dtype, self.dimensions(spec))
        if spec.fill is not None:
            x.def_fill(no_fill=0, fill_value=np.array(spec.fill, dtype))
            if spec.grows:
                self.filled.add(name)
        for key, value in spec.attrs.items():
            x.put_att(key, value)
        return x

    def dimension(self, name: str, n: int | None) -> None:
        self.known.add(name)
        self.file.def_dim(name, -1 if n is None else n)

    def attributes(self, x: Any) -> dict[str, Any]:
        return {key: x.get_att(key) for key in x.ncattrs()}

    def put(self, x: Any, key: str, value: Any) -> None:
        x.put_att(key, value)

    def enddef(self) -> None:
        self.file.enddef()

    def begin_record(self, record: int) -> None:
        for name in self.filled:
            self.variables[name].fill_rec(record)

    def move(self, how: str, name: str, start: Place, values: Array) -> None:
        if values.size:
            # a scalar has neither start nor count
            at = {"start": start, "count": values.shape} if values.ndim else {}
            if how == "write":
                values = np.ascontiguousarray(values)
                self._kept.append(values)
            x = self.variables[name]
            (x.iput_var if how == "write" else x.iget_var)(values, **at)

    def all(self, how: str, name: str, values: Array) -> None:
        x = self.variables[name]
        (x.iput_var if how == "write" else x.iget_var)(values)

    def runs(self, how: str, name: str, starts: Array, counts: Array, values: Array) -> None:
        from mpi4py import MPI

        values = np.ascontiguousarray(values).reshape(-1) if how == "write" else values.reshape(-1)
        counts = np.ascontiguousarray(counts)
        self._kept += [starts, counts, values]
        # without a type PnetCDF takes the bytes of numbers in memory for what the file holds
        kind = {"f8": MPI.DOUBLE, "i4": MPI.INT}.get(values.dtype.str[1:])
        x = self.variables[name]
        if len(starts):
            more = () if kind is None else (values.size, kind)
            (x.iput_varn if how == "write" else x.iget_varn)(values, len(starts), starts, counts, *more)

    def flush(self, *, durable: bool = False) -> None:
        self.file.wait_all()
        self._kept.clear()
        if durable:
            self.file.flush()

    def close(self) -> None:
        self.flush()
        super().close()

    def get(self, name: str) -> Any:
        x = self.variables[name]
        found = np.empty(x.shape, x.dtype)
        x.get_var_all(found)
        return found

    def places(self, index: Sequence[int | slice], values: Array) -> Any:
        n = values.shape[1]
        return [((at.start,), (n,)) if isinstance(at, slice) else ((at, 0), (1, n)) for at in index]

    def each(self, how: str, places: Any, rows: Array) -> None:
        x = self.variables["x"]
        move = {"read": x.get_var, "request": x.iget_var}.get(how, x.iput_var)
        if how == "read":
            self.file.begin_indep()
        for (start, count), row in zip(places, rows, strict=True):
            move(row, start=start, count=count)
        (self.file.end_indep if how == "read" else self.file.wait_all)()

    def append(self, x: Any, record: int, row: Array) -> None:
        x.iput_var(row, start=(record, 0), count=(1, len(row)))

    def set_attribute(self, name: str, key: str, value: Any) -> None:
        self.file.redef()
        super().set_attribute(name, key, value)
        self.file.enddef()


class Raw(Peer):
    """`os.pwrite` and `os.preadv` of each contiguous run, by each rank for itself: what the machine can carry.

    Options: `swapped`, each run is turned into the byte order of NetCDF, the least work of any library; `mapped`, the
    file is read by a memory map, and copied.
    """

    is_netcdf = False
    ways = frozenset({"into"})

    def new(self) -> None:
        if self.comm is None or self.comm.rank == 0:
            REAL.close(REAL.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        if self.comm is not None:
            self.comm.Barrier()
        self.file = REAL.open(self.path, os.O_RDWR)

    def define(self, specs: Specs, attrs: Mapping[str, Any] = _NONE, dims: Mapping[str, int | None] = _NONE) -> None:
        self.layout: dict[str, tuple[Spec, int, Array]] = {}
        grown = {name: spec._replace(shape=(1, *spec.shape[1:])) for name, spec in specs.items() if spec.grows}
        at, record = 0, nbytes_of(grown)
        for name, spec in sorted(specs.items(), key=lambda item: item[1].grows):
            strides = [math.prod(spec.shape[axis + 1 :]) for axis in range(len(spec.shape))]
            strides = [n * np.dtype(spec.dtype).itemsize for n in strides]
            size = nbytes_of({name: spec})
            if spec.grows:
                size, strides[0] = strides[0], record
            self.layout[name] = spec, at, np.array(strides, np.int64)
            at += size
        records = max((spec.shape[0] for spec in specs.values() if spec.grows), default=1)
        self.nbytes = at + record * (records - 1)

    def open(self, mode: str = "r") -> Any:
        self.file = REAL.open(self.path, os.O_RDONLY)
        if self.options.get("mapped"):
            whole = REAL.mmap(self.file, self.nbytes, writable=False)
            self.variables = {
                name: np.ndarray(spec.shape, spec.dtype, whole, begin, tuple(strides))
                for name, (spec, begin, strides) in self.layout.items()
            }
        return self.variables

    def native(self, got: Any) -> Any:
        return [np.array(x) for x in got] if isinstance(got, list) else np.array(got)

    def move(self, how: str, name: str, start: Place, values: Array) -> None:
        swapped = self.options.get("swapped")
        for at, run in self._runs(name, start, np.ascontiguousarray(values) if how == "write" else values):
            if how == "write":
                run = run.view(values.dtype).byteswap().view("u1") if swapped else run
                write_all(REAL, self.file, run.data, at)
                continue
            read_at(REAL, self.file, run.data, at)
            if swapped:
                # while it is in the cache
                run.view(values.dtype).byteswap(inplace=True)

    def all(self, how: str, name: str, values: Array) -> None:
        move: Callable[..., Any] = write_all if how == "write" else read_at
        move(REAL, self.file, values.data.cast("B"), self.layout[name][1])

    def _runs(self, name: str, start: Place, values: Array) -> list[tuple[int, Any]]:
        """Return the offset in the file and bytes of each contiguous run of a subarray."""
        _, begin, strides = self.layout[name]
        if not values.size:
            return []
        # records of one number lie apart from one another
        inner = values.ndim + bool(values.ndim and strides[-1] != values.itemsize)
        while 1 < inner <= values.ndim and values.shape[inner - 1] * strides[inner - 1] == strides[inner - 2]:
            inner -= 1
        at = np.full((), begin + int(np.dot(strides, start)), np.int64)
        for axis in range(inner - 1):
            at = at[..., None] + np.arange(values.shape[axis]) * strides[axis]
        rows = values.reshape(at.size, -1).view("u1")
        return list(zip(at.ravel().tolist(), rows, strict=True))

    def flush(self, *, durable: bool = False) -> None:
        if durable:
            REAL.fsync(self.file)

    def close(self) -> None:
        self.variables = {}
        REAL.close(self.file)
        if self.comm is not None:
            self.comm.Barrier()

    def get(self, name: str) -> Any:
        spec = self.layout[name][0]
        found = np.zeros(spec.shape, spec.dtype)
        Raw.move(self, "read", name, (0,) * found.ndim, found)
        return found

    def places(self, index: Sequence[int | slice], values: Array) -> Any:
        return [at.start * values.itemsize if isinstance(at, slice) else at * values[0].nbytes for at in index]

    def each(self, how: str, places: Any, rows: Array) -> None:
        move: Callable[..., Any] = read_at if how == "read" else write_all
        if how == "write":
            REAL.ftruncate(self.file, self.nbytes)
        for at, row in zip(places, rows, strict=True):
            move(REAL, self.file, row.data.cast("B"), at)


class MpiFilePeer(Raw):
    """mpi4py's `MPI.File`: a file type for each subarray, written together or by each rank alone; `module` is MPI.

    Runs are posted, and move at the flush with one file type and one call, collective on all ranks; with the option
    `posting` so does all else.
    """

    def new(self) -> None:
        self._begin(self.module.MODE_CREATE | self.module.MODE_RDWR)

    def open(self, mode: str = "r") -> Any:
        self._begin(self.module.MODE_RDONLY)

    def _begin(self, mode: int) -> None:
        self.file = self.module.File.Open(self.comm, self.path, mode)
        write, read = (
            (self.file.Write_all, self.file.Read_all) if self.collective else (self.file.Write, self.file.Read)
        )
        self._calls = {"write": write, "read": read}
        self._posted: list[tuple[Array, Array, Array, Array | None]] = []
        """Offsets and lengths in the file, bytes as the file has them, and where values that are read go."""

    def enddef(self) -> None:
        self.file.Set_size(self.nbytes)

    def move(self, how: str, name: str, start: Place, values: Array) -> None:
        if self.options.get("posting"):
            self.runs(how, name, np.array([start]), np.array([values.shape]), values)
            return
        values = np.ascontiguousarray(values) if how == "write" else values
        (spec, begin, _), byte, size = self.layout[name], self.module.BYTE, values.itemsize
        sizes = [*spec.shape, size], [*values.shape, size], [*start, 0]
        kind = (byte.Create_subarray(*sizes) if values.size else byte.Dup()).Commit()
        self.file.Set_view(begin, byte, kind)
        self._calls[how]([values, values.nbytes, byte])
        kind.Free()

    def runs(self, how: str, name: str, starts: Array, counts: Array, values: Array) -> None:
        spec, begin, strides = self.layout[name]
        stored = np.ascontiguousarray(values, spec.dtype) if how == "write" else np.empty(values.shape, spec.dtype)
        offsets = begin + (starts * strides).sum(axis=1, dtype=np.int64)
        lengths = np.prod(counts, axis=1, dtype=np.int64) * stored.itemsize
        self._posted.append((offsets, lengths, stored.reshape(-1), None if how == "write" else values))

    def flush(self, *, durable: bool = False) -> None:
        if self._posted or self.options.get("posting"):
            self._transfer()
        if durable:
            self.file.Sync()

    def _transfer(self) -> None:
        """Move all that is posted; every rank takes part in the same calls: a file is written, or it is read."""
        none, posted, self._posted = np.zeros(0, np.int64), self._posted, []
        offsets, lengths = (np.concatenate([none, *(one[k] for one in posted)]) for k in (0, 1))
        order = np.argsort(offsets, kind="stable")
        sources = (np.cumsum(lengths) - lengths)[order]
        offsets, lengths = offsets[order], lengths[order]
        # of each byte, in the file's order, the place among the posted ones
        places = np.repeat(sources - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
        apart = np.flatnonzero(np.concatenate([[True], offsets[1:] != offsets[:-1] + lengths[:-1]]))
        if len(offsets):
            offsets, lengths = offsets[apart], np.add.reduceat(lengths, apart)
        byte, stored = self.module.BYTE, np.concatenate([np.zeros(0, "u1"), *(one[2].view("u1") for one in posted)])
        kind = byte.Create_hindexed(lengths.tolist(), offsets.tolist()).Commit()
        self.file.Set_view(0, byte, kind)
        packed = stored[places]
        how = "read" if self.file.Get_amode() & self.module.MODE_RDONLY else "write"
        self._calls[how]([packed, packed.nbytes, byte])
        kind.Free()
        stored[places] = packed
        at = 0
        for _, _, one, out in posted:
            if out is not None:
                out[...] = stored[at : at + one.nbytes].view(one.dtype).reshape(out.shape)
            at += one.nbytes

    def close(self) -> None:
        self.file.Close()

    def whole(self, name: str) -> Any:
        """Return all of a variable, by one rank alone."""
        self.file = REAL.open(self.path, os.O_RDONLY)
        found = self.get(name)
        REAL.close(self.file)
        return found


class Scipy(Peer):
    """scipy.io.netcdf_file, CDF-2: the file is held in memory, and written anew at each flush, or it is mapped."""

    def opened(self, mode: str) -> Any:
        mapped = self.name == "scipy mmap" and mode == "r"
        return self.module.netcdf_file(self.path, "a" if mode == "r+" else mode, mmap=mapped, version=2)

    def variable(self, name: str, spec: Spec) -> Any:
        x = self.file.createVariable(name, spec.dtype, self.dimensions(spec))
        for key, value in spec.attrs.items():
            setattr(x, key, value)
        return x

    def attributes(self, x: Any) -> dict[str, Any]:
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in x._attributes.items()}

    def native(self, got: Any) -> Any:
        return [self.native(x) for x in got] if isinstance(got, list) else got.astype(got.dtype.newbyteorder("="))


_LIBRARIES: dict[str, tuple[str, type[Peer], dict[str, Any]]] = {
    "pnc_vol": ("pnc_vol", PncVol, {}),
    "h5py": ("h5py", H5py, {}),
    "netCDF4": ("netCDF4", Peer, {}),
    "scipy": ("scipy.io", Scipy, {}),
    "scipy mmap": ("scipy.io", Scipy, {}),
    "PnetCDF-Python": ("pnetcdf", PnetCDF, {}),
    "os.pwrite": ("os", Raw, {}),
    "swapped os.pwrite": ("os", Raw, {"swapped": True}),
    "numpy.memmap": ("numpy", Raw, {"mapped": True}),
    "MPI.File": ("mpi4py.MPI", MpiFilePeer, {}),
}
"""The module of each library, its class, and options of it."""
LIBRARIES = ("pnc_vol", "h5py", "netCDF4", "scipy", "PnetCDF-Python")


def peer_of(library: str, name: str = "", comm: Any = None, **options: Any) -> Any:
    """Return the peer of a library of the table, by another name perhaps; the reason if it cannot be imported."""
    module, kind, more = _LIBRARIES[library]
    loaded = load(module)
    return loaded if isinstance(loaded, str) else kind(name or library, loaded, comm, **more, **options)


def installed(names: Sequence[str] = (*LIBRARIES, "os.pwrite")) -> dict[str, Any]:
    """Return the peers of one process, of these names; for those whose modules cannot be imported the reason."""
    return {name: peer_of(name) for name in names}


def able(peers: Mapping[str, Any], way: str, reason: str) -> dict[str, Any]:
    """Return the peers with a way; for the others the reason why there is none."""
    return {name: peer if isinstance(peer, str) or way in peer.ways else reason for name, peer in peers.items()}


def on_ranks(comm: Any, **options: Any) -> dict[str, Any]:
    """Return the peers of many ranks; for those that cannot be had the reason.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    options : more keywords of `pnc_vol.File`, such as ``hints``.
    """
    found = {
        "pnc_vol": peer_of("pnc_vol", comm=comm, **options),
        "pnc_vol posix": peer_of("pnc_vol", "pnc_vol posix", comm, **{**options, "driver": "posix"}),
        "MPI.File collective": peer_of("MPI.File", "MPI.File collective", comm),
        "MPI.File independent": peer_of("MPI.File", "MPI.File independent", comm),
        "PnetCDF-Python": peer_of("PnetCDF-Python", comm=comm),
        "h5py collective": peer_of("h5py", "h5py collective", comm, driver="mpio"),
        "h5py independent": peer_of("h5py", "h5py independent", comm, driver="mpio"),
        "os.pwrite": peer_of("os.pwrite", comm=comm),
    }
    for name, peer in found.items():
        if isinstance(peer, Peer):
            peer.collective = name.endswith("collective")
            if type(peer) is H5py and not peer.module.get_config().mpi:
                found[name] = "this h5py was built without MPI"
    return found
