"""A case of E3SM-IO on the ranks of a job: files, each rank's part of the maps, and its arrays in memory.

Knows: maps, variables, arrays. Does not know: libraries, clocks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.e3sm_cases import CaseFile, Variable, counted, files_of, listed
from pnc_vol.bench.e3sm_maps import invented
from pnc_vol.bench.ranks import Job
from pnc_vol.convert.map_files import Map, dealt, in_rows, read_maps
from pnc_vol.extents.model import Runs
from pnc_vol.ranks.mpi_comm import over
from pnc_vol.system import REAL, exists

__all__ = ["GAP", "OwnedPart", "Setup", "buffers", "path_of", "prepare", "untouched", "value_of"]

SIZES = {"F": 4, "G": 5, "I": 96}
GAP = 10
IDLE = -3  # what lies between the parts of a buffer
FILLS = {"f8": 9.969209968386869e36, "f4": 9.969209968386869e36, "i4": -2147483647}


@dataclass
class OwnedPart:
    """What this rank writes of one map: its runs, and where each cell's owner is for whoever checks."""

    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int32] | None

    @property
    def cells(self) -> int:
        return int(self.lengths.sum())


@dataclass
class Setup:
    """A case on these ranks.

    requests, nbytes : of each rank.
    fill : whether cells that nobody writes get the fill value.
    """

    case: str
    files: list[CaseFile]
    lengths: dict[str, int]
    parts: list[OwnedPart]
    records: int
    title: str
    fill: bool = False
    requests: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)

    def records_of(self, file: CaseFile) -> int:
        return 1 if file.one_record else self.records

    def shape(self, file: CaseFile, variable: Variable) -> tuple[int, ...]:
        return file.shape(variable, self.records_of(file), self.lengths)

    def fill_of(self, variable: Variable) -> Any:
        """What cells hold that nobody writes: `_FillValue`, or the format's own for the type; None for letters."""
        dtype = np.dtype(variable.dtype)
        if "_FillValue" in variable.attrs:
            return dtype.type(variable.attrs["_FillValue"])
        found = FILLS.get(dtype.str[1:])
        return None if found is None else dtype.type(found)


def prepare(job: Job) -> Setup:
    """Maps by rank 0, which sends each rank its part; variables."""
    o, comm = job.options, job.comm
    case: str = o.case
    path = o.data / f"map_{case.lower()}_case_16p.nc"
    invent = o.synthetic is not None or not exists(REAL, path)
    shares, lengths = _shares(job, path, invent)
    parts = [_part(job, dims, runs, o.expand if case != "G" or len(dims) > 1 else 1) for dims, runs in shares]
    if invent:
        files = [counted(name, lengths, floats=o.floats) for name in files_of(case, o.file)]
    else:
        files = [listed(str(o.data / f"{name}.json"), floats=o.floats) for name in files_of(case, o.file)]
    if o.expand > 1:
        for dims in files[0].map_dims:
            if case != "G" or len(dims) > 1:
                lengths[dims[-1]] = int(files[0].dims[dims[-1]] or 1) * o.expand
    setup = Setup(case, files, lengths, parts, o.records, "made up" if invent else f"of {path.name}", o.fill)
    nbytes = requests = 0
    for file in files:
        for variable in file.variables:
            times = setup.records_of(file) if file.is_record(variable) else 1
            shape = setup.shape(file, variable)
            alone = int(np.prod(shape)) // (setup.records_of(file) if file.is_record(variable) else 1)
            cells = parts[variable.number - 1].cells if variable.number else alone * (comm.rank == 0)
            nbytes += times * cells * np.dtype(variable.dtype).itemsize
            requests += times * (len(parts[variable.number - 1].lengths) if variable.number else comm.rank == 0)
    setup.nbytes, setup.requests = comm.allgather(nbytes), comm.allgather(requests)
    return setup


def _shares(job: Job, path: PurePath, invent: bool) -> tuple[list[tuple[tuple[int, ...], Runs]], dict[str, int]]:
    """The dimensions and the runs of each map, and the lengths of dimensions of maps that are made up."""
    o = job.options
    maps: list[Map] | None = None
    lengths: dict[str, int] = {}
    if job.comm.rank == 0:
        size = o.synthetic or max(2, round(SIZES[o.case] * min(1.0, o.scale) ** 0.5))
        if invent and o.job_ranks:
            maps, lengths = invented(o.case, size, max(o.job_ranks, job.comm.size), job.comm.size)
        elif invent:
            maps, lengths = invented(o.case, size, max(o.map_ranks, job.comm.size))
        else:
            maps = read_maps(path)
    ranks = over(job.comm)
    shares = dealt(maps, ranks, compat=o.compat)
    ranks.close()
    return shares, job.comm.bcast(lengths)


def _part(job: Job, dims: tuple[int, ...], runs: Runs, expand: int) -> OwnedPart:
    o, comm = job.options, job.comm
    dims = (*dims[:-1], dims[-1] * expand)
    offsets, lengths = runs = Runs(runs.start * expand, runs.length * expand)
    if not o.unsorted:
        offsets, lengths = in_rows(runs, dims[-1])
    starts = np.stack(np.unravel_index(offsets, dims), axis=1).astype(np.int64).reshape(len(offsets), len(dims))
    counts = np.ones_like(starts)
    counts[:, -1] = lengths
    everyone = comm.gather((offsets, lengths))
    owner = None
    if everyone is not None:
        owner = np.full(int(np.prod(dims)), -1, np.int32)
        for rank, (at, n) in enumerate(everyone):
            # every cell of every run
            cells = np.repeat(at - (np.cumsum(n) - n), n) + np.arange(int(n.sum()))
            owner[cells] = rank
    return OwnedPart(starts, counts, offsets, lengths, owner)


def value_of(dtype: Any, rank: int) -> Any:
    """What a rank writes: its number, or a letter."""
    return bytes([ord("a") + rank % 26]) if np.dtype(dtype).kind == "S" else rank


def path_of(job: Job, name: str, file: CaseFile) -> str:
    """Where a peer's file is; the peer that has no suffix is the one whose files stay."""
    root, suffix = os.path.splitext(job.options.output or os.path.join(job.folder, "e3sm.nc"))
    which = "_" + file.name.partition("_")[2] if len(file.name) == 4 else ""
    return f"{root}{which}{suffix}{name}"


Buffers = dict[tuple[str, str], npt.NDArray[Any]]


def buffers(setup: Setup, value: int, *, gap: int, stride: int) -> tuple[Buffers, list[npt.NDArray[Any]]]:
    """An array for each variable that has a map, as it lies in a program's memory, and the memory they lie in.

    Numbers are double or int, as in the C program. Arrays of a file and type are parts of one block of memory, one
    behind the other.

    Parameters
    ----------
    value : int
        That they hold.
    gap : int
        Elements between one variable's array and the next.
    stride : int
        Every so many elements of memory belong to an array.
    """
    found: Buffers = {}
    blocks = []
    for file in setup.files:
        for kind in ("i4", "f8"):
            variables = [v for v in file.variables if v.number and (np.dtype(v.dtype).kind == "i") == (kind == "i4")]
            sizes = [setup.parts[v.number - 1].cells * stride for v in variables]
            block = np.full(sum(sizes) + gap * len(variables), IDLE, kind)
            blocks.append(block)
            at = 0
            for variable, size in zip(variables, sizes, strict=True):
                part = block[at : at + size : stride]
                part[...] = value
                found[file.name, variable.name] = part
                at += size + gap
    return found, blocks


def untouched(setup: Setup, values: Mapping[tuple[str, str], npt.NDArray[Any]], blocks: list[npt.NDArray[Any]]) -> bool:
    """Whether the memory between the arrays is as it was."""
    used = sum(part.size for part in values.values())
    return sum(int((block == IDLE).sum()) for block in blocks) == sum(block.size for block in blocks) - used
