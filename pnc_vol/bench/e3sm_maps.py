"""Who writes which cells: the decomposition maps of E3SM-IO's cases, read from a file or made up.

A map gives each process a list of runs of cells, as offsets into the flattened dimensions (time apart) and lengths. The
maps that Northwestern University and Argonne National Laboratory publish with E3SM-IO come as files; maps of any other
size are made here, of the same kind: a cubed sphere whose columns are dealt to processes twice (in patches, and
scattered for the physics), an ocean of patches of whole columns, land in clumps on a latitude-longitude grid.

Knows: cells and processes. Does not know: variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol

__all__ = ["Map", "invented", "read_maps"]

Ints = npt.NDArray[np.int64]
Runs = tuple[Ints, Ints]


@dataclass(frozen=True)
class Map:
    """One decomposition.

    dims : lengths of the dimensions, without time.
    nreqs, fill_starts : int64[processes], runs of each process, and how many of them carry data: the ones before.
    offsets, lengths : int64[sum of nreqs], one process's behind the other's; elements.
    """

    dims: tuple[int, ...]
    nreqs: Ints
    fill_starts: Ints
    offsets: Ints
    lengths: Ints

    def of_rank(self, rank: int, ranks: int, *, sort: bool = True, compat: bool = False, expand: int = 1) -> Runs:
        """Offsets and lengths of the data cells that one of `ranks` writes.

        Parameters
        ----------
        sort : bool
            Runs in ascending order, and those that touch joined, within a row.
        compat : bool
            Read the lists as the C program does when it does not write fill values: a process's list begins behind the
            *data* runs of the others, though it is stored behind all of theirs. It then writes other cells.
        expand : int
            Factor of the last dimension.
        """
        processes = len(self.nreqs)
        share, more = divmod(processes, ranks)
        first = rank * share + min(rank, more)
        last = first + share + (rank < more)
        stored = self.fill_starts if compat else self.nreqs
        begins = np.concatenate([[0], np.cumsum(stored)])
        parts = [slice(begins[p], begins[p] + self.fill_starts[p]) for p in range(first, last)]
        none = np.zeros(0, np.int64)
        offsets = np.concatenate([none, *(self.offsets[part] for part in parts)]) * expand
        lengths = np.concatenate([none, *(self.lengths[part] for part in parts)]) * expand
        return _joined(offsets, lengths, self.dims[-1] * expand) if sort else (offsets, lengths)


def _joined(offsets: Ints, lengths: Ints, row: int) -> Runs:
    """Sorted; neighbours joined, but never across the end of a row."""
    order = np.argsort(offsets, kind="stable")
    offsets, lengths = offsets[order], lengths[order]
    if not len(offsets):
        return offsets, lengths
    apart = (offsets[1:] != offsets[:-1] + lengths[:-1]) | (offsets[1:] % row == 0)
    heads = np.flatnonzero(np.concatenate([[True], apart]))
    return offsets[heads], np.add.reduceat(lengths, heads)


def read_maps(path: str) -> list[Map]:
    """The maps of a file of E3SM-IO (CDF-5).

    Raises
    ------
    OSError
        There is no such file, or it is none of NetCDF.
    """
    found = []
    with pnc_vol.File(path) as f:
        k = 1
        while f"D{k}.nreqs" in f:
            nreqs = f[f"D{k}.nreqs"][...].astype(np.int64)
            fill = f[f"D{k}.fill_starts"][...].astype(np.int64) if f"D{k}.fill_starts" in f else nreqs
            lists = [f[f"D{k}.{what}"][...].astype(np.int64) for what in ("offsets", "lengths")]
            dims = tuple(int(n) for n in np.atleast_1d(f.attrs[f"D{k}.dims"]))
            found.append(Map(dims, nreqs, fill, *lists))
            k += 1
    return found


def invented(case: str, size: int, processes: int) -> tuple[list[Map], dict[str, int]]:
    """Maps of a case at any size, and the lengths of the dimensions that they are about.

    Parameters
    ----------
    case : {"F", "G", "I"}
    size : int
        F: elements along an edge of the cube (``6 size^2 9 + 2`` columns). G: ``10 size^2 + 2`` cells. I: latitudes.
    processes : int
        That the cells are dealt to.
    """
    makers = {"F": _atmosphere, "G": _ocean, "I": _land}
    return makers[case](size, processes)


def _dealt(dims: tuple[int, ...], owners: Ints, processes: int, levels: int = 1, lengths: Any = 1) -> Map:
    """A map from the owner of each run of a level, in the order of runs; -1 is nobody's."""
    starts = np.cumsum(np.broadcast_to(lengths, owners.shape)) - lengths
    mine = [np.flatnonzero(owners == p) for p in range(processes)]
    size = int(np.prod(dims[1:])) if levels > 1 else 0
    shift = np.arange(levels)[:, None] * size
    offsets = [(starts[runs][None] + shift).ravel() for runs in mine]
    counts = [np.tile(np.broadcast_to(lengths, owners.shape)[runs], levels) for runs in mine]
    nreqs = np.array([len(one) for one in offsets], np.int64)
    return Map(dims, nreqs, nreqs, np.concatenate(offsets), np.concatenate(counts).astype(np.int64))


def _atmosphere(size: int, processes: int) -> tuple[list[Map], dict[str, int]]:
    columns, levels = 54 * size**2 + 2, 72
    # dynamics: neighbours together, along the faces of the cube, in pieces as long as an element's row
    patches = np.arange(columns) * processes // columns
    swapped = (np.arange(columns) // max(1, 3 * size)) % 7 == 3
    patches = np.where(swapped, np.roll(patches, columns // processes), patches)
    # physics: scattered, so that day and night cost all the same
    scattered = np.random.default_rng(0).permutation(np.arange(columns) % processes)
    maps = [
        _dealt((columns,), patches, processes),
        _dealt((columns,), scattered, processes),
        _dealt((levels, columns), scattered, processes, levels),
    ]
    rows = maps[0].dims[-1]
    lists = [_joined(*maps[0].of_rank(p, processes), rows) for p in range(processes)]
    nreqs = np.array([len(offsets) for offsets, _ in lists], np.int64)
    maps[0] = Map((columns,), nreqs, nreqs, *(np.concatenate([one[i] for one in lists]) for i in (0, 1)))
    return maps, {"ncol": columns, "lev": levels, "ilev": levels + 1}


def _ocean(size: int, processes: int) -> tuple[list[Map], dict[str, int]]:
    cells = 10 * size**2 + 2
    counts = {"nCells": cells, "nEdges": 3 * (cells - 2) + 1, "nVertices": 2 * (cells - 2) + 1}
    levels = {"nVertLevels": 100, "nVertLevelsP1": 101}

    def patches(n: int) -> Ints:
        """Owners of `n` points of a mesh whose numbering runs across the patches."""
        width = max(1, round(n**0.5))
        across = max(1, round(processes**0.5))
        x, y = np.arange(n) % width, np.arange(n) // width
        tile = (x * across // width) + across * (y * across // (n // width + 1))
        owners: Ints = np.minimum(tile, processes - 1).astype(np.int64)
        return owners

    def whole(name: str, depth: int) -> Map:
        return _dealt((counts[name], depth), patches(counts[name]), processes, lengths=depth)

    maps = [
        _dealt((counts["nCells"],), patches(counts["nCells"]), processes),
        _dealt((counts["nEdges"],), patches(counts["nEdges"]), processes),
        *(whole(name, levels["nVertLevels"]) for name in counts),
        whole("nCells", levels["nVertLevelsP1"]),
    ]
    return maps, counts | levels


def _land(size: int, processes: int) -> tuple[list[Map], dict[str, int]]:
    lat, lon = size, 3 * size // 2
    y, x = np.meshgrid(np.linspace(-1.5, 1.5, lat), np.linspace(0, 2 * np.pi, lon), indexing="ij")
    height = np.cos(2 * x + 1) * np.cos(y) + np.sin(3 * x - y) * np.cos(2 * y) + np.sin(4 * y)
    land = np.flatnonzero((height > np.quantile(height, 0.59)).ravel())
    owners = np.full(lat * lon, -1, np.int64)
    owners[land] = (np.arange(len(land)) // 6) % processes
    depths = {"levgrnd": 15, "levlak": 10, "ltype": 9, "natpft": 17}
    maps = [_dealt((lat, lon), owners, processes)]
    maps += [_dealt((depth, lat, lon), owners, processes, depth) for depth in depths.values()]
    return maps, {"lat": lat, "lon": lon, "levdcmp": 15, **depths}
