"""Datasets get another shape.

Knows: record variables, how a variable is replaced by another one, ranks. Does not know: users' objects.

Rules
-----
1. The record dimension grows by itself: nothing is moved. What a dataset loses reads as the fill value if it comes
   back. A flush fills it: a fill that each rank posts would meet what other ranks post to these records, in no
   order, and erase some of it.
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
from typing import NamedTuple

from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.selection import select
from pnc_vol.file import post
from pnc_vol.file.reads import composite_values
from pnc_vol.file.reads.completing import complete_posted
from pnc_vol.file.session import Session
from pnc_vol.interruptions import is_interruption
from pnc_vol.mapping.composite import is_ragged
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.ranks.comm import on_root

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
    # Rank 0 reads what all ranks wrote, also those of other nodes.
    apart = (session.comm.size > 1 or session.posted.queue.logged) and any(_anew(*part) for part in _parts(node, shape))
    if apart:
        session.flush(carried=True)
    # the flush has given rows that were posted new variables
    parts = list(_parts(node, shape))
    sums = [(part, its_shape) for part, its_shape in parts if part.element.kind == "composite"]
    anew = [(part, its_shape) for part, its_shape in parts if _anew(part, its_shape)]
    rows = [composite_values.reshaped(session, part, its_shape) for part, its_shape in sums]
    by_records = [one for one in parts if one[0].element.kind != "composite" and _by_records(*one)]
    changes = [Change(part, its_shape, (part.shape or (0,))[0]) for part, its_shape in by_records]
    if anew or any(change.shape[0] <= change.old for change in changes):
        complete_posted(session)
    replaced: list[tuple[DatasetNode, DatasetNode]] = []
    decided = False

    def finish() -> None:
        """The new shapes hold; done twice, it does the same."""
        _count_records(session, changes)
        for before, _ in replaced:
            session.defs.tree.datasets.pop(before.uid, None)
        session.posted.queue.forget({before.uid for before, _ in replaced})
        for keep, (part, its_shape) in zip(rows, sums, strict=True):
            keep()
            part.shape = its_shape
            part.tree.touch()

    try:
        if anew:
            _lay_out_anew(session, anew, replaced)
        # A log that is full is emptied by a flush, before which no variable has lost anything.
        for change in changes:
            if not _cut_off(session, change):
                session.drain()
                _cut_off(session, change)
        decided = True
        finish()
    except BaseException as error:
        if not decided:
            # Posts may be cut off already; with the old shape, their records would be there again, with fill values.
            decided = not anew and is_interruption(error) and all(_cut_off(session, change) for change in changes)
        if decided:
            finish()
        else:
            session.posted.queue.forget({node.uid for before, node in replaced if node.uid != before.uid})
            for before, node in reversed(replaced):
                _put_back(before, node)
        raise
    if apart:
        session.flush()


def _parts(node: DatasetNode, shape: Shape) -> Iterator[tuple[DatasetNode, Shape]]:
    """Yield a dataset and the datasets that it is made of, with the shapes that they get."""
    yield node, shape
    if node.element.kind == "composite":
        ragged, rank = is_ragged(node.element.dtype), len(node.shape or ())
        for name, part in node.parts.items():
            if not (ragged and name == "values"):
                yield from _parts(part, shape + (part.shape or ())[rank:])


def _by_records(node: DatasetNode, shape: Shape) -> bool:
    """Return whether only the number of records changes."""
    return node.is_record and shape[1:] == (node.shape or ())[1:]


def _anew(node: DatasetNode, shape: Shape) -> bool:
    """Return whether a dataset is a variable that must become a new one."""
    return node.element.kind != "composite" and not _by_records(node, shape)


class Change(NamedTuple):
    """A record variable gets another number of records, or the same."""

    node: DatasetNode
    shape: Shape
    old: int


def _cut_off(session: Session, change: Change) -> bool:
    """Drop the posts to records that a variable is to lose; False if a log has no room to record it."""
    node, shape, old = change
    return shape[0] > old or session.posted.queue.cut(node, shape[0] * math.prod(shape[1:]))


def _count_records(session: Session, changes: list[Change]) -> None:
    """Give record variables more or fewer records; done twice, it does the same."""
    for node, shape, old in changes:
        if shape[0] > old:
            if node.shape != shape:
                session.add_records(node, shape[0])
        else:
            session.disk.layout.lose_records(node.uid, shape[0], old)
            node.shape = shape
        session.defs.tree.touch_records(node, old)


def _lay_out_anew(
    session: Session, variables: list[tuple[DatasetNode, Shape]], replaced: list[tuple[DatasetNode, DatasetNode]]
) -> None:
    """Put new variables of other shapes in place of variables; the old and the new ones are added to `replaced`."""
    for node, shape in variables:
        before = copy.copy(node)
        replaced.append((before, node))
        _replace(before, node, shape)
    for _, node in replaced:
        session.defs.check_room(node, session.disk)

    def copy_all() -> None:
        with session.posted.queue.in_memory():
            for before, node in replaced:
                _copy(session, before, node)

    # what rank 0 cannot read has its old shape on all ranks
    on_root(session.comm, "resize", copy_all)


def _replace(before: DatasetNode, node: DatasetNode, shape: Shape) -> None:
    """Make a dataset's variable a new one; `before` gets the old one's place in the file and its values."""
    tree = node.tree
    tree.datasets[before.uid] = before
    # what was defined before keeps its turn, and its place
    tree.history[:] = [before if found is node else found for found in tree.history]
    node.uid, node.shape = tree.next_uid, shape
    tree.next_uid += 1
    tree.datasets[node.uid] = node
    tree.history.append(node)
    tree.touch()


def _put_back(before: DatasetNode, node: DatasetNode) -> None:
    """Undo `_replace`, also one that was interrupted."""
    tree = node.tree
    if node.uid == before.uid:
        tree.history[:] = [node if found is before else found for found in tree.history]
    else:
        # The new variable counts as one that was deleted: ranks give early places by the order of definition.
        gone = copy.copy(node)
        tree.history[:] = [node if found is before else gone if found is node else found for found in tree.history]
        tree.datasets.pop(node.uid, None)
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
