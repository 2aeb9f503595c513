"""The entries of logs, posted again: to which dataset, which elements, in which order.

Knows: logs, verdicts, sessions. Does not know: where logs are, who asked, what becomes of them afterwards.

Rules
-----
1. Everything is checked before anything is posted: a log that does not fit the file changes nothing.
2. A log of ours says which variable it means by the variable's name in the header that it was written under. The C
   library numbers variables as the header does.
3. Ranks go through the same phases, one for each time that a dataset was cut: within a phase ranks write in order, and
   no rank's later posts meet another rank's earlier cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.errors import LogError, LogRefusedError, PncVolError, RangeError
from pnc_vol.extents.model import Int64
from pnc_vol.extents.selection import hyperslab, many
from pnc_vol.log.definitions import Definition, crc_of_header, whole_of
from pnc_vol.log.encoding import Entry
from pnc_vol.mapping.describe import describe
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Tree
from pnc_vol.recovery.scan import Fill, Verdict
from pnc_vol.recovery.sources import LogSource
from pnc_vol.recovery.values import part_of_elements, values_of_entry

if TYPE_CHECKING:
    from pnc_vol.file.session import Session
    from pnc_vol.recovery.replay import ReplayReport

__all__ = ["Job"]

_MOST_RECORDS = 1 << 32
_Key = tuple[int, int]


class Job:
    """The logs of all ranks of one job, about to be replayed into one file.

    Parameters
    ----------
    session : Session, of the file.
    sources : list of LogSource, in the order of ranks.
    verdicts : list of Verdict
    report : ReplayReport

    Raises
    ------
    LogRefusedError
        The file has not what the logs write to.
    LogError
        An entry says what cannot be.
    """

    def __init__(
        self,
        session: Session,
        sources: Sequence[LogSource],
        verdicts: Sequence[Verdict],
        report: ReplayReport,
    ) -> None:
        self.session = session
        self.report = report
        self.sources = list(sources)
        self.verdicts = list(verdicts)
        self.tree: Tree = session.defs.tree
        self.nodes: dict[int, DatasetNode] = {}
        self._variables = {node.cdf_name: node for node in self.tree.datasets.values()}
        self._by_number = dict(enumerate(self.tree.datasets.values()))
        self._made: set[int] = set()
        self._known = [
            list(source.defined.found) if len(verdict.replay) or verdict.fills else []
            for source, verdict in zip(self.sources, self.verdicts, strict=True)
        ]
        self._gone = self._superseded()
        self._last_path = {d.varid: d.path for known in self._known for d in known}
        self._by_path = {node.path: node for node in self.tree.datasets.values() if node.owner is None}
        self._named: set[int] = set()
        """Datasets of the file (their uids) that some definition means."""
        crc = crc_of_header(session.disk.header_bytes)
        self._written = max((s.defined.headers.get(crc, 0) for s in self.sources), default=0)
        """The epoch that the file's header begins; 0 if the logs do not know that header."""
        in_header = self._in_header()
        for definition in in_header.values():
            if definition.varid not in self._gone:
                self._resolve(definition, named=True)
        for definitions in self._known:
            for definition in definitions:
                if definition.varid not in self._gone and (
                    definition.varid not in in_header or self._after(definition)
                ):
                    self._resolve(definition)
        self._most = max([session.defs.numrecs, *(d.shape[0] for ds in self._known for d in ds if d.record)])
        self._check()

    # ---------------------------------------------------------------------------------- datasets

    def _superseded(self) -> set[int]:
        """Datasets that were deleted, and others made under their paths, all since the last flush."""
        gone = {varid for source in self.sources for varid in source.defined.gone}
        for known in self._known:
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
        return gone | {d.varid for definitions in self._known for d in definitions if d.owner in gone}

    def _in_header(self) -> dict[int, Definition]:
        """What the file's header has under the name that it had when that header was about to be written.

        The job was stopped after the header was written and before its log was begun anew.
        """
        return {d.varid: d for definitions in self._known for d in definitions if not self._after(d)}

    def _after(self, definition: Definition) -> bool:
        """Whether a definition is later than the file's header."""
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
        told, there = definition.element, node.element
        same_type = told.kind == there.kind and (
            told.kind == "vlen_string" or (told.file_dtype, told.trailing) == (there.file_dtype, there.trailing)
        )
        if told.kind == "composite":
            same_type = same_type and describe(told.dtype) == describe(there.dtype)
        inner = shape[1:] == definition.shape[1:] if definition.record else shape == definition.shape
        if not same_type or len(shape) != len(definition.shape) or not inner or node.is_record != definition.record:
            raise LogRefusedError(
                f"{definition.path} has shape {shape} and type {there.dtype} in the file, {definition.shape} and "
                f"{told.dtype} in the log: another file?",
                field="shape",
                value=definition.shape,
            )
        self.nodes[definition.varid] = node
        self._named.add(node.uid)

    def _part(self, definition: Definition) -> DatasetNode:
        """The part of a dataset that a definition means."""
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
        """The dataset by its variable's name, or by a later path, if the header knows the new names already."""
        if definition.stored is None:
            return None
        later = self._last_path[definition.varid]
        moved = self._by_path.get(later) if later != definition.path else None
        return self._variables.get(definition.stored) or moved

    def _at(self, definition: Definition) -> DatasetNode:
        group: GroupNode = self.tree.root
        *folders, name = definition.path[1:].split("/")
        for folder in folders:
            child = group.children.get(folder)
            if child is None:
                child = self.tree.add_group(group, folder)
            if not isinstance(child, GroupNode):
                raise LogRefusedError(f"{definition.path}: {folder!r} is a dataset in the file, a group in the log")
            group = child
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
            self.tree.remove(node)
        else:
            self.report.created.append(definition.path)
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
        group: GroupNode = self.tree.root
        *folders, name = path[1:].split("/")
        for folder in folders:
            child = group.children.get(folder)
            if child is None:
                child = self.tree.add_group(group, folder)
            if not isinstance(child, GroupNode):
                return
            group = child
        holder = group.children.get(name)
        if isinstance(holder, DatasetNode) and holder.uid in self._named:
            # It changed places with others, and its own new name comes later.
            aside = f"{name}.{holder.uid}"
            while aside in group.children:
                aside += "_"
            self.tree.move(holder, group, aside)
        if name not in group.children:
            self.tree.move(node, group, name)

    def _node(self, source: LogSource, varid: int) -> DatasetNode:
        node = (self._by_number if source.commit_log is None else self.nodes).get(varid)
        if node is None:
            raise LogError(
                f"{source.base}.meta writes to variable {varid}, which the file does not have",
                field="varid",
                value=varid,
            )
        return node

    # ------------------------------------------------------------------------------------ phases

    def _phases(self) -> Iterator[tuple[list[Fill], list[Definition], list[tuple[int, Int64]]]]:
        """For each phase: the cut that begins it, what is defined in it, and of each source the entries in it."""
        cuts: dict[_Key, list[Fill]] = {}
        defined: dict[_Key, list[Definition]] = {}
        entries: dict[_Key, list[tuple[int, Int64]]] = {}
        for i, verdict in enumerate(self.verdicts):
            by_epoch: dict[int, list[Fill]] = {}
            for fill in verdict.fills:
                of = by_epoch.setdefault(fill.epoch, [])
                of.append(fill)
                cuts.setdefault((fill.epoch, len(of)), []).append(fill)
            for definition in self._known[i]:
                defined.setdefault((definition.epoch, definition.fills), []).append(definition)
            epochs = verdict.epoch[verdict.replay]
            for epoch in np.unique(epochs).tolist():
                mine = verdict.replay[epochs == epoch]
                places = np.array([fill.before for fill in by_epoch.get(epoch, [])], np.int64)
                phase = np.searchsorted(places, mine, side="right")
                for k in np.unique(phase).tolist():
                    entries.setdefault((epoch, k), []).append((i, mine[phase == k]))
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
                node = self.nodes.get(definition.varid)
                if node is not None and definition.varid not in self._gone:
                    self._grow(node, definition.shape[0] if definition.record else 0)
            for which, mine in entries:
                if which % comm.size == comm.rank:
                    self._post(self.sources[which], mine)

    def _grow(self, node: DatasetNode, length: int) -> None:
        node, _ = whole_of(node)
        if node.is_record and length > (node.shape or (0,))[0]:
            self.session.resize(node, (length, *(node.shape or ())[1:]))

    def _cut(self, fill: Fill) -> None:
        node = self.nodes.get(fill.varid)
        if node is None or fill.varid in self._gone:
            return
        node, _ = whole_of(node)
        if fill.first < (node.shape or (0,))[0]:
            self.session.resize(node, (fill.first, *(node.shape or ())[1:]))

    def _grow_for_numbers(self) -> None:
        """The C library tells nowhere how many records there are but by its entries."""
        for varid, length in self._reach().items():
            self._grow(self._by_number[varid], length)

    def _reach(self) -> dict[int, int]:
        """Records that entries of logs without definitions need, by variable."""
        need: dict[int, int] = {}
        for source, verdict in zip(self.sources, self.verdicts, strict=True):
            if source.commit_log is None:
                for rows in source.log.entries.rows(verdict.replay):
                    if not rows.start.shape[1]:
                        continue
                    step = 1 if rows.stride is None else rows.stride[:, 0]
                    ends = rows.start[:, 0] + np.where(rows.count[:, 0] > 0, (rows.count[:, 0] - 1) * step + 1, 0)
                    for varid in np.unique(source.log.entries.varid[rows.entry]).tolist():
                        node = self._node(source, varid)
                        if node.is_record:
                            most = int(ends[source.log.entries.varid[rows.entry] == varid].max())
                            need[varid] = max(need.get(varid, 0), most)
        for varid, most in need.items():
            if most > _MOST_RECORDS:
                raise LogError(f"variable {varid} would have {most} records", field="start", value=most)
        return need

    # ----------------------------------------------------------------------------------- entries

    def _check(self) -> None:
        """Raise if any entry cannot be; nothing was posted yet."""
        lengths = {node.uid: (node.shape or (0,))[0] for node in self.tree.datasets.values() if node.is_record}
        for varid, need in self._reach().items():
            uid = self._by_number[varid].uid
            lengths[uid] = max(lengths.get(uid, 0), need)
        for source, verdict in zip(self.sources, self.verdicts, strict=True):
            for index in verdict.replay.tolist():
                entry = source.log.entries[index]
                if source.commit_log is not None and entry.varid in self._gone:
                    continue
                node = self._node(source, entry.varid)
                most = self._most if source.commit_log is not None else lengths.get(node.uid, 0)
                shape = (most, *(node.shape or ())[1:]) if node.is_record else node.shape or ()
                try:
                    _check_entry(node, entry, shape)
                except (PncVolError, ValueError, IndexError) as error:
                    raise LogError(
                        f"{source.base}.meta: entry {index}, of {node.path}, cannot be: {error}",
                        offset=entry.offset,
                        field=f"entry[{index}]",
                    ) from error

    def _post(self, source: LogSource, indices: Int64) -> None:
        for index in indices.tolist():
            entry = source.log.entries[index]
            if source.commit_log is not None and entry.varid in self._gone:
                continue
            node = self._node(source, entry.varid)
            dtype = source.log.entries.dtype(index, source.log.header.byteorder)
            try:
                self._post_entry(source, node, entry, dtype)
            except RangeError as error:
                self.report.failed += 1
                self.report.messages.append(f"entry {index}, of {node.path}, is not replayed: {error}")

    def _post_entry(self, source: LogSource, node: DatasetNode, entry: Entry, dtype: np.dtype[Any]) -> None:
        shape, rank = node.shape or (), len(node.shape or ())
        flat = np.frombuffer(source.read(entry.data_off, entry.data_len), dtype)
        start, count = entry.start[:, :rank], entry.count[:, :rank]
        hidden = entry.count[:, rank:]
        if len(start) > 1 and _alike_and_whole(node, entry, shape):
            selection = many(shape, start, count)
            self.session.write(node, selection, values_of_entry(node, flat, selection.result_shape, hidden[0]))
            return
        for block, parts in _blocks(entry, node, shape):
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
            if _whole_elements(node, begin, width):
                values = values_of_entry(node, flat[parts], selection.result_shape, width)
            else:
                values = part_of_elements(self.session, node, selection, flat[parts], begin, width)
            self.session.write(node, selection, values)


def _alike_and_whole(node: DatasetNode, entry: Entry, shape: tuple[int, ...]) -> bool:
    """Whether the sub-requests of an entry can be posted in one: whole elements, as wide, all in the shape."""
    rank = len(shape)
    if (entry.count < 0).any() or (rank and bool((entry.start[:, 0] + entry.count[:, 0] > shape[0]).any())):
        return False
    begin, width = entry.start[:, rank:], entry.count[:, rank:]
    return not begin.any() and bool((width == width[0]).all()) and _whole_elements(node, begin[0], width[0])


def _whole_elements(node: DatasetNode, start: Int64, count: Int64) -> bool:
    """Whether the hidden dimensions are written whole; a string of varying length is as wide as it is."""
    if node.element.kind == "vlen_string":
        return not start.any() and bool((count >= 1).all()) and int(count[0]) != 0
    return not start.any() and tuple(count.tolist()) == node.element.trailing


def _blocks(entry: Entry, node: DatasetNode, shape: tuple[int, ...]) -> Iterator[tuple[Int64, slice]]:
    """Start, count and stride of each block of an entry as one array, and which of its values are its."""
    full = np.array((*shape, *node.element.trailing), np.int64)
    step = np.ones(entry.ndims, np.int64) if entry.stride is None else entry.stride
    at = 0
    for start, count in zip(entry.start, entry.count, strict=True):
        count = np.where(count < 0, full, count)
        last = at + int(count.prod())
        yield np.stack((start, count, step)), slice(at, last)
        at = last


def _check_entry(node: DatasetNode, entry: Entry, shape: tuple[int, ...]) -> None:
    """Raise if an entry cannot be one of this dataset, which has at most this shape."""
    element, rank = node.element, len(shape)
    if entry.ndims != rank + len(element.trailing):
        raise LogError(f"it has {entry.ndims} dimensions, the variable {rank + len(element.trailing)}", field="ndims")
    if (entry.itype == 1) != element.is_string:
        raise LogError("text and numbers do not convert", field="itype", value=entry.itype)
    for block, parts in _blocks(entry, node, shape):
        if parts.start != parts.stop:
            hyperslab(shape, *block[:, :rank].tolist())
        begin, width, step = block[:, rank:]
        if bool(((step != 1) & (width > 1)).any()):
            raise LogError("a stride goes through the parts of elements", field="stride")
        if element.kind != "vlen_string" and bool((begin + width > np.array(element.trailing, np.int64)).any()):
            raise LogError("it goes beyond an element", field="count")
