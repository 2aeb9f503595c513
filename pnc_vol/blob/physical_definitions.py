"""`PhysicalDefinitions` holds the definitions of one subfile, which follow from the canonical ones and the maps.

Knows: the variables of the subfile, as datasets of a tree of their own. Does not know: users' objects, what the header
is made of.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pnc_vol.blob.maps import MAP_VARIABLES, SizedMap, SubfileMap, content
from pnc_vol.extents.model import one_extent
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.session import Session
from pnc_vol.format.model import Header
from pnc_vol.layout.base import Layout
from pnc_vol.mapping.dimensions import DimBook
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.flatten import Flat
from pnc_vol.mapping.tree import DatasetNode, Tree

__all__ = ["Member", "PhysicalDefinitions", "PhysicalVariable"]


class PhysicalVariable(NamedTuple):
    """A variable of a subfile.

    key : hashable, what it is: the same key is the same variable in the header of the next flush.
    element : Element
    shape : tuple of int, the records of the file included.
    record : bool, the first axis is the record dimension.
    fillvalue : bytes or None, as of `DatasetNode`.
    """

    key: Hashable
    element: Element
    shape: tuple[int, ...]
    record: bool
    fillvalue: bytes | None = None


class PhysicalDefinitions(Definitions):
    """The definitions of a subfile; see the module."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        super().__init__(Tree(), 5)
        self._nodes: dict[Hashable, DatasetNode] = {}

    def become(self, header: Header, variables: Sequence[PhysicalVariable]) -> None:
        """Replace the definitions by those of a header without begins.

        variables : one for each variable of `header`, in its order.
        """
        tree, nodes = self.tree, {}
        for var in variables:
            node = self._nodes.get(var.key)
            if node is None:
                node = DatasetNode(tree, "", None, (), tree.next_uid, var.element, var.shape)
                tree.next_uid += 1
            node.element, node.shape, node.fillvalue = var.element, var.shape, var.fillvalue
            node.maxshape = (None, *var.shape[1:]) if var.record else None
            nodes[var.key] = node
        flat = self.flat
        same = (
            flat is not None
            and nodes.keys() == self._nodes.keys()
            and flat.header.replaced(numrecs=0) == header.replaced(numrecs=0)
        )
        self._nodes = nodes
        tree.datasets = {node.uid: node for node in nodes.values()}
        if not same or flat is None:
            self.flat = Flat(header, tuple(tree.datasets), DimBook(()), None, {}, set())
            tree.touch()
        elif header.numrecs != flat.header.numrecs:
            self.flat = flat._replace(header=flat.header.with_numrecs(header.numrecs))

    def have_records(self, records: int) -> None:
        """Change the number of records and nothing else."""
        flat = self.flat
        assert flat is not None
        if records != flat.header.numrecs:
            for node in self.tree.datasets.values():
                if node.maxshape is not None:
                    node.shape = (records, *(node.shape or ())[1:])
            self.flat = flat._replace(header=flat.header.with_numrecs(records))

    def uid(self, key: Hashable) -> int | None:
        """Return the number of a variable."""
        node = self._nodes.get(key)
        return None if node is None else node.uid

    def blobs(self) -> Iterator[tuple[tuple[int, int], tuple[int, ...], int, PhysicalVariable]]:
        """Yield the partitioned variables: each with its key, its lengths and type in the header, and as it was
        given."""
        assert self.flat is not None
        header = self.flat.header
        for (key, node), var in zip(self._nodes.items(), header.vars, strict=True):
            if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], int) and key[1]:
                given = PhysicalVariable(
                    key, node.element, node.shape or (), record=node.maxshape is not None, fillvalue=node.fillvalue
                )
                yield key, tuple(header.dims[i].size for i in var.dims), var.type, given

    def flatten(self, layout: Layout, *, common: bool) -> Flat:
        return self.make_header()

    def make_header(self, *, common: bool = False) -> Flat:
        assert self.flat is not None
        return self.flat

    def with_records(self, header: Header, numrecs: int) -> Header:
        return header.with_numrecs(numrecs)


class Member:
    """A subfile that this rank writes, together with the others of its group.

    number : int
    session : Session, with `PhysicalDefinitions`.
    nblobs : int, processes that the file has parts of.
    sizes : list of SizedMap, of each map.
    """

    def __init__(self, number: int, session: Session, nblobs: int, sizes: Sequence[SizedMap] = ()) -> None:
        self.number, self.session, self.nblobs = number, session, nblobs
        self.sizes: list[SizedMap] = list(sizes)
        self.made_of: Any = None
        """What its definitions follow from, but for the number of records."""
        self.work = ""
        """The file that its data were in at the last flush; see `Location`."""

    @property
    def defs(self) -> PhysicalDefinitions:
        assert isinstance(self.session.defs, PhysicalDefinitions)
        return self.session.defs

    @property
    def root(self) -> bool:
        """Whether this rank is the one that writes what the group writes once."""
        return self.session.comm.rank == 0

    def write_maps(self, maps: Mapping[int, SubfileMap]) -> None:
        """Write the variables of new maps, by their numbers."""
        header, driver = self.session.disk.layout.header, self.session.disk.driver
        for k, made in maps.items():
            first = (k - 1) * len(MAP_VARIABLES)
            for var, raw in zip(header.vars[first:], content([made]), strict=False):
                driver.write(one_extent(var.begin, raw.nbytes), raw)
