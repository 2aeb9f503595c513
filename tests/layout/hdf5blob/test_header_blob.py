"""The header of an HDF5 blob file: both byte orders, the files of the C program, damaged bytes."""

from __future__ import annotations

import io
import struct
import sys

import h5py
import numpy as np
import pytest
from e3sm_reference import HDF5_BLOBS, NETCDF_BLOBS, content
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.errors import CorruptHeaderError, FormatError, LimitError, NotCDFError, TruncatedHeaderError
from pnc_vol.format.decode import decode as decode_file
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.types import TYPES
from pnc_vol.layout.hdf5blob.header_blob import NATIVE, decode, encode, order_of

ORDERS = ("little", "big")


def header_blob(name: str) -> bytes:
    with h5py.File(io.BytesIO(content(name))) as f:
        return f["header_blob"][()].tobytes()


@pytest.mark.parametrize(("hdf5", "netcdf"), list(zip(HDF5_BLOBS, NETCDF_BLOBS, strict=True)))
def test_the_header_of_the_c_program_is_that_of_its_netcdf_blob(hdf5: str, netcdf: str) -> None:
    stored, other = header_blob(hdf5), content(netcdf)
    found = decode(stored)
    expected = decode_file(other, file_size=len(other)).header
    assert found == expected.with_begins([0] * len(expected.vars))
    assert found.numrecs == 2
    assert encode(found, "little") == stored
    assert order_of(stored) == "little"


@st.composite
def headers(draw: st.DrawFn) -> Header:
    names = iter(f"n{i}" for i in range(100))

    def attrs() -> tuple[Attr, ...]:
        made = []
        for code in draw(st.lists(st.sampled_from(sorted(TYPES)), max_size=3)):
            n = draw(st.integers(0, 5))
            nbytes = n * TYPES[code].size
            made.append(Attr(next(names), code, n, draw(st.binary(min_size=nbytes, max_size=nbytes))))
        return tuple(made)

    dims = tuple(Dim(next(names), n) for n in draw(st.lists(st.integers(1, 2**40), max_size=3)))
    if draw(st.booleans()):
        dims = (Dim("time", 0), *dims)
    variables = [
        Var(
            next(names),
            tuple(draw(st.sampled_from(range(len(dims)))) for _ in range(draw(st.integers(0, 1)))) if dims else (),
            attrs(),
            draw(st.sampled_from(sorted(TYPES))),
            0,
        )
        for _ in range(draw(st.integers(0, 20)))
    ]
    return Header(5, draw(st.integers(0, 2**33)), dims, attrs(), tuple(variables))


@given(headers(), st.sampled_from(ORDERS))
def test_any_header_comes_back(header: Header, order: str) -> None:
    stored = encode(header, order)
    assert len(stored) % 4 == 0
    if header.dims or header.attrs or header.vars:
        assert order_of(stored) == order
        assert decode(stored) == header


@given(headers())
def test_the_byte_orders_differ_in_every_number_alone(header: Header) -> None:
    little, big = (encode(header, order) for order in ORDERS)
    assert len(little) == len(big)
    numbers = header.numrecs
    assert little[4:12] == struct.pack("<q", numbers)
    assert big[4:12] == struct.pack(">q", numbers)


def sample(order: str = NATIVE) -> bytes:
    dims = (Dim("time", 0), Dim("x", 3))
    about = (Attr("n", 4, 1, b"\0\0\0\7"), Attr("title", 2, 5, b"hello"))
    return encode(Header(5, 2, dims, about, (Var("v", (0, 1), (), 6), Var("w", (1,), (), 4))), order)


def test_values_of_attributes_are_stored_in_the_byte_order_of_the_machine() -> None:
    stored = sample()
    assert np.array(7, "i4").tobytes() in stored
    assert decode(stored).attrs[0].data == b"\0\0\0\7"
    assert sys.byteorder == NATIVE


@pytest.mark.parametrize("order", ORDERS)
def test_a_header_that_was_cut_says_where_it_ends(order: str) -> None:
    stored = sample(order)
    for cut in range(12, len(stored), 4):
        with pytest.raises(FormatError, match=r"f.h5: /header_blob, which begins at byte 2048 of the file: ") as caught:
            decode(stored[:cut], "f.h5: /header_blob", offset=2048)
        assert caught.value.offset is not None
        assert 2048 <= caught.value.offset <= 2048 + cut
        assert caught.value.field


def outcome(stored: bytes) -> Header | FormatError:
    try:
        return decode(stored)
    except FormatError as error:
        return error


@pytest.mark.parametrize("order", ORDERS)
def test_any_damaged_field_is_read_or_refused_by_name(order: str) -> None:
    stored = sample(order)
    for at in range(0, len(stored), 4):
        for value in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x0b\0\0\0", b"\0\0\0\x7f"):
            damaged = stored[:at] + value + stored[at + 4 :]
            found = outcome(damaged)
            if isinstance(found, FormatError):
                assert found.offset is not None
                assert found.field


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        (lambda b: b + bytes(8), CorruptHeaderError, "The header ends at byte"),
        (lambda b: b"CDF\2" + b[4:], NotCDFError, "begins with b'CDF\\\\x02'"),
        (lambda b: b[:4] + b"\xff" * 8 + b[12:], CorruptHeaderError, "STREAMING"),
        (lambda b: b[:12] + b"\x77\0\0\0" + b[16:], CorruptHeaderError, "in neither byte order"),
        (lambda b: b[:-12], TruncatedHeaderError, "inside its header"),
        (lambda b: b"", NotCDFError, "begins with b''"),
    ],
)
def test_what_is_wrong_is_said(damage: object, error: type[FormatError], text: str) -> None:
    with pytest.raises(error, match=text):
        decode(damage(sample()))  # type: ignore[operator]


def test_a_header_longer_than_is_trusted_is_refused() -> None:
    with pytest.raises(LimitError, match="longer than 64 bytes"):
        decode(sample(), most=64)
