"""``python -m pnc_vol.bench e3sm`` writes climate variables on unstructured decompositions, as E3SM-IO does.

Case F is an atmosphere of 414 and 51 variables whose columns are scattered over the ranks (two million runs for 32
MiB), case G an ocean of whole columns, case I land cells on a grid. Each variable of a record is one request of many
runs, and every rank writes its rank into its cells; a flush completes them every ``-y`` records. Maps and lists of
variables are read from a folder (``--data``) that has E3SM-IO's; without it, or with ``--synthetic SIZE``, they are
made up. Layouts are compared with -x: the canonical one, and blobs (one subfile for each node, or -g of them). Option
letters are the C program's.

Knows: each rank's part of the maps, its arrays in memory, the order of the steps. Does not know: which variables there
are (`e3sm_cases.py`), how a library writes (`peers.py`).
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.e3sm_cases import CaseFile, Variable, counted, files_of, invented, listed
from pnc_vol.bench.measure import US, Job, Phases, Stopwatch, copy_file, wait_asleep
from pnc_vol.bench.peers import PncVol, Spec, on_ranks, peer_of
from pnc_vol.convert.map_files import Map, dealt, in_rows, read_maps
from pnc_vol.extents.model import Runs
from pnc_vol.file.file_sets import is_set
from pnc_vol.ranks.mpi_comm import over
from pnc_vol.system import REAL, exists

Array = npt.NDArray[Any]

DATA = PurePath(__file__).parents[3] / "shared/data/e3sm"
SIZES = {"F": 4, "G": 5, "I": 96}
FILLS = {"f8": 9.969209968386869e36, "f4": 9.969209968386869e36, "i4": -2147483647}
LAYOUTS = ("canonical", "blob", "hdf5blob")
STEPS = ("open to close", "pre", "open", "define", "post", "flush", "close")
VIEW = ("view, open", "view, read 50 times", "view, replay; of a file: copy")


def arguments(one: argparse.ArgumentParser) -> None:
    """Add E3SM-IO's letters, and where cases and maps come from."""
    one.add_argument("--case", choices=["F", "G", "I"], default="F", help="F")
    one.add_argument("-j", "--floats", action="store_true", help="store float instead of double (F, I)")
    one.add_argument("-u", "--fill", action="store_true", help="fill cells that no rank writes")
    one.add_argument("-f", "--file", type=int, choices=[0, 1, -1], default=-1, help="h0 only, h1 only, both (-1)")
    one.add_argument("-r", "--records", type=int, default=1, help="records of F h1, G and I h0 (1)")
    one.add_argument("-y", "--flush-every", type=int, default=1, help="records between flushes; -1: once at the end")
    about = "layouts of pnc_vol (canonical)"
    one.add_argument("-x", "--layouts", nargs="+", choices=LAYOUTS, default=["canonical"], help=about)
    one.add_argument("-g", "--subfiles", type=int, default=0, help="subfiles of blobs (0: one for each node)")
    one.add_argument("-i", "--read", action="store_true", help="the read test, too: each rank reads what it wrote")
    about = "open, read and replay what blobs wrote, beside a file and a copy"
    one.add_argument("--view", action="store_true", help=about)
    one.add_argument("-k", "--keep", action="store_true", help="leave the files of pnc_vol; name them with -o")
    one.add_argument("-o", "--output", help="path; _h0 and _h1 come before its suffix")
    one.add_argument("--data", type=PurePath, default=DATA, help="folder of E3SM-IO's maps and lists of variables")
    one.add_argument("--synthetic", type=int, metavar="SIZE", help="make the maps up: F: edge of the cubed sphere")
    one.add_argument("--map-ranks", type=int, default=16, help="processes of a map that is made up (16)")


class _OwnedPart:
    """The runs of one map that this rank writes; on rank 0 also the owner of each cell, for checks.

    offsets, lengths : int64[n], in elements.
    decomposition : the same, for blobs.
    """

    def __init__(self, job: Job, dims: tuple[int, ...], runs: Runs) -> None:
        self.offsets, self.lengths = in_rows(runs, dims[-1])
        self.cells = int(self.lengths.sum())
        self.starts = np.stack(np.unravel_index(self.offsets, dims), axis=1).astype(np.int64).reshape(-1, len(dims))
        self.counts = np.ones_like(self.starts)
        self.counts[:, -1] = self.lengths
        self.decomposition: Any = None
        self.owner = np.full(math.prod(dims), -1, np.int32)
        for rank, (at, n) in enumerate(job.comm.gather((self.offsets, self.lengths)) or ()):
            # every cell of every run
            self.owner[np.repeat(at - (np.cumsum(n) - n), n) + np.arange(int(n.sum()))] = rank

    def prepare(self, *, blobs: bool) -> None:
        """Make the places that a library is given, which belongs to the program's preparing."""
        self.decomposition = pnc_vol.Decomposition.from_runs(self.offsets, self.lengths) if blobs else None
        ones = np.ones((len(self.counts), 1), np.int64)
        self._of_record = np.hstack([0 * ones, self.starts]), np.hstack([ones, self.counts])

    def places(self, record: int | None) -> tuple[Array, Array]:
        """Return the starts and counts of the runs, with the record in front if there are some."""
        if record is None:
            return self.starts, self.counts
        starts, counts = self._of_record
        if record:
            starts = starts.copy()
            starts[:, 0] = record
        return starts, counts


class _Setup:
    """A case on the ranks of a job: files, each rank's part of the maps.

    requests, nbytes : of each rank.
    """

    def __init__(self, job: Job) -> None:
        o, comm = job.options, job.comm
        self.rank, self.records, self.fill = comm.rank, o.records, o.fill
        path = o.data / f"map_{o.case.lower()}_case_16p.nc"
        invent = o.synthetic is not None or not exists(REAL, path)
        maps: list[Map] | None = None
        self.lengths: dict[str, int] = {}
        if comm.rank == 0 and invent:
            size = o.synthetic or max(2, round(SIZES[o.case] * min(1.0, o.scale) ** 0.5))
            maps, self.lengths = invented(o.case, size, max(o.map_ranks, comm.size))
        elif comm.rank == 0:
            maps = read_maps(path)
        ranks = over(comm)
        shares = dealt(maps, ranks)
        ranks.close()
        self.lengths = comm.bcast(self.lengths)
        self.parts = [_OwnedPart(job, dims, runs) for dims, runs in shares]
        names = files_of(o.case, o.file)
        if invent:
            self.files = [counted(name, self.lengths, floats=o.floats) for name in names]
        else:
            self.files = [listed(str(o.data / f"{name}.json"), floats=o.floats) for name in names]
        self.title = "made up" if invent else f"of {path.name}"
        nbytes = requests = 0
        for file in self.files:
            for variable in file.variables:
                times = self.records_of(file) if file.is_record(variable) else 1
                part = self.parts[variable.number - 1] if variable.number else None
                cells = part.cells if part else math.prod(self.shape(file, variable)) // times * (comm.rank == 0)
                nbytes += times * cells * np.dtype(variable.dtype).itemsize
                requests += times * (len(part.lengths) if part else comm.rank == 0)
        self.nbytes, self.requests = comm.allgather(nbytes), comm.allgather(requests)

    def records_of(self, file: CaseFile) -> int:
        """Return the number of records of a file."""
        return 1 if file.one_record else self.records

    def shape(self, file: CaseFile, variable: Variable) -> tuple[int, ...]:
        """Return the shape of a variable in a file with all its records."""
        return file.shape(variable, self.records_of(file), self.lengths)

    def fill_of(self, variable: Variable) -> Any:
        """Return what cells hold that nobody writes: `_FillValue`, or the format's own for the type; None for
        letters."""
        dtype = np.dtype(variable.dtype)
        found = variable.attrs.get("_FillValue", FILLS.get(dtype.str[1:]))
        return None if found is None else dtype.type(found)

    def specs(self, file: CaseFile) -> dict[str, Spec]:
        """Return the definitions of a file's variables."""
        found = {}
        for v in file.variables:
            fill = self.fill_of(v) if self.fill and v.number else None
            attrs = {key: value for key, value in v.attrs.items() if fill is None or key != "_FillValue"}
            owned = self.parts[v.number - 1].decomposition if v.number else None
            found[v.name] = Spec(self.shape(file, v), v.dtype, v.dims, attrs, fill, file.is_record(v), owned)
        return found

    def buffers(self, file: CaseFile, value: int, flush_every: int) -> dict[str, Array]:
        """Return an array of `value` for each variable that has a map; numbers are double or int, as in C.

        A row for each record that is posted before a flush: PnetCDF changes the byte order of what was posted in place.
        """
        records, found = self.records_of(file), {}
        for v in file.variables:
            if v.number:
                rows = 1 if not file.is_record(v) else min(flush_every, records) if flush_every > 0 else records
                shape = rows, self.parts[v.number - 1].cells
                found[v.name] = np.full(shape, value, np.promote_types(v.dtype, "i4"))
        return found


def _peers(job: Job) -> dict[str, Any]:
    """Return peers by name; for those that cannot be had, the reason."""
    o = job.options
    found: dict[str, Any] = {}
    for layout in o.layouts:
        options = {} if layout == "canonical" else {"layout": layout, "subfiles": o.subfiles}
        # the first is what the others are compared with
        name = f"pnc_vol {layout}" if found else US
        found[name] = peer_of("pnc_vol", name, job.comm, hints=o.hints, **options)
    common, name = on_ranks(job.comm, hints=o.hints), "MPI.File collective"
    found |= {name: common[name] for name in ("pnc_vol posix", "PnetCDF-Python")}
    found[name] = "-u: has no fill values" if o.fill else peer_of("MPI.File", name, job.comm, posting=True)
    for peer in found.values():
        if isinstance(peer, PncVol):
            # PnetCDF reserves no room behind the header: the files have the C program's bytes
            peer.how["header_reserve"] = 0
        if not isinstance(peer, str):
            peer.collective = peer.name == "MPI.File collective"
    return found | {"os.pwrite": "a call for each of millions of runs"}


def main(job: Job) -> None:
    """Time from open to close, in total and by step, for every peer."""
    o = job.options
    setup = _Setup(job)
    moved = (sum(setup.nbytes), sum(setup.requests))
    steps = [*STEPS, *(f"read, {step}" for step in STEPS if o.read and step != "define"), *(VIEW if o.view else ())]
    phases: Phases = {step: moved if step.endswith("open to close") else (None, None) for step in steps}

    def run(peer: Any, watch: Stopwatch) -> None:
        # the user's path is for ours; several peers may be there
        root, suffix = os.path.splitext(o.output or f"{peer.path}.nc")
        suffix += "" if peer.name == US else f".{peer.name.replace(' ', '_')}"
        paths = [f"{root}{file.name[1:] if len(file.name) == 4 else ''}{suffix}" for file in setup.files]
        _remove(job, paths)
        _access("write", o, setup, peer, paths, watch)
        if o.read:
            _access("read", o, setup, peer, paths, watch)
        if o.view and isinstance(peer, PncVol):
            _look(setup, paths[0], watch)
        elif o.view:
            watch.without("has no sets", *VIEW)
        for file, peer.path in zip(setup.files, paths, strict=True):
            if job.comm.rank == 0:
                _verify(setup, file, peer)
        if not (o.keep and peer.name.startswith(US)):
            _remove(job, paths)

    job.turns(phases, _peers(job), run)
    _report(job, setup)


def _remove(job: Job, paths: Sequence[str]) -> None:
    """Remove files, and the subfiles of sets, which a user's path may have."""
    wait_asleep(job.comm)
    for path in paths if job.comm.rank == 0 else ():
        folder, name = os.path.split(path)
        for found in REAL.listdir(folder or "."):
            if found in (name, f"{name}.whole") or (found.startswith(f"{name}.") and found[len(name) + 1 :].isdigit()):
                REAL.unlink(os.path.join(folder, found))
    wait_asleep(job.comm)


def _access(how: str, o: Any, setup: _Setup, peer: Any, paths: Sequence[str], watch: Stopwatch) -> None:
    """Write fixed variables, then records, with a flush every so many; or read what this rank wrote, and compare it."""
    reads, prefix = how == "read", "read, " if how == "read" else ""
    values = [setup.buffers(file, -1 if reads else setup.rank, o.flush_every) for file in setup.files]
    with watch(f"{prefix}open to close"):
        for file, peer.path, buffers in zip(setup.files, paths, values, strict=True):
            with watch.part(f"{prefix}pre"):
                for part in setup.parts:
                    part.prepare(blobs="layout" in peer.options)
                specs = setup.specs(file)
            if reads and not peer.is_netcdf:
                peer.define(specs)
            with watch.part(f"{prefix}open"):
                peer.open() if reads else peer.new()
            if not reads:
                with watch.part("define"):
                    dims = {name: None if n is None else setup.lengths.get(name, n) for name, n in file.dims.items()}
                    peer.define(specs, file.attrs, dims)
                    peer.enddef()
            records = setup.records_of(file)
            for record in (None, *range(records)):
                with watch.part(f"{prefix}post"):
                    _post(how, setup, peer, file, record, buffers)
                if record is not None and (record + 1 == records or (record + 1) % o.flush_every == 0 < o.flush_every):
                    with watch.part(f"{prefix}flush"):
                        peer.flush()
            with watch.part(f"{prefix}close"):
                peer.close()
    for file, buffers in zip(setup.files, values, strict=True):
        for name, found in buffers.items():
            if not bool((found == setup.rank).all()):
                raise AssertionError(f"{file.name}: rank {setup.rank} does not read of {name} what it wrote")


def _post(how: str, setup: _Setup, peer: Any, file: CaseFile, record: int | None, buffers: Any) -> None:
    """Post all variables of a record, or (None) those without records; what has no map is written by rank 0."""
    if record is not None and how == "write":
        peer.begin_record(record)
    for v in file.variables:
        if file.is_record(v) != (record is not None):
            continue
        if v.number:
            rows = buffers[v.name]
            peer.runs(how, v.name, *setup.parts[v.number - 1].places(record), rows[(record or 0) % len(rows)])
        elif setup.rank == 0 and how == "write":
            shape = setup.shape(file, v)
            shape = shape if record is None else (1, *shape[1:])
            start = (record or 0, *(0,) * (len(shape) - 1)) if shape else ()
            peer.move("write", v.name, start, np.full(shape, _value_of(v.dtype), v.dtype))


def _value_of(dtype: Any) -> Any:
    """Return what rank 0 writes: its number, or a letter."""
    return b"a" if np.dtype(dtype).kind == "S" else 0


def _verify(setup: _Setup, file: CaseFile, peer: Any) -> None:
    """Every cell that has an owner holds its number, others the fill value if asked; what rank 0 wrote is there."""
    if not peer.is_netcdf:
        peer.define(setup.specs(file))
    f = pnc_vol.File(peer.path) if peer.is_netcdf else None
    for variable in file.variables:
        found = np.asarray(f[variable.name][...]) if f is not None else peer.whole(variable.name)
        if found.dtype.kind == "S":
            # another library's letters are read as strings
            found = found.reshape(-1).view("S1")
        if variable.number:
            owner = setup.parts[variable.number - 1].owner
            rows = found.reshape(-1, owner.size)
            right = bool((rows[:, owner >= 0] == owner[owner >= 0]).all())
            if setup.fill:
                right &= bool((rows[:, owner < 0] == setup.fill_of(variable)).all())
        else:
            right = bool((found == _value_of(variable.dtype)).all())
        if not right:
            raise AssertionError(f"{peer.path}: {variable.name} does not hold what was written to it")
    if f is not None:
        f.close()


def _report(job: Job, setup: _Setup) -> None:
    """Report what was written: by all ranks, by the one that has most, and by the one that has least."""
    names = [f"{file.name} ({len(file.variables)} variables, {setup.records_of(file)} records)" for file in setup.files]
    job.report(f"case {job.options.case}, maps {setup.title}: {', '.join(names)}; {job.comm.size} ranks write")
    for what, counts, unit in (("requests", setup.requests, 1), ("MiB", setup.nbytes, 1 << 20)):
        total, most, least = (of(counts) / unit for of in (sum, max, min))
        job.report(f"{what} in all {total:.10g}, of a rank at most {most:.10g}, at least {least:.10g}")


def _look(setup: _Setup, base: str, watch: Stopwatch) -> None:
    """Open a file or a set as one file, read its largest variable of two dimensions or more, replay a set or copy a
    file: by one rank, while the others wait, on files in the page cache."""
    file = setup.files[0]
    shapes = {v.name: setup.shape(file, v) for v in file.variables if v.number}
    name = max((one for one in shapes if len(shapes[one]) > 1), key=lambda one: math.prod(shapes[one]))
    opening, reading, replay = VIEW
    with watch.part(opening):
        opened = [pnc_vol.File(base)] if setup.rank == 0 else []
    for f in opened:
        f[name][...]
    with watch.part(reading):
        for f in 50 * opened:
            f[name][...]
    for f in opened:
        f.close()
    with watch.part(replay):
        if setup.rank == 0 and is_set(REAL, base):
            pnc_vol.replay(base, output=f"{base}.whole")
        elif setup.rank == 0:
            copy_file(base, f"{base}.whole")
