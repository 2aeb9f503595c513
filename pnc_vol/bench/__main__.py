"""``python -m pnc_vol.bench NAME`` runs one benchmark and prints its results.

Knows: the benchmarks by name. One of many ranks starts ``mpiexec`` itself unless it was started by it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pnc_vol
from pnc_vol.bench.measure import US, Job, Result, kernel_text
from pnc_vol.settings.options import launched, parse_hints
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_whole
from pnc_vol.testing.mpi import find_mpiexec, flavour

NAMES = (
    *("io", "reads", "posts", "burst", "small", "records", "objects", "conversion", "remote"),
    *("coll_perf", "ior", "flash", "e3sm", "create"),
)
"""Modules with a function ``main``; those of many ranks have ``arguments``, too."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    top = argparse.ArgumentParser(prog="python -m pnc_vol.bench", description=__doc__)
    kinds = top.add_subparsers(dest="name", required=True, metavar="NAME")
    for name in NAMES:
        module = importlib.import_module(f"pnc_vol.bench.{name}")
        about = str(module.__doc__).partition("\n")[0].partition("`` ")[2]
        # IOR has options of one letter that others use for help and for hosts
        one = kinds.add_parser(name, help=about, description=about, conflict_handler="resolve")
        one.set_defaults(module=module, on_ranks=hasattr(module, "arguments"))
        one.add_argument("--quick", action="store_true", help="3 rounds; without what takes minutes, and peak memory")
        one.add_argument("--rounds", type=int, help="5 by default")
        one.add_argument("--scale", type=float, default=1.0, help="fraction of the real size (1)")
        one.add_argument("--dir", help="where the files go (default: where temporary files go)")
        one.add_argument("--only", default="", help="works with this in their names only")
        one.add_argument("--peers", type=lambda text: text.split(","), help="run only these, by name: a,b")
        one.add_argument("--json", action="store_true", help="print JSON instead of a table")
        one.add_argument("--plot", metavar="FILE.png", help="draw a picture, too")
        one.add_argument("--no-memory", dest="memory", action="store_false", help="do not measure peak memory")
        one.add_argument("--memory-of", help=argparse.SUPPRESS)  # a work and a peer, for the process that measures it
        if hasattr(module, "arguments"):
            one.add_argument("-n", "--ranks", type=int, default=4, help="ranks to start (4), unless mpiexec did")
            one.add_argument("--hints", type=parse_hints, default={}, help="hints for pnc_vol: key=value;key=value")
            one.add_argument("--hints-file", help="file with one hint per line, as for ROMIO; --hints takes precedence")
            module.arguments(one)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.memory = options.memory and not options.quick
    if options.on_ranks and not launched():
        return _start(options.ranks, given)
    comm: Any = None
    if options.on_ranks:
        # the process that starts the ranks must not start MPI itself
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        if options.hints_file:
            options.hints = hints_of(options.hints_file) | options.hints
    job = Job(options, options.dir, comm)
    # what peers warn about (open memory maps, types) says nothing about their speed
    with warnings.catch_warnings(), job.folder() as job.home:
        warnings.simplefilter("ignore")
        # load what pnc_vol loads with its first file: the modules of other libraries are loaded by now, too
        with pnc_vol.File("warm up", "w", driver="memory") as f:
            f["x"] = [1]
        options.module.main(job)
    first = comm is None or comm.rank == 0
    if first and not options.memory_of:
        _show(job, [] if comm is None else [f"{comm.size} ranks"])
    if unknown := sorted(set(options.peers or ()) - job.known):
        if first:
            there = ", ".join(sorted(job.known))
            text = f"no peer is called {', '.join(map(repr, unknown))}; '{options.name}' has {there}"
            print(f"python -m pnc_vol.bench: --peers: {text}", file=sys.stderr)
        return 2
    return 0


def _start(ranks: int, given: Sequence[str]) -> int:
    """Run the benchmark on ranks; its exit status."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise SystemExit('mpiexec is not installed (pip install "pnc-vol[mpi]")')
    launcher = [mpiexec, "-n", str(ranks), *(["--oversubscribe"] if flavour(mpiexec) == "openmpi" else [])]
    command = [*launcher, sys.executable, "-m", "mpi4py", "-m", "pnc_vol.bench", *given]
    return subprocess.run(command, check=False).returncode


def hints_of(path: str) -> dict[str, str]:
    """Return hints of a file with one a line: ``name value`` as ROMIO has it, ``name = value``, or IOR's with its
    prefix."""
    found = {}
    for line in read_whole(REAL, path).decode().splitlines():
        name, _, value = line.partition("#")[0].replace("=", " ", 1).strip().partition(" ")
        # the prefix of IOR names whom a hint is for; hints for the file system alone are not ours
        if (name and not name.startswith("IOR_HINT__")) or name.startswith("IOR_HINT__MPI__"):
            found[name.removeprefix("IOR_HINT__MPI__")] = value.strip()
    return found


def _show(job: Job, lines: list[str]) -> None:
    o, lines = job.options, [*lines, *job.lines]
    results = [result for result in job.results if o.only in result.work]
    for result in results if lines else ():
        median = result.median(US)
        if median and result.nbytes:
            rates = [result.nbytes / 2**20 / seconds for seconds in (median, min(result.seconds[US]))]
            lines.append(f"{result.work}: {rates[0]:.2f} MiB/s, at best {rates[1]:.2f} ({US})")
    if o.plot:
        plot(results, o.plot, f"{o.name}: pnc_vol and its peers")
    if o.json:
        print(to_json(results, {"benchmark": o.name, "rounds": o.rounds, "report": lines}))
        return
    about: dict[str, Any] = machine()
    place = f"{about['cpu']}, {about['cores']} cores, load {about['load'][0]}, {about['system']}"
    print(f"{o.name}: {place}, Python {about['python']}, {o.rounds} rounds\n")
    if lines:
        print("\n".join(lines), end="\n\n")
    print_table(results)


# -------------------------------------------------------------------------------------------- what is printed and drawn


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = kernel_text("/proc/cpuinfo").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    load, system = [round(value, 2) for value in os.getloadavg()], f"{platform.system()} {platform.release()}"
    return {
        "cpu": model, "cores": os.cpu_count(), "load": load, "system": system, "python": platform.python_version(),
    }  # fmt: skip


def print_table(results: Sequence[Result]) -> None:
    """Print medians with their range, and the ratio of each peer to pnc_vol in brackets; then memory, bytes and
    requests, and what was left out and why: a note that all works have stands once."""
    peers = list(dict.fromkeys(peer for result in results for peer in result.seconds))
    _print_columns([["seconds", *peers], *([r.work, *(_seconds(r, peer) for peer in peers)] for r in results)])
    print("\nmedian (fastest-slowest) [peer / pnc_vol: above 1, pnc_vol is faster]\n")
    if any(result.nbytes is not None or result.memory for result in results):
        _print_columns([["peak memory over the start", "bytes", "requests", *peers]] + [
            [r.work, _amount(r.nbytes), f"{r.requests:,}" if r.requests else "-",
             *(_amount(r.memory.get(peer)) for peer in peers)] for r in results
        ])  # fmt: skip
        print()
    notes: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for note in result.notes.items():
            notes.setdefault(note, []).append(result.work)
    for (peer, reason), works in notes.items():
        print(f"- {peer}{'' if len(works) == len(results) else ', ' + '; '.join(works)}: {reason}")


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def _seconds(result: Result, peer: str) -> str:
    median = result.median(peer)
    if median is None:
        return "-"
    found, digits = result.seconds[peer], 3 if median >= 0.1 else 4
    text = f"{median:.{digits}f} ({min(found):.{digits}f}-{max(found):.{digits}f})"
    ratio = result.ratio(peer)
    return text if peer == US or ratio is None else f"{text} [{ratio:.2f}]"


def _amount(nbytes: int | None) -> str:
    if nbytes is None:
        return "-"
    return f"{nbytes / (1 << 20):.1f} MiB" if nbytes >= 1 << 17 else f"{nbytes / 1024:.1f} KiB"


def to_json(results: Sequence[Result], more: Mapping[str, Any]) -> str:
    """Return all that was measured, for programs; seconds and bytes."""
    rows = [
        {"work": r.work, "bytes": r.nbytes, "requests": r.requests, "seconds": r.seconds, "memory": r.memory,
         "notes": r.notes, **({"quickest_rank": r.quickest} if r.quickest else {})}
        for r in results
    ]  # fmt: skip
    return json.dumps({"machine": machine(), **more, "results": rows}, indent=1)


def plot(results: Sequence[Result], path: str, title: str) -> None:
    """Plot the seconds of each work, one bar a peer with its range, on a logarithmic axis.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    shown = [result for result in results if any(result.seconds.values())]
    peers = list(dict.fromkeys(peer for result in shown for peer in result.seconds if result.seconds[peer]))
    height = 0.8 / max(1, len(peers))
    figure = Figure(figsize=(9, 1.2 + len(shown) * (0.25 + 0.16 * len(peers))), layout="constrained")
    axes = figure.subplots()
    for i, peer in enumerate(peers):
        at = [(j, r.median(peer) or 0.0, r.seconds[peer]) for j, r in enumerate(shown) if r.seconds.get(peer)]
        bars = axes.barh(
            [j + (i - (len(peers) - 1) / 2) * height for j, _, _ in at], [m for _, m, _ in at], height * 0.92,
            label=peer, color=f"C{i}", xerr=[[m - min(s) for _, m, s in at], [max(s) - m for _, m, s in at]],
            error_kw={"elinewidth": 0.8, "ecolor": "0.3"},
        )  # fmt: skip
        axes.bar_label(bars, [f"{m:.3g}" for _, m, _ in at], padding=4, fontsize=7)
    axes.set_yticks(range(len(shown)), [result.work for result in shown])
    axes.set(xscale="log", ylim=(len(shown) - 0.45, -0.55))
    axes.margins(x=0.12)
    axes.set_xlabel("seconds (median; lines: fastest to slowest); shorter is better")
    axes.grid(axis="x", which="major", color="0.9")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=min(4, len(peers)), frameon=False)
    about = machine()
    axes.set_title(f"{title}\n{about['cpu']}, {about['cores']} cores", fontsize=10, loc="left")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
