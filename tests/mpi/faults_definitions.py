"""Definitions that differ between ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fault_scenarios import LAST, RANK, SIZE, holds, opened, same, usable
from scenarios import scenario

import pnc_vol as h5py
from pnc_vol.errors import DefinitionMismatchError

DIFFERENT: tuple[tuple[Callable[[h5py.File], Any], tuple[str, ...]], ...] = (
    (lambda f: f.create_dataset("b" if RANK == 1 else "a", (3,), "f4"), ("'a'", "'b'", "rank 1")),
    (lambda f: f.create_dataset("a", (3 + (RANK == 0),), "f4"), ("rank 0", "3", "4")),
    (lambda f: f.create_dataset("a", (3,), "f8" if RANK == LAST else "i4"), ("'a'",)),
    (lambda f: f["x"].attrs.__setitem__("units", "m" if RANK else "km"), ("units", "'x'")),
    (lambda f: f.create_dataset("more", (3,), "f4") if RANK == 1 else None, ("'more'", "rank 1")),
    # the dataset is named as its user knows it, not the dimensions and the type number that it brings
    (
        lambda f: f.create_dataset("deep/only", (7, 9), "u2") if RANK == LAST else None,
        (f"dataset 'deep/only': uint16 of shape (7, 9) along (dim_7, dim_9) on rank {LAST}, not on rank",),
    ),
    (lambda f: [f.create_dataset(name, (3,), "f4") for name in ("ba" if RANK == 0 else "ab")], ("'a'", "'b'")),
    (lambda f: f.create_dataset("a", (3,), "f4", fillvalue=RANK), ("'a'",)),
    (lambda f: f.create_group(f"g{RANK}"), ()),
)
"""Names, shapes, types, attributes, one more on a rank, an order, a fill value, groups; what the error says."""


@scenario
def other_definitions() -> None:
    for number, (differently, words) in enumerate(DIFFERENT):
        f = opened(name=str(number))
        f.create_dataset("x", (3,), "f4")
        differently(f)
        told = same(f.flush, DefinitionMismatchError, *words)
        assert told["ranks"], told
        # Nothing was agreed, so the file cannot be closed in order either; nobody waits.
        same(f.close, DefinitionMismatchError)
        assert not f


@scenario
def other_length() -> None:
    """A resize is a definition."""
    f = opened()
    t = f.create_dataset("t", (2,), "f4", maxshape=(None,))
    f.flush()
    if RANK == 1:
        t.resize(5, axis=0)
        t[4] = 1
    same(f.flush, DefinitionMismatchError, "rank 1")
    if RANK != 1:
        t.resize(5, axis=0)
    f.flush()
    assert t[...].tolist() == [0, 0, 0, 0, 1]
    usable(f)
    f.close()


@scenario
def corrected() -> None:
    """The odd rank defines what is missing; the next flush is in order and nothing was lost."""
    f = opened()
    x = f.create_dataset("x", (SIZE,), "f4")
    x[RANK] = RANK
    if RANK == 0:
        f.attrs["a"] = 1
    same(f.flush, DefinitionMismatchError, "'a'", "rank 0")
    f.attrs["a"] = RANK + 40
    same(f.flush, DefinitionMismatchError, "'a'", "40 (int64) on rank 0")
    f.attrs["a"] = 1
    f.flush()
    assert x[...].tolist() == list(range(SIZE))
    f.close()
    holds("x", np.arange(SIZE))
