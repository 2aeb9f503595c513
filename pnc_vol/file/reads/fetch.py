"""`read` reads the content of the file, with this rank's own posts applied to it.

Knows: selections, elements, the layout in force, the queue. Does not know: how a flush is done.

Rules
-----
1. A read sees every earlier post of its own rank, flushed or not, and never waits for another rank unless it is
   collective.
2. What was not written reads as the fill value: a variable without a place in the file, records beyond those in the
   file,
   bytes beyond the end of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import NotSyncedError, ShortFileError
from pnc_vol.extents.merge import within
from pnc_vol.extents.model import MOST_AXES, Extents, Int64, Runs, Selection, before, refuse_axes
from pnc_vol.extents.place import runs
from pnc_vol.file.reads.contiguous import Facts, facts_of, read_run
from pnc_vol.file.reads.execute import read_numbers
from pnc_vol.file.reads.gathered import read_gathered
from pnc_vol.file.reads.hyperslabs import reach, read_hyperslab
from pnc_vol.file.session import Session
from pnc_vol.flush.agree import Weight, transport_code
from pnc_vol.format.numeric import swap_in_place
from pnc_vol.layout.base import ElementMap
from pnc_vol.mapping.encoding import decode
from pnc_vol.mapping.tree import DatasetNode

__all__ = [
    "LARGE", "Read", "at_once", "elements_held", "file_form", "lay_over", "read", "read_alone", "read_by_way",
    "to_read_into",
]  # fmt: skip

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

Read = Callable[[Session, Extents, Bytes], int]
_Spots = list[tuple[int, int, "ElementMap | None"]]

LARGE = 1 << 20
"""Bytes from which on a claim is compared with the size of the file, which costs a call of the system."""


def read(
    session: Session, node: DatasetNode, selection: Selection, *, collective: bool = False, out: Array | None = None
) -> Array:
    """Return the values of a selection, in the element's dtype and the selection's shape.

    out : ndarray of that shape, optional
        Where numbers of its type, in either byte order, are read to if that is possible without memory besides; the
        values are there if it is what is returned. What it holds otherwise, or after an error, is not known.

    Raises
    ------
    OSError
        The file could not be read.
    ShortFileError
        The file ends before the data, and the file was opened with ``strict=True``; or a single element is longer than
        the file.
    """
    element = node.element
    shape = selection.result_shape
    if element.itemsize > LARGE:
        _check_width(session, node)
    if len(shape) > MOST_AXES:
        refuse_axes(len(shape))
    if not collective and not session.posted.queue.has(node.uid):
        try:
            short = at_once(session, node, selection, shape, to_read_into(node, out))
        except NotSyncedError:
            # It may have asked for what lies between the elements as well.
            short = None
        if short is not None:
            return short
    with session.comm.errors_shared() if collective else nullcontext():
        found = runs(selection, record=node.is_record)
    try:
        raw = file_form(session, [(node, found)], _read_by_all if collective else read_alone)[0]
    except NotSyncedError:
        own = _only_posted(session, node, found)
        if own is None:
            raise
        raw = own
    lay_over(session, node, found, raw, None)
    if element.kind != "number":
        return decode(raw, element, shape)
    # turned round where they lie: large reads take no second array
    if element.dtype != element.file_dtype:
        swap_in_place(raw, element.itemsize)
    return raw.view(element.dtype).reshape(shape)


def to_read_into(node: DatasetNode, out: Array | None) -> Array | None:
    """Return the array if numbers can be read straight to it, else None."""
    element = node.element
    if out is None or element.kind != "number" or not out.flags.c_contiguous:
        return None
    return out if out.dtype in (element.dtype, element.file_dtype) else None


def at_once(
    session: Session, node: DatasetNode, selection: Selection, shape: tuple[int, ...], out: Array | None
) -> Array | None:
    """Return what `read` does without a list of runs, with what lies between the elements; None: it cannot be done."""
    facts, one = facts_of(session, node), selection.single_run()
    got = None
    if one is not None and facts is not None:
        got = read_run(session, node, facts, *one, shape, out)
    elif one is not None and session.file_set is not None:
        got = read_gathered(session, node, *one, shape)
    if got is not None:
        return got
    if selection.listed is not None:
        return None if facts is None else _listed(session, node, facts, selection, out)
    if shape and selection.nelems > 1:
        whole = _hyperslab(session, node, selection, out)
        if whole is not None:
            return whole if node.element.kind == "number" else decode(whole.view(np.uint8), node.element, shape)
    return None


def _listed(session: Session, node: DatasetNode, facts: Facts, selection: Selection, out: Array | None) -> Array | None:
    """Return a list of runs of numbers that the file has."""
    found = runs(selection, record=node.is_record)
    if not selection.nelems:
        return None
    if facts.grows and int(found.start.max()) >= session.disk.layout.elements_stored(node, facts.at):
        return None
    out = np.empty(selection.result_shape, facts.dtype) if out is None else out
    extents = facts.at.extents(found)
    return out if read_numbers(session.disk.driver, facts.file_dtype, extents, out.reshape(-1)) else None


# ------------------------------------------------------------------------------------- from the file


def _hyperslab(session: Session, node: DatasetNode, selection: Selection, out: Array | None) -> Array | None:
    """Return a hyperslab that is in the file whole: numbers as the user sees them, all else in file form,
    one-dimensional.

    out : where numbers go; a new array by default.
    """
    layout, element = session.disk.layout, node.element
    at = layout.places.get(node.uid)
    if at is None or layout.stored_map(node) is None or at.itemsize != element.itemsize:
        return None
    if not at.inner and not layout.elements_stored(node, at):
        # a part of it, and `written` says which
        return None
    if at.inner and selection.start[0] + reach(selection, 0) >= layout.stored_records(node):
        return None
    if element.kind != "number":
        out = np.empty(selection.nelems, element.file_dtype)
    elif out is None:
        out = np.empty(selection.result_shape, element.dtype)
    whole = read_hyperslab(session.disk.driver, at.grid(selection.shape), selection, element.file_dtype, out)
    return out if whole else None


def file_form(session: Session, wanted: list[tuple[DatasetNode, Runs]], read: Read) -> list[Bytes]:
    """Return what the file holds of some runs, in file form; one read for all of them."""
    with session.comm.errors_shared() if read is _read_by_all else nullcontext():
        memory, extents, spots = _prepared(session, wanted)
        got = read(session, extents, memory)
        if got < extents.nbytes and session.options.strict:
            _refuse_short(session, wanted)
        if read is _read_by_all:
            session.comm.agree("read done")
    raws: list[Bytes] = []
    for (node, _), (first, nbytes, at) in zip(wanted, spots, strict=True):
        raw = memory[first : first + nbytes]
        width = node.element.itemsize
        if at is not None and at.itemsize != width:
            # A string variable that grew here since the last flush.
            wide = np.zeros((nbytes // at.itemsize, width), np.uint8)
            wide[:, : at.itemsize] = raw.reshape(-1, at.itemsize)
            raw = wide.reshape(-1)
        raws.append(raw)
    return raws


def _refuse_short(session: Session, wanted: list[tuple[DatasetNode, Runs]]) -> None:
    """Raise if something that the header in the file counts lies beyond the end of the file, with ``strict=True``.

    What this session defined since, and has not written, need not be there; nor need what nobody wrote in files of a
    layout that says nothing of their lengths.
    """
    layout = session.disk.layout
    if not (layout.self_contained or layout.several_files):
        return
    for node, found in wanted:
        at = layout.stored_map(node)
        if at is None or node.uid not in layout.header_uids:
            continue
        if at.inner:
            counted = Runs(np.zeros(1, np.int64), np.array([layout.header.numrecs * at.inner], np.int64))
            found, _ = within(found, counted)
        extents = at.extents(found)
        got = read_alone(session, extents, np.empty(int(found.length.sum()) * at.itemsize, np.uint8))
        if got < extents.nbytes:
            raise ShortFileError(
                f"{node.path}: {extents.nbytes - got} of {extents.nbytes} bytes lie beyond the end of the file; "
                "without strict=True they read as the fill value"
            )


def read_alone(session: Session, extents: Extents, memory: Bytes) -> int:
    return session.disk.driver.read(extents, memory) if len(extents.offset) else 0


def read_by_way(session: Session, extents: Extents, memory: Bytes, *, way: str) -> int:
    """Read in the way that all ranks agreed on (collective)."""
    return session.transport.read(session.disk.driver, extents, memory, way=way)


def _read_by_all(session: Session, extents: Extents, memory: Bytes) -> int:
    """Read what each rank wants now (collective): what drivers hold back comes to the file before."""
    if session.file_set is not None:
        session.file_set.drain("read")
        return read_alone(session, extents, memory)
    if session.disk.driver.capabilities.holds_back:
        session.epochs.drain("read")
    code = transport_code(session.options, reads=True)
    most, _ = session.comm.agree("read", Weight(1, len(extents.offset), extents.nbytes, code))
    return read_by_way(session, extents, memory, way=session.transport.choose_read(Weight(*most)))


def _prepared(session: Session, wanted: list[tuple[DatasetNode, Runs]]) -> tuple[Bytes, Extents, _Spots]:
    """Return the memory that holds fill values, what to read into it, and for each wanted thing first byte, bytes and
    place."""
    parts: list[Extents] = []
    room = 0
    spots: _Spots = []
    layout = session.disk.layout
    for node, found in wanted:
        at = layout.stored_map(node)
        width = at.itemsize if at is not None else node.element.itemsize
        nbytes = int(found.length.sum()) * width
        spots.append((room, nbytes, at))
        if at is not None and nbytes:
            spot: Int64 | int = room
            if at.inner or not layout.elements_stored(node, at):
                there, inside = within(found, layout.stored_runs(node, at))
                extents = at.extents(there)
                # An extent is of one run, but a run may have several.
                begins = before(there.length * width)
                run = np.searchsorted(begins, extents.place, side="right") - 1
                spot = (inside * width - begins)[run] + room
            else:
                extents = at.extents(found)
            parts.append(Extents(extents.offset, extents.length, extents.place + spot))
        room += nbytes
    memory = np.empty(room, np.uint8)
    for (node, _), (first, nbytes, at) in zip(wanted, spots, strict=True):
        _fill(memory[first : first + nbytes], node, at.itemsize if at else node.element.itemsize)
    extents = Extents(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else _NOTHING
    return memory, extents, spots


_NOTHING = Extents(*(np.empty(0, np.int64) for _ in range(3)))


def _fill(raw: Bytes, node: DatasetNode, width: int) -> None:
    pattern = node.fillvalue
    if pattern is None or not pattern.strip(b"\0"):
        raw[:] = 0
    else:
        raw.reshape(-1, width)[:] = np.frombuffer(pattern.ljust(width, b"\0")[:width], np.uint8)


# ------------------------------------------------------------------------- what a header claims of the file's size


def elements_held(session: Session, node: DatasetNode) -> int:
    """Return the number of elements of a dataset, from the first one on, of which the file may hold something.

    All of them, where something is posted that is not in the file yet.
    """
    size = prod(node.shape or ())
    if node.parts:
        # a compound's fields have its axes; of other parts this number says nothing
        return min(
            (elements_held(session, part) for part in node.parts.values() if part.shape == node.shape), default=size
        )
    at = session.disk.layout.places.get(node.uid)
    if at is None or session.posted.queue.has(node.uid) or node.uid not in session.disk.layout.header_uids:
        return size
    return min(size, at.elements_below(session.disk.driver.size()))


def _check_width(session: Session, node: DatasetNode) -> None:
    """Complain of a dataset with elements that are longer than the file.

    Raises
    ------
    ShortFileError
    """
    width, nbytes = node.element.itemsize, session.disk.driver.size()
    if width > nbytes and elements_held(session, node) < prod(node.shape or ()):
        raise ShortFileError(
            f"{node.path}: an element has {width} bytes, and the file {nbytes}: it holds no complete element",
            field=node.cdf_name,
            value=width,
        )


# ----------------------------------------------------------------------------------- from the queue


def _only_posted(session: Session, node: DatasetNode, found: Runs) -> Bytes | None:
    """Return the memory for elements of which this rank posted every one, so that the file need not be asked; else
    None."""
    raws = [np.full(int(found.length.sum()) * node.element.itemsize, byte, np.uint8) for byte in (0, 255)]
    for raw in raws:
        lay_over(session, node, found, raw, None)
    return raws[0] if bool((raws[0] == raws[1]).all()) else None


def lay_over(session: Session, node: DatasetNode, found: Runs, raw: Bytes, before_request: int | None) -> None:
    queue, width = session.posted.queue, node.element.itemsize
    if queue.has(node.uid) and len(raw):
        length = found.length * width
        queue.overlay(node.uid, Extents(found.start * width, length, before(length)), raw, width, before_request)
