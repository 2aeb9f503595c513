"""Every error and warning of pnc_vol, in one tree.

Knows: nothing of the package. Rules:

1. Every error is a `PncVolError` *and* the builtin that h5py raises in the same place, so that code
   written for h5py catches it.
2. The text says what was asked, what is wrong, and what to do.
3. What a program needs to act on is an attribute (`offset`, `field`, `errors`, `ranks`), never only text.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

__all__ = [
    "AlreadyDoneError",
    "AlreadyFlushedError",
    "BlockedPathError",
    "ClosedFileError",
    "ClosedKeyError",
    "CollectiveMismatchError",
    "CollectiveTimeout",
    "ConversionError",
    "CorruptHeaderError",
    "DefinitionError",
    "DefinitionMismatchError",
    "FlushError",
    "ForkedFileError",
    "FormatError",
    "FormatWarning",
    "LimitError",
    "LinkExistsError",
    "LockedError",
    "LogError",
    "LogRefusedError",
    "NameExistsError",
    "NeedBytes",
    "NotCDFError",
    "NotFoundError",
    "NotYetError",
    "OperationError",
    "PncVolError",
    "PncVolWarning",
    "RangeError",
    "RankError",
    "ReadOnlyError",
    "ReadOnlyKeyError",
    "RequestFailure",
    "RequestPendingError",
    "SelectionError",
    "SelectionIndexError",
    "SelectionTypeError",
    "SelectionValueError",
    "ShortFileError",
    "ShortFileWarning",
    "TruncatedHeaderError",
]


def printable(text: str) -> str:
    """Text that cannot steer a terminal, nor turn what is shown around: what is not printable is an escape.

    Names and texts of a file may hold anything. Control characters, marks of direction and the like (categories C and
    Z of Unicode, but for the space) are shown as Python writes them; line breaks stay.

    Examples
    --------
    >>> printable("a" + chr(27) + "[31m" + chr(0x202E)) == r"a\x1b[31m\u202e"
    True
    """
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class PncVolError(Exception):
    """Base of every error of pnc_vol; what it says is `printable`."""

    def __str__(self) -> str:
        return printable(super().__str__())


class PncVolWarning(UserWarning):
    """Something was accepted that CDF cannot hold, or that a reader should know."""

    def __str__(self) -> str:
        return printable(super().__str__())


# ---------------------------------------------------------------------------------- the file's bytes


class FormatError(PncVolError, OSError):
    """The bytes of a file break the format.

    Attributes
    ----------
    offset : int or None
        Bytes from the start of the file to the field that is wrong.
    field : str
        The field, in the words of the specification, e.g. ``"var[3].begin"``.
    value : object
        What was found there.
    """

    def __init__(self, message: str, *, offset: int | None = None, field: str = "", value: Any = None) -> None:
        super().__init__(message)
        self.offset = offset
        self.field = field
        self.value = value


class NotCDFError(FormatError):
    """The file is not a NetCDF classic file; the text says what it is, if that is known."""


class TruncatedHeaderError(FormatError):
    """The file ends inside its header."""


class CorruptHeaderError(FormatError):
    """A field of the header contradicts the format or another field."""


class LimitError(FormatError):
    """A count or length in the header is beyond what the file, the format or this library can hold."""


class ShortFileError(FormatError):
    """Data that the header promises is beyond the end of the file (``strict=True``)."""


class LogError(FormatError):
    """The bytes of a burst-buffer log, or of its commit log, are wrong; `offset` counts in that file."""


class LogRefusedError(LogError):
    """Logs are not replayed, though they may be good: their job still runs, logs of other ranks are missing, or they
    do not belong to this file."""


class FormatWarning(PncVolWarning):
    """The file is readable, but a field is not what the format asks for.

    Attributes
    ----------
    offset, field, value
        As in `FormatError`.
    """

    def __init__(self, message: str, *, offset: int | None = None, field: str = "", value: Any = None) -> None:
        super().__init__(message)
        self.offset = offset
        self.field = field
        self.value = value


class ShortFileWarning(FormatWarning):
    """The file ends before the data that its header promises."""


class NeedBytes(PncVolError):
    """More bytes are needed to go on decoding: a request to the caller, not a fault.

    Attributes
    ----------
    nbytes : int
        How many bytes from the start of the file the decoder wants to see.
    """

    def __init__(self, nbytes: int) -> None:
        super().__init__(f"{nbytes} bytes of the file are needed")
        self.nbytes = nbytes


# --------------------------------------------------------------------------------- what a caller asks


class NotFoundError(PncVolError, KeyError):
    """No object, attribute or scale of that name; the text offers names that are nearly the same.

    Parameters
    ----------
    message : str
    name : str, what was asked for.
    among : iterables of str, what there is; looked at when the text is shown, which most programs never do.
    """

    def __init__(self, message: str = "", *, name: str = "", among: Sequence[Iterable[str]] = ()) -> None:
        super().__init__(message)
        self._name, self._among = name, among

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should be shown as a sentence.
        return printable(f"{self.args[0]}{did_you_mean(self._name, *self._among)}") if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),)


class NameExistsError(PncVolError, ValueError):
    """The name is taken."""


class LinkExistsError(NameExistsError, OSError, RuntimeError):
    """The name is taken, in ``group[name] = value``, where h5py raises OSError, for external links RuntimeError."""


class BlockedPathError(LinkExistsError, TypeError):
    """On the way to a new object is something that is no group: a dataset, or a link that leads nowhere.

    h5py raises any of these for it, by what is in the way, how deep, and what is to be made.
    """


class OperationError(PncVolError, RuntimeError):
    """The object does not allow the operation: h5py raises RuntimeError there (copy, resize, scales)."""


class DefinitionError(PncVolError, ValueError):
    """A dataset, group or attribute that the file cannot hold."""


class SelectionError(PncVolError):
    """An index that selects nothing that exists, or data that do not fit what was selected."""

    named = False
    """Whether the text says which dataset it is about."""


class SelectionIndexError(SelectionError, IndexError):
    """An index is outside the dataset's shape."""


class SelectionTypeError(SelectionError, TypeError):
    """An index of a kind that cannot select, or an array that cannot be broadcast to the selection."""


class SelectionValueError(SelectionError, ValueError):
    """Too many indices, a step below 1, or an index into a scalar."""


class RangeError(PncVolError, ValueError, OverflowError):
    """A value does not fit the stored type (NC_ERANGE), and ``on_overflow`` is not ``"clip"``."""


class ConversionError(PncVolError, TypeError, OSError):
    """No way from the type of the values to the type that is stored.

    h5py raises TypeError in some of these places and OSError in others; this class is caught as either.
    """


class ReadOnlyError(PncVolError, OSError, ValueError, RuntimeError):
    """A change was asked of a file that is open for reading.

    h5py raises OSError, ValueError or RuntimeError, as the operation has it; this class is caught as any of them.
    """


class ReadOnlyKeyError(ReadOnlyError, KeyError):
    """A deletion was asked of a file that is open for reading."""

    def __str__(self) -> str:
        return printable(str(self.args[0])) if self.args else ""


class ClosedFileError(PncVolError, ValueError, RuntimeError):
    """The file, or the file of this object, is closed.

    h5py raises ValueError in some of these places and RuntimeError in others; this class is caught as either.
    """


class ClosedKeyError(ClosedFileError, KeyError):
    """The same, where a name was looked up: ``file["x"]``, ``obj.attrs["x"]``."""

    def __str__(self) -> str:
        return printable(str(self.args[0])) if self.args else ""


class AlreadyDoneError(PncVolError, ValueError):
    """A request was carried out already and cannot be cancelled (NC_EFLUSHED)."""


AlreadyFlushedError = AlreadyDoneError
"""The same under the name that PnetCDF gives it."""


class LockedError(PncVolError, BlockingIOError):
    """Another process, or another opening, has the file open for writing. `errno` is `errno.EAGAIN`, as in h5py.

    Attributes
    ----------
    pid : int
        The process that holds the lock, on its host; 0 if that is not known.
    """

    def __init__(self, *args: Any, pid: int = 0) -> None:
        super().__init__(*args)
        self.pid = pid


class RequestPendingError(PncVolError, RuntimeError):
    """A request cannot be completed by this rank alone; a flush completes it."""


class ForkedFileError(PncVolError, RuntimeError):
    """The file was opened before a fork; only the process that opened it may use it."""


class NotYetError(PncVolError, NotImplementedError):
    """A part of h5py that pnc_vol does not have; the text names it and says what to do instead."""


# ------------------------------------------------------------------------------------ flush and ranks


class RequestFailure(tuple[Any, ...]):
    """One failed request: ``(request, rank, variable, selection, errno, message)``."""

    __slots__ = ()

    def __new__(
        cls, request: int, rank: int, variable: str, selection: str, errno: int, message: str
    ) -> RequestFailure:
        return super().__new__(cls, (request, rank, variable, selection, errno, message))

    request = property(lambda self: self[0], doc="int, the request's id on its rank")
    rank = property(lambda self: self[1], doc="int, the rank that posted it")
    variable = property(lambda self: self[2], doc="str, path of the dataset")
    selection = property(lambda self: self[3], doc="str, what was selected")
    errno = property(lambda self: self[4], doc="int, the operating system's error number, or 0")
    message = property(lambda self: self[5], doc="str")


class FlushError(PncVolError, OSError):
    """Requests failed at a flush. They stay pending; all others are done; flush may be called again.

    Attributes
    ----------
    errors : tuple of RequestFailure
        Every failed request, the same on all ranks.
    errno : int
        The first failure's error number.
    """

    def __init__(self, message: str, errors: Sequence[RequestFailure] = (), errno: int = 0) -> None:
        super().__init__(message)
        self.errors = tuple(errors)
        self.errno = errno or (self.errors[0].errno if self.errors else 0)


class SyncError(PncVolError, OSError):
    """An fsync failed: what it could not write may be lost, and no later fsync of the file object would tell."""


class RankError(PncVolError, RuntimeError):
    """A collective call failed on some rank, so it failed on every rank.

    Attributes
    ----------
    ranks : tuple of int
        The ranks that failed.
    """

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class CollectiveMismatchError(RankError):
    """Ranks called different collective operations."""


class DefinitionMismatchError(RankError, ValueError):
    """Ranks defined different things."""


class CollectiveTimeout(RankError, TimeoutError):
    """Ranks did not come to a collective call in time; `ranks` names them."""


# ------------------------------------------------------------------------------------------- near matches

_MOST_NAMES = 10_000
"""Names that are compared, at most: of more the first ones."""


def did_you_mean(name: str, *among: Iterable[str]) -> str:
    """The names that are nearly the same, as the end of a message; "" if there are none.

    Examples
    --------
    >>> did_you_mean("temprature", ["salinity", "temperature"])
    "; did you mean 'temperature'?"
    """
    import difflib

    by_folded = {other.casefold(): other for other in islice(chain(*among), _MOST_NAMES)}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=3) if name else []
    return f"; did you mean {' or '.join(repr(by_folded[one]) for one in near)}?" if near else ""


# ------------------------------------------------------------------------------------------------- warning

_warned: set[str] = set()


def warn_once(kind: str, text: str) -> None:
    """Warn, at the line outside of this package, unless this kind was warned about before in this process."""
    if kind in _warned:
        return
    _warned.add(kind)
    warn_outside(f"{kind}: {text}")


_holding = threading.local()


@contextmanager
def held_warnings() -> Iterator[list[tuple[str, type[Warning]]]]:
    """What this package warns of inside, in this thread, is kept for the caller instead of being shown."""
    held: list[tuple[str, type[Warning]]] = []
    before, _holding.into = getattr(_holding, "into", None), held
    try:
        yield held
    finally:
        _holding.into = before


def warn_outside(warning: str | Warning, category: type[Warning] = PncVolWarning) -> None:
    """Warn at the line outside of this package."""
    held: list[tuple[str, type[Warning]]] | None = getattr(_holding, "into", None)
    if held is not None:
        held.append((str(warning), type(warning) if isinstance(warning, Warning) else category))
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pnc_vol."):
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(warning) if isinstance(warning, str) else warning, category, stacklevel=level)
