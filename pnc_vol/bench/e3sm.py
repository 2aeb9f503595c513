"""``python -m pnc_vol.bench e3sm`` writes climate variables on unstructured decompositions, as E3SM-IO does.

Case F is an atmosphere of 414 and 51 variables whose columns are scattered over the ranks (two million runs for 32
MiB), case G an ocean of whole columns, case I land cells on a grid. Each variable of a record is one request of many
runs, and every rank writes its rank into its cells; a flush completes them every ``-y`` records. Maps and lists of
variables are read from a folder (``--data``) that has E3SM-IO's; without it, or with ``--synthetic SIZE``, they are
made up. Layouts are compared with -x: the canonical one, blobs (one subfile for each node, or -g of them), canonical
over the burst-buffer log or over a node-local cache. Of the C program's letters there are no -a (libraries are
--peers), no -c and -z (the format has neither chunks nor compression), no -v and -p (the report and the profiler of
Python), no -e.

Knows: each rank's part of the maps, its arrays in memory, the order of the steps. Does not know: which variables there
are (`e3sm_cases.py`), how a library writes (`e3sm_peers.py`).
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.e3sm_cases import CaseFile, Variable, counted, files_of, invented, listed
from pnc_vol.bench.e3sm_peers import LAYOUTS, Blobs, peers
from pnc_vol.bench.measure import US, Phases, Result, clear, copy_file
from pnc_vol.bench.peers import Spec
from pnc_vol.bench.ranks import Job, RankWatch
from pnc_vol.convert.map_files import Map, dealt, in_rows, read_maps
from pnc_vol.extents.model import Runs
from pnc_vol.file.file_sets import is_set
from pnc_vol.ranks.mpi_comm import over
from pnc_vol.system import REAL, exists

__all__ = ["arguments", "run"]

Array = npt.NDArray[Any]
Buffers = dict[tuple[str, str], Array]

DATA = PurePath(__file__).parents[3] / "shared/data/e3sm"
SIZES = {"F": 4, "G": 5, "I": 96}
GAP = 10
IDLE = -3  # what lies between the parts of a buffer
FILLS = {"f8": 9.969209968386869e36, "f4": 9.969209968386869e36, "i4": -2147483647}
STEPS = {
    "pre": "I/O preparing", "open": "file open/create", "define": "define variables",
    "post": "posting write requests", "flush": "write flushing", "close": "close", "open to close": "end-to-end",
}  # fmt: skip
READ_STEPS = {
    "read, pre": "read preparing", "read, open": "file open for reading", "read, post": "posting read requests",
    "read, flush": "read flushing", "read, close": "close after reading", "read, open to close": "read end-to-end",
}  # fmt: skip


def arguments(one: argparse.ArgumentParser) -> None:
    """Add E3SM-IO's letters, and where cases and maps come from."""
    one.add_argument("--case", choices=["F", "G", "I"], default="F", help="F")
    one.add_argument("-j", "--floats", action="store_true", help="store float instead of double (F, I)")
    about = f"memory of the variables {GAP} elements apart, not end to end"
    one.add_argument("-m", "--apart", action="store_true", help=about)
    one.add_argument("-q", "--unsorted", action="store_true", help="do not sort the runs of a map, nor join them")
    one.add_argument("-u", "--fill", action="store_true", help="fill cells that no rank writes")
    one.add_argument("-f", "--file", type=int, choices=[0, 1, -1], default=-1, help="h0 only, h1 only, both (-1)")
    one.add_argument("-r", "--records", type=int, default=1, help="records of F h1, G and I h0 (1)")
    one.add_argument("-y", "--flush-every", type=int, default=1, help="records between flushes; -1: once at the end")
    about = "layouts of pnc_vol (canonical)"
    one.add_argument("-x", "--layouts", nargs="+", choices=LAYOUTS, default=["canonical"], help=about)
    one.add_argument("-g", "--subfiles", type=int, default=0, help="subfiles of blobs (0: one for each node)")
    one.add_argument("-s", "--io-stride", type=int, default=1, help="every n-th rank writes, the others wait (1)")
    one.add_argument("-t", "--sleep", type=float, default=0.0, help="seconds of computing before each record")
    one.add_argument("-i", "--read", action="store_true", help="the read test, too: each rank reads what it wrote")
    about = "open, read and replay what blobs wrote, beside a file and a copy"
    one.add_argument("--view", action="store_true", help=about)
    one.add_argument("-k", "--keep", action="store_true", help="leave the files of pnc_vol; name them with -o")
    one.add_argument("-o", "--output", help="path; _h0 and _h1 come before its suffix")
    one.add_argument("--data", type=PurePath, default=DATA, help="folder of E3SM-IO's maps and lists of variables")
    one.add_argument("--synthetic", type=int, metavar="SIZE", help="make the maps up: F: edge of the cubed sphere")
    one.add_argument("--map-ranks", type=int, default=16, help="processes of a map that is made up (16)")
    one.add_argument("--compat", action="store_true", help="read the I case's maps with the C program's mistake")


class _OwnedPart:
    """The runs of one map that this rank writes; on rank 0 also the owner of each cell, for checks.

    offsets, lengths : int64[n], in elements.
    decomposition : the same, for blobs.
    """

    def __init__(self, job: Job, dims: tuple[int, ...], runs: Runs) -> None:
        self.offsets, self.lengths = runs if job.options.unsorted else in_rows(runs, dims[-1])
        self.cells = int(self.lengths.sum())
        starts = np.stack(np.unravel_index(self.offsets, dims), axis=1)
        self.starts = starts.astype(np.int64).reshape(len(self.offsets), len(dims))
        self.counts = np.ones_like(self.starts)
        self.counts[:, -1] = self.lengths
        self.decomposition: Any = None
        self.owner = np.full(math.prod(dims), -1, np.int32)
        for rank, (at, n) in enumerate(job.comm.gather((self.offsets, self.lengths)) or ()):
            # every cell of every run
            self.owner[np.repeat(at - (np.cumsum(n) - n), n) + np.arange(int(n.sum()))] = rank

    def prepare(self, *, blobs: bool) -> None:
        """Make the places that a library is given, which belongs to the program's preparing."""
        if blobs:
            self.decomposition = pnc_vol.Decomposition.from_runs(self.offsets, self.lengths)
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
        shares = dealt(maps, ranks, compat=o.compat)
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

    def dims(self, file: CaseFile) -> dict[str, int | None]:
        """Return the dimensions of a file."""
        return {name: None if n is None else self.lengths.get(name, n) for name, n in file.dims.items()}

    def buffers(self, value: int, gap: int) -> tuple[Buffers, list[Array]]:
        """Return an array of `value` for each variable that has a map, as in a program's memory, and the memory of all.

        Numbers are double or int, as in the C program. Arrays of a file and type are parts of one block of memory, one
        behind the other, `gap` elements apart.
        """
        found: Buffers = {}
        blocks = []
        for file in self.files:
            for kind in "if":
                variables = [v for v in file.variables if v.number and np.dtype(v.dtype).kind == kind]
                sizes = [self.parts[v.number - 1].cells for v in variables]
                blocks.append(np.full(sum(sizes) + gap * len(variables), IDLE, "i4" if kind == "i" else "f8"))
                at = 0
                for variable, size in zip(variables, sizes, strict=True):
                    found[file.name, variable.name] = part = blocks[-1][at : at + size]
                    part[...] = value
                    at += size + gap
        return found, blocks


def value_of(dtype: Any, rank: int) -> Any:
    """Return what a rank writes: its number, or a letter."""
    return bytes([ord("a") + rank % 26]) if np.dtype(dtype).kind == "S" else rank


def run(job: Job) -> list[Result]:
    """Time from open to close, in total and by step, for every peer."""
    o, stride = job.options, max(1, job.options.io_stride)
    if stride > 1:
        # the C program reads this option and does not use it
        writers = job.comm.Split(job.comm.rank % stride > 0, job.comm.rank)
        if job.comm.rank % stride:
            return []
        job = job.among(writers)
    setup = _Setup(job)
    moved = (sum(setup.nbytes), sum(setup.requests))
    steps = ["open to close", *STEPS, *(["read, open to close", *READ_STEPS] if o.read else [])]
    phases: Phases = {step: moved if step.endswith("open to close") else (None, None) for step in steps}
    seen: dict[str, list[dict[str, Any]]] = {}

    def once(peer: Any, watch: RankWatch) -> None:
        # several peers in one folder, and the user's path for ours
        root, suffix = os.path.splitext(o.output or os.path.join(job.folder, "e3sm.nc"))
        suffix += "" if peer.name == US else f".{peer.name.replace(' ', '_')}"
        paths = [f"{root}{file.name[1:] if len(file.name) == 4 else ''}{suffix}" for file in setup.files]
        for path in paths:
            job.clear_set(path)
        _write(o, setup, peer, paths, watch)
        if o.read:
            _read(o, setup, peer, paths, watch)
        if o.view and job.comm.rank == 0 and is_set(REAL, paths[0]):
            seen.setdefault(peer.name, []).append(_look(setup, paths[0]))
        for file, peer.path in zip(setup.files, paths, strict=True):
            if job.comm.rank == 0:
                _verify(setup, file, peer)
            job.comm.Barrier()
            if not (o.keep and peer.name.startswith(US)):
                job.clear_set(peer.path)

    results = job.turns(phases, peers(job), once)
    _report(job, setup, {result.work: result for result in results})
    for name, rounds in seen.items():
        _report_view(job, f"{name}: one rank sees {setup.files[0].name} as one file", rounds)
    return results


def _write(o: Any, setup: _Setup, peer: Any, paths: Sequence[str], watch: RankWatch) -> None:
    """Write fixed variables, then records, with a flush every so many."""
    values, _ = setup.buffers(setup.rank, GAP if o.apart else 0)
    with watch("open to close"):
        for file, peer.path in zip(setup.files, paths, strict=True):
            with watch.part("pre"):
                for part in setup.parts:
                    part.prepare(blobs=isinstance(peer, Blobs))
                specs = setup.specs(file) if isinstance(peer, Blobs) else _without_maps(setup.specs(file))
            with watch.part("open"):
                peer.new()
            with watch.part("define"):
                peer.define(specs, file.attrs, setup.dims(file))
                peer.enddef()
            with watch.part("post"):
                _post(setup, peer, file, None, values)
            records = setup.records_of(file)
            every = o.flush_every if o.flush_every > 0 else records
            names = [v.name for v in file.variables if v.number and file.is_record(v)]
            for record in range(records):
                time.sleep(o.sleep)
                with watch.part("post"):
                    peer.begin_record(record, names)
                    _post(setup, peer, file, record, values)
                if (record + 1) % every == 0 or record + 1 == records:
                    with watch.part("flush"):
                        peer.flush()
            with watch.part("close"):
                peer.close()


def _without_maps(specs: dict[str, Spec]) -> dict[str, Spec]:
    return {name: spec._replace(decomposition=None) for name, spec in specs.items()}


def _post(setup: _Setup, peer: Any, file: CaseFile, record: int | None, values: Buffers) -> None:
    """Post all variables of a record, or (None) those without records; what has no map is written by rank 0."""
    write_part = getattr(peer, "write_part", None)
    for v in file.variables:
        if file.is_record(v) != (record is not None):
            continue
        if v.number:
            part = setup.parts[v.number - 1]
            if write_part is not None:
                write_part(v.name, part, record, values[file.name, v.name])
            else:
                peer.write_runs(v.name, *part.places(record), values[file.name, v.name])
        elif setup.rank == 0:
            shape = setup.shape(file, v)
            shape = shape if record is None else (1, *shape[1:])
            start = (record or 0, *(0,) * (len(shape) - 1)) if shape else ()
            peer.write(v.name, start, np.full(shape, value_of(v.dtype, 0), v.dtype))


def _read(o: Any, setup: _Setup, peer: Any, paths: Sequence[str], watch: RankWatch) -> None:
    """Each rank reads what it wrote, all variables of a record in one flush, and compares it afterwards."""
    found, blocks = setup.buffers(-1, GAP if o.apart else 0)
    read_part = getattr(peer, "read_part", None)
    with watch("read, open to close"):
        for file, peer.path in zip(setup.files, paths, strict=True):
            with watch.part("read, pre"):
                for part in setup.parts:
                    part.prepare(blobs=isinstance(peer, Blobs))
            if not peer.is_netcdf:
                peer.define(setup.specs(file))
            with watch.part("read, open"):
                peer.open()
            for record in range(setup.records_of(file)):
                with watch.part("read, post"):
                    for v in (v for v in file.variables if v.number and (file.is_record(v) or not record)):
                        at, part = record if file.is_record(v) else None, setup.parts[v.number - 1]
                        if read_part is not None:
                            read_part(v.name, part, at, found[file.name, v.name])
                        else:
                            peer.read_runs(v.name, *part.places(at), found[file.name, v.name])
                with watch.part("read, flush"):
                    peer.flush()
            with watch.part("read, close"):
                peer.close()
    for (file_name, name), values in found.items():
        if not bool((values == setup.rank).all()):
            raise AssertionError(f"{file_name}: rank {setup.rank} does not read of {name} what it wrote")
    between = sum(block.size for block in blocks) - sum(part.size for part in found.values())
    if sum(int((block == IDLE).sum()) for block in blocks) != between:
        raise AssertionError(f"rank {setup.rank}: reading changed memory between the arrays")


def _verify(setup: _Setup, file: CaseFile, peer: Any) -> None:
    """Every cell that has an owner holds its number, others the fill value if asked; what rank 0 wrote is there."""
    if not peer.is_netcdf:
        peer.define(setup.specs(file))
    f = pnc_vol.File(peer.path) if peer.is_netcdf else None
    for variable in file.variables:
        found = np.asarray(f[variable.name][...]) if f is not None else peer.stored(variable.name)
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
            right = bool((found == value_of(variable.dtype, 0)).all())
        if not right:
            raise AssertionError(f"{peer.path}: {variable.name} does not hold what was written to it")
    if f is not None:
        f.close()


def _report(job: Job, setup: _Setup, by: Mapping[str, Result]) -> None:
    """Report counts, amounts, the least and the most time of a rank in each step, and bandwidths, as the C program."""
    o, files = job.options, setup.files
    rows: list[tuple[str, object]] = [
        ("Number of IO processes", job.comm.size),
        ("Number of decompositions", len(setup.parts)),
        ("Fill mode", "enabled" if setup.fill else "disabled"),
        ("Using noncontiguous write buffer", "yes" if o.apart else "no"),
    ]
    for file in files:
        numbers = [variable.number for variable in file.variables]
        attributes = len(file.attrs) + sum(len(variable.attrs) for variable in file.variables)
        records = setup.records_of(file)
        every = o.flush_every if o.flush_every > 0 else records
        rows += [(f"{file.name}: No. variables use no decomposition", f"{numbers.count(0):6d}")]
        for k in range(1, len(setup.parts) + 1):
            rows += [(f"{file.name}: No. variables use decomposition D{k}", f"{numbers.count(k):6d}")]
        rows += [
            (f"{file.name}: Total no. climate variables", f"{len(numbers):6d}"),
            (f"{file.name}: Total no. attributes", f"{attributes:6d}"),
            (f"{file.name}: Write no. records (time dim)", f"{records:6d}"),
            (f"{file.name}: No. I/O flush calls", f"{-(-records // every):6d}"),
        ]
    amount = sum(setup.nbytes)
    for word, of in (("Total", sum), ("Max  ", max), ("Min  ", min)):
        rows += [(f"{word} no. noncontiguous requests", f"{of(setup.requests):6d}")]
    for word, of in (("Indiv write amount MAX", max), ("Indiv write amount MIN", min), ("Total write amount", sum)):
        rows += [(word, f"{of(setup.nbytes) / (1 << 20):.2f} MiB")]
    job.report(f"==== Case {o.case}, canonical, maps {setup.title}, {', '.join(file.name for file in files)} ====")
    for word, value in rows:
        job.report(f"{word:34s} = {value}")
    for prefix, kind, steps in (("", "write-only", STEPS), ("read, ", "read-only", READ_STEPS)):
        whole = by.get(f"{prefix}open to close")
        total = whole.median(US) if whole else None
        if total is None:
            continue
        job.report("-" * 59)
        for step, words in steps.items():
            least, most = by[step].least(US) or 0.0, by[step].median(US) or 0.0
            job.report(f"Time of {words:26s} min/max = {least:8.4f} / {most:8.4f}")
        for what, spent in ((kind, by[f"{prefix}flush"].median(US)), ("open-to-close", total)):
            job.report(f"I/O bandwidth in MiB/sec ({what}) = {amount / (1 << 20) / (spent or np.inf):.4f}")


# --------------------------------------------------------------------------- a set of subfiles is seen as one file


def _look(setup: _Setup, base: str) -> dict[str, Any]:
    """Replay a set, copy the result with the system's own call, open and read both: wall and processor seconds.

    What is read is the largest variable, of two dimensions or more. All is of the same run, on files in the page cache;
    one rank does it, while the others wait.
    """
    file = setup.files[0]
    shapes = {v.name: setup.shape(file, v) for v in file.variables if v.number}
    name = max((one for one in shapes if len(shapes[one]) > 1), key=lambda one: math.prod(shapes[one]))
    whole, copied = f"{base}.replayed", f"{base}.copied"

    def spent(do: Callable[[], Any]) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        do()
        return time.perf_counter() - wall, time.process_time() - cpu

    found = {
        "replay": spent(lambda: pnc_vol.replay(base, output=whole, overwrite=True)),
        "plain copy": spent(lambda: copy_file(whole, copied)),
    }
    for path, which in ((base, ""), (whole, "canonical ")):
        made: list[Any] = []
        found[f"{which}opening"] = spent(lambda path=path, made=made: made.append(pnc_vol.File(path)))  # type: ignore[misc]
        with made[0] as f:
            dataset = f[name]
            dataset[...]
            each = [spent(lambda dataset=dataset: dataset[...]) for _ in range(50)]  # type: ignore[misc]
        found[f"{which}reading"] = tuple(map(statistics.median, zip(*each, strict=True)))
    for path in (whole, copied):
        clear(path)
    return found


def _report_view(job: Job, title: str, rounds: Sequence[Mapping[str, tuple[float, float]]]) -> None:
    """Report medians, and how many times as long as the canonical file's and the copy's they are."""
    job.report(f"==== {title} ====")
    for what, other in (
        ("opening", "canonical opening"),
        ("reading", "canonical reading"),
        ("replay", "plain copy"),
    ):
        (wall, cpu), (plain, plain_cpu) = (
            (statistics.median(one[of][k] for one in rounds) for k in (0, 1)) for of in (what, other)
        )
        job.report(
            f"{what:10s} {wall * 1e3:9.3f} ms (CPU {cpu * 1e3:9.3f}); {other} {plain * 1e3:9.3f} (CPU "
            f"{plain_cpu * 1e3:9.3f}): {wall / plain:6.2f} x (CPU {cpu / max(plain_cpu, 1e-9):6.2f} x)"
        )
