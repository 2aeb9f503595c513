"""Replaying logs: what a job posted and did not live to flush goes to the file.

Knows: logs, sessions. Does not know: how a log was written, which the codec tells.

Rules
-----
1. The file is the one that the caller names; the path in a log is never followed.
2. Entries are applied in the order of their log, logs in the order of ranks; replaying twice changes nothing, because
   a log of ours is marked as flushed once the file holds it.
3. A log that is damaged, and not merely torn at its end as a kill leaves it, is refused unless `salvage` is set.
4. A dataset that the file lacks, because its header was never written, is made as the log describes it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.comm import Comm, serial
from pnc_vol.errors import LogError, NotFoundError
from pnc_vol.extents.selection import Selection, hyperslab, many
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Tree
from pnc_vol.options import Options
from pnc_vol.pending.log.companion import COMMIT, FLUSHED, RESET, Companion, decode_companion, encode_record
from pnc_vol.pending.log.definitions import Definition, read_definitions
from pnc_vol.pending.log.files import Share
from pnc_vol.pending.log.judging import Verdict, committed_entries
from pnc_vol.pending.log.layout import Entry
from pnc_vol.pending.log.reading import Log, count_channels, read_log
from pnc_vol.system import System, exists, read_at, read_whole, write_all

if TYPE_CHECKING:
    from pnc_vol.pending.session import Session

__all__ = ["LogSource", "ReplayReport", "replay_into", "sources_of"]


def sources_of(system: System, path: str, *, lock: bool = True) -> list[LogSource]:
    """The logs in the files of one name: one, or one for each rank of the node that shares them.

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
        channels = count_channels(read_whole(system, base + ".meta"))
    if channels <= 1 and not own:
        return [LogSource(system, base, lock=lock)]
    return [LogSource(system, base, Share(channel, channels), lock=lock) for channel in range(channels)]


@dataclass(slots=True)
class ReplayReport:
    """What a replay did.

    logs : int
    replayed, cancelled, flushed, torn : int, entries by what became of them.
    torn_bytes : int, bytes at the ends of logs that were dropped.
    created : list of str, datasets that the file lacked.
    messages : list of str, what a person should know.
    """

    logs: int = 0
    replayed: int = 0
    cancelled: int = 0
    flushed: int = 0
    torn: int = 0
    torn_bytes: int = 0
    created: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class LogSource:
    """One log, opened for reading.

    base : str, its path without suffix.
    share : Share or None, how ranks of a node share the files.
    lock : bool, keep the writer, if it lives, and other replays away.
    """

    def __init__(self, system: System, base: str, share: Share | None = None, *, lock: bool = True) -> None:
        self.system = system
        self.base = base
        self.share = share
        self._own = "" if share is None else f".{share.channel}"
        meta = read_whole(system, self.base + ".meta")
        if share is not None:
            meta = share.part_of(meta)
        self._fd = system.open(self.base + ".data", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._commit = -1
        try:
            if lock:
                self._lock()
            physical = system.fstat(self._fd).st_size
            self.data_size = physical if share is None else share.size_of(physical)
            self.log: Log = read_log(meta, self.data_size)
            self.companion: Companion | None = self._beside(".commit", decode_companion)
            found = self._beside(".defs", read_definitions)
            self.definitions: list[Definition] = found[0] if found is not None else []
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        """Keep the writer, if it lives, and other replays away; the C library's logs have nothing to lock."""
        with suppress(FileNotFoundError):
            self._commit = self.system.open(self.base + ".commit" + self._own, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self.system.flock(self._commit, exclusive=True)
            except BlockingIOError:
                raise LogError(
                    f"{self.base}: the job that writes this log, or another replay of it, still runs", field="log"
                ) from None

    def _beside(self, suffix: str, decode: Any) -> Any:
        try:
            data = read_whole(self.system, self.base + suffix + self._own)
        except FileNotFoundError:
            return None
        return decode(data)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Bytes of the data log; fewer where it ends."""
        found = bytearray(max(0, min(nbytes, self.data_size - offset)))
        view, done = memoryview(found), 0
        pieces = [(offset, len(found))] if self.share is None else self.share.pieces(offset, len(found))
        for at, length in pieces:
            done += read_at(self.system, self._fd, view[done : done + length], at)
        return bytes(view[:done])

    def judge(self, *, uncounted: bool = False) -> Verdict:
        """Which entries are to be replayed."""
        return committed_entries(self.log, self.companion, self.read, uncounted=uncounted)

    def mark_flushed(self) -> None:
        """Say in the companion that the file holds all of the log."""
        if self.companion is None:
            return
        records = self.companion.records
        ends = records[(records["kind"] == COMMIT) | (records["kind"] == RESET)][-1:]
        record = encode_record(
            FLUSHED,
            log_id=self.companion.header.log_id,
            sequence=len(records) + 1,
            meta_end=int(ends["meta_end"].sum()),
            data_end=int(ends["data_end"].sum()),
        )
        write_all(self.system, self._commit, record, self.companion.end)
        self.system.fdatasync(self._commit)

    def close(self) -> None:
        """Let go of the log."""
        self.system.close(self._fd)
        if self._commit >= 0:
            self.system.close(self._commit)


def replay_into(
    path: str,
    logs: Sequence[str],
    *,
    options: Options,
    comm: Comm | None = None,
    salvage: bool = False,
    uncounted: bool = False,
) -> ReplayReport:
    """Apply logs to a file (collective, if `comm` has several ranks).

    Parameters
    ----------
    path : str
    logs : sequence of str, metadata logs, in any order.
    options : Options, for opening the file.
    comm : Comm, optional
        Ranks that share the work; owned by this call.
    salvage : bool
        Replay what is good of a damaged log.
    uncounted : bool
        Also entries beyond the count of a log of the C library: flushed before, or never counted.

    Raises
    ------
    LogError
        A log is damaged, or does not fit the file.
    OSError
        A log or the file cannot be read or written.
    """
    from pnc_vol.pending.session import open_session

    comm = comm or serial()
    report = ReplayReport()
    with ExitStack() as stack:
        sources = _open_all(options.system, logs, comm)
        for source in sources:
            stack.callback(source.close)
        report.logs = len(sources)
        sources.sort(key=lambda source: (source.log.header.rank_id, source.base))
        verdicts = [source.judge(uncounted=uncounted) for source in sources]
        for source, verdict in zip(sources, verdicts, strict=True):
            if verdict.damaged and not salvage:
                what = "; ".join(finding.message for finding in verdict.findings if finding.severity == "error")
                raise LogError(
                    f"{source.base}.meta is damaged: {what}. salvage replays what is good of it",
                    field="log",
                    value=None,
                )
            _count(report, source, verdict)
        session = open_session(path, "r+", options=options, comm=comm)
        try:
            books = [_Book(session.tree, source, report) for source in sources]
            for i, (book, verdict) in enumerate(zip(books, verdicts, strict=True)):
                if i % comm.size == comm.rank:
                    book.replay(session, verdict)
            session.flush(durable=True)
        finally:
            session.close()
        if comm.rank == 0:
            for source in sources:
                source.mark_flushed()
    return report


def _open_all(system: System, logs: Sequence[str], comm: Comm) -> list[LogSource]:
    """The logs, on every rank; rank 0 keeps others away from them (collective)."""
    sources: list[LogSource] = []
    error: BaseException | None = None
    try:
        sources = [source for log in logs for source in sources_of(system, log, lock=comm.rank == 0)]
    except Exception as reason:
        error = reason
    try:
        comm.exchange("replay logs", error=error)
    except BaseException:
        for source in sources:
            source.close()
        raise
    return sources


def _count(report: ReplayReport, source: LogSource, verdict: Verdict) -> None:
    totals = verdict.totals()
    report.replayed += len(verdict.replay)
    report.cancelled += totals.get("cancelled", 0)
    report.flushed += totals.get("flushed", 0)
    report.torn += totals.get("torn", 0)
    report.torn_bytes += source.log.torn_bytes
    for finding in (*source.log.findings, *verdict.findings):
        report.messages.append(f"{os.path.basename(source.base)}: {finding.message}")


class _Book:
    """Which dataset of the file an entry of one log means."""

    def __init__(self, tree: Tree, source: LogSource, report: ReplayReport) -> None:
        self.source = source
        self.nodes: dict[int, DatasetNode] = {}
        if source.companion is None:
            # The C library numbers variables as the file's header does.
            self.nodes = dict(enumerate(tree.datasets.values()))
            return
        for definition in source.definitions:
            self.nodes[definition.varid] = _found_or_made(tree, definition, report)

    def replay(self, session: Session, verdict: Verdict) -> None:
        """Post the entries and fills of the log, in order."""
        fills = list(verdict.fills)
        for index in verdict.replay.tolist():
            while fills and fills[0].before <= index:
                self._fill(session, fills.pop(0))
            entry = self.source.log.entries[index]
            node = self._node(entry.varid)
            selection = _selection(node, entry)
            if selection is not None:
                session.write(node, selection, self._values(node, index, entry, selection))
        for fill in fills:
            self._fill(session, fill)

    def _node(self, varid: int) -> DatasetNode:
        node = self.nodes.get(varid)
        if node is None:
            raise LogError(
                f"{self.source.base}.meta writes to variable {varid}, which the file does not have",
                field="varid",
                value=varid,
            )
        return node

    def _fill(self, session: Session, fill: Any) -> None:
        node = self._node(fill.varid)
        length = (node.shape or (0,))[0]
        if fill.first < length:
            session.grow(node, (fill.first, *(node.shape or ())[1:]))
            session.grow(node, (length, *(node.shape or ())[1:]))

    def _values(self, node: DatasetNode, index: int, entry: Entry, selection: Selection) -> npt.NDArray[Any]:
        raw = self.source.read(entry.data_off, entry.data_len)
        dtype = self.source.log.entries.dtype(index, self.source.log.header.byteorder)
        flat = np.frombuffer(raw, dtype)
        element = node.element
        if element.is_string:
            width = max(1, len(raw) // max(1, selection.nelems))
            return np.frombuffer(raw, f"S{width}").reshape(selection.result_shape)
        if element.kind == "complex":
            flat = flat.view(np.dtype(f"{dtype.byteorder}c{2 * dtype.itemsize}"))
        elif element.kind == "bool":
            flat = flat.astype(bool)
        return flat.reshape(selection.result_shape)


def _found_or_made(tree: Tree, definition: Definition, report: ReplayReport) -> DatasetNode:
    """The dataset of that path, grown to the shape that the log knows; made if the file lacks it."""
    group: GroupNode = tree.root
    *folders, name = definition.path.strip("/").split("/")
    for folder in folders:
        child = group.children.get(folder)
        if child is None:
            child = tree.add_group(group, folder)
        if not isinstance(child, GroupNode):
            raise NotFoundError(f"{definition.path}: {folder!r} is a dataset in the file, a group in the log")
        group = child
    node = group.children.get(name)
    if node is None:
        maxshape = (None, *definition.shape[1:]) if definition.record else None
        report.created.append(definition.path)
        return tree.add_dataset(
            group,
            name,
            element=definition.element,
            shape=definition.shape,
            maxshape=maxshape,
            fillvalue=definition.fillvalue,
        )
    if not isinstance(node, DatasetNode):
        raise NotFoundError(f"{definition.path} is a group in the file, a dataset in the log")
    shape = node.shape or ()
    if node.is_record and definition.shape[1:] == shape[1:] and definition.shape[0] > shape[0]:
        node.shape = definition.shape
        tree.touch()
    elif len(shape) != len(definition.shape) or node.element.kind != definition.element.kind:
        raise LogError(
            f"{definition.path} has shape {shape} in the file and {definition.shape} in the log: another file?",
            field="shape",
            value=definition.shape,
        )
    return node


def _selection(node: DatasetNode, entry: Entry) -> Selection | None:
    """What an entry selects in its dataset; None if nothing of it is left there."""
    shape = node.shape or ()
    rank = len(shape)
    start, count = entry.start[:, :rank], entry.count[:, :rank]
    if entry.start.shape[1] != rank + len(node.element.trailing):
        raise LogError(
            f"an entry has {entry.start.shape[1]} dimensions, {node.path} has {rank}", field="ndims", value=entry.ndims
        )
    count = np.where(count < 0, np.array(shape, np.int64), count)
    if entry.kind == "varn":
        return many(shape, start, count)
    stride = None if entry.stride is None else tuple(entry.stride[:rank].tolist())
    if node.is_record and int(start[0, 0]) >= shape[0]:
        return None
    if 0 in count[0] or math.prod(shape) == 0:
        return None
    return hyperslab(shape, tuple(start[0].tolist()), tuple(count[0].tolist()), stride)
