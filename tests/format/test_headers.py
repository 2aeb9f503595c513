"""Encoding and decoding of headers: limits, names, and what no program that defines a file one by one can write."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from file_format import Attr, Dim, Header, Var, decode, encode
from hypothesis import given
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.errors import DefinitionError, NameExistsError, TruncatedHeaderError
from pnc_vol.format.encode import changed_parts, header_size, with_changes


def test_attribute_lists_of_all_shapes_follow_each_other() -> None:
    """What is guessed from the last variable never leaks into the next one."""
    a, b, c = Attr("a", 4, 1, b"\0\0\0\1"), Attr("b", 2, 3, b"two"), Attr("c", 6, 1, bytes(8))
    other = Attr("a", 2, 4, b"text")
    lists = [
        (a, b, c), (a,), (), (b, a), (a, b, c), (other,), (c,), (other, b), (a, c), (a, b), (c, b, a), (b,), (a, b, c),
    ]  # fmt: skip
    header = Header(5, vars=tuple(Var(f"v{i}", (), attrs, 5, 2000 + 4 * i) for i, attrs in enumerate(lists)))
    assert decode(encode(header), file_size=10**6).header == header


@st.composite
def edited(draw: st.DrawFn) -> list[tuple[Attr, ...]]:
    """A list of attributes, and what it becomes by changes here and there."""
    values = st.binary(max_size=9)
    listed = [Attr(f"a{i}", 2, len(value), value) for i, value in enumerate(draw(st.lists(values, max_size=90)))]
    found = [tuple(listed)]
    for step in range(3):
        for i, what in draw(st.lists(st.tuples(st.integers(0, 90), st.sampled_from("+-=")), max_size=70)):
            value = draw(values) if i % 7 == 0 else b"new"
            put = [] if what == "-" else [Attr(f"n{step}{'é' * (i % 2)}{i}", 2, len(value), value)]
            listed[i : i + (what != "+")] = put
        found.append(tuple(listed))
    return found


@given(edited(), edited(), st.sampled_from([1, 2, 5]))
def test_a_header_with_other_attributes_is_encoded_as_if_anew(
    of_file: list[tuple[Attr, ...]], of_variable: list[tuple[Attr, ...]], version: int
) -> None:
    header = Header(version, attrs=of_file[0], vars=(Var("v", (), of_variable[0], 6, 1 << 20),))
    before = encode(header, check=False)
    for attrs, own in zip(of_file[1:], of_variable[1:], strict=True):
        header = with_changes(header, attrs=attrs, own={0: own})
        after = encode(header, check=False)
        assert after == encode(Header(version, attrs=attrs, vars=header.vars), check=False)
        made = bytearray(before)
        for start, end, stop in reversed(changed_parts(before, after, header)):
            made[start:end] = after[start:stop]
        assert bytes(made) == after
        before = after


some = st.lists(st.binary(max_size=5), max_size=3).map(
    lambda values: tuple(Attr(f"a{i}", 2, len(value), value) for i, value in enumerate(values))
)


@given(st.data(), st.booleans())
def test_a_header_of_which_variables_change_go_and_come_is_encoded_as_if_anew(
    data: st.DataObject, placed: bool
) -> None:
    """Also its size, and what differs; those that come have their begins, or get them with all others."""
    count = data.draw(st.integers(0, 6))
    variables = tuple(Var(f"v{i}", (), data.draw(some), 6, 4096 + 8 * i) for i in range(count))
    header = Header(5, 3, (Dim("x", 2),), data.draw(some), variables)
    before = encode(header)
    for step in range(3):
        numbers = range(len(header.vars))
        chosen = data.draw(st.lists(st.sampled_from(["own", "gone", ""]), min_size=len(numbers), max_size=len(numbers)))
        own = {i: data.draw(some) for i in numbers if chosen[i] == "own"}
        gone = [i for i in numbers if chosen[i] == "gone"]
        names = [f"n{step}{'é' * i}" for i in range(data.draw(st.integers(0, 2)))]
        begin = 8192 + 64 * step if placed else -1
        dims = (*header.dims, Dim(f"d{step}", 4)) if names and data.draw(st.booleans()) else header.dims
        new = tuple(Var(name, (len(dims) - 1,), data.draw(some), 4, begin) for name in names)
        attrs = data.draw(st.sampled_from([header.attrs, ()]))
        added = Header(5, 0, dims, (), new) if new else None
        wanted = [var._replace(attrs=own.get(i, var.attrs)) for i, var in enumerate(header.vars) if i not in gone]
        made = with_changes(header, attrs=attrs, own=own, gone=gone, added=added)
        assert made == Header(5, 3, dims, attrs, (*wanted, *new))
        if not placed:
            made = made.with_begins(range(16384, 16384 + 64 * len(made.vars), 64))
        anew = Header(5, 3, made.dims, made.attrs, made.vars)
        assert header_size(made) == header_size(anew)
        after = encode(made)
        assert after == encode(anew)
        patched = bytearray(before)
        for start, end, stop in reversed(changed_parts(before, after, made)):
            patched[start:end] = after[start:stop]
        assert bytes(patched) == after
        header, before = made, after


X = Dim("x", 1)


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
        (Header(5, dims=(X,), vars=(Var("a", (0,) * 1025, (), 4),)), "1025 dimensions"),
        (Header(5, dims=(X, Dim("t", 0)), vars=(Var("a", (0, 1), (), 4),)), "must come first"),
        (Header(5, dims=(Dim("x", 2**62), Dim("y", 4)), vars=(Var("a", (0, 1), (), 1),)), "bytes"),
        (Header(5, attrs=(Attr("a", 4, 2, b"1234"),)), "do not have 4 bytes"),
        (Header(5, attrs=(Attr("a", 12, 2, b"1234"),)), "no type 12"),
        (Header(2, attrs=(Attr("n", 7, 1, b"1"),)), "attribute 'n': CDF-2 has no type ubyte; use format='CDF-5'"),
        (Header(1, vars=(Var("a", (), (), 11, 200),)), "Variable 'a': CDF-1 has no type uint64; use format='CDF-5'"),
        (Header(5, vars=(Var("a", (), (), 4, 2**63 - 2),)), r"2\*\*63"),
        (Header(1, vars=(Var("a", (), (), 4, 2**31),)), "'CDF-2'"),
        (Header(5, vars=(Var("a", (), (), 4, 200), Var("b", (), (), 4))), "'b' has no place"),
    ],
)
def test_what_a_version_cannot_hold_is_refused(header: Header, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        encode(header)


@pytest.mark.parametrize("format", ["CDF-2", "CDF-5"])
def test_large_variables_of_the_old_versions_must_be_last(format: str, tmp_path: Any) -> None:
    for big_first in (False, True):
        with pnc_vol.File(tmp_path / "x.nc", "w", format=format) as f:
            if not big_first:
                f.create_dataset("small", (3,), "i4")
            f.create_dataset("big", (2**30, 3), "i4")
            if big_first and format == "CDF-2":
                with pytest.raises(DefinitionError, match=r"'big' has .*CDF-5"):
                    f.create_dataset("small", (3,), "i4")
            elif big_first:
                f.create_dataset("small", (3,), "i4")
        with pnc_vol.File(tmp_path / "x.nc") as f:
            assert f["big"].shape == (2**30, 3)


def test_names_must_differ_on_writing() -> None:
    n, one = Attr("n", 4, 1, bytes(4)), Var("a", (), (), 4, 200)
    for header in (
        Header(5, dims=(X, X)),
        Header(5, attrs=(n, n)),
        Header(5, vars=(one._replace(attrs=(n, n)),)),
        Header(5, vars=(one, one._replace(begin=204))),
    ):
        with pytest.raises(NameExistsError, match="called"):
            encode(header)


LEGAL = [
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
    "nbsp\xa0",
    "\ufb01",
]
ILLEGAL = {
    "": "empty", "a/b": "'/'", "x" * 257: "257 bytes", "é" * 129: "258 bytes", ".a": "begins", "+a": "begins",
    "-a": "begins", "@a": "begins", " a": "begins", "a ": "space", "a\n": "holds", "a\x7f": "holds", "a\0": "holds",
    "\ud800": "Unicode", "A\u030a": "form C", "\u212b": "form C",
}  # fmt: skip


@pytest.mark.parametrize("name", [*LEGAL, *ILLEGAL], ids=ascii)
def test_names_that_netcdf_has_and_has_not(name: str) -> None:
    header = Header(5, dims=(Dim(name, 1),))
    if name in LEGAL:
        assert decode(encode(header), file_size=10**4).header == header
    else:
        with pytest.raises(DefinitionError, match=ILLEGAL[name]):
            encode(header)


@given(st.text(max_size=30))
def test_name_rules_against_their_plain_reading(name: str) -> None:
    raw = name.encode("utf-8", "surrogatepass")
    first = raw[:1].isalnum() or raw[:1] == b"_" or raw[:1] >= b"\x80"
    inside = not any(byte < 0x20 or byte in b"/\x7f" for byte in raw)
    text = unicodedata.normalize("NFC", name) == name and not any("\ud800" <= c <= "\udfff" for c in name)
    legal = 0 < len(raw) <= 256 and first and inside and text and raw[-1:] != b" "
    try:
        encode(Header(5, dims=(Dim(name, 1),)))
    except DefinitionError:
        assert not legal
    else:
        assert legal


def test_a_count_that_the_file_cannot_hold_says_that_it_was_cut() -> None:
    """A list of dimensions is cut in its middle."""
    data = encode(Header(5, dims=(Dim("x", 3), Dim("y", 4), Dim("z", 5))), check=False)
    with pytest.raises(TruncatedHeaderError, match=r"The file ends at byte 40, inside its header: .*use another copy"):
        decode(data[:40], file_size=40)


def test_a_header_cannot_be_changed() -> None:
    header = Header(5, 3)
    for name in ("version", "numrecs", "dims", "attrs", "vars", "facts"):
        with pytest.raises(AttributeError):
            setattr(header, name, getattr(header, name))
    assert header == Header(5, 3) != Header(5)
    assert hash(header) == hash(Header(5, 3))
