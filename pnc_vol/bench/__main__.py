"""``python -m pnc_vol.bench NAME`` runs one benchmark and prints its results.

Knows: the benchmarks by name. A benchmark of many ranks starts ``mpiexec`` itself unless it was started by it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from pnc_vol.bench import ranks, remote
from pnc_vol.bench.e3sm_peers import c_program
from pnc_vol.bench.measure import Result, run_works
from pnc_vol.bench.table import machine, plot, print_table, to_json
from pnc_vol.settings.options import launched, parse_hints

SERIAL = {
    "io": ("io", "one large variable, rows, random small pieces, many variables"),
    "reads": ("io", "columns, strides, lists, masks, blocks; record variables"),
    "posts": ("posts", "small writes of each kind, iput; recovery of the log of a killed job"),
    "records": ("small", "20 record variables that grow together, with a flush at each record and at every 50th"),
    "small": ("small", "the life of a small file, a script of one dataset, a flush in each step"),
    "conversion": ("conversion", "a netCDF-4 and an HDF5 file to CDF-5, beside nccopy and h5repack"),
    "burst": ("posts", "posting to a burst-buffer log on tmpfs and on disk, and flushing it"),
    "objects": ("small", "10,000 and 100,000 variables with 3 attributes"),
}
RANKS = {
    "coll_perf": "a 3-D array in blocks, as ROMIO's and E10's coll_perf",
    "ior": "segments, blocks and transfers, as IOR",
    "flash": "checkpoint and two plotfiles of an adaptive mesh, as FLASH-IO",
    "e3sm": "climate variables on unstructured decompositions, as E3SM-IO",
    "create": "objects created by each rank for itself, as indep_data_obj_create",
}


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    top = argparse.ArgumentParser(prog="python -m pnc_vol.bench", description=__doc__)
    kinds = top.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, (_, about) in SERIAL.items():
        _common(kinds.add_parser(name, help=about, description=about))
    for name, about in RANKS.items():
        # IOR has options of one letter that others use for help and for hosts
        one = kinds.add_parser(name, help=f"{about} (MPI)", description=about, conflict_handler="resolve")
        _common(one)
        one.add_argument("-n", "--ranks", type=int, default=4, help="ranks to start (4), unless mpiexec started this")
        one.add_argument("--ranks-per-node", type=int, help="play several nodes on this one (MPICH)")
        one.add_argument("--peers", type=lambda text: text.split(","), help="run only these, by name: a,b")
        one.add_argument("--hints", type=parse_hints, default={}, help="hints for pnc_vol: key=value;key=value")
        one.add_argument("--hints-file", help="file with one hint per line, as for ROMIO; --hints takes precedence")
        importlib.import_module(f"pnc_vol.bench.{name}").arguments(one)
    about = "columns behind a web server that is 50 ms away; two threads that read one file"
    _common(kinds.add_parser("remote", help=about, description=about))
    return top


def _common(one: argparse.ArgumentParser) -> None:
    one.add_argument("--quick", action="store_true", help="3 rounds; leaves out what takes minutes, and peak memory")
    one.add_argument("--rounds", type=int, help="5 by default")
    one.add_argument("--scale", type=float, default=1.0, help="fraction of the real size (1)")
    one.add_argument("--dir", help="where the files go (default: where temporary files go)")
    one.add_argument("--only", default="", help="works with this in their names only")
    one.add_argument("--json", action="store_true", help="print JSON instead of a table")
    one.add_argument("--plot", metavar="FILE.png", help="draw a picture, too")
    one.add_argument("--no-memory", dest="memory", action="store_false", help="do not measure peak memory")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    if options.name == "remote":
        for line in remote.report(options.scale, options.rounds or 5, options.dir):
            print(line, flush=True)
        return 0
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.memory = options.memory and not options.quick
    if options.name in SERIAL:
        results = run_works(f"pnc_vol.bench.{SERIAL[options.name][0]}", options)
        _show(results, options, [])
        return 0
    if not launched():
        launcher = ranks.launcher_of(options.ranks, ranks_per_node=options.ranks_per_node)
        status = ranks.start(launcher, given)
        if options.name == "e3sm" and not status and not options.json:
            for line in c_program(options, launcher):
                print(line)
        return status
    if options.hints_file:
        options.hints = ranks.hints_of(options.hints_file) | options.hints
    bench = importlib.import_module(f"pnc_vol.bench.{options.name}")
    results, lines, rank, size = ranks.run_here(bench.run, options)
    if rank == 0:
        _show(results, options, [f"{size} ranks", *lines])
    return 0


def _show(results: Sequence[Result], options: argparse.Namespace, lines: Sequence[str]) -> None:
    results = [result for result in results if options.only in result.work]
    if options.plot:
        plot(results, options.plot, f"{options.name}: pnc_vol and its peers")
    if options.json:
        print(to_json(results, {"benchmark": options.name, "rounds": options.rounds, "report": list(lines)}))
        return
    about = machine()
    print(
        f"{options.name}: {about['cpu']}, {about['cores']} cores, load {about['load'][0]}, {about['system']}, "
        f"Python {about['python']}, {options.rounds} rounds\n"
    )
    if lines:
        print("\n".join(lines), end="\n\n")
    print_table(results)


if __name__ == "__main__":
    sys.exit(main())
