"""`Redo` posts the entries of logs again, in the order in which the job posted them.

Knows: logs, verdicts, sessions. Does not know: where logs are, which dataset a definition means (`datasets`), what an
entry holds (`entry_rows`), what becomes of the logs afterwards (`replay`).

Rules
-----
1. Everything is checked before anything is posted: a log that does not fit the file changes nothing.
2. Ranks go through the same phases, one for each time that a dataset was cut: within a phase ranks write in order, and
   no rank's later posts meet another rank's earlier cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.burst.batch import log_batches
from pnc_vol.burst.definitions import Definition, whole_of
from pnc_vol.burst.encoding import LogEntry
from pnc_vol.burst.recovery.datasets import LoggedDatasets
from pnc_vol.burst.recovery.entry_rows import (
    alike_and_whole,
    blocks_of,
    check_entry,
    fitting,
    part_of_elements,
    rows_of_entries,
    values_of_entry,
    whole_elements,
)
from pnc_vol.burst.recovery.scan import Fill
from pnc_vol.burst.recovery.sources import LogSource
from pnc_vol.burst.store import LEAST_ROUND
from pnc_vol.errors import LogError, PncVolError, RangeError
from pnc_vol.extents.model import Int64, distinct
from pnc_vol.extents.selection import hyperslab, many
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.stores import ROW_COST

if TYPE_CHECKING:
    from pnc_vol.file.leftovers import ReplayReport
    from pnc_vol.file.open_file import OpenFile

__all__ = ["Redo"]

_MOST_RECORDS = 1 << 32
_Key = tuple[int, int]


class Redo:
    """The logs of all ranks of one job, to be replayed into one file. Making one checks everything and posts nothing.

    Parameters
    ----------
    session : OpenFile, of the file.
    sources : sequence of LogSource, in the order of ranks, judged.
    report : ReplayReport

    Raises
    ------
    LogRefusedError
        The file has not what the logs write to.
    LogError
        An entry says what cannot be.
    """

    def __init__(self, session: OpenFile, sources: Sequence[LogSource], report: ReplayReport) -> None:
        self.session = session
        self.report = report
        self.sources = sources
        self.datasets = LoggedDatasets(session.defs.tree, session.disk.header_bytes, sources, report.created)
        records = (d.shape[0] for definitions in self.datasets.known for d in definitions if d.record)
        self._most = max([session.defs.numrecs, *records])
        self._check()

    # ------------------------------------------------------------------------------------ phases

    def _phases(self) -> Iterator[tuple[list[Fill], list[Definition], list[tuple[int, Int64]]]]:
        """Yield, for each phase, the cut that begins it, what is defined in it, and of each source the entries in
        it."""
        cuts: dict[_Key, list[Fill]] = {}
        defined: dict[_Key, list[Definition]] = {}
        entries: dict[_Key, list[tuple[int, Int64]]] = {}
        for i, source in enumerate(self.sources):
            verdict = source.verdict
            by_epoch: dict[int, list[Fill]] = {}
            for fill in verdict.fills:
                of = by_epoch.setdefault(fill.epoch, [])
                of.append(fill)
                cuts.setdefault((fill.epoch, len(of)), []).append(fill)
            for definition in self.datasets.known[i]:
                defined.setdefault((definition.epoch, definition.fills), []).append(definition)
            for epoch, in_epoch in _split(verdict.replay, verdict.epoch[verdict.replay]):
                places = np.array([fill.before for fill in by_epoch.get(epoch, [])], np.int64)
                for k, indices in _split(in_epoch, np.searchsorted(places, in_epoch, side="right")):
                    entries.setdefault((epoch, k), []).append((i, indices))
        for key in sorted({*cuts, *defined, *entries}):
            yield cuts.get(key, [])[:1], defined.get(key, []), entries.get(key, [])

    def replay(self) -> None:
        """Post everything, this rank its share, and what others must see before they go on flush (collective)."""
        comm = self.session.comm
        self._grow_for_numbers()
        for i, (cuts, definitions, entries) in enumerate(self._phases()):
            if i and comm.size > 1:
                self.session.flush()
            for fill in cuts:
                self._cut(fill)
            for definition in definitions:
                if (node := self._node(definition.varid)) is not None:
                    self._grow(node, definition.shape[0] if definition.record else 0)
            for which, indices in entries:
                if which % comm.size == comm.rank:
                    self._post(self.sources[which], indices)

    def _node(self, varid: int) -> DatasetNode | None:
        """Return the dataset that the log's number means, the whole of it, if it is not gone."""
        node = self.datasets.nodes.get(varid)
        return None if node is None or varid in self.datasets.gone else whole_of(node)[0]

    def _grow(self, node: DatasetNode, length: int) -> None:
        if node.is_record and length > (node.shape or (0,))[0]:
            self.session.resize(node, (length, *(node.shape or ())[1:]))

    def _cut(self, fill: Fill) -> None:
        node = self._node(fill.varid)
        if node is not None and fill.first < (node.shape or (0,))[0]:
            self.session.resize(node, (fill.first, *(node.shape or ())[1:]))

    def _grow_for_numbers(self) -> None:
        """The C library tells nowhere how many records there are but by its entries."""
        for varid, length in self._reach().items():
            self._grow(self.datasets.by_number[varid], length)

    def _reach(self) -> dict[int, int]:
        """Return records that entries of logs without definitions need, by variable."""
        need: dict[int, int] = {}
        for source in self.sources:
            if source.commit_log is None:
                for rows in source.log.entries.rows(source.verdict.replay):
                    for varid in distinct(source.log.entries.varid[rows.entry]).tolist():
                        node = self.datasets.node(source, varid)
                        if node.is_record:
                            most = int(rows.reach[source.log.entries.varid[rows.entry] == varid].max())
                            need[varid] = max(need.get(varid, 0), most)
        for varid, most in need.items():
            if most > _MOST_RECORDS:
                raise LogError(f"variable {varid} would have {most} records", field="start", value=most)
        return need

    # ----------------------------------------------------------------------------------- entries

    def _there(self, source: LogSource, indices: Int64) -> Int64:
        """Return those of some entries whose datasets are not gone."""
        if source.commit_log is None or not self.datasets.gone:
            return indices
        return indices[~np.isin(source.log.entries.varid[indices], list(self.datasets.gone))]

    def _entries(self, source: LogSource, indices: Int64) -> Iterator[tuple[int, LogEntry, DatasetNode]]:
        """Yield entries one by one, with their datasets."""
        for index in indices.tolist():
            entry = source.log.entries[index]
            yield index, entry, self.datasets.node(source, entry.varid)

    def _check(self) -> None:
        """Raise if any entry cannot be; nothing was posted yet."""
        lengths = {
            node.uid: (node.shape or (0,))[0] for node in self.session.defs.tree.datasets.values() if node.is_record
        }
        for varid, need in self._reach().items():
            uid = self.datasets.by_number[varid].uid
            lengths[uid] = max(lengths.get(uid, 0), need)
        for source in self.sources:
            length = partial(self._longest, source, lengths)
            find = partial(self.datasets.find, source)
            doubtful = fitting(source, self._there(source, source.verdict.replay), find, length)
            for index, entry, node in self._entries(source, doubtful):
                shape = (length(node), *(node.shape or ())[1:]) if node.is_record else node.shape or ()
                try:
                    check_entry(node, entry, shape)
                except (PncVolError, ValueError, IndexError) as error:
                    raise LogError(
                        f"{source.base}.meta: entry {index}, of {node.path}, is not possible: {error}",
                        offset=entry.offset,
                        field=f"entry[{index}]",
                    ) from error

    def _longest(self, source: LogSource, lengths: Mapping[int, int], node: DatasetNode) -> int:
        """Return the number of records that a dataset may have at most."""
        return self._most if source.commit_log is not None else lengths.get(node.uid, 0)

    def _post(self, source: LogSource, indices: Int64) -> None:
        """Post entries: nearly all of them as rows, from the log itself; the others value by value."""
        session = self.session
        queue, options = session.posted.queue, session.options
        limit = max(LEAST_ROUND, options.burst_buf_flush_buffer_size or options.buffer_size)
        indices = self._there(source, indices)
        most = max(1, queue.budget // ROW_COST)
        for first in range(0, len(indices), most):
            if first:
                session.drain()
            some = indices[first : first + most]
            rows, owner, units, left = rows_of_entries(source, some, partial(self.datasets.find, source))
            rows[:, 0] += session.posted.take_number(len(some))
            for batch in log_batches(rows, owner, limit, store=None, read=source.read_into, units=units):
                queue.put_batch(batch)
            self._post_one_by_one(source, left)

    def _post_one_by_one(self, source: LogSource, indices: Int64) -> None:
        for index, entry, node in self._entries(source, indices):
            dtype = source.log.entries.dtype(index, source.log.header.byteorder)
            try:
                self._post_entry(source, node, entry, dtype)
            except RangeError as error:
                self.report.failed += 1
                self.report.messages.append(f"entry {index}, of {node.path}, is not replayed: {error}")

    def _post_entry(self, source: LogSource, node: DatasetNode, entry: LogEntry, dtype: np.dtype[Any]) -> None:
        shape, rank = node.shape or (), len(node.shape or ())
        flat = np.frombuffer(source.read(entry.data_off, entry.data_len), dtype)
        if flat.size != (counted := int(entry.count.prod(axis=1).sum())):
            text = f"an entry of {node.path} holds {flat.size} values, and its counts say {counted}; the log is damaged"
            raise LogError(text, field="data_len")
        start, count = entry.start[:, :rank], entry.count[:, :rank]
        hidden = entry.count[:, rank:]
        if len(start) > 1 and alike_and_whole(node, entry, shape):
            selection = many(shape, start, count)
            self.session.write(node, selection, values_of_entry(node, flat, selection.result_shape, hidden[0]))
            return
        for block, parts in blocks_of(entry, node, shape):
            first, number, step = block[:, :rank].tolist()
            if node.is_record and number and first[0] + (number[0] - 1) * step[0] >= shape[0]:
                # What was cut off later, or never belonged to the dataset, is left out.
                kept = max(0, -(-(shape[0] - first[0]) // step[0]))
                parts = slice(parts.start, parts.start + (parts.stop - parts.start) // max(1, number[0]) * kept)
                number[0] = kept
            if 0 in number or parts.start == parts.stop:
                continue
            selection = hyperslab(shape, first, number, step)
            begin, width = block[:2, rank:]
            if whole_elements(node, begin, width):
                values = values_of_entry(node, flat[parts], selection.result_shape, width)
            else:
                values = part_of_elements(self.session, node, selection, flat[parts], begin, width)
            self.session.write(node, selection, values)


def _split(entries: Int64, by: Int64) -> Iterator[tuple[int, Int64]]:
    """Return entries with the same value, which grows along them."""
    heads = np.flatnonzero(np.diff(by, prepend=-1))
    return zip(by[heads].tolist(), np.split(entries, heads[1:]), strict=False)
