"""Datasets that get another shape.

Knows: record variables, how a variable is replaced by another one, ranks. Does not know: users' objects.

Rules
-----
1. The record dimension grows by itself: nothing is moved. What a dataset loses reads as the fill value if it comes
   back.
2. Any other change of shape makes a new variable, to which the elements that both have are posted; the old one is gone
   at the next flush. With several ranks, or a log, the file is flushed before and after (collective), so that one rank
   can do it.
3. Between these two flushes the tree has the old variables and the new ones, under one name, so nothing may flush. So
   what is copied goes to memory and its spill file, never to a log, which makes room by a flush. A kill before the
   second flush leaves the file of the first one, and a log that is empty.
4. The variables of a compound get their shapes together, or all keep the old ones: no flush comes in between.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.selection import select
from pnc_vol.file import post
from pnc_vol.file.reads import composite_values
from pnc_vol.file.reads.fetch import complete_posted
from pnc_vol.file.session import Session
from pnc_vol.mapping.composite import is_ragged
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["resize"]

Shape = tuple[int, ...]

_BLOCK = 16 << 20
"""Bytes that are read and posted at a time."""


def resize(session: Session, node: DatasetNode, shape: Shape) -> None:
    """Give a dataset another shape of the same rank.

    Raises
    ------
    DefinitionError
        The file's version cannot hold it.
    FlushError, OSError
        The queue was full and could not be written out.
    """
    parts = list(_parts(node, shape))
    sums = [(part, its_shape) for part, its_shape in parts if part.element.kind == "composite"]
    variables = [(part, its_shape) for part, its_shape in parts if part.element.kind != "composite"]
    anew = [(part, its_shape) for part, its_shape in variables if not _by_records(part, its_shape)]
    # Rank 0 reads what all ranks wrote, also those of other nodes.
    apart = bool(anew) and (session.comm.size > 1 or session.posted.queue.logged)
    if apart:
        session.flush(carried=True)
    for part, its_shape in sums:
        composite_values.grown(session, part, its_shape)
    _change_records(session, [(part, its_shape) for part, its_shape in variables if _by_records(part, its_shape)])
    if anew:
        _lay_out_anew(session, anew)
    for part, its_shape in sums:
        part.shape = its_shape
        part.tree.touch()
    if apart:
        session.flush()


def _parts(node: DatasetNode, shape: Shape) -> Iterator[tuple[DatasetNode, Shape]]:
    """A dataset and the datasets that it is made of, with the shapes that they get."""
    yield node, shape
    if node.element.kind == "composite":
        ragged, rank = is_ragged(node.element.dtype), len(node.shape or ())
        for name, part in node.parts.items():
            if not (ragged and name == "values"):
                yield from _parts(part, shape + (part.shape or ())[rank:])


def _by_records(node: DatasetNode, shape: Shape) -> bool:
    """Whether only the number of records changes."""
    return node.is_record and shape[1:] == (node.shape or ())[1:]


def _change_records(session: Session, variables: list[tuple[DatasetNode, Shape]]) -> None:
    """Give record variables more or fewer records."""
    fewer = [(node, shape) for node, shape in variables if shape[0] <= (node.shape or (0,))[0]]
    if fewer:
        complete_posted(session)
    # A log that is full is emptied by a flush, before which no variable has lost anything.
    for node, shape in fewer:
        count = shape[0] * math.prod(shape[1:])
        if not session.posted.queue.cut(node, count):
            session.drain()
            session.posted.queue.cut(node, count)
    for node, shape in variables:
        old = (node.shape or (0,))[0]
        if shape[0] > old:
            session.add_records(node, shape[0])
        else:
            session.disk.layout.lose_records(node.uid, shape[0], old)
            node.shape = shape
            session.defs.tree.touch_records(node, old)


def _lay_out_anew(session: Session, variables: list[tuple[DatasetNode, Shape]]) -> None:
    """Replace variables by others of other shapes."""
    tree, queue = session.defs.tree, session.posted.queue
    complete_posted(session)
    replaced: list[tuple[DatasetNode, DatasetNode]] = []
    try:
        for node, shape in variables:
            replaced.append((_replace(node, shape), node))
        for _, node in replaced:
            session.defs.check_room(node, session.disk)
        if session.comm.rank == 0:
            with queue.in_memory():
                for before, node in replaced:
                    _copy(session, before, node)
    except BaseException:
        queue.forget({node.uid for _, node in replaced})
        for before, node in reversed(replaced):
            _put_back(before, node)
        raise
    for before, _ in replaced:
        del tree.datasets[before.uid]
    queue.forget({before.uid for before, _ in replaced})


def _replace(node: DatasetNode, shape: Shape) -> DatasetNode:
    """Make a dataset's variable a new one; returns the old one, which has its place in the file and its values."""
    tree, before = node.tree, copy.copy(node)
    tree.datasets[before.uid] = before
    # what was defined before keeps its turn, and its place
    tree.history[:] = [before if found is node else found for found in tree.history]
    node.uid, node.shape = tree.next_uid, shape
    tree.next_uid += 1
    tree.datasets[node.uid] = node
    tree.history.append(node)
    tree.touch()
    return before


def _put_back(before: DatasetNode, node: DatasetNode) -> None:
    """Undo `_replace`."""
    # The new variable counts as one that was deleted: ranks give early places by the order of definition.
    tree, gone = node.tree, copy.copy(node)
    tree.history[:] = [node if found is before else gone if found is node else found for found in tree.history]
    del tree.datasets[node.uid]
    node.uid, node.shape = before.uid, before.shape
    tree.datasets[node.uid] = node
    tree.touch()


def _copy(session: Session, before: DatasetNode, node: DatasetNode) -> None:
    """Post the elements that both shapes have."""
    old, new = before.shape or (), node.shape or ()
    common = tuple(min(a, b) for a, b in zip(old, new, strict=True))
    for block in blocks(common, node.element.itemsize, _BLOCK):
        number = post.write(session, node, select(new, block), session.read(before, select(old, block)))
        session.posted.kept.add(number)
