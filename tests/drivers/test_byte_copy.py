"""Arithmetic on pieces, each function against a loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.drivers import vectored_io
from pnc_vol.drivers.vectored_io import check, copy_pieces, in_order, joined, spread, within, without_overlap
from pnc_vol.testing.driver_suite import Extents, Model, extents_of, scattered_extents


def bytes_of(extents: Extents) -> list[tuple[int, int]]:
    """Every byte: its offset and its place."""
    return [(o + i, p + i) for o, n, p in zip(*(column.tolist() for column in extents), strict=True) for i in range(n)]


any_extents = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.integers(0, 90)), max_size=20).map(
    lambda rows: extents_of(*rows)
)


@given(any_extents)
def test_in_order(extents: Extents) -> None:
    ordered = in_order(extents)
    assert sorted(bytes_of(ordered)) == sorted(bytes_of(extents))
    assert ordered.length.all()
    assert (np.diff(ordered.offset) >= 0).all()


@given(any_extents)
def test_joined(extents: Extents) -> None:
    extents = in_order(extents)
    start, length = joined(extents.offset, extents.length)
    spelled = [s + i for s, n in zip(start.tolist(), length.tolist(), strict=True) for i in range(n)]
    assert spelled == [offset for offset, _ in bytes_of(extents)]
    assert not (start[1:] == start[:-1] + length[:-1]).any()


@given(any_extents, st.integers(0, 80))
def test_within(extents: Extents, nbytes: int) -> None:
    assert bytes_of(within(extents, nbytes)) == [byte for byte in bytes_of(extents) if byte[0] < nbytes]


@given(any_extents)
def test_without_overlap_and_back(extents: Extents) -> None:
    extents = in_order(extents)
    if not len(extents.offset):
        return
    content = np.random.default_rng(0).integers(0, 256, 100, dtype=np.uint8)
    place = np.cumsum(extents.length) - extents.length
    extents = extents._replace(place=place)
    memory = np.zeros(extents.nbytes, np.uint8)
    union, stage = without_overlap(extents, memory)
    offsets = [offset for offset, _ in bytes_of(union)]
    assert offsets == sorted({offset for offset, _ in bytes_of(extents)})
    if stage is memory:
        assert union is extents
        return
    assert [place for _, place in bytes_of(union)] == list(range(len(stage)))
    stage[:] = content[offsets]
    spread(union, stage, extents, memory)
    assert memory.tolist() == [content[offset] for offset, _ in bytes_of(extents)]


@pytest.mark.parametrize("unit", [1, 2, 4, 8])
@pytest.mark.parametrize("longest", [3, 5000])
def test_copy_pieces_of_unequal_lengths(unit: int, longest: int) -> None:
    rng = np.random.default_rng(unit * longest)
    length = rng.integers(0, longest, 50) * unit
    start = np.cumsum(length) - length
    order = rng.permutation(50)
    source = rng.integers(0, 256, int(length.sum()), dtype=np.uint8)
    target = np.zeros(len(source) + unit, np.uint8)
    to = np.empty(50, np.int64)
    to[order] = np.cumsum(length[order]) - length[order] + unit
    copy_pieces(target, to, source, start, length)
    for t, s, n in zip(to, start, length, strict=True):
        assert np.array_equal(target[t : t + n], source[s : s + n])


@given(
    drawn=scattered_extents(),
    limits=st.fixed_dictionaries(
        {"LONG": st.sampled_from([8, 1 << 16]), "SHORT": st.sampled_from([0, 4, 1024]), "STAGE": st.integers(8, 200)}
    ),
    gap=st.sampled_from([0, 1, 5, 4096]),
    end=st.integers(0, 2000),
)
def test_moves_move_what_loops_move(
    drawn: tuple[Extents, np.ndarray], limits: dict[str, int], gap: int, end: int
) -> None:
    """Whatever the limits between the ways are, and wherever the file ends."""
    extents, memory = drawn
    model, mine = Model(), bytearray()

    def put(buffers: memoryview | list[memoryview], offset: int) -> int:
        data = b"".join(buffers) if isinstance(buffers, list) else bytes(buffers)
        mine.extend(bytes(max(0, offset + len(data) - len(mine))))
        mine[offset : offset + len(data)] = data
        return 1

    def get(buffers: memoryview | list[memoryview], offset: int) -> int:
        done = 0
        for view in buffers if isinstance(buffers, list) else [buffers]:
            found = mine[offset + done : offset + done + len(view)]
            view[: len(found)] = found
            done += len(found)
        return done

    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(vectored_io, name, value)
        calls = vectored_io.put_extents(extents, memory, put)
        model.write(extents, memory)
        assert mine == model.content
        assert calls <= len(extents.offset)
        del mine[end:]
        model.resize(min(end, len(model.content)))
        found, expected = memory[::-1].copy(), memory[::-1].copy()
        count, _ = vectored_io.get_extents(extents, found, get, gap=gap)
        assert count == model.read(extents, expected)
        assert np.array_equal(found, expected)


@st.composite
def disjoint_pieces(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places and lengths of pieces that are disjoint in a memory, in any order, and the memory."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.sampled_from([0, 1, 2, 5, 23, 24, 25, 26, 60, 300]))
    kind = draw(st.sampled_from(["equal", "mixed", "aligned", "large"]))
    length = {
        "equal": np.full(n, draw(st.sampled_from([1, 3, 8, 24, 100]))),
        "mixed": rng.integers(0, 40, n),
        "aligned": rng.integers(1, 9, n) * 8,
        "large": np.where(rng.random(n) < 0.1, rng.integers(16000, 20000, n), rng.integers(0, 10, n)),
    }[kind]
    gap, lead = draw(st.sampled_from([0, 0, 1, 7])), draw(st.integers(0, 3))
    place = np.cumsum(length + gap) - (length + gap) + lead
    size = int(length.sum() + gap * n + lead) + draw(st.integers(0, 3))
    order = rng.permutation(n) if draw(st.booleans()) else np.arange(n)
    return place[order], length[order], rng.integers(0, 256, size).astype(np.uint8)


@settings(max_examples=300, deadline=None)
@given(disjoint_pieces())
def test_pieces_are_packed_in_order_and_put_back_and_nothing_else_is_touched(
    case: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    place, length, memory = case
    first = np.cumsum(length) - length
    packed = np.zeros(int(length.sum()), np.uint8)
    copy_pieces(packed, first, memory, place, length)
    expected = [memory[p : p + n] for n, p in zip(length, place, strict=True)]
    np.testing.assert_array_equal(packed, np.concatenate([np.empty(0, np.uint8), *expected]))
    found, wanted = np.zeros_like(memory), np.zeros_like(memory)
    for n, p in zip(length, place, strict=True):
        wanted[p : p + n] = memory[p : p + n]
    copy_pieces(found, place, packed, first, length)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("length", [3, 5])
def test_a_memory_that_is_read_only_or_a_slice_can_be_copied_from(length: int) -> None:
    memory = np.arange(250, dtype=np.uint8)[1:]
    memory.flags.writeable = False
    place = np.arange(40, dtype=np.int64)[::-1] * 4
    sizes = np.full(40, 3) if length == 3 else np.where(place % 8, 3, 2)
    packed = np.zeros(int(sizes.sum()), np.uint8)
    copy_pieces(packed, np.cumsum(sizes) - sizes, memory, place, sizes)
    assert packed[:3].tolist() == memory[156:159].tolist()


@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize("wrong", [(0, 4, 7), (0, 1, -1), (-1, 1, 0), (0, -1, 0), (0, 0, 11)])
def test_places_outside_of_the_memory_are_refused(wrong: tuple[int, int, int], many: int) -> None:
    memory, good = np.zeros(10, np.uint8), [(4 * i, 4, 0) for i in range(many)]
    check(extents_of(*good), memory)
    with pytest.raises(ValueError, match=r"memory of 10 bytes|negative"):
        check(extents_of(*good, wrong), memory)
