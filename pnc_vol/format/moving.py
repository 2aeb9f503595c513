"""`moves` finds which bytes of an old file go where in a new one.

Knows: two placed headers and which variables carry on. Does not know: how to place them (`placing`), files.

Rules
-----
1. All data that are carried on are listed, moved or not: the list builds a whole new file.
2. A variable whose shape changed keeps the elements that both shapes have, at their indices.
3. Padding between variables is taken along where both sides have it, so that neighbours merge to long moves. A source
   whose last padding was never written therefore ends up to 3 bytes before the last move does.
4. Until the new header is in the file the old one counts. So what the old one knows is overwritten by nothing new, not
   even where a deleted variable lies: `overwrites` finds it, and such a layout is made in another file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError
from pnc_vol.format.encode import header_size
from pnc_vol.format.model import (
    TYPES,
    Header,
    Var,
    begin_rec,
    inner_bytes,
    is_record,
    pad4,
    record_size,
    shape,
    strides,
)

__all__ = ["Moves", "moves", "needs_move", "overwrites", "taken"]

Int64 = npt.NDArray[np.int64]


class Moves(NamedTuple):
    """Copies from an old file to a new one, in the order of the old one.

    src : int64[n], bytes from the start of the old file.
    dst : int64[n], bytes from the start of the new file.
    length : int64[n], bytes.
    """

    src: Int64
    dst: Int64
    length: Int64

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(self.length.sum())


class _Carried(NamedTuple):
    """What carries on of variables of one kind: the elements that both sides have, and how they lie on each side.

    outer, length : the extents of the outer dimensions, where the inner ones are joined to runs of so many bytes.
    """

    common: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]
    padded: int
    outer: tuple[int, ...]
    length: int


def moves(old: Header, new: Header, origin: Sequence[int | None]) -> Moves:
    """List the copies that bring all carried data from a file of `old` to a file of `new`.

    Parameters
    ----------
    old, new : Header
        Both placed. As many records are carried as both have.
    origin : sequence of (int or None), one for each variable of `new`
        The index in ``old.vars`` of the variable whose data it carries on.

    Returns
    -------
    Moves
        Ordered by source, merged where both sides adjoin.

    Raises
    ------
    DefinitionError
        A carried variable changed its type or its number of dimensions.
    """
    parts: list[tuple[Int64, Int64, Int64]] = [_NOTHING]
    by_record: list[tuple[Int64, Int64, Int64]] = [_NOTHING]
    steps = record_size(old), record_size(new)
    records = min(old.numrecs, new.numrecs)
    for piece, begins in _carried(old, new, origin):
        src, dst = np.array(begins, np.int64).reshape(-1, 2).T
        outer, whole = piece.outer, np.full(src.size, max(piece.length, piece.padded), np.int64)
        if not outer:
            parts.append((src, dst, whole))
        elif len(outer) == 1 and (*piece.src_strides[:1], *piece.dst_strides[:1]) == steps and outer[0] == records:
            by_record.append((src, dst, whole))
        else:
            parts.append(_expand(piece, src, dst))
    if len(by_record) > 1:
        parts.append(_repeat(_merge(*_joined(by_record)), records, *steps))
    return _merge(*_joined(parts))


def needs_move(old: Header, new: Header, origin: Sequence[int | None]) -> bool:
    """Return whether any carried data lie elsewhere in a file of `new` than in a file of `old`."""
    steps = record_size(old), record_size(new)
    # A dimension that both have, by the same number, and records of the same length.
    same_dims = steps[0] == steps[1] and new.dims[: len(old.dims)] == old.dims
    if same_dims and None not in origin and list(map(old.vars.__getitem__, origin)) == list(new.vars):  # type: ignore[arg-type]
        # Most are the same objects: that takes few nanoseconds for each.
        return False
    known: dict[tuple[tuple[int, ...], tuple[int, ...], int, int], tuple[bool, bool]] = {}
    before, after = _NO_VAR, _NO_VAR
    none = spread = False
    for source, b in zip(origin, new.vars, strict=True):
        a = before if source is None else old.vars[source]
        if source is None or a[4] < 0 or (same_dims and a[4] == b[4] and a[1] == b[1] and a[3] == b[3]):
            continue
        # Many variables have the dimensions and the type of the one before them.
        if a[1] is not before[1] or b[1] is not after[1] or a[3] != before[3] or b[3] != after[3]:
            key = a[1], b[1], a[3], b[3]
            found = known.get(key)
            if found is None:
                piece = _compare(old, a, new, b, steps)
                by_axis = zip(piece.common, piece.src_strides, piece.dst_strides, strict=True)
                found = known[key] = 0 in piece.common, any(n > 1 and x != y for n, x, y in by_axis)
            none, spread = found
            before, after = a, b
        if not none and (spread or a[4] != b[4]):
            return True
    return False


def taken(old: Header, origin: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return where the data lie that are not carried on: first byte and end, by offset; what touches is one piece.

    Parameters
    ----------
    old : Header, placed
    origin : sequence of (int or None)
        The index in ``old.vars`` of each variable that is carried on; None for new ones.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim
    >>> old = Header(5, dims=(Dim("x", 3),), vars=(Var("a", (0,), (), 6, 200), Var("b", (0,), (), 1, 224)))
    >>> taken(old, [0])
    [(224, 227)]
    """
    kept = {source for source in origin if source is not None}
    if len(kept) == len(old.vars):
        return []
    found, records = [], False
    for i in sorted(set(range(len(old.vars))) - kept):
        var = old.vars[i]
        if var.begin < 0:
            continue
        if is_record(old, var):
            records = True
        elif nbytes := inner_bytes(old, var):
            found.append((var.begin, var.begin + nbytes))
    if records and old.numrecs:
        start = begin_rec(old)
        assert start is not None
        found.append((start, start + record_size(old) * old.numrecs))
    found.sort()
    pieces: list[tuple[int, int]] = []
    for begin, end in found:
        if pieces and begin <= pad4(pieces[-1][1]):
            pieces[-1] = pieces[-1][0], max(end, pieces[-1][1])
        else:
            pieces.append((begin, end))
    return pieces


def overwrites(old: Header, new: Header, origin: Sequence[int | None]) -> bool:
    """Return whether the header or new variables of `new` would lie where `old` has data that are not carried on.

    Parameters
    ----------
    old, new : Header
        Both placed; what is carried on lies at the same place in both.
    origin : sequence of (int or None), one for each variable of `new`
    """
    gone = taken(old, origin)
    if not gone:
        return False
    if header_size(new) > gone[0][0]:
        return True
    fresh = [var for var, source in zip(new.vars, origin, strict=True) if source is None]
    if any(is_record(new, var) for var in fresh):
        # Behind the start of the records everything may become theirs.
        start = begin_rec(new)
        assert start is not None
        if gone[-1][1] > start:
            return True
    starts, ends = (np.array(column, np.int64) for column in zip(*gone, strict=True))
    fixed = [(var.begin, inner_bytes(new, var)) for var in fresh if not is_record(new, var)]
    if not fixed:
        return False
    begin, nbytes = np.array(fixed, np.int64).T
    return bool((np.searchsorted(ends, begin, "right") < np.searchsorted(starts, begin + nbytes, "left")).any())


_NO_VAR = Var("", (), (), -1)
"""Has a type that no variable has."""


def _carried(old: Header, new: Header, origin: Sequence[int | None]) -> list[tuple[_Carried, list[int]]]:
    """Return the kinds of variables that carry on, each with the begins of its variables in the old and in the new
    file."""
    steps = record_size(old), record_size(new)
    known: dict[tuple[tuple[int, ...], tuple[int, ...], int, int], tuple[_Carried, list[int]]] = {}
    before, after = _NO_VAR, _NO_VAR
    begins: list[int] = []
    for source, b in zip(origin, new.vars, strict=True):
        a = before if source is None else old.vars[source]
        if source is None or a[4] < 0:
            continue
        # Many variables have the dimensions and the type of the one before them.
        if a[1] is not before[1] or b[1] is not after[1] or a[3] != before[3] or b[3] != after[3]:
            key = a[1], b[1], a[3], b[3]
            if key not in known:
                known[key] = _compare(old, a, new, b, steps), []
            begins = known[key][1]
            before, after = a, b
        begins += a[4], b[4]
    return [found for found in known.values() if 0 not in found[0].common]


def _compare(old: Header, a: Var, new: Header, b: Var, steps: tuple[int, int]) -> _Carried:
    if a.type != b.type or len(a.dims) != len(b.dims):
        raise DefinitionError(
            f"Variable {b.name!r} was {TYPES[a.type].name} with {len(a.dims)} dimensions and would become "
            f"{TYPES[b.type].name} with {len(b.dims)}; its data cannot be kept."
        )
    common = tuple(min(m, n) for m, n in zip(shape(old, a), shape(new, b), strict=True))
    inner = inner_bytes(old, a), inner_bytes(new, b)
    kinds = is_record(old, a), is_record(new, b)
    padded = 0
    if inner[0] == inner[1] and kinds[0] == kinds[1]:
        whole = shape(old, a)[kinds[0] :] == shape(new, b)[kinds[0] :]
        # Records of a lone variable follow each other without padding.
        if whole and not (kinds[0] and min(steps) < pad4(inner[0])):
            padded = pad4(inner[0])
    there, here = strides(old, a, recsize=steps[0]), strides(new, b, recsize=steps[1])
    length, k = TYPES[a.type].size, len(common)
    while k and (common[k - 1] <= 1 or there[k - 1] == here[k - 1] == length):
        k -= 1
        length *= common[k]
    return _Carried(common, there, here, padded, common[:k], length)


def _expand(piece: _Carried, src: Int64, dst: Int64) -> tuple[Int64, Int64, Int64]:
    """Return one run for each index of the outer dimensions of variables that begin there."""
    k = len(piece.outer)
    for n, a, b in zip(piece.outer, piece.src_strides[:k], piece.dst_strides[:k], strict=True):
        index = np.arange(n, dtype=np.int64)
        src = (src[:, None] + index * a).ravel()
        dst = (dst[:, None] + index * b).ravel()
    return src, dst, np.full(src.size, piece.length, np.int64)


_NOTHING = (np.empty(0, np.int64),) * 3


def _joined(parts: Sequence[tuple[Int64, Int64, Int64]]) -> tuple[Int64, Int64, Int64]:
    src, dst, length = map(np.concatenate, zip(*parts, strict=True))
    return src, dst, length


def _repeat(record: Moves, records: int, src_step: int, dst_step: int) -> tuple[Int64, Int64, Int64]:
    """Repeat the moves of one record for all records."""
    if record.src.size == 1 and int(record.length[0]) == src_step == dst_step:
        return record.src, record.dst, record.length * records
    index = np.arange(records, dtype=np.int64)[:, None]
    src = (record.src + index * src_step).ravel()
    dst = (record.dst + index * dst_step).ravel()
    return src, dst, np.tile(record.length, records)


def _merge(src: Int64, dst: Int64, length: Int64) -> Moves:
    """Sort by source and join what adjoins on both sides."""
    if not src.size:
        return Moves(src, dst, length)
    if (src[1:] < src[:-1]).any():
        order = np.argsort(src, kind="stable")
        src, dst, length = src[order], dst[order], length[order]
    apart = (src[:-1] + length[:-1] != src[1:]) | (dst[:-1] + length[:-1] != dst[1:])
    start = np.flatnonzero(np.concatenate(([True], apart)))
    return Moves(src[start], dst[start], np.add.reduceat(length, start))
