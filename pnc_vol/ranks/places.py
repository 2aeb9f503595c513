"""`Nodes` says which ranks share a node.

Knows: ranks, a communicator of MPI. Does not know: files, what ranks of a node do together.

A job has its ranks in blocks on the nodes, or in turn. Where they are is kept as runs of consecutive ranks on one node:
with blocks a few numbers for each node.
"""

from __future__ import annotations

import functools
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Nodes", "cores", "kept_nodes"]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Where the ranks of a communicator are. Nodes have numbers, in the order of their lowest ranks.

    lowest : tuple of int, the lowest rank of each node.
    cores : tuple of int, cores of each node that its lowest rank may use.
    starts : tuple of int, the first rank of each run of consecutive ranks on one node.
    nodes : tuple of int, the node of each run.
    size : int, all ranks.
    """

    lowest: tuple[int, ...]
    cores: tuple[int, ...]
    starts: tuple[int, ...]
    nodes: tuple[int, ...]
    size: int

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield, for each rank, the lowest rank of its node, and the cores that this one may use."""
        ends = (*self.starts[1:], self.size)
        for start, end, node in zip(self.starts, ends, self.nodes, strict=True):
            for _ in range(start, end):
                yield self.lowest[node], self.cores[node]

    @property
    def single(self) -> bool:
        """Whether all ranks are on one node."""
        return len(self.lowest) == 1

    def of(self, rank: int) -> int:
        """Return the node of a rank."""
        return self.nodes[bisect_right(self.starts, rank) - 1]

    def ranks(self, node: int) -> list[int]:
        """Return the ranks of a node, in order."""
        ends = (*self.starts[1:], self.size)
        runs = zip(self.starts, ends, self.nodes, strict=True)
        return [rank for start, end, at in runs if at == node for rank in range(start, end)]

    def place_of(self, rank: int) -> tuple[int, int, int]:
        """Return a rank's number among the ranks of its node, how many these are, and their lowest rank."""
        ours = self.ranks(self.of(rank))
        return ours.index(rank), len(ours), ours[0]

    def among(self, ranks: Sequence[int]) -> Nodes:
        """Return the places of some of the ranks, which are numbered anew, in their order."""
        own = [self.of(rank) for rank in ranks]
        starts = [i for i, node in enumerate(own) if not i or node != own[i - 1]]
        numbers = {node: i for i, node in enumerate(dict.fromkeys(own))}
        lowest = tuple(own.index(node) for node in numbers)
        at = tuple(self.cores[node] for node in numbers)
        return Nodes(lowest, at, tuple(starts), tuple(numbers[own[i]] for i in starts), len(own))


def kept_nodes(mpi: Any, module: Any, origin: Any, begin: Callable[[], object]) -> Nodes:
    """Return where the ranks of `mpi` are (collective).

    origin : mpi4py.MPI.Intracomm or None
        What it is a copy of: keeps what was found, as programs open many files by one communicator.
    begin : callable, is called on all ranks before they are asked.
    """
    there = origin is not None and origin != module.COMM_NULL
    kept: Nodes | None = origin.Get_attr(_key(module)) if there else None
    if kept is None:
        begin()
        kept = _found(mpi, module)
        if there:
            origin.Set_attr(_key(module), kept)
    return kept


@functools.cache
def _key(module: Any) -> int:
    """Return the key under which a communicator keeps its nodes."""
    return int(module.Comm.Create_keyval())


def _found(mpi: Any, module: Any) -> Nodes:
    """Return where the ranks of `mpi` are (collective, without a time limit)."""
    rank, size = mpi.Get_rank(), mpi.Get_size()
    # One rank of each node takes part between nodes, and gives the table to the others of its node.
    here = mpi.Split_type(module.COMM_TYPE_SHARED)
    # Splitting keeps the order of ranks, so the first of a node is its lowest.
    first = here.Get_rank() == 0
    leaders = mpi.Split(0 if first else module.UNDEFINED, rank)
    node_ranks = np.empty(here.Get_size(), np.int64)
    here.Allgather(np.array([rank], np.int64), node_ranks)
    counts = np.empty(3, np.int64)
    table = np.empty(0, np.int64)
    if first:
        begins = node_ranks[np.flatnonzero(np.diff(node_ranks, prepend=-2) != 1)]
        number, per_node = leaders.Get_rank(), np.empty((leaders.Get_size(), 3), np.int64)
        leaders.Allgather(np.array([rank, cores(), len(begins)], np.int64), per_node)
        runs = np.empty((int(per_node[:, 2].sum()), 2), np.int64)
        own = np.column_stack((begins, np.full(len(begins), number)))
        leaders.Allgatherv(own, [runs, (2 * per_node[:, 2]).tolist()])
        leaders.Free()
        # They came node by node; `of` looks for a rank among the first ranks of all runs.
        runs = runs[np.argsort(runs[:, 0])]
        table = np.concatenate((per_node[:, 0], per_node[:, 1], runs[:, 0], runs[:, 1]))
        counts[:2] = len(per_node), len(runs)
    here.Bcast(counts, 0)
    n, m = counts[:2].tolist()
    table = table if first else np.empty(2 * n + 2 * m, np.int64)
    here.Bcast(table, 0)
    here.Free()
    lowest, at, starts, nodes = (tuple(part.tolist()) for part in np.split(table, [n, 2 * n, 2 * n + m]))
    return Nodes(lowest, at, starts, nodes, size)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
