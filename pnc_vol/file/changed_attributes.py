"""A flush after a change of attributes: its cost follows what changed, not what is there.

Knows: the session, the definitions and the layout of the flush before. Does not know: how variables are encoded.

Rules
-----
1. What comes of it is the same as if all had been made anew; where that is not sure, all is made anew.
2. Where no variable changed but in its attributes, and the header is still as long as its region or shorter, all
   variables lie where they lay.
"""

from __future__ import annotations

from pnc_vol.file.session import Session
from pnc_vol.format.encode import header_size
from pnc_vol.format.placing import first_begin
from pnc_vol.mapping.flatten import Flat, with_new_attributes

__all__ = ["with_changed_attributes"]


def with_changed_attributes(session: Session) -> Flat | None:
    """The definitions from those of the flush before, and their layout if it is the same; None if more has changed.

    Raises
    ------
    DefinitionError
        An attribute that the version cannot hold.
    """
    old, changed = session.defs.flat, session.defs.tree.changed
    if old is None or changed is None:
        return None
    new = with_new_attributes(old, session.defs.tree, changed)
    if new is None:
        return None
    placed, laid_out = session.disk.layout, session.defs.laid_out
    if laid_out is not None and laid_out[0] is old and not placed.drained and placed.header.vars is laid_out[1].vars:
        region = first_begin(placed.header)
        if region is not None and header_size(new.header) <= region:
            triples = zip(placed.header.vars, old.header.vars, new.header.vars, strict=True)
            made = tuple(there if b is a else there._replace(attrs=b.attrs) for there, a, b in triples)
            header = new.header.with_vars(made)
            session.defs.keep_header(new, header)
            placed.same_places_header = header
    return new
