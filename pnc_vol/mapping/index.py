"""The doorway of the mapping: a tree to a header, a header to a tree.

Knows: where the two directions are written. The mapping itself is specified in ``docs/reference/file-format.md``.
"""

from __future__ import annotations

from pnc_vol.mapping.flatten import Flat, fill_attr, numrecs_of, to_header
from pnc_vol.mapping.respelling import respelled
from pnc_vol.mapping.unflatten import from_header

__all__ = ["Flat", "fill_attr", "from_header", "numrecs_of", "respelled", "to_header"]
