"""`StoredFile` is the part of an open file that is on disk: its path, its header, its layout, and its durability.

Knows: the file's name, its driver, its header, the layout in force. Does not know: definitions that are not in the file
yet, requests, ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import SyncError
from pnc_vol.format.encode import with_count
from pnc_vol.format.model import Header
from pnc_vol.layout.base import Layout

__all__ = ["StoredFile"]


class StoredFile:
    """The file as it is stored.

    Attributes
    ----------
    path : str
        What the file is called, in messages too.
    driver : Driver
    location : Location or None
        None for a driver that keeps no file.
    layout : Layout, the layout in force.
    header : Header, as it is in the file.
    uids : tuple of int, the dataset of each variable of `header`.
    before_header : list of callable
        Each is called with the bytes of a header before it is written.
    left : list of (Driver, Location), files that a copy has replaced, and that are not closed yet.
    created : bool, the file did not exist when it was opened.
    lasting : bool
        Whether the file may hold what is to outlast a power failure: of a durable flush, or of another process.
    keep_unpublished : bool, the file gets its name when it is closed.
    collective : bool, the driver's calls may be collective.
    named_by : callable or None
        Of a set of files: gives the location of the file that stands for the set.
    may_be_longer : bool
        Whether the file may be longer than its data: variables were deleted, or a process was killed in a flush.
    filled : set of int
        Record variables that are known to hold their fill value behind their last record.
    sync_error : SyncError or None
        The error of an fsync: what it could not write may be dropped, and a second fsync would not report it.
    header_sure : bool
        Rank 0: False while a header is being written, and after an interruption of that: then the file may begin with
        the one before or with the new one, whose data are all there.
    version : int
        Even: reads need no lock, and what they read is whole if this is the same before and after. Odd: what reads
        depend on may change any time, and they hold the session's lock.
    """

    __slots__ = (
        "_count",
        "_encoded",
        "before_header",
        "collective",
        "created",
        "driver",
        "filled",
        "header",
        "header_sure",
        "keep_unpublished",
        "lasting",
        "layout",
        "left",
        "location",
        "may_be_longer",
        "named_by",
        "path",
        "sync_error",
        "uids",
        "version",
    )

    def __init__(
        self,
        path: str,
        driver: Driver,
        location: Location | None,
        layout: Layout,
        *,
        created: bool = False,
        collective: bool = False,
        keep_unpublished: bool = False,
        may_be_longer: bool = False,
        named_by: Callable[[], Location | None] | None = None,
    ) -> None:
        self.path = path
        self.driver = driver
        self.location = location
        self.layout = layout
        self.created, self.collective = created, collective
        self.keep_unpublished, self.may_be_longer = keep_unpublished, may_be_longer
        self.named_by = named_by
        self.lasting = not created
        self.version = 1
        self.filled: set[int] = set()
        self.left: list[tuple[Driver, Location | None]] = []
        self.sync_error: SyncError | None = None
        self.header_sure = True
        self.before_header: list[Callable[[bytes], None]] = []
        self.begins_with(layout.header, b"")

    @property
    def numrecs(self) -> int:
        """Records that the header in the file counts."""
        return self.header.numrecs

    @property
    def standing(self) -> Location | None:
        """The file that a log, and other openings, know this by: itself, or the first one of a set.

        The log of a set has canonical coordinates: the maps of new variables are not known when they are posted.
        """
        return self.location if self.named_by is None else self.named_by()

    @property
    def at_stake(self) -> bool:
        """True if somebody could need what the header in the file knows: it can be found, or is to have no name."""
        return self.location is None or self.location.at_stake

    @property
    def named(self) -> bool:
        """True if the file has the name that it is to have, or is to have none."""
        return self.location is None or self.location.published

    def publish_at_flush(self) -> None:
        """The next flush gives the file its name, whatever the option ``publish`` says."""
        self.keep_unpublished = False

    def keep_at_flush(self) -> None:
        """A copy that the next flush makes keeps its temporary name until `publish_at_flush`."""
        self.keep_unpublished = True

    def read_without_lock(self) -> None:
        """Nothing changes but in `changing`: threads read at the same time."""
        self.version += self.version & 1

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Reads that began before, and those that begin meanwhile, wait for the lock, which is held."""
        at_once = not self.version & 1
        self.version |= 1
        try:
            yield
        finally:
            self.version += 1 + (not at_once)

    def use_layout(self, layout: Layout) -> None:
        """Data lies where `layout` has it from now on."""
        self.layout = layout

    def use_file(self, driver: Driver, location: Location | None) -> None:
        """Another file has the name, or will have it: go on with that one."""
        self.driver, self.location = driver, location

    def use_copy(self, driver: Driver, location: Location | None, layout: Layout) -> None:
        """Go on with a copy that has the data where `layout` has them, and no header yet; see `release_left`.

        The copy and its layout come together: an interruption between them would have the next flush look for data
        where they are not.
        """
        if self.location is not None:
            # else what holds the bytes holds the copy, or gets it at the end of the flush
            self.left.append((self.driver, self.location))
        self.driver, self.location, self.layout, self._encoded, self._count = driver, location, layout, b"", b""

    def release_left(self, *, first: bool, orderly: bool = True) -> None:
        """Close the files that copies have replaced; can be called again.

        first : bool, this is rank 0, which removes those that have no name.
        orderly : bool, all ranks call this; else a collective driver, which they close together, is only left.
        """
        while self.left:
            driver, location = self.left[-1]
            if driver is not self.driver:
                with suppress(OSError):
                    # all that was written there has been read back already
                    (driver.close if orderly or not self.collective else driver.holder.leave)()
                if first and location is not None:
                    location.discard()
            self.left.pop()

    def note_longer(self) -> None:
        """There may be bytes behind the data."""
        self.may_be_longer = True

    def note_cut(self) -> None:
        """The file was cut to the length of its data."""
        self.may_be_longer = False

    def note_filled(self, uids: Iterable[int]) -> None:
        """Record variables hold their fill value behind their last record."""
        self.filled.update(uids)

    def note_durable(self) -> None:
        """Note that what the file holds now is to outlast a power failure."""
        self.lasting = True

    def note_sync_error(self, error: SyncError) -> None:
        """Nothing is durable any more."""
        self.sync_error = error.to_keep()

    def call_before_header(self, *calls: Callable[[bytes], None]) -> None:
        """Call these, and nothing else, with the bytes of each header before it is written."""
        self.before_header[:] = calls

    def begins_with(self, header: Header, encoded: bytes) -> None:
        """The file now begins with this header."""
        self.header, self._encoded, self._count, self.uids = header, encoded, b"", self.layout.uids

    def counts(self, header: Header, count: bytes) -> None:
        """The header in the file is now this one, which differs in the number of records alone: these bytes."""
        self.header, self._count, self.uids = header, count, self.layout.uids

    @property
    def header_bytes(self) -> bytes:
        """The header as it is in the file, encoded; empty if there is none yet."""
        if self._count:
            # Copied when somebody asks: for a new count eight bytes are written, of headers of many MiB.
            self._encoded, self._count = with_count(self._encoded, self._count), b""
        return self._encoded

    def count_alone(self, new: Header) -> bool:
        """Return whether the header in the file can become `new` by a write of the number of records, if by any."""
        same = self.header.facts is new.facts and self.header.vars is new.vars
        return same and bool(self._encoded) and not (self.before_header or self.driver.capabilities.holds_back)
