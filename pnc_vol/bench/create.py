"""``python -m pnc_vol.bench create`` lets each rank create objects for itself, as in indep_data_obj_create.

Each rank knows only its own share of the datasets. As definitions in a shared file are the same on all ranks, the ranks
first send each other theirs (one exchange of their descriptions), and then all define all. Reported are, as in the
original (PnetCDF's ``benchmarks/C``), the exchange, defining, ending definitions, closing, and all of it. The
original's ``-m`` counts allocations; here peak memory is always measured, unless ``--no-memory`` is given.

Knows: the pattern. Does not know: how a library defines (`peers.py`).
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from pnc_vol.bench.measure import US, Phases, Result
from pnc_vol.bench.peers import Spec, on_ranks
from pnc_vol.bench.ranks import Job, RankWatch

__all__ = ["arguments", "run"]

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


def run(job: Job) -> list[Result]:
    """Return the phases, for every peer."""
    o, comm = job.options, job.comm
    count = max(comm.size, round(o.variables * o.scale))
    low, high = (count * r // comm.size for r in (comm.rank, comm.rank + 1))
    own = [_described(o, f"process_{comm.rank}_var_{i}") for i in range(high - low)]

    def once(peer: Any, watch: RankWatch) -> None:
        peer.path = os.path.join(job.folder, f"create.{peer.name.replace(' ', '_')}")
        job.clear(peer.path)
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
        _verify(peer, everything)

    peers = {
        name: peer if isinstance(peer, str) or peer.is_netcdf else "has no objects"
        for name, peer in on_ranks(comm, hints=o.hints).items()
        if "independent" not in name
    }
    phases: Phases = {what: (None, count if what != "close" else 1) for what in ("end to end", *STEPS)}
    results = job.turns(phases, peers, once)
    job.report(f"Number of MPI processes:                {comm.size}")
    job.report(f"Total number of variables:              {count}")
    job.report(f"Number of dimensions per variable:      {o.dims}{' (its own)' if o.own_dims else ''}")
    job.report(f"Number of attributes per variable:      {o.attributes}")
    for result in results:
        spent = result.median(US)
        if spent is not None:
            job.report(f"Max {result.work:25s} time = {spent:10.4f} sec")
    return results


def _described(o: argparse.Namespace, name: str) -> tuple[str, Spec]:
    attrs = {f"{name}_attr_{k}": "a" * o.attribute_size for k in range(o.attributes)}
    dims = tuple(f"{name}_dim_{k}" for k in range(o.dims)) if o.own_dims else None
    return name, Spec((o.length,) * o.dims, "i4", dims, attrs)


def _verify(peer: Any, specs: dict[str, Spec]) -> None:
    """Verify that all objects are there, and the last one as it was defined."""
    found = peer.open()
    name, spec = next(reversed(specs.items()))
    last = found[name]
    right = sorted(found) == sorted(specs) and tuple(last.shape) == spec.shape
    right &= peer.attributes(last) == spec.attrs
    if spec.dims and peer.name.startswith(US):
        right &= last.dims[0].label == spec.dims[0]
    peer.close()
    if not right:
        raise AssertionError(f"{peer.path}: {name} or another of {len(specs)} objects is not as it was defined")
