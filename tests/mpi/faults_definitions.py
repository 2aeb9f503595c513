"""Definitions that differ between ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fault_scenarios import LAST, RANK, SIZE, holds, opened, same, scenario, usable

import pnc_vol as h5py
from pnc_vol.errors import (
    DefinitionMismatchError,
)


def _defines(differently: Callable[[h5py.File], None], *words: str) -> None:
    f = opened()
    f.create_dataset("x", (3,), "f4")
    differently(f)
    told = same(f.flush, DefinitionMismatchError, *words)
    assert told["ranks"], told
    # Nothing was agreed, so the file cannot be closed in order either; nobody waits.
    told = same(f.close, DefinitionMismatchError)
    assert not f


@scenario
def other_names() -> None:
    _defines(lambda f: f.create_dataset("b" if RANK == 1 else "a", (3,), "f4"), "'a'", "'b'", "rank 1")


@scenario
def other_shapes() -> None:
    _defines(lambda f: f.create_dataset("a", (3 + (RANK == 0),), "f4"), "rank 0", "3", "4")


@scenario
def other_types() -> None:
    _defines(lambda f: f.create_dataset("a", (3,), "f8" if RANK == LAST else "i4"), "'a'")


@scenario
def other_attributes() -> None:
    _defines(lambda f: f["x"].attrs.__setitem__("units", "m" if RANK else "km"), "units", "'x'")


@scenario
def one_more() -> None:
    _defines(lambda f: f.create_dataset("more", (3,), "f4") if RANK == 1 else None, "'more'", "rank 1")


@scenario
def one_more_with_new_dimensions() -> None:
    """The dataset is named as its user knows it, not the dimensions and the type number that it brings."""
    _defines(
        lambda f: f.create_dataset("deep/only", (7, 9), "u2") if RANK == LAST else None,
        f"dataset 'deep/only': uint16 of shape (7, 9) along (dim_7, dim_9) on rank {LAST}, not on rank",
    )


@scenario
def other_order() -> None:
    def swapped(f: h5py.File) -> None:
        for name in "ba" if RANK == 0 else "ab":
            f.create_dataset(name, (3,), "f4")

    _defines(swapped, "'a'", "'b'")


@scenario
def other_fill() -> None:
    _defines(lambda f: f.create_dataset("a", (3,), "f4", fillvalue=RANK), "'a'")


@scenario
def other_groups() -> None:
    _defines(lambda f: f.create_group(f"g{RANK}"))


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
