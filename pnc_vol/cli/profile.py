"""``pnc-vol profile`` sums where the time of collective writes went, from the timelines of the driver ``trace``.

As E10's scripts do for the logs of MPE: seconds of each phase, by rank and round; of each round, the slowest rank. A
*round* is what lies between two ends of a flush.

Knows: the timelines, phases. Does not know: who recorded them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pnc_vol.cli.arguments import Options, Parser, Verb
from pnc_vol.cli.errors import expected, fail
from pnc_vol.cli.show import safe
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_whole, write_whole

__all__ = ["PHASES", "VERBS", "Span", "spans_of", "summed"]

PHASES = {
    "exchange": "waiting for other ranks in exchanges",
    "copy to cache": "writing to the cache file",
    "write": "writing to the file below, without the two above",
    "sync read": "sync threads: reading the cache file",
    "sync write": "sync threads: writing the global file; all of it where the kernel copies",
    "waiting": "for room in the cache, or a lock",
    "non-hidden sync": "for the sync threads: what computing did not hide",
}
"""The phases that are summed, in this order, and what they are."""
_INSIDE_WRITE = ("copy to cache", "waiting")
_MOST_BYTES = 1 << 30


class Span(NamedTuple):
    """A phase on a timeline; `start` in seconds since 1970."""

    phase: str
    rank: int
    thread: int
    round: int
    start: float
    seconds: float
    nbytes: int


def spans_of(timeline: Mapping[str, Any]) -> list[Span]:
    """Return the phases of one timeline, as `TraceDriver.timeline` writes it.

    Raises
    ------
    ValueError
        It is no such timeline.
    """
    try:
        about = timeline["otherData"]
        began, rank = float(about["began"]), int(about["rank"])
        spans = [
            Span(one["name"], rank, one["tid"], args["round"], began + args["start"], args["seconds"], args["nbytes"])
            for one in timeline["traceEvents"]
            if one["ph"] == "X" and one["name"] in PHASES
            for args in (one["args"],)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no timeline of the driver 'trace' ({type(error).__name__}: {error})") from error
    return sorted(spans, key=lambda span: span.start)


def summed(spans: Iterable[Span]) -> dict[str, dict[tuple[int, int], float]]:
    """Return seconds by phase, and by rank and round; threads of a rank add up. ``write`` is without what lies in
    it."""
    found: dict[str, dict[tuple[int, int], float]] = {phase: defaultdict(float) for phase in PHASES}
    writes: dict[int, list[Span]] = defaultdict(list)
    inside: list[Span] = []
    for span in spans:
        found[span.phase][span.rank, span.round] += span.seconds
        if span.phase == "write":
            writes[span.rank].append(span)
        elif span.phase in _INSIDE_WRITE and span.thread == 0:
            inside.append(span)
    for span in inside:
        if any(one.start <= span.start <= one.start + one.seconds for one in writes[span.rank]):
            key = span.rank, span.round
            found["write"][key] = max(0.0, found["write"][key] - span.seconds)
    return {phase: dict(by) for phase, by in found.items()}


def _arguments(parser: Parser) -> None:
    parser.files("timelines", metavar="RUN.json", help="Timelines, one of each rank.")
    parser.flag("--rounds", help="Print the slowest rank of each round, too.")
    parser.add_argument("--csv", metavar="FILE", help="Write rank, round and phase as CSV.")
    parser.add_argument("--plot", metavar="FILE.png", help="Draw the timelines and the sums (needs matplotlib).")


def command(options: Options) -> int:
    """Sum the phases of collective writes by rank and round.

    Each rank of a job writes a timeline of a file that it opens with driver="trace(file=run.json) | ...".

    The column "slowest" adds up the slowest rank of each round; "mean" is the mean of the ranks' sums.
    """
    spans: list[Span] = []
    for path in options.timelines:
        with expected(path):
            text = read_whole(REAL, path, limit=_MOST_BYTES)
        try:
            spans += spans_of(json.loads(text))
        except ValueError:
            fail(path, "it is no timeline; the driver 'trace(file=...) | ...' writes one")
    if not spans:
        fail(
            options.timelines[0],
            "no phases; use driver='trace(file=...) | cache | ...', and several ranks",
        )
    sums = summed(spans)
    _print_sums(sums)
    if options.rounds:
        _print_rounds(sums)
    if options.csv:
        with expected(options.csv):
            write_whole(REAL, options.csv, _as_csv(sums).encode())
    if options.plot:
        _draw(spans, sums, options.plot)
    return 0


def _slowest(by: Mapping[tuple[int, int], float]) -> dict[int, tuple[float, int]]:
    """Return, for each round, the seconds of the slowest rank, and which it is."""
    found: dict[int, tuple[float, int]] = {}
    for (rank, number), seconds in by.items():
        found[number] = max(found.get(number, (-1.0, 0)), (seconds, rank))
    return dict(sorted(found.items()))


def _print_sums(sums: Mapping[str, Mapping[tuple[int, int], float]]) -> None:
    ranks = sorted({rank for by in sums.values() for rank, _ in by})
    numbers = {number for by in sums.values() for _, number in by}
    print(f"{len(ranks)} ranks, {len(numbers)} rounds; seconds")
    print(f"{'phase':16s} {'slowest':>10s} {'mean':>10s} {'least':>10s} {'most':>10s}  rank")
    for phase, by in sums.items():
        each = {rank: sum(seconds for (one, _), seconds in by.items() if one == rank) for rank in ranks}
        most = max(each, key=lambda rank: each[rank])
        slowest = sum(seconds for seconds, _ in _slowest(by).values())
        print(
            f"{phase:16s} {slowest:10.4f} {sum(each.values()) / len(each):10.4f} {min(each.values()):10.4f} "
            f"{each[most]:10.4f}  {most}"
        )


def _print_rounds(sums: Mapping[str, Mapping[tuple[int, int], float]]) -> None:
    by_phase = {phase: _slowest(by) for phase, by in sums.items()}
    numbers = sorted({number for by in by_phase.values() for number in by})
    print()
    print("slowest rank of each round, as seconds @ rank")
    print(f"{'round':>5s}  " + "  ".join(f"{phase:>16s}" for phase in by_phase))
    for number in numbers:
        cells = []
        for by in by_phase.values():
            seconds, rank = by.get(number, (0.0, -1))
            cells.append(f"{seconds:.4f} @ {rank}" if rank >= 0 else "-")
        print(f"{number:5d}  " + "  ".join(f"{cell:>16s}" for cell in cells))


def _as_csv(sums: Mapping[str, Mapping[tuple[int, int], float]]) -> str:
    lines = ["phase,rank,round,seconds"]
    lines += [
        f"{phase},{rank},{number},{seconds:.9f}"
        for phase, by in sums.items()
        for (rank, number), seconds in sorted(by.items())
    ]
    return "\n".join(lines) + "\n"


def _draw(spans: Sequence[Span], sums: Mapping[str, Mapping[tuple[int, int], float]], path: str) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        fail("--plot", 'matplotlib is not installed (pip install "pnc-vol[plot]")')
    mpl.use("Agg")
    from matplotlib import pyplot

    rows = sorted({(span.rank, span.thread) for span in spans})
    colours = {phase: f"C{i}" for i, phase in enumerate(PHASES)}
    first = min(span.start for span in spans)
    figure, (chart, bars) = pyplot.subplots(
        2, 1, figsize=(11, 3.5 + 0.3 * len(rows)), height_ratios=[max(2, len(rows)), 4], layout="constrained"
    )
    for phase, colour in colours.items():
        spans_of_phase = [span for span in spans if span.phase == phase]
        places = [rows.index((span.rank, span.thread)) for span in spans_of_phase]
        chart.barh(
            places,
            [s.seconds for s in spans_of_phase],
            left=[s.start - first for s in spans_of_phase],
            color=colour,
            label=phase,
            height=0.8,
        )
    chart.set_yticks(
        range(len(rows)), [f"rank {rank}" + (f", sync thread {thread}" if thread else "") for rank, thread in rows]
    )
    chart.invert_yaxis()
    chart.set_xlabel("seconds")
    chart.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    slowest = {phase: sum(seconds for seconds, _ in _slowest(by).values()) for phase, by in sums.items()}
    bars.barh(list(slowest), list(slowest.values()), color=[colours[phase] for phase in slowest])
    bars.invert_yaxis()
    bars.set_xlabel("seconds, of each round the slowest rank")
    with expected(path):
        figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"{safe(path)} was drawn")


VERBS: dict[str, Verb] = {"profile": (_arguments, command)}
