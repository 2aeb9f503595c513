"""What is on disk of an open file: where it is, its header, its layout, and how sure it is to stay.

Knows: the file's name, its driver, its header, the layout in force. Does not know: definitions that are not in the file
yet, requests, ranks.
"""

from __future__ import annotations

from collections.abc import Callable

from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
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
    copy : Location or None
        Where the copy is that a new layout is made in.
    layout : Layout, the layout in force.
    header : Header, as it is in the file.
    header_bytes : bytes, the same, encoded.
    uids : tuple of int, the dataset of each variable of `header`.
    before_header : list of callable
        Each is called with the bytes of a header before it is written.
    created : bool, the file did not exist when it was opened.
    lasting : bool
        Whether the file may hold what is to outlast a power failure: of a durable flush, or of another process.
    keep_unpublished : bool, the file gets its name when it is closed.
    collective : bool, the driver's calls may be collective.
    shrunk : bool
        Whether the file may be longer than its data: variables were deleted, or a process was killed in a flush.
    swept : set of int
        Record variables that are known to hold their fill value behind their last record.
    sync_error : OSError or None
        The error of an fsync: what it could not write may be dropped, and a second fsync would not report it.
    """

    __slots__ = (
        "before_header",
        "collective",
        "copy",
        "created",
        "driver",
        "header",
        "header_bytes",
        "keep_unpublished",
        "lasting",
        "layout",
        "location",
        "path",
        "shrunk",
        "swept",
        "sync_error",
        "uids",
    )

    def __init__(self, path: str, driver: Driver, location: Location | None, layout: Layout) -> None:
        self.path = path
        self.driver = driver
        self.location = location
        self.layout = layout
        self.copy: Location | None = None
        self.created = self.keep_unpublished = self.collective = self.shrunk = False
        self.lasting = True
        self.swept: set[int] = set()
        self.sync_error: OSError | None = None
        self.before_header: list[Callable[[bytes], None]] = []
        self.begins_with(layout.header, b"")

    @property
    def numrecs(self) -> int:
        """Records that the header in the file counts."""
        return self.header.numrecs

    @property
    def at_stake(self) -> bool:
        """True if somebody could need what the header in the file knows: the file has its name, or has none at all."""
        return self.location is None or self.location.published

    def publish_at_flush(self) -> None:
        """The next flush gives the file its name, whatever the option ``publish`` says."""
        self.keep_unpublished = False

    def begins_with(self, header: Header, encoded: bytes) -> None:
        """The file now begins with this header."""
        self.header, self.header_bytes, self.uids = header, encoded, self.layout.uids
