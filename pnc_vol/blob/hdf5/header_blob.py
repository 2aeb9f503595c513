"""`encode` and `decode` turn the header of a subfile into the bytes of ``/header_blob``, and back.

Knows: the grammar of CDF-5, byte orders. Does not know: HDF5, where elements are.

Rules
-----
1. The bytes are those of a CDF-5 header, with all numbers and all attribute values in the byte order of the machine
   that wrote them. The order is stored nowhere: the tag behind the number of records tells it.
2. Every begin is 0, because no element has a place in a NetCDF file. Begins that are read are not looked at.
3. The header fills the dataset: bytes that are left over are an error, since a list is then shorter than it was.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from pnc_vol.errors import CorruptHeaderError, FormatError, NotCDFError
from pnc_vol.format.decode import Reader
from pnc_vol.format.encode import with_zero_begins
from pnc_vol.format.limits import MAX_HEADER_BYTES, MAX_NAME
from pnc_vol.format.model import ABSENT, ATTRIBUTE, DIMENSION, LITTLE, TYPES, VARIABLE, WIDTHS, Attr, Header, Order

__all__ = ["NATIVE", "Order", "decode", "encode", "order_of"]

NATIVE: Order = sys.byteorder
"""The byte order of this machine, in which blobs are written."""

_FIRST_TAG = 12
"""The byte where the tag of the list of dimensions is, behind the magic and the number of records."""


def encode(header: Header, order: Order = NATIVE) -> bytes:
    """Return the content of ``/header_blob``; its length is a multiple of 4.

    Parameters
    ----------
    header : Header, of the version 5; its begins are not looked at.
    order : str, ``"big"`` or ``"little"``.

    Raises
    ------
    DefinitionError
        Something that CDF-5 cannot hold.

    Examples
    --------
    >>> encode(Header(5, 2), "little")[:8].hex()
    '4344460502000000'
    """
    return with_zero_begins(_with_swapped_values(header) if order == "little" else header, order)


def decode(data: bytes, where: str = "header_blob", *, offset: int = 0, most: int = MAX_HEADER_BYTES) -> Header:
    """Return the header that the content of ``/header_blob`` describes; attribute values are big-endian, as in any
    header.

    Parameters
    ----------
    data : bytes, all of the dataset.
    where : str, the file and the dataset, for messages.
    offset : int, the byte of the file where the dataset begins, for messages.
    most : int, bytes of the longest header that is decoded.

    Raises
    ------
    FormatError
        The bytes are not a header; ``offset`` counts from the start of the file.

    Examples
    --------
    >>> decode(encode(Header(5, 2))).numrecs
    2
    """
    try:
        order = order_of(data)
        header, nbytes = _read(data, order, most)
        if nbytes != len(data):
            raise CorruptHeaderError(
                f"The header ends at byte {nbytes}, and the dataset has {len(data)} bytes: a list of the header is "
                "shorter than it was, or the dataset is not a header",
                offset=nbytes,
                field="header_blob",
                value=len(data),
            )
    except FormatError as error:
        at = offset + (error.offset or 0)
        raise type(error)(
            f"{where}, which begins at byte {offset} of the file: {error}",
            offset=at,
            field=error.field,
            value=error.value,
        ) from None
    return _with_swapped_values(header) if order == "little" else header


def order_of(data: bytes) -> Order:
    """Return the byte order of the content of ``/header_blob``.

    Raises
    ------
    FormatError
        It is not the beginning of a CDF-5 header.

    Examples
    --------
    >>> order_of(encode(Header(5, 1), "little")), order_of(encode(Header(5, 1), "big"))
    ('little', 'big')
    """
    if data[:4] != b"CDF\5":
        raise NotCDFError(
            f"It begins with {data[:4]!r}, and not with the header of a CDF-5 file",
            offset=0,
            field="magic",
            value=data[:4],
        )
    # Without dimensions the tag of the next list shows it; a header without any list has only its number of records.
    for at in range(_FIRST_TAG, min(len(data) - 3, _FIRST_TAG + 3 * 12), 12):
        tag = data[at : at + 4]
        for order in (NATIVE, "little" if NATIVE == "big" else "big"):
            found = int.from_bytes(tag, order)
            if found in (DIMENSION, ATTRIBUTE, VARIABLE):
                return order
        if found != ABSENT:
            raise CorruptHeaderError(
                f"dim.tag at byte {at} is {tag!r}, which is the tag of a list in neither byte order",
                offset=at,
                field="dim.tag",
                value=tag,
            )
    little, big = (int.from_bytes(data[4:12], order) for order in ("little", "big"))
    return NATIVE if little == big else "little" if little < big else "big"


def _read(data: bytes, order: Order, most: int) -> tuple[Header, int]:
    """Return the header, with attribute values in this order, and its bytes."""
    reader = Reader(data, len(data), most, MAX_NAME, LITTLE if order == "little" else WIDTHS[5])
    header, _, nbytes, _ = reader.header()
    if header.numrecs < 0:
        raise CorruptHeaderError("numrecs at byte 4 is STREAMING: it has to be a number", offset=4, field="numrecs")
    return replace(header, vars=tuple(var._replace(begin=0) for var in header.vars)), nbytes


def _with_swapped_values(header: Header) -> Header:
    """Return the header with the bytes of each attribute value reversed."""
    made: dict[int, tuple[Attr, ...]] = {}
    # many attributes share one value: it is swapped once
    values: dict[tuple[int, bytes], bytes] = {}

    def turned(attr: Attr) -> Attr:
        size = TYPES[attr.type].size
        if size == 1:
            return attr
        found = values.get((size, attr.data))
        if found is None:
            found = values[size, attr.data] = np.frombuffer(attr.data, f"u{size}").byteswap().tobytes()
        return Attr(attr.name, attr.type, attr.nelems, found)

    def swapped(attrs: tuple[Attr, ...]) -> tuple[Attr, ...]:
        # similar variables share one tuple of attributes
        found = made.get(id(attrs))
        if found is None:
            found = made[id(attrs)] = tuple(map(turned, attrs))
        return found

    variables = tuple(var._replace(attrs=swapped(var.attrs)) if var.attrs else var for var in header.vars)
    found = replace(header, attrs=swapped(header.attrs), vars=variables)
    if header.facts.within_limits:
        found.facts.within_limits = True
    return found
