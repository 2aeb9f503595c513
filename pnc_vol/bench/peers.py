"""Libraries that write and read files in one process, each by its own calls.

Knows: the interfaces of h5py (and pnc_vol), netCDF4, scipy, PnetCDF-Python, numpy and the operating system. Does not
know: clocks, what is measured.

Rules
-----
1. Each peer is written as its own documentation advises users who want speed: netCDF4 without prefilling, PnetCDF with
   posted requests and one wait, h5py with chunks of several records, pnc_vol and h5py by plain assignment.
2. All are a `Peer`. A library lacks the method for what it cannot do, and the work leaves it out (`Work.without`).
3. Loops over many small writes are here and call the library itself: a call more would be measured with them.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at, write_all

__all__ = ["Peer", "installed", "load"]

Array = npt.NDArray[Any]
Variables = Mapping[str, tuple[tuple[int, ...], Any]]
Attributes = Mapping[str, Any]

Fill = float | None
Made = list[Any]

_NONE: Attributes = {}
CHUNK = 4096
"""Elements of a chunk of a record variable, where a library has chunks."""


def load(name: str) -> Any:
    """The module `name`, or the reason why it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            return f"{name} is not installed"
        return f"{name} cannot be imported: {error}"


class Peer:
    """A library by its name, and its file: with variables that are indexed as arrays, unless a class has other calls.

    name, path : str
    module : the library.
    file : what the library opened.
    variables : their shapes and types, for files that have no header.
    """

    variables: Variables

    def __init__(self, name: str, module: Any, folder: str) -> None:
        self.name, self.module, self.folder = name, module, folder
        self.path = os.path.join(folder, f"{name}.bench")
        self.file: Any = None

    def create(self, variables: Variables, records: bool = False, fill: Fill = None, attrs: Attributes = _NONE) -> Made:
        """Make a file with variables; the variables.

        Parameters
        ----------
        records : bool
            The first axis of each variable grows.
        fill : float, optional
            The fill value of each variable.
        attrs : mapping
            Attributes of each variable.
        """
        raise NotImplementedError

    def open(self, mode: str = "r") -> Any:
        """Open the file; its variables by name."""
        raise NotImplementedError

    def flush(self) -> None:
        """Let readers see what was written."""
        self.file.sync()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def assign(self, x: Any, values: Array) -> None:
        """Write all of a variable."""
        x[:] = values

    def native(self, got: Any) -> Any:
        """What was read, in the machine's byte order and in memory of its own."""
        return got

    def write(self, values: Array) -> None:
        """A file of one variable, ``x``."""
        (x,) = self.create({"x": (values.shape, values.dtype)})
        x[:] = values
        self.close()

    def read(self) -> Array:
        """The variable ``x``."""
        found: Array = self.open()["x"][:]
        self.close()
        return found

    def write_filled(self, values: Array, fill: float | None, step: int) -> None:
        """As `write`, in pieces of `step` elements."""
        (x,) = self.create({"x": (values.shape, values.dtype)}, fill=fill)
        for low in range(0, len(values), step):
            x[low : low + step] = values[low : low + step]
        self.close()

    def write_rows(self, rows: Array) -> None:
        """As `write`, a row at a time."""
        (x,) = self.create({"x": (rows.shape, rows.dtype)})
        for i, row in enumerate(rows):
            x[i] = row
        self.close()

    def read_rows(self, out: Array) -> None:
        """As `read`, a row at a time."""
        x = self.open()["x"]
        for i in range(len(out)):
            out[i] = x[i]
        self.close()

    def write_pieces(self, size: int, starts: Array, values: Array) -> None:
        """Pieces of ``x``, which has `size` elements; one row of `values` is one piece."""
        n = values.shape[1]
        (x,) = self.create({"x": ((size,), values.dtype)})
        for at, piece in zip(starts.tolist(), values, strict=True):
            x[at : at + n] = piece
        self.close()

    def read_pieces(self, starts: Array, out: Array) -> None:
        """The same pieces."""
        n = out.shape[1]
        x = self.open()["x"]
        for i, at in enumerate(starts.tolist()):
            out[i] = x[at : at + n]
        self.close()

    def write_many(self, values: Array) -> None:
        """A file with a variable for each row."""
        for x, row in zip(self.create(_each(values)), values, strict=True):
            x[:] = row
        self.close()

    def read_many(self, out: Array) -> None:
        """All variables of a file that `write_many` made."""
        variables = self.open()
        for i in range(len(out)):
            out[i] = variables[f"v{i}"][:]
        self.close()

    def append(self, values: Array, every: int) -> None:
        """Record variables that grow together; a flush every so many records."""
        made = self.create(_each(values), records=True)
        for t in range(values.shape[1]):
            for x, rows in zip(made, values, strict=True):
                x[t] = rows[t]
            if (t + 1) % every == 0:
                self.flush()
        self.close()


def _each(values: Array) -> dict[str, tuple[tuple[int, ...], Any]]:
    """A variable for each row of an array."""
    return {f"v{i}": (row.shape, row.dtype) for i, row in enumerate(values)}


class H5py(Peer):
    """h5py, and pnc_vol, which has the same interface and no chunks."""

    def create(self, variables: Variables, records: bool = False, fill: Fill = None, attrs: Attributes = _NONE) -> Made:
        self.file = self.module.File(self.path, "w")
        made = []
        for name, (shape, dtype) in variables.items():
            grows: dict[str, Any] = {}
            if records:
                inner = shape[1:]
                rows = max(1, CHUNK // math.prod(inner))
                shape, grows = (0, *inner), {"maxshape": (None, *inner), "chunks": (rows, *inner)}
            made.append(x := self.file.create_dataset(name, shape, dtype, fillvalue=fill, **grows))
            for key, value in attrs.items():
                x.attrs[key] = value
        return made

    def open(self, mode: str = "r") -> Any:
        self.file = self.module.File(self.path, mode)
        return self.file

    def flush(self) -> None:
        self.file.flush()

    def assign(self, x: Any, values: Array) -> None:
        if x.shape != values.shape:
            x.resize(values.shape)
        x[...] = values

    def attributes(self, x: Any) -> dict[str, Any]:
        """All attributes of a variable."""
        return dict(x.attrs)

    def set_attribute(self, x: Any, key: str, value: Any) -> None:
        """Change an attribute of a variable."""
        x.attrs[key] = value

    def create_group(self, name: str) -> None:
        """Make a group."""
        self.file.create_group(name)

    def write(self, values: Array) -> None:
        with self.module.File(self.path, "w") as f:
            f.create_dataset("x", data=values)

    def read_into(self, out: Array) -> None:
        """As `read`, into memory that is there."""
        self.open()["x"].read_direct(out)
        self.close()

    def write_many(self, values: Array) -> None:
        with self.module.File(self.path, "w") as f:
            for i, row in enumerate(values):
                f.create_dataset(f"v{i}", data=row)

    def append(self, values: Array, every: int) -> None:
        made = self.create(_each(values), records=True)
        for t in range(values.shape[1]):
            for x, rows in zip(made, values, strict=True):
                x.resize(t + 1, axis=0)
                x[t] = rows[t]
            if (t + 1) % every == 0:
                self.file.flush()
        self.close()

    def read_many_into(self, out: Array) -> None:
        """As `read_many`, where a library reads into memory that is there."""
        variables = self.open()
        for i, rows in enumerate(out):
            variables[f"v{i}"].read_direct(rows)
        self.close()


class PncVol(H5py):
    """What h5py does not have: requests."""

    def post_rows(self, rows: Array) -> None:
        """As `write_rows`, posted."""
        (x,) = self.create({"x": (rows.shape, rows.dtype)})
        for i, row in enumerate(rows):
            x.iput(i, row)
        self.file.wait_all()
        self.close()

    def request_rows(self, out: Array) -> None:
        """As `read_rows`, posted."""
        x = self.open()["x"]
        for i in range(len(out)):
            x.iget(i, out[i])
        self.file.wait_all()
        self.close()

    def request_pieces(self, starts: Array, out: Array) -> None:
        """As `read_pieces`, posted."""
        n = out.shape[1]
        x = self.open()["x"]
        requests = [x.iget(slice(at, at + n)) for at in starts.tolist()]
        self.file.wait_all()
        for piece, request in zip(out, requests, strict=True):
            piece[:] = request.array
        self.close()

    def write_list(self, size: int, starts: Array, values: Array) -> None:
        """As `write_pieces`, in one call."""
        (x,) = self.create({"x": ((size,), values.dtype)})
        x.iput_many(starts[:, None], np.full((len(starts), 1), values.shape[1]), values)
        self.close()

    def read_list(self, starts: Array, out: Array) -> None:
        """As `read_pieces`, in one call."""
        counts = np.full((len(starts), 1), out.shape[1])
        self.open()["x"].iget_many(starts[:, None], counts, out.reshape(-1)).wait()
        self.close()


class _Dimensioned(Peer):
    """A library whose variables have named dimensions."""

    def _dimensions(self, shape: tuple[int, ...], records: bool, known: set[str]) -> tuple[str, ...]:
        """The names of a variable's dimensions, which are defined if they are new: one for each length."""
        names = []
        for axis, n in enumerate(shape):
            grows = records and axis == 0
            names.append(name := "t" if grows else f"n{n}")
            if name not in known:
                known.add(name)
                self._define(name, None if grows else n)
        return tuple(names)

    def _define(self, name: str, n: int | None) -> None:
        """Define a dimension; None for the one that grows."""
        self.file.createDimension(name, n)

    def set_attribute(self, x: Any, key: str, value: Any) -> None:
        """Change an attribute of a variable."""
        setattr(x, key, value)


class NetCDF4(_Dimensioned):
    """netCDF4-python, CDF-5."""

    def create(self, variables: Variables, records: bool = False, fill: Fill = None, attrs: Attributes = _NONE) -> Made:
        f = self.file = self.module.Dataset(self.path, "w", format="NETCDF3_64BIT_DATA")
        if fill is None:
            f.set_fill_off()
        known: set[str] = set()
        made = []
        for name, (shape, dtype) in variables.items():
            dims = self._dimensions(shape, records, known)
            made.append(x := f.createVariable(name, dtype, dims, fill_value=fill))
            if attrs:
                x.setncatts(attrs)
        return made

    def open(self, mode: str = "r") -> Any:
        self.file = self.module.Dataset(self.path, mode)
        self.file.set_auto_mask(False)
        return self.file.variables

    def attributes(self, x: Any) -> dict[str, Any]:
        """All attributes of a variable."""
        return {key: x.getncattr(key) for key in x.ncattrs()}


class Scipy(_Dimensioned):
    """scipy.io.netcdf_file, CDF-2: the file is held in memory, and written anew at each flush."""

    mapped = False

    def create(self, variables: Variables, records: bool = False, fill: Fill = None, attrs: Attributes = _NONE) -> Made:
        self.file = self.module.netcdf_file(self.path, "w", version=2)
        known: set[str] = set()
        made = []
        for name, (shape, dtype) in variables.items():
            dims = self._dimensions(shape, records, known)
            made.append(x := self.file.createVariable(name, dtype, dims))
            for key, value in attrs.items():
                setattr(x, key, value)
        return made

    def open(self, mode: str = "r") -> Any:
        self.file = self.module.netcdf_file(self.path, "r" if mode == "r" else "a", mmap=self.mapped)
        return self.file.variables

    def read(self) -> Array:
        return np.asarray(self.native(super().read()))

    def native(self, got: Any) -> Any:
        return [self.native(x) for x in got] if isinstance(got, list) else got.astype(got.dtype.newbyteorder("="))

    def attributes(self, x: Any) -> dict[str, Any]:
        """All attributes of a variable."""
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in x._attributes.items()}


class ScipyMapped(Scipy):
    """The same over a memory map; results are made native, which a user would have to do, too."""

    mapped = True


class PnetCDF(_Dimensioned):
    """PnetCDF-Python: requests are posted, one wait completes them."""

    def create(self, variables: Variables, records: bool = False, fill: Fill = None, attrs: Attributes = _NONE) -> Made:
        self.file = self.module.File(self.path, mode="w", format="NC_64BIT_DATA")
        known: set[str] = set()
        made = []
        for name, (shape, dtype) in variables.items():
            dtype = np.dtype(dtype)
            made.append(x := self.file.def_var(name, dtype, self._dimensions(shape, records, known)))
            if fill is not None:
                x.def_fill(no_fill=0, fill_value=np.array(fill, dtype))
            for key, value in attrs.items():
                x.put_att(key, value)
        self.file.enddef()
        return made

    def _define(self, name: str, n: int | None) -> None:
        self.file.def_dim(name, -1 if n is None else n)

    def open(self, mode: str = "r") -> Any:
        self.file = self.module.File(self.path, mode=mode)
        return self.file.variables

    def flush(self) -> None:
        self.file.wait_all()

    def attributes(self, x: Any) -> dict[str, Any]:
        """All attributes of a variable."""
        return {key: x.get_att(key) for key in x.ncattrs()}

    def set_attribute(self, x: Any, key: str, value: Any) -> None:
        self.file.redef()
        x.put_att(key, value)
        self.file.enddef()

    def close(self) -> None:
        self.file.wait_all()
        self.file.close()

    def assign(self, x: Any, values: Array) -> None:
        x.iput_var(values, start=(0,) * values.ndim, count=values.shape)

    def write(self, values: Array) -> None:
        (x,) = self.create({"x": (values.shape, values.dtype)})
        x.put_var_all(values)
        self.close()

    def read(self) -> Array:
        x = self.open()["x"]
        found = np.empty(x.shape, x.dtype)
        x.get_var_all(found)
        self.close()
        return found

    def read_into(self, out: Array) -> None:
        """As `read`, into memory that is there."""
        self.open()["x"].get_var_all(out)
        self.close()

    def write_filled(self, values: Array, fill: float | None, step: int) -> None:
        (x,) = self.create({"x": (values.shape, values.dtype)}, fill=fill)
        for low in range(0, len(values), step):
            x.iput_var(values[low : low + step], start=(low,), count=(len(values[low : low + step]),))
        self.close()

    def write_rows(self, rows: Array) -> None:
        (x,) = self.create({"x": (rows.shape, rows.dtype)})
        for i, row in enumerate(rows):
            x.iput_var(row, start=(i, 0), count=(1, len(row)))
        self.close()

    post_rows = write_rows

    def read_rows(self, out: Array) -> None:
        x = self.open()["x"]
        self.file.begin_indep()
        for i, row in enumerate(out):
            x.get_var(row, start=(i, 0), count=(1, len(row)))
        self.file.end_indep()
        self.close()

    def request_rows(self, out: Array) -> None:
        """As `read_rows`, posted."""
        x = self.open()["x"]
        for i, row in enumerate(out):
            x.iget_var(row, start=(i, 0), count=(1, len(row)))
        self.close()

    def write_pieces(self, size: int, starts: Array, values: Array) -> None:
        n = values.shape[1]
        (x,) = self.create({"x": ((size,), values.dtype)})
        for at, piece in zip(starts.tolist(), values, strict=True):
            x.iput_var(piece, start=(at,), count=(n,))
        self.close()

    def read_pieces(self, starts: Array, out: Array) -> None:
        n = out.shape[1]
        x = self.open()["x"]
        self.file.begin_indep()
        for at, piece in zip(starts.tolist(), out, strict=True):
            x.get_var(piece, start=(at,), count=(n,))
        self.file.end_indep()
        self.close()

    def request_pieces(self, starts: Array, out: Array) -> None:
        """As `read_pieces`, posted."""
        n = out.shape[1]
        x = self.open()["x"]
        for at, piece in zip(starts.tolist(), out, strict=True):
            x.iget_var(piece, start=(at,), count=(n,))
        self.close()

    def write_list(self, size: int, starts: Array, values: Array) -> None:
        """As `write_pieces`, in one call."""
        (x,) = self.create({"x": ((size,), values.dtype)})
        x.put_varn_all(values, len(starts), starts[:, None], np.full((len(starts), 1), values.shape[1]))
        self.close()

    def read_list(self, starts: Array, out: Array) -> None:
        """As `read_pieces`, in one call."""
        counts = np.full((len(starts), 1), out.shape[1])
        self.open()["x"].get_varn_all(out, len(starts), starts[:, None], counts)
        self.close()

    def write_many(self, values: Array) -> None:
        for x, row in zip(self.create(_each(values)), values, strict=True):
            x.iput_var(row)
        self.close()

    def read_many(self, out: Array) -> None:
        variables = self.open()
        for i, row in enumerate(out):
            variables[f"v{i}"].iget_var(row)
        self.close()

    def append(self, values: Array, every: int) -> None:
        made = self.create(_each(values), records=True)
        width = values.shape[2]
        for t in range(values.shape[1]):
            for x, rows in zip(made, values, strict=True):
                x.iput_var(rows[t], start=(t, 0), count=(1, width))
            if (t + 1) % every == 0:
                self.file.wait_all()
        self.close()


class Raw(Peer):
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
        """As `read`, into memory that is there."""
        self._get(np.zeros(1, int), out[None])

    def write_rows(self, rows: Array) -> None:
        self._put(np.arange(len(rows)) * rows[0].nbytes, rows)

    def read_rows(self, out: Array) -> None:
        self._get(np.arange(len(out)) * out[0].nbytes, out)

    def write_pieces(self, size: int, starts: Array, values: Array) -> None:
        self._put(starts * values.itemsize, values, size * values.itemsize)

    def read_pieces(self, starts: Array, out: Array) -> None:
        self._get(starts * out.itemsize, out)

    def write_many(self, values: Array) -> None:
        self.write_rows(values)

    read_many = read_rows


class Mapped(Peer):
    """A memory map of native bytes, copied: what the machine can carry. All variables are float32, of one shape."""

    def create(self, variables: Variables, records: bool = False, fill: Fill = None, attrs: Attributes = _NONE) -> Made:
        self.variables = variables
        return list(self._mapped(os.O_RDWR | os.O_CREAT).values())

    def open(self, mode: str = "r") -> Any:
        return self._mapped(os.O_RDONLY)

    def _mapped(self, flags: int) -> dict[str, Array]:
        """Variables whose records lie interleaved; the map lives as long as they do."""
        first, *inner = next(iter(self.variables.values()))[0]
        shape = (first, len(self.variables), *inner)
        fd = REAL.open(self.path, flags)
        try:
            nbytes = 4 * math.prod(shape)
            writable = flags != os.O_RDONLY
            if writable:
                REAL.ftruncate(fd, nbytes)
            whole = np.frombuffer(REAL.mmap(fd, nbytes, writable=writable), "f4").reshape(shape)
            return {name: whole[:, i] for i, name in enumerate(self.variables)}
        finally:
            REAL.close(fd)

    def close(self) -> None:
        """Nothing: the map goes with its last array."""

    def native(self, got: Any) -> Any:
        return [np.array(x) for x in got] if isinstance(got, list) else np.array(got)


_ALL: dict[str, tuple[str, type[Peer]]] = {
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


def installed(folder: str, names: tuple[str, ...] = (*LIBRARIES, "os.pwrite")) -> dict[str, Any]:
    """The peers of these names whose modules can be imported; for the others the reason."""
    found: dict[str, Any] = {}
    for name in names:
        module, kind = _ALL[name]
        loaded = load(module)
        found[name] = loaded if isinstance(loaded, str) else kind(name, loaded, folder)
    return found
