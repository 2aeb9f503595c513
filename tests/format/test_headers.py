"""Encoding and decoding of headers: round trips, growing prefixes, limits, names, types, speed."""

from __future__ import annotations

import time
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nc_values import make_attr, type_named

from pnc_vol.errors import DefinitionError, NameExistsError, NeedBytes, RangeError, TruncatedHeaderError
from pnc_vol.format.check import check
from pnc_vol.format.decode import decode
from pnc_vol.format.encode import encode, header_size, numrecs_bytes, unplaced
from pnc_vol.format.limits import check_limits
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.names import check_name, is_legal_name, normalise
from pnc_vol.format.placing import data_end, place
from pnc_vol.format.types import CHAR, TYPES, attr_values, file_dtype, nc_type, pad4

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\x7f"), min_size=1, max_size=40)
LEGAL = NAMES.map(normalise).filter(is_legal_name)


@st.composite
def attributes(draw: st.DrawFn, version: int) -> tuple[Attr, ...]:
    made = []
    for name in draw(st.lists(LEGAL, max_size=3, unique=True)):
        kind = TYPES[draw(st.sampled_from([t.code for t in TYPES.values() if version in t.versions]))]
        n = draw(st.integers(0, 5))
        made.append(Attr(name, kind.code, n, draw(st.binary(min_size=n * kind.size, max_size=n * kind.size))))
    return tuple(made)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    version = draw(st.sampled_from([1, 2, 5]))
    types = [t.code for t in TYPES.values() if version in t.versions]
    dims = [Dim(name, draw(st.integers(1, 9))) for name in draw(st.lists(LEGAL, max_size=4, unique=True))]
    record = draw(st.sampled_from([None, *range(len(dims))]))
    if record is not None:
        dims[record] = Dim(dims[record].name, 0)
    inner = [i for i in range(len(dims)) if i != record]
    variables = []
    for name in draw(st.lists(LEGAL, max_size=4, unique=True)):
        shape = tuple(draw(st.lists(st.sampled_from(inner), max_size=3))) if inner else ()
        lead = (record,) if record is not None and draw(st.booleans()) else ()
        variables.append(Var(name, lead + shape, draw(attributes(version)), draw(st.sampled_from(types))))
    numrecs = 0 if record is None else draw(st.integers(0, 2**31 - 1 if version < 5 else 10**9))
    return place(Header(version, numrecs, tuple(dims), draw(attributes(version)), tuple(variables)))


@given(headers())
def test_what_is_encoded_is_decoded(header: Header) -> None:
    raw = encode(header)
    assert len(raw) == header_size(header)
    size = max(data_end(header), len(raw))
    got = decode(raw, file_size=size)
    assert got[:3] == (header, len(raw), ())
    assert check(raw, file_size=size) == []
    for kind in (bytearray, memoryview):
        assert decode(kind(raw), file_size=size) == got
    assert raw[4 : 4 + len(numrecs_bytes(header))] == numrecs_bytes(header)
    if header.vars:
        # The begin of the last variable ends the header.
        assert int.from_bytes(raw[got.var_at[-1] - 4 :], "big") == header.vars[-1].begin % 2**32


@given(headers(), st.integers(0, 10**6))
def test_one_definition_is_encoded_with_any_begins_and_records(header: Header, move: int) -> None:
    raw = encode(header)
    begins = [var.begin + 4 * move for var in header.vars]
    moved = header.with_begins(begins)
    assert moved == replace(header, vars=tuple(v._replace(begin=b) for v, b in zip(header.vars, begins, strict=True)))
    # What was found out of the definitions serves all three, in any order, and none spoils it for the others.
    assert header_size(moved) == len(raw)
    fresh = replace(moved)
    assert fresh.derived is not moved.derived
    assert encode(moved) == encode(fresh)
    assert encode(header) == raw
    counted = header.with_numrecs(header.numrecs // 2)
    assert encode(counted) == encode(replace(header, numrecs=header.numrecs // 2))
    assert unplaced(header) == unplaced(moved)
    assert unplaced(header) == unplaced(replace(header))


def test_a_variable_without_a_place_is_not_encoded() -> None:
    header = Header(5, vars=(Var("a", (), (), 6, 200), Var("b", (), (), 6)))
    with pytest.raises(DefinitionError, match="'b' has no place"):
        encode(header)
    assert header_size(header) == len(encode(header.with_begins([200, 208])))


def test_limits_are_looked_at_again_where_records_and_begins_are_others() -> None:
    header = place(Header(1, 0, (Dim("t", 0),), (), (Var("a", (0,), (), 6),)))
    check_limits(header)
    with pytest.raises(DefinitionError, match="records"):
        check_limits(header.with_numrecs(2**32))
    with pytest.raises(DefinitionError, match="begin at byte"):
        place(header, header_extent=2**31)


@settings(max_examples=40)
@given(headers())
def test_growing_prefixes_need_bytes_until_they_do_not(header: Header) -> None:
    raw = encode(header)
    size = max(data_end(header), len(raw))
    have = 0
    while have < len(raw):
        with pytest.raises(NeedBytes) as need:
            decode(raw[:have], file_size=size)
        assert have < need.value.nbytes <= size
        have += max(1, (len(raw) - have) // 7)
    assert decode(raw, file_size=size).header == header


@settings(max_examples=40)
@given(headers())
def test_a_cut_file_is_truncated_wherever_it_is_cut(header: Header) -> None:
    raw = encode(header)
    for at in {4, 5, len(raw) // 3, len(raw) // 2, len(raw) - 5, len(raw) - 1}:
        with pytest.raises(TruncatedHeaderError) as error:
            decode(raw[:at], file_size=at)
        assert 4 <= error.value.offset <= at


def test_a_header_of_many_variables_is_fast_and_takes_little_memory() -> None:
    attrs = tuple(make_attr(name, f"{name} of something") for name in ("units", "long_name", "cell_methods"))
    variables = tuple(Var(f"v{i}", (0, 1), (*attrs[:2], make_attr("id", np.int32(i))), 5) for i in range(20_000))
    header = place(Header(5, 3, (Dim("t", 0), Dim("x", 10)), attrs, variables))
    started = time.process_time()
    raw = encode(header)
    got = decode(raw, file_size=data_end(header))
    used = time.process_time() - started
    assert got.header == header
    # Measured: 0.3 s for both.
    assert used < 3


def test_equal_attributes_of_neighbours_are_read_once() -> None:
    note = make_attr("units", "K")
    header = place(Header(5, vars=tuple(Var(f"v{i}", (), (note,), 5) for i in range(3))))
    got = decode(encode(header), file_size=10**6).header
    assert got.vars[0].attrs[0] is got.vars[2].attrs[0]


def test_attribute_lists_of_all_shapes_follow_each_other() -> None:
    """What is guessed from the last variable never leaks into the next one."""
    a, b, c = (make_attr(n, v) for n, v in (("a", 1), ("b", "two"), ("c", 3.0)))
    other = make_attr("a", "text")
    lists = [
        (a, b, c),
        (a,),
        (),
        (b, a),
        (a, b, c),
        (other,),
        (c,),
        (other, b),
        (a, c),
        (a, b),
        (c, b, a),
        (b,),
        (a, b, c),
    ]
    header = place(Header(5, vars=tuple(Var(f"v{i}", (), attrs, 5) for i, attrs in enumerate(lists))))
    assert decode(encode(header), file_size=10**6).header == header


# ------------------------------------------------------------------------------------ limits, on writing


def test_types_of_cdf5_are_named_with_the_version_that_has_them() -> None:
    with pytest.raises(DefinitionError, match="Variable 'a': CDF-1 has no type uint64; use format='CDF-5'"):
        check_limits(Header(1, vars=(Var("a", (), (), 11),)))
    with pytest.raises(DefinitionError, match="attribute 'n': CDF-2 has no type ubyte; use format='CDF-5'"):
        check_limits(Header(2, attrs=(make_attr("n", np.uint8(1)),)))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (Header(3), "no CDF-3"),
        (Header(5, -1), "records"),
        (Header(1, 2**31, (Dim("t", 0),)), "CDF-5"),
        (Header(1, dims=(Dim("x", 2**31),)), "'x' has 2147483648"),
        (Header(5, dims=(Dim("x", -3),)), "'x'"),
        (Header(5, dims=(Dim("t", 0), Dim("u", 0))), "'u' is unlimited"),
        (Header(5, vars=(Var("a", (0,), (), 4),)), "no dimension 0"),
        (Header(5, dims=(Dim("x", 1),), vars=(Var("a", (0,) * 1025, (), 4),)), "1025 dimensions"),
        (Header(5, dims=(Dim("x", 1), Dim("t", 0)), vars=(Var("a", (0, 1), (), 4),)), "must come first"),
        (Header(5, dims=(Dim("x", 2**62), Dim("y", 4)), vars=(Var("a", (0, 1), (), 1),)), "bytes"),
        (Header(5, attrs=(Attr("a", 4, 2, b"1234"),)), "do not have 4 bytes"),
        (Header(5, attrs=(Attr("a", 12, 2, b"1234"),)), "no type 12"),
        (Header(5, vars=(Var("a", (), (), 4, 2**63 - 2),)), r"2\*\*63"),
        (Header(1, vars=(Var("a", (), (), 4, 2**31),)), "'CDF-2'"),
        (Header(5, vars=(Var("a", (), (), 4),)), "no place"),
    ],
)
def test_what_a_version_cannot_hold_is_refused(header: Header, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        encode(header)


def test_large_variables_of_the_old_versions_must_be_last() -> None:
    dims = (Dim("x", 2**31 - 1), Dim("y", 3), Dim("t", 0))
    big, small, record = Var("big", (0, 1), (), 4), Var("small", (1,), (), 4), Var("rec", (2, 1), (), 4)
    last = place(Header(2, 0, dims, (), (small, big)))
    assert decode(encode(last), file_size=data_end(last)).header == last
    for variables in ((big, small), (small, big, record)):
        with pytest.raises(DefinitionError, match=r"'big' has .* Use format='CDF-5'"):
            encode(place(Header(2, 0, dims, (), variables)))
        wide = place(Header(5, 0, dims, (), variables))
        assert decode(encode(wide), file_size=data_end(wide)).header == wide


def test_names_must_differ_on_writing() -> None:
    one = Var("a", (), (make_attr("n", 1), make_attr("n", 2)), 4, 200)
    for header in (
        Header(5, dims=(Dim("x", 1), Dim("x", 2))),
        Header(5, attrs=(make_attr("n", 1), make_attr("n", 2))),
        Header(5, vars=(one,)),
        Header(5, vars=(one._replace(attrs=()), one._replace(attrs=(), begin=204))),
    ):
        with pytest.raises(NameExistsError, match="called"):
            encode(header)


# -------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "_x",
        "9",
        "a b",
        "a:b",
        'q"',
        "back\\slash",
        "a+b-c.d@e",
        "été",
        "x" * 256,
        "é" * 128,
        "nbsp\u00a0",
        "\ufb01",
    ],
)
def test_legal_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "empty"),
        ("a/b", "'/'"),
        ("x" * 257, "257 bytes"),
        ("é" * 129, "258 bytes"),
        (".a", "begins"),
        ("+a", "begins"),
        ("-a", "begins"),
        ("@a", "begins"),
        (" a", "begins"),
        ("a ", "space"),
        ("a\n", "holds"),
        ("a\x7f", "holds"),
        ("a\0", "holds"),
        ("\ud800", "Unicode"),
        ("A\u030a", "form C"),
        ("\u212b", "form C"),
    ],
)
def test_illegal_names(name: str, said: str) -> None:
    assert not is_legal_name(name)
    with pytest.raises(DefinitionError, match=said):
        check_name(name)


@given(st.text(max_size=30))
def test_name_rules_against_their_plain_reading(name: str) -> None:
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        assert not is_legal_name(name)
        return
    first = raw[:1].isalnum() or raw[:1] == b"_" or raw[:1] >= b"\x80"
    inside = not any(byte < 0x20 or byte in b"/\x7f" for byte in raw)
    nfc = unicodedata.normalize("NFC", name) == name
    assert is_legal_name(name) == (0 < len(raw) <= 256 and first and inside and nfc and raw[-1:] != b" ")


# -------------------------------------------------------------------------------------------------- types


def test_types_agree_with_their_names_and_sizes() -> None:
    for kind in TYPES.values():
        assert type_named(kind.name) is kind
        assert nc_type(kind.dtype) is kind
        assert nc_type(kind.dtype.newbyteorder("<")) is kind
        assert file_dtype(kind.code).itemsize == kind.size == len(kind.fill)
        if kind.code != CHAR:
            assert kind.fill_value == np.frombuffer(kind.fill, kind.dtype)[0]
    assert TYPES[6].fill_value == TYPES[5].fill_value.astype("f8") == float.fromhex("0x1.ep122")
    assert [TYPES[c].fill_value for c in (1, 3, 4)] == [-127, -32767, -2147483647]
    for dtype in ("f2", "c8", "?", "S2", "U3", "M8[s]", "O"):
        with pytest.raises(DefinitionError, match="no type"):
            nc_type(dtype)
    with pytest.raises(DefinitionError, match="has byte"):
        type_named("string")


def test_pad4() -> None:
    assert [pad4(n) for n in range(6)] == [0, 4, 4, 4, 4, 8]


def test_attributes_of_every_type_come_back() -> None:
    for kind in TYPES.values():
        if kind.code == CHAR:
            continue
        values = np.array([[0, 1], [2, 100]], kind.dtype.newbyteorder("="))
        attr = make_attr("a", values)
        assert (attr.type, attr.nelems) == (kind.code, 4)
        got = attr_values(attr)
        assert isinstance(got, np.ndarray)
        assert got.dtype.isnative
        np.testing.assert_array_equal(got, values.ravel())
    assert attr_values(make_attr("a", "é")) == "é".encode()
    assert make_attr("A\u030a", b"x").name == "\u00c5"
    assert make_attr("a", np.array([b"a", b"b"])).data == b"ab"
    assert make_attr("a", [1, 2], 1).data == b"\x01\x02"
    assert make_attr("a", b"\0\1\0\2", 3).nelems == 2
    with pytest.raises(RangeError, match="attribute 'a': 300 at index"):
        make_attr("a", [1, 300], 1)
    with pytest.raises(DefinitionError, match="text and numbers"):
        make_attr("a", [1.5], CHAR)
    with pytest.raises(DefinitionError, match="whole number"):
        make_attr("a", b"123", 4)


def test_numrecs_may_be_written_alone() -> None:
    header = place(Header(1, 5, (Dim("t", 0),), (), (Var("a", (0,), (), 4),)))
    raw = bytearray(encode(header))
    raw[4:8] = numrecs_bytes(replace(header, numrecs=9))
    assert decode(raw, file_size=10**3).header.numrecs == 9


def test_a_count_that_the_file_cannot_hold_says_that_it_was_cut() -> None:
    """A list of dimensions is cut in its middle."""
    data = encode(Header(5, dims=(Dim("x", 3), Dim("y", 4), Dim("z", 5))), check=False)
    with pytest.raises(TruncatedHeaderError, match=r"The file ends at byte 40, inside its header: .*use another copy"):
        decode(data[:40], file_size=40)
