"""Where a variable lies in the file, as three integers.

Knows: nothing. Does not know: headers, files.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Place"]


class Place(NamedTuple):
    """Where a variable lies in the file.

    begin : int, bytes from the start of the file.
    itemsize : int, bytes of an element.
    inner : int, elements of one record; 0 for a variable without the record dimension.
    """

    begin: int
    itemsize: int
    inner: int
