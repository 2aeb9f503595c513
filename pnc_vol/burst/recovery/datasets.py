"""Each definition of a log is matched with a dataset of the file; a dataset that the file lacks is made.

Knows: definitions of logs, the tree of a file. Does not know: entries, sessions.

Rules
-----
1. A log of ours says which variable it means by the variable's name in the header that it was written under. The C
   library numbers variables as the header does.
2. Shapes and types in the file are those of the log, or the log is refused: it is another file's.
"""

from __future__ import annotations

from collections.abc import Sequence

from pnc_vol.burst.definitions import Definition, crc_of_header
from pnc_vol.burst.recovery.sources import LogSource
from pnc_vol.errors import LogError, LogRefusedError
from pnc_vol.mapping.describe import describe
from pnc_vol.mapping.links import remove
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Tree

__all__ = ["LoggedDatasets"]


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
