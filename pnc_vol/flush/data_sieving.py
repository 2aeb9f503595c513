"""Small writes that lie close together, as reads and writes of the blocks that cover them (data sieving).

Knows: extents, drivers, two threads. Does not know: variables, requests, ranks: who calls knows that nobody else writes
to the file, for what lies between the pieces is read and written back.

A call costs as much as the copying of some bytes, which the driver declares (`Capabilities.call_cost`): from one small
piece in so many bytes on, the block is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.late import late

if TYPE_CHECKING:
    from pnc_vol.drivers import byte_copy
    from pnc_vol.flush import stream
else:
    stream = late("pnc_vol.flush.stream")
    byte_copy = late("pnc_vol.drivers.byte_copy")

__all__ = ["write_sieved"]

Bytes = npt.NDArray[np.uint8]

_PIECES = 256
"""Pieces of a block from which on it may be written as a whole; for a file in the page cache it has 1 MiB then."""
_LARGEST = 16 << 20


def write_sieved(extents: Extents, memory: Bytes, driver: Driver) -> None:
    """Write extents, those of dense blocks together with what lies between them.

    Parameters
    ----------
    extents : Extents, sorted by offset and disjoint, as `Plan.of` makes them.
    memory : uint8[...]
    driver : Driver, on a file that nobody else writes to at the moment.

    Raises
    ------
    OSError
        Something could not be read or written; which extents were written is not known.
    """
    offset, length, _ = extents
    sparse = driver.capabilities.call_cost
    block = min(_PIECES * sparse, _LARGEST)
    if not sparse or len(offset) <= block // sparse:
        driver.write(extents, memory)
        return
    number = offset // block
    first = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
    count = np.diff(first, append=len(offset))
    # Pieces that touch are one call anyway, long ones are not worth a detour.
    apart = np.concatenate((offset[1:] != offset[:-1] + length[:-1], [True])) & (length < sparse)
    longest = np.maximum.reduceat(length, first)
    dense = (np.add.reduceat(apart, first) > block // sparse) & (longest < sparse)
    if not dense.any():
        driver.write(extents, memory)
        return

    def task(part: slice) -> Callable[[Bytes], None]:
        def run(room: Bytes) -> None:
            offset, length, place = (column[part] for column in extents)
            base = int(offset[0])
            part_of_file = room[: int(offset[-1] + length[-1]) - base]
            # What lies beyond the end of the file reads as nothing, and is zeros.
            part_of_file[:] = 0
            whole = one_extent(base, part_of_file.nbytes)
            driver.read(whole, part_of_file)
            byte_copy.copy_pieces(part_of_file, offset - base, memory, place, length)
            driver.write(whole, part_of_file)

        return run

    chosen = zip(first[dense].tolist(), count[dense].tolist(), strict=True)
    stream.in_parallel(driver, (task(slice(f, f + n)) for f, n in chosen), block + sparse)
    alone = np.repeat(~dense, count)
    if alone.any():
        driver.write(Extents(*(column[alone] for column in extents)), memory)
