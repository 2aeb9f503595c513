"""Queue stores: where posted bytes are kept until they are written. The protocol, and the register of names.

Knows: what a store must do and may declare. Does not know: any store.

Rules
-----
1. A store takes a post whole or says no; a `False` leaves nothing behind. Rows go to the backlog, which all stores of
   a queue share; bytes are kept by the store until its batches are done.
2. What a store can do is declared in `Store.capabilities`; nobody asks for its class.
3. A store is named by the option ``store``, and ``nc_burst_buf=enable`` means ``store="log"``. A store of this package
   is imported when it is first named; one of another package is found by its entry point in the group
   ``pnc_vol.stores``, which is searched only for a name that is not known yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy.typing as npt

from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.extents.model import Runs
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.plugins import Registry
from pnc_vol.queue.backlog import Backlog
from pnc_vol.queue.batches import Batch
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection
    from pnc_vol.format.convert import Overflow

__all__ = [
    "MEMORY", "Capabilities", "Store", "StoreContext", "check_name", "open_store", "register", "registered", "trouble",
]  # fmt: skip

GROUP = "pnc_vol.stores"

MEMORY = "memory"
"""The last store of every queue, which needs no opening."""


class Capabilities(NamedTuple):
    """What a queue may rely on, and has to do, when posts go to a store.

    survives_kill : bool
        What was posted outlives the process, and a recovery finds it.
    logged : bool
        What was posted is kept until the header is written, whatever was drained: a drain alone makes no room, a
        whole flush does. All ranks say that they are done before one of them closes such a store.
    shares_lists : bool
        A list of runs is kept once for all posts that have it.
    user_arrays : bool
        An array that ``iput`` is given may stay with the user until the request is complete; a store that must copy
        what it is given says False.
    """

    survives_kill: bool = False
    logged: bool = False
    shares_lists: bool = False
    user_arrays: bool = True


class StoreContext(NamedTuple):
    """What a store is opened with.

    backlog : Backlog, of the queue.
    options : Options, of the file.
    comm : Comm, of the file; opening a store is collective.
    disk : StoredFile, what is on disk: the path, the header that it has now.
    """

    backlog: Backlog
    options: Options
    comm: Comm
    disk: StoredFile


class Store:
    """A place for posted bytes.

    Derive from it and override `put`, `close_batch` and `open_batch`; the rest has a default.

    Parameters
    ----------
    backlog : Backlog
        The rows of the queue that the store belongs to.

    Attributes
    ----------
    batches : list of Batch
        The closed batches that this store made and that are not written.
    usable : bool
        Whether it takes posts; if not, they go to memory.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def __init__(self, backlog: Backlog) -> None:
        self.backlog = backlog
        self.batches: list[Batch] = []
        self.usable = True

    # ------------------------------------------------------------------------------------- posting

    def put(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        selection: Selection | None,
        one: tuple[int, int] | None,
        found: Runs | None,
        on_overflow: Overflow,
    ) -> bool:
        """Take in what is to be written.

        Parameters
        ----------
        node : DatasetNode
        request : int
        values : ndarray, ready for `to_file`.
        selection : Selection or None
            Where the elements are, as the user said it, if the values are all of it.
        one : (start, count) or None
            The elements, where they are one run that crosses no record.
        found : Runs or None
            The elements; needed if `one` is None.
        on_overflow : "raise" or "clip"

        Returns
        -------
        bool
            False if there is no room; nothing was taken in.

        Raises
        ------
        RangeError, DefinitionError
            See `to_file`; nothing was posted.
        """
        raise NotImplementedError

    def put_run(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        start: Any,
        number: int = 1,
        step: int = 0,
    ) -> bool:
        """As `put`, for what most posts are: numbers of the variable's own type, one run that crosses no record.

        False also means: ask `put`.

        number, step : int, optional
            There are so many runs of equal length, which begin `step` elements apart. They are given if there is more
            than one; where `step` is 0 then, `start` is an int64[number], the first element of each.
        """
        return False

    # ------------------------------------------------------------------------------------- batches

    def close_batch(self) -> None:
        """Make batches of the open rows, with `add`; later posts go to new ones."""
        raise NotImplementedError

    def add(self, batch: Batch) -> None:
        """Append a batch to the backlog."""
        self.batches.append(batch)
        self.backlog.closed.append(batch)

    def open_batch(self, uid: int) -> Batch:
        """The bytes of a variable's open rows, for reads; its own rows are not asked for.

        All rows are in the backlog from then on: a store may have kept some back.
        """
        raise NotImplementedError

    def open_lists(self, uid: int) -> Batch | None:
        """A batch of the lists of runs that a variable has in the open batch; None if it has none."""
        return None

    def retain(self, left: Sequence[Batch]) -> int:
        """Of its closed batches these are left; give up what the others took.

        Returns
        -------
        int
            Rows of these that are in memory.
        """
        self.batches = list(left)
        return sum(sum(batch.sizes(uid)) for batch in left if batch.rows_in is None for uid in batch.uids())

    def weight(self) -> tuple[int, int]:
        """Of its closed batches: runs that are not in rows, and bytes. It is asked when the open batch was closed."""
        return 0, sum(batch.size for batch in self.batches)

    # ------------------------------------------------------------------------------ what it is told

    def cancel(self, requests: set[int]) -> None:
        """Requests are about to be dropped.

        Raises
        ------
        OSError
            It cannot be recorded; nothing is dropped then.
        """

    def cut(self, node: DatasetNode, count: int) -> bool:
        """A record variable's rows from element `count` on are about to be dropped; False if it cannot be recorded."""
        return True

    def about_to_flush(self, *, active: bool) -> None:
        """A flush begins.

        Parameters
        ----------
        active : bool, posts go to this store now.

        Raises
        ------
        PncVolError
            What was posted cannot be written.
        """

    def about_to_write(self, header: bytes) -> None:
        """The file gets a new header."""

    def after_flush(self) -> bool:
        """All that was posted is in the file, header included; returns whether posts may go here again."""
        return True

    def hints(self) -> dict[str, str]:
        """Hints in force, by PnetCDF's names."""
        return {}

    def close(self, *, flushed: bool, empty: bool) -> None:
        """Give everything back.

        Parameters
        ----------
        flushed : bool, all that was posted on all ranks is in the file.
        empty : bool, nothing is in the backlog.
        """


# ------------------------------------------------------------------------------------------ names

Factory = Callable[[StoreContext], Store]


def _named(name: str, factory: Factory) -> Factory:
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"A store's name is a word of letters, digits, '-' and '_', not {name!r}")
    return factory


_registry = Registry[Factory](GROUP, "store", made=_named)


def register(name: str, factory: Factory) -> None:
    """Let the option ``store`` name a store.

    Parameters
    ----------
    name : str
        A word of letters, digits, ``-`` and ``_``. A second store of the same name replaces the first.
    factory : callable
        Takes a `StoreContext`, returns a `Store`; it is called on all ranks, and may use the communicator. If it has an
        attribute ``trouble``, that is called with the `Options` on each rank before a file is touched, and returns the
        error for which this rank cannot have a store, or None.

    Raises
    ------
    ValueError
        The name is no such word.
    """
    _registry.register(name, factory)


def registered() -> list[str]:
    """All names that the option ``store`` may have, sorted.

    Examples
    --------
    >>> "memory" in registered()
    True
    """
    return sorted({MEMORY, *_registry.names()})


def check_name(name: str) -> None:
    """Raise if there is no store of a name; asked before a file is touched.

    Raises
    ------
    ValueError
        With the names that there are.
    """
    if name != MEMORY and name not in _registry:
        raise ValueError(f"option store={name!r}: one of {', '.join(registered())} is needed")


def trouble(name: str, options: Options) -> Exception | None:
    """Why this rank cannot have a store, or None; asked before a file is touched."""
    asked = getattr(_registry.find(name), "trouble", None) if name != MEMORY else None
    return None if asked is None else asked(options)


def open_store(name: str, context: StoreContext) -> Store:
    """Open a store by its name (collective).

    Raises
    ------
    ValueError
        There is no store of this name.
    OSError
        It cannot be opened.
    """
    check_name(name)
    return _registry.find(name)(context)
