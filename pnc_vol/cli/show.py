"""All verbs print through this module: safe text, errors in one line, exit codes, progress.

Knows: standard output and error. Does not know: verbs, formats.

Rules
-----
1. A name or a text from a file is printed through `safe`: nothing in a file can steer the terminal.
2. An expected failure is one line, ``pnc-vol: FILE: what is wrong; what to do``, and exit code 2, or that of the C
   tool that the verb takes after.
3. Anything else is a fault of this program, and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from pnc_vol.errors import PncVolError
from pnc_vol.settings.options import shell_variable
from pnc_vol.system import REAL, exists, is_folder, temporary_directory
from pnc_vol.system.full_io import write_all

__all__ = [
    "FAILED", "TROUBLE", "WRITING", "bar", "counted", "each", "expected", "fail", "human", "on_disk", "painted",
    "plain", "print_json", "refuse_address", "safe",
]  # fmt: skip

TROUBLE = 2
"""Exit code: the question could not be answered."""

FAILED = 1
"""Exit code of ncdump and h5ls for the same."""

WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What goes wrong with a target, and not with a source."""

_ADVICE = {
    errno.ENOENT: "there is no such file; check the name",
    errno.ENOTDIR: "a part of the path is not a directory; check the name",
    errno.EISDIR: "it is a directory; name a file in it",
    errno.EACCES: "permission denied; ask its owner, or copy it",
    errno.EPERM: "the system does not permit it; ask its owner, or copy it",
    errno.ENOSPC: "the disk is full; free some space, or write elsewhere",
    errno.EDQUOT: "the disk quota is used up; free some space, or write elsewhere",
    errno.EROFS: "the file system is read-only; write elsewhere",
    errno.EFBIG: "the file would be larger than allowed here; raise the limit, or write elsewhere",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
}


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


def each(names: Sequence[str], act: Callable[[str], int | None], *, code: int | None = None) -> int:
    """Return the largest exit code of `act` for each name: a file that cannot be read is reported, and the others go
    on.

    Parameters
    ----------
    code : int, optional
        That of a file that cannot be read; by default the one that the failure has.
    """
    worst = 0
    for name in names:
        try:
            worst = max(worst, act(name) or 0)
        except SystemExit as end:
            if sys.stdout is None:
                # nobody reads what is printed
                raise
            worst = max(worst, code or (end.code if isinstance(end.code, int) else TROUBLE))
    return worst


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


def refuse_address(path: str, code: int = TROUBLE) -> None:
    """Fail if an address is given where a file of this machine is needed."""
    # a plain name, which most are, loads nothing of `File`
    if "://" in path and importlib.import_module("pnc_vol.api.arguments").is_address(path):
        fail(path, "this verb takes files of this machine, no addresses; copy the file here first", code)


def fail(path: object, message: object, code: int = TROUBLE) -> NoReturn:
    """Print in one line what is wrong with a file, and exit.

    Raises
    ------
    SystemExit
        Always.
    """
    line = " ".join(str(message).split()).removeprefix(f"{path}: ")
    for word, option in _OPTIONS.items():
        line = line.replace(word, option)
    # Standard error may be unable to print all of Unicode; what it cannot is escaped by its own rules.
    print(f"pnc-vol: {safe(path)}: {safe(line)}", file=sys.stderr)
    raise SystemExit(code)


def _own_words(error: OSError) -> str | None:
    """Return the message of this package, if the error does not have the system's."""
    return None if error.errno and error.strerror == os.strerror(error.errno) else error.strerror


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        # messages of the system are explained; ours explain themselves
        own = _own_words(error)
        if error.errno == errno.EEXIST and "itself" not in str(own):
            return "it exists already; give another name, or --overwrite"
        text = own or _ADVICE.get(error.errno) or error.strerror or str(error)
    elif isinstance(error, KeyError) and error.args:
        text = str(error.args[0])
    else:
        text = str(error) or type(error).__name__
    return text


_OPTIONS = {
    "overwrite=True": "--overwrite",
    "; mode 'w' or 'a' creates one": "; check the name",
    "strict=True": "--strict",
    "option format=": "--format ",
    "compression=": "--compression ",
    "locking=False opens it nevertheless": "HDF5_USE_FILE_LOCKING=FALSE opens it nevertheless",
}
"""Parts of messages that are meant for programs, and their counterparts at the terminal."""


@contextlib.contextmanager
def expected(path: str | os.PathLike[str], *, code: int = TROUBLE) -> Iterator[None]:
    """Turn the failures that files bring about into `fail`.

    Parameters
    ----------
    path : path-like
        The file to name, unless the error names one itself.
    code : int
        The exit code.
    """
    try:
        yield
    except BrokenPipeError:
        # The reader of our output has seen enough (as `head` has): end quietly, also when Python flushes at exit.
        sys.stdout = None
        raise SystemExit(0) from None
    except (PncVolError, OSError, KeyError, RuntimeError, MemoryError) as raised:
        # RuntimeError is what h5py raises for much that is wrong inside a file.
        error = _of_the_system(raised)
        named = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else None
        new = named and isinstance(error, PermissionError) and not exists(REAL, named)
        folder = os.path.dirname(named or "") or "."
        if new and is_folder(REAL, folder):
            fail(
                folder, "no file can be made in this directory; get permission to write there, or use another one", code
            )
        if isinstance(error, FileNotFoundError) and not _own_words(error):
            refuse_address(named or str(path), code)
        fail(named or path, _reason(error), code)


def _of_the_system(error: BaseException) -> BaseException:
    """Return the error of the operating system that a message of HDF5 quotes; any other one as it is."""
    quoted = re.search(r"name = '(.*?)', errno = (\d+),", str(error))
    return error if quoted is None else OSError(int(quoted[2]), os.strerror(int(quoted[2])), quoted[1])
