"""This module knows facts about MPI libraries: their defects, and the meaning of their errors.

Knows: mpi4py, version texts, errno. Does not know: files, extents.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pnc_vol.extents.model import Int64
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import launched

__all__ = ["errors_are_lost", "hindexed", "opened", "os_errors", "types_are_broken", "world"]


def world() -> Any:
    """Return the communicator of all processes that ``mpiexec`` or its like started with this one; None if it is
    alone."""
    if launched():
        with suppress(ImportError):
            from mpi4py import MPI

            return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None
    return None


def types_are_broken(version: str, bindings: str | None = None) -> bool:
    """Return whether this MPI library fails on the derived types that mpi4py makes.

    Parameters
    ----------
    version : str
        What ``MPI.Get_library_version()`` says.
    bindings : str, optional
        mpi4py's version; that of the installed one by default.

    Examples
    --------
    >>> types_are_broken("MPICH Version:      4.0.2", "4.1.0"), types_are_broken("MPICH Version:      5.0.2", "4.1.0")
    (True, False)
    """
    if bindings is None:
        import mpi4py

        bindings = mpi4py.__version__
    # ROMIO 4.0 cannot take apart a type made by the large-count constructors, which mpi4py uses since version 4.
    return re.search(r"MPICH Version:\s*4\.0\b", version) is not None and int(bindings.split(".")[0]) >= 4


def errors_are_lost(version: str) -> bool:
    """Return whether a collective write of this library can fail on a full disk without an error on any rank.

    Open MPI's OMPIO (5.0.11, module ``vulcan``) prints the failure of the rank that writes and returns success.
    """
    return version.startswith("Open MPI")


def hindexed(displacement: Int64, length: Int64) -> Any:
    """Return a committed type of these bytes; the caller frees it."""
    from mpi4py import MPI

    return MPI.BYTE.Create_hindexed(length.tolist(), displacement.tolist()).Commit()


_ERRNO = {
    "ERR_NO_SUCH_FILE": errno.ENOENT,
    "ERR_FILE_EXISTS": errno.EEXIST,
    "ERR_ACCESS": errno.EACCES,
    "ERR_NO_SPACE": errno.ENOSPC,
    "ERR_QUOTA": errno.EDQUOT,
    "ERR_READ_ONLY": errno.EROFS,
    "ERR_FILE_IN_USE": errno.EBUSY,
    "ERR_BAD_FILE": errno.EINVAL,
    "ERR_FILE": errno.EBADF,
    "ERR_AMODE": errno.EINVAL,
    "ERR_ARG": errno.EINVAL,
    "ERR_COUNT": errno.EINVAL,
    "ERR_NO_MEM": errno.ENOMEM,
}

_NAMED = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ESTALE, errno.EMFILE, errno.ENFILE
"""Errors that have no class of their own in MPI, but are often named in the text."""

_ELSEWHERE = "on a remote node)", " failed)"
"""How texts end of an open that failed on a rank of another node; the second one if it may not look into the folder."""


@contextmanager
def os_errors(path: str | None, what: str) -> Iterator[None]:
    """Turn MPI's errors in the block into the operating system's, with `path` and what was done in the text."""
    from mpi4py import MPI

    try:
        yield
    except MPI.Exception as error:
        kind = error.Get_error_class()
        numbers = {getattr(MPI, name): number for name, number in _ERRNO.items()}
        message = " ".join(error.Get_error_string().split())
        named = [n for n in _NAMED if os.strerror(n) in message]
        number = numbers.get(kind, named[0] if named else errno.EIO)
        raise OSError(number, f"{os.strerror(number)} (MPI-IO {what}: {message})", path) from error


def opened(mpi: Any, path: str, *, writable: bool, hints: Mapping[str, str], ranks: Comm, shown: str | None) -> Any:
    """Return an ``MPI.File``, opened by all ranks together; the library ignores the hints that it does not know.

    ranks : Comm, those of `mpi`.
    shown : str, what errors call the file.

    Raises
    ------
    OSError
    """
    from mpi4py import MPI

    info = MPI.Info.Create()
    try:
        for key, value in hints.items():
            if len(key) <= MPI.MAX_INFO_KEY and len(value) <= MPI.MAX_INFO_VAL:
                info.Set(key, value)
        with os_errors(shown, "open"):
            return MPI.File.Open(mpi, path, MPI.MODE_RDWR if writable else MPI.MODE_RDONLY, info)
    except OSError as error:
        # Ranks of other nodes know no more than that it failed: the error of one that knows why is raised on all.
        ranks.agree("open file", error=None if str(error.strerror).endswith(_ELSEWHERE) else error)
        raise
    finally:
        info.Free()
