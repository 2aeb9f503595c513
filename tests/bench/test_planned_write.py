"""A planned write counts what ranks that really write count; what it says of thousands of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from virtual_ranks import run

import pnc_vol
from pnc_vol.bench.e3sm_maps import Dealt, dealt_out
from pnc_vol.bench.planned_write import Bounds, Planned, blocks, planned
from pnc_vol.bench.scale_cases import flushes_of
from pnc_vol.bench.scale_costs import FLUSH_REDUCTIONS
from pnc_vol.comm import Comm
from pnc_vol.extents.model import Extents, Runs
from pnc_vol.flush import holes
from pnc_vol.flush.plan import Plan
from pnc_vol.interop.map_files import in_rows
from pnc_vol.layout.places import Place
from pnc_vol.queue.rows import Listed
from pnc_vol.rank_places import cores

COUNTED = "reductions", "rounds", "messages", "bytes_sent"
VECTOR = 368


class Columns:
    """A field on levels and one on the ground, as the F case has them, on patches where the grid is large.

    Each flush writes both whole.
    """

    def __init__(self, path: Path, ranks: int, size: int, hints: dict[str, str], *, holes: bool = False) -> None:
        self.path, self.ranks, self.hints, self.holes = str(path), ranks, hints, holes
        dealt, self.lengths = dealt_out("F", size, ranks)
        patches = Dealt(dealt[2].dims, dealt[0].owners, dealt[2].levels)
        self.fields: list[tuple[str, Dealt]] = [("x", dealt[2] if size < 10 else patches), ("y", dealt[1])]

    def runs(self, one: Dealt, rank: int) -> Runs:
        return in_rows(one.of(rank), one.dims[-1])

    def program(self, comm: Comm) -> dict[str, int]:
        """Flush twice; what the second flush cost."""
        with pnc_vol.File(self.path, "w", driver="posix", comm=comm, hints=self.hints, transport="aggregate") as f:
            for name, one in self.fields:
                f.create_dataset(name, one.dims, "f8")
                if self.holes:
                    f.create_dataset(f"nothing behind {name}", (100,), "f8")
            for turn in range(2):
                for name, one in self.fields:
                    # In parts: an array of many megabytes would not be copied, and be written by its rank.
                    for start, length in zip(*(np.array_split(c, 16) for c in self.runs(one, comm.rank)), strict=True):
                        starts = np.stack(np.unravel_index(start, one.dims), axis=1)
                        counts = np.ones_like(starts)
                        counts[:, -1] = length
                        cells = np.repeat(start - (np.cumsum(length) - length), length) + np.arange(length.sum())
                        f[name].iput_many(starts, counts, cells + 0.5 + turn)
                f.flush()
            told: dict[str, Any] = f.statistics()
            found: dict[str, int] = told["communication_of_flush"]
            return found

    def check(self) -> None:
        """Every byte of the data."""
        with pnc_vol.File(self.path) as f:
            for name, one in self.fields:
                assert np.array_equal(f[name][...].ravel(), np.arange(np.prod(one.dims)) + 1.5)

    def planned(self, nodes: int) -> Planned:
        """The same write, planned."""
        with pnc_vol.File(self.path) as f:
            places = [Place(f[name].id.get_offset(), 8, 0, 0) for name, _ in self.fields]

        def extents_of(rank: int) -> Extents:
            items, address = [], 0
            for _, one in self.fields:
                items.append(Listed(0, self.runs(one, rank), address, 8))
                address += 8 * int(items[-1].runs.length.sum())
            return Plan.of(places, items).extents

        return planned(blocks(self.ranks, nodes, cores()), extents_of, hints=self.hints)


@pytest.mark.parametrize(
    ("ranks", "nodes", "size", "hints"),
    [
        (8, 4, 2, {}),
        pytest.param(6, 3, 2, {"cb_nodes": "1"}, id="holes, and one aggregator"),
        (12, 3, 2, {"cb_buffer_size": "16384", "cb_nodes": "2"}),
        (6, 1, 2, {"cb_buffer_size": "16384"}),
        (64, 4, 2, {"cb_buffer_size": "32768"}),
        pytest.param(6, 3, 40, {}, id="messages beyond a mebibyte", marks=pytest.mark.nightly),
        pytest.param(512, 16, 3, {"cb_buffer_size": "65536"}, marks=pytest.mark.nightly),
    ],
)
def test_a_planned_write_counts_what_ranks_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, nodes: int, size: int, hints: dict[str, str]
) -> None:
    if ranks == 6:
        # Otherwise only of large pieces it is found out what is open.
        monkeypatch.setattr(holes, "_LARGE", 1)
    job = Columns(tmp_path / "a.nc", ranks, size, hints, holes=ranks == 6)
    counted = run(ranks, job.program, nodes=nodes)
    job.check()
    plan, levels = job.planned(nodes), (ranks - 1).bit_length()
    assert size < 10 or plan.between_nodes.sum() > plan.rounds * plan.domains.count * (nodes - 1)
    # A flush has some reductions besides those of its write.
    more = {
        "reductions": FLUSH_REDUCTIONS, "rounds": FLUSH_REDUCTIONS,
        "messages": FLUSH_REDUCTIONS * levels, "bytes_sent": FLUSH_REDUCTIONS * levels * VECTOR,
    }  # fmt: skip
    for name, ours in zip(COUNTED, (plan.reductions, plan.waits, plan.messages, plan.bytes_sent), strict=True):
        assert [told[name] for told in counted] == (np.zeros(ranks, int) + ours + more[name]).tolist(), name


@pytest.mark.parametrize("case", ["F", "G", "I", "FLASH"])
def test_bounds_of_a_case_follow_from_its_maps(case: str) -> None:
    size = {"F": 2, "G": 8, "I": 24, "FLASH": 4}[case]
    for flush in flushes_of(case, 12, size=size):
        assert Bounds.of(12, flush.extents_of) == flush.bounds
        assert [flush.extents_of(rank).nbytes for rank in range(12)] == flush.nbytes.tolist()
