"""A driver has six verbs over extents and a few optional ones, and declares its capabilities.

Knows: extents, bytes. Does not know: variables, headers, requests, MPI.

Rules
-----
1. A driver moves exactly the bytes it was asked to move, or raises `OSError` with an errno. No call is
   silently short. Bytes of a read that lie beyond the end of the file are left as they are in `memory`.
2. Extents may come in any order and need not be merged; those of one `write` never overlap, in the file or in memory.
   `memory` is one-dimensional and contiguous, and holds every place that the extents name.
3. With `collective=True` the caller guarantees that every rank of the file's communicator makes the same call now. A
   driver without a communicator ignores it. `collective=False` never waits for another rank.
4. On a file of several ranks `resize`, `sync`, `order`, `end_flush` and `close` are called by every rank together,
   `resize` with the same size; `size` is local.
5. A wrapper (`Wrapper`) holds one other driver and passes on what it does not change.
6. The verbs may be called from several threads; what two threads write to the same bytes at once is one or the other.
7. After `close` the other five verbs raise `ClosedFileError`; what is optional does nothing.
8. A driver that holds bytes back declares it, and its own `read` sees them. What was written before `order` reaches the
   file before what is written after it. One that holds them back after `end_flush` has a `holder` (`holding`).
"""

from __future__ import annotations

import abc
import functools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.holding import HOLDS_NOTHING, Holder
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.system import REAL, System

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "CALL_COST",
    "Capabilities",
    "Driver",
    "Layer",
    "Memory",
    "OpenContext",
    "Ranks",
    "Wrapper",
    "parse_stack",
    "written_layer",
]


Memory = npt.NDArray[np.uint8]

CALL_COST = 4096
"""Bytes that are moved in the time that one call takes besides, for a file in the page cache."""


class Capabilities(NamedTuple):
    """What a driver, or a stack of them, can do and needs.

    collective : bool
        Calls with ``collective=True`` are one operation of all ranks, and `open` and `close` are as well: a rank cannot
        open or close the file by itself.
    concurrent : bool
        Several threads gain by being in `read` and `write` at once; never true of a driver that uses MPI.
    mapping : bool
        `look` may succeed: the file's bytes can be read from memory without a copy.
    call_cost : int
        What a call costs besides its bytes, as the number of bytes that move in that time. Small pieces that lie closer
        together than this are read and written together with what lies between them.
    joins_pieces : bool
        Pieces of one `read` that are near each other are read together by the driver itself: who reads need not ask for
        what lies between them.
    holds_back : bool
        Bytes of a `write` may be held back until `end_flush` or `sync`, and are brought to the file in the order that
        `order` asks for. If true, the ranks exchange what `end_flush` and `order` raised.
    keeps_file : bool
        The bytes are in the file of the operating system that `path` names: it is created, locked, replaced and renamed
        by the rules for such files.
    own_paths : bool
        A path is not the name of a file but means something to the driver alone, which is asked whether it `exists`.
        Only without `keeps_file`. If both are false (`memory`), the content at first is that of the file of this name.
    takes_descriptor : bool
        `open` uses ``context.fd``, an open descriptor of the file, instead of opening `path`, and leaves it open. Where
        it does not, the file is opened a second time by its name, and the name is checked again afterwards.

    Examples
    --------
    >>> Capabilities(call_cost=1 << 20, keeps_file=False, own_paths=True).collective
    False
    """

    collective: bool = False
    concurrent: bool = False
    mapping: bool = False
    call_cost: int = CALL_COST
    joins_pieces: bool = False
    holds_back: bool = False
    keeps_file: bool = True
    own_paths: bool = False
    takes_descriptor: bool = False


_NONE: Mapping[str, Any] = MappingProxyType({})


class Ranks(Protocol):
    """The ranks that share a file, as `pnc_vol.ranks.comm` makes them.

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


class OpenContext(NamedTuple):
    """What a driver is told when it is opened, besides the path and its own options.

    writable : bool
        Open for reading and writing, not for reading alone.
    system : System
        Where the calls to the operating system go.
    comm : Ranks or None
        Who shares the file; None for this process alone.
    hints : mapping of str to str
        MPI-IO's and PnetCDF's words; a driver takes those it knows.
    fd : int
        A descriptor of the file, which stays the caller's, for a root that declares `takes_descriptor`; else -1.
    new : bool
        What is opened is to be empty, whatever is there; only for a root that does not declare `keeps_file`.
    name : str
        The path that the user knows, where `path` is another name that the file has for now; "" is `path`.
    storage_options : mapping of str to object, what a store of remote files is to be told, credentials for one.
    """

    writable: bool = True
    system: System = REAL
    comm: Ranks | None = None
    hints: Mapping[str, str] = _NONE
    fd: int = -1
    new: bool = False
    name: str = ""
    storage_options: Mapping[str, Any] = _NONE


class Driver(abc.ABC):
    """Where bytes go: the root of a stack, or a wrapper around another driver."""

    name: ClassVar[str] = ""
    """The word that stands for this driver in a stack, e.g. ``"posix"``."""

    capabilities: Capabilities = Capabilities()
    """What this driver, with those below it, declares of itself; a root sets it as a class attribute."""

    path: str | None = None
    """The file's path, or None for a driver that keeps no file."""

    holder: Holder = HOLDS_NOTHING
    """What holds bytes back in this driver or below."""

    options: Mapping[str, Any] = {}
    """What stood in brackets behind the name in the text of the stack; set when the stack is opened."""

    @classmethod
    def open(cls, path: str | None, context: OpenContext) -> Driver:
        """Open a root on a file that exists, all ranks together. A subclass may take options besides.

        Parameters
        ----------
        path : str or None
            None only without `keeps_file`.
        context : OpenContext

        Raises
        ------
        OSError
            The operating system's error.
        """
        raise NotImplementedError(f"{cls.__name__} is a wrapper and opens no file of its own; name the driver below it")

    @classmethod
    def exists(cls, path: str, context: OpenContext) -> bool:
        """Return whether there is something under a path; asked of a root that declares `own_paths`, on rank 0 alone.

        If the file is to be read only, a root whose `open` raises `FileNotFoundError` may say True without a look.

        Raises
        ------
        OSError
            It cannot be known.
        """
        raise NotImplementedError(f"{cls.__name__} has no paths of its own")

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
        return self.read(one_extent(offset, array.nbytes), array.reshape(-1).view(np.uint8))

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        """Let `use` read from the file's own bytes, if they can be had in memory; see `Capabilities.mapping`.

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

    def write_one(self, data: bytes | memoryview, offset: int) -> None:
        """Write these bytes to one place of the file: `write` in fewer steps."""
        self.write(one_extent(offset, len(data)), np.frombuffer(data, np.uint8))

    @abc.abstractmethod
    def size(self) -> int:
        """Return the number of bytes of the file."""

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

    def order(self) -> None:  # noqa: B027
        """Let bytes written before, on any rank, reach the file before those that any rank writes from now on.

        A flush calls it between the data and the header, unless the header is held (`Holder.hold`). A driver that holds
        nothing back has nothing to do.

        Raises
        ------
        OSError
            What is held back could not be written; a later call tries again.
        """

    def end_flush(self) -> None:  # noqa: B027
        """A flush is complete, header included, and its epoch ends: pass on what is held back, or begin to.

        Called on every stack at the end of every flush, also of one that had nothing to write.

        Raises
        ------
        OSError
            What was written is still held, and a later call tries again.
        """

    def grow(self, nbytes: int) -> None:
        """Let the file have at least `nbytes` bytes, new ones zeros; never shorter, and no byte changed.

        Called by one rank, just before it writes a header. What other ranks hold may reach farther than what is in the
        file, and come there meanwhile.
        """
        if self.size() < nbytes:
            self.write_one(b"\0", nbytes - 1)

    def empty_copy(self) -> Driver | None:
        """Return an empty driver to make a new layout in, for a file that has no name; None: a temporary file is
        used."""
        return None

    def replace_with(self, copy: Driver) -> bool:
        """Hold what `copy` holds from now on, at once; `copy` is this driver's then.

        Asked of a stack that keeps no file when a new layout was made in `copy`.

        Returns
        -------
        bool
            False if this cannot be done at once: then `StagedDriver` brings the bytes here at the end of the flush.
        """
        return False

    def statistics(self) -> dict[str, Any]:
        """Return what this driver and those below did: counts and seconds, named ``"posix.write_calls"``."""
        return {}

    def describe(self) -> str:
        """Return the stack from here down, as it would be written in ``driver=``, with its options.

        ``parse_stack(driver.describe())`` gives what the stack was opened with.
        """
        return written_layer(self.name, self.options)


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

    inner: Driver

    def __init__(self, inner: Driver) -> None:
        self.inner = inner
        self.path, self.holder = inner.path, inner.holder
        self.capabilities = self.declares(inner.capabilities)

    @classmethod
    def declares(cls, below: Capabilities) -> Capabilities:
        """Return the capabilities of this wrapper on a driver that has those of `below`."""
        return below

    @classmethod
    def over(cls, inner: Driver, context: OpenContext, **options: Any) -> Self:
        """Put this wrapper on `inner`; one that needs more than the options of the text overrides this.

        Parameters
        ----------
        context : OpenContext
            What `inner` was opened with.
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

    # A wrapper that changes `read` changes every read: the fast ones go round it only if it says how.
    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        return type(self).read is Wrapper.read and self.inner.look(end, nbytes, use)

    def read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        if type(self).read is Wrapper.read:
            return self.inner.read_one(array, offset)
        return super().read_one(array, offset)

    def write_one(self, data: bytes | memoryview, offset: int) -> None:
        if type(self).write is Wrapper.write:
            self.inner.write_one(data, offset)
        else:
            super().write_one(data, offset)

    def order(self) -> None:
        self.inner.order()

    def end_flush(self) -> None:
        self.inner.end_flush()

    def grow(self, nbytes: int) -> None:
        if self.inner.capabilities.holds_back:
            self.inner.grow(nbytes)
        else:
            super().grow(nbytes)

    def empty_copy(self) -> Driver | None:
        return self.inner.empty_copy()

    def replace_with(self, copy: Driver) -> bool:
        return self.inner.replace_with(copy)

    def statistics(self) -> dict[str, Any]:
        return self.inner.statistics()

    def describe(self) -> str:
        return f"{super().describe()} | {self.inner.describe()}"


# ---------------------------------------------------------------------------------------------------------- stack text
# The text that names a stack of drivers: parsing it, and writing it.
#
#     "trace | posix"                           names from top to bottom
#     "trace(file=t.json, limit=10) | posix"    with options
#     "trace(file='a, b.json') | posix"         a value with any characters stands in quotes, a quote in it is doubled
#
# Knows: text. Does not know: drivers.
#
# Rule
# ----
# `parse_stack` of what `written_layer` writes gives the same name and options.


# compiled when they are used: most stacks are one word
_NAMED = r"\s*([\w-]+)\s*(\(\s*)?"
# Quoted; or bare: whatever has no comma and no bracket, but for pairs of brackets.
_OPTION = r"""(?x)\s*(?P<key>\w+)\s*=\s*
    (?: '(?P<single>(?:[^']|'')*)' | "(?P<double>(?:[^"]|"")*)" | (?P<bare>(?!\s*['"]) [^,()]* (?:\([^()]*\)[^,()]*)*) )
    \s*(?P<end>[,)])"""
_PLAIN = r"[\w./:@+-]*"


class Layer(NamedTuple):
    """One word of a stack.

    name : str
    options : what stood in brackets; numbers, ``true`` and ``false`` are read as such, other values are text.
    """

    name: str
    options: Mapping[str, Any]


# A file that is opened asks several times what its stack is.
@functools.lru_cache(maxsize=64)
def parse_stack(spec: str) -> tuple[Layer, ...]:
    """Return the layers of a stack's text, top first; nothing is looked up.

    Parameters
    ----------
    spec : str

    Raises
    ------
    ValueError
        The text is not a list of names with options.

    Examples
    --------
    >>> [layer.name for layer in parse_stack("trace(file=a.json, limit=10) | posix")]
    ['trace', 'posix']
    """
    if spec.isidentifier():
        return (Layer(spec, {}),)
    layers: list[Layer] = []
    at = 0
    while True:
        found = re.compile(_NAMED).match(spec, at)
        if found is None:
            raise _wrong(spec, at, "a name or name(option=value, ...)")
        at = found.end()
        options: dict[str, Any] = {}
        if found[2]:
            at, options = _options(spec, at)
        layers.append(Layer(found[1], options))
        rest = spec[at:].lstrip()
        if not rest:
            return tuple(layers)
        if rest[0] != "|":
            raise _wrong(spec, found.start(), "a name or name(option=value, ...)")
        at = len(spec) - len(rest) + 1


def _options(spec: str, at: int) -> tuple[int, dict[str, Any]]:
    """Return where the options that begin at `at` end, and what they are."""
    options: dict[str, Any] = {}
    if spec.startswith(")", at):
        return at + 1, options
    while True:
        found = re.compile(_OPTION).match(spec, at)
        if found is None or not found["key"].isidentifier():
            raise _wrong(spec, at, "option=value")
        if found["bare"] is not None:
            options[found["key"]] = _value(found["bare"].strip())
        else:
            text, quote = (found["single"], "'") if found["single"] is not None else (found["double"], '"')
            options[found["key"]] = text.replace(2 * quote, quote)
        at = found.end()
        if found["end"] == ")":
            return at, options


def _wrong(spec: str, at: int, wanted: str) -> ValueError:
    return ValueError(f"{spec[at:].strip()!r} in the driver {spec!r} is not {wanted}")


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def written_layer(name: str, options: Mapping[str, Any]) -> str:
    """Return a layer as `parse_stack` reads it.

    Examples
    --------
    >>> written_layer("trace", {"file": "it's, here", "limit": 10}), written_layer("posix", {})
    ("trace(file='it''s, here', limit=10)", 'posix')
    """
    if not options:
        return name
    return f"{name}({', '.join(f'{key}={_written(value)}' for key, value in options.items())})"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if re.fullmatch(_PLAIN, value) and _value(value) == value:
        return value
    return "'" + value.replace("'", "''") + "'"
