"""E3SM-IO's map files say which process of a climate model writes which cells.

A map gives each of the processes that made it a list of runs of cells, as offsets into the flattened dimensions (time
apart) and lengths. A file has several, D1, D2, ..., as NetCDF or as HDF5 with the same names.

Knows: the objects of a map file, how its processes are dealt to ranks. Does not know: variables.

Rules
-----
1. One rank reads; each gets the runs of its processes alone.
2. Within the runs of a process the first ``fill_starts`` carry data. The others cover cells that nobody owns, for
   programs that write fill values there; they are no part of a map here. A file without ``fill_starts`` has none.
3. ``compat`` repeats a mistake of the C program, for files that are compared with its own: see `Map.share`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.convert.either import open_either
from pnc_vol.errors import FormatError
from pnc_vol.extents.decomposition import Decomposition
from pnc_vol.extents.model import Runs, before
from pnc_vol.extents.subarrays import join_runs
from pnc_vol.ranks.comm import Comm, on_root, serial
from pnc_vol.ranks.mpi_comm import over

__all__ = ["Map", "dealt", "in_rows", "read_decompositions", "read_maps"]

Ints = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Map:
    """One map of a file.

    Attributes
    ----------
    dims : tuple of int, lengths of the dimensions, without time.
    nreqs, fill_starts : int[processes], runs of each process, and how many of them carry data: the first ones.
    offsets, lengths : int[sum of nreqs], one process's behind the other's; elements.
    """

    dims: tuple[int, ...]
    nreqs: Ints
    fill_starts: Ints
    offsets: Ints
    lengths: Ints

    def share(self, rank: int, ranks: int, *, compat: bool = False) -> tuple[Ints, Ints]:
        """Return offsets and lengths of the runs of one of `ranks`, as stored: those of its processes, one behind
        another.

        Each rank has as many processes as any other, or one more; ranks beyond the number of processes have none.

        Parameters
        ----------
        compat : bool
            Read the lists as the C program does when it writes no fill values: a process's list begins behind the
            *data* runs of the others, though it is stored behind all of theirs. It then writes other cells.
        """
        share, more = divmod(len(self.nreqs), ranks)
        first = rank * share + min(rank, more)
        begins = before((self.fill_starts if compat else self.nreqs).astype(np.int64))
        parts = [slice(begins[p], begins[p] + self.fill_starts[p]) for p in range(first, first + share + (rank < more))]
        offsets, lengths = (
            np.concatenate([column[:0], *(column[part] for part in parts)]) for column in (self.offsets, self.lengths)
        )
        return offsets, lengths

    def of_rank(self, rank: int, ranks: int, *, compat: bool = False) -> Runs:
        """Return the runs that one of `ranks` writes: see `share` and `in_rows`."""
        offsets, lengths = self.share(rank, ranks, compat=compat)
        return in_rows(Runs(offsets.astype(np.int64), lengths.astype(np.int64)), self.dims[-1])


def in_rows(runs: Runs, row: int) -> Runs:
    """Return runs in ascending order, neighbours joined, but never across the end of a row, as E3SM-IO has them.

    Examples
    --------
    >>> [column.tolist() for column in in_rows(Runs(np.array([6, 2, 0, 4]), np.array([1, 2, 2, 2])), 4)]
    [[0, 4], [4, 3]]
    """
    start, length = runs
    if bool((start[1:] < start[:-1]).any()):
        order = np.argsort(start, kind="stable")
        start, length = start[order], length[order]
    return join_runs(Runs(start, length), row)


def read_maps(path: str | os.PathLike[str]) -> list[Map]:
    """Return the maps of a file, whole.

    Raises
    ------
    OSError
        There is no such file, or it is neither NetCDF nor HDF5.
    FormatError
        It has no maps, or one contradicts itself.
    MissingPackageError
        It is an HDF5 file, and h5py is not installed.
    """
    found: list[Map] = []
    with open_either(path) as f:
        while f"D{len(found) + 1}.nreqs" in f:
            found.append(_read(f, f"D{len(found) + 1}", os.fsdecode(path)))
    if not found:
        raise FormatError(
            f"{os.fsdecode(path)}: there is no variable 'D1.nreqs'; a file of decomposition maps has it",
            field="D1.nreqs",
        )
    return found


def _read(f: Any, name: str, path: str) -> Map:
    for what in ("offsets", "lengths"):
        if f"{name}.{what}" not in f:
            raise FormatError(f"{path}: there is no variable '{name}.{what}'", field=f"{name}.{what}")
    if f"{name}.dims" not in f.attrs:
        raise FormatError(f"{path}: there is no attribute '{name}.dims'", field=f"{name}.dims")
    given = np.atleast_1d(f.attrs[f"{name}.dims"])
    dims = tuple(given.tolist()) if given.dtype.kind in "iu" else ()
    nreqs, offsets, lengths = (_integers(f, f"{name}.{what}", path) for what in ("nreqs", "offsets", "lengths"))
    fill = _integers(f, f"{name}.fill_starts", path) if f"{name}.fill_starts" in f else nreqs
    total, nelems = int(nreqs.sum(dtype=np.int64)), min(math.prod(dims), np.iinfo(np.int64).max)
    wrong = ""
    if min(dims, default=0) < 1:
        wrong = f"the attribute '{name}.dims' is {given.tolist()}: lengths of dimensions are needed"
    elif not (total == offsets.size == lengths.size) or int(nreqs.min(initial=0)) < 0:
        wrong = f"'{name}.nreqs' counts {total} runs; there are {offsets.size} offsets and {lengths.size} lengths"
    elif fill.shape != nreqs.shape or bool(((fill < 0) | (fill > nreqs)).any()):
        wrong = f"'{name}.fill_starts' must be 0 to the number of runs of each process"
    else:
        bad = np.flatnonzero((offsets < 0) | (lengths < 0) | (offsets > nelems - lengths.astype(np.int64)))
        if bad.size:
            i = int(bad[0])
            wrong = (
                f"'{name}.offsets[{i}]' is {offsets[i]}, and {lengths[i]} elements from it on do not fit into {dims}"
            )
    if wrong:
        raise FormatError(f"{path}: {wrong}", field=wrong.split("'")[1])
    return Map(dims, nreqs, fill, offsets, lengths)


def _integers(f: Any, name: str, path: str) -> Ints:
    values: Ints = f[name][...]
    if values.dtype.kind not in "iu" or values.ndim != 1:
        text = f"{name!r} is {values.dtype} with {values.ndim} axes; integers with one are needed"
        raise FormatError(f"{path}: {text}", field=name)
    return values


def dealt(maps: list[Map] | None, comm: Comm, *, compat: bool = False) -> list[tuple[tuple[int, ...], Runs]]:
    """Return each rank's share of maps that rank 0 has (collective).

    Parameters
    ----------
    maps : list of Map on rank 0, None on the others.
    comm : Comm
    compat : bool, see `Map.share`.

    Returns
    -------
    list of (tuple of int, Runs)
        For each map its dimensions and the runs as stored.
    """
    known = comm.broadcast("maps", None if maps is None else [_kind(one) for one in maps])
    found: list[tuple[tuple[int, ...], Runs]] = []
    for k, (code, dims) in enumerate(known):
        parcels: dict[int, npt.NDArray[np.uint8]] = {}
        with comm.errors_shared():
            if maps is not None:
                shares = ((rank, maps[k].share(rank, comm.size, compat=compat)) for rank in range(comm.size))
                parcels = {r: np.concatenate(share).astype(code, copy=False).view(np.uint8) for r, share in shares}
        columns = comm.exchange("maps", parcels).get(0, np.empty(0, np.uint8)).view(code).astype(np.int64)
        found.append((tuple(map(int, dims)), Runs(*np.split(columns, 2))))
    return found


def _kind(one: Map) -> tuple[str, list[int]]:
    """Return the type of the numbers of a map, and its dimensions."""
    dtype = np.result_type(one.offsets, one.lengths).newbyteorder("=")
    return dtype.str, [int(n) for n in one.dims]


def read_decompositions(path: str | os.PathLike[str], comm: Any = None, *, compat: bool = False) -> list[Decomposition]:
    """Return what this rank owns by the maps of a file of E3SM-IO (collective).

    Rank 0 reads the file; the processes of the maps are dealt to the ranks in contiguous parts.

    Parameters
    ----------
    path : path, NetCDF or HDF5.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks; without it one process gets everything.
    compat : bool
        Repeat the mistake that E3SM-IO's C program makes with maps that have fill segments (its I case): it takes runs
        from wrong places of the lists. For comparing files with its own.

    Returns
    -------
    list of Decomposition
        D1, D2, ...; in ascending order, neighbours joined within rows.

    Raises
    ------
    OSError, FormatError
        The file cannot be read, or its maps contradict themselves; on all ranks.
    MissingPackageError
        It is an HDF5 file, and h5py is not installed.

    Examples
    --------
    >>> import os, tempfile
    >>> import pnc_vol
    >>> path = os.path.join(tempfile.mkdtemp(), "map.nc")
    >>> with pnc_vol.File(path, "w") as f:
    ...     f.attrs["D1.dims"] = np.array([2, 4], "i4")
    ...     for name, values in {"nreqs": [1, 2], "offsets": [0, 4, 3], "lengths": [3, 4, 1]}.items():
    ...         f["D1." + name] = np.array(values, "i4")
    >>> pnc_vol.read_decompositions(path)
    [<Decomposition of 2 runs in (2, 4)>]
    """
    ranks = serial() if comm is None else over(comm)
    try:
        maps: list[Map] = []

        on_root(ranks, "read_decompositions", lambda: maps.extend(read_maps(path)))
        shares = dealt(maps if ranks.rank == 0 else None, ranks, compat=compat)
    finally:
        ranks.close()
    runs = ((dims, in_rows(share, dims[-1])) for dims, share in shares)
    return [Decomposition.from_runs(start, length, dims) for dims, (start, length) in runs]
