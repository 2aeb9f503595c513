"""A planned write counts what ranks that really write count; what it says of thousands of ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned_write import Bounds, Planned, blocks, planned
from published_runs import flushes_of
from virtual_ranks import run

import pnc_vol
from pnc_vol.testing.driver_suite import Extents

COUNTED = "reductions", "rounds", "messages", "bytes_sent"
VECTOR = 368
REDUCTIONS = 3
"""Of a flush, besides those of its write."""
LEVELS = 8


class Columns:
    """A field on levels and one on the ground; columns are dealt out one by one, or in patches where they are many.

    Each flush writes both whole.
    """

    def __init__(self, path: Path, ranks: int, columns: int, hints: dict[str, str], *, holes: bool = False) -> None:
        self.path, self.ranks, self.hints, self.holes = str(path), ranks, hints, holes
        if columns < 10_000:
            self.owners = np.random.default_rng(5).permutation(columns) % ranks
        else:
            self.owners = np.arange(columns) // 200 % ranks
        # the end of a row does not adjoin the next one's begin
        self.owners[-1] = (self.owners[0] + 1) % ranks
        self.fields = {"x": (LEVELS, columns), "y": (1, columns)}

    def runs(self, name: str, rank: int) -> tuple[Any, Any]:
        """Those of a rank: the first element and the length of each."""
        levels, columns = self.fields[name]
        mine = np.flatnonzero(self.owners == rank)
        first = np.flatnonzero(np.diff(mine, prepend=-2) != 1)
        starts = mine[first] + columns * np.arange(levels)[:, None]
        return starts.ravel(), np.tile(np.diff(first, append=len(mine)), levels)

    def program(self, comm: Any) -> dict[str, int]:
        """Flush twice; what the second flush cost."""
        with pnc_vol.File(self.path, "w", driver="posix", comm=comm, hints=self.hints, transport="aggregate") as f:
            for name, shape in self.fields.items():
                f.create_dataset(name, shape, "f8")
                if self.holes:
                    f.create_dataset(f"nothing behind {name}", (100,), "f8")
            for turn in range(2):
                for name, shape in self.fields.items():
                    # In parts: an array of many megabytes would not be copied, and be written by its rank.
                    parts = (np.array_split(c, 16) for c in self.runs(name, comm.rank))
                    for start, length in zip(*parts, strict=True):
                        starts = np.stack(np.unravel_index(start, shape), axis=1)
                        counts = np.stack([np.ones_like(length), length], axis=1)
                        cells = np.repeat(start - (np.cumsum(length) - length), length) + np.arange(length.sum())
                        f[name].iput_many(starts, counts, cells + 0.5 + turn)
                f.flush()
            told: dict[str, Any] = f.statistics()
            found: dict[str, int] = told["communication_of_flush"]
            return found

    def planned(self, nodes: int) -> Planned:
        """The same write, planned; every byte of the data is compared before."""
        with pnc_vol.File(self.path) as f:
            for name, shape in self.fields.items():
                assert np.array_equal(f[name][...].ravel(), np.arange(np.prod(shape)) + 1.5)
            begins = {name: f[name].id.get_offset() for name in self.fields}

        def extents_of(rank: int) -> Extents:
            found = [self.runs(name, rank) for name in self.fields]
            offset = np.concatenate([begins[name] + 8 * runs[0] for name, runs in zip(begins, found, strict=True)])
            length = 8 * np.concatenate([runs[1] for runs in found])
            return Extents(offset, length, np.cumsum(length) - length)

        cores = len(os.sched_getaffinity(0))
        return planned(blocks(self.ranks, nodes, cores), extents_of, hints=self.hints)


@pytest.mark.parametrize(
    ("ranks", "nodes", "columns", "hints"),
    [
        (8, 4, 1000, {}),
        pytest.param(6, 3, 1000, {"cb_nodes": "1"}, id="holes, and one aggregator"),
        (12, 3, 1000, {"cb_buffer_size": "16384", "cb_nodes": "2"}),
        (6, 1, 1000, {"cb_buffer_size": "16384"}),
        (64, 4, 2000, {"cb_buffer_size": "32768"}),
        pytest.param(6, 3, 400_000, {}, id="messages beyond a mebibyte", marks=pytest.mark.nightly),
        pytest.param(512, 16, 5000, {"cb_buffer_size": "65536"}, marks=pytest.mark.nightly),
    ],
)
def test_a_planned_write_counts_what_ranks_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, nodes: int, columns: int, hints: dict[str, str]
) -> None:
    if ranks == 6:
        # Otherwise only of large pieces it is found out what is open.
        monkeypatch.setattr("pnc_vol.exchange.holes._LARGE", 1)
    job = Columns(tmp_path / "a.nc", ranks, columns, hints, holes=ranks == 6)
    counted = run(ranks, job.program, nodes=nodes)
    plan, levels = job.planned(nodes), (ranks - 1).bit_length()
    assert columns < 10_000 or plan.between_nodes.sum() > plan.rounds * plan.domains.count * (nodes - 1)
    more = dict(zip(COUNTED, REDUCTIONS * np.array([1, 1, levels, levels * VECTOR]), strict=True))
    for name, ours in zip(COUNTED, (plan.reductions, plan.waits, plan.messages, plan.bytes_sent), strict=True):
        assert [told[name] for told in counted] == (np.zeros(ranks, int) + ours + more[name]).tolist(), name


@pytest.mark.parametrize("case", ["F", "G", "I", "FLASH"])
def test_bounds_of_a_case_follow_from_its_maps(case: str) -> None:
    size = {"F": 2, "G": 8, "I": 24, "FLASH": 4}[case]
    for flush in flushes_of(case, 12, size=size):
        assert Bounds.of(12, flush.extents_of) == flush.bounds
        assert [flush.extents_of(rank).nbytes for rank in range(12)] == flush.nbytes.tolist()


@pytest.mark.parametrize(
    ("ranks", "size", "every"),
    [
        (64, 3, 1),
        pytest.param(5400, 120, 21, marks=pytest.mark.nightly),
        pytest.param(21600, 120, 84, marks=pytest.mark.nightly),
    ],
)
def test_memory_of_the_f_case_stays_within_two_buffers(ranks: int, size: int, every: int) -> None:
    """A rank's part of the plan, its tables, and its share of what an aggregator's node has in common."""
    flush = flushes_of("F", ranks, size=size)[0]
    nodes = blocks(ranks, -(-ranks // 64))
    plan = planned(nodes, flush.extents_of, bounds=flush.bounds, every=every)
    per_node = np.bincount([nodes.of(rank) for rank in plan.aggregators])
    shared = int(plan.node_memory.max()) // int(per_node.max())
    # The list of extents stands for the posts.
    most = int((plan.own_memory - 24 * flush.runs).max()) + shared
    assert most <= 2 * (16 << 20) + 64 * ranks
    if size == 120:
        largest = int(flush.runs.max())
        assert largest * ranks >= flush.bounds.pieces
        assert ranks < 21600 or largest in (184_643, 184_644)
