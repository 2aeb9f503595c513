"""Measure everything that docs/explain/performance.md and performance-tables.md show, and write their tables.

    python tools/performance.py measure FOLDER            # on a quiet machine: FOLDER/quiet/NAME.json
    python tools/performance.py measure FOLDER --loaded   # beside a run of the tests: FOLDER/loaded/NAME.json
    python tools/performance.py write FOLDER              # the tables of both pages, from both

Each table stands between ``<!-- measured: NAME -->`` and ``<!-- end -->``; what is between them is replaced, the text
around them is not. Runs that were not measured leave their table as it is. The pictures are drawn, too, which needs
matplotlib. The summary (``<!-- measured: summary -->``) on the first page, and its picture, are read out of the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from pnc_vol.bench.__main__ import plot
from pnc_vol.bench.measure import US, Result

PAGE = Path(__file__).parent.parent / "docs/explain/performance.md"
TABLES = PAGE.with_name("performance-tables.md")
STATES = ("quiet", "loaded")
PICTURES = {"io", "reads"}
# limits of the machine, and pnc_vol in other settings: no libraries to be behind of
NO_PEERS = {US, "pnc_vol posix", "os.pwrite", "swapped os.pwrite", "queue in memory"}

RUNS = {
    "small": "small",
    "records": "records --quick --scale 0.25",
    "posts": "posts --quick --scale 0.2",
    "io": "io --quick --scale 0.1",
    # netCDF4 takes minutes for many variables
    "memory": "io --only write --rounds 1 --scale 0.1 --peers pnc_vol,h5py,scipy,PnetCDF-Python",
    "reads": "reads",
    "objects": "objects --quick --scale 0.1",
    "conversion": "conversion --quick",
    "burst": "burst",
    "coll_perf": "coll_perf -n 4",
    "flash": "flash -n 4",
    "e3sm-F-4": "e3sm --case F -n 4 --quick",
    "e3sm-G-4": "e3sm --case G -n 4",
    "e3sm-I-4": "e3sm --case I -n 4 --quick",
    "e3sm-F-16": "e3sm --case F -n 16 --quick",
    "create": "create -n 4 --quick --scale 0.1",
}


# Of works in steps, what counts is the whole.
WHOLE = {name: {"open to close", "flush"} for name in RUNS if name.startswith("e3sm")}
WHOLE |= {"flash": {"whole program"}, "create": {"end to end"}}


# What users do, in the summary at the top: in plain words, the run, and the work there.
SUMMARY = [
    ("write a large variable", "io", "variable of 13,421,773, write"),
    ("read a large variable", "io", "variable of 13,421,773, read"),
    ("write 20,000 short rows, one by one", "posts", "20,000 x rows of 16"),
    ("read 10,000 rows, one by one", "io", "10,000 rows of 128, read, one call each"),
    ("read a column of a large matrix", "reads", "64 columns of 8192 x 8192, one call each"),
    ("read one time step of 20 variables", "reads", "one time step of all of 20 record variables of 1,000 x 64 x 64"),
    ("write one record of 20 variables, and flush", "records",
     "20 record variables x 500 records of 16, a flush every 1, write"),
    ("change an attribute, and flush", "small", "5,000 x an attribute and a flush"),
    ("make, write and read a file of five datasets", "small", "200 x the life of a file with 5 small datasets"),
    ("create 10,000 variables", "objects", "10,000 variables, create"),
    ("open a file of 10,000 variables", "objects", "10,000 variables, open"),
    ("read the attributes of 10,000 variables", "objects", "10,000 variables, read all attributes"),
    ("convert 1 GiB of HDF5", "conversion", "convert HDF5, 1 GiB"),
    ("4 ranks write one array", "coll_perf", "write of 256.0 MiB"),
    ("4 ranks, the FLASH-IO program", "flash", "whole program"),
    ("4 ranks, E3SM's ocean (G)", "e3sm-G-4", "open to close"),
    ("16 ranks, E3SM's atmosphere (F)", "e3sm-F-16", "open to close"),
]  # fmt: skip
# what differs by less is not significant
ALIKE = 1.25


class Goal(NamedTuple):
    """`most` : how many times the peer's time pnc_vol may take; `first` : of the first round alone."""

    run: str
    work: str
    peer: str
    most: float
    first: bool = False


GOALS = [
    Goal("small", "the life of a file with 5 small datasets", "h5py", 0.6),
    Goal("small", "a script that writes one dataset, with bytecode", "h5py", 1.0),
    Goal("small", "a script that writes one dataset, without bytecode", "h5py", 1.0),
    Goal("small", "a record of 100 numbers and a flush", "h5py", 1.0),
    Goal("small", "an attribute and a flush", "h5py", 1.0),
    Goal("small", "an attribute of the file and a flush", "h5py", 1.0),
    Goal("records", "a flush every 50, write", "PnetCDF-Python", 1.0),
    Goal("posts", "iput of rows of 16", "PnetCDF-Python", 0.75),
    Goal("posts", "posts of 1,048,576 bytes", "os.pwrite", 1 / 0.6),
    Goal("io", "read into an array", "os.pwrite", 1.2),
    Goal("io", "rows of 128, write, one call each", "PnetCDF-Python", 1.0),
    Goal("io", "rows of 128, read, one call each", "PnetCDF-Python", 1.0),
    Goal("io", "rows of 128, read, as requests", "PnetCDF-Python", 1.0),
    Goal("io", "variables of 1,000, define and write", "PnetCDF-Python", 1.0),
    Goal("io", "variables of 1,000, read", "PnetCDF-Python", 1.5),
    Goal("reads", "64 columns", "numpy.memmap", 1.0),
    Goal("reads", "block of 1000 x 1000", "scipy mmap", 1.1),
    Goal("objects", "10,000 variables, open", "PnetCDF-Python", 1.0),
    Goal("conversion", "convert netCDF-4", "nccopy", 1.0),
    Goal("conversion", "convert HDF5", "h5repack", 1.2),
    Goal("coll_perf", "read", "swapped os.pwrite", 1.1),
    Goal("burst", "FLASH-like, post", US, 1.3),
    Goal("burst", "E3SM-like, post", US, 1.3),
    Goal("e3sm-F-4", "open to close", "PnetCDF-Python", 1.0),
    Goal("e3sm-G-4", "open to close", "PnetCDF-Python", 1.0, first=True),
    Goal("e3sm-I-4", "open to close", "PnetCDF-Python", 1.0, first=True),
]


def measure(folder: Path, names: list[str], *, loaded: bool) -> None:
    """Run the benchmarks one after another; a file of JSON for each."""
    place = folder / STATES[loaded]
    place.mkdir(parents=True, exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for name in names or RUNS:
        command = [sys.executable, "-m", "pnc_vol.bench", *RUNS[name].split(), "--json"]
        print(" ".join(command[2:]), flush=True)
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        (place / f"{name}.json").write_text(done.stdout)


class Measured:
    """What was measured: results by run and work, each in the states in which it was.

    A result has the lists of seconds of each peer, and what else the benchmark said.
    """

    def __init__(self, folder: Path) -> None:
        self.runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for state in STATES:
            for name in RUNS:
                path = folder / state / f"{name}.json"
                if path.exists():
                    for result in json.loads(path.read_text())["results"]:
                        self.runs.setdefault(name, {}).setdefault(result["work"], []).append(result)


Of = Callable[[list[float]], float]
"""What counts of the seconds of some rounds."""


def seconds(result: dict[str, Any], peer: str, of: Of = statistics.median) -> float | None:
    """The median, or what else is asked for."""
    found = result["seconds"].get(peer)
    return of(found) if found else None


def ratios(results: list[dict[str, Any]], peer: str, of: Of = statistics.median) -> list[float]:
    """In each state the peer's seconds over pnc_vol's."""
    pairs = [(seconds(r, peer, of), seconds(r, US, of)) for r in results]
    return [theirs / ours for theirs, ours in pairs if theirs is not None and ours]


def table(works: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Seconds of pnc_vol, and the ratio of each peer, in both states: of the median, and in brackets of the best."""
    every = (peer for results in works.values() for r in results for peer in r["seconds"] if r["seconds"][peer])
    peers = [peer for peer in dict.fromkeys(every) if peer != US]
    lines = [f"| work | pnc_vol, seconds | {' | '.join(peers)} |", "|---" * (len(peers) + 2) + "|"]
    for work, results in works.items():
        ours = [r["seconds"][US] for r in results if r["seconds"].get(US)]
        cells = [" / ".join(f"{statistics.median(s):.3g} ({min(s):.3g})" for s in ours) or "-"]
        for peer in peers:
            found = ratios(results, peer)
            pairs = zip(map(_ratio, found), map(_ratio, ratios(results, peer, min)), strict=True)
            text = " / ".join(f"{median} ({best})" for median, best in pairs) or "-"
            cells.append(f"**{text}**" if found and found[0] < 1 and peer not in NO_PEERS else text)
        lines.append(f"| {work} | {' | '.join(cells)} |")
    return lines


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def behind(measured: Measured) -> list[str]:
    """Where a library took less than nine tenths of pnc_vol's time on the quiet machine, the largest factor first."""
    rows = []
    for name, works in measured.runs.items():
        for work, results in works.items():
            if work not in WHOLE.get(name, {work}):
                continue
            faster = {}
            for peer in dict.fromkeys(peer for r in results for peer in r["seconds"]):
                found = ratios(results, peer)
                if peer not in NO_PEERS and found and found[0] < 0.9 and not peer.startswith("log on"):
                    faster[peer] = [1 / ratio for ratio in found]
            if faster:
                text = "; ".join(f"{peer} {' / '.join(f'{f:.3g}' for f in found)}" for peer, found in faster.items())
                ours = " / ".join(f"{s:.3g}" for r in results if (s := seconds(r, US)) is not None)
                rows.append((max(found[0] for found in faster.values()), f"| `{name}`: {work} | {ours} | {text} |"))
    head = ["| work | pnc_vol, seconds | how many times as long as |", "|---|---|---|"]
    return head + [row for _, row in sorted(rows, key=lambda row: -row[0])]


def goals(measured: Measured) -> list[str]:
    """Each goal, and whether it is met in the states in which it was measured."""
    lines = ["| work | goal, at most | measured, quiet / loaded | met |", "|---|---|---|---|"]
    for goal in GOALS:
        for work, results in measured.runs.get(goal.run, {}).items():
            if goal.work not in work:
                continue
            found = [
                1 / ratio for ratio in ratios(results, goal.peer, itemgetter(0) if goal.first else statistics.median)
            ]
            if goal.peer == US:  # a log beside the queue in memory
                found = ratios(results, "log on tmpfs")
            if found:
                met = [f <= goal.most for f in found]
                verdict = "yes" if all(met) else "in one of two" if any(met) else "no"
                peer = "a post to memory" if goal.peer == US else goal.peer
                lines.append(
                    f"| `{goal.run}`: {work}{', first round' if goal.first else ''} | {goal.most:.3g} x {peer} | "
                    f"{' / '.join(f'{f:.2f}' for f in found)} | {verdict} |"
                )
            break
    return lines


def compared(tables: str) -> dict[str, dict[str, float]]:
    """What users do, with the ratio of each library on the quiet machine, as the tables of the page have it."""
    found = {}
    for what, run, work in SUMMARY:
        rows = tables.partition(f"<!-- measured: {run} -->\n")[2].partition("<!-- end -->")[0].splitlines()
        cells = {row.split(" | ")[0].lstrip("| "): row.strip("| ").split(" | ")[1:] for row in rows}
        if work in cells:
            pairs = list(zip(cells["work"][1:], cells[work][1:], strict=True))
            found[what] = {
                peer: float(cell.strip("*").split()[0]) for peer, cell in pairs if peer not in NO_PEERS and cell != "-"
            }
    return found


def summary(tables: str) -> list[str]:
    """Return the table of what users do."""
    lines = ["| what you do | pnc_vol is faster than | about as fast as | slower than |", "|---|---|---|---|"]
    for what, peers in compared(tables).items():
        told: tuple[list[str], list[str], list[str]] = ([], [], [])
        for peer, ratio in peers.items():
            if ratio > ALIKE:
                told[0].append(f"{peer} ({_times(ratio)})")
            elif ratio >= 1 / ALIKE:
                told[1].append(peer)
            else:
                told[2].append(f"{peer} ({_times(1 / ratio)})" if ratio else peer)
        lines.append(f"| {what} | {' | '.join(', '.join(each) for each in told)} |")
    return lines


def draw_summary(tables: str) -> None:
    """Draw the same: a row for what users do, a mark for each library."""
    from matplotlib.figure import Figure

    rows = compared(tables)
    peers = list(dict.fromkeys(peer for found in rows.values() for peer in found))
    figure = Figure(figsize=(9, 1.4 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(1 / ALIKE, ALIKE, color="0.93", zorder=0)
    axes.axvline(1, color="0.6", linewidth=0.8)
    for i, (peer, mark) in enumerate(zip(peers, "osD^vP*X<>", strict=False)):
        at = [(found[peer], row) for row, found in enumerate(rows.values()) if found.get(peer)]
        axes.scatter(*zip(*at, strict=True), marker=mark, color=f"C{i}", s=38, label=peer, zorder=3)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
    ticks = (0.02, 0.1, 0.5, 1, 2, 10, 100)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.grid(axis="both", which="major", color="0.92")
    axes.set_axisbelow(True)
    axes.set_xlabel("time of the library / time of pnc_vol (right of 1, pnc_vol is faster)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(PAGE.with_name("performance-summary.png"), dpi=120)


def _times(ratio: float) -> str:
    return f"{ratio:.0f} x" if ratio >= 9.95 else f"{ratio:.1f} x"


def memory(works: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Peak memory over the start of the works that write, in MiB, on the quiet machine."""
    firsts = {work: results[0]["memory"] for work, results in works.items()}
    peers = list(dict.fromkeys(peer for found in firsts.values() for peer in found))
    lines = [f"| MiB | {' | '.join(peers)} |", "|---" * (len(peers) + 1) + "|"]
    for work, found in firsts.items():
        cells = (f"{found[peer] / (1 << 20):.0f}" if peer in found else "-" for peer in peers)
        lines.append(f"| {work} | {' | '.join(cells)} |")
    return lines


def picture(works: dict[str, list[dict[str, Any]]], name: str) -> None:
    """The quiet run as a picture beside the page."""
    results = [Result(work, found[0]["seconds"]) for work, found in works.items()]
    plot(results, str(PAGE.parent / f"performance-{name}.png"), f"python -m pnc_vol.bench {name}")


def write(folder: Path) -> None:
    """Replace what stands between the marks of both pages."""
    measured = Measured(folder)
    of_memory = measured.runs.pop("memory", None)
    blocks = {"behind": behind(measured), "goals": goals(measured)}
    blocks |= {name: table(works) for name, works in measured.runs.items()}
    if of_memory is not None:
        blocks["memory"] = memory(of_memory)
    for name in PICTURES & measured.runs.keys():
        picture(measured.runs[name], name)

    def replaced(match: re.Match[str]) -> str:
        lines = blocks.get(match[1])
        return match[0] if lines is None else f"<!-- measured: {match[1]} -->\n" + "\n".join(lines) + "\n<!-- end -->"

    marked = r"<!-- measured: (\S+) -->\n.*?<!-- end -->"
    tables = re.sub(marked, replaced, TABLES.read_text(), flags=re.S)
    TABLES.write_text(tables)
    blocks = {"summary": summary(tables)}
    PAGE.write_text(re.sub(marked, replaced, PAGE.read_text(), flags=re.S))
    draw_summary(tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "write"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)}; all by default")
    parser.add_argument("--loaded", action="store_true", help="beside something that keeps all cores busy")
    options = parser.parse_intermixed_args()
    if options.what == "write":
        write(options.folder)
    else:
        measure(options.folder, options.names, loaded=options.loaded)


if __name__ == "__main__":
    main()
