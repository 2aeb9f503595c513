"""A case of E3SM-IO is written with blobs, with MPI-IO in one call a flush, and by E3SM-IO's own program.

Knows: libraries, the options and the report of ``e3sm_io``. Does not know: clocks; which values. The C program is
started by the process that starts the ranks, not by a rank: what waits for it would take the processors from it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.peers import MpiFilePeer, PncVol, Spec, on_ranks
from pnc_vol.system import REAL, exists, temporary_directory
from pnc_vol.system.full_io import read_at

__all__ = ["LAYOUTS", "Blobs", "c_program", "peers", "seconds"]

LAYOUTS = ("canonical", "blob", "hdf5blob", "log", "cache")
Array = npt.NDArray[Any]


class Blobs(PncVol):
    """pnc_vol with each rank's part of each variable in one piece: the maps are given when variables are made."""

    def write_part(self, name: str, part: Any, record: int | None, values: Array) -> None:
        """Write what a rank owns of a variable."""
        owned = part.decomposition
        self.variables[name].iput(owned if record is None else (record, owned), values)


class PostingMpiPeer(MpiFilePeer):
    """`MPI.File` with all runs of a flush in one file type and one collective call; a file's places, without header."""

    def new(self) -> None:
        super().new()
        self._posted: list[tuple[Array, Array, Array, Array | None]] = []
        """Offsets and lengths in the file, bytes as the file has them, and where values that are read go."""

    def define(self, specs: Mapping[str, Spec], attrs: Any = None, dims: Any = None) -> None:
        self.specs, self.layout, at = specs, {}, 0
        for grows in (False, True):
            first = at
            for name, spec in specs.items():
                if spec.grows == grows:
                    self.layout[name] = at, spec.shape[grows:], np.dtype(spec.dtype).itemsize
                    at += int(np.prod(spec.shape[grows:])) * np.dtype(spec.dtype).itemsize
        self._record = at - first

    def enddef(self) -> None:
        """Do nothing: the file grows as it is written."""

    def _places(self, name: str, record: int | None, offsets: Array, lengths: Array) -> tuple[Array, Array]:
        begin, _, itemsize = self.layout[name]
        return begin + (record or 0) * self._record + offsets * itemsize, lengths * itemsize

    def write_part(self, name: str, part: Any, record: int | None, values: Array) -> None:
        """Write what a rank owns of a variable."""
        stored = np.ascontiguousarray(values).astype(np.dtype(self.specs[name].dtype).newbyteorder(">"))
        self._posted.append((*self._places(name, record, part.offsets, part.lengths), stored.reshape(-1), None))

    def read_part(self, name: str, part: Any, record: int | None, out: Array) -> None:
        """Read what a rank owns of a variable."""
        stored = np.empty(out.shape, np.dtype(self.specs[name].dtype).newbyteorder(">"))
        self._posted.append((*self._places(name, record, part.offsets, part.lengths), stored, out))

    def write(self, name: str, start: tuple[int, ...], values: Array) -> None:
        stored = values.astype(values.dtype.newbyteorder(">")).reshape(-1)
        whole = np.zeros(1, np.int64), np.array([values.size])
        self._posted.append((*self._places(name, start[0] if self.specs[name].grows else None, *whole), stored, None))

    def _view(self) -> tuple[Array, Array, Array]:
        """Return offsets and lengths of all that is posted, in the file's order; where each byte is among the posted
        ones."""
        none = np.zeros(0, np.int64)
        offsets, lengths = (np.concatenate([none, *(one[k] for one in self._posted)]) for k in (0, 1))
        order = np.argsort(offsets, kind="stable")
        sources = (np.cumsum(lengths) - lengths)[order]
        offsets, lengths = offsets[order], lengths[order]
        first = np.cumsum(lengths) - lengths
        places = np.repeat(sources - first, lengths) + np.arange(int(lengths.sum()))
        apart = np.flatnonzero(np.concatenate([[True], offsets[1:] != offsets[:-1] + lengths[:-1]]))
        if len(offsets):
            offsets, lengths = offsets[apart], np.add.reduceat(lengths, apart)
        return offsets, lengths, places

    def flush(self, *, durable: bool = False) -> None:
        # every rank takes part in the same calls: a file is written, or it is read
        offsets, lengths, places = self._view()
        if self.file.Get_amode() & self.module.MODE_RDONLY:
            packed = np.empty(len(places), "u1")
            self.move_runs(0, offsets, lengths, packed[None], self.take)
            posted, at = np.empty_like(packed), 0
            posted[places] = packed
            for _, _, stored, out in self._posted:
                assert out is not None
                out[...] = posted[at : at + stored.nbytes].view(stored.dtype)
                at += stored.nbytes
        else:
            packed = np.concatenate([np.zeros(0, "u1"), *(one[2].view("u1") for one in self._posted)])[places]
            self.move_runs(0, offsets, lengths, packed[None], self.put)
        self._posted = []

    def stored(self, name: str) -> Array:
        """Return all of a variable, by one rank; bytes that nobody wrote at the end of the file are zero."""
        begin, spec = self.layout[name][0], self.specs[name]
        found = np.zeros(spec.shape, np.dtype(spec.dtype).newbyteorder(">"))
        fd = REAL.open(self.path, os.O_RDONLY)
        for record, one in enumerate(found if spec.grows else [found]):
            read_at(REAL, fd, one.reshape(-1).view("u1").data, begin + record * self._record)
        REAL.close(fd)
        return found


def peers(job: Any) -> dict[str, Any]:
    """Return peers by name; for those that cannot be had, the reason."""
    found: dict[str, Any] = {}
    sets = {"subfiles": job.options.subfiles}
    ways: dict[str, tuple[type[PncVol], dict[str, Any], dict[str, Any]]] = {
        "canonical": (PncVol, {}, {}),
        "blob": (Blobs, {}, {"layout": "blob", **sets}),
        "hdf5blob": (Blobs, {}, {"layout": "hdf5blob", **sets}),
        "log": (PncVol, {"nc_burst_buf": "enable", "nc_burst_buf_dirname": job.folder}, {}),
        "cache": (PncVol, {"e10_cache": "enable", "e10_cache_path": job.folder}, {}),
    }
    for layout in job.options.layouts:
        kind, hints, options = ways[layout]
        # the first is what the others are compared with
        name = f"pnc_vol {layout}" if found else "pnc_vol"
        found[name] = kind(name, pnc_vol, comm=job.comm, hints={**job.options.hints, **hints}, **options)
    common = on_ranks(job.comm, hints=job.options.hints)
    found |= {name: common[name] for name in ("pnc_vol posix", "PnetCDF-Python")}
    name = "MPI.File collective"
    found[name] = PostingMpiPeer(name, common[name].module, comm=job.comm)
    for name, peer in found.items():
        if isinstance(peer, PncVol):
            # PnetCDF reserves no room behind the header: the files have the C program's bytes
            peer.options["header_reserve"] = 0
        elif not isinstance(peer, str) and job.options.fill and not peer.is_netcdf:
            found[name] = "-u: has no fill values"
    return found | {"os.pwrite": "a call for each of millions of runs"}


# ------------------------------------------------------------------------------------------------ the C program

PROGRAM = "e3sm_io"
C_LAYOUTS = ("canonical", "blob")
_TIME = re.compile(r"^end-to-end time +min/max = +([\d.]+) / +([\d.]+)", re.MULTILINE)


def c_program(options: argparse.Namespace, launcher: Sequence[str]) -> Iterator[str]:
    """Run the C program as often as the benchmark ran, and report its time from open to close.

    Parameters
    ----------
    options : of the benchmark
    launcher : sequence of str, the command that starts a program on all ranks, of the MPI that both use.

    Yields
    ------
    str
        A line for each layout; none where the program is not installed, or is given maps that it cannot have.
    """
    program, layouts = shutil.which(PROGRAM), [one for one in C_LAYOUTS if one in options.layouts]
    maps = options.data / f"map_{options.case.lower()}_case_16p.nc"
    if program is None or options.synthetic or options.io_stride > 1 or not exists(REAL, maps):
        return
    for layout in layouts:
        with temporary_directory(options.dir) as folder:
            found = [_run_c(options, [*launcher, program], maps, layout, folder, i) for i in range(options.rounds)]
        middle = statistics.median(found)
        yield f"{PROGRAM} -a pnetcdf -x {layout}: open to close {middle:.3f} s ({min(found):.3f}-{max(found):.3f})"


def _run_c(options: argparse.Namespace, start: list[str], maps: PurePath, layout: str, folder: str, i: int) -> float:
    letters = [letter for letter, given in _letters(options) if given]
    numbers = ["-f", options.file, "-r", options.records, "-y", options.flush_every, "-e", 1]
    command = [*start, "-a", "pnetcdf", "-x", layout, *letters, *map(str, numbers), "-o", f"{folder}/{i}", str(maps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-400:]}{done.stderr[-400:]}")
    for name in REAL.listdir(folder):
        REAL.unlink(f"{folder}/{name}")
    return seconds(done.stdout)


def _letters(options: argparse.Namespace) -> list[tuple[str, bool]]:
    return [("-j", options.floats), ("-m", options.apart), ("-q", options.unsorted), ("-u", options.fill)]


def seconds(report: str) -> float:
    """Return the seconds from open to close of all files, by the slowest rank, from a report of the program.

    Examples
    --------
    >>> seconds("end-to-end time                    min/max =   0.50 /   0.75\\n")
    0.75
    """
    found = [float(most) for _, most in _TIME.findall(report)]
    if not found:
        raise ValueError(f"no time from open to close in the report of {PROGRAM}: {report[-200:]!r}")
    return sum(found)
