"""Changes of a file that exists, one by one, from which scenarios are made.

Knows: pnc_vol's objects, and numpy, in which each change is told a second time. Does not know: recordings, states.

Rules
-----
1. `then` says what the file holds after a change, and never asks the file.
2. A change can follow any other one that leaves it what it `needs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import pnc_vol
from crash.promise import Contents, contents_of

__all__ = [
    "ACTS",
    "FIXED",
    "PAIRS",
    "RECORDS",
    "START",
    "START_FIXED",
    "Act",
    "fill_fixed",
    "fill_start",
    "pairs",
    "rows",
]

FIXED = np.arange(300.0).reshape(30, 10)
RECORDS = np.arange(40, dtype="i4").reshape(4, 10)
PAIRS = np.dtype([("n", "i4"), ("x", "f8", (2,))])
SQUARE = np.full((12, 12), 4, "i4")


def pairs(n: int, add: int = 0) -> Any:
    """`n` elements of a compound."""
    made = np.zeros(n, PAIRS)
    made["n"], made["x"] = np.arange(n) + add, (np.arange(2 * n) + add + 0.5).reshape(n, 2)
    return made


def rows(*lists: list[int]) -> Any:
    """Rows of a ragged dataset."""
    made = np.empty(len(lists), object)
    for i, row in enumerate(lists):
        made[i] = np.array(row, "i4")
    return made


def texts(*words: str) -> Any:
    """Strings, as a reader is given them."""
    return np.array([word.encode() for word in words], object)


def fill_start(f: Any) -> None:
    """Something of all kinds, in an empty file."""
    f["a"] = FIXED
    f.create_dataset("r", data=RECORDS, maxshape=(None, 10))
    f.create_dataset("z", data=SQUARE, maxshape=(20, 20))
    f["p"] = pairs(6)
    f.create_dataset("v", (3,), pnc_vol.vlen_dtype("i4"))[:] = rows([1, 2], [3], [4, 5, 6])
    f.create_dataset("t", (2,), pnc_vol.string_dtype())[:] = ["one", "two"]
    f.attrs["title"] = "start"


START = contents_of(
    a=FIXED, r=RECORDS, z=SQUARE, p=pairs(6), v=rows([1, 2], [3], [4, 5, 6]), t=texts("one", "two")
).having(attrs={"@title": "start"})


def fill_fixed(f: Any) -> None:
    """As `fill_start`, without records: what is laid out anew gets a place behind the others, in the same file."""
    fill_start(f)
    del f["r"]


START_FIXED = START.having(without=["r"])


class Act(NamedTuple):
    """A change.

    do : callable, given an open file, makes the change; the caller flushes.
    then : callable, given the contents before, says what they are afterwards.
    """

    do: Callable[[Any], None]
    then: Callable[[Contents], Contents]


def _with(name: str, index: Any, value: Any) -> Callable[[Contents], Contents]:
    """The contents with some elements of a dataset changed."""

    def then(before: Contents) -> Contents:
        array = before.datasets[name].copy()
        array[index] = value
        return before.having({name: array})

    return then


def _resized(name: str, shape: tuple[int, ...]) -> Callable[[Contents], Contents]:
    """The contents with a dataset of another shape."""

    def then(before: Contents) -> Contents:
        old = before.datasets[name]
        made = np.zeros(shape, old.dtype)
        common = tuple(slice(0, min(a, b)) for a, b in zip(shape, old.shape, strict=True))
        made[common] = old[common]
        return before.having({name: made})

    return then


def _append(f: Any) -> None:
    n = f["r"].shape[0]
    f["r"].resize(n + 3, axis=0)
    f["r"][n:] = 7


def _appended(before: Contents) -> Contents:
    old = before.datasets["r"]
    return before.having({"r": np.concatenate([old, np.full((3, 10), 7, "i4")])})


def _attribute(key: str, value: Any) -> Act:
    def do(f: Any) -> None:
        f.attrs[key] = value

    return Act(do, lambda before: before.having(attrs={f"@{key}": value}))


def _define(f: Any) -> None:
    f["new"] = 2 * FIXED


ACTS: dict[str, Act] = {
    "data": Act(lambda f: f["a"].__setitem__(slice(5, 20), -1.0), _with("a", slice(5, 20), -1.0)),
    "append": Act(_append, _appended),
    "fewer records": Act(lambda f: f["r"].resize(2, axis=0), _resized("r", (2, 10))),
    "attribute": _attribute("note", "x" * 50),
    "long attribute": _attribute("much", np.arange(3000, dtype="i4")),
    "define": Act(_define, lambda before: before.having({"new": 2 * FIXED})),
    "ragged": Act(lambda f: f["v"].__setitem__(1, [30, 31]), _with("v", 1, (30, 31))),
    "wider": Act(lambda f: f["z"].resize((14, 15)), _resized("z", (14, 15))),
    "shrink": Act(lambda f: f["z"].resize((5, 12)), _resized("z", (5, 12))),
    "shrink, second axis": Act(lambda f: f["z"].resize((12, 5)), _resized("z", (12, 5))),
    "string": Act(lambda f: f["t"].__setitem__(1, "a much longer string"), _with("t", 1, b"a much longer string")),
}
