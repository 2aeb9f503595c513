"""A team says who does what in a collective write: which ranks write for others, and what a rank does that fails in it.

Knows: ranks, nodes, cores, hints. Does not know: extents, files.

Who writes for others, and with what memory, follows from numbers that are the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.exchange.parcels import LARGEST
from pnc_vol.extents.model import before, spread
from pnc_vol.ranks.comm import Comm
from pnc_vol.ranks.levels import Levels
from pnc_vol.ranks.places import Nodes

__all__ = ["Guard", "Team", "Wanted", "aggregators"]

Bytes = npt.NDArray[np.uint8]

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
    # Runs of ranks, node by node: of a job whose ranks are dealt to the nodes in turn there are as many as ranks.
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


class Team(NamedTuple):
    """Who does what, of some nodes and aggregators.

    levels : Levels
    node : Comm or None, of the ranks of this node, which share memory; None: each rank is by itself.
    owners : list of int, the aggregators: number i writes domain i.
    own_domain : int, this rank's domain, or -1.
    here : list of int, domains whose aggregators are on this node.
    sends : list of int, domains of other nodes to whose aggregators this rank sends what its node has for them.
    most_here : int, aggregators of the node that has most.
    remote : bool, some rank has an aggregator on another node.
    room : uint8[...], where a message of another node arrives.
    """

    levels: Levels
    node: Comm | None
    owners: list[int]
    own_domain: int
    here: list[int]
    sends: list[int]
    most_here: int
    remote: bool
    room: Bytes

    @classmethod
    def of(cls, comm: Comm, nodes: Nodes, owners: list[int], *, apart: bool) -> Team:
        """Return the same on all ranks (collective).

        apart : bool, ranks of a node share no memory: each counts as a node of its own.
        """
        node = owners if apart else [nodes.of(rank) for rank in owners]
        ours = comm.rank if apart else nodes.of(comm.rank)
        here = [i for i, one in enumerate(node) if one == ours]
        elsewhere = [i for i, one in enumerate(node) if one != ours]
        # A node without an aggregator sends by its lowest rank.
        senders = [owners[i] for i in here] or [comm.rank if apart else nodes.lowest[ours]]
        writes = comm.rank in senders
        # The senders of a node share the aggregators of other nodes among them.
        sends = elsewhere[senders.index(comm.rank) :: len(senders)] if writes else []
        remote = apart or not nodes.single
        # Allocated before the first message: a sender without memory would leave all others waiting.
        room = np.empty(LARGEST if writes and remote else 0, np.uint8)
        levels = comm.levels(ours if remote else None, writes=writes)
        own_domain = owners.index(comm.rank) if comm.rank in owners else -1
        most = int(np.unique(node, return_counts=True)[1].max())
        group = None if apart else comm.group(ours) if remote else comm
        return cls(levels, group, owners, own_domain, here, sends, most, remote, room)

    def free(self) -> None:
        """Give the communicators back, if all ranks still take part (collective)."""
        if self.levels.free() and self.node is not None and self.remote:
            self.node.close()


class Guard:
    """What failed first on this rank, which takes part in the rest of a collective write with nothing.

    failure : OSError or None, requests may be at fault.
    lack : Exception or None, anything else.
    """

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self.lack: Exception | None = None

    def attempt(self, do: Callable[[], None], *, always: bool = False) -> None:
        """Do something unless anything failed before, or all the same."""
        failed = self.failed
        if failed and not always:
            return
        try:
            do()
        except OSError as error:
            self.failure = self.failure if failed else error
        except Exception as error:
            self.lack = self.lack if failed else error

    @property
    def failed(self) -> bool:
        """Whether this rank takes part with nothing from now on."""
        return self.failure is not None or self.lack is not None
