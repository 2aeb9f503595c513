"""`state_of` finds whether a link file still shows what is in its NetCDF file.

Knows: the note in a link file, headers. Does not know: how a link file is made (`convert.link`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from typing import Any, NamedTuple

from pnc_vol.api.file import File
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Header
from pnc_vol.system import REAL, exists
from pnc_vol.system.full_io import read_content
from pnc_vol.warn import warn_outside

__all__ = ["NOTE", "LinkState", "digest", "note_of", "source_of", "state_of", "warn_if_stale"]

NOTE = "pnc_vol_link"
"""Attribute of the root group of a link file: JSON, ASCII, a string of fixed length."""
_MOST, _LONGEST, _APART = 64 << 20, 64 << 10, 128
"""Bytes of a file in which the note is looked for, of the note, and between its name and its text."""


class LinkState(NamedTuple):
    """The source of a link file, and whether the link file is up to date.

    source : str, path of the NetCDF file.
    stale : str, why the link file has to be made again; empty if it is up to date.
    """

    source: str
    stale: str


def digest(header: Header) -> str:
    """Return a text that differs if anything but the number of records does.

    A time stamp would not do: it changes with the values, which a link file shows as they are, and with a copy.
    """
    return hashlib.blake2b(encode(header.with_numrecs(0), check=False), digest_size=16).hexdigest()


def state_of(path: str | os.PathLike[str]) -> LinkState | None:
    """Return whether a link file is up to date; None if the file is no link file.

    Examples
    --------
    >>> state_of("ocean.h5")                                           # doctest: +SKIP
    LinkState(source='/data/ocean.nc', stale='the NetCDF file has 12 records, the link file shows 10')
    """
    path = os.fspath(path)
    note = note_of(path)
    return None if note is None else _state(note, path)


def _state(note: dict[str, Any], path: str) -> LinkState:
    source = source_of(note, path)
    if not exists(REAL, source):
        return LinkState(source, f"there is no file {source}")
    with File(source, "r") as reader:
        header = reader.id.handle.session.disk.header
    if header.numrecs != note.get("records"):
        shown = note.get("records")
        return LinkState(source, f"the NetCDF file has {header.numrecs} records, the link file shows {shown}")
    if digest(header) != note.get("header"):
        return LinkState(source, "the header of the NetCDF file changed")
    return LinkState(source, "")


def source_of(note: dict[str, Any], path: str) -> str:
    """Return the NetCDF file that the note in a link file names."""
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(path)), str(note.get("source"))))


def note_of(path: str) -> dict[str, Any] | None:
    """Return the note in a link file; None if the file is none.

    The HDF5 library is not asked: what stands at `path` may be any file, and in a damaged one the library may look for
    attributes for ever.
    """
    try:
        content = read_content(REAL, path, limit=_MOST).tobytes()
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return None
    name = content.find(NOTE.encode())
    begin = content.find(b"{", name, name + _APART)
    if name < 0 or begin < 0:
        return None
    try:
        note, _ = json.JSONDecoder().raw_decode(content[begin : begin + _LONGEST].decode("ascii", "replace"))
    except (ValueError, RecursionError):
        return None
    return note if isinstance(note, dict) else None


def _note_in(opened: Any) -> dict[str, Any] | None:
    try:
        note = json.loads(opened.attrs[NOTE])
    except (OSError, KeyError, ValueError, TypeError):
        return None
    return note if isinstance(note, dict) else None


def warn_if_stale(path: str | os.PathLike[str], opened: Any) -> None:
    """Warn about a link file that has to be made again.

    Parameters
    ----------
    opened : h5py.File, the same file.
    """
    note, path = _note_in(opened), os.fsdecode(path)
    state = None if note is None else _state(note, path)
    if state is not None and state.stale:
        warn_outside(f"{path} is stale: {state.stale}; make it again with: pnc-vol link {state.source} {path}")
