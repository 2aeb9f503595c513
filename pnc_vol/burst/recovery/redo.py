"""`Redo` posts the entries of logs again, in the order in which the job posted them.

Knows: logs, definitions, verdicts, sessions. Does not know: where logs are, what an entry holds (`entry_rows`), what
becomes of the logs afterwards (`replay`).

Rules
-----
1. Everything is checked before anything is posted: a log that does not fit the file changes nothing.
2. Ranks go through the same phases, one for each time that a dataset was cut: within a phase ranks write in order, and
   no rank's later posts meet another rank's earlier cut.
3. A log of ours says which variable it means by the variable's name in the header that it was written under
   (`LoggedDatasets`). The C library numbers variables as the header does.
4. Shapes and types in the file are those of the log, or the log is refused: it is another file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.burst.batch import log_batches
from pnc_vol.burst.definitions import Definition, crc_of_header, whole_of
from pnc_vol.burst.encoding import LogEntry
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
from pnc_vol.errors import LogError, LogRefusedError, PncVolError, RangeError
from pnc_vol.extents.model import Int64, distinct
from pnc_vol.extents.selection import hyperslab, many
from pnc_vol.mapping.describe import describe
from pnc_vol.mapping.links import remove
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Tree
from pnc_vol.queue.stores import ROW_COST

if TYPE_CHECKING:
    from pnc_vol.file.leftovers import ReplayReport
    from pnc_vol.file.open_file import OpenFile

__all__ = ["LoggedDatasets", "Redo"]

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
            rows, widths, units, left = rows_of_entries(source, some, partial(self.datasets.find, source))
            rows[:, 0] += session.posted.take_number(len(some))
            for batch in log_batches(rows, widths, limit, store=None, read=source.read_into, units=units):
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


class LoggedDatasets:
    """The datasets of a file that the logs of one job mean; what the file lacks is made in its tree.

    Parameters
    ----------
    tree : Tree, of the file; what is made or renamed is changed in it.
    header_bytes : bytes, the header of the file.
    sources : sequence of LogSource, in the order of ranks, judged.
    created : list of str, the paths of datasets that are made are appended.

    Attributes
    ----------
    known : list of list of Definition
        Of each source; none of a source of which nothing is to be replayed.
    nodes : dict of int to DatasetNode, by the log's numbers.
    gone : set of int, the log's numbers of datasets that were deleted or superseded.

    Raises
    ------
    LogRefusedError
        The file has not what the logs write to.
    """

    def __init__(self, tree: Tree, header_bytes: bytes, sources: Sequence[LogSource], created: list[str]) -> None:
        self.tree = tree
        self.created = created
        self.nodes: dict[int, DatasetNode] = {}
        self._variables = {node.cdf_name: node for node in tree.datasets.values()}
        self.by_number = dict(enumerate(tree.datasets.values()))
        self._made: set[int] = set()
        self.known = [list(source.defined.found) if source.holds else [] for source in sources]
        self.gone = self._superseded({varid for source in sources for varid in source.defined.gone})
        self._last_path = {d.varid: d.path for known in self.known for d in known}
        self._by_path = {node.path: node for node in tree.datasets.values() if node.owner is None}
        self._named: set[int] = set()
        """Datasets of the file (their uids) that some definition means."""
        crc = crc_of_header(header_bytes)
        self._written = max((source.defined.headers.get(crc, 0) for source in sources), default=0)
        """The epoch that the file's header begins; 0 if the logs do not know that header."""
        # What the file's header has under the name that it had when that header was about to be written: the job was
        # stopped after the header was written and before its log was begun anew.
        in_header = {d.varid: d for definitions in self.known for d in definitions if not self._after(d)}
        for definition in in_header.values():
            if definition.varid not in self.gone:
                self._resolve(definition, named=True)
        for definitions in self.known:
            for definition in definitions:
                if definition.varid not in self.gone and (definition.varid not in in_header or self._after(definition)):
                    self._resolve(definition)

    def _superseded(self, gone: set[int]) -> set[int]:
        """Return those that were deleted (`gone`), and those under whose paths others were made, all since the last
        flush."""
        for known in self.known:
            definitions = [definition for definition in known if definition.owner is None]
            # What was renamed is defined again before its old path is given to another, or, where several changed
            # places, soon after.
            last = {definition.varid: at for at, definition in enumerate(definitions)}
            holder: dict[str, int] = {}
            path_of: dict[int, str] = {}
            for at, definition in enumerate(definitions):
                varid, path = definition.varid, definition.path
                if holder.get(path_of.get(varid, path)) == varid:
                    del holder[path_of[varid]]
                if path in holder and last[holder[path]] < at:
                    gone.add(holder[path])
                holder[path], path_of[varid] = varid, path
        return gone | {d.varid for definitions in self.known for d in definitions if d.owner in gone}

    def _after(self, definition: Definition) -> bool:
        """Return whether a definition is later than the file's header."""
        return definition.epoch >= self._written

    def _resolve(self, definition: Definition, *, named: bool = False) -> None:
        """Find the dataset of the file that a definition means; make it if the file lacks it."""
        node = self.nodes.get(definition.varid)
        if definition.owner is not None:
            node = self._part(definition)
        elif node is None:
            node = (None if named else self._stored(definition)) or self._at(definition)
        if definition.owner is None and node.path != definition.path:
            self._rename(node, definition.path)
        shape = node.shape or ()
        logged, there = definition.element, node.element
        same_type = logged.kind == there.kind and (
            logged.kind == "vlen_string" or (logged.file_dtype, logged.trailing) == (there.file_dtype, there.trailing)
        )
        if logged.kind == "composite":
            same_type = same_type and describe(logged.dtype) == describe(there.dtype)
        inner = shape[1:] == definition.shape[1:] if definition.record else shape == definition.shape
        if not same_type or len(shape) != len(definition.shape) or not inner or node.is_record != definition.record:
            raise LogRefusedError(
                f"{definition.path} has shape {shape} and type {there.dtype} in the file, {definition.shape} and "
                f"{logged.dtype} in the log: another file?",
                field="shape",
                value=definition.shape,
            )
        self.nodes[definition.varid] = node
        self._named.add(node.uid)

    def _part(self, definition: Definition) -> DatasetNode:
        """Return the part of a dataset that a definition means."""
        assert definition.owner is not None
        node = self.nodes.get(definition.owner)
        for name in definition.part:
            node = node.parts.get(name) if node is not None else None
        if node is None:
            raise LogRefusedError(
                f"{definition.path} has no part {'.'.join(definition.part)!r} in the file: another file?",
                field="part",
                value=definition.part,
            )
        return node

    def _stored(self, definition: Definition) -> DatasetNode | None:
        """Return the dataset by its variable's name, or by a later path, if the header knows the new names already."""
        if definition.stored is None:
            return None
        later = self._last_path[definition.varid]
        moved = self._by_path.get(later) if later != definition.path else None
        return self._variables.get(definition.stored) or moved

    def _folder(self, folders: Sequence[str]) -> GroupNode | str:
        """Return the group of that path, made if it is missing; or the name on the way that is a dataset."""
        group: GroupNode = self.tree.root
        for folder in folders:
            child = group.children.get(folder)
            if child is None:
                child = self.tree.add_group(group, folder)
            if not isinstance(child, GroupNode):
                return folder
            group = child
        return group

    def _at(self, definition: Definition) -> DatasetNode:
        *folders, name = definition.path[1:].split("/")
        group = self._folder(folders)
        if isinstance(group, str):
            raise LogRefusedError(f"{definition.path}: {group!r} is a dataset in the file, a group in the log")
        node = group.children.get(name)
        if isinstance(node, GroupNode):
            raise LogRefusedError(f"{definition.path} is a group in the file, a dataset in the log")
        if node is not None and not (definition.replaces and node.uid not in self._made):
            return node
        if definition.stored is not None:
            raise LogRefusedError(
                f"the file has no variable {definition.stored!r}, which the log writes to: another file?",
                field="stored",
                value=definition.stored,
            )
        if node is not None:
            remove(node)
        else:
            self.created.append(definition.path)
        made = self.tree.add_dataset(
            group,
            name,
            element=definition.element,
            shape=definition.shape,
            maxshape=(None, *definition.shape[1:]) if definition.record else None,
            fillvalue=definition.fillvalue,
        )
        self._made.add(made.uid)
        return made

    def _rename(self, node: DatasetNode, path: str) -> None:
        """Give a dataset the path that it had when the job ended, if that is free."""
        *folders, name = path[1:].split("/")
        group = self._folder(folders)
        if isinstance(group, str):
            return
        holder = group.children.get(name)
        if isinstance(holder, DatasetNode) and holder.uid in self._named:
            # It changed places with others, and its own new name comes later.
            aside = f"{name}.{holder.uid}"
            while aside in group.children:
                aside += "_"
            self.tree.move(holder, group, aside)
        if name not in group.children:
            self.tree.move(node, group, name)

    def find(self, source: LogSource, varid: int) -> DatasetNode | None:
        """Return the dataset that an entry writes to; logs of the C library number variables as the header does."""
        return (self.by_number if source.commit_log is None else self.nodes).get(varid)

    def node(self, source: LogSource, varid: int) -> DatasetNode:
        """Return the same.

        Raises
        ------
        LogError
            The file has no such variable.
        """
        node = self.find(source, varid)
        if node is None:
            raise LogError(
                f"{source.base}.meta writes to variable {varid}, which the file does not have",
                field="varid",
                value=varid,
            )
        return node
