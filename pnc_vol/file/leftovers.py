"""Plug-ins take care of what an earlier job left of a file before the file is opened.

Knows: that there are such plug-ins, when they are asked. Does not know: logs, caches.

Rules
-----
1. A plug-in has the name of its notes: a job that keeps data of ``NAME`` elsewhere writes where into ``.NAME.note``
   beside the file (`system.neighbour`), until all of the data are in the file.
2. Rank 0 asks each of them, in the order of the table in `plugins`, before it opens or replaces a file: that has such a
   note, or is opened with options that may ask for more than that. So a file without a note loads no plug-in.
3. Those of other packages are registered by an import of the package: to search entry points at each opening would take
   longer than the opening.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pnc_vol.drivers.stack import takes_hints
from pnc_vol.plugins import Registry
from pnc_vol.settings.options import Options
from pnc_vol.system import exists, is_unnamed, neighbour

__all__ = ["Left", "Recovery", "ReplayReport", "left", "look_after", "register"]


class Left(NamedTuple):
    """A folder of a job with data that may not be in its file.

    kind : str, what is in it, for messages.
    running : bool, the job has not ended.
    """

    folder: str
    kind: str
    running: bool = False


class ReplayReport:
    """What a replay did.

    Attributes
    ----------
    logs : int
    replayed, cancelled, flushed, torn, uncounted, failed : int
        Entries by what became of them: put into the file; cancelled by their program; in the file already; never
        committed; beyond the count of a log of the C library, and not asked for; of values that do not fit.
    torn_bytes : int
        Bytes at the ends of logs that were dropped.
    created : list of str
        Datasets that the file lacked.
    messages : list of str
        What a person should know.
    closed : list of str
        Folders of logs that were not looked into, each with the reason and what to do.
    caches, carried, headers : int
        Node-local caches, bytes of data and headers that were carried from them to the file.
    damaged : bool
        Something is wrong with a log that no crash of its job explains; what was good of it was replayed (`salvage`).
    """

    def __init__(self) -> None:
        self.logs = self.replayed = self.cancelled = self.flushed = self.torn = self.uncounted = self.failed = 0
        self.torn_bytes = self.caches = self.carried = self.headers = 0
        self.created: list[str] = []
        self.messages: list[str] = []
        self.closed: list[str] = []
        self.damaged = False

    @property
    def whole(self) -> bool:
        """True if everything that was in the logs is in the file, or was cancelled."""
        return not (self.damaged or self.torn or self.torn_bytes or self.uncounted or self.failed or self.closed)


class Recovery(Protocol):
    """A plug-in that finds what jobs left of a file."""

    def look_after(self, path: str, real: str, options: Options, *, writable: bool, replaced: bool) -> None:
        """Recover, refuse or report what jobs left of a file.

        Parameters
        ----------
        path, real : str, the file's name, and the same without symbolic links.
        writable : bool, the file is opened for writing.
        replaced : bool, it is made anew: what jobs left belongs to the old file.

        Raises
        ------
        OSError
            The file cannot be opened beside it.
        """

    def left(self, real: str, options: Options) -> list[Left]:
        """Return what jobs hold, or left when they ended, that may not be in the file."""


_registry = Registry[Recovery]("pnc_vol.recoveries", "recovery")
register = _registry.register


def look_after(path: str, real: str, options: Options, *, writable: bool, replaced: bool) -> None:
    """Let plug-ins take care of what jobs left of a file; on rank 0.

    Raises
    ------
    OSError
        See `Recovery.look_after`.
    """
    all_asked = options.burst_buf or options.recover or is_unnamed(real) or takes_hints(options.hints)
    for name in _registry.own():
        if all_asked or exists(options.system, neighbour(real, name)):
            _registry.find(name).look_after(path, real, options, writable=writable, replaced=replaced)


def left(real: str, options: Options) -> list[Left]:
    """Return what jobs hold, or left when they ended, that may not be in a file."""
    return [folder for name in _registry.own() for folder in _registry.find(name).left(real, options)]
