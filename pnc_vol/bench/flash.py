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
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench import cached
from pnc_vol.bench.measure import Job, Phases, Stopwatch, read_back
from pnc_vol.bench.peers import Spec, nbytes_of, on_ranks

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

    def contents(self, kind: str) -> Iterator[tuple[str, tuple[int, ...], Array]]:
        """Name, start and this rank's part of each variable of a file, in the order of definition."""
        n, real = self.own_blocks, "f8" if kind == "checkpoint" else "f4"
        tree = {
            "lrefine": np.ones(n, "i4"), "nodetype": np.ones(n, "i4"), "gid": np.full((n, NGID), -1, "i4"),
            "coordinates": np.full((n, 3), 0.25, real), "blocksize": np.full((n, 3), 0.5, real),
            "bndbox": np.zeros((n, 3, 2), real),
        }  # fmt: skip
        for name, part in tree.items():
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
        return {name: Spec((self.total, *part.shape[1:]), part.dtype) for name, _, part in self.contents(kind)}

    def attributes(self) -> dict[str, Any]:
        """Return attributes of the files."""
        numbers = {"total_blocks": self.total, "nsteps": 0, "nxb": self.n, "nyb": self.n, "nzb": self.n}
        texts = {"file_creation_time": "now", "flash_version": "FLASH I/O benchmark using Pnetcdf"}
        return {**texts, **{key: np.int32(n) for key, n in numbers.items()}, "time": np.float64(0.0)}


def main(job: Job) -> None:
    """Write the header and the unknowns of the three files, and close them, with every peer."""
    mesh, o = _Mesh(job), job.options
    specs = {kind: mesh.specs(kind) for kind in FILES}
    if o.cache:
        # a checkpoint in each cycle, without plotfiles
        cached.run(job, specs["checkpoint"], list(mesh.contents("checkpoint")))
        return
    amounts = {kind: (nbytes_of(specs[kind]), len(specs[kind]) * job.comm.size) for kind in FILES}
    phases: Phases = {"whole program": (sum(n for n, _ in amounts.values()), sum(n for _, n in amounts.values()))} | {
        f"{kind}, {what}": amounts[kind] if what == "unknowns" else (None, None)
        for kind in FILES
        for what in ("header", "unknowns", "close")
    }
    peers = on_ranks(job.comm, hints={"romio_ds_write": "disable", "nc_var_align_size": "1"} | o.hints)
    for name in ("MPI.File collective", "h5py collective") if o.independent else ():
        peers[name] = "-i: each rank for itself"

    def run(peer: Any, watch: Stopwatch) -> None:
        paths = {kind: f"{peer.path}.{name}" for kind, name in FILES.items()}
        with watch("whole program"):
            for kind, peer.path in paths.items():
                with watch.part(f"{kind}, header"):
                    peer.create(specs[kind], mesh.attributes())
                with watch.part(f"{kind}, unknowns"):
                    for name, start, part in mesh.contents(kind):
                        peer.move("write", name, start, part)
                        if o.blocking and not o.independent:
                            peer.flush()
                    peer.flush()
                with watch.part(f"{kind}, close"):
                    peer.close()
        for kind, peer.path in paths.items():
            if not peer.is_netcdf:
                peer.define(specs[kind])
            read_back(peer, mesh.contents(kind))

    job.turns(phases, peers, run)
    ways = f"{'blocking' if o.blocking else 'nonblocking'} writes, {'independent' if o.independent else 'collective'}"
    job.report(f"{ways}; {mesh.total} blocks of {mesh.n}^3 cells, {GUARD} guards, {len(LABELS)} variables")
