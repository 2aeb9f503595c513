"""`PhysicalDefinitions` holds the definitions of one subfile, which follow from the canonical ones and the maps.

Knows: the variables of the subfile, as datasets of a tree of their own. Does not know: users' objects, what the header
is made of.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from pnc_vol.blob.header import Kept
from pnc_vol.blob.map_agreement import inner_shape
from pnc_vol.blob.maps import MAP_VARIABLES, MapSizes, SubfileMap, content
from pnc_vol.extents.model import one_extent
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.session import Session
from pnc_vol.format.model import CHAR, INT64, TYPES, Header, is_record
from pnc_vol.layout.base import Layout
from pnc_vol.mapping.dimensions import DimBook
from pnc_vol.mapping.dtypes import Element, element_for
from pnc_vol.mapping.flatten import Flat
from pnc_vol.mapping.tree import DatasetNode, Tree

__all__ = ["Member", "PhysicalDefinitions", "PhysicalVariable", "map_keys", "stored_variables", "variables_of"]

_INTS = element_for("i4"), element_for("i8")


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

    def kept(
        self, gone: Mapping[tuple[int, int], str], still: Container[tuple[int, int]]
    ) -> list[tuple[Kept, PhysicalVariable]]:
        """Return what the subfile has of variables that only subfile 0 still names.

        gone : mapping of uid and map to the name in subfile 0.
        still : container of uid and map, of all that there is.
        """
        assert self.flat is not None
        header, found = self.flat.header, []
        for (key, node), var in zip(self._nodes.items(), header.vars, strict=True):
            if key in gone and key not in still and isinstance(key, tuple):
                record = node.maxshape is not None
                trailing = tuple(header.dims[i].size for i in var.dims[record + 1 :])
                given = PhysicalVariable(key, node.element, node.shape or (), record, node.fillvalue)
                found.append((Kept(gone[key], key[1], var.type, trailing, record), given))
        return found

    def flatten(self, layout: Layout, *, common: bool) -> Flat:
        return self.make_header()

    def make_header(self, *, common: bool = False) -> Flat:
        assert self.flat is not None
        return self.flat

    def with_records(self, header: Header, numrecs: int) -> Header:
        return header.with_numrecs(numrecs)


def map_keys(maps: Sequence[MapSizes]) -> list[Hashable]:
    """Return what the variables of maps are; see `stored_variables`."""
    return [(k, j, of.nblobs) for k, of in enumerate(maps, 1) for j in range(len(MAP_VARIABLES))]


def variables_of(
    header: Header,
    maps: Sequence[MapSizes],
    uids: Sequence[int],
    nodes: Mapping[int, DatasetNode],
    assigned: Mapping[int, int],
    supplements: Mapping[int, int],
    kept: Sequence[PhysicalVariable],
) -> list[PhysicalVariable]:
    """Return the variables of a subfile, in the order of its header.

    supplements : mapping of uid to the elements of the supplement, in the order of the header.
    kept : sequence of PhysicalVariable, those that only subfile 0 still names, behind all others.
    """
    keys: list[Hashable] = map_keys(maps)
    keys += [(uid, assigned[uid]) for uid in uids]
    keys += [(uid, "supplement") for uid in supplements]
    rest = header.with_vars(header.vars[: len(keys)])
    return [*stored_variables(rest, dict(enumerate(keys)), nodes), *kept]


def stored_variables(
    header: Header, keys: Mapping[int, Hashable], nodes: Mapping[int, DatasetNode]
) -> list[PhysicalVariable]:
    """Return the variables of a subfile.

    keys : mapping of the number of a variable in `header` to what it is: (map, which of its variables, blobs), or
        (uid, map or "supplement"). What is not there is nobody's any more.
    """
    found: list[PhysicalVariable] = []
    for i, var in enumerate(header.vars):
        shape = tuple(header.dims[n].size for n in var.dims)
        key = keys.get(i)
        if isinstance(key, tuple) and len(key) == 2:
            found.append(_variable(nodes[key[0]], key, header.numrecs, shape))
        elif key is not None:
            found.append(PhysicalVariable(key, _INTS[var.type == INT64], shape, record=False))
        else:
            element = element_for("u1" if var.type == CHAR else TYPES[var.type].dtype.newbyteorder("="))
            record = is_record(header, var)
            shape = (header.numrecs, *shape[1:]) if record else shape
            found.append(PhysicalVariable(("nobody's", var.name), element, shape, record))
    return found


def _variable(node: DatasetNode, key: tuple[int, int | str], records: int, shape: tuple[int, ...]) -> PhysicalVariable:
    """Return a variable with elements of a dataset: its blobs, its supplement, or all of it."""
    if node.is_placeholder:
        return PhysicalVariable(key, node.element, (), record=False)
    first = 1 if node.is_record else 0
    inner = shape[first : first + 1] if key[1] else inner_shape(node)
    return PhysicalVariable(
        key, node.element, (records, *inner) if node.is_record else inner, node.is_record, node.fillvalue
    )


class Member:
    """A subfile that this rank writes, together with the others of its group.

    number : int
    session : Session, with `PhysicalDefinitions`.
    nblobs : int, processes that the file has parts of.
    sizes : list of MapSizes, of each map.
    """

    def __init__(self, number: int, session: Session, nblobs: int, sizes: Sequence[MapSizes] = ()) -> None:
        self.number, self.session, self.nblobs = number, session, nblobs
        self.sizes: list[MapSizes] = list(sizes)
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
