"""Who writes which cells: decomposition maps of the kind of E3SM-IO's cases, made up at any size.

The maps that Northwestern University and Argonne National Laboratory publish with E3SM-IO are read by
`interop.map_files`. Those that are made here are of the same kind: a cubed sphere whose columns are dealt to processes
twice (in patches, and scattered for the physics), an ocean of patches of whole columns, land in clumps on a
latitude-longitude grid.

Knows: cells and processes. Does not know: variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.interop.map_files import Map

__all__ = ["invented"]

Ints = npt.NDArray[np.int64]


def invented(case: str, size: int, processes: int, only: int | None = None) -> tuple[list[Map], dict[str, int]]:
    """Maps of a case at any size, and the lengths of the dimensions that they are about.

    Parameters
    ----------
    case : {"F", "G", "I"}
    size : int
        F: elements along an edge of the cube (``6 size^2 9 + 2`` columns). G: ``10 size^2 + 2`` cells. I: latitudes.
    processes : int
        That the cells are dealt to.
    only : int, optional
        Make the lists of the first so many processes alone: those of all are more than one machine's memory where
        there are thousands.
    """
    makers = {"F": _atmosphere, "G": _ocean, "I": _land}
    return makers[case](size, processes, only or processes)


def _dealt(dims: tuple[int, ...], owners: Ints, only: int, levels: int = 1, lengths: Any = 1) -> Map:
    """A map from the owner of each run of a level, in the order of runs, for the first `only`; -1 is nobody's."""
    starts = np.cumsum(np.broadcast_to(lengths, owners.shape)) - lengths
    mine = [np.flatnonzero(owners == p) for p in range(only)]
    size = int(np.prod(dims[1:])) if levels > 1 else 0
    shift = np.arange(levels)[:, None] * size
    offsets = [(starts[runs][None] + shift).ravel() for runs in mine]
    counts = [np.tile(np.broadcast_to(lengths, owners.shape)[runs], levels) for runs in mine]
    nreqs = np.array([len(one) for one in offsets], np.int64)
    return Map(dims, nreqs, nreqs, np.concatenate(offsets), np.concatenate(counts).astype(np.int64))


def _atmosphere(size: int, processes: int, only: int) -> tuple[list[Map], dict[str, int]]:
    columns, levels = 54 * size**2 + 2, 72
    # dynamics: neighbours together, along the faces of the cube, in pieces as long as an element's row
    patches = np.arange(columns) * processes // columns
    swapped = (np.arange(columns) // max(1, 3 * size)) % 7 == 3
    patches = np.where(swapped, np.roll(patches, columns // processes), patches)
    # physics: scattered, so that day and night cost all the same
    scattered = np.random.default_rng(0).permutation(np.arange(columns) % processes)
    maps = [
        _dealt((columns,), patches, only),
        _dealt((columns,), scattered, only),
        _dealt((levels, columns), scattered, only, levels),
    ]
    lists = [maps[0].of_rank(p, only) for p in range(only)]
    nreqs = np.array([len(offsets) for offsets, _ in lists], np.int64)
    maps[0] = Map((columns,), nreqs, nreqs, *(np.concatenate([one[i] for one in lists]) for i in (0, 1)))
    return maps, {"ncol": columns, "lev": levels, "ilev": levels + 1}


def _ocean(size: int, processes: int, only: int) -> tuple[list[Map], dict[str, int]]:
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
        return _dealt((counts[name], depth), patches(counts[name]), only, lengths=depth)

    maps = [
        _dealt((counts["nCells"],), patches(counts["nCells"]), only),
        _dealt((counts["nEdges"],), patches(counts["nEdges"]), only),
        *(whole(name, levels["nVertLevels"]) for name in counts),
        whole("nCells", levels["nVertLevelsP1"]),
    ]
    return maps, counts | levels


def _land(size: int, processes: int, only: int) -> tuple[list[Map], dict[str, int]]:
    lat, lon = size, 3 * size // 2
    y, x = np.meshgrid(np.linspace(-1.5, 1.5, lat), np.linspace(0, 2 * np.pi, lon), indexing="ij")
    height = np.cos(2 * x + 1) * np.cos(y) + np.sin(3 * x - y) * np.cos(2 * y) + np.sin(4 * y)
    land = np.flatnonzero((height > np.quantile(height, 0.59)).ravel())
    owners = np.full(lat * lon, -1, np.int64)
    owners[land] = (np.arange(len(land)) // 6) % processes
    depths = {"levgrnd": 15, "levlak": 10, "ltype": 9, "natpft": 17}
    maps = [_dealt((lat, lon), owners, only)]
    maps += [_dealt((depth, lat, lon), owners, only, depth) for depth in depths.values()]
    return maps, {"lat": lat, "lon": lon, "levdcmp": 15, **depths}
