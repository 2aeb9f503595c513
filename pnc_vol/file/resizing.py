"""Datasets that get another shape.

Knows: record variables, how a variable is replaced by another one, ranks. Does not know: users' objects.

Rules
-----
1. The record dimension grows by itself: nothing is moved. What a dataset loses reads as the fill value if it comes
   back.
2. Any other change of shape makes a new variable, to which the elements that both have are posted; the old one is gone
   at the
   next flush. With several ranks, or a log, the file is flushed before and after (collective), so that one rank can do
   it.
"""

from __future__ import annotations

import copy
import math

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
    old = node.shape or ()
    if node.element.kind == "composite":
        composite_values.grown(session, node, shape)
        for name, part in node.parts.items():
            if name == "values" and is_ragged(node.element.dtype):
                continue
            resize(session, part, shape + (part.shape or ())[len(old) :])
        node.shape = shape
        node.tree.touch()
    elif node.is_record and shape[1:] == old[1:]:
        if shape[0] > old[0]:
            session.add_records(node, shape[0])
        else:
            _cut_records(session, node, shape)
    else:
        _lay_out_anew(session, node, shape)


def _cut_records(session: Session, node: DatasetNode, shape: Shape) -> None:
    """Give a record dataset fewer records."""
    old, new = (node.shape or (0,))[0], shape[0]
    complete_posted(session)
    count = new * math.prod(shape[1:])
    if not session.posted.queue.cut(node, count):
        session.drain()
        session.posted.queue.cut(node, count)
    session.disk.layout.lose_records(node.uid, new, old)
    node.shape = shape
    session.defs.tree.touch_records(node, old)


def _lay_out_anew(session: Session, node: DatasetNode, shape: Shape) -> None:
    """Replace the variable of a dataset by one of another shape."""
    tree = session.defs.tree
    apart = session.comm.size > 1 or session.posted.queue.logged
    if apart:
        # Rank 0 reads what all ranks wrote, also those of other nodes.
        session.flush(carried=True)
    complete_posted(session)
    before = copy.copy(node)
    tree.datasets[before.uid] = before
    # what was defined before keeps its turn, and its place
    tree.history[:] = [before if found is node else found for found in tree.history]
    node.uid, node.shape = tree.next_uid, shape
    tree.next_uid += 1
    tree.datasets[node.uid] = node
    tree.history.append(node)
    tree.touch()
    try:
        session.defs.check_room(node, session.disk)
        if session.comm.rank == 0:
            _copy(session, before, node)
    except BaseException:
        del tree.datasets[node.uid]
        tree.history[:] = [before if found is node else found for found in tree.history]
        node.uid, node.shape = before.uid, before.shape
        tree.datasets[node.uid] = node
        tree.touch()
        raise
    del tree.datasets[before.uid]
    session.posted.queue.forget({before.uid})
    if apart:
        session.flush()


def _copy(session: Session, before: DatasetNode, node: DatasetNode) -> None:
    """Post the elements that both shapes have."""
    old, new = before.shape or (), node.shape or ()
    common = tuple(min(a, b) for a, b in zip(old, new, strict=True))
    for block in blocks(common, node.element.itemsize, _BLOCK):
        number = post.write(session, node, select(new, block), session.read(before, select(old, block)))
        session.posted.kept.add(number)
