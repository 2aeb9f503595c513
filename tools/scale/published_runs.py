"""What the ranks of large published runs write, for plans of their flushes: no data, no files.

Knows: variables and maps of E3SM-IO's cases, the blocks of FLASH-IO. Does not know: how a write is planned, costs.

The maps are made up (`pnc_vol.bench.e3sm_cases`), at the published sizes. Of E3SM's F case the file ``h0`` is one
flush, and each of the 25 records of ``h1`` is one; the case I has one for each of the 240 records of ``h0``, here
without the variables that have no records; the case G is one flush.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from planned_write import Bounds

from pnc_vol.bench.e3sm_cases import Dealt, counted, dealt_out
from pnc_vol.bench.flash import BLOCKS, LABELS
from pnc_vol.convert.map_files import in_rows
from pnc_vol.extents.model import Extents, Int64, Runs, before
from pnc_vol.flush.execute import Plan
from pnc_vol.layout.base import Place, Places
from pnc_vol.queue.batches import COLUMNS, Table

__all__ = ["CASES", "Case", "Flush", "flushes_of"]

_HEADER = 1 << 20
_NOWHERE = 1 << 40


class Case(NamedTuple):
    """A published run.

    size : int, see `e3sm_cases.dealt_out`; cells along an edge of a block for FLASH.
    ranks, nodes : int
    published : tuple of str, what was measured, and where.
    """

    about: str
    size: int
    ranks: int
    nodes: int
    published: tuple[str, ...]


_CORI = "Cori KNL, July 2022, one file for each node (E3SM-IO's charts)"
_PERLMUTTER = "Perlmutter, June 2026, 128 ranks a node, one file, PnetCDF 1.14.1 and 1.15.0"

CASES = {
    "F": Case(
        "E3SM F, atmosphere", 120, 21600, 338, (f"0.9 s, 24.5 GiB/s: {_CORI}", f"1.19 and 12.98 GiB/s: {_PERLMUTTER}")
    ),
    "G": Case("E3SM G, ocean", 608, 9600, 150, (f"1.1 s, 74.1 GiB/s: {_CORI}", f"2.70 and 21.93 GiB/s: {_PERLMUTTER}")),
    "I": Case("E3SM I, land", 319, 1344, 21, (f"11.7 s, 7.4 GiB/s: {_CORI}", f"0.92 and 7.16 GiB/s: {_PERLMUTTER}")),
    "FLASH": Case("FLASH-IO, checkpoint", 16, 8192, 64, (f"26.56 and 52.12 GiB/s: {_PERLMUTTER}",)),
}


@dataclass(frozen=True)
class Flush:
    """One flush of all ranks.

    name : str
    times : int, how often a run makes it.
    extents_of : function of a rank, what its plan is.
    bounds : Bounds
    runs : int64[ranks], posted runs.
    nbytes : int64[ranks]
    listed : int, bytes of the runs of all ranks in all maps; a blob set without decompositions tells them to each rank.
    """

    name: str
    times: int
    extents_of: Callable[[int], Extents]
    bounds: Bounds
    runs: Int64
    nbytes: Int64
    listed: int


def flushes_of(case: str, ranks: int, *, size: int = 0) -> list[Flush]:
    """The flushes of a run on so many ranks.

    Parameters
    ----------
    case : {"F", "G", "I", "FLASH"}
    ranks : int
    size : int, other than the published one; see `Case`.
    """
    size = size or CASES[case].size
    if case == "FLASH":
        return [_blocks(size, ranks)]
    dealt, lengths = dealt_out(case, size, ranks, depth=80)
    files = {
        "F": [("h0", 1, "f_h0"), ("h1, a record", 25, "f_h1")],
        "G": [("history", 1, "g_hist")],
        "I": [("h0, a record", 240, "i_h0")],
    }
    return [_of_file(name, times, file, dealt, lengths, ranks) for name, times, file in files[case]]


def _of_file(name: str, times: int, file: str, dealt: list[Dealt], lengths: dict[str, int], ranks: int) -> Flush:
    """The variables of one record of a file, under its maps; with those without records if there is but one record."""
    told = counted(file, lengths, floats=True)
    chosen = [v for v in told.variables if v.number and (times == 1 or told.is_record(v))]
    maps = np.array([v.number - 1 for v in chosen])
    widths = np.array([np.dtype(v.dtype).itemsize for v in chosen])
    spans = np.array([math.prod(one.dims) for one in dealt])[maps] * widths
    begins = _HEADER + before(spans)
    numbered = zip(begins.tolist(), widths.tolist(), strict=True)
    places = Places({i: Place(begin, width, 0, 0) for i, (begin, width) in enumerate(numbered)})
    width_of = dict(enumerate(widths.tolist()))

    def runs_of(rank: int) -> list[Runs]:
        return [in_rows(one.of(rank), one.dims[-1]) for one in dealt]

    def extents_of(rank: int) -> Extents:
        runs = runs_of(rank)
        cells = np.array([int(one.length.sum()) for one in runs])
        rows = np.zeros((len(maps), COLUMNS), np.int64)
        rows[:, 1], rows[:, 2], rows[:, 3] = -1 - maps, cells[maps], before(cells[maps] * widths)
        rows[:, 4] = np.arange(len(maps))
        return Plan.of(places, Table(rows, width_of, runs)).extents

    # Of each map and rank: runs, pieces of the file, elements, the first one, and the one behind the last.
    facts = np.zeros((5, len(dealt), ranks), np.int64)
    facts[3], facts[4] = _NOWHERE, -1
    for rank in range(ranks):
        for k, (start, length) in enumerate(runs_of(rank)):
            if len(start):
                end = start + length
                pieces = 1 + np.count_nonzero(start[1:] != end[:-1])
                facts[:, k, rank] = len(start), pieces, length.sum(), start[0], end[-1]
    runs, pieces, elements, first, end = facts[:, maps]
    nbytes, low = elements * widths[:, None], begins[:, None] + first * widths[:, None]
    high = begins[:, None] + end * widths[:, None]
    # What a rank has at the end of one variable and at the beginning of the next one is one piece.
    joined = int((low[1:] == high[:-1]).sum())
    bounds = Bounds(int(low.min()), int(high.max()), int(nbytes.sum()), int(pieces.sum()) - joined)
    listed = 16 * int(facts[0].sum())
    return Flush(name, times, extents_of, bounds, runs.sum(axis=0), nbytes.sum(axis=0), listed)


def _blocks(cells: int, ranks: int) -> Flush:
    """A checkpoint: 24 unknowns in double precision, of 80 blocks of a rank or some more."""
    counts = BLOCKS + np.arange(ranks) % 3
    first, nbytes = before(counts), counts * cells**3 * 8
    step = int(nbytes.sum())

    def extents_of(rank: int) -> Extents:
        number = np.arange(len(LABELS))
        offset = _HEADER + number * step + int(first[rank]) * cells**3 * 8
        return Extents(offset, np.full(len(LABELS), nbytes[rank]), number * nbytes[rank])

    bounds = Bounds(_HEADER, _HEADER + len(LABELS) * step, len(LABELS) * step, len(LABELS) * ranks)
    return Flush("checkpoint", 1, extents_of, bounds, np.full(ranks, len(LABELS)), len(LABELS) * nbytes, 16 * ranks)
