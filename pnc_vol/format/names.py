"""Which names a NetCDF classic file may hold.

Knows: the rules that PnetCDF and netCDF-C enforce when a name is defined. Does not know: HDF5 paths, headers.

Rules
-----
1. 1 to 256 bytes of UTF-8, in normalisation form C (NFC).
2. First a letter, digit or underscore of ASCII, or any character beyond ASCII.
3. Then anything but control characters, DEL and ``/``; not ending in a space.
4. The rules bind writers. Readers meet names that break them, and must show them all the same.

Source: NetCDF classic format specification, "Note on names"; behaviour of PnetCDF 1.14 and netCDF-C 4.9.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pnc_vol.errors import DefinitionError
from pnc_vol.late import late

if TYPE_CHECKING:
    import unicodedata
else:
    # most names are ASCII
    unicodedata = late("unicodedata")

__all__ = ["MAX_NAME", "check_name", "is_legal_name", "normalise"]

MAX_NAME = 256
"""Bytes of the longest name (NC_MAX_NAME)."""

_FIRST = r"[A-Za-z0-9_]|[^\x00-\x7f]"
_FORBIDDEN = r"[\x00-\x1f\x7f/]"


def normalise(name: str) -> str:
    """Return `name` as a file stores it (NFC), so that equal-looking names are equal.

    Examples
    --------
    >>> normalise("A\\u030a") == "\\u00c5"
    True
    """
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _fault(name: str) -> str:
    """Return what is wrong with `name`, or an empty string."""
    if not name:
        return "it is empty"
    try:
        nbytes = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if nbytes > MAX_NAME:
        return f"it takes {nbytes} bytes of UTF-8, and {MAX_NAME} is the limit"
    if not re.match(_FIRST, name):
        return f"it begins with {name[0]!r}; begin with a letter, a digit or an underscore"
    bad = re.search(_FORBIDDEN, name)
    if bad:
        return f"it holds {bad.group()!r}"
    if name.endswith(" "):
        return "it ends with a space"
    if not name.isascii() and not unicodedata.is_normalized("NFC", name):
        return "it is not in Unicode normalisation form C; pass it through names.normalise"
    return ""


def is_legal_name(name: str) -> bool:
    """Whether a writer may store `name`.

    Examples
    --------
    >>> is_legal_name("air_temperature"), is_legal_name("a/b")
    (True, False)
    """
    return (name.isascii() and name.isidentifier() and len(name) <= MAX_NAME) or not _fault(name)


def check_name(name: str) -> None:
    """Refuse a name that the format does not allow.

    Raises
    ------
    DefinitionError
        With the rule that `name` breaks.

    Examples
    --------
    >>> check_name("temperature")
    """
    if not is_legal_name(name):
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise DefinitionError(f"{shown!r} cannot be a name in a NetCDF file: {_fault(name)}.")
