"""This module has every error and warning class of pnc_vol, in one hierarchy.

Knows: nothing of the package.

Rules
-----
1. Every error is a `PncVolError` *and* the builtin that h5py raises in the same place: code for h5py catches it.
2. The text says what was requested, what is wrong, and what to do.
3. Numbers of errors of the system that several modules treat alike are listed here once (`FULL`, `NO_LOCKS`).
4. What a program needs to act on is an attribute (`offset`, `field`, `errors`, `ranks`), never only text.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

__all__ = [
    "AlreadyDoneError", "AlreadyFlushedError", "BlockedPathError", "ClosedFileError", "ClosedKeyError",
    "CollectiveMismatchError", "CollectiveTimeout", "ConversionError", "CorruptHeaderError", "DeferredCloseError",
    "DefinitionError", "DefinitionMismatchError", "FlushError", "ForkedFileError", "FormatError", "FormatWarning",
    "HintsFileError", "LimitError", "LinkExistsError", "LockedError", "LogError", "LogRefusedError",
    "MissingPackageError", "NameExistsError", "NotCDFError", "NotFoundError", "NotSyncedError", "NotYetError",
    "OperationError", "OtherFileError",
    "PncVolError", "PncVolWarning", "RangeError", "RankError", "ReadOnlyError", "ReadOnlyKeyError", "RemoteError",
    "RequestPendingError", "SelectionError", "SelectionIndexError", "SelectionTypeError", "SelectionValueError",
    "ShortFileError", "ShortFileWarning", "SourceError", "SyncError", "TruncatedHeaderError",
]  # fmt: skip

# ------------------------------------------------------------- kinds of errors of the system, by their numbers

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""There is no room for more bytes: on the device, in the quota, below the largest length of a file."""

NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
"""The file system has no locks."""

LOCK_TAKEN = (errno.EAGAIN, errno.EACCES)
"""Somebody else has the lock."""


def printable(text: str) -> str:
    """Return the text that cannot steer a terminal, nor turn what is shown around: what is not printable is an escape.

    Names and texts of a file may hold anything. Control characters, marks of direction and the like (categories C and
    Z of Unicode, but for the space) are shown as Python writes them; line breaks stay. Texts are escaped where they are
    shown (``__str__``, reprs, commands), not where they are made: of hundreds of such places one would be forgotten.

    Examples
    --------
    >>> printable("a" + chr(27) + "[31m" + chr(0x202E)) == r"a\x1b[31m\u202e"
    True
    """
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class PncVolError(Exception):
    """Base of every error of pnc_vol; its text is `printable`."""

    def __str__(self) -> str:
        if isinstance(self, KeyError):
            # KeyError shows the repr of its argument; a sentence should be shown as a sentence.
            return printable(str(self.args[0])) if self.args else ""
        return printable(super().__str__())


class PncVolWarning(UserWarning):
    """Something was accepted that CDF cannot hold, or that a reader should know."""

    def __str__(self) -> str:
        return printable(super().__str__())


# ---------------------------------------------------------------------------------- the file's bytes


class _Located:
    """What errors and warnings about bytes have in common: the place of the field that is wrong."""

    def __init__(self, message: str, *, offset: int | None = None, field: str = "", value: Any = None) -> None:
        super().__init__(message)  # type: ignore[call-arg]
        self.offset = offset
        self.field = field
        self.value = value


class FormatError(_Located, PncVolError, OSError):
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


class NotCDFError(FormatError):
    """The file is not a NetCDF classic file; the text says what it is, if that is known."""


class TruncatedHeaderError(FormatError):
    """The file ends inside its header."""


class CorruptHeaderError(FormatError):
    """A field of the header contradicts the format or another field."""


class LimitError(FormatError):
    """A count or length in the header is beyond what the file, the format or this library can hold."""


class ShortFileError(FormatError):
    """Data that the header describes lie beyond the end of the file (``strict=True``)."""


class LogError(FormatError):
    """The bytes of a burst-buffer log, or of its commit log, are wrong; `offset` counts in that file."""


class LogRefusedError(LogError):
    """Logs that may be good are not replayed: their job runs, other ranks' logs are missing, or it is another file."""


class FormatWarning(_Located, PncVolWarning):
    """The file is readable, but a field is not what the format asks for.

    Attributes
    ----------
    offset, field, value
        As in `FormatError`.
    """


class ShortFileWarning(FormatWarning):
    """The file ends before the data that its header describes."""


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
    among : iterables of str, the existing names; compared when the text is shown, which most programs never do.
    """

    def __init__(self, message: str = "", *, name: str = "", among: Sequence[Iterable[str]] = ()) -> None:
        super().__init__(message)
        self._name, self._among = name, among

    def __str__(self) -> str:
        return printable(f"{self.args[0]}{did_you_mean(self._name, *self._among)}") if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),)


class NameExistsError(PncVolError, ValueError):
    """The name is taken."""


class LinkExistsError(NameExistsError, OSError, RuntimeError):
    """The name is taken, in ``group[name] = value``, where h5py raises OSError, for external links RuntimeError."""


class BlockedPathError(LinkExistsError, TypeError, KeyError):
    """A part of the path to a new object is not a group: it is a dataset, or a link that leads nowhere.

    h5py raises one of these builtins, depending on what is made and what is in the way.
    """


class OperationError(PncVolError, RuntimeError):
    """The object does not allow the operation (copy, resize, scales)."""


class OtherFileError(OperationError, OSError):
    """A name of one file would lead to an object of another one, as only external links do."""


class DefinitionError(PncVolError, ValueError):
    """A dataset, group or attribute that the file cannot hold."""


class HintsFileError(DefinitionError):
    """A hint file that is no JSON, or holds what hint files do not have; `line` and `column` count from 1."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


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


class ClosedFileError(PncVolError, ValueError, RuntimeError):
    """The file, or the file of this object, is closed.

    h5py raises ValueError in some of these places and RuntimeError in others; this class is caught as either.
    """


class ClosedKeyError(ClosedFileError, KeyError):
    """The same, where a name was looked up: ``file["x"]``, ``obj.attrs["x"]``."""


class SourceError(PncVolError, OSError):
    """The data of a virtual dataset, or of one in raw files, cannot be read or written where they are."""


class RemoteError(PncVolError, OSError):
    """A file under an address cannot be read: the server cannot be reached or failed, or the file changed meanwhile.

    `errno` is `errno.ESTALE` for a file that changed, `errno.EOPNOTSUPP` for a server that sends whole files only.
    """


class AlreadyDoneError(PncVolError, ValueError):
    """A request was carried out already and cannot be cancelled (NC_EFLUSHED)."""


AlreadyFlushedError = AlreadyDoneError
"""PnetCDF's name for it."""


class LockedError(PncVolError, BlockingIOError):
    """Another process, or another opening, has the file open for writing. `errno` is `errno.EAGAIN`, as in h5py."""


class RequestPendingError(PncVolError, RuntimeError):
    """A request cannot be completed by this rank alone; a flush completes it."""


class ForkedFileError(PncVolError, RuntimeError):
    """The file was opened before a fork, and is written, or not the same any more; open it again in the child."""


class NotYetError(PncVolError, NotImplementedError):
    """A part of h5py that pnc_vol does not have; the text names it and says what to do instead."""


class MissingPackageError(PncVolError, ImportError):
    """An optional package is not installed; the text says which extra of pnc_vol brings it."""


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


class DeferredCloseError(PncVolError, OSError):
    """Files whose close was deferred could not be completed; `paths` names them."""

    paths: Sequence[str] = ()


class SyncError(PncVolError, OSError):
    """An fsync failed: what it could not write may be lost, and no later fsync of the file object would tell."""

    def to_keep(self) -> SyncError:
        """Return the same error without its traceback, whose frames would keep objects alive and files open."""
        return SyncError(self.errno, self.strerror, self.filename)


class NotSyncedError(PncVolError, OSError):
    """Another node holds flushed data in its cache, and what is read may be among them: the file has older bytes.

    `File.sync` brings the data of all nodes to the file, and so does a collective read.
    """


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


_MOST_NAMES = 10_000
"""At most so many names are compared: the first ones."""


def did_you_mean(name: str, *among: Iterable[str]) -> str:
    """Return the names that are nearly the same, as the end of a message; "" if there are none.

    Examples
    --------
    >>> did_you_mean("temprature", ["salinity", "temperature"])
    "; did you mean 'temperature'?"
    """
    import difflib

    by_folded = {other.casefold(): other for other in islice(chain(*among), _MOST_NAMES)}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=3) if name else []
    return f"; did you mean {' or '.join(repr(by_folded[one]) for one in near)}?" if near else ""
