"""One subfile of HDF5 blobs that exists: container, header, parts, and the driver that shows its elements.

Knows: the other modules of this package, drivers. Does not know: the other subfiles, canonical elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError, LimitError
from pnc_vol.extents.model import Int64
from pnc_vol.format.decode import MAX_HEADER_BYTES
from pnc_vol.format.model import Header
from pnc_vol.layout.blob.header import Described, described
from pnc_vol.layout.blob.maps import SubfileMap
from pnc_vol.layout.hdf5blob import header_blob
from pnc_vol.layout.hdf5blob.container import HEADER, Container, find
from pnc_vol.layout.hdf5blob.parts import Parts, read_map, read_parts
from pnc_vol.layout.hdf5blob.swapped import SwappedDriver

__all__ = ["Hdf5Subfile", "in_order", "read_subfile"]


class Hdf5Subfile(NamedTuple):
    """What was read of a subfile.

    path : str
    driver : Driver, of the file, with elements in big-endian order; it closes the one that was given.
    container : Container
    order : str, the byte order of the file.
    header : Header, of the subfile, with begins that are 0.
    says : Described, what the header says.
    parts : Parts, where parts of variables begin in ``/data_blob``.
    """

    path: str
    driver: Driver
    container: Container
    order: header_blob.Order
    header: Header
    says: Described
    parts: Parts

    def begins(self, variable: int) -> Int64:
        """int64[nblobs]: the byte of the file where a variable of the subfile's header begins in each blob."""
        return self.parts.begins(variable) + self.container.data.offset

    def map(self, k: int) -> SubfileMap:
        """What it holds of map `k`, from 0.

        Raises
        ------
        FormatError
            Its runs contradict the counts, or lie outside of the dimensions.
        OSError
        """
        return read_map(self.driver, self.container.data.offset, self.parts, self.says, k, self.header, self.path)


def in_order(driver: Driver, order: header_blob.Order, parts: Parts, offset: int) -> Driver:
    """The driver with big-endian elements of a file that has them in some order, ``/data_blob`` at this byte."""
    return driver if order == "big" else SwappedDriver(driver, parts.regions(offset))


def read_subfile(driver: Driver, path: str, *, most: int = MAX_HEADER_BYTES) -> Hdf5Subfile:
    """Read all of a subfile that is needed to find its elements.

    Parameters
    ----------
    driver : Driver, of the whole file.
    path : str, for messages.
    most : int, bytes of the longest header that is decoded.

    Raises
    ------
    FormatError
        It is no subfile, was cut, or says things that contradict each other; with file, object and offset.
    MissingPackageError
        h5py is not installed.
    OSError
    """
    container = find(driver, path)
    where = f"{path}: /{HEADER}"
    stored = container.header
    if stored.nbytes > most:
        raise LimitError(
            f"{where} has {stored.nbytes} bytes, more than {most}; increase max_header_bytes if you trust the file.",
            offset=stored.offset,
            field=HEADER,
            value=stored.nbytes,
        )
    content = np.zeros(stored.nbytes, np.uint8)
    if stored.nbytes and driver.read_one(content, stored.offset) != stored.nbytes:
        raise FormatError(f"{where} could not be read whole: the file has become shorter", field=HEADER)
    data = content.tobytes()
    header = header_blob.decode(data, where, offset=stored.offset, most=most)
    order = header_blob.order_of(data)
    says = described(header, path)
    parts = read_parts(driver, container.data, header, says, order, path)
    over = in_order(driver, order, parts, container.data.offset)
    return Hdf5Subfile(path, over, container, order, header, says, parts)
