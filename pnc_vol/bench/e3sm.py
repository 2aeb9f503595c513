"""``python -m pnc_vol.bench e3sm``: climate variables on unstructured decompositions, as E3SM-IO's canonical layout.

Case F is an atmosphere of 414 and 51 variables whose columns are scattered over the ranks (two million runs for 32
MiB), case G an ocean of whole columns, case I land cells on a grid. Each variable of a record is one request of many
runs, and every rank writes its rank into its cells; a flush completes them every ``-y`` records. Maps and lists of
variables are read from a folder (``--data``) that has E3SM-IO's; without it, or with ``--synthetic SIZE``, they are
made up. Layouts are compared with -x: the canonical one, blobs (one subfile for each node, or -g of them), canonical
over the burst-buffer log or over a node-local cache. Of the C program's letters there are no -a (libraries are
--peers), no -c and -z (the format has neither chunks nor compression), no -v and -p (the report and the profiler of
Python).

Knows: the order of the steps. Does not know: maps and arrays (`e3sm_setup.py`), how a library writes
(`e3sm_peers.py`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

import pnc_vol
from pnc_vol.bench.e3sm_cases import CaseFile, Variable
from pnc_vol.bench.e3sm_peers import LAYOUTS, peers
from pnc_vol.bench.e3sm_setup import GAP, Setup, buffers, path_of, prepare, untouched, value_of
from pnc_vol.bench.e3sm_view import Seen, lines, look
from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.ranks import Job, RankWatch
from pnc_vol.file.finding import is_set
from pnc_vol.system import REAL

__all__ = ["arguments", "run"]

DATA = PurePath(__file__).parents[3] / "shared/data/e3sm"
WHATS = ("pre", "open", "define", "post", "flush", "close")
READ_WHATS = ("read, pre", "read, open", "read, post", "read, flush", "read, close")
WORDS = {
    "pre": "I/O preparing", "open": "file open/create", "define": "define variables",
    "post": "posting write requests", "flush": "write flushing", "close": "close", "open to close": "end-to-end",
    "read, pre": "read preparing", "read, open": "file open for reading", "read, post": "posting read requests",
    "read, flush": "read flushing", "read, close": "close after reading", "read, open to close": "read end-to-end",
}  # fmt: skip
RULE = "-" * 59


def arguments(one: argparse.ArgumentParser) -> None:
    """E3SM-IO's letters, and where cases and maps come from."""
    one.add_argument("--case", choices=["F", "G", "I"], default="F", help="F")
    one.add_argument("-j", "--floats", action="store_true", help="store float instead of double (F, I)")
    one.add_argument(
        "-m", "--apart", action="store_true", help=f"memory of the variables {GAP} elements apart, not end to end"
    )
    one.add_argument("--stride", type=int, default=1, help="a variable takes every n-th element of memory (1)")
    one.add_argument("-q", "--unsorted", action="store_true", help="do not sort the runs of a map, nor join them")
    one.add_argument("-u", "--fill", action="store_true", help="fill cells that no rank writes")
    one.add_argument("-f", "--file", type=int, choices=[0, 1, -1], default=-1, help="h0 only, h1 only, both (-1)")
    one.add_argument("-r", "--records", type=int, default=1, help="records of F h1, G and I h0 (1)")
    one.add_argument("-y", "--flush-every", type=int, default=1, help="records between flushes; -1: once at the end")
    one.add_argument(
        "-x", "--layouts", nargs="+", choices=LAYOUTS, default=["canonical"], help="layouts of pnc_vol (canonical)"
    )
    one.add_argument("-g", "--subfiles", type=int, default=0, help="subfiles of blobs (0: one for each node)")
    one.add_argument("-s", "--io-stride", type=int, default=1, help="every n-th rank writes, the others wait (1)")
    one.add_argument("-e", "--expand", type=int, default=1, help="factor of the maps' last dimension (1)")
    one.add_argument("-t", "--sleep", type=float, default=0.0, help="seconds of computing before each record")
    one.add_argument("-i", "--read", action="store_true", help="the read test, too: each rank reads what it wrote")
    one.add_argument(
        "--view",
        action="store_true",
        help="open, read and replay what blobs wrote, beside a file and a copy",
    )
    one.add_argument("-k", "--keep", action="store_true", help="leave the files of pnc_vol; name them with -o")
    one.add_argument("-o", "--output", help="path; _h0 and _h1 come before its suffix")
    one.add_argument("--data", type=PurePath, default=DATA, help="folder of E3SM-IO's maps and lists of variables")
    one.add_argument("--synthetic", type=int, metavar="SIZE", help="make the maps up: F: edge of the cubed sphere")
    one.add_argument("--map-ranks", type=int, default=16, help="processes of a map that is made up (16)")
    one.add_argument(
        "--of-ranks",
        dest="job_ranks",
        type=int,
        metavar="N",
        help="with --synthetic: do the shares of the first ranks of a job of N",
    )
    one.add_argument("--compat", action="store_true", help="read the I case's maps with the C program's mistake")


def run(job: Job) -> list[Result]:
    """From open to close, in total and by step, for every peer."""
    o, stride = job.options, max(1, job.options.io_stride)
    if stride > 1:
        # the C program reads this option and does not use it
        writers = job.comm.Split(job.comm.rank % stride > 0, job.comm.rank)
        if job.comm.rank % stride:
            return []
        job = job.among(writers)
    setup = prepare(job)
    nbytes, requests = sum(setup.nbytes), sum(setup.requests)
    phases: dict[str, tuple[int | None, int | None]] = {"open to close": (nbytes, requests)}
    phases |= dict.fromkeys(WHATS, (None, None))
    if o.read:
        phases["read, open to close"] = (nbytes, requests)
        phases |= dict.fromkeys(READ_WHATS, (None, None))
    runs: dict[str, Callable[[RankWatch], None] | str] = {}
    seen: dict[str, list[Seen]] = {}
    for name, peer in peers(job, o.hints).items():
        if not isinstance(peer, str) and o.fill and not peer.is_netcdf:
            peer = "-u: has no fill values"
        runs[name] = peer if isinstance(peer, str) else _once(job, setup, name, peer, seen)
    results = job.turns(phases, runs)
    _report(job, setup, results)
    for name, rounds in seen.items():
        for line in lines(name, rounds):
            job.report(line)
    return results


def _once(job: Job, setup: Setup, name: str, peer: Any, seen: dict[str, list[Seen]]) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        o, rank = job.options, job.comm.rank
        # several peers in one folder, and the user's path for ours
        suffix = "" if name == US else f".{name.replace(' ', '_')}"
        paths = {file.name: path_of(job, suffix, file) for file in setup.files}
        for path in paths.values():
            job.clear_set(path)
        memory = {"gap": GAP if o.apart else 0, "stride": o.stride}
        values, _ = buffers(setup, rank, **memory)
        with watch("open to close"):
            for file in setup.files:
                writer = peer(setup, file)
                with watch.part("pre"):
                    writer.prepare()
                with watch.part("open"):
                    writer.open(paths[file.name])
                with watch.part("define"):
                    writer.define()
                _write(o, setup, file, writer, watch, values, rank)
                with watch.part("close"):
                    writer.close()
        if o.read:
            _read(job, setup, peer, paths, watch, memory)
        if o.view and job.comm.rank == 0 and is_set(REAL, paths[setup.files[0].name]):
            seen.setdefault(name, []).append(look(setup, setup.files[0], paths[setup.files[0].name]))
        for file in setup.files:
            if not o.job_ranks:
                # of a share of a large job nobody reads the whole; -i reads the share
                _verify(job, setup, file, paths[file.name], peer)
            if not (o.keep and name.startswith(US)):
                job.clear_set(paths[file.name])

    return do


def _write(
    o: Any,
    setup: Setup,
    file: CaseFile,
    writer: Any,
    watch: RankWatch,
    values: Mapping[tuple[str, str], Any],
    rank: int,
) -> None:
    """Fixed variables, then records, with a flush every so many."""

    def post(variables: list[Variable], record: int) -> None:
        for variable in variables:
            if variable.number:
                writer.put(variable, record, setup.parts[variable.number - 1], values[file.name, variable.name])
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
            writer.begin(record, later)
            post(later, record)
        if (record + 1) % every == 0 or record + 1 == records:
            with watch.part("flush"):
                writer.flush()


def _read(
    job: Job, setup: Setup, peer: Any, paths: Mapping[str, str], watch: RankWatch, memory: Mapping[str, int]
) -> None:
    """Each rank reads what it wrote, all variables of a record in one flush, and looks at it afterwards."""
    rank = job.comm.rank
    found, blocks = buffers(setup, -1, **memory)
    with watch("read, open to close"):
        for file in setup.files:
            reader = peer(setup, file)
            with watch.part("read, pre"):
                reader.prepare()
            with watch.part("read, open"):
                reader.open_for_reading(paths[file.name])
            fixed = [v for v in file.variables if v.number and not file.is_record(v)]
            later = [v for v in file.variables if v.number and file.is_record(v)]
            for record in range(setup.records_of(file)):
                with watch.part("read, post"):
                    for variable in later + ([] if record else fixed):
                        part = setup.parts[variable.number - 1]
                        reader.get(variable, record, part, found[file.name, variable.name])
                with watch.part("read, flush"):
                    reader.flush()
            with watch.part("read, close"):
                reader.close()
    for (file_name, variable_name), values in found.items():
        if not bool((values == rank).all()):
            raise AssertionError(f"{paths[file_name]}: rank {rank} does not read of {variable_name} what it wrote")
    if not untouched(setup, found, blocks):
        raise AssertionError(f"rank {rank}: reading changed memory between the arrays")


def _verify(job: Job, setup: Setup, file: CaseFile, path: str, peer: Any) -> None:
    """Every cell that has an owner holds its number, others the fill value if asked; what rank 0 wrote is there."""
    if not peer.is_netcdf:
        peer(setup, file).verify(path)
        return
    if job.comm.rank == 0:
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
                    if setup.fill:
                        right &= bool((rows[:, owner < 0] == setup.fill_of(variable)).all())
                else:
                    right = bool((found == value_of(variable.dtype, 0)).all())
                if not right:
                    raise AssertionError(f"{path}: {variable.name} does not hold what was written to it")
    job.comm.Barrier()


def _report(job: Job, setup: Setup, results: Sequence[Result]) -> None:
    """Counts, amounts, the least and the most time of a rank in each step, and bandwidths."""
    o, by = job.options, {result.work: result for result in results}
    files = setup.files
    job.report(f"==== Case {setup.case}, canonical, maps {setup.title}, {', '.join(file.name for file in files)} ====")
    job.report(f"Number of IO processes             = {job.comm.size}")
    job.report(f"Number of decompositions           = {len(setup.parts)}")
    job.report(f"Fill mode                          = {'enabled' if setup.fill else 'disabled'}")
    memory = "yes" if o.apart or o.stride > 1 else "no"
    job.report(f"Using noncontiguous write buffer   = {memory}")
    for file in files:
        numbers = [variable.number for variable in file.variables]
        job.report(f"{file.name}: No. variables use no decomposition = {numbers.count(0):6d}")
        for k in range(1, len(setup.parts) + 1):
            job.report(f"{file.name}: No. variables use decomposition D{k} = {numbers.count(k):6d}")
        attributes = len(file.attrs) + sum(len(variable.attrs) for variable in file.variables)
        records = setup.records_of(file)
        job.report(f"{file.name}: Total no. climate variables        = {len(numbers):6d}")
        job.report(f"{file.name}: Total no. attributes               = {attributes:6d}")
        job.report(f"{file.name}: Write no. records (time dim)       = {records:6d}")
        every = o.flush_every if o.flush_every > 0 else records
        job.report(f"{file.name}: No. I/O flush calls                = {-(-records // every):6d}")
    job.report(f"Total no. noncontiguous requests   = {sum(setup.requests):6d}")
    job.report(f"Max   no. noncontiguous requests   = {max(setup.requests):6d}")
    job.report(f"Min   no. noncontiguous requests   = {min(setup.requests):6d}")
    job.report(RULE)
    amount = sum(setup.nbytes)
    for what, nbytes in (
        ("Indiv write amount MAX ", max(setup.nbytes)),
        ("Indiv write amount MIN ", min(setup.nbytes)),
    ):
        job.report(f"{what}            = {nbytes / (1 << 20):.2f} MiB")
    job.report(f"Total write amount                 = {amount / (1 << 20):.2f} MiB = {amount / (1 << 30):.2f} GiB")
    for prefix, flush, whats in (("", "write-only", WHATS), ("read, ", "read-only", READ_WHATS)):
        whole = by.get(f"{prefix}open to close")
        total = whole.median(US) if whole else None
        if total is None:
            continue
        job.report(RULE)
        for what in (*whats, f"{prefix}open to close"):
            least, most = by[what].least(US) or 0.0, by[what].median(US) or 0.0
            job.report(f"Time of {WORDS[what]:26s} min/max = {least:8.4f} / {most:8.4f}")
        if not prefix:
            job.report(f"Emulate computation time (sleep)   min/max = {o.sleep:8.4f} / {o.sleep:8.4f}")
        for what, spent in ((flush, by[f"{prefix}flush"].median(US)), ("open-to-close", total)):
            for unit, power in (("MiB", 20), ("GiB", 30)):
                job.report(f"I/O bandwidth in {unit}/sec ({what}) = {amount / (1 << power) / (spent or np.inf):.4f}")
