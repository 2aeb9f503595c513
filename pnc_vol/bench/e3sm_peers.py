"""One file of E3SM-IO's cases, with the calls of pnc_vol, PnetCDF-Python and mpi4py's `MPI.File`.

Knows: libraries. Does not know: clocks; which values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.peers import load

if TYPE_CHECKING:
    from pnc_vol.bench.e3sm_cases import CaseFile, Variable
    from pnc_vol.bench.e3sm_setup import OwnedPart, Setup
    from pnc_vol.bench.ranks import Job

__all__ = ["LAYOUTS", "peers"]

LAYOUTS = ("canonical", "blob", "hdf5blob", "log", "cache")

Array = npt.NDArray[Any]


class _Writer:
    """A file that is written once. `put` may keep its array until `flush`."""

    is_netcdf = True

    def __init__(
        self, comm: Any, hints: Mapping[str, str], options: Mapping[str, Any], setup: Setup, file: CaseFile
    ) -> None:
        self.comm, self.hints, self.options, self.setup, self.file = comm, hints, options, setup, file
        self.places: dict[tuple[int, int], tuple[Array, Array]] = {}

    def prepare(self) -> None:
        """Starts and counts of the runs of each map, with and without records."""
        for number, part in enumerate(self.setup.parts, 1):
            self.places[number, 0] = part.starts, part.counts
            ones = np.ones((len(part.counts), 1), np.int64)
            self.places[number, 1] = np.hstack([0 * ones, part.starts]), np.hstack([ones, part.counts])

    def begin(self, record: int, variables: list[Variable]) -> None:
        """What must be done before the first write of a record."""

    def _place(self, variable: Variable, record: int) -> tuple[Array, Array]:
        if not self.file.is_record(variable):
            return self.places[variable.number, 0]
        starts, counts = self.places[variable.number, 1]
        if record:
            starts = starts.copy()
            starts[:, 0] = record
        return starts, counts


class _PncVol(_Writer):
    def open(self, path: str) -> None:
        # PnetCDF reserves no room behind the header: the files have the C program's bytes
        self._file = pnc_vol.File(path, "w", comm=self.comm, hints=dict(self.hints), header_reserve=0, **self.options)

    def define(self) -> None:
        self._sets = {}
        for key, value in self.file.attrs.items():
            self._file.attrs[key] = value
        for dim, n in self.file.dims.items():
            self._file.create_dimension(dim, None if n is None else self.setup.lengths.get(dim, n))
        for variable in self.file.variables:
            shape, dtype = self.setup.shape(self.file, variable), variable.dtype
            if dtype == "S1":
                shape, dtype = shape[:-1], f"S{shape[-1]}"
            grows = (None, *shape[1:]) if self.file.is_record(variable) else None
            fill = self.setup.fill_of(variable) if self.setup.fill and variable.number else None
            ds = self._file.create_dataset(
                variable.name, shape, dtype, maxshape=grows, fillvalue=fill, dims=variable.dims, **self._owned(variable)
            )
            for key, value in variable.attrs.items():
                if fill is None or key != "_FillValue":
                    ds.attrs[key] = value
            self._sets[variable.name] = ds

    def _owned(self, variable: Variable) -> dict[str, Any]:
        """What else a variable is made with."""
        return {}

    def open_for_reading(self, path: str) -> None:
        options = {name: value for name, value in self.options.items() if name not in ("layout", "subfiles")}
        self._file = pnc_vol.File(path, comm=self.comm, hints=dict(self.hints), **options)

    def get(self, variable: Variable, record: int, part: OwnedPart, out: Array) -> None:
        self._file[variable.name].iget_many(*self._place(variable, record), out)

    def put(self, variable: Variable, record: int, part: OwnedPart, values: Array) -> None:
        self._sets[variable.name].iput_many(*self._place(variable, record), values)

    def put_whole(self, variable: Variable, record: int, values: Array) -> None:
        if variable.dtype == "S1":
            values = values.view(f"S{values.shape[-1]}")[..., 0]
        self._sets[variable.name][record if self.file.is_record(variable) else ()] = values

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _Blobs(_PncVol):
    """Each rank's part of each variable in one piece: the maps are given when variables are made."""

    def prepare(self) -> None:
        super().prepare()
        self._parts = [pnc_vol.Decomposition.from_runs(part.offsets, part.lengths) for part in self.setup.parts]

    def _owned(self, variable: Variable) -> dict[str, Any]:
        return {"decomposition": self._parts[variable.number - 1]} if variable.number else {}

    def put(self, variable: Variable, record: int, part: OwnedPart, values: Array) -> None:
        owned = self._parts[variable.number - 1]
        self._sets[variable.name].iput((record, owned) if self.file.is_record(variable) else owned, values)


class _PnetCDF(_Writer):
    def open(self, path: str) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._file = load("pnetcdf").File(path, mode="w", format="NC_64BIT_DATA", comm=self.comm)

    def define(self) -> None:
        f = self._file
        for key, value in self.file.attrs.items():
            f.put_att(key, value)
        for dim, n in self.file.dims.items():
            f.def_dim(dim, -1 if n is None else self.setup.lengths.get(dim, n))
        self._sets = {}
        self._kept: list[Array] = []
        self._lent: set[str] = set()
        for variable in self.file.variables:
            made = f.def_var(variable.name, np.dtype(variable.dtype), variable.dims)
            fill = self.setup.fill_of(variable) if self.setup.fill and variable.number else None
            for key, value in variable.attrs.items():
                if fill is None or key != "_FillValue":
                    made.put_att(key, value)
            if fill is not None:
                made.def_fill(0, fill)
            self._sets[variable.name] = made
        f.enddef()

    def begin(self, record: int, variables: list[Variable]) -> None:
        for variable in variables if self.setup.fill else ():
            if variable.number:
                self._sets[variable.name].fill_rec(record)

    def open_for_reading(self, path: str) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._file = load("pnetcdf").File(path, mode="r", comm=self.comm)
        self._kept, self._lent = [], set()
        self._sets = self._file.variables
        self._read: list[tuple[Array, Array]] = []

    def get(self, variable: Variable, record: int, part: OwnedPart, out: Array) -> None:
        starts, counts = self._place(variable, record)
        into = out if out.flags.c_contiguous else np.empty_like(out)
        self._kept += [starts, into]
        if into is not out:
            self._read.append((out, into))
        if len(starts):
            kind = self._mpi.DOUBLE if out.dtype == "f8" else self._mpi.INT
            self._sets[variable.name].iget_varn(into, len(starts), starts, counts, out.size, kind)

    def put(self, variable: Variable, record: int, part: OwnedPart, values: Array) -> None:
        starts, counts = self._place(variable, record)
        values = np.ascontiguousarray(values)
        if variable.name in self._lent:
            # a second record before a wait: its bytes are swapped in place
            values = values.copy()
        self._lent.add(variable.name)
        self._kept += [starts, values]
        if len(starts):
            # without a type it takes the bytes for what the file holds
            kind = self._mpi.DOUBLE if values.dtype == "f8" else self._mpi.INT
            self._sets[variable.name].iput_varn(values, len(starts), starts, counts, values.size, kind)

    def put_whole(self, variable: Variable, record: int, values: Array) -> None:
        # PnetCDF reads it when it waits
        self._kept.append(values)
        made = self._sets[variable.name]
        if self.file.is_record(variable):
            made.iput_var(values[None], start=(record, *(0,) * values.ndim), count=(1, *values.shape))
        elif values.ndim:
            made.iput_var(values)
        else:
            made.iput_var(values.reshape(1))

    def flush(self) -> None:
        self._file.wait_all()
        for out, found in getattr(self, "_read", ()):
            out[...] = found
        self._kept.clear()
        self._lent.clear()

    def close(self) -> None:
        self.flush()
        self._file.close()


class _MpiFile(_Writer):
    """All runs of a flush in one file type and one collective write; the same places as in a file without a header."""

    is_netcdf = False

    def open(self, path: str) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._file = MPI.File.Open(self.comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)

    def define(self) -> None:
        self._posted: list[Any] = []
        self._reading = False
        self._begins: dict[str, int] = {}
        fixed = [v for v in self.file.variables if not self.file.is_record(v)]
        at = 0
        for variable in fixed:
            self._begins[variable.name] = at
            at += self._nbytes(variable)
        first = at
        for variable in self.file.variables:
            if self.file.is_record(variable):
                self._begins[variable.name] = at
                at += self._nbytes(variable)
        self._record = at - first

    def _nbytes(self, variable: Variable) -> int:
        shape = self.setup.shape(self.file, variable)[1 if self.file.is_record(variable) else 0 :]
        nbytes: int = int(np.prod(shape)) * np.dtype(variable.dtype).itemsize
        return nbytes

    def _post(self, variable: Variable, record: int, offsets: Array, lengths: Array, values: Array) -> None:
        stored = np.ascontiguousarray(values).astype(np.dtype(variable.dtype).newbyteorder(">"))
        self._posted.append((*self._at(variable, record, offsets, lengths), stored.reshape(-1).view("u1")))

    def _at(self, variable: Variable, record: int, offsets: Array, lengths: Array) -> tuple[Array, Array]:
        begin = self._begins[variable.name] + (record * self._record if self.file.is_record(variable) else 0)
        itemsize = np.dtype(variable.dtype).itemsize
        return begin + offsets * itemsize, lengths * itemsize

    def open_for_reading(self, path: str) -> None:
        self.open(path)
        self.define()
        self._reading = True

    def get(self, variable: Variable, record: int, part: OwnedPart, out: Array) -> None:
        stored = np.empty(out.shape, np.dtype(variable.dtype).newbyteorder(">"))
        self._posted.append((*self._at(variable, record, part.offsets, part.lengths), stored, out))

    def put(self, variable: Variable, record: int, part: OwnedPart, values: Array) -> None:
        self._post(variable, record, part.offsets, part.lengths, values)

    def put_whole(self, variable: Variable, record: int, values: Array) -> None:
        self._post(variable, record, np.zeros(1, np.int64), np.array([values.size]), values)

    def _view(self) -> tuple[Array, Array, Array]:
        """Offsets and lengths of all that is posted, in the file's order; where each byte is among the posted ones."""
        none = np.zeros(0, np.int64)
        offsets = np.concatenate([none, *(one[0] for one in self._posted)])
        lengths = np.concatenate([none, *(one[1] for one in self._posted)])
        order = np.argsort(offsets, kind="stable")
        sources = (np.cumsum(lengths) - lengths)[order]
        offsets, lengths = offsets[order], lengths[order]
        first = np.cumsum(lengths) - lengths
        places = np.repeat(sources - first, lengths) + np.arange(int(lengths.sum()))
        apart = np.flatnonzero(np.concatenate([[True], offsets[1:] != offsets[:-1] + lengths[:-1]]))
        if len(offsets):
            offsets, lengths = offsets[apart], np.add.reduceat(lengths, apart)
        return offsets, lengths, places

    def _move(self, offsets: Array, lengths: Array, packed: Array, call: Callable[[Any], None]) -> None:
        kind = self._mpi.BYTE.Create_hindexed(lengths.tolist(), offsets.tolist()).Commit()
        self._file.Set_view(0, self._mpi.BYTE, kind)
        call([packed, packed.nbytes, self._mpi.BYTE])
        kind.Free()

    def flush(self) -> None:
        offsets, lengths, places = self._view()
        if self._reading:
            packed = np.empty(len(places), "u1")
            self._move(offsets, lengths, packed, self._file.Read_all)
            posted = np.empty_like(packed)
            posted[places] = packed
            at = 0
            for _, _, kept, out in self._posted:
                stored = posted[at : at + kept.nbytes].view(kept.dtype)
                out[...] = stored
                at += kept.nbytes
        else:
            packed = np.concatenate([np.zeros(0, "u1"), *(one[2] for one in self._posted)])[places]
            self._move(offsets, lengths, packed, self._file.Write_all)
            # what was written is read back in the same way, after the clock has stopped
            written = self.setup.__dict__.setdefault("written", {})
            written.setdefault(self.file.name, []).append((offsets, lengths, packed))
        self._posted = []

    def close(self) -> None:
        self._file.Close()

    def verify(self, path: str) -> None:
        """Read this rank's bytes back."""
        self.open(path)
        for offsets, lengths, packed in self.setup.__dict__["written"].pop(self.file.name):
            found = np.zeros_like(packed)
            self._move(offsets, lengths, found, self._file.Read_all)
            if not np.array_equal(found, packed):
                raise AssertionError(f"{path} does not hold what was written to it")
        self._file.Close()


def peers(job: Job, hints: Mapping[str, str]) -> dict[str, Any]:
    """Makers of writers; for those that cannot be had, the reason."""
    comm = job.comm
    found: dict[str, Any] = {}
    ways: dict[str, tuple[type[_Writer], dict[str, Any]]] = {
        "canonical": (_PncVol, {}),
        "blob": (_Blobs, {"layout": "blob", "subfiles": job.options.subfiles}),
        "hdf5blob": (_Blobs, {"layout": "hdf5blob", "subfiles": job.options.subfiles}),
        "log": (_PncVol, {"nc_burst_buf": "enable", "nc_burst_buf_dirname": job.folder}),
        "cache": (_PncVol, {"e10_cache": "enable", "e10_cache_path": job.folder}),
    }
    for layout in job.options.layouts:
        kind, options = ways[layout]
        given = {name: value for name, value in options.items() if "_" in name}
        options = {name: value for name, value in options.items() if name not in given}
        # the first is what the others are compared with
        name = f"pnc_vol {layout}" if found else "pnc_vol"
        found[name] = _maker(kind, comm, {**hints, **given}, options)
    found["pnc_vol posix"] = _maker(_PncVol, comm, hints, {"driver": "posix"})
    module = load("pnetcdf")
    found["PnetCDF-Python"] = module if isinstance(module, str) else _maker(_PnetCDF, comm, hints, {})
    found["MPI.File collective"] = _maker(_MpiFile, comm, hints, {})
    found["os.pwrite"] = "a call for each of millions of runs"
    return found


def _maker(kind: type[_Writer], comm: Any, hints: Mapping[str, str], options: Mapping[str, Any]) -> Any:
    made = partial(kind, comm, hints, options)
    made.is_netcdf = kind.is_netcdf  # type: ignore[attr-defined]
    return made
