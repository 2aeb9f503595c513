"""`LogSource` opens the files of a log for reading.

Knows: the files of a log, those that ranks share, locks. Does not know: what is done with entries.

Rules
-----
1. A replay locks out a running writer and other replays; reading a log locks nothing.
2. A link is not followed.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import (
    RECORD_BYTES,
    SLOT_BYTES,
    Bytes,
    RecordLog,
    Share,
    decode_header,
    decode_records,
    encode_record,
)
from pnc_vol.burst.commit_log import COMMIT, COMMIT_LOG, FILL, FLUSHED, OPEN_GROUP
from pnc_vol.burst.decoding import Log, count_channels, read_log
from pnc_vol.burst.definition_writer import LoggedFile
from pnc_vol.burst.definitions import LogDefinitions, encode_written, read_definitions
from pnc_vol.burst.files import LOGS, logs_in
from pnc_vol.burst.recovery.scan import (
    SlotGroup,
    Verdict,
    commit_of_open_group,
    committed_entries,
    group_in_slot,
    with_record,
    without_tail,
)
from pnc_vol.errors import NO_LOCKS, FormatError, LogError, LogRefusedError
from pnc_vol.extents.model import Int64
from pnc_vol.format.model import Finding
from pnc_vol.system import System, exists, is_folder
from pnc_vol.system.full_io import read_at, read_content, write_all

__all__ = ["LogSource", "holds_posts", "metas_of", "named_logs", "sources_of"]

_ANY_LENGTH = 1 << 62

_NOTHING = SlotGroup(b"", 0, _ANY_LENGTH, b"", b"")

_FIRST = 1 << 12
"""Bytes of records of a commit log that are looked at first."""

_MOST_BYTES = 1 << 30
"""Bytes of a file of a log, but for the data, that are read."""


def metas_of(system: System, folders: list[str]) -> list[str]:
    """Return the metadata logs of some folders."""
    return [base + ".meta" for folder in folders for base in logs_in(system, folder)]


def named_logs(system: System, names: list[str], path: str = "") -> list[str]:
    """Return metadata logs from what a user names; each once.

    Parameters
    ----------
    names : list of str
        Logs (with or without a suffix), folders of logs, and folders that jobs made their folders in.
    path : str
        The file whose jobs are meant in the last case; "" for all.

    Raises
    ------
    LogError
        There is no log under a name.
    """
    found: dict[str, str] = {}
    for name in names:
        for base in _bases(system, name, path):
            found.setdefault(system.realpath(base), base + ".meta")
    return list(found.values())


def _bases(system: System, name: str, path: str) -> list[str]:
    if not is_folder(system, name):
        base = name
        for suffix in (".meta", ".data", ".commit", ".defs"):
            base = base.removesuffix(suffix)
        if exists(system, name) and not exists(system, base + ".meta"):
            raise LogError(f"{name}: this is not a log; a metadata log is called NAME.meta, with NAME.data beside it")
        return [base]
    bases = logs_in(system, name)
    if not bases:
        jobs = LOGS.in_parent(system, name, LOGS.prefix)
        of_file = LOGS.in_parent(system, name, LOGS.name(system.realpath(path))) if path else jobs
        bases = [base for job in of_file for base in logs_in(system, job)]
        if not bases and jobs:
            raise LogError(f"{name}: there are logs in this folder, but none of {path}; name the folder of the job")
    if not bases:
        raise LogError(f"{name}: there is no log (a file NAME.meta) in this folder")
    return bases


def sources_of(system: System, path: str, *, lock: bool = True) -> list[LogSource]:
    """Return the logs in the files of one name: one, or one for each rank of the node that shares them.

    A log whose job was stopped before it had written the headers holds nothing, and is left out.

    Parameters
    ----------
    path : str, of the metadata log, with or without the suffix ``.meta``.
    """
    base = path[: -len(".meta")] if path.endswith(".meta") else path
    folder, name = os.path.split(base)
    own = [found for found in system.listdir(folder or ".") if found.startswith(f"{name}.commit.")]
    channels = len(own)
    if not own and not exists(system, base + ".commit"):
        # The C library says nowhere how many ranks share its files; their headers do.
        channels = count_channels(_read(system, base + ".meta"))
    shares = [Share(channel, channels) for channel in range(channels)] if channels > 1 or own else [None]
    made: list[LogSource] = []
    try:
        for share in shares:
            with suppress(_NotBegunError):
                made.append(LogSource(system, base, share, lock=lock))
    except BaseException:
        for source in made:
            source.close()
        raise
    return made


def holds_posts(system: System, folder: str) -> bool:
    """Return whether the logs of a folder hold what the file may not hold; True if that cannot be told."""
    commits = [name for name in system.listdir(folder) if ".commit" in name]
    if not logs_in(system, folder):
        return False
    try:
        for name in commits:
            content = _read(system, os.path.join(folder, name))
            if not np.frombuffer(content, np.uint8).any():
                # Its job had not begun to post.
                continue
            _, begin = decode_header(COMMIT_LOG, content)
            kinds = np.frombuffer(content, COMMIT_LOG.dtype, (len(content) - begin) // RECORD_BYTES, begin)["kind"]
            if FLUSHED not in kinds and _posts(content[: begin + _FIRST]):
                # All records need not be looked at where none can say that the file has what the first are of.
                return True
            if _posts(content):
                return True
    except FormatError:
        return True
    return not commits


def _posts(content: Bytes) -> bool:
    """Return whether there are valid records of what was posted after the last flush."""
    found = decode_records(COMMIT_LOG, content)
    if OPEN_GROUP.unpack_from(found.slot)[1]:
        return True
    kinds = found.records["kind"]
    last = int(np.flatnonzero(kinds == FLUSHED).max(initial=-1))
    return bool(np.isin(kinds[last + 1 :], (COMMIT, FILL)).any())


def _read(system: System, path: str) -> memoryview:
    """Return the content of a file of a log; a link is not followed.

    Raises
    ------
    LogError
        It is a symbolic link.
    """
    try:
        return read_content(system, path, limit=_MOST_BYTES, flags=os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _is_link(path) from None
        raise


def _is_link(path: str) -> LogError:
    return LogError(
        f"{path}: this is a symbolic link, which is not followed inside a log; replace it by the file", field="link"
    )


class _NotBegunError(LogError):
    """The job was stopped while it made its log."""


class LogSource:
    """One log, opened for reading.

    base : str, its path without suffix.
    share : Share or None, how ranks of a node share the files.
    lock : bool, keep the writer, if it lives, and other replays away.

    Raises
    ------
    LogError
        It is no log, or its headers are wrong.
    LogRefusedError
        Its job still runs, or another replay of it does.
    OSError
        It cannot be read.
    """

    def __init__(self, system: System, base: str, share: Share | None = None, *, lock: bool = True) -> None:
        self.system = system
        self.base = base
        self.share = share
        self._fd = self._commit = self._other = -1
        try:
            if lock:
                self._lock()
            commit_log = self._beside(".commit")
            if commit_log is not None and not np.frombuffer(commit_log, np.uint8).any():
                # Its header is written last: nothing can have been posted.
                raise _NotBegunError(f"{base}: the job was stopped before it wrote to this log", field="header")
            self.commit_log: RecordLog | None = None if commit_log is None else decode_records(COMMIT_LOG, commit_log)
            meta: Bytes = _read(system, base + ".meta")
            if share is not None:
                meta = share.part_of(memoryview(meta))
            try:
                self._fd = self._open(".data", os.O_RDONLY)
            except FileNotFoundError:
                if not exists(system, base + ".meta"):
                    raise  # somebody removes the log
                raise LogError(
                    f"{base}.data is not there: a power failure took it, or it was removed or left behind when the log "
                    "was copied; without it the posts of this log are lost",
                    field="data",
                ) from None
            physical = system.fstat(self._fd).st_size
            self.data_size = physical if share is None else share.size_of(physical)
            self.log: Log = read_log(meta, self.data_size)
            if share is not None and self.commit_log is not None:
                # Behind the last commit stands what an earlier use of the blocks left.
                end = int(self.commit_log.records["meta_end"].max(initial=self.log.header.entry_begin))
                self.log = read_log(meta[:end], self.data_size)
            self._last, self._damaged = _NOTHING, ""
            if share is None and self.commit_log is not None:
                self._find_open_group(self.commit_log)
                if self._last.record:
                    self.commit_log = with_record(self.commit_log, self._last.record)
            definitions = bytes(self._beside(".defs") or b"").rstrip(b"\0")
            self.defined: LogDefinitions = read_definitions(definitions)
            self._definitions_end = len(definitions) - self.defined.torn_bytes
            self._flushed = False
            self.verdict: Verdict
        except BaseException as error:
            self.close()
            if type(error) is LogError and base not in str(error):
                # what decodes bytes does not know of which file they are
                raise LogError(f"{base}: {error}", offset=error.offset, field=error.field, value=error.value) from None
            raise

    def _find_open_group(self, commit_log: RecordLog) -> None:
        found, self._damaged = group_in_slot(commit_log, self.log, self.data_size)
        if found is not None:
            # From here on as if they had gone to the logs.
            self._last = found
            self.data_size = found.data_begin + len(found.values)
            self.log = read_log(bytes(self.log.meta[: found.begin]) + found.entries, self.data_size)
        elif not self._damaged:
            record, self._damaged = commit_of_open_group(commit_log, self.log, self.read)
            self._last = _NOTHING._replace(record=record)

    @property
    def _own(self) -> str:
        """What the names of this rank's own files end in."""
        return "" if self.share is None else f".{self.share.channel}"

    def _lock(self) -> None:
        """Keep others away; of the C library's logs, which their writer does not lock, other replays."""
        try:
            fd = self._commit = self._open(".commit" + self._own, os.O_RDWR)
        except FileNotFoundError:
            if self.share is not None and self.share.channel:
                # Ranks that share the files of the C library have one lock.
                return
            fd = self._other = self._open(".meta", os.O_RDONLY)
        try:
            self.system.flock(fd)
        except BlockingIOError:
            raise LogRefusedError(
                f"{self.base}: the job that writes this log, or another replay of it, is still running", field="lock"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise

    def _open(self, suffix: str, flags: int) -> int:
        """Return a descriptor of one of the files; a link is not followed.

        Raises
        ------
        LogError
            It is a symbolic link.
        OSError
            It cannot be opened.
        """
        try:
            return self.system.open(self.base + suffix, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _is_link(self.base + suffix) from None
            raise

    def _beside(self, suffix: str) -> memoryview | None:
        try:
            return _read(self.system, self.base + suffix + self._own)
        except FileNotFoundError:
            return None

    def read(self, offset: int, nbytes: int) -> memoryview:
        """Return bytes of the data log; fewer where it ends."""
        found = memoryview(bytearray(max(0, min(nbytes, self.data_size - offset))))
        return found[: self._read(found, offset)]

    def read_into(self, target: npt.NDArray[np.uint8], offset: int) -> None:
        """Fill an array with bytes of the data log.

        Raises
        ------
        LogError
            The log ends before.
        """
        if self._read(target.data, offset) < target.nbytes:
            raise LogError(f"{self.base}.data was cut while it was replayed", offset=offset, field="data")

    def _read(self, view: memoryview, offset: int) -> int:
        end = min(len(view), max(0, self._last.data_begin - offset))
        pieces = [(offset, end)] if self.share is None else self.share.pieces(offset, end)
        done = 0
        for at, length in pieces:
            done += read_at(self.system, self._fd, view[done : done + length], at)
        return done if done < end or end == len(view) else done + self._last.fill(view[end:], offset + end)

    def judge(self, *, uncounted: bool = False) -> Verdict:
        """Find for `verdict` which entries are to be replayed: those that count and whose datasets the log explains."""
        verdict = committed_entries(self.log, self.commit_log, self.read, uncounted=uncounted)
        if self.commit_log is not None and (unknown := self._unexplained(verdict.replay)) >= 0:
            verdict = without_tail(verdict, self.log, unknown)
        if self._damaged:
            found = Finding("error", int(self.log.header.entry_begin), "slot", 0, self._damaged)
            verdict = verdict._replace(damaged=True, findings=(*verdict.findings, found))
        self.verdict = verdict
        return verdict

    @property
    def holds(self) -> bool:
        """Whether something is to be replayed, as far as it was judged."""
        return bool(len(self.verdict.replay) or self.verdict.fills)

    def _unexplained(self, entries: Int64) -> int:
        """Return the first entry whose dataset is not defined, or not in the length that it has there; -1 if there is
        none.

        Commit records vouch for entries and values, and not for the definitions: a kill keeps the order in which these
        were written, a crash of the node may not. So such an entry is torn as one without a commit is.
        """
        longest: dict[int, int] = {}
        for definition in self.defined.found:
            length = definition.shape[0] if definition.record else _ANY_LENGTH
            longest[definition.varid] = max(length, longest.get(definition.varid, 0))
        columns = self.log.entries
        first = len(columns)
        for rows in columns.rows(entries):
            numbers, which = columns.variables(rows.entry)
            most = np.array([longest.get(varid, -1) for varid in numbers.tolist()], np.int64)[which]
            wrong = rows.entry[(most < 0) | (rows.reach > most)]
            first = min(first, int(wrong.min(initial=first)))
        return first if first < len(columns) else -1

    def about_to_write(self, file: LoggedFile, header: bytes) -> None:
        """Say that a header comes that has all that is defined here under its last name."""
        if self.commit_log is None or self._commit < 0 or not self.defined.found:
            return
        file.follow(self.system)
        epoch = 1 + max(definition.epoch for definition in self.defined.found)
        line = encode_written(header, epoch, file.identity)
        fd = self._open(".defs" + self._own, os.O_WRONLY)
        try:
            write_all(self.system, fd, line, self._definitions_end)
            self.system.fdatasync(fd)
        finally:
            self.system.close(fd)
        self._definitions_end += len(line)

    def mark_flushed(self) -> None:
        """Say in the commit log that the file holds all of the log."""
        if self.commit_log is None or self._commit < 0 or self._flushed:
            return
        records = self.commit_log.records
        last = records[records["kind"] == COMMIT][-1:]
        ends = int(last["meta_end"].sum()), int(last["data_end"].sum())
        seed = crc32(self.commit_log.header.log_id)
        record = encode_record(seed, FLUSHED, len(records) + 1, 0, 0, 0, *ends, 0, 0)
        added = self._last.record
        write_all(self.system, self._commit, added + record, self.commit_log.end - len(added))
        write_all(self.system, self._commit, bytes(SLOT_BYTES), self.commit_log.begin - len(self.commit_log.slot))
        self.system.fdatasync(self._commit)
        self._flushed = True

    def close(self) -> None:
        """Let go of the log."""
        for fd in (self._fd, self._commit, self._other):
            if fd >= 0:
                self.system.close(fd)
        self._fd = self._commit = self._other = -1
