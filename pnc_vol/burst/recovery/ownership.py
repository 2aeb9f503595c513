"""`owns` decides whether a log belongs to a file: it compares the identity in the log with that of the file.

Knows: identities, headers that a log knows, logs on disk. Does not know: entries, what is done about a log.

Rules
-----
1. A log of ours names its file by an identity, which a rename keeps and no other file has. It belongs to no file of
   another identity, whatever that file is called.
2. It also knows each header that its file had. A file of the right identity and another header was changed since, or
   another file was copied over it (`cp` keeps the inode and its attributes): what the log holds may not fit.
3. An inode number is given to another file once its file is gone. So where it stands for the identity, the folder of
   logs gets a mark when its file is replaced (`mark_replaced`), and belongs to no file from then on.
4. A log that names no identity (of the C library) belongs to whatever file its user says.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from pnc_vol.append_log.private_folders import is_replaced
from pnc_vol.append_log.records import decode_header
from pnc_vol.burst.commit_log import COMMIT_LOG
from pnc_vol.burst.definitions import crc_of_header, read_definitions
from pnc_vol.burst.recovery.sources import LogSource
from pnc_vol.disk.identity import by_inode, identities_of, shown
from pnc_vol.errors import FormatError, LogRefusedError
from pnc_vol.system import System, is_unnamed
from pnc_vol.system.full_io import read_whole

__all__ = [
    "ALL_THE_SAME", "LogOwner", "owner_of", "owns", "refuse_other_file",
    "refuse_other_header",
]  # fmt: skip

ALL_THE_SAME = "'pnc-vol replay --any-file FILE LOGS', replay(..., any_file=True) or recover='any-file'"
"""How to replay a log into a file that it does not belong to."""


class LogOwner(NamedTuple):
    """Which file a log says that it is of.

    files : frozenset of bytes[16], identities that its file had; empty if it names none.
    work : str, a temporary name that the file had and may have kept.
    parted : bool, the file was replaced since.
    """

    files: frozenset[bytes]
    work: str = ""
    parted: bool = False


def _owner_of_source(system: System, source: LogSource) -> LogOwner:
    if source.commit_log is None:
        return LogOwner(frozenset())
    files = frozenset({source.commit_log.header.file, *source.defined.files})
    return LogOwner(files, source.defined.work, is_replaced(system, os.path.dirname(source.base)))


def owner_of(system: System, folder: str) -> LogOwner:
    """Return what the logs of one job, in a folder, say; nothing if they cannot be read, which a replay tells."""
    files: set[bytes] = set()
    work = ""
    try:
        for name in system.listdir(folder):
            path = os.path.join(folder, name)
            if ".commit" in name:
                content = read_whole(system, path, flags=os.O_NOFOLLOW)
                if any(content):
                    files.add(decode_header(COMMIT_LOG, content)[0].file)
            elif ".defs" in name:
                definitions = read_definitions(read_whole(system, path, flags=os.O_NOFOLLOW).rstrip(b"\0"))
                files |= definitions.files
                work = work or definitions.work
    except (OSError, FormatError):
        return LogOwner(frozenset())
    return LogOwner(frozenset(files), work, is_replaced(system, folder))


def owns(system: System, owner: LogOwner, path: str) -> bool:
    """Return whether logs that say this may be those of a file; where there is no file, nothing speaks against it."""
    if not owner.files or owner.work:
        # A file that never took its name is told by its name.
        return True
    try:
        return not owner.parted and not owner.files.isdisjoint(identities_of(system, path))
    except OSError:
        return True


def _has_identity(system: System, owner: LogOwner, path: str) -> bool:
    """Return whether a file is the one of a log for certain, whatever name the log knows it by."""
    try:
        return not owner.files.isdisjoint(identities_of(system, path))
    except OSError:
        return False


def refuse_other_file(system: System, path: str, sources: Sequence[LogSource]) -> None:
    """Raise if a log names another file.

    Raises
    ------
    LogRefusedError
        With both identities, and how to replay the log all the same.
    """
    for source in sources:
        owner = _owner_of_source(system, source)
        if owner.work and os.path.basename(path) != owner.work and not _has_identity(system, owner, path):
            raise LogRefusedError(
                f"{source.base}.meta belongs to a file that did not have its final name yet (publish='close'): replay "
                f"it into {owner.work!r}, if that is still there, and rename that; or use salvage",
                field="path",
                value=owner.work,
            )
        if not owns(system, owner._replace(work=""), path):
            numbered = any(map(by_inode, owner.files))
            kept = [shown(name) for name in identities_of(system, path) if numbered or not by_inode(name)]
            raise LogRefusedError(
                f"{source.base}.meta belongs to another file: it was written for {source.log.header.path!r} with the "
                f"identity {' or '.join(map(shown, sorted(owner.files)))}, and {path} has "
                f"{' and '.join(sorted(kept)) or 'none'}. The file was made anew, copied or replaced since. To put "
                f"what the log holds into this file all the same: {ALL_THE_SAME}",
                field="file",
                value=shown(min(owner.files)),
            )


def refuse_other_header(path: str, sources: Sequence[LogSource], header: bytes) -> None:
    """Raise if the file has a header that none of its logs knows.

    Raises
    ------
    LogRefusedError
        It says how to replay the log all the same.
    """
    crc = crc_of_header(header)
    known = {one for source in sources for one in (*source.defined.bases, *source.defined.headers)}
    first = next((source for source in sources if source.defined.bases), None)
    if first is not None and crc not in known:
        name = os.path.basename(first.log.header.path)
        if is_unnamed(path) and name.endswith(".0000"):
            raise LogRefusedError(
                f"{path} is a subfile of a set that did not have its names yet (publish='close'): rename this file to "
                f"{name!r}, those of other subfiles accordingly, and open the set with recover=True",
                field="path",
                value=name,
            )
        raise LogRefusedError(
            f"{path} has a header (of CRC {crc:08x}) that {first.base}.meta does not know (it knows "
            f"{', '.join(f'{one:08x}' for one in sorted(known))}): the file was changed since the job ended, or "
            f"another one was copied over it. To put what the log holds into this file all the same: {ALL_THE_SAME}",
            field="header",
            value=crc,
        )
