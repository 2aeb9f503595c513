"""An expected failure of a verb is one line, ``pnc-vol: FILE: what is wrong; what to do``, and an exit code.

Knows: errors of the system and of the package, standard error. Does not know: verbs, formats.

Rules
-----
1. The exit code is 2, or that of the C tool that the verb takes after.
2. Messages of the system are explained by a table; those of the package explain themselves, with the options of the
   command in the place of keyword arguments.
3. Anything that is not expected is a fault of this program, and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from pnc_vol.cli.show import safe
from pnc_vol.errors import FULL, PncVolError
from pnc_vol.system import REAL, exists, is_folder

__all__ = ["FAILED", "TROUBLE", "WRITING", "at_the_terminal", "each", "expected", "fail", "refuse_address"]

TROUBLE = 2
"""Exit code: the question could not be answered."""

FAILED = 1
"""Exit code of ncdump and h5ls for the same."""

WRITING = (*FULL, errno.EROFS)
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

_OPTIONS = {
    "overwrite=True": "--overwrite",
    "; mode 'w' or 'a' creates one": "; check the name",
    "strict=True": "--strict",
    "option format=": "--format ",
    "use format='CDF-5'": "use --format CDF-5",
    "; they read as the fill value (strict=True makes reading them an error)": "; they read as the fill value",
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


def fail(path: object, message: object, code: int = TROUBLE) -> NoReturn:
    """Print in one line what is wrong with a file, and exit.

    Raises
    ------
    SystemExit
        Always.
    """
    line = at_the_terminal(" ".join(str(message).split()).removeprefix(f"{path}: "))
    # Standard error may be unable to print all of Unicode; what it cannot is escaped by its own rules.
    print(f"pnc-vol: {safe(path)}: {safe(line)}", file=sys.stderr)
    raise SystemExit(code)


def at_the_terminal(text: str) -> str:
    """Return a message of the package with what it says to programs said to users of the command."""
    for word, option in _OPTIONS.items():
        text = text.replace(word, option)
    return text


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


def _own_words(error: OSError) -> str | None:
    """Return the message of this package, if the error does not have the system's."""
    return None if error.errno and error.strerror == os.strerror(error.errno) else error.strerror


def _of_the_system(error: BaseException) -> BaseException:
    """Return the error of the operating system that a message of HDF5 quotes; any other one as it is."""
    quoted = re.search(r"name = '(.*?)', errno = (\d+),", str(error))
    return error if quoted is None else OSError(int(quoted[2]), os.strerror(int(quoted[2])), quoted[1])


def refuse_address(path: str, code: int = TROUBLE) -> None:
    """Fail if an address is given where a file of this machine is needed."""
    # a plain name, which most are, loads nothing of `File`
    if "://" in path and importlib.import_module("pnc_vol.api.opening").is_address(path):
        fail(path, "this verb takes files of this machine, no addresses; copy the file here first", code)


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
