"""What a driver is: six verbs over extents.

Knows: extents, bytes. Does not know: variables, headers, requests, MPI.

Rules
-----
1. A driver moves exactly the bytes it was asked to move, or raises `OSError` with an errno. No call is
   silently short. Bytes of a read that lie beyond the end of the file are left as they are in `memory`.
2. Extents may come in any order and need not be merged; extents of one `write` never overlap.
3. `collective=True` is a promise of the caller that every rank of the file's communicator makes the same
   call now. A driver without a communicator ignores it. `collective=False` never waits for another rank.
4. A wrapper (`Wrapper`) holds one other driver and passes on what it does not change.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents

__all__ = ["Driver", "Memory", "Wrapper"]

Memory = npt.NDArray[np.uint8]


class Driver(abc.ABC):
    """Where bytes go: the root of a stack, or a wrapper around another driver."""

    name: ClassVar[str] = ""
    """The word that stands for this driver in a stack, e.g. ``"posix"``."""

    path: str | None = None
    """The file's path, or None for a driver that keeps no file."""

    @abc.abstractmethod
    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        """Fill ``memory[place:place+length]`` from the file, for each extent.

        Returns
        -------
        int
            Bytes read; less than ``extents.nbytes`` only where the file ends, and there `memory` keeps
            what it held.

        Raises
        ------
        OSError
            The operating system's error.
        """

    @abc.abstractmethod
    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        """Write ``memory[place:place+length]`` to the file, for each extent; the file grows as needed.

        Raises
        ------
        OSError
            The operating system's error; which extents were written is then not known.
        """

    @abc.abstractmethod
    def size(self) -> int:
        """Bytes of the file."""

    @abc.abstractmethod
    def resize(self, nbytes: int) -> None:
        """Cut or extend the file to `nbytes`; new bytes are zeros."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Return when all that was written by this process is on stable storage."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the file; a second call does nothing."""

    def statistics(self) -> dict[str, Any]:
        """Counts of what this driver did, by name; a wrapper adds its own to those below."""
        return {}

    def describe(self) -> str:
        """The stack from here down, as it would be written in ``driver=``."""
        return self.name


class Wrapper(Driver):
    """A driver that stands on another one; a subclass overrides the verbs that it changes."""

    def __init__(self, inner: Driver) -> None:
        self.inner = inner
        self.path = inner.path

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        return self.inner.read(extents, memory, collective=collective)

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        self.inner.write(extents, memory, collective=collective)

    def size(self) -> int:
        return self.inner.size()

    def resize(self, nbytes: int) -> None:
        self.inner.resize(nbytes)

    def sync(self) -> None:
        self.inner.sync()

    def close(self) -> None:
        self.inner.close()

    def statistics(self) -> dict[str, Any]:
        return self.inner.statistics()

    def describe(self) -> str:
        return f"{self.name} | {self.inner.describe()}"
