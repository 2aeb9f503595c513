"""The subfiles of a set are named after it: ``out.nc.0000``, ``out.nc.0001``, ... make up the set ``out.nc``.

Knows: names, a system. Does not know: what is in the files. No other module makes such a name, and only
`burst.recovery.ownership` reads one: of a set that had not got its name.
"""

from __future__ import annotations

import fnmatch
import os
import re
from functools import partial
from itertools import count, takewhile

from pnc_vol.system import System, exists

__all__ = ["matched_set", "set_of_subfile", "subfile_path", "subfiles_of"]

_SUBFILE = re.compile(r"(?s)(.+)\.\d{4,}")
_SHOWN = 4
"""Sets that are named in a message."""


def subfile_path(path: str, number: int) -> str:
    """Return the name of a subfile of a set.

    Examples
    --------
    >>> subfile_path("out.nc", 3)
    'out.nc.0003'
    """
    return f"{path}.{number:04d}"


def set_of_subfile(path: str) -> str:
    """Return the name of the set to which a file of this name belongs; "" if it is not named like a subfile.

    Examples
    --------
    >>> set_of_subfile("out.nc.0003"), set_of_subfile("out.nc")
    ('out.nc', '')
    """
    named = _SUBFILE.fullmatch(path)
    return named[1] if named else ""


def subfiles_of(system: System, path: str) -> list[str]:
    """Return the subfiles of a set that are there, from the first one to the last before one that is not."""
    return list(takewhile(lambda name: exists(system, name), map(partial(subfile_path, path), count())))


def matched_set(system: System, path: str) -> str:
    """Return the name of the set whose subfiles a pattern matches; any other path as it is.

    Raises
    ------
    ValueError
        The pattern matches subfiles of several sets.
    """
    folder, pattern = os.path.split(path)
    if not set("*?[") & set(pattern):
        return path
    try:
        names = fnmatch.filter(system.listdir(folder or "."), pattern)
    except OSError:
        return path
    bases = sorted(set(filter(None, map(set_of_subfile, names))))
    if len(bases) > 1:
        shown = ", ".join(map(repr, bases[:_SHOWN])) + (", ..." if len(bases) > _SHOWN else "")
        raise ValueError(f"{path}: the pattern matches subfiles of {len(bases)} sets ({shown}); name one of them")
    return os.path.join(folder, bases[0]) if bases else path
