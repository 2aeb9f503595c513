"""Rounds, medians, ratios and the table.

Knows: clocks. Does not know: what is measured.

Rules
-----
1. Peers take turns within a round, so that what else the machine does falls on all of them alike.
2. A ratio is a peer's median over pnc_vol's, from the same run: above 1, pnc_vol is faster.
3. What a peer wrote is checked against what it should have written, outside of the timed part.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Result", "alternate", "print_table", "timed", "to_json"]

US = "pnc_vol"


@dataclass(slots=True)
class Result:
    """Seconds of one piece of work, by peer and round; an empty list for a peer that was left out.

    notes : by peer, why it was left out.
    """

    work: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def median(self, peer: str) -> float | None:
        """Seconds."""
        found = self.seconds.get(peer)
        return statistics.median(found) if found else None

    def ratio(self, peer: str) -> float | None:
        """How many times as long as pnc_vol the peer took."""
        theirs, ours = self.median(peer), self.median(US)
        return theirs / ours if theirs is not None and ours else None


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that `work` took, and what it returned."""
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        result = work()
        return time.perf_counter() - started, result
    finally:
        gc.enable()


def alternate(
    works: Mapping[str, Mapping[str, Callable[[], float]]], rounds: int, *, skip: Mapping[tuple[str, str], str]
) -> list[Result]:
    """Run each peer's part of each work, in turns.

    Parameters
    ----------
    works : mapping of work to mapping of peer to function
        The function does the work once and returns the seconds that count.
    rounds : int
    skip : mapping of (work, peer) to the reason

    Returns
    -------
    list of Result
    """
    results = []
    for work, peers in works.items():
        result = Result(work)
        results.append(result)
        for peer in peers:
            result.seconds[peer] = []
            if (work, peer) in skip:
                result.notes[peer] = skip[work, peer]
        for _ in range(rounds):
            for peer, run in peers.items():
                if peer not in result.notes:
                    result.seconds[peer].append(run())
    return results


def print_table(results: Sequence[Result], peers: Sequence[str]) -> None:
    """Medians with their range, and the ratio of each peer to pnc_vol in brackets."""
    width = max(len(result.work) for result in results)
    columns = [[_cell(result, peer) for result in results] for peer in peers]
    widths = [max(len(peer), *map(len, column)) for peer, column in zip(peers, columns, strict=True)]
    print("  ".join([" " * width, *(peer.rjust(w) for peer, w in zip(peers, widths, strict=True))]))
    for i, result in enumerate(results):
        cells = (column[i].rjust(w) for column, w in zip(columns, widths, strict=True))
        print("  ".join([result.work.ljust(width), *cells]))
    print("\nseconds, median (fastest-slowest) [peer / pnc_vol: above 1, pnc_vol is faster]")
    for result in results:
        for peer, reason in result.notes.items():
            print(f"- {result.work}, {peer}: {reason}")


def _cell(result: Result, peer: str) -> str:
    median = result.median(peer)
    if median is None:
        return "-"
    found = result.seconds[peer]
    text = f"{median:.3f} ({min(found):.3f}-{max(found):.3f})"
    ratio = result.ratio(peer)
    return text if peer == US or ratio is None else f"{text} [{ratio:.2f}]"


def to_json(results: Sequence[Result]) -> str:
    """All that was measured, for programs."""
    return json.dumps(
        [{"work": r.work, "seconds": r.seconds, "left_out": r.notes} for r in results],
        indent=1,
    )
