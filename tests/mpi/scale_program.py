"""A program that flushes in all usual ways, for real and for virtual ranks: what each flush cost this rank, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

import pnc_vol

COLUMNS, LEVELS = 1024, 3


def values(index: Any) -> Any:
    """What an element has: its place."""
    return np.asarray(index, "f8") + 0.5


def owned(rank: int, size: int) -> Any:
    """Columns of a rank: scattered, as those of E3SM's F case are."""
    return np.random.default_rng(5).permutation(COLUMNS)[rank::size]


def counted(comm: Any, rank: int, size: int, path: str) -> dict[str, dict[str, int]]:
    """Write `path`; what each kind of flush cost."""
    told = {}
    with pnc_vol.File(path, "w", driver="posix", comm=comm) as f:

        def flush(name: str) -> None:
            f.flush()
            told[name] = f.statistics()["communication_of_flush"]

        x = f.create_dataset("x", (LEVELS, COLUMNS), "f8")
        t = f.create_dataset("t", (0, size), "f8", maxshape=(None, size))
        flush("definitions")
        flush("nothing")
        mine = np.sort(owned(rank, size))
        for level in range(LEVELS):
            starts = np.stack((np.full(len(mine), level), mine), axis=1)
            x.iput_many(starts, np.ones_like(starts), values(level * COLUMNS + mine))
        flush("scattered")
        t.resize(1, axis=0)
        t[0, rank] = rank
        flush("record")
        t.resize(2, axis=0)
        t[1, rank] = rank
        flush("record again")
        flush("nothing again")
        # What another rank wrote, so that hardly anything is on the reader's own node.
        other = np.sort(owned((rank + 1) % size, size))
        starts = np.stack((np.full(len(other), 1), other), axis=1)
        pieces, overlapping = x.iget_many(starts, np.ones_like(starts)), x.iget(np.s_[2, ::3])
        flush("posted reads")
        assert np.array_equal(np.ravel(pieces.array), values(COLUMNS + other))
        assert np.array_equal(overlapping.array, values(2 * COLUMNS + np.arange(0, COLUMNS, 3)))
        assert f.statistics()["read_choice"]["transport"] == "aggregate"
        with x.collective:
            assert np.array_equal(x[0, other], values(other))
            assert x[:, other[:0]].shape == (LEVELS, 0)
        told["collective reads"] = f.statistics()["communication"]
    return told


def check(path: str, size: int) -> None:
    """Compare every byte of the data."""
    with pnc_vol.File(path, "r") as f:
        assert np.array_equal(f["x"][...].ravel(), values(np.arange(LEVELS * COLUMNS)))
        assert np.array_equal(f["t"][...], np.tile(np.arange(size, dtype="f8"), (2, 1)))
