"""Posted runs of many variables as merged byte extents.

Knows: runs, places of variables, `extents`. Does not know: data, files, drivers, ranks. A plan never
touches data; it can be printed before anything is done.

Rows
----
A posted run is a row of five int64: request, first element, elements, address, bytes of an element. Rows of
a variable stand in the order of posting; that order decides who wins where they overlap.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.merge import last_wins
from pnc_vol.extents.model import Extents, Int64
from pnc_vol.extents.place import place_many

__all__ = ["COLUMNS", "Place", "Plan", "Rows", "rows_of"]

COLUMNS = 5
Rows = npt.NDArray[np.int64]
"""int64[n, 5]: request, first element, elements, address (bytes), bytes of an element."""


class Place(NamedTuple):
    """Where a variable lies in the file.

    begin : int, bytes from the start of the file.
    itemsize : int, bytes of an element.
    inner : int, elements of one record; 0 for a variable without the record dimension.
    """

    begin: int
    itemsize: int
    inner: int


def rows_of(columns: array[int]) -> Rows:
    """A copy of the rows, so that the array may grow while they are looked at."""
    return np.array(columns, np.int64).reshape(-1, COLUMNS) if len(columns) else np.empty((0, COLUMNS), np.int64)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one write of a driver will do.

    extents : Extents, sorted by offset, disjoint, joined where file and memory both adjoin.
    requests : int, posted runs that it carries out.
    variables : int, variables that they belong to.
    nbytes : int, bytes before overlaps were taken out.
    """

    extents: Extents
    requests: int
    variables: int
    nbytes: int

    @classmethod
    def of(cls, places: Sequence[Place], tables: Sequence[Rows], record_size: int) -> Plan:
        """Plan the rows of some variables.

        Parameters
        ----------
        places : sequence of Place
        tables : sequence of int64[n, 5], the rows of the variable of the same position in `places`.
        record_size : int, bytes from one record to the next.
        """
        extents, _ = unmerged(places, tables, record_size)
        return cls(last_wins(extents), len(extents.offset), len(places), extents.nbytes)

    def __str__(self) -> str:
        count = len(self.extents.offset)
        lines = [
            f"{self.requests} runs of {self.variables} variables, {self.nbytes} bytes"
            f" -> {count} extents, {self.extents.nbytes} bytes"
        ]
        shown = zip(*(column[:16].tolist() for column in self.extents), strict=True)
        lines += [f"  file {offset:>12} .. {offset + n:<12} from memory {place}" for offset, n, place in shown]
        if count > 16:
            lines.append(f"  ... {count - 16} more")
        return "\n".join(lines)


def unmerged(places: Sequence[Place], tables: Sequence[Rows], record_size: int) -> tuple[Extents, Int64]:
    """The extents of all rows, as they were posted, and the request of each."""
    if len(tables) == 1:
        rows, counts = tables[0], None
    else:
        rows = np.concatenate(tables) if tables else np.empty((0, COLUMNS), np.int64)
        counts = np.fromiter(map(len, tables), np.int64, len(tables))
    where = np.array(places, np.int64).reshape(-1, 3)
    spread = np.repeat(where, counts if counts is not None else len(rows), axis=0)
    offset, nbytes = place_many(spread[:, 0], rows[:, 4], spread[:, 2], record_size, rows[:, 1], rows[:, 2])
    return Extents(offset, nbytes, np.ascontiguousarray(rows[:, 3])), rows[:, 0]
