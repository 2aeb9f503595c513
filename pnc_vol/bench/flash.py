"""``python -m pnc_vol.bench flash``: a checkpoint and two plotfiles of an adaptive mesh, as FLASH-IO writes them.

A rank holds 80 blocks or a few more (``80 + rank % 3``) of cells with a border of guard cells, 24 unknowns each. Each
variable has the blocks of all ranks, one rank's behind the other's. The checkpoint has all unknowns in double
precision, the plotfiles four of them in single precision: at the cells' centres, and interpolated to their corners.
Names, shapes, types, values and global attributes are the original's (PnetCDF's ``benchmarks/FLASH-IO``). The default
is the original's as well: everything is posted, and completed once; ``-b`` completes each variable, ``-i`` does so
without other ranks.

Knows: the mesh. Does not know: how a library writes (`carriers.py`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench import cached
from pnc_vol.bench.carriers import Carrier, carriers, nbytes_of
from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.ranks import Job, RankWatch
from pnc_vol.bench.serial import check

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
    """The original's options; its sizes are constants of the compiler there."""
    one.add_argument("-f", "--prefix", default="flash_io_", help="prefix of the files' names")
    one.add_argument("-b", "--blocking", action="store_true", help="complete each variable before the next one")
    one.add_argument("-i", "--independent", action="store_true", help="each rank by itself")
    one.add_argument("-q", "--quiet", action="store_true", help="the table only")
    one.add_argument("--cells", type=int, default=8, help="cells along each edge of a block: nxb, nyb, nzb (8)")
    one.add_argument("--blocks", type=int, default=BLOCKS, help=f"blocks of a rank ({BLOCKS})")
    cached.arguments(one)


class _Mesh:
    """This rank's blocks."""

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
        """Everything but the unknowns."""
        n = self.own_blocks
        return {
            "lrefine": np.ones(n, "i4"),
            "nodetype": np.ones(n, "i4"),
            "gid": np.full((n, NGID), -1, "i4"),
            "coordinates": np.full((n, 3), 0.25, real),
            "blocksize": np.full((n, 3), 0.5, real),
            "bndbox": np.zeros((n, 3, 2), real),
        }

    def contents(self, kind: str) -> Iterator[tuple[str, Array]]:
        """Name and this rank's part of each variable of a file, in the order of definition."""
        real = "f8" if kind == "checkpoint" else "f4"
        yield from self.tree(real).items()
        inner = slice(GUARD, GUARD + self.n)
        for name in LABELS if kind == "checkpoint" else PLOTTED:
            cells = self.unknowns[..., LABELS.index(name)]
            if kind == "corners":
                yield name, self._corners(cells)
            else:
                yield name, cells[:, inner, inner, inner].astype(real, copy=False)

    def _corners(self, cells: Array) -> Array:
        """Means of the eight cells around each corner."""
        total = np.zeros((self.own_blocks, *[self.n + 1] * 3))
        for shift in np.ndindex(2, 2, 2):
            around = tuple(slice(GUARD - 1 + s, GUARD + s + self.n) for s in shift)
            total += cells[(slice(None), *around)]
        return (total / 8).astype("f4")

    def variables(self, kind: str) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape of all ranks' parts, and type."""
        edge = self.n + (kind == "corners")
        real = "f8" if kind == "checkpoint" else "f4"
        found: dict[str, tuple[tuple[int, ...], Any]] = {
            name: ((self.total, *part.shape[1:]), part.dtype) for name, part in self.tree(real).items()
        }
        names = LABELS if kind == "checkpoint" else PLOTTED
        return found | {name: ((self.total, edge, edge, edge), np.dtype(real)) for name in names}

    def attributes(self) -> dict[str, Any]:
        """Of the files."""
        return {
            "file_creation_time": "now",
            "flash_version": "FLASH I/O benchmark using Pnetcdf",
            "total_blocks": np.int32(self.total),
            "nsteps": np.int32(0),
            **{name: np.int32(self.n) for name in ("nxb", "nyb", "nzb")},
            "time": np.float64(0.0),
        }


def run(job: Job) -> list[Result]:
    """Header, unknowns and closing of the three files, for every peer."""
    mesh = _Mesh(job)
    if job.options.cache:
        # a checkpoint in each cycle, without plotfiles
        contents = mesh.contents("checkpoint")
        parts = [(name, (mesh.first,) + (0,) * (part.ndim - 1), part) for name, part in contents]
        return cached.run(job, mesh.variables("checkpoint"), parts)
    sizes = {kind: nbytes_of(mesh.variables(kind)) for kind in FILES}
    calls = {kind: len(mesh.variables(kind)) * job.comm.size for kind in FILES}
    phases: dict[str, tuple[int | None, int | None]] = {"whole program": (sum(sizes.values()), sum(calls.values()))} | {
        f"{kind}, {what}": (sizes[kind] if what == "unknowns" else None, calls[kind] if what == "unknowns" else None)
        for kind in FILES
        for what in ("header", "unknowns", "close")
    }
    peers: dict[str, Callable[[RankWatch], None] | str] = {}
    for name, peer in _carriers(job).items():
        peers[name] = peer if isinstance(peer, str) else _once(job, mesh, peer)
    results = job.turns(phases, peers)
    if not job.options.quiet:
        _report(job, mesh, sizes, {result.work: result.median(US) for result in results})
    return results


def _carriers(job: Job) -> dict[str, Carrier | str]:
    hints = {"romio_ds_write": "disable", "nc_var_align_size": "1"} | job.options.hints
    found = carriers(job.comm, {"hints": hints})
    if job.options.independent:
        for name in ("MPI.File collective", "h5py collective"):
            found[name] = "-i: each rank for itself"
    return found


def _once(job: Job, mesh: _Mesh, peer: Carrier) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        o = job.options
        paths = {kind: os.path.join(job.folder, o.prefix + name) for kind, name in FILES.items()}
        for path in paths.values():
            job.clear(path)
        with watch("whole program"):
            for kind, path in paths.items():
                with watch.part(f"{kind}, header"):
                    peer.create(path, mesh.variables(kind), mesh.attributes())
                with watch.part(f"{kind}, unknowns"):
                    for name, part in mesh.contents(kind):
                        peer.put(name, (mesh.first,) + (0,) * (part.ndim - 1), part)
                        if o.blocking and not o.independent:
                            peer.flush()
                    peer.flush()
                with watch.part(f"{kind}, close"):
                    peer.close()
        for kind, path in paths.items():
            _verify(mesh, peer, path, kind)

    return do


def _verify(mesh: _Mesh, peer: Carrier, path: str, kind: str) -> None:
    """Every rank reads its part back."""
    peer.open(path, mesh.variables(kind))
    found = []
    for name, part in mesh.contents(kind):
        out = np.full(part.shape, -7, part.dtype)
        peer.get(name, (mesh.first,) + (0,) * (part.ndim - 1), out)
        found.append((name, out, part))
    peer.flush()
    peer.close()
    for name, out, part in found:
        check(f"{path}, {name}", out, part)


def _report(job: Job, mesh: _Mesh, sizes: dict[str, int], seconds: dict[str, float | None]) -> None:
    """The original's words, with the medians of pnc_vol; of each phase, the slowest rank's time."""
    total = seconds["whole program"]
    if total is None:
        return
    o, mib = job.options, 1 << 20
    job.report(
        f"Using {'blocking' if o.blocking else 'nonblocking'} writes, "
        f"{'independent' if o.independent else 'collective'}"
    )
    job.report(f" number of guards      : {GUARD:13d}")
    job.report(f" number of blocks      : {max(1, round(o.blocks * o.scale)):13d}")
    job.report(f" number of variables   : {len(LABELS):13d}")
    for kind, title in (
        ("checkpoint", "checkpoint time"),
        ("plotfile", "plot no corner"),
        ("corners", "plot    corner"),
    ):
        parts = {what: seconds[f"{kind}, {what}"] or 0.0 for what in ("header", "unknowns", "close")}
        job.report(f" {title:22s}: {sum(parts.values()):16.4f}  sec")
        for what, word in (("header", "max header"), ("unknowns", "max unknown"), ("close", "max close")):
            job.report(f"        {word:15s}: {parts[what]:16.4f}  sec")
        job.report(f"        {'I/O amount':15s}: {sizes[kind] / mib:16.2f}  MiB")
    amount = sum(sizes.values()) / mib
    job.report(f" Total I/O amount      : {amount:16.2f}  MiB")
    job.report(" nproc    array size      exec (sec)   bandwidth (MiB/s)")
    job.report(f"{job.comm.size:5d}   {mesh.n:3d} x {mesh.n:3d} x {mesh.n:3d}   {total:9.4f}  {amount / total:10.2f}")
