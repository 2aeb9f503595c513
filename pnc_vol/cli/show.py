"""Verbs print through this module: safe text, JSON, progress; standard input as a file, folders.

Knows: standard output and input, folders. Does not know: verbs, formats, errors (`cli.errors`).

Rules
-----
1. A name or a text from a file is printed through `safe`: nothing in a file can steer the terminal.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pnc_vol.settings.options import shell_variable
from pnc_vol.system import REAL, exists, temporary_directory
from pnc_vol.system.full_io import write_all

__all__ = ["bar", "counted", "human", "make_folders", "on_disk", "painted", "plain", "print_json", "safe"]


def safe(text: object) -> str:
    """Return the text in which nothing steers a terminal: what is not printable is shown as an escape.

    Examples
    --------
    >>> safe("a" + chr(27) + "[31m")
    'a\\\\x1b[31m'
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def painted(text: str, colour: str) -> str:
    """Return the text in a colour, if the output is a terminal with colours and ``NO_COLOR`` is not set; else as it
    is."""
    plain = shell_variable("NO_COLOR") or shell_variable("TERM", "dumb") in ("dumb", "unknown")
    return text if plain or not sys.stdout.isatty() else f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


_COLOURS = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "blue": 34}


def plain(value: Any) -> Any:
    """Return a value of an attribute or of a report, as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "dtype"):
        return plain(value.tolist()) if hasattr(value, "tolist") else None
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no word for these
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def print_json(value: Any) -> None:
    """Print a value as JSON: ASCII alone, so that nothing in it steers a terminal."""
    import json

    print(json.dumps(plain(value), indent=2))


@contextlib.contextmanager
def on_disk(name: str) -> Iterator[str]:
    """Yield the path of a file; ``-`` is standard input, which is put into a temporary file."""
    if name != "-":
        yield name
        return
    with temporary_directory() as folder:
        path = os.path.join(folder, "stdin")
        fd, at = REAL.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 0
        try:
            while block := sys.stdin.buffer.read(1 << 20):
                at += write_all(REAL, fd, block, at)
        finally:
            REAL.close(fd)
        yield path


@contextlib.contextmanager
def bar(*, quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield a line of progress on a terminal, which is gone at the end; else nothing."""
    if quiet or not sys.stdout.isatty():
        yield None
        return
    began = shown = time.monotonic()

    def update(done: int, total: int, path: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < 0.1:
            return
        shown = now
        part = done / total if total else 0.0
        drawn = f"{'#' * round(24 * part):24} {100 * part:3.0f} %  {human(done)}, {human(done / (now - began))}/s"
        print(f"\r\x1b[K{safe(path)[-30:]:30} {drawn}", end="", flush=True)

    try:
        yield update
    finally:
        print("\r\x1b[K", end="", flush=True)


def human(nbytes: float) -> str:
    """Return bytes in words, e.g. ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    Examples
    --------
    >>> counted(1, "error"), counted(2, "error")
    ('1 error', '2 errors')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def make_folders(path: str) -> None:
    """Make a folder, and those above it, where they are not there."""
    if not exists(REAL, path):
        make_folders(os.path.dirname(path))
        REAL.mkdir(path)
