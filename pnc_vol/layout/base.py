"""A layout says where the elements of every variable of a file are.

Knows: headers, datasets, runs, byte extents. Does not know: what is posted, data, ranks. What it says is the same on
all ranks, because it follows from definitions alone.

Rules
-----
1. Elements lie at *addresses*, 63-bit integers. Without subfiles an address is an offset in the file with the header. A
   layout with subfiles gives each one an interval of addresses, and puts a driver on top of the file's own that knows
   which interval is which (`Layout.over`, `subfiles.Subfiles`). So planning, merging and all transports work on one
   address space, and only that driver knows how many files there are.
2. `Layout.maps` answers for every variable. A layout that declares `affine` has a `Place` for each: then all rows of a
   flush are placed in one operation, and reads take their fast paths. Otherwise the map of each variable is asked.
3. The *layout in force* is that of the header in force: what the file has, or will have when the flush that is under
   way is done. `successor` makes the one of the next header; `StoredFile.layout` holds the one in force.
4. Capabilities are declared by the class; no code checks the type of a layout.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from functools import cached_property
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from pnc_vol.drivers.base import Driver, OpenContext
from pnc_vol.extents.merge import coalesced, united, within
from pnc_vol.extents.model import Extents, Int64, Runs, before
from pnc_vol.extents.place import place
from pnc_vol.format.model import Header, Region, Var, record_vars, region, shape
from pnc_vol.format.placing import Moves
from pnc_vol.mapping.tree import DatasetNode, Tree, fillvalue_of, itemsizes_of
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "MOST_WRITTEN",
    "OFFSET",
    "SHIFT",
    "ElementMap",
    "Grid",
    "Layout",
    "LostRecords",
    "NeverWritten",
    "Place",
    "Places",
    "extents_of_rows",
]


# -------------------------------------------------------------------------------------------------------------- places
# Where the elements of one variable lie: in general, and in the affine form that the fast paths use.
#
# Knows: runs, extents, arithmetic. Does not know: headers, files, which variable it is.
#
# Rules
# -----
# 1. An `ElementMap` answers for any layout. A `Place` is the affine one: element ``e`` of record ``r`` begins at byte
#    ``begin + r * record_size + e * itemsize``. What is computed from begins, element sizes and record sizes is
#    computed here and in `extents.place`, and nowhere else: fast reads ask a `Place` for the offset of a run or
#    for its `Grid`.
# 2. No extent of `ElementMap.extents` holds bytes of two runs: who plans finds the run of an extent by its ``place``.


class ElementMap(Protocol):
    """Where the elements of one variable lie.

    itemsize : int, bytes of an element.
    inner : int, elements of one record; 0 for a variable without the record dimension.
    """

    @property
    def itemsize(self) -> int: ...

    @property
    def inner(self) -> int: ...

    def extents(self, runs: Runs) -> Extents:
        """Return where runs of the variable lie.

        Parameters
        ----------
        runs : Runs, in any order; of a variable with records, no run goes from one record into the next.

        Returns
        -------
        Extents
            ``offset`` is an address (see `Layout`), ``place`` counts bytes of the elements one after another from 0.
        """
        ...


class Grid(NamedTuple):
    """A variable in the file as numpy has an array in memory.

    origin : int, bytes from the start of the file to the first element.
    strides : tuple of int, bytes from one element to the next along each axis.
    """

    origin: int
    strides: tuple[int, ...]


class Place(NamedTuple):
    """The affine form: a variable that begins somewhere, with its records at equal distances.

    begin : int, bytes from the start of the file.
    itemsize : int, bytes of an element.
    inner : int, elements of one record; 0 for a variable without the record dimension.
    record_size : int, bytes from one record to the next; 0 without records.

    Examples
    --------
    >>> Place(100, 8, 2, 24).extents(Runs(np.array([3]), np.array([1]))).offset.tolist()
    [132]
    >>> Place(100, 8, 2, 24).offset_of_run(3, 1), Place(100, 8, 2, 24).offset_of_run(3, 2)
    (132, -1)
    >>> Place(100, 8, 2, 24).grid((5, 2))
    Grid(origin=100, strides=(24, 8))
    """

    begin: int
    itemsize: int
    inner: int
    record_size: int

    def extents(self, runs: Runs) -> Extents:
        """See `ElementMap.extents`."""
        return place(
            runs, begin=self.begin, itemsize=self.itemsize, inner=self.inner or None, record_size=self.record_size
        )

    def offset_of_run(self, start: int, length: int) -> int:
        """Return where a run of elements begins, in bytes; -1 if it goes from one record into the next."""
        begin, itemsize, inner, record_size = self
        if not inner:
            return begin + start * itemsize
        record, within = divmod(start, inner)
        return begin + record * record_size + within * itemsize if within + length <= inner else -1

    def grid(self, shape: tuple[int, ...]) -> Grid:
        """Return the variable, of this shape, as an array in the file."""
        strides, step = [], self.itemsize
        for n in reversed(shape):
            strides.append(step)
            step *= n
        if self.inner:
            strides[-1] = self.record_size
        return Grid(self.begin, tuple(reversed(strides)))

    def elements_below(self, end: int) -> int:
        """Return the number of elements, from the first one on, that may begin before a byte of the file; whole records
        count."""
        nbytes = max(0, end - self.begin)
        if not self.inner:
            return -(-nbytes // self.itemsize)
        return -(-nbytes // max(1, self.record_size)) * self.inner


class Places(dict[int, Place]):
    """The places of many variables, by uid.

    It keeps the table of the variables that were asked for last: programs write the same ones between flushes, and to
    put 1,000 places into an array takes as long as to place their rows. A place that is in it never changes.

    Examples
    --------
    >>> Places({7: Place(100, 8, 0, 0)}).table([7]).tolist()
    [[100, 8, 0, 0]]
    """

    _asked: tuple[list[int], Int64] | None = None

    def table(self, uids: list[int]) -> Int64:
        """Return int64[n, 4]: the places of n variables, in the columns that `place_many` takes; not to be changed."""
        asked = self._asked
        if asked is not None and asked[0] == uids:
            return asked[1]
        made = np.fromiter(chain.from_iterable(map(self.__getitem__, uids)), np.int64, 4 * len(uids)).reshape(-1, 4)
        self._asked = list(uids), made
        return made


def extents_of_rows(of: ElementMap, start: Int64, length: Int64, memory: Int64) -> tuple[Extents, Int64]:
    """Return where runs of one variable lie, whose values are anywhere in memory.

    Parameters
    ----------
    start, length : int64[n], elements, at least one in each run.
    memory : int64[n], the byte of the memory where the values of each run begin.

    Returns
    -------
    extents : Extents, ``place`` is a byte of the memory.
    run : int64[m], the run of each extent.
    """
    found = of.extents(Runs(start, length))
    first = before(length * of.itemsize)
    run = np.searchsorted(first, found.place, side="right") - 1
    return Extents(found.offset, found.length, found.place - first[run] + memory[run]), run


LostRecords = dict[int, tuple[int, int]]
"""See `Layout.lost_records`."""

MOST_WRITTEN = 1 << 16
"""Runs of elements that a variable with a fill value may have written before a flush, before later ones wait: 1 MiB."""

SHIFT = 48
"""Bits of an offset in a layout of several files, whose addresses have the number of a file above it: a file may have
256 TiB, and there may be 32,767 of them."""

OFFSET = (1 << SHIFT) - 1
"""The bits of an address that are the offset."""

_NO_PLACES: dict[int, Place] = {}
_ALL = 1 << 62
"""More elements than a variable can have."""


class NeverWritten(NamedTuple):
    """What bytes hold that nobody wrote.

    reads_zero : bool, all of them read as zero, but for `stale_gaps`.
    stale_gaps : bool
        That is not known of the space between the variables of the header, where deleted ones were.
    """

    reads_zero: bool = True
    stale_gaps: bool = False


class Layout(abc.ABC):
    """Where the variables of one file lie; see the module.

    A subclass says how new variables get their begins (`with_begins`), where elements lie (`made_maps`) and, if data
    are not in the file with the header, what driver finds them (`over`).

    Attributes
    ----------
    header : Header, with begins; what the file says, or will say of what is in it.
    uids : tuple of int, the dataset of each variable of `header`.
    record_uids : dict of int to bool, those with records, and whether they have a fill value.
    itemsizes : list of int, bytes of an element of each variable, as the file has it.
    records : int
        Records that may hold data: those of the header, or more if data was written before a flush.
    unwritten : NeverWritten, what bytes hold that nobody wrote.
    drained : bool, data was written since the last flush.
    early : object, what a subclass keeps of the places that variables got since then; None if none was asked for.
    facts : dict, what reads look up once of each variable; begins empty.
    written : dict of uid to Runs
        Of variables with a fill value, the elements that were written before a flush, ascending and disjoint: the flush
        fills the others. Runs of elements that the header in the file counts may be missing.
    lost_records : dict of uid to (int, int)
        Record variables that lost records since the last flush: how many they were left, and how many the header in the
        file may give them. What the file holds beyond the first number is theirs no more, and is filled at the flush.
    """

    name: ClassVar[str] = ""
    """What ``layout=`` calls it."""

    affine: ClassVar[bool] = False
    """Whether the elements of every variable lie in the affine form, see `Place`."""

    self_contained: ClassVar[bool] = False
    """Whether all data are in the file with the header, where the header says: then it is a whole NetCDF file, which
    other programs read, and to which a write-ahead log can be replayed."""

    relocates: ClassVar[bool] = False
    """Whether data can be moved to another place in a copy of the file, when definitions make it necessary."""

    several_ranks: ClassVar[bool] = False
    """Whether the ranks of a communicator can share a file of this layout."""

    several_files: ClassVar[bool] = False
    """Whether data and headers are in several files, each with a life of its own."""

    sets: ClassVar[str] = ""
    """Of a layout of several files, the plug-in that finds and opens them; see `file.file_sets.FileSets`."""

    early: Any

    def __init__(self, options: Options) -> None:
        self.options = options
        self.unwritten = NeverWritten()

    # ------------------------------------------------------------------------- what a subclass answers

    @abc.abstractmethod
    def with_begins(self, new: Header, uids: tuple[int, ...], tree: Tree, *, reserve: int, least: int) -> Header:
        """Return `new` with begins: where the header of the file says that variables lie, new ones included.

        Parameters
        ----------
        new : Header, all that is defined; its begins are ignored.
        uids : tuple of int, the dataset of each of its variables.
        tree : Tree
        reserve : int, bytes to keep free behind the header where everything is placed anew.
        least : int, bytes at the beginning of the file in which nothing but the header may lie.

        Raises
        ------
        DefinitionError
            What is defined cannot be laid out; nothing has been written then.
        """

    @abc.abstractmethod
    def made_maps(self) -> dict[int, Any]:
        """Return the `ElementMap` of each variable of `header`, by uid; `Places` if the layout declares `affine`."""

    @classmethod
    def header_path(cls, path: str) -> str:
        """Return the name of the file with the header, of what a user opens as `path`."""
        return path

    def over(self, driver: Driver, path: str, stack: str, context: OpenContext, *, created: bool) -> Driver:
        """Return the driver of the addresses of this layout, over that of the file with the header (collective).

        An opening does not ask this of a layout that is `self_contained`.

        Parameters
        ----------
        driver : Driver, which is closed with the driver that is returned.
        path : str, what the file is called.
        stack : str, the stack of `driver`, for `open_stack` of other files.
        context : OpenContext, the ranks among them, without a descriptor.
        created : bool, the file did not exist.
        """
        return driver

    def needs_move(self, target: Layout, tree: Tree) -> bool:
        """Return whether `target` has data of this layout at other addresses."""
        return False

    def moves(self, target: Layout, tree: Tree) -> Moves:
        """Return what has to be copied to a new file in which `target` is in force; asked of a layout that
        `relocates`."""
        raise NotImplementedError(f"the layout {self.name!r} does not move data")

    def overwrites(self, live: Header, live_uids: tuple[int, ...], target: Layout) -> bool:
        """Return whether new variables of `target` lie where the header in the file, `live`, has data."""
        return False

    def widens(self, target: Layout) -> bool:
        """Return whether `target` has longer strings: this header would show the first characters of new ones."""
        if target.added_to(self) is not None:
            return False
        others = {*zip(self.uids, self.itemsizes, strict=True)} - {*zip(target.uids, target.itemsizes, strict=True)}
        if not others:
            return False
        changed = {uid for uid, _ in others}.intersection(target.uids)
        return any(self.may_hold(var) for uid, var in zip(self.uids, self.header.vars, strict=True) if uid in changed)

    def may_hold(self, var: Var) -> bool:
        """Return whether somebody who has `header` finds elements of a variable."""
        return 0 not in shape(self.header, var)

    def data_end(self, header: Header) -> int:
        """Return the number of bytes that the file with the header has to have for its data."""
        return 0

    # ------------------------------------------------------------------------------ the header in force

    def adopt(self, header: Header, uids: tuple[int, ...], datasets: Mapping[int, DatasetNode]) -> None:
        """Take a header over as the one in force."""
        self.header = header
        self.uids = uids
        self.header_uids = frozenset(uids)
        self.record_uids = {uids[i]: fillvalue_of(datasets, uids[i]) is not None for i in record_vars(header)}
        # Strings may grow after this, and then their data are as wide as they were.
        self.itemsizes = itemsizes_of(datasets, uids)
        self._follows: list[int] | None = None
        self._maps: dict[int, Any] | None = None
        self.__dict__.pop("region", None)
        self._begin()

    def _begin(self) -> None:
        """Nothing has been written, placed or lost since this layout came into force."""
        self.records = self.header.numrecs
        self.facts: dict[int, Any] = {}
        self.lost_records: LostRecords = {}
        self.written: dict[int, Runs] = {}
        self.drained, self.early = False, None

    def successor(
        self, header: Header, uids: tuple[int, ...], datasets: Mapping[int, DatasetNode], *, stays: bool = False
    ) -> Layout:
        """Return the layout of the header that a flush is going to write; this one if that is the same.

        stays : bool
            All variables that both headers have lie where they lay, with as many records or others. Variables of fixed
            shape are gone, or came by `begins_behind`, if any.
        """
        if stays and not self.drained and (self.self_contained or len(uids) == len(self.uids)):
            made = object.__new__(type(self))
            made.__dict__.update(self.__dict__)
            made.header = header
            made._begin()
            if len(uids) != len(self.uids):
                made._follow(self, uids, datasets)
            return made
        if not self.drained and header == self.header and uids == self.uids:
            return self
        made = self.anew()
        # What a deleted variable leaves behind may lie where a new one comes, and behind the data.
        deleted = self.has_more_than(uids)
        old = self.unwritten
        made.unwritten = NeverWritten(old.reads_zero and not deleted, old.stale_gaps or deleted)
        made.adopt(header, uids, datasets)
        return made

    def _follow(self, before: Layout, uids: tuple[int, ...], datasets: Mapping[int, DatasetNode]) -> None:
        """Have other variables than the layout of which this one is a copy: some less, or some more."""
        self.uids, self._follows, self._maps = uids, before.itemsizes, None
        for found in ("header_uids", "region"):
            self.__dict__.pop(found, None)
        if len(uids) > len(before.uids):
            self.itemsizes = before.itemsizes + itemsizes_of(datasets, uids[len(before.uids) :])
        else:
            self.itemsizes = list(compress(before.itemsizes, map(set(uids).__contains__, before.uids)))
            self.unwritten = NeverWritten(reads_zero=False, stale_gaps=True)

    def begins_behind(self, new: Header) -> list[int] | None:
        """Return where new variables begin if those of `header` stay, whose region they do not enter; None if not so
        plain.

        new : Header, of variables of fixed shape alone, without begins.
        """
        return None

    def added_to(self, other: Layout) -> tuple[int, ...] | None:
        """Return the variables that this layout has more than another one, if others lie alike in both; None if not so.

        There are none if this one has fewer, or as many. Of layouts with records None as well, if it is not known of
        them already: a variable with records moves those of others.
        """
        n, own, its = len(other.uids), self.header, other.header
        if self.itemsizes is other.itemsizes:
            # a list is made anew by each `adopt`, and kept under a header with other attributes
            return ()
        if other.drained or not self.self_contained:
            return None
        if self._follows is other.itemsizes:
            return self.uids[n:]
        if len(self.uids) <= n or self.record_uids or other.record_uids:
            return None
        # Most are the same objects: that takes few nanoseconds for each.
        same = self.uids[:n] == other.uids and own.vars[:n] == its.vars and own.dims[: len(its.dims)] == its.dims
        return self.uids[n:] if same else None

    def has_more_than(self, uids: tuple[int, ...]) -> bool:
        """Return whether a variable that has a place is none of `uids`."""
        # Places that are not made yet are those of the variables of the header.
        known = self.uids if self._maps is None else self._maps
        return len(known) > len(uids) or not set(known) <= set(uids)

    def anew(self) -> Self:
        """Return a layout of the same kind for another header of this file; a subclass may hand on what it has of its
        own."""
        return type(self)(self.options)

    @cached_property
    def header_uids(self) -> frozenset[int]:
        """The datasets of all variables of `header`."""
        return frozenset(self.uids)

    @cached_property
    def region(self) -> Region:
        """Where the variables of `header` lie, all together; found once for all headers with the same places."""
        return region(self.header)

    # ------------------------------------------------------------------------------- where elements lie

    @property
    def maps(self) -> Mapping[int, ElementMap]:
        """Where the elements of each variable lie, by uid; of those that have a place before a flush, too."""
        # Made when somebody first asks: whoever only looks at definitions never does.
        if self._maps is None:
            self._maps = self.made_maps()
        return self._maps

    @property
    def places(self) -> Mapping[int, Place]:
        """The same where they are affine; empty for a layout that does not declare `affine`."""
        return self.maps if self.affine else _NO_PLACES  # type: ignore[return-value]

    def place_of(self, uid: int) -> Place | None:
        """Return that of one variable, if it is affine and known; the others need not be made for it."""
        return self.places.get(uid)

    def extents(self, uid: int, runs: Runs) -> Extents:
        """Return where runs of a variable lie; see `ElementMap.extents`.

        Raises
        ------
        KeyError
            The variable has no place yet.
        """
        return self.maps[uid].extents(runs)

    def stored_map(self, node: DatasetNode) -> ElementMap | None:
        """Return where the data of a variable is, or None if the file holds nothing of it."""
        if node.is_placeholder:
            return None
        found = self.maps.get(node.uid)
        if found is None or node.uid in self.header_uids:
            return found
        # Only what was drained is there.
        there = node.uid in self.written if node.fillvalue is not None else self.has_early_place(node.uid)
        return found if there else None

    def stored_records(self, node: DatasetNode) -> int:
        """Return the number of records of which a variable may have data in the file."""
        known = node.fillvalue is not None or not self.unwritten.reads_zero
        there = self.header.numrecs if known else self.records
        return min(there, self.lost_records.get(node.uid, (there, 0))[0])

    def elements_stored(self, node: DatasetNode, at: ElementMap) -> int:
        """Return the number of elements of a variable, whose map is `at`, from the first one, that may have data in the
        file; fixed: all."""
        if at.inner:
            return self.stored_records(node) * at.inner
        return 0 if node.uid in self.written else _ALL

    def stored_runs(self, node: DatasetNode, at: ElementMap) -> Runs:
        """Return all elements of a variable that may have data in the file, ascending and disjoint; see
        `elements_stored`."""
        known = Runs(np.zeros(1, np.int64), np.array([self.elements_stored(node, at)], np.int64))
        return united(known, self.written[node.uid]) if node.uid in self.written else known

    def record_of(self, uid: int, element: int) -> int | None:
        """Return the record that an element is in; None of a variable that has no place or no records."""
        at = self.maps.get(uid)
        return element // at.inner if at is not None and at.inner else None

    # ------------------------------------------------------------------------------ writes before a flush

    def writable(self, tree: Tree, uids: list[int], *, alone: bool) -> Mapping[int, ElementMap]:
        """Return those of these variables that may be written before the next flush; by default none.

        alone : bool, nobody else writes: all elements that are written are told by `note_elements`.
        """
        return {}

    def has_early_place(self, uid: int) -> bool:
        """Return whether a variable has a place though the header in force lacks it, and zeros lie where it is
        unwritten."""
        return False

    def with_early_places(self, tree: Tree) -> tuple[Header, tuple[int, ...]]:
        """Return the header in force with the variables that were given a place since: what a flush must not move
        lightly."""
        return self.header, self.uids

    def note_written(self, tree: Tree, uids: list[int]) -> None:
        """Note that data of these variables went to the file before a flush."""
        self.drained = True
        for uid in uids:
            if uid in self.record_uids:
                self.records = max(self.records, (tree.datasets[uid].shape or (0,))[0])

    def note_elements(self, node: DatasetNode, runs: Runs) -> None:
        """Note which elements of a variable went to the file before a flush, if that matters: none of them is filled.

        runs : Runs, in any order.
        """
        uid = node.uid
        if node.fillvalue is not None and (uid in self.record_uids or uid not in self.header_uids):
            known = self.written.get(uid)
            self.written[uid] = coalesced(runs) if known is None else united(known, runs)

    def note_unknown_bytes(self) -> None:
        """Note that bytes that nobody posted may be anywhere: no further variable gets a place before a flush."""
        self.unwritten = self.unwritten._replace(reads_zero=False)

    def lose_records(self, uid: int, records: int, before: int) -> None:
        """Note that a variable has lost what it had from some record on, of `before` records."""
        if uid in self.record_uids:
            first, live = self.lost_records.get(uid, (records, min(before, self.header.numrecs)))
            self.lost_records[uid] = min(records, first), live
            if uid in self.written:
                cut = Runs(np.zeros(1, np.int64), np.array([records * self.maps[uid].inner], np.int64))
                self.written[uid] = within(cut, self.written[uid])[0]
