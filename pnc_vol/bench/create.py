"""``python -m pnc_vol.bench create`` lets each rank create objects for itself, as in indep_data_obj_create.

Each rank knows only its own share of the datasets. As definitions in a shared file are the same on all ranks, the ranks
first send each other theirs (one exchange of their descriptions), and then all define all. Reported are, as in the
original (PnetCDF's ``benchmarks/C``), the exchange, defining, ending definitions, closing, and all of it.

Knows: the pattern. Does not know: how a library defines (`peers.py`).
"""

from __future__ import annotations

import argparse
from typing import Any

from pnc_vol.bench.measure import US, Job, Phases, Stopwatch
from pnc_vol.bench.peers import Spec, on_ranks

STEPS = ("exchange", "create", "define", "end of definitions", "close")


def arguments(one: argparse.ArgumentParser) -> None:
    """Add the options of the original."""
    about = "number of objects of all ranks (100,000; the original's -n)"
    one.add_argument("-v", "--variables", type=int, default=100_000, help=about)
    one.add_argument("-d", "--dims", type=int, default=2, help="number of axes of each variable (2)")
    one.add_argument("-l", "--length", type=int, default=10, help="length of each axis (10)")
    one.add_argument("-a", "--attributes", type=int, default=0, help="number of attributes of each variable (0)")
    one.add_argument("-s", "--attribute-size", type=int, default=9, help="bytes of each attribute (9)")
    one.add_argument("--own-dims", action="store_true", help="named dimensions for each variable, as in the original")


def main(job: Job) -> None:
    """Define the variables of all ranks with every peer, in steps."""
    o, comm = job.options, job.comm
    count = max(comm.size, round(o.variables * o.scale))
    low, high = (count * r // comm.size for r in (comm.rank, comm.rank + 1))
    own = [_described(o, f"process_{comm.rank}_var_{i}") for i in range(high - low)]

    def run(peer: Any, watch: Stopwatch) -> None:
        with watch("exchange"):
            everything = {name: spec for theirs in comm.allgather(own) for name, spec in theirs}
        with watch("create"):
            peer.new()
        with watch("define"):
            peer.define(everything)
        with watch("end of definitions"):
            peer.enddef()
            peer.flush()
        with watch("close"):
            peer.close()
        watch.whole("end to end", *STEPS)
        # all objects are there, and the last one as it was defined
        found = peer.open()
        name, spec = next(reversed(everything.items()))
        right = sorted(found) == sorted(everything) and tuple(found[name].shape) == spec.shape
        right &= peer.attributes(found[name]) == spec.attrs
        if spec.dims and peer.name.startswith(US):
            right &= found[name].dims[0].label == spec.dims[0]
        peer.close()
        if not right:
            raise AssertionError(f"{peer.path}: {name} or another of {count} objects is not as it was defined")

    peers = {
        name: peer if isinstance(peer, str) or peer.is_netcdf else "has no objects"
        for name, peer in on_ranks(comm, hints=o.hints).items()
        if "independent" not in name
    }
    phases: Phases = {what: (None, count if what != "close" else 1) for what in ("end to end", *STEPS)}
    job.turns(phases, peers, run)
    job.report(f"{count} variables, {high - low} of rank {comm.rank}, whose descriptions the ranks exchange")
    job.report(f"each has {o.dims} dimensions{' of its own' if o.own_dims else ''}, {o.attributes} attributes")


def _described(o: argparse.Namespace, name: str) -> tuple[str, Spec]:
    attrs = {f"{name}_attr_{k}": "a" * o.attribute_size for k in range(o.attributes)}
    dims = tuple(f"{name}_dim_{k}" for k in range(o.dims)) if o.own_dims else None
    return name, Spec((o.length,) * o.dims, "i4", dims, attrs)
