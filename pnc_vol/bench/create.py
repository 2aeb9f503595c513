"""``python -m pnc_vol.bench create``: objects that each rank wants for itself, as indep_data_obj_create has it.

Each rank knows only its own share of the datasets. As definitions in a shared file are the same on all ranks, the ranks
first tell each other theirs (one exchange of their descriptions), and then all define all. Reported are, as in the
original (PnetCDF's ``benchmarks/C``), the exchange, defining, ending definitions, closing, and all of it.

Knows: the pattern, pnc_vol's words and PnetCDF-Python's. Raw MPI-IO has no objects.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.ranks import Job, RankWatch
from pnc_vol.bench.serial import load

__all__ = ["arguments", "run"]

WHATS = ("end to end", "exchange", "create", "define", "end of definitions", "close")
Described = list[tuple[str, tuple[int, ...]]]


def arguments(one: argparse.ArgumentParser) -> None:
    """The original's options."""
    one.add_argument("-v", "--variables", type=int, default=100_000, help="of all ranks (100,000; the original's -n)")
    one.add_argument("--dims", type=int, default=2, help="axes of each (2)")
    one.add_argument("--length", type=int, default=10, help="of each axis (10)")
    one.add_argument("--attributes", type=int, default=0, help="of each variable (0)")


def run(job: Job) -> list[Result]:
    """The phases, for every peer."""
    o, comm = job.options, job.comm
    count = max(comm.size, round(o.variables * o.scale))
    bounds = [count * r // comm.size for r in range(comm.size + 1)]
    mine: Described = [
        (f"process_{comm.rank}_var_{i - bounds[comm.rank]}", (o.length,) * o.dims)
        for i in range(bounds[comm.rank], bounds[comm.rank + 1])
    ]
    peers: dict[str, Callable[[RankWatch], None] | str] = {
        US: _pnc_vol(job, mine, count, {}),
        "pnc_vol posix": _pnc_vol(job, mine, count, {"driver": "posix"}),
    }
    module = load("pnetcdf")
    peers["PnetCDF-Python"] = module if isinstance(module, str) else _pnetcdf(job, mine, count, module)
    for name in ("MPI.File collective", "os.pwrite"):
        peers[name] = "has no objects"
    results = job.turns({what: (None, count if what != "close" else 1) for what in WHATS}, peers)
    job.say(
        f"Total number of variables: {count}, dimensions per variable: {o.dims}, "
        f"attributes per variable: {o.attributes}"
    )
    for result in results:
        spent = result.median(US)
        if spent is not None:
            job.say(f"Max {result.work:25s} time = {spent:10.4f} sec")
    return results


def _exchanged(job: Job, mine: Described, watch: RankWatch) -> Described:
    with watch("exchange"):
        return [one for theirs in job.comm.allgather(mine) for one in theirs]


def _finish(watch: RankWatch) -> None:
    watch.seconds["end to end"] = sum(watch.seconds.values())
    watch.memory["end to end"] = max(watch.memory.values())


def _pnc_vol(job: Job, mine: Described, count: int, options: dict[str, Any]) -> Callable[[RankWatch], None]:
    import pnc_vol

    def do(watch: RankWatch) -> None:
        path = os.path.join(job.folder, "create.nc")
        job.clear(path)
        everything = _exchanged(job, mine, watch)
        with watch("create"):
            f = pnc_vol.File(path, "w", comm=job.comm, hints=job.options.hints, **options)
        with watch("define"):
            for name, shape in everything:
                ds = f.create_dataset(name, shape, "i4")
                for k in range(job.options.attributes):
                    ds.attrs[f"{name}_attr_{k}"] = "attribute"
        with watch("end of definitions"):
            f.flush()
        with watch("close"):
            f.close()
        _finish(watch)
        if job.comm.rank == 0:
            with pnc_vol.File(path) as f:
                if list(f) != sorted(name for name, _ in everything) or len(f) != count:
                    raise AssertionError(f"{path}: {len(f)} of {count} objects, or other names")

    return do


def _pnetcdf(job: Job, mine: Described, count: int, module: Any) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        path = os.path.join(job.folder, "create.pnetcdf")
        job.clear(path)
        everything = _exchanged(job, mine, watch)
        with watch("create"):
            f = module.File(path, mode="w", format="NC_64BIT_DATA", comm=job.comm)
        with watch("define"):
            dims = {n: f.def_dim(f"n{n}", n) for n in {n for _, shape in everything for n in shape}}
            for name, shape in everything:
                variable = f.def_var(name, module.NC_INT, tuple(dims[n] for n in shape))
                for k in range(job.options.attributes):
                    variable.put_att(f"{name}_attr_{k}", "attribute")
        with watch("end of definitions"):
            f.enddef()
        with watch("close"):
            f.close()
        _finish(watch)
        f = module.File(path, mode="r", comm=job.comm)
        found = len(f.variables)
        f.close()
        if found != count:
            raise AssertionError(f"{path}: {found} of {count} objects")

    return do
