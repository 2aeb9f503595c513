"""What is posted to an open file and not complete.

Knows: the queue, posted reads, handles. Does not know: definitions, what is on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnc_vol.extents.decomposition import Recent
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.request import Request

if TYPE_CHECKING:
    from pnc_vol.file.reads.fetch import PostedRead

__all__ = ["Posted"]


class Posted:
    """The requests of one file.

    Attributes
    ----------
    queue : Queue, the posted writes.
    decompositions : Recent, lists of runs that were posted lately.
    next_number, first_number : int, of the next request, and of the first one since the last flush.
    reads : list of PostedRead
    handles : dict of int to Request, those that are not complete.
    kept : set of int
        Requests that hold stored values and cannot be cancelled.
    ragged : dict of uid to DatasetNode
        Arrays of varying length that were written since the last flush.
    rows_before : dict of uid to (DatasetNode, ...)
        The rows of those that are not in the file yet as it has them, for `cancel`.
    """

    __slots__ = (
        "decompositions",
        "first_number",
        "handles",
        "kept",
        "next_number",
        "queue",
        "ragged",
        "reads",
        "rows_before",
    )

    def __init__(self, queue: Queue, list_bytes: int) -> None:
        self.queue = queue
        self.decompositions = Recent(list_bytes)
        self.next_number = self.first_number = 1
        self.reads: list[PostedRead] = []
        self.handles: dict[int, Request] = {}
        self.kept: set[int] = set()
        self.ragged: dict[int, DatasetNode] = {}
        self.rows_before: dict[int, tuple[DatasetNode, Any]] = {}

    @property
    def waiting(self) -> dict[int, Request]:
        """The handles that are not complete, by number."""
        return dict(self.handles)

    def take_number(self) -> int:
        """The number of a new request."""
        self.next_number += 1
        return self.next_number - 1

    def forget_reads(self, numbers: set[int]) -> None:
        """Drop posted reads."""
        if len(numbers) == len(self.reads) and numbers == self.handles.keys():
            self.reads = []
            self.handles.clear()
            return
        self.reads = [read for read in self.reads if read.request.id not in numbers]
        for number in numbers:
            self.handles.pop(number, None)
