"""What a driver is: six verbs over extents.

Knows: extents, bytes. Does not know: variables, headers, requests, MPI.

Rules
-----
1. A driver moves exactly the bytes it was asked to move, or raises `OSError` with an errno. No call is
   silently short. Bytes of a read that lie beyond the end of the file are left as they are in `memory`.
2. Extents may come in any order and need not be merged; those of one `write` never overlap, in the file or in memory.
   `memory` is one-dimensional and contiguous, and holds every place that the extents name.
3. `collective=True` is a promise of the caller that every rank of the file's communicator makes the same
   call now. A driver without a communicator ignores it. `collective=False` never waits for another rank.
4. On a file of several ranks `resize`, `sync` and `close` are called by every rank together, `resize` with the same
   size; `size` is local.
5. A wrapper (`Wrapper`) holds one other driver and passes on what it does not change.
6. The verbs may be called from several threads; what two threads write to the same bytes at once is one or the other.
7. After `close` every other verb raises `ClosedFileError`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents
from pnc_vol.system import System

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Driver", "Memory", "Ranks", "Wrapper"]

Memory = npt.NDArray[np.uint8]


class Ranks(Protocol):
    """The ranks that share a file, as `pnc_vol.comm` makes them.

    rank : int, this process, from 0.
    size : int, processes.
    mpi : the mpi4py communicator behind them, or None where there is none.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def mpi(self) -> Any: ...


class Driver(abc.ABC):
    """Where bytes go: the root of a stack, or a wrapper around another driver."""

    name: ClassVar[str] = ""
    """The word that stands for this driver in a stack, e.g. ``"posix"``."""

    keeps_file: ClassVar[bool] = True
    """Whether a root of this kind puts its bytes into the file that `path` names."""

    takes_descriptor: ClassVar[bool] = False
    """Whether `open` of a root takes ``fd=``, a descriptor that it uses instead of opening `path`, and leaves open.

    Where it does not, the file is opened a second time by its name, and the name is checked again afterwards.
    """

    path: str | None = None
    """The file's path, or None for a driver that keeps no file."""

    concurrent: bool = False
    """Whether several threads may call `read` and `write` at once; never true of a driver that uses MPI."""

    @classmethod
    def open(
        cls,
        path: str | None,
        *,
        writable: bool,
        system: System,
        comm: Ranks | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> Driver:
        """Open a root on a file that exists; every rank of `comm` together. A subclass may take options besides.

        Parameters
        ----------
        path : str or None
            None only where `keeps_file` is False.
        writable : bool
            Open for reading and writing, not for reading alone.
        system : System
            Where the calls to the operating system go.
        comm : Ranks or None
            Who shares the file; None for this process alone.
        hints : mapping of str to str
            MPI-IO's and PnetCDF's words; a driver takes those it knows.

        Raises
        ------
        OSError
            The operating system's error.
        """
        raise NotImplementedError(f"{cls.__name__} stands on another driver; it opens no file of its own")

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

    def read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        """Fill an array, of any type, C-contiguous and not empty, from one place of the file: `read` in fewer steps.

        Returns
        -------
        int
            Bytes read, as of `read`; on fewer than the array has the caller reads in another way.
        """
        column = np.array((offset, array.nbytes, 0), np.int64)
        return self.read(Extents(column[:1], column[1:2], column[2:]), array.reshape(-1).view(np.uint8))

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        """Let `use` read straight from the file's bytes, if they can be had in memory; only a root can do this.

        Parameters
        ----------
        end : int
            `use` looks at the file up to this byte.
        nbytes : int
            Bytes that it takes, to be counted.
        use : callable
            Is given the file, read-only, copies what it wants, and keeps nothing of it.

        Returns
        -------
        bool
            False if it cannot be done, or what was seen was not the file: then `read` is to be used.
        """
        return False

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
        """Return when all that was written by this process is on stable storage.

        Once this failed it fails for ever: what the system dropped cannot be known (it reports it once).
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the file; a second call does nothing."""

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has something to do."""
        return False

    def become(self, copy: Driver) -> bool:
        """Hold what `copy` holds from now on, for good after `settle`; `copy` is this driver's then.

        Returns
        -------
        bool
            False if this driver cannot: then its user goes on with `copy`, which takes the file's name.
        """
        return False

    def settle(self) -> None:  # noqa: B027
        """A flush is complete: pass on what is held back for it; only a root that keeps no file may do so.

        Raises
        ------
        OSError
            What was written is still held, and a later call tries again.
        """

    def statistics(self) -> dict[str, Any]:
        """What this driver and those below did: counts and seconds, named ``"posix.write_calls"``."""
        return {}

    def describe(self) -> str:
        """The stack from here down, as it would be written in ``driver=``."""
        return self.name


class Wrapper(Driver):
    """A driver that stands on another one; a subclass overrides the verbs that it changes.

    Examples
    --------
    A wrapper that counts what goes through, whole:

    >>> class Count(Wrapper):
    ...     name = "count"
    ...     written = 0
    ...     def write(self, extents, memory, *, collective=False):
    ...         super().write(extents, memory, collective=collective)
    ...         self.written += extents.nbytes
    """

    def __init__(self, inner: Driver) -> None:
        self.inner = inner
        self.path = inner.path
        self.concurrent = inner.concurrent

    @classmethod
    def over(
        cls,
        inner: Driver,
        *,
        writable: bool,
        system: System,
        comm: Ranks | None = None,
        hints: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """Put this wrapper on `inner`; one that needs more than the options of the text overrides this.

        Parameters
        ----------
        writable, system, comm, hints
            As for `Driver.open`.
        **options
            What stood in brackets behind the name: ``"trace(file=a.json) | posix"``.
        """
        return cls(inner, **options)

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

    @property
    def unsettled(self) -> bool:
        return self.inner.unsettled

    def become(self, copy: Driver) -> bool:
        return self.inner.become(copy)

    def settle(self) -> None:
        self.inner.settle()

    def statistics(self) -> dict[str, Any]:
        return self.inner.statistics()

    def describe(self) -> str:
        return f"{self.name} | {self.inner.describe()}"
