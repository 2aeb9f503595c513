"""Files whose header was being replaced in place when their writer was killed: at any of its calls, at any byte."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from other_process import killed

import pnc_vol
from pnc_vol.testing.faults import CHANGING, TraceSystem

OLD, NEW = "a" * 600, "b" * 600


def journal_of(path: pathlib.Path) -> pathlib.Path:
    """Where the journal of a file is, if there is one."""
    return path.with_name(f".{path.name}.pncj")


def begin(path: pathlib.Path) -> pathlib.Path:
    """A file with an attribute."""
    with pnc_vol.File(path, "w") as f:
        f["pay"] = [1.0]
        f.attrs["note"] = OLD
    return path


def note(f: Any) -> None:
    f.attrs["note"] = NEW


class Torn(NamedTuple):
    """A file in whose new header its writer was killed.

    journal : Path
    old, new : bytes, the whole file before and after the change.
    """

    journal: pathlib.Path
    old: bytes
    new: bytes


def torn(path: pathlib.Path, what: str, cut: int | None = None, change: Callable[[Any], None] = note) -> Torn:
    """Kill a process that changes a file, which is made if it is not there.

    what : {"journal", "header", "done"}
        The call that it does not do, or of which `cut` bytes are done: it writes the journal, the header, or removes
        the journal.
    """
    if not path.exists():
        begin(path)

    def work(system: Any) -> None:
        with pnc_vol.File(path, "r+", system=system) as f:
            change(f)

    old, trace = path.read_bytes(), TraceSystem()
    work(trace)
    new = path.read_bytes()
    path.write_bytes(old)
    journal = journal_of(path)
    wanted = {"journal": ("pwrite", journal), "header": ("pwrite", path), "done": ("unlink", journal)}[what]
    calls = [(call.name, str(call.path), call.result) for call in trace.log if call.name in CHANGING]
    (at,) = (
        n
        for n, (name, of, result) in enumerate(calls, 1)
        if (name, of) == (wanted[0], str(wanted[1])) and not isinstance(result, OSError)
    )
    assert killed(work, at, torn=cut)
    return Torn(journal, old, new)
