"""Seconds of a flush from its counts: what messages, bytes, calls of the file system and Python cost.

Knows: counts of a planned write, prices. Does not know: variables, how a write is planned.

What is left out: how ranks are placed on the network and share its links, other jobs, caches of the file system's
servers and how long they take to take and give up locks beyond a fixed price, the MPI library's own memory and
connections, noise of the operating system (the slowest of thousands of ranks is slower than any model says).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

import numpy as np
from planned_write import Planned
from published_runs import Flush

from pnc_vol.ranks.places import Nodes
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_whole

__all__ = ["FLUSH_REDUCTIONS", "Costs", "seconds_alone", "seconds_together"]

FLUSH_REDUCTIONS = 3
"""Reductions of a flush besides those of its collective write."""


@dataclass(frozen=True)
class Costs:
    """Prices; those given are round numbers for a machine with a Dragonfly network and a Lustre file system.

    What Python takes was measured on one core of a virtual machine.

    latency : float, seconds of a message between nodes.
    bandwidth : float, bytes a second that a node sends, and as many that it receives.
    memory_bandwidth : float, bytes a second that the ranks of a node copy.
    stripes : int, servers (OSTs) that the file lies on.
    stripe_bandwidth : float, bytes a second of one of them.
    client_bandwidth : float, bytes a second between a node and the file system.
    call : float, seconds of a read or write besides its bytes, with its lock.
    open : float, seconds of an open; `open_rate` of them a second are served.
    python_call : float, seconds of Python for a collective call.
    python_run : float, seconds of Python for planning one run.
    python_put, python_take : float, seconds of Python for making one parcel, and for taking one.
    """

    latency: float = 3e-6
    bandwidth: float = 8e9
    memory_bandwidth: float = 20e9
    stripes: int = 128
    stripe_bandwidth: float = 1e9
    client_bandwidth: float = 2e9
    call: float = 1e-3
    open: float = 1e-3
    open_rate: float = 30e3
    python_call: float = 50e-6
    python_run: float = 0.2e-6
    python_put: float = 75e-6
    python_take: float = 15e-6

    @classmethod
    def read(cls, path: str) -> Costs:
        """From a JSON file with some of these names.

        Raises
        ------
        ValueError
            It has another name, or something that is no number.
        """
        told = json.loads(read_whole(REAL, path))
        known = {field.name for field in fields(cls)}
        for name, value in told.items():
            if name not in known:
                raise ValueError(f"{path}: {name} is no parameter; there are {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                raise ValueError(f"{path}: {name} is {value!r}; a number above 0 is needed")
        return cls(**told)

    def text(self) -> str:
        """As `read` takes it."""
        return json.dumps(asdict(self), indent=1)


def seconds_together(costs: Costs, nodes: Nodes, flush: Flush, plan: Planned) -> dict[str, float]:
    """Seconds of a flush that is written in windows, by what takes them; they follow one another.

    An aggregator takes what comes for a window, then writes it; meanwhile all ranks put the next round together.
    """
    steps, several = (nodes.size - 1).bit_length(), len(nodes.lowest) > 1
    calls = FLUSH_REDUCTIONS + plan.reductions
    per_node = np.bincount([nodes.of(rank) for rank in plan.aggregators], minlength=len(nodes.lowest))
    most = int(per_node.max())
    parcels = plan.parcels.max() * costs.python_put / max(1, plan.rounds)
    copied = flush.nbytes.sum() / len(nodes.lowest) / costs.memory_bandwidth / max(1, plan.rounds)
    put = parcels + copied
    written = plan.bounds.nbytes / max(1, plan.rounds)
    rate = min(costs.stripes * costs.stripe_bandwidth, np.count_nonzero(per_node) * costs.client_bandwidth)
    # Each window is read first; of a new file there is nothing to read but the call.
    write = written / rate + 2 * costs.call
    told = {
        "agreement": calls * (steps * costs.latency + costs.python_call),
        "planning": flush.runs.max() * costs.python_run,
        "putting together": put,
        "sending": 0.0,
        "taking": 0.0,
        "writing": plan.rounds * write,
    }
    for k in range(plan.rounds if several else 0):
        out, into = plan.out[:, k].max(), plan.into[:, k].max() * most
        told["sending"] += max(out, into) / costs.bandwidth
        told["sending"] += plan.between_nodes[:, k].max() / most * costs.latency + steps * costs.latency
        told["taking"] += plan.parcels_into[:, k].max() * costs.python_take
    hidden = plan.rounds * write + told["sending"] + told["taking"]
    # Only what does not fit beside the work of the aggregators is to be waited for.
    told["putting together"] += max(0.0, (plan.rounds - 1) * put - hidden)
    return told


def seconds_alone(costs: Costs, nodes: Nodes, flush: Flush) -> dict[str, float]:
    """Seconds of a flush in which each rank writes by itself."""
    rate = min(costs.stripes * costs.stripe_bandwidth, len(nodes.lowest) * costs.client_bandwidth)
    return {
        "agreement": FLUSH_REDUCTIONS * ((nodes.size - 1).bit_length() * costs.latency + costs.python_call),
        "planning": flush.runs.max() * costs.python_run,
        "writing": flush.bounds.nbytes / rate + flush.runs.max() * costs.call,
    }
