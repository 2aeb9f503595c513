"""The bytes of a header after a change, from those before: only what changed is encoded.

Knows: where in the bytes of a header the attributes of each object are. Does not know: files, what a change means.

Rules
-----
1. The result is what `encode` would make of the new header.
2. The cost is that of the attributes that changed, and of one copy of the bytes: nothing is done for each variable.
3. The bytes without begins (the frame) are changed in place: the header before has none then, and makes it anew if it
   is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pnc_vol.format.encode import Frame, Writer, encode, frame_of, numrecs_bytes
from pnc_vol.format.limits import check_attrs, check_limits
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.sizes import inner_sizes
from pnc_vol.format.widths import ATTRIBUTE, VARIABLE, WIDTHS

__all__ = ["Parts", "changed_parts", "encode_again", "placed_as", "with_attributes", "with_variables"]

Parts = Sequence[tuple[int, int, int]]
"""Where two headers differ: the first byte of each part, and where it ends in the old and in the new header; in order.
Only the last one may be longer in one of them."""

_GAP, _MOST_PARTS = 1024, 8
"""Equal bytes that are worth to be left out between two parts of a header, and parts that are told apart."""
_FEW = 4
"""Edits that change the length of a header and are made one by one: each moves all that is behind it."""


class Edit(NamedTuple):
    """Bytes of a header that take the place of others.

    start, end : int, of the bytes before.
    attrs : the attributes in them that are new.
    var : int, the variable that they are of, -1 for the file.
    """

    start: int
    end: int
    made: bytes
    attrs: tuple[Attr, ...]
    var: int


def changed_parts(old: bytes, new: bytes) -> Parts:
    """Where two encoded headers differ: in the number of records, and in a few ranges behind it.

    Examples
    --------
    >>> changed_parts(encode(Header(5)), encode(Header(5, 7)))
    [(4, 12, 12)]
    """
    behind = 12 if new[3:4] == b"\x05" else 8
    n = min(len(old), len(new)) - behind
    if old[:4] != new[:4] or n < 0:
        return [(0, len(old), len(new))]
    found = [(4, behind, behind)] if old[4:behind] != new[4:behind] else []
    unlike = (np.frombuffer(old, np.uint8, n, behind) != np.frombuffer(new, np.uint8, n, behind)).nonzero()[0]
    if n <= _GAP and len(old) != len(new):
        # one part
        return [*found, (behind + (int(unlike[0]) if len(unlike) else n), len(old), len(new))]
    if len(old) != len(new):
        unlike = np.append(unlike, n)
    if len(unlike):
        gaps = np.diff(unlike)
        split = np.flatnonzero(gaps > _GAP)
        if len(split) >= _MOST_PARTS:
            split = np.sort(split[np.argsort(gaps[split], kind="stable")[1 - _MOST_PARTS :]])
        starts = unlike[np.append(0, split + 1)] + behind
        ends = unlike[np.append(split, len(unlike) - 1)] + (behind + 1)
        found += [(start, end, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        if len(old) != len(new):
            found[-1] = found[-1][0], len(old), len(new)
    return found


def with_attributes(
    header: Header,
    own: Mapping[int, tuple[Attr, ...]],
    attrs: tuple[Attr, ...],
    grown: Mapping[int, int] = MappingProxyType({}),
) -> Header:
    """The same definitions with other attributes; only these are checked and encoded.

    Parameters
    ----------
    header : Header
    own : the attributes of variables, by their index; those of the others stay
    attrs : attributes of the file
    grown : how many are the same, from the first one on, as far as that is known; -1 for the file

    Raises
    ------
    DefinitionError
        An attribute that the version cannot hold.

    Examples
    --------
    >>> old = Header(5, vars=(Var("a", (), (), 6), Var("b", (), (), 6)))
    >>> with_attributes(old, {1: (Attr("units", 2, 1, b"K"),)}, ()).vars[1].attrs[0].name
    'units'
    """
    version, known = header.version, header.derived
    made = Header(version, header.numrecs, header.dims, attrs, _with_own(header.vars, own))
    made.derived.update({fact: known[fact] for fact in ("inner_sizes", "record_vars") if fact in known})
    edits = _edits(header, made, sorted(own), grown)
    if known.get("within_limits"):
        for edit in edits:
            check_attrs("The file" if edit.var < 0 else f"Variable {header.vars[edit.var].name!r}", edit.attrs, version)
        made.derived["within_limits"] = True
    frame = frame_of(header)
    del known["frame"]
    made.derived["frame"] = _after(frame, edits)
    made.derived["edits"] = edits
    return made


def with_variables(header: Header, dims: tuple[Dim, ...], added: tuple[Var, ...]) -> Header:
    """The same definitions with variables behind the others; only these are checked and encoded. Of CDF-5 alone.

    Parameters
    ----------
    header : Header
    dims : its dimensions, and maybe others behind them
    added : the new variables, which have no records

    Raises
    ------
    DefinitionError
        A variable that CDF-5 cannot hold.

    Examples
    --------
    >>> with_variables(Header(5, vars=(Var("a", (), (), 6),)), (), (Var("b", (), (), 6),)).vars[1].name
    'b'
    """
    known, new = header.derived, Header(header.version, 0, dims, (), added)
    check_limits(new)
    made = Header(header.version, header.numrecs, dims, header.attrs, header.vars + added)
    made.derived.update({fact: known[fact] for fact in ("record_vars", "within_limits") if fact in known})
    made.derived["inner_sizes"] = inner_sizes(header) + inner_sizes(new)
    writer, (body, begin_at, attrs_at, vars_at) = Writer(WIDTHS[header.version]), frame_of(header)
    w, edits, more = writer.w, [], 0
    if len(dims) != len(header.dims):
        start, front = 4 + w.number.size, writer.dimensions(made)[4 + w.number.size :]
        edits.append(Edit(start, attrs_at, front, (), -1))
        more = len(front) - (attrs_at - start)
    entries, listing = writer.variables(made, added), writer.listing(VARIABLE, len(made.vars))
    edits += (
        Edit(vars_at, vars_at + len(listing), listing, (), -1),
        Edit(len(body), len(body), b"".join(entries), (), -1),
    )
    ends = np.cumsum(np.fromiter(map(len, entries), np.int64, len(entries))) + (len(body) + more - w.begin)
    # Those of a header whose attributes changed just now are of the one before.
    alone = "edits" not in known
    del known["frame"]
    for edit in reversed(edits):
        body[edit.start : edit.end] = edit.made
    made.derived["frame"] = Frame(body, np.append(begin_at + more, ends), attrs_at + more, vars_at + more)
    if alone:
        made.derived["edits"] = edits
    return made


def _with_own(variables: tuple[Var, ...], own: Mapping[int, tuple[Attr, ...]]) -> tuple[Var, ...]:
    if not own:
        return variables
    made = list(variables)
    for i, attrs in own.items():
        made[i] = made[i]._replace(attrs=attrs)
    return tuple(made)


def placed_as(
    before: Header, made: Header, own: Mapping[int, tuple[Attr, ...]], *, begins: Sequence[int] = (), exact: bool
) -> Header:
    """What `with_attributes` made of a header without begins, with the begins of `before`.

    Parameters
    ----------
    before : Header, the one without the changes, placed
    made : Header
    own : as of `with_attributes`
    begins : where the variables begin that `with_variables` added
    exact : bool
        Whether `before` is of the header that `made` was made of, so that its bytes, which this library encoded, can be
        used again.
    """
    # Only the last step is of use: nothing is kept of those before.
    before.derived.pop("since", None)
    variables = _with_own(before.vars, own)
    edits = made.derived.pop("edits", None)
    if begins:
        added = zip(made.vars[len(variables) :], begins, strict=True)
        variables += tuple([var._replace(begin=begin) for var, begin in added])
        if edits is not None:
            edits[-1] = _with_begins(made, edits[-1], begins)
    placed = made.with_vars(variables)
    if edits is not None and exact:
        made.derived["since"] = before, edits
    return placed


def _with_begins(made: Header, edit: Edit, begins: Sequence[int]) -> Edit:
    """The last edit of `with_variables` with begins in its bytes."""
    w, frame, entries = WIDTHS[made.version], frame_of(made), bytearray(edit.made)
    first = len(frame.body) - len(entries)
    for at, begin in zip(frame.begin_at[-len(begins) :].tolist(), begins, strict=True):
        entries[at - first : at - first + w.begin] = begin.to_bytes(w.begin, "big")
    return edit._replace(made=bytes(entries))


def encode_again(before: Header, encoded: bytes, new: Header) -> tuple[bytes, Parts | None]:
    """As `encode` without checks of names, with as little work as can be.

    Parameters
    ----------
    before : Header, that of the file
    encoded : bytes, the same, encoded; empty if the file has none
    new : Header

    Returns
    -------
    bytes
        `encoded` itself if nothing changed.
    Parts or None
        Where they differ, if that is known without comparing them (`changed_parts`).
    """
    if not encoded:
        return encode(new, check=False), None
    count: Parts = [] if before.numrecs == new.numrecs else [(4, *2 * (4 + WIDTHS[new.version].number.size,))]
    same = before.derived is new.derived and before.vars is new.vars
    since = None if same else new.derived.pop("since", None)
    if since is not None and before.derived is since[0].derived and before.vars is since[0].vars:
        made = _spliced(encoded, since[1], numrecs_bytes(new))
        return made, _merged([*count, *_parts_of(since[1], encoded, len(made))])
    if same or (
        before.vars == new.vars
        and before.dims == new.dims
        and before.attrs == new.attrs
        and before.version == new.version
    ):
        return _spliced(encoded, (), numrecs_bytes(new)) if count else encoded, count
    return encode(new, check=False), None


def _parts_of(edits: Iterable[Edit], old: bytes, nbytes: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a header of `nbytes` bytes that edits of `old` made; from the first that moves others all is one."""
    for start, end, made, _, _ in edits:
        if len(made) != end - start:
            yield start, len(old), nbytes
            return
        unlike = (np.frombuffer(made, "u4") != np.frombuffer(old, "u4", len(made) >> 2, start)).nonzero()[0].tolist()
        if unlike:
            yield start + 4 * unlike[0], *2 * (start + 4 * unlike[-1] + 4,)


def _merged(parts: Sequence[tuple[int, int, int]]) -> Parts:
    """Parts without small gaps between them, and no more than a few."""
    if len(parts) < 2:
        return parts
    gaps = [after[0] - part[2] for part, after in pairwise(parts)]
    least = _GAP if len(gaps) < _MOST_PARTS else max(_GAP, sorted(gaps)[1 - _MOST_PARTS])
    found: list[tuple[int, int, int]] = []
    for part, gap in zip(parts, [least, *gaps], strict=False):
        if gap < least:
            found[-1] = found[-1][0], *part[1:]
        else:
            found.append(part)
    return found


def _spliced(before: bytes | bytearray, edits: Iterable[Edit], count: bytes = b"") -> bytes:
    """The bytes of a header after edits, and with another number of records if one is given."""
    old, at = memoryview(before), 4 + len(count)
    pieces: list[bytes | memoryview] = [old[:4], count]
    for edit in edits:
        pieces += (old[at : edit.start], edit.made)
        at = edit.end
    return b"".join([*pieces, old[at:]])


def _same_front(one: tuple[Attr, ...], other: tuple[Attr, ...], low: int = 0) -> int:
    """How many attributes are the same from the first one on; the first `low` of them are."""
    high = min(len(one), len(other))
    # To compare slices of the same objects takes few nanoseconds for each.
    if one[low:high] == other[low:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _after(frame: Frame, edits: list[Edit]) -> Frame:
    """The frame of the header after these edits; `frame` itself is changed."""
    body, begin_at, attrs_at, vars_at = frame
    moving = [(edit, len(edit.made) - (edit.end - edit.start)) for edit in edits]
    moving = [(edit, more) for edit, more in moving if more]
    if moving:
        vars_at += sum([more for edit, more in moving if edit.var < 0])
    if len(moving) > _FEW:
        body = bytearray(_spliced(body, edits))
        shifts = np.zeros(len(begin_at) + 1, np.int64)
        np.add.at(shifts, begin_at.searchsorted([edit.start for edit, _ in moving]), [more for _, more in moving])
        begin_at += np.cumsum(shifts)[:-1]
    else:
        # The last one first: those before it find everything where it was.
        for edit, more in reversed(moving):
            begin_at[begin_at.searchsorted(edit.start) :] += more
        for edit in reversed(edits):
            body[edit.start : edit.end] = edit.made
    return Frame(body, begin_at, attrs_at, vars_at)


def _edits(old: Header, new: Header, indices: list[int], grown: Mapping[int, int]) -> list[Edit]:
    """What makes `new` of `old`: other attributes of the file, and of the variables `indices`; in order."""
    writer, frame = Writer(WIDTHS[old.version]), frame_of(old)
    w = writer.w
    found: list[Edit] = []
    if new.attrs is not old.attrs:
        found += _edits_of(writer, frame.attrs_at, frame.vars_at, old.attrs, new.attrs, -1, grown.get(-1, 0))
    for i in indices:
        var, behind = old.vars[i], int(frame.begin_at[i]) + w.begin
        start = int(frame.begin_at[i - 1]) + w.begin if i else frame.vars_at + w.listing.size
        start += len(writer.name(var.name)) + w.number.size * (1 + len(var.dims))
        found += _edits_of(writer, start, behind - w.tail.size, var.attrs, new.vars[i].attrs, i, grown.get(i, 0))
    return found


def _edits_of(
    writer: Writer, start: int, end: int, old: tuple[Attr, ...], new: tuple[Attr, ...], var: int, grown: int
) -> list[Edit]:
    """What makes one list of attributes, from `start` to `end`, of another one; the first `grown` are the same."""
    front = _same_front(old, new, grown)
    back = _same_front(old[front:][::-1], new[front:][::-1])
    gone, made = old[front : len(old) - back], new[front : len(new) - back]
    listing = writer.w.listing.size
    # What stays is measured on the side where there is less of it.
    if front <= back:
        at = start + listing + len(writer.entries(old[:front]))
        stop = at + len(writer.entries(gone))
    else:
        stop = end - len(writer.entries(old[len(old) - back :]))
        at = stop - len(writer.entries(gone))
    edits = [Edit(at, stop, writer.entries(made), made, var)] if gone or made else []
    if len(old) != len(new):
        edits.insert(0, Edit(start, start + listing, writer.listing(ATTRIBUTE, len(new)), (), var))
    return edits
