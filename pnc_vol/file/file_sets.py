"""Plug-ins find and open files that consist of several files, such as sets of subfiles.

Knows: the names of such plug-ins, what is asked of them. Does not know: names of subfiles, how a set is opened.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pnc_vol.file.opening_record import Opening
from pnc_vol.plugins import Registry
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists

if TYPE_CHECKING:
    from pnc_vol.disk.existing import Existing

__all__ = ["FileSets", "SetSeen", "file_sets", "file_with_header", "files_of", "is_set", "matched_set", "set_names"]


class SetSeen(NamedTuple):
    """A set of files that is there, or is to be made.

    sets : str, the plug-in that has it.
    base : str, the name that a user gives it.
    header : bytes, of its first file; empty if it is to be made.
    first : Existing or None, its first file, which is closed again, or another one that has the same header.
    """

    sets: str
    base: str
    header: bytes = b""
    first: Existing | None = None


class FileSets(Protocol):
    """A plug-in that finds and opens files which consist of several files.

    A layout with `several_files` names the plug-in in its attribute `sets`.
    """

    def first_file(self, base: str) -> str:
        """Return the name of the file of a set that has its first header."""

    def lacks_first(self, system: System, base: str) -> bool:
        """Return whether the second file of a set is there, and the first one is not."""

    def files(self, system: System, base: str) -> list[str]:
        """Return the files of a set that are there, from the first one to the last before one that is not."""

    def matched(self, system: System, path: str) -> str:
        """Return the name of the set whose files a pattern matches; any other path as it is.

        Raises
        ------
        ValueError
            The pattern matches files of several sets.
        """

    def seen(self, name: str, asked: str, path: str, options: Options) -> SetSeen | None:
        """Return the set of which `path`, which is there, is a file; None if it is an ordinary file.

        It is asked only if the name ends in a digit.

        Raises
        ------
        OSError, FormatError
        """

    def find(self, opening: Opening, seen: SetSeen, there: os.stat_result | None) -> None:
        """Check that a set can be opened or made, and fill in its name and first header; on rank 0.

        Parameters
        ----------
        there : os.stat_result or None, of its first file.

        Raises
        ------
        OSError, ValueError
            It cannot be opened or made in this way.
        """

    def open(self, opening: Opening) -> Any:
        """Open or create the set (collective): an `OpenFile`.

        Raises
        ------
        OSError, ValueError
        """


_sets = Registry[FileSets]("pnc_vol.sets", "set of files")
file_sets = _sets.find
set_names = _sets.own


def matched_set(system: System, path: str) -> str:
    """Return the name of the set whose files a pattern matches, such as ``out.nc.*``; any other path as it is."""
    # a file may have such a name
    if not exists(system, path):
        for name in set_names():
            path = file_sets(name).matched(system, path)
    return path


def file_with_header(system: System, path: str) -> str:
    """Return the file in which the header of `path` is: that itself, or the first file of a set of that name."""
    return files_of(system, path)[0]


def files_of(system: System, path: str) -> list[str]:
    """Return the files in which the data under a name are: that itself, or those of a set that are there."""
    if not exists(system, path):
        for name in set_names():
            if found := file_sets(name).files(system, path):
                return found
    return [path]


def is_set(system: System, path: str) -> bool:
    """Return whether a path is the name of a set of files: nothing stands there, but its first file does."""
    return files_of(system, path) != [path]
