"""`Hints` shows the hints of a file: those that a hint file has for it, and those in force.

Knows: options, hint files, communicators. Does not know: what a hint means, how a file is opened.

Rules
-----
1. One rank reads a hint file; all ranks have the same text, and so the same entry or the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pnc_vol.drivers.stack import hinted
from pnc_vol.errors import HintsFileError
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.hint_files import HintFile
from pnc_vol.settings.options import hint_checks, hint_text
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_whole
from pnc_vol.warn import held_warnings, warn_outside

if TYPE_CHECKING:
    from pnc_vol.file.open_file import OpenFile

__all__ = ["Hints", "hints_in_force", "prepared_from_file", "read_hint_file"]

T = TypeVar("T")

_MOST_BYTES = 1 << 20
"""Of a hint file."""


class Hints(dict[str, str]):
    """Hints and their values, as `File.hints` shows them.

    sources : dict of str to str
        What set each one: ``"default"``, a keyword argument, ``"hints="``, ``"info"``, an environment variable, or a
        line of a hint file.
    """

    def __init__(self, values: Mapping[str, str], sources: Mapping[str, str]) -> None:
        super().__init__(values)
        self.sources = {name: sources.get(name, "default") for name in values}


def hints_in_force(session: OpenFile) -> Hints:
    """Return the hints that a file has; see `File.hints`."""
    given = session.options
    known = {
        "nc_var_align_size": given.var_align,
        "nc_record_align_size": given.record_align,
        "nc_header_reserve": given.header_reserve or 0,
        "pnc_buffer_size": given.buffer_size,
    }
    found = {**given.hints, **{name: str(value) for name, value in known.items()}, **session.log_hints()}
    for name in hinted.own():
        found |= hinted.find(name).when_off
    found |= session.disk.driver.holder.hints()
    others = {name: hint_text(given, name) for name in given.sources if name not in found}
    return Hints({**found, **others}, given.sources)


def _text(path: str) -> bytes:
    return read_whole(REAL, path, limit=_MOST_BYTES)


def _parsed(path: str, text: bytes) -> HintFile:
    checks = dict(hint_checks())
    for name in hinted.own():
        checks |= hinted.find(name).checks
    return HintFile(text, path, checks)


def read_hint_file(path: str) -> HintFile:
    """Return a hint file.

    Raises
    ------
    HintsFileError, OSError
        It is none, or cannot be read.
    """
    return _parsed(path, _text(path))


def prepared_from_file(comm: Comm, path: str, prepare: Callable[[HintFile], T]) -> T:
    """Return what `prepare` makes of a hint file that rank 0 reads (collective).

    Raises
    ------
    Exception
        The hint file's error, or that of a rank's `prepare`; the same on all ranks.
    """
    text = on_root(comm, "open hints", partial(_text, path))
    prepared: list[T] = []
    failure = None
    with held_warnings() as held:
        try:
            from_file = _parsed(path, text)
        except HintsFileError as error:
            raise comm.on_all(error)  # noqa: B904
        try:
            prepared.append(prepare(from_file))
        except Exception as error:
            failure = error
    # warnings of ranks need not be the same
    comm.agree("open hints", error=failure)
    for warning, category in () if comm.rank else held:
        warn_outside(warning, category)
    return prepared[0]
