"""This module chooses which ranks write for others, and with what memory.

Knows: nodes, cores, hints. Does not know: files, messages, extents.

All of it follows from numbers that are the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pnc_vol.extents.model import before, spread
from pnc_vol.ranks.places import Nodes

__all__ = ["Wanted", "aggregators"]

_BUFFER = 16 << 20
_PER_NODE = 2
"""Aggregators of a node that has more cores, where there are several nodes."""


class Wanted(NamedTuple):
    """What hints ask for; 0: as useful. Where ranks ask for different numbers, the largest counts.

    per_node : int, ``nc_num_aggrs_per_node``, or what ``cb_config_list`` has after ``*:``.
    in_all : int, ``cb_nodes``.
    buffer : int, ``cb_buffer_size``, bytes; each aggregator has two such buffers.
    unit : int, ``striping_unit``, bytes.
    stripes : int, ``striping_factor``.
    """

    per_node: int = 0
    in_all: int = 0
    buffer: int = 0
    unit: int = 0
    stripes: int = 0

    @classmethod
    def by(cls, hints: Mapping[str, str], per_node: int = 0) -> Wanted:
        """Read hints; what is no number asks for nothing, as in ROMIO.

        Examples
        --------
        >>> Wanted.by({"cb_nodes": "4", "cb_config_list": "*:2", "striping_unit": "1048576"})
        Wanted(per_node=2, in_all=4, buffer=0, unit=1048576, stripes=0)
        """
        config = hints.get("cb_config_list", "").strip()
        config = config[2:] if config.startswith("*:") else ""
        numbers = (hints.get(name, "") for name in ("cb_nodes", "cb_buffer_size", "striping_unit", "striping_factor"))
        return cls(per_node or _number(config), *map(_number, numbers))

    @property
    def buffer_size(self) -> int:
        """Bytes of a buffer."""
        return min(max(self.buffer or _BUFFER, 4096), 1 << 30)


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def aggregators(nodes: Nodes, wanted: Wanted) -> list[int]:
    """Return ranks that write for others, node by node.

    `wanted` names how many of each node, or in all: these are spread over the nodes. Else there are as many as a node
    has cores, two of each of several nodes, or more where the file has more stripes than that.
    """
    order = np.argsort(nodes.nodes, kind="stable")
    at, starts = np.take(nodes.nodes, order), np.take(nodes.starts, order)
    lengths = np.take(np.append(nodes.starts[1:], nodes.size) - np.array(nodes.starts), order)
    counts = np.bincount(at, lengths, len(nodes.lowest)).astype(np.int64)
    several = len(counts)
    if wanted.per_node:
        n = np.full(several, wanted.per_node)
    elif wanted.in_all:
        n = wanted.in_all // several + (np.arange(several) < wanted.in_all % several)
    else:
        n = np.array(nodes.cores)
        if several > 1:
            n = np.maximum(np.minimum(n, _PER_NODE), -(-wanted.stripes // several))
    n = np.minimum(n, counts)
    if wanted.in_all and wanted.per_node:
        # Of each node as many as are named, of all nodes no more than are named.
        n = np.minimum(n, np.maximum(0, wanted.in_all - (np.cumsum(n) - n)))
    # Number k of a node is the k-th of its ranks, which lie in runs.
    node, number = spread(n)
    member = before(counts)[node] + number * counts[node] // n[node]
    run = np.searchsorted(np.cumsum(lengths), member, side="right")
    found: list[int] = (starts[run] + member - before(lengths)[run]).tolist()
    return found
