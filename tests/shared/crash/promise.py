"""What must be readable after a crash, according to the README's table, and whether it is.

Knows: contents of a file as a reader sees them, the steps of a program. Does not know: how states are made, how files
are written.

Rules
-----
1. After a kill the definitions are those of the last step that returned, or those of the step under way. Each element
   has the old value or the new one; an element that was not there before has the new one.
2. After a power failure the same holds from the last durable step on: definitions of it or of a later step, and each
   element that it had has the value of it or of a later step. Other elements may have any value, and so may those of
   records that a later step cut off and a still later one appended again. The number of records is written by itself,
   as data are: it may be that of another of these steps than the definitions are.
3. In a state with a torn write an element may consist of old and new bytes. A row of a ragged dataset is old or new, in
   every state.
4. The fields of a compound are elements of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["NO_FILE", "Contents", "Step", "broken", "contents_of", "read"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a reader sees.

    datasets : mapping of path to array
        Strings are bytes in an array of objects, rows of ragged datasets are tuples.
    attrs : mapping of ``"path@name"`` to value
    groups : frozenset of str
    there : bool, whether there is a file.
    """

    datasets: Mapping[str, Array] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    there: bool = True

    def having(
        self,
        datasets: Mapping[str, Any] | None = None,
        *,
        attrs: Mapping[str, Any] | None = None,
        without: Sequence[str] = (),
    ) -> Contents:
        """These contents with other or more datasets and attributes."""
        kept = {name: value for name, value in self.datasets.items() if name not in without}
        made = {name: plain(np.asarray(value)) for name, value in (datasets or {}).items()}
        more = {name: np.asarray(value).tolist() for name, value in (attrs or {}).items()}
        return Contents({**kept, **made}, {**self.attrs, **more}, self.groups)


NO_FILE = Contents(there=False)


def contents_of(**datasets: Any) -> Contents:
    """Contents of datasets alone.

    Examples
    --------
    >>> sorted(contents_of(x=[1, 2], y=3.0).datasets)
    ['x', 'y']
    """
    return Contents().having(datasets)


class Step(NamedTuple):
    """A part of a program: from its first change on the file may hold `contents`, and after it, it does.

    begin, end : int
        Changes that were made before the step, and when it returned.
    kind : str
        "flush" or "durable"; "log": `contents` are there after a recovery of the log, not before; "safe log": also
        after a power failure; "held": after a recovery, and maybe before; "unsafe": nothing is promised while the step
        is under way.
    """

    begin: int
    end: int
    contents: Contents
    kind: str = "flush"


def plain(array: Array) -> Array:
    """An array whose elements can be compared: strings as bytes, rows as tuples."""
    if array.dtype.kind not in "OUS":
        return array
    made = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        item = array[index]
        if isinstance(item, str):
            item = item.encode()
        made[index] = tuple(item.tolist()) if isinstance(item, np.ndarray) else item
    return made


def read(path: str, opened: Any) -> Contents:
    """What a reader sees of an open file.

    Parameters
    ----------
    path : str
        For messages.
    opened : pnc_vol.File
    """
    datasets: dict[str, Array] = {}
    attrs: dict[str, Any] = {}
    groups: set[str] = set()

    def visit(name: str, found: Any) -> None:
        if hasattr(found, "dtype"):
            datasets[name] = plain(np.asarray(found[()]))
        else:
            groups.add(name)
        for key, value in found.attrs.items():
            attrs[f"{name}@{key}"] = np.asarray(value).tolist()

    opened.visititems(visit)
    for key, value in opened.attrs.items():
        attrs[f"@{key}"] = np.asarray(value).tolist()
    return Contents(datasets, attrs, frozenset(groups))


def broken(seen: Contents, allowed: Sequence[Contents], *, torn: bool, all_known: bool) -> str:
    """What is wrong with contents; "" if nothing is.

    Parameters
    ----------
    seen : Contents
    allowed : sequence of Contents
        The promised contents first, then those of the steps that began later.
    torn : bool
        Elements may consist of bytes of several allowed values.
    all_known : bool
        Elements that the promised contents do not have must have a value of a later step; else they may have any.
    """
    if seen.there not in {contents.there for contents in allowed}:
        return "there is no file" if not seen.there else "there is a file"
    if not seen.there:
        return ""
    told = [_definitions(contents) for contents in allowed if contents.there]
    mine = _definitions(seen)
    fits = [i for i, other in enumerate(told) if mine == other or (not all_known and _other_count(mine, other, told))]
    if not fits:
        differ = [sorted(str(name) for name in {*mine, *other} if mine.get(name) != other.get(name)) for other in told]
        at = differ[-1][0]
        return f"its definitions differ from those of {len(told)} steps in {differ}; {at!r} is {mine.get(at)!r:.300}"
    for name, array in seen.datasets.items():
        values = [contents.datasets[name] for contents in allowed if name in contents.datasets]
        promised = allowed[0].datasets.get(name)
        if not all_known and promised is not None:
            promised = _never_cut(promised, [contents.datasets.get(name) for contents in allowed[: fits[-1] + 1]])
        wrong = _wrong(array, promised, values, torn=torn, all_known=all_known)
        if wrong.any():
            index = tuple(np.argwhere(wrong)[0].tolist())
            at = ", ".join(map(str, index))
            may = [value[index] for value in values if _has(value, index)]
            wrong_ones = f"{int(wrong.sum())} of {wrong.size} elements of {name!r} are wrong"
            return f"{wrong_ones}: [{at}] is {array[index]!r}, not one of {may}"
    return ""


def _definitions(contents: Contents) -> dict[str, Any]:
    datasets = {name: (array.shape, array.dtype.newbyteorder("=")) for name, array in contents.datasets.items()}
    return {**datasets, **contents.attrs, **dict.fromkeys(contents.groups, "group")}


def _other_count(mine: dict[str, Any], other: dict[str, Any], told: list[dict[str, Any]]) -> bool:
    """Whether definitions are those of a step, but for the number of records, which is that of another step.

    A set of subfiles has fewer than a step where they are not there whole, and never fewer than were promised.
    """
    differ = [name for name in {*mine, *other} if mine.get(name) != other.get(name)]
    for name in differ:
        one, theirs = mine.get(name), other.get(name)
        if not (isinstance(one, tuple) and isinstance(theirs, tuple) and one[0] and theirs[0]):
            return False
        promised = told[0].get(name)
        least = promised[0][0] if isinstance(promised, tuple) and promised[0] else 0
        fewer = least <= one[0][0] < theirs[0][0]
        if (one[0][1:], one[1]) != (theirs[0][1:], theirs[1]):
            return False
        if not fewer and one not in [step.get(name) for step in told]:
            return False
    return len({mine[name][0][0] for name in differ}) == 1


def _never_cut(promised: Array, steps: Sequence[Array | None]) -> Array:
    """The first records of a dataset that were there in all of some steps."""
    counts = [0 if array is None else len(array) for array in steps if promised.ndim]
    return promised[: min(counts, default=0)] if promised.ndim else promised


def _has(array: Array, index: tuple[int, ...]) -> bool:
    return len(index) == array.ndim and all(i < n for i, n in zip(index, array.shape, strict=True))


def _wrong(array: Array, promised: Array | None, values: list[Array], *, torn: bool, all_known: bool) -> Array:
    """Which elements have none of the values that they may have."""
    if not array.size:
        return np.zeros(array.shape, bool)
    if array.dtype.names is not None:
        fits = [value for value in values if value.dtype == array.dtype]
        first = promised if promised is not None and promised.dtype == array.dtype else None
        parts = [
            _wrong(array[n], None if first is None else first[n], [v[n] for v in fits], torn=torn, all_known=all_known)
            for n in array.dtype.names
        ]
        found: Array = np.any([part.reshape((*array.shape, -1)).any(axis=-1) for part in parts], axis=0)
        return found
    fits = [value for value in values if value.ndim == array.ndim]
    good = np.zeros(array.shape, bool)
    for value in fits:
        common = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, value.shape, strict=True))
        good[common] |= _same(array[common], value[common])
    if torn and not good.all():
        good |= _mixed(array, fits)
    if not all_known:
        held = np.ones(array.shape, bool)
        if promised is not None and promised.ndim == array.ndim:
            held[tuple(slice(0, n) for n in promised.shape)] = False
        good |= held
    return ~good


def _same(one: Array, other: Array) -> Array:
    same = np.asarray(one == other, bool)
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        same |= np.isnan(one) & np.isnan(other)
    return same


def _mixed(array: Array, values: list[Array]) -> Array:
    """Which elements consist of bytes that one or another of the values has at that place."""
    good = np.zeros(array.shape, bool)
    for index in np.ndindex(array.shape):
        item = array[index]
        if isinstance(item, tuple):
            continue
        may = [_bytes(value[index]) for value in values if _has(value, index)]
        mine = _bytes(item)
        size = max(map(len, [mine, *may]))
        padded = [value.ljust(size, b"\0") for value in may]
        good[index] = bool(may) and all(
            byte in {value[i] for value in padded} for i, byte in enumerate(mine.ljust(size, b"\0"))
        )
    return good


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    array = np.asarray(value)
    return array.astype(array.dtype.newbyteorder(">")).tobytes()
