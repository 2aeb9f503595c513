"""Where variables begin, and what moves when definitions change, against models that place byte by byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nc_values import type_named

from pnc_vol.errors import DefinitionError
from pnc_vol.format.decode import decode
from pnc_vol.format.encode import encode, header_size
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.moving import moves, needs_move
from pnc_vol.format.placing import (
    Alignment,
    begin_rec,
    data_end,
    first_begin,
    grow,
    inner_bytes,
    is_record,
    place,
    record_dim,
    record_size,
    shape,
    strides,
    vsize,
)
from pnc_vol.format.types import TYPES

SMALL = ("byte", "char", "short", "ubyte", "ushort")
OLD_TYPES = (1, 2, 3, 4, 5, 6)


def var(name: str, dims: tuple[int, ...], kind: str = "int") -> Var:
    return Var(name, dims, (), type_named(kind).code)


def byte_of(header: Header, one: Var, index: tuple[int, ...]) -> int:
    """The byte where an element begins: the specification's formula, spelled out."""
    sizes = [header.dims[d].size for d in one.dims]
    inside, step = 0, 1
    for k in reversed(range(len(sizes))):
        if sizes[k] == 0:
            mine = [v for v in header.vars if is_record(header, v)]
            recsize = inner_bytes(header, mine[0]) if len(mine) == 1 else sum(vsize(header, v) for v in mine)
            return one.begin + index[k] * recsize + inside * TYPES[one.type].size
        inside += index[k] * step
        step *= sizes[k]
    return one.begin + inside * TYPES[one.type].size


def write(header: Header, values: list[np.ndarray], fill: int = 0xEE) -> np.ndarray:
    """A whole file, element by element; what is no data is `fill`."""
    file = np.full(max(data_end(header), header_size(header)), fill, np.uint8)
    for one, data in zip(header.vars, values, strict=True):
        size = TYPES[one.type].size
        for index in np.ndindex(*data.shape):
            at = byte_of(header, one, index)
            file[at : at + size] = np.frombuffer(data[index].tobytes(), np.uint8)
    return file


def numbers(header: Header, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        np.frombuffer(
            rng.integers(1, 120, int(np.prod(shape(header, v), dtype=int)) * TYPES[v.type].size, np.uint8).tobytes(),
            TYPES[v.type].dtype,
        ).reshape(shape(header, v))
        for v in header.vars
    ]


@st.composite
def headers(draw: st.DrawFn, version: int | None = None) -> Header:
    version = version or draw(st.sampled_from([1, 2, 5]))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    record = draw(st.booleans())
    dims = ([Dim("t", 0)] if record else []) + [Dim(f"d{i}", n) for i, n in enumerate(sizes)]
    first = int(record)
    types = sorted(TYPES) if version == 5 else OLD_TYPES
    variables = []
    for i in range(draw(st.integers(0, 5))):
        inner = tuple(draw(st.lists(st.integers(first, len(dims) - 1), max_size=3)))
        lead = (0,) if record and draw(st.booleans()) else ()
        variables.append(Var(f"v{i}", lead + inner, (), draw(st.sampled_from(types))))
    return Header(version, draw(st.integers(0, 4)) if record else 0, tuple(dims), (), tuple(variables))


# ------------------------------------------------------------------------------------- derived sizes


@pytest.mark.parametrize("kind", SMALL)
def test_records_of_a_lone_variable_are_not_padded(kind: str) -> None:
    lone = Header(5, 3, (Dim("t", 0), Dim("x", 3)), (), (var("a", (0, 1), kind),))
    assert record_size(lone) == 3 * type_named(kind).size
    assert vsize(lone, lone.vars[0]) % 4 == 0
    two = replace(lone, vars=(*lone.vars, var("b", (0,), "byte")))
    assert record_size(two) == vsize(two, two.vars[0]) + 4


def test_shapes_and_kinds() -> None:
    h = Header(5, 7, (Dim("x", 3), Dim("t", 0)), (), (var("a", (1, 0)), var("b", (0,)), var("c", ())))
    assert record_dim(h) == 1
    assert [shape(h, v) for v in h.vars] == [(7, 3), (3,), ()]
    assert [is_record(h, v) for v in h.vars] == [True, False, False]
    assert [inner_bytes(h, v) for v in h.vars] == [12, 12, 4]
    assert begin_rec(place(h)) == place(h).vars[0].begin
    assert first_begin(h) is None


def test_sizes_beyond_64_bits_are_computed_exactly() -> None:
    h = Header(5, 0, (Dim("x", 2**62), Dim("y", 2**62)), (), (var("a", (0, 1), "double"),))
    assert inner_bytes(h, h.vars[0]) == 2**127


@given(headers())
def test_strides_agree_with_the_formula(header: Header) -> None:
    header = replace(place(header), numrecs=max(header.numrecs, 1))
    for one in header.vars:
        for k, step in enumerate(strides(header, one)):
            unit = tuple(int(k == j) for j in range(len(one.dims)))
            assert byte_of(header, one, unit) == one.begin + step


# ------------------------------------------------------------------------------------------- placing


@given(
    headers(), st.builds(Alignment, *[st.sampled_from([0, 4, 5, 64, 512])] * 3), st.sampled_from([None, 0, 999, 4096])
)
def test_a_placed_header_keeps_all_rules(header: Header, how: Alignment, extent: int | None) -> None:
    placed = place(header, how, header_extent=extent)
    end = max(header_size(placed) + how.header_free, extent or 0)
    for records in (False, True):
        for one in placed.vars:
            if is_record(placed, one) is records:
                assert one.begin % 4 == 0
                assert one.begin >= end
                if not records and TYPES[one.type].size == 8:
                    assert one.begin % 8 == 0
                end = one.begin + vsize(placed, one)
    fixed = [v for v in placed.vars if not is_record(placed, v)]
    if fixed:
        assert fixed[0].begin % how.var_align in (0, 4)
    if begin_rec(placed) is not None:
        assert begin_rec(placed) % how.record_align == 0
    raw = encode(placed)
    assert decode(raw, file_size=max(data_end(placed), len(raw))) == (
        placed,
        len(raw),
        (),
        decode(raw, file_size=10**6).var_at,
    )


@given(headers(), st.integers(0, 2**32))
def test_no_two_elements_share_a_byte(header: Header, seed: int) -> None:
    placed = place(header)
    used = np.zeros(max(data_end(placed), header_size(placed)), int)
    used[: header_size(placed)] += 1
    for one in placed.vars:
        for index in np.ndindex(*shape(placed, one)):
            at = byte_of(placed, one, index)
            used[at : at + TYPES[one.type].size] += 1
    assert used.max(initial=0) <= 1


def test_alignment_is_rounded_up_and_refuses_nonsense() -> None:
    made = Alignment(1, 6, 1)
    assert (made.var_align, made.record_align, made.header_free, made.element_align) == (4, 8, 4, 8)
    with pytest.raises(ValueError, match="header_free"):
        Alignment(header_free=-1)


def test_cdf1_reaches_two_gigabytes() -> None:
    h = Header(1, 0, (Dim("x", 2**30),), (), (var("a", (0,), "byte"), var("b", (0,), "byte"), var("c", (0,), "byte")))
    with pytest.raises(DefinitionError, match=r"'c' would begin at byte .*CDF-2"):
        place(h)
    assert place(replace(h, version=2)).vars[2].begin > 2**31


# ------------------------------------------------------------------------------------------- growing


def carried(old: Header, new: Header, origin: list[int | None], seed: int = 1) -> None:
    """Write by `old`, apply the moves to an empty file, read by `new`: the model is numpy's common hyperslab."""
    data = numbers(old, seed)
    source = write(old, data)
    got = moves(old, new, origin)
    target = np.zeros(max(data_end(new), header_size(new)), np.uint8)
    covered = np.zeros(target.size, int)
    for a, b, n in zip(*(column.tolist() for column in got), strict=True):
        assert n > 0
        target[b : b + n] = source[a : a + n]
        covered[b : b + n] += 1
    assert covered.max(initial=0) <= 1
    assert (np.diff(got.src) > 0).all()
    stays = True
    for i, o in enumerate(origin):
        if o is None:
            continue
        before, after = old.vars[o], new.vars[i]
        common = tuple(map(min, shape(old, before), shape(new, after)))
        for index in np.ndindex(*common):
            at, size = byte_of(new, after, index), TYPES[after.type].size
            assert target[at : at + size].tobytes() == data[o][index].tobytes()
            stays &= at == byte_of(old, before, index)
    assert needs_move(old, new, origin) is not stays
    if stays:
        assert (got.src == got.dst).all()


def orders(header: Header) -> None:
    """The begins are such that strict readers accept the file."""
    raw = encode(header)
    assert not [f for f in decode(raw, file_size=max(data_end(header), len(raw))).findings if f.field != "file_size"]


@st.composite
def changes(draw: st.DrawFn) -> tuple[Header, Header, list[int | None], int]:
    """An old header, placed with some reserve, and what became of it."""
    old = draw(headers(5))
    old = place(old, header_extent=header_size(old) + draw(st.sampled_from([0, 64, 2000])))
    dims = list(old.dims)
    for k in draw(st.lists(st.integers(0, len(dims) - 1), max_size=1)):
        if dims[k].size:
            dims[k] = Dim(dims[k].name, draw(st.integers(1, 6)))
    keep = [i for i in range(len(old.vars)) if draw(st.integers(0, 4))]
    variables = [old.vars[i]._replace(begin=-1) for i in keep]
    origin: list[int | None] = list(keep)
    for k in range(draw(st.integers(0, 2))):
        inner = tuple(draw(st.lists(st.integers(int(dims[0].size == 0), len(dims) - 1), max_size=2)))
        lead = (0,) if dims[0].size == 0 and draw(st.booleans()) else ()
        variables.append(Var(f"new{k}", lead + inner, (), draw(st.sampled_from(sorted(TYPES)))))
        origin.append(None)
    note = (Attr("note", 2, n, b"x" * n),) if (n := draw(st.sampled_from([0, 0, 30, 300]))) else ()
    numrecs = draw(st.integers(0, 5)) if dims[0].size == 0 else 0
    return old, Header(5, numrecs, tuple(dims), note, tuple(variables)), origin, draw(st.integers(0, 9))


@settings(max_examples=150)
@given(changes(), st.sampled_from([0, 100]))
def test_data_survive_any_change(change: tuple[Header, Header, list[int | None], int], reserve: int) -> None:
    old, new, origin, seed = change
    grown = grow(old, new, origin, reserve=reserve)
    assert [v._replace(begin=-1) for v in grown.vars] == list(new.vars)
    orders(grown)
    carried(old, grown, origin, seed)


@settings(max_examples=60)
@given(changes())
def test_what_can_stay_stays(change: tuple[Header, Header, list[int | None], int]) -> None:
    """If all carried variables at their old begins, with the new ones behind them, are legal, nothing moves."""
    old, new, origin, _ = change
    same = all(o is None or shape(new, new.vars[i])[1:] == shape(old, old.vars[o])[1:] for i, o in enumerate(origin))
    fixed = [(o, v) for o, v in zip(origin, new.vars, strict=True) if not is_record(new, v)]
    records = [(o, v) for o, v in zip(origin, new.vars, strict=True) if is_record(new, v)]
    longer = any(o is not None and shape(new, v)[:1] > shape(old, old.vars[o])[:1] for o, v in fixed)
    unchanged = [o for o, _ in records] == [i for i, v in enumerate(old.vars) if is_record(old, v)]
    fits = all(o is not None for o, _ in fixed) and not longer
    region = first_begin(old)
    if same and unchanged and fits and region is not None and header_size(new) <= region:
        assert not needs_move(old, grow(old, new, origin), origin)


def test_a_header_that_fits_its_region_moves_nothing() -> None:
    old = place(Header(5, 2, (Dim("t", 0), Dim("x", 5)), (), (var("a", (1,)), var("r", (0, 1)))), header_extent=1024)
    new = replace(old, attrs=(Attr("history", 2, 500, b"h" * 500),))
    assert grow(old, new, [0, 1]) == new


def test_a_header_that_outgrows_its_region_doubles_it() -> None:
    old = place(Header(5, 2, (Dim("t", 0), Dim("x", 5)), (), (var("a", (1,)), var("r", (0, 1)))), header_extent=1024)
    new = replace(old, attrs=(Attr("history", 2, 1500, b"h" * 1500),))
    grown = grow(old, new, [0, 1])
    assert first_begin(grown) == 2048
    assert needs_move(old, grown, [0, 1])
    assert first_begin(grow(old, new, [0, 1], reserve=3000)) == header_size(new) + 3000


def test_new_fixed_variables_use_the_room_before_the_records() -> None:
    base = Header(5, 2, (Dim("t", 0), Dim("x", 5)), (), (var("a", (1,)), var("r", (0, 1))))
    old = place(base, Alignment(record_align=128), header_extent=1024)
    grown = grow(old, replace(old, vars=(*old.vars, var("b", (1,), "double"))), [0, 1, None])
    assert grown.vars[:2] == old.vars
    assert grown.vars[0].begin + 20 <= grown.vars[2].begin < grown.vars[1].begin
    full = grow(old, replace(old, vars=(*old.vars, var("b", (1, 1), "double"))), [0, 1, None])
    assert needs_move(old, full, [0, 1, None])
    orders(full)


def test_records_give_way_while_there_are_none() -> None:
    old = place(Header(5, 0, (Dim("t", 0), Dim("x", 5)), (), (var("a", (1,)), var("r", (0, 1)))), header_extent=1024)
    grown = grow(old, replace(old, vars=(*old.vars, var("b", (1,)))), [0, 1, None])
    assert grown.vars[0] == old.vars[0]
    assert grown.vars[1].begin == grown.vars[2].begin + 20
    assert not needs_move(old, grown, [0, 1, None])


def test_a_variable_grows_in_place_where_there_is_room() -> None:
    old = place(Header(5, 0, (Dim("x", 5), Dim("y", 2)), (), (var("a", (1, 0)), var("b", (0, 1)))), header_extent=1024)
    longer = replace(old, dims=(Dim("x", 9), Dim("y", 2)), vars=(old.vars[0]._replace(dims=(1,)), old.vars[1]))
    with pytest.raises(DefinitionError, match="its data cannot be kept"):
        moves(old, longer, [0, 1])
    alone = replace(old, dims=(Dim("x", 9), Dim("y", 2)), vars=old.vars[1:])
    grown = grow(old, alone, [1])
    assert grown.vars[0].begin == old.vars[1].begin
    assert not needs_move(old, grown, [1])


@pytest.mark.parametrize("version", [1, 2, 5])
@pytest.mark.parametrize("kind", SMALL)
def test_a_second_record_variable_joins_a_small_lone_one(kind: str, version: int) -> None:
    if version not in type_named(kind).versions:
        with pytest.raises(DefinitionError, match=f"CDF-{version} has no type {kind}; use format='CDF-5'"):
            encode(place(Header(version, 0, (Dim("t", 0),), (), (var("a", (0,), kind),))))
        return
    old = place(Header(version, 5, (Dim("t", 0), Dim("x", 3)), (), (var("a", (0, 1), kind),)), header_extent=400)
    new = replace(old, vars=(*old.vars, var("b", (0, 1), "short")))
    grown = grow(old, new, [0, None])
    assert needs_move(old, grown, [0, None])
    assert record_size(grown) == vsize(grown, grown.vars[0]) + 8
    carried(old, grown, [0, None])
    back = grow(grown, replace(grown, vars=grown.vars[:1]), [0])
    carried(grown, back, [0])
    one = replace(old, numrecs=1)
    assert not needs_move(one, grow(one, replace(new, numrecs=1), [0, None]), [0, None])


def test_unchanged_records_are_one_move() -> None:
    variables = tuple(var(f"r{i}", (0, 1), kind) for i, kind in enumerate(SMALL))
    old = place(Header(5, 10**6, (Dim("t", 0), Dim("x", 3)), (), (var("a", (1,), "byte"), *variables)))
    new = place(old, header_extent=4096)
    got = moves(old, new, list(range(len(new.vars))))
    assert got.src.tolist() == [old.vars[0].begin]
    assert got.nbytes == data_end(old) - old.vars[0].begin


def test_moves_of_many_records_stay_arrays() -> None:
    old = place(Header(5, 200_000, (Dim("t", 0), Dim("x", 3)), (), (var("a", (0, 1)), var("b", (0, 1)))))
    new = place(replace(old, vars=old.vars[:1]))
    got = moves(old, new, [0])
    assert got.src.size == 200_000
    assert (np.diff(got.src) == 24).all()
    assert (np.diff(got.dst) == 12).all()
