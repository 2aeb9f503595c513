"""``python -m pnc_vol.bench flash`` writes a checkpoint and two plotfiles of an adaptive mesh, as FLASH-IO does.

A rank holds 80 blocks or a few more (``80 + rank % 3``) of cells with a border of guard cells, 24 unknowns each. Each
variable has the blocks of all ranks, one rank's behind the other's. The checkpoint has all unknowns in double
precision, the plotfiles four of them in single precision: at the cells' centres, and interpolated to their corners.
Names, shapes, types, values and global attributes are the original's (PnetCDF's ``benchmarks/FLASH-IO``). The default
is the original's as well: everything is posted, and completed once; ``-b`` completes each variable, ``-i`` does so
without other ranks.

Knows: the mesh. Does not know: how a library writes (`peers.py`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench import cached
from pnc_vol.bench.measure import US, Phases, Result, check
from pnc_vol.bench.peers import Spec, nbytes_of, on_ranks
from pnc_vol.bench.ranks import Job, RankWatch

__all__ = ["arguments", "run"]

Array = npt.NDArray[Any]

GUARD = 4
BLOCKS = 80
NGID = 15
LABELS = ["dens", "velx", "vely", "velz", "pres", "ener", "temp", "gamc", "game", "enuc", "gpot"]
LABELS += [f"f{i}".ljust(4, "_") for i in range(1, 14)]
PLOTTED = ["dens", "temp", "pres", "f1__"]
FILES = {"checkpoint": "ncmpi_chk_0000.nc", "plotfile": "ncmpi_plt_cnt_0000.nc", "corners": "ncmpi_plt_crn_0000.nc"}


def arguments(one: argparse.ArgumentParser) -> None:
    """Add the original's options; its sizes are constants of the compiler there."""
    one.add_argument("-b", "--blocking", action="store_true", help="complete each variable before the next one")
    one.add_argument("-i", "--independent", action="store_true", help="each rank by itself")
    one.add_argument("--cells", type=int, default=8, help="cells along each edge of a block: nxb, nyb, nzb (8)")
    one.add_argument("--blocks", type=int, default=BLOCKS, help=f"blocks of a rank ({BLOCKS})")
    cached.arguments(one)


class _Mesh:
    """The blocks of this rank."""

    def __init__(self, job: Job) -> None:
        o = job.options
        self.n = max(2, round(o.cells * min(1.0, o.scale) ** (1 / 3)))
        counts = [max(1, round(o.blocks * o.scale)) + rank % 3 for rank in range(job.comm.size)]
        self.total, self.own_blocks = sum(counts), counts[job.comm.rank]
        self.first = sum(counts[: job.comm.rank])
        edge = self.n + 2 * GUARD
        # as in the original: the unknowns of a cell lie beside one another
        self.unknowns = np.empty((self.own_blocks, edge, edge, edge, len(LABELS)))
        self.unknowns[...] = np.arange(1, len(LABELS) + 1)

    def tree(self, real: str) -> dict[str, Array]:
        """Return everything but the unknowns."""
        n = self.own_blocks
        return {
            "lrefine": np.ones(n, "i4"), "nodetype": np.ones(n, "i4"), "gid": np.full((n, NGID), -1, "i4"),
            "coordinates": np.full((n, 3), 0.25, real), "blocksize": np.full((n, 3), 0.5, real),
            "bndbox": np.zeros((n, 3, 2), real),
        }  # fmt: skip

    def contents(self, kind: str) -> Iterator[tuple[str, tuple[int, ...], Array]]:
        """Name, start and this rank's part of each variable of a file, in the order of definition."""
        real = "f8" if kind == "checkpoint" else "f4"
        for name, part in self.tree(real).items():
            yield name, (self.first,) + (0,) * (part.ndim - 1), part
        inner = slice(GUARD, GUARD + self.n)
        for name in LABELS if kind == "checkpoint" else PLOTTED:
            cells = self.unknowns[..., LABELS.index(name)]
            part = self._corners(cells) if kind == "corners" else cells[:, inner, inner, inner].astype(real, copy=False)
            yield name, (self.first, 0, 0, 0), part

    def _corners(self, cells: Array) -> Array:
        """Return means of the eight cells around each corner."""
        total = np.zeros((self.own_blocks, *[self.n + 1] * 3))
        for shift in np.ndindex(2, 2, 2):
            around = tuple(slice(GUARD - 1 + s, GUARD + s + self.n) for s in shift)
            total += cells[(slice(None), *around)]
        return (total / 8).astype("f4")

    def specs(self, kind: str) -> dict[str, Spec]:
        """Return the shape of all ranks' parts, and type."""
        real = "f8" if kind == "checkpoint" else "f4"
        found = {name: Spec((self.total, *part.shape[1:]), part.dtype) for name, part in self.tree(real).items()}
        shape = (self.total, *[self.n + (kind == "corners")] * 3)
        names = LABELS if kind == "checkpoint" else PLOTTED
        return found | {name: Spec(shape, np.dtype(real)) for name in names}

    def attributes(self) -> dict[str, Any]:
        """Return attributes of the files."""
        return {
            "file_creation_time": "now",
            "flash_version": "FLASH I/O benchmark using Pnetcdf",
            "total_blocks": np.int32(self.total),
            "nsteps": np.int32(0),
            **{name: np.int32(self.n) for name in ("nxb", "nyb", "nzb")},
            "time": np.float64(0.0),
        }


def run(job: Job) -> list[Result]:
    """Return the header, unknowns and closing of the three files, for every peer."""
    mesh, o = _Mesh(job), job.options
    specs = {kind: mesh.specs(kind) for kind in FILES}
    if o.cache:
        # a checkpoint in each cycle, without plotfiles
        return cached.run(job, specs["checkpoint"], list(mesh.contents("checkpoint")))
    amounts = {kind: (nbytes_of(specs[kind]), len(specs[kind]) * job.comm.size) for kind in FILES}
    phases: Phases = {"whole program": (sum(n for n, _ in amounts.values()), sum(n for _, n in amounts.values()))} | {
        f"{kind}, {what}": amounts[kind] if what == "unknowns" else (None, None)
        for kind in FILES
        for what in ("header", "unknowns", "close")
    }
    peers = on_ranks(job.comm, hints={"romio_ds_write": "disable", "nc_var_align_size": "1"} | o.hints)
    for name in ("MPI.File collective", "h5py collective") if o.independent else ():
        peers[name] = "-i: each rank for itself"

    def once(peer: Any, watch: RankWatch) -> None:
        paths = {kind: os.path.join(job.folder, f"flash_io_{name}") for kind, name in FILES.items()}
        for path in paths.values():
            job.clear(path)
        with watch("whole program"):
            for kind, peer.path in paths.items():
                with watch.part(f"{kind}, header"):
                    peer.create(specs[kind], mesh.attributes())
                with watch.part(f"{kind}, unknowns"):
                    for name, start, part in mesh.contents(kind):
                        peer.write(name, start, part)
                        if o.blocking and not o.independent:
                            peer.flush()
                    peer.flush()
                with watch.part(f"{kind}, close"):
                    peer.close()
        for kind, peer.path in paths.items():
            _verify(mesh, peer, kind, specs[kind])

    results = job.turns(phases, peers, once)
    _report(job, mesh, {result.work: result for result in results})
    return results


def _verify(mesh: _Mesh, peer: Any, kind: str, specs: dict[str, Spec]) -> None:
    """Every rank reads its part back."""
    if not peer.is_netcdf:
        peer.define(specs)
    peer.open()
    found = []
    for name, start, part in mesh.contents(kind):
        found.append((name, np.full(part.shape, -7, part.dtype), part))
        peer.read(name, start, found[-1][1])
    peer.flush()
    peer.close()
    for name, out, part in found:
        check(f"{peer.path}, {name}", out, part)


def _report(job: Job, mesh: _Mesh, by: dict[str, Result]) -> None:
    """Report in the original's words, with the medians of pnc_vol; of each phase, the slowest rank's time."""
    total = by["whole program"].median(US)
    if total is None:
        return
    o, mib = job.options, (by["whole program"].nbytes or 0) / (1 << 20)
    ways = f"{'blocking' if o.blocking else 'nonblocking'} writes, {'independent' if o.independent else 'collective'}"
    job.report(f"Using {ways}; {GUARD} guards, {max(1, round(o.blocks * o.scale))} blocks, {len(LABELS)} variables")
    for kind in FILES:
        header, unknowns, close = (by[f"{kind}, {what}"].median(US) or 0.0 for what in ("header", "unknowns", "close"))
        parts = f"max header {header:.4f}, max unknown {unknowns:.4f}, max close {close:.4f}"
        job.report(f" {kind:12s}: {header + unknowns + close:10.4f} sec ({parts})")
    job.report(" nproc    array size      exec (sec)   I/O amount (MiB)   bandwidth (MiB/s)")
    size = f"{mesh.n:3d} x {mesh.n:3d} x {mesh.n:3d}"
    job.report(f"{job.comm.size:5d}   {size}   {total:9.4f}   {mib:13.2f}   {mib / total:15.2f}")
