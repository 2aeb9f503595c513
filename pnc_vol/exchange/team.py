"""A team says who does what in a collective write of two levels, and what a rank does that fails in it.

Knows: ranks, nodes, aggregators. Does not know: extents, files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.exchange.parcels import LARGEST
from pnc_vol.ranks.comm import Comm
from pnc_vol.ranks.levels import Levels
from pnc_vol.ranks.places import Nodes

__all__ = ["Guard", "Team"]

Bytes = npt.NDArray[np.uint8]


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
        sends = elsewhere[senders.index(comm.rank) :: len(senders)] if writes else []
        remote = apart or not nodes.single
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
