"""``python -m pnc_vol.bench e3sm``: climate variables on unstructured decompositions, as E3SM-IO's canonical layout.

Case F is an atmosphere of 414 and 51 variables whose columns are scattered over the ranks (two million runs for 32
MiB), case G an ocean of whole columns, case I land cells on a grid. Each variable of a record is one request of many
runs, and every rank writes its rank into its cells; a flush completes them every ``-y`` records. Maps and lists of
variables are read from a folder (``--data``) that has E3SM-IO's; without it, or with ``--synthetic SIZE``, they are
made up.

Knows: cases and maps (`e3sm_cases.py`, `e3sm_maps.py`). Does not know: how a library writes (`e3sm_peers.py`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.e3sm_cases import CaseFile, Variable, counted, files_of, listed
from pnc_vol.bench.e3sm_maps import Map, invented, read_maps
from pnc_vol.bench.e3sm_peers import peers
from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.ranks import Job, RankWatch
from pnc_vol.system import REAL, exists

__all__ = ["arguments", "run"]

DATA = PurePath(__file__).parents[3] / "shared/data/e3sm"
WHATS = ("pre", "open", "define", "post", "flush", "close")
SIZES = {"F": 4, "G": 5, "I": 96}


def arguments(one: argparse.ArgumentParser) -> None:
    """E3SM-IO's letters, and where cases and maps come from."""
    one.add_argument("--case", choices=["F", "G", "I"], default="F", help="F")
    one.add_argument("-j", "--floats", action="store_true", help="store float instead of double (F, I)")
    one.add_argument("-q", "--unsorted", action="store_true", help="do not sort the runs of a map, nor join them")
    one.add_argument("-f", "--file", type=int, choices=[0, 1, -1], default=-1, help="h0 only, h1 only, both (-1)")
    one.add_argument("-r", "--records", type=int, default=1, help="records of F h1, G and I h0 (1)")
    one.add_argument("-y", "--flush-every", type=int, default=1, help="records between flushes; -1: once at the end")
    one.add_argument("-e", "--expand", type=int, default=1, help="factor of the maps' last dimension (1)")
    one.add_argument("-t", "--sleep", type=float, default=0.0, help="seconds of computing before each record")
    one.add_argument("-k", "--keep", action="store_true", help="leave the files of pnc_vol; name them with -o")
    one.add_argument("-o", "--output", help="path; _h0 and _h1 come before its suffix")
    one.add_argument("--data", type=PurePath, default=DATA, help="folder of E3SM-IO's maps and lists of variables")
    one.add_argument("--synthetic", type=int, metavar="SIZE", help="make the maps up: F: edge of the cubed sphere")
    one.add_argument("--map-ranks", type=int, default=16, help="processes of a map that is made up (16)")
    one.add_argument("--compat", action="store_true", help="read the I case's maps with the C program's mistake")


@dataclass
class Part:
    """What this rank writes of one map: its runs, and where each cell's owner is for whoever checks."""

    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int32] | None

    @property
    def cells(self) -> int:
        return int(self.lengths.sum())


@dataclass
class Setup:
    """A case on these ranks."""

    case: str
    files: list[CaseFile]
    lengths: dict[str, int]
    parts: list[Part]
    records: int
    title: str
    requests: int = 0
    nbytes: int = 0
    amounts: dict[str, int] = field(default_factory=dict)

    def records_of(self, file: CaseFile) -> int:
        return 1 if file.one_record else self.records

    def shape(self, file: CaseFile, variable: Variable) -> tuple[int, ...]:
        return file.shape(variable, self.records_of(file), self.lengths)


def run(job: Job) -> list[Result]:
    """From open to close, in total and by step, for every peer."""
    setup = _setup(job)
    phases: dict[str, tuple[int | None, int | None]] = {"open to close": (setup.nbytes, setup.requests)}
    phases |= dict.fromkeys(WHATS, (None, None))
    runs: dict[str, Callable[[RankWatch], None] | str] = {}
    for name, peer in peers(job.comm, job.options.hints).items():
        runs[name] = peer if isinstance(peer, str) else _once(job, setup, name, peer)
    results = job.turns(phases, runs)
    _report(job, setup, {result.work: result.median(US) for result in results})
    return results


def _setup(job: Job) -> Setup:
    """Maps by rank 0, which tells each rank its part; variables."""
    o, comm = job.options, job.comm
    case: str = o.case
    path = o.data / f"map_{case.lower()}_case_16p.nc"
    invent = o.synthetic is not None or not exists(REAL, path)
    maps, lengths = _maps(job, path, invent)
    parts = [_part(job, one, o.expand if case != "G" or len(one.dims) > 1 else 1) for one in maps]
    if invent:
        files = [counted(name, lengths, floats=o.floats) for name in files_of(case, o.file)]
    else:
        files = [listed(str(o.data / f"{name}.json"), floats=o.floats) for name in files_of(case, o.file)]
    if o.expand > 1:
        for dims in files[0].map_dims:
            if case != "G" or len(dims) > 1:
                lengths[dims[-1]] = int(files[0].dims[dims[-1]] or 1) * o.expand
    setup = Setup(case, files, lengths, parts, o.records, "made up" if invent else f"of {path.name}")
    mine = 0
    for file in files:
        for variable in file.variables:
            times = setup.records_of(file) if file.is_record(variable) else 1
            shape = setup.shape(file, variable)
            alone = int(np.prod(shape)) // (setup.records_of(file) if file.is_record(variable) else 1)
            cells = parts[variable.number - 1].cells if variable.number else alone * (comm.rank == 0)
            mine += times * cells * np.dtype(variable.dtype).itemsize
            setup.requests += times * (len(parts[variable.number - 1].lengths) if variable.number else comm.rank == 0)
    setup.nbytes, setup.requests = comm.allreduce(mine), comm.allreduce(setup.requests)
    return setup


def _maps(job: Job, path: PurePath, invent: bool) -> tuple[list[Map], dict[str, int]]:
    o = job.options
    found: tuple[list[Map], dict[str, int]] | None = None
    if job.comm.rank == 0:
        size = o.synthetic or max(2, round(SIZES[o.case] * min(1.0, o.scale) ** 0.5))
        found = invented(o.case, size, max(o.map_ranks, job.comm.size)) if invent else (read_maps(str(path)), {})
    told: tuple[list[Map], dict[str, int]] = job.comm.bcast(found)
    return told


def _part(job: Job, one: Map, expand: int) -> Part:
    o, comm = job.options, job.comm
    offsets, lengths = one.of_rank(comm.rank, comm.size, sort=not o.unsorted, compat=o.compat, expand=expand)
    dims = (*one.dims[:-1], one.dims[-1] * expand)
    starts = np.stack(np.unravel_index(offsets, dims), axis=1).astype(np.int64).reshape(len(offsets), len(dims))
    counts = np.ones_like(starts)
    counts[:, -1] = lengths
    everyone = comm.gather((offsets, lengths))
    owner = None
    if everyone is not None:
        owner = np.full(int(np.prod(dims)), -1, np.int32)
        for rank, (at, n) in enumerate(everyone):
            # every cell of every run
            cells = np.repeat(at - (np.cumsum(n) - n), n) + np.arange(int(n.sum()))
            owner[cells] = rank
    return Part(starts, counts, offsets, lengths, owner)


def value_of(dtype: Any, rank: int) -> Any:
    """What a rank writes: its number, or a letter."""
    return bytes([ord("a") + rank % 26]) if np.dtype(dtype).kind == "S" else rank


def _once(job: Job, setup: Setup, name: str, peer: Any) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        o, rank = job.options, job.comm.rank
        paths = {file.name: _path(job, name, file) for file in setup.files}
        for path in paths.values():
            job.clear(path)
        # in memory all numbers are double, as in the C program; a buffer for each, as PnetCDF swaps bytes in place
        buffers = {
            (file.name, variable.name): np.full(
                setup.parts[variable.number - 1].cells, rank, "i4" if np.dtype(variable.dtype).kind == "i" else "f8"
            )
            for file in setup.files
            for variable in file.variables
            if variable.number
        }
        with watch("open to close"):
            for file in setup.files:
                writer = peer(setup, file)
                with watch.part("pre"):
                    writer.prepare()
                with watch.part("open"):
                    writer.open(paths[file.name])
                with watch.part("define"):
                    writer.define()
                _write(o, setup, file, writer, watch, buffers, rank)
                with watch.part("close"):
                    writer.close()
        for file in setup.files:
            _verify(job, setup, file, paths[file.name], peer)
            if not (o.keep and name == US):
                job.clear(paths[file.name])

    return do


def _path(job: Job, name: str, file: CaseFile) -> str:
    root, suffix = os.path.splitext(job.options.output or os.path.join(job.folder, "e3sm.nc"))
    which = "_" + file.name.partition("_")[2] if len(file.name) == 4 else ""
    return f"{root}{which}{suffix}" + ("" if name == US else f".{name.replace(' ', '_')}")


def _write(
    o: Any,
    setup: Setup,
    file: CaseFile,
    writer: Any,
    watch: RankWatch,
    buffers: Mapping[tuple[str, str], Any],
    rank: int,
) -> None:
    """Fixed variables, then records, with a flush every so many."""

    def post(variables: list[Variable], record: int) -> None:
        for variable in variables:
            if variable.number:
                writer.put(variable, record, setup.parts[variable.number - 1], buffers[file.name, variable.name])
            elif rank == 0:
                shape = setup.shape(file, variable)[1 if file.is_record(variable) else 0 :]
                value = value_of(variable.dtype, rank)
                writer.put_whole(variable, record, np.full(shape, value, variable.dtype))

    with watch.part("post"):
        post([v for v in file.variables if not file.is_record(v)], 0)
    records = setup.records_of(file)
    every = o.flush_every if o.flush_every > 0 else records
    later = [v for v in file.variables if file.is_record(v)]
    for record in range(records):
        time.sleep(o.sleep)
        with watch.part("post"):
            post(later, record)
        if (record + 1) % every == 0 or record + 1 == records:
            with watch.part("flush"):
                writer.flush()


def _verify(job: Job, setup: Setup, file: CaseFile, path: str, peer: Any) -> None:
    """Every cell that has an owner holds its number; what rank 0 wrote is there."""
    if not peer.is_netcdf:
        peer(setup, file).verify(path)
        return
    if job.comm.rank == 0:
        import pnc_vol

        with pnc_vol.File(path) as f:
            for variable in file.variables:
                found = np.asarray(f[variable.name][...])
                if found.dtype.kind == "S":
                    # another library's letters are read as strings
                    found = found.reshape(-1).view("S1")
                if variable.number:
                    owner = setup.parts[variable.number - 1].owner
                    assert owner is not None
                    rows = found.reshape(-1, owner.size)
                    right = bool((rows[:, owner >= 0] == owner[owner >= 0]).all())
                else:
                    right = bool((found == value_of(variable.dtype, 0)).all())
                if not right:
                    raise AssertionError(f"{path}: {variable.name} does not hold what was written to it")
    job.comm.Barrier()


def _report(job: Job, setup: Setup, seconds: Mapping[str, float | None]) -> None:
    """The C program's words, with the medians of pnc_vol."""
    total = seconds["open to close"]
    job.say(
        f"==== Case {setup.case}, canonical, maps {setup.title}, {', '.join(file.name for file in setup.files)} ===="
    )
    job.say(f"Number of variables                     = {sum(len(file.variables) for file in setup.files)}")
    job.say(f"Number of noncontiguous requests        = {setup.requests}")
    amount = setup.nbytes / (1 << 20)
    job.say(f"Total write amount                      = {amount:.2f} MiB")
    if total is None:
        return
    for what in WHATS:
        job.say(f"Max time of {what:28s}= {seconds[what] or 0.0:.4f} sec")
    job.say(f"Max end-to-end time                     = {total:.4f} sec")
    flush = seconds["flush"]
    if flush:
        job.say(f"I/O bandwidth (write-only)              = {amount / flush:.4f} MiB/sec")
    job.say(f"I/O bandwidth (open-to-close)           = {amount / total:.4f} MiB/sec")
