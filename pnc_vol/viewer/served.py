"""`Served` is one file that is shown: it is open for reading, and opened again when it has changed.

Knows: how either kind of file is opened, how to find out that it changed. Does not know: what is asked of its objects.

Rules
-----
1. A file is open from the first question to the last, and opened again if the system says that it is another one, or
   has been written to. So records that a running program adds are there with the next question. It is opened anew, not
   refreshed: that is one way for both formats, and for a file that was replaced.
2. Questions about one file are answered one after another: none meets a file that is being opened again.
3. No writer is held up: HDF5's lock is not taken.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from pnc_vol.api.file import File
from pnc_vol.api.hdf5_files import open_hdf5
from pnc_vol.convert.either import kind_of
from pnc_vol.convert.link_state import state_of
from pnc_vol.file.file_sets import files_of
from pnc_vol.system import REAL, exists
from pnc_vol.viewer.objects import first_of

__all__ = ["Served"]

_PATIENCE = 2.0
"""Seconds that the end waits for an answer that is being made."""


class Served:
    """A file that is shown.

    Parameters
    ----------
    path : str

    Raises
    ------
    NotCDFError, OSError
        It cannot be opened, or is neither NetCDF nor HDF5.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file: Any = None
        self._version = ""
        self._first = "/"
        self._notice = ""
        # of a link file, where its values are
        self._source = ""
        with self.opened():
            pass

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the file, as it is now; h5py's or ours.

        Raises
        ------
        OSError
            It is gone, or cannot be read.
        """
        with self._lock:
            if self._file is None or self._seen() != self._version:
                self._close()
                self._open()
            yield self._file

    def state(self) -> dict[str, str]:
        """Return what is there now: the version, where to begin, and what a reader should know.

        Raises
        ------
        OSError
            As `opened`.
        """
        with self.opened():
            return {"version": self._version, "first": self._first, "notice": self._notice}

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        free = self._lock.acquire(timeout=_PATIENCE)
        try:
            self._close()
        finally:
            if free:
                self._lock.release()

    def _open(self) -> None:
        self._source = self._notice = ""
        hdf5 = kind_of(self.path) == "hdf5"
        # before it is open: HDF5 opens no file twice that is locked once
        link = state_of(self.path) if hdf5 else None
        if link is not None:
            self._source = link.source if exists(REAL, link.source) else ""
            if link.stale:
                self._notice = f"This link file is stale: {link.stale}; make it again with pnc-vol link."
        # before it is open: what is written meanwhile makes another version
        self._version = self._seen()
        self._file = open_hdf5(self.path, locking=False) if hdf5 else File(self.path, "r")
        self._first = first_of(self._file)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _seen(self) -> str:
        """Return what differs when the file, or a subfile of a set, is another one or has been written to."""
        paths = files_of(REAL, self.path)
        if self._source and exists(REAL, self._source):
            paths.append(self._source)
        found = [REAL.stat(path) for path in paths]
        return " ".join(f"{one.st_ino}:{one.st_size}:{one.st_mtime_ns}" for one in found)
