"""A header is replaced in place by a journal: a file ``.NAME.pncj`` beside the file, with what differs of both.

Knows: the journal's bytes, which journals to trust, what a file's first bytes say about a replacement. Does not know:
drivers,
variables.

Rules
-----
1. The journal holds the range in which the headers differ, of both, with a few bytes around it and the beginning of
   each. Where something longer or shorter was put, all bytes behind it differ, and yet both headers end with the same
   ones, which are kept once. It is there before the first byte of the header is overwritten, and until the last one is
   in the file. Of a file whose content is to outlast a power failure each of these steps is on stable storage before
   the next one.
2. A journal counts only while the header is *torn*: some of its bytes are the old ones and some the new ones. If the
   header is the old one or the new one, whole, the journal says nothing that is not true already. So one that comes
   back after a power failure, because its removal was not on stable storage yet, changes nothing. So no number of the
   generation is needed, which would have to be in the file, where other programs look, or in a second journal. The
   folder is synced after the removal only before a durable flush returns that has changed the header again without a
   journal: with a value that it had before, such a header looks torn.
3. The number of records plays no part in this comparison: it is also written by itself, without a journal, before and
   after the header was replaced. Only if it belongs to the other header than the rest does, the header is torn.
4. A journal is believed if it is a regular file on the file's device, of the file's owner, of the user of this process
   or of root, if it names the file's inode, and if its sizes and its checksum are right. Nothing is waited for, and no
   memory is taken, because of what another file claims. One that is not believed is one warning.
5. It is a new file for each header, though that is a third of the cost of an attribute: one that is kept and written
   over would be that of another state as soon as a header is written without one, and readers would be warned of it.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from typing import Literal

import numpy as np

from pnc_vol.disk.naming import write_new
from pnc_vol.format.encode import Parts, count_end
from pnc_vol.format.limits import MAX_HEADER_BYTES
from pnc_vol.system import System, neighbour
from pnc_vol.system.full_io import read_at, write_all
from pnc_vol.warn import warn_outside

__all__ = ["content_of", "distrust", "forget_journal", "is_atomic", "journal_path", "recover", "write_journal"]

_HEAD = struct.Struct("<8sQQQI")
"""Magic, inode of the file, bytes of the new header, number of pieces, CRC-32 of what follows."""
_PIECE = struct.Struct("<QQQQ")
"""Where a piece of a header begins, its bytes in the old and in the new one, which differ in the last one alone, and
how many bytes at its end both have, in places that may differ. The first piece is the beginning: magic, version and
number of records. Behind this table, which has a row for each piece, come the pieces of the old header, then those of
the new one without the bytes at the end that both have."""
_MAGIC = b"PNCJ0003"
_AROUND = 256
"""Bytes on both sides of what differs that are kept as well: a journal is only used where they are as they were."""
_MOST_PIECES = 64
_ATOMIC, _SECTOR = 16, 512
"""Bytes of the longest write that is taken as never torn, and of the sector in which it lies. The number of records,
which is written by itself, relies on the same."""
_LOOKS = 100
"""Looks at a journal that a writer at work replaces again and again."""
_BLOCK = 1 << 20
_UNREADABLE = {
    errno.ELOOP: "is a symbolic link",
    errno.EACCES: "may not be read by this user",
    errno.EPERM: "may not be read by this user",
    errno.ENXIO: "is not a regular file",
    errno.EISDIR: "is not a regular file",
}


def is_atomic(parts: Parts) -> bool:
    """Return whether a header can be replaced without a journal: no kill, and no power failure, can cut the write in
    two.

    Parameters
    ----------
    parts : where the headers differ
    """
    if len(parts) != 1:
        return not parts
    first, old_end, end = parts[0]
    return first < old_end == end <= first + _ATOMIC and first // _SECTOR == (end - 1) // _SECTOR


def journal_path(path: str) -> str:
    """Return the name of a file's journal."""
    return neighbour(path, "pncj")


def content_of(inode: int, old: bytes, new: bytes, parts: Parts) -> bytes:
    """Return the bytes of a journal.

    Parameters
    ----------
    inode : int, of the file
    old, new : bytes, the headers
    parts : where they differ
    """
    first = count_end(new)
    # Of a file of very many variables a header has megabytes: they are copied once.
    was_there, is_there = memoryview(old), memoryview(new)
    table = [_PIECE.pack(0, min(first, len(old)), min(first, len(new)), 0)]
    olds, news = [was_there[:first]], [is_there[:first]]
    for at, old_end, new_end in parts:
        if new_end > first:
            kept = max(first, at - _AROUND)
            was, now = was_there[kept : max(kept, old_end + _AROUND)], is_there[kept : new_end + _AROUND]
            same = _same_end(was, now) if len(was) != len(now) else 0
            table.append(_PIECE.pack(kept, len(was), len(now), same))
            olds.append(was)
            news.append(now[: len(now) - same])
    pieces: list[bytes | memoryview] = [*table, *olds, *news]
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return b"".join((_HEAD.pack(_MAGIC, inode, len(new), len(table), crc), *pieces))


def _same_end(one: memoryview, other: memoryview) -> int:
    """Return how many bytes at their ends are the same: a multiple of 4, as all parts of a header are."""
    words = min(len(one), len(other)) >> 2
    last = np.frombuffer(one, "u4", words, len(one) - 4 * words)
    end = np.frombuffer(other, "u4", words, len(other) - 4 * words)
    unlike = (last != end).nonzero()[0]
    return 4 * (words - 1 - int(unlike[-1]) if len(unlike) else words)


def write_journal(system: System, journal: str, content: bytes, mode: int, *, durable: bool) -> None:
    """Make a journal, in place of one that is not believed; `durable`: it is on stable storage."""
    try:
        write_new(system, journal, content, mode, durable=durable)
    except FileExistsError:
        system.unlink(journal)
        write_new(system, journal, content, mode, durable=durable)
    if durable:
        # The folder holds the file's own name as well.
        system.fsync_dir(os.path.dirname(journal) or ".")


def forget_journal(system: System, path: str) -> None:
    """Remove the journal of a file, if there is one."""
    try:
        system.unlink(journal_path(path))
    except FileNotFoundError:
        return


def recover(system: System, path: str, *, writable: bool, target: str = "") -> bytes | None:
    """Complete a header replacement that was cut short.

    Parameters
    ----------
    path : str
    writable : bool
        Put the new header in place, and remove the journal; else the header is only returned.
    target : str, optional
        The path without symbolic links, where it is known.

    Returns
    -------
    bytes or None
        The header to use instead of what the file begins with; None if there is nothing to complete.

    Raises
    ------
    OSError
        The file could not be read or written.
    """
    target = target or system.realpath(path)
    journal = journal_path(target)
    for _ in range(_LOOKS):
        try:
            fd = system.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            _warn(path, journal, _UNREADABLE[error.errno])
            return None
        try:
            status = system.fstat(fd)
            instead, why = _complete(system, target, fd, status, writable=writable)
            if not why:
                return instead
        finally:
            system.close(fd)
        if _same(system, journal, status):
            break
        # Its writer is at work, and was done with this header between the two looks.
    _warn(path, journal, why)
    return None


def _warn(path: str, journal: str, why: str) -> None:
    warn_outside(f"{path}: the journal {journal} {why} and is not used; remove it")


def _same(system: System, journal: str, status: os.stat_result) -> bool:
    try:
        now = system.lstat(journal)
    except FileNotFoundError:
        return False
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (status.st_ino, status.st_size, status.st_mtime_ns)


def _complete(
    system: System, target: str, journal: int, status: os.stat_result, *, writable: bool
) -> tuple[bytes | None, str]:
    """Return what `recover` returns, and why the journal is not used, if that is so."""
    fd = system.open(target, os.O_RDWR if writable else os.O_RDONLY)
    try:
        there = system.fstat(fd)
        why = distrust(status, there)
        if why:
            return None, why
        found = _read(system, journal, status.st_size, there.st_size)
        if found is not None:
            inode, nbytes, pieces, old, new = found
            whole = _first(system, fd, max(nbytes, *(at + max(was, now) for at, was, now, _ in pieces)))
            state = _state(b"".join(whole[at : at + max(was, now)] for at, was, now, _ in pieces), old, new)
            if inode != there.st_ino or state == "other":
                return None, "belongs to another state of the file"
            if state == "torn":
                # what neither the file nor a piece has is no part of it, whatever length is told
                header = bytearray(whole[:nbytes].ljust(max(at + now for at, _, now, _ in pieces), b"\0"))
                behind = 0
                for at, _, now, _ in pieces:
                    header[at : at + now] = new[behind : behind + now]
                    if writable:
                        write_all(system, fd, new[behind : behind + now], at)
                    behind += now
                if not writable:
                    return bytes(header), ""
                system.fsync(fd)
        # One that is not whole was never followed by a header.
        if writable:
            system.unlink(journal_path(target))
        return None, ""
    finally:
        system.close(fd)


def distrust(status: os.stat_result, there: os.stat_result) -> str:
    """Return why a journal cannot be that of the file, from what the system says of both; empty if it can."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid not in (0, os.geteuid(), there.st_uid):
        return f"belongs to user {status.st_uid}, not to the owner of the file ({there.st_uid})"
    if status.st_dev != there.st_dev:
        return "is on another file system"
    if status.st_size > _HEAD.size + 2 * MAX_HEADER_BYTES:
        return f"has {status.st_size} bytes, which is not the size of a journal,"
    return ""


def _read(
    system: System, fd: int, nbytes: int, limit: int
) -> tuple[int, int, list[tuple[int, int, int, int]], bytes, bytes] | None:
    """Return inode, bytes of the new header, pieces, and these of both headers, one behind the other; None if it is not
    whole.

    limit : int, bytes of the file, which the old header cannot exceed.
    """
    head = _first(system, fd, _HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, inode, new_nbytes, count, crc = _HEAD.unpack(head)
    if magic != _MAGIC or not 0 < count <= _MOST_PIECES or new_nbytes > MAX_HEADER_BYTES:
        return None
    behind = _HEAD.size + count * _PIECE.size
    pieces = list(_PIECE.iter_unpack(_first(system, fd, behind)[_HEAD.size :].ljust(count * _PIECE.size, b"\0")))
    old_size, kept = sum(was for _, was, _, _ in pieces), sum(now - same for _, _, now, same in pieces)
    if behind + old_size + kept != nbytes or max(at + was for at, was, _, _ in pieces) > limit:
        return None
    if any(at + now > new_nbytes or same > min(was, now) for at, was, now, same in pieces):
        return None
    # The checksum first, block by block: a sparse file takes no memory.
    block, found = bytearray(min(_BLOCK, nbytes)), 0
    for at in range(_HEAD.size, nbytes, _BLOCK):
        part = memoryview(block)[: min(_BLOCK, nbytes - at)]
        if read_at(system, fd, part, at) < len(part):
            return None
        found = zlib.crc32(part, found)
    if found != crc:
        return None
    body = bytearray(nbytes - behind)
    if read_at(system, fd, memoryview(body), behind) < len(body):
        return None
    old, new, was_end, at = bytes(body[:old_size]), bytearray(), 0, old_size
    for _, was, now, same in pieces:
        was_end += was
        new += body[at : at + now - same] + old[was_end - same : was_end]
        at += now - same
    return inode, new_nbytes, pieces, old, bytes(new)


def _first(system: System, fd: int, nbytes: int) -> bytes:
    """Return the first bytes of a file, as far as there are so many."""
    # a length that a damaged journal tells takes no memory
    found = bytearray(min(nbytes, system.fstat(fd).st_size))
    return bytes(found[: read_at(system, fd, memoryview(found), 0)])


def _state(now: bytes, old: bytes, new: bytes) -> Literal["old", "new", "torn", "other"]:
    """Return which of two headers a file begins with, from what is kept of them; see rules 2 and 3."""
    count = slice(4, count_end(new))

    def begins_with(header: bytes) -> bool:
        return (
            len(now) >= len(header) and now[:4] == header[:4] and now[count.stop : len(header)] == header[count.stop :]
        )

    if begins_with(new):
        return "torn" if now[count] == old[count] != new[count] else "new"
    if begins_with(old):
        return "torn" if now[count] != old[count] and _is_mix(now[count], old[count], new[count]) else "old"
    return "torn" if _is_mix(now[:4] + old[count] + now[count.stop :], old, new) else "other"


def _is_mix(now: bytes, old: bytes, new: bytes) -> bool:
    """Return whether every byte is the old one or the new one, as far as each goes."""
    # Behind the end of the old header there was free space, or the end of the file: nothing is known of it.
    size = min(len(now), len(old))
    found, stale = np.frombuffer(now, np.uint8, size), np.frombuffer(old, np.uint8, size)
    fresh = np.frombuffer(new.ljust(size, b"\0"), np.uint8, size)
    changed = found != fresh
    changed[len(new) :] = True
    return not bool((changed & (found != stale)).any())
