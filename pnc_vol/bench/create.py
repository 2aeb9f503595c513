"""``python -m pnc_vol.bench create``: objects that each rank creates for itself, as in indep_data_obj_create.

Each rank knows only its own share of the datasets. As definitions in a shared file are the same on all ranks, the ranks
first send each other theirs (one exchange of their descriptions), and then all define all. Reported are, as in the
original (PnetCDF's ``benchmarks/C``), the exchange, defining, ending definitions, closing, and all of it. The
original's ``-m`` counts allocations; here peak memory is always measured, unless ``--no-memory`` is given.

Knows: the pattern, pnc_vol's words and PnetCDF-Python's. Raw MPI-IO has no objects.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import pnc_vol
from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.peers import load
from pnc_vol.bench.ranks import Job, RankWatch

__all__ = ["arguments", "run"]

WHATS = ("end to end", "exchange", "create", "define", "end of definitions", "close")
Described = list[tuple[str, tuple[int, ...]]]


def arguments(one: argparse.ArgumentParser) -> None:
    """The original's options."""
    one.add_argument(
        "-v",
        "--variables",
        type=int,
        default=100_000,
        help="number of objects of all ranks (100,000; the original's -n)",
    )
    one.add_argument("-d", "--dims", type=int, default=2, help="number of axes of each variable (2)")
    one.add_argument("-l", "--length", type=int, default=10, help="length of each axis (10)")
    one.add_argument("-a", "--attributes", type=int, default=0, help="number of attributes of each variable (0)")
    one.add_argument("-s", "--attribute-size", type=int, default=9, help="bytes of each attribute (9)")
    one.add_argument("--own-dims", action="store_true", help="named dimensions for each variable, as in the original")
    one.add_argument(
        "-t", "--hash-size", type=int, default=0, help="PnetCDF's hash tables for names (its hints; pnc_vol has none)"
    )
    one.add_argument("-q", "--quiet", action="store_true", help="the table only")


def run(job: Job) -> list[Result]:
    """The phases, for every peer."""
    o, comm = job.options, job.comm
    count = max(comm.size, round(o.variables * o.scale))
    bounds = [count * r // comm.size for r in range(comm.size + 1)]
    own: Described = [
        (f"process_{comm.rank}_var_{i - bounds[comm.rank]}", (o.length,) * o.dims)
        for i in range(bounds[comm.rank], bounds[comm.rank + 1])
    ]
    peers: dict[str, Callable[[RankWatch], None] | str] = {
        US: _pnc_vol(job, own, count, {}),
        "pnc_vol posix": _pnc_vol(job, own, count, {"driver": "posix"}),
    }
    module = load("pnetcdf")
    peers["PnetCDF-Python"] = module if isinstance(module, str) else _pnetcdf(job, own, count, module)
    for name in ("MPI.File collective", "os.pwrite"):
        peers[name] = "has no objects"
    results = job.turns({what: (None, count if what != "close" else 1) for what in WHATS}, peers)
    if o.quiet:
        return results
    job.report(f"Number of MPI processes:                {comm.size}")
    job.report(f"Total number of variables:              {count}")
    job.report(f"Number of dimensions per variable:      {o.dims}{' (its own)' if o.own_dims else ''}")
    job.report(f"Number of attributes per variable:      {o.attributes}")
    for result in results:
        spent = result.median(US)
        if spent is not None:
            job.report(f"Max {result.work:25s} time = {spent:10.4f} sec")
    return results


def _exchanged(job: Job, own: Described, watch: RankWatch) -> Described:
    with watch("exchange"):
        return [one for theirs in job.comm.allgather(own) for one in theirs]


def _finish(watch: RankWatch) -> None:
    watch.seconds["end to end"] = sum(watch.seconds.values())
    watch.memory["end to end"] = max(watch.memory.values())


def _pnc_vol(job: Job, own: Described, count: int, options: dict[str, Any]) -> Callable[[RankWatch], None]:
    o, text = job.options, "a" * job.options.attribute_size

    def do(watch: RankWatch) -> None:
        path = os.path.join(job.folder, "create.nc")
        job.clear(path)
        everything = _exchanged(job, own, watch)
        with watch("create"):
            f = pnc_vol.File(path, "w", comm=job.comm, hints=job.options.hints, **options)
        with watch("define"):
            for name, shape in everything:
                ds = f.create_dataset(name, shape, "i4")
                for k in range(o.dims if o.own_dims else 0):
                    ds.dims[k].label = f"{name}_dim_{k}"
                for k in range(o.attributes):
                    ds.attrs[f"{name}_attr_{k}"] = text
        with watch("end of definitions"):
            f.flush()
        with watch("close"):
            f.close()
        _finish(watch)
        if job.comm.rank == 0:
            with pnc_vol.File(path) as f:
                if list(f) != sorted(name for name, _ in everything) or len(f) != count:
                    raise AssertionError(f"{path}: {len(f)} of {count} objects, or other names")
                last = f[everything[-1][0]]
                if last.shape != everything[-1][1] or set(last.attrs.values()) != ({text} if o.attributes else set()):
                    raise AssertionError(f"{path}: {last.name} is not as it was defined")
                if o.own_dims and last.dims[0].label != f"{everything[-1][0]}_dim_0":
                    raise AssertionError(f"{path}: {last.name} has other dimensions")

    return do


def _pnetcdf(job: Job, own: Described, count: int, module: Any) -> Callable[[RankWatch], None]:
    o, text, info = job.options, "a" * job.options.attribute_size, None
    if o.hash_size:
        from mpi4py import MPI

        info = MPI.Info.Create()
        for what in ("var", "dim"):
            info.Set(f"nc_hash_size_{what}", str(o.hash_size))

    def do(watch: RankWatch) -> None:
        path = os.path.join(job.folder, "create.pnetcdf")
        job.clear(path)
        everything = _exchanged(job, own, watch)
        with watch("create"):
            f = module.File(path, mode="w", format="NC_64BIT_DATA", comm=job.comm, info=info)
        with watch("define"):
            shared = {} if o.own_dims else {n: f.def_dim(f"n{n}", n) for n in {n for _, s in everything for n in s}}
            for name, shape in everything:
                dims = [f.def_dim(f"{name}_dim_{k}", n) if o.own_dims else shared[n] for k, n in enumerate(shape)]
                variable = f.def_var(name, module.NC_INT, tuple(dims))
                for k in range(o.attributes):
                    variable.put_att(f"{name}_attr_{k}", text)
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
