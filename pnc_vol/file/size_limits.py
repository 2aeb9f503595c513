"""The size limits of CDF-1 and CDF-2 files, checked when something is defined and not when the header is written.

Knows: the tree, layouts, limits. Does not know: users' objects.

Rule: what is posted can be written. Below some size everything fits, so that nothing is looked at; above it, the header
is laid out as a flush would do it.
"""

from __future__ import annotations

from math import prod

from pnc_vol.file.flushing import laid_out
from pnc_vol.file.session import Session
from pnc_vol.format.limits import check_length, check_limits
from pnc_vol.mapping.flatten import to_header
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["check_records", "check_room"]

_SURELY = 1 << 30
"""Bytes that every version can hold, whatever variables they are in."""


def check_room(session: Session, node: DatasetNode) -> None:
    """Refuse a dataset, already in the tree, that the file's version cannot hold together with the others.

    Raises
    ------
    DefinitionError
        Naming the variable that is too large or would begin too far, and the version that could hold it.
    """
    if session.defs.version == 5:
        return
    if session.defs.count_bytes(_nbytes(node), session.disk.header) < _SURELY:
        return
    flat = to_header(session.defs.tree, version=session.defs.version)
    check_limits(flat.header)
    laid_out(session, flat, closing=False)


def check_records(session: Session, node: DatasetNode, records: int) -> None:
    """Refuse more records than the file's version can count.

    Raises
    ------
    DefinitionError
    """
    if session.defs.version != 5:
        check_length(f"{node.path} with {records} records: the record dimension", records, session.defs.version)


def _nbytes(node: DatasetNode) -> int:
    """Bytes of a dataset, of one record if it has records."""
    shape = (node.shape or ())[1 if node.is_record else 0 :]
    own = 0 if node.parts else prod(shape) * node.element.itemsize
    return own + sum(_nbytes(part) for part in node.parts.values())
