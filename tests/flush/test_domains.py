"""Domains and parcels: whatever several ranks write, cut, packed and put together, is what one rank would write."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.drivers.byte_copy import copy_pieces
from pnc_vol.extents.model import Extents
from pnc_vol.flush.domains import Domains, rounds_of_cells
from pnc_vol.flush.parcels import LARGEST, bytes_of, parcels_of, put, sizes_in, take

SPACE = 40_000


@st.composite
def ranks_extents(draw: st.DrawFn) -> list[Extents]:
    """Sorted and disjoint extents of some ranks, disjoint between them, too."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    pieces = draw(st.integers(1, 300))
    bounds = np.sort(rng.choice(SPACE, 2 * pieces, replace=False)).astype(np.int64)
    if draw(st.booleans()):
        # Neighbours touch.
        offset, end = bounds[:-1], bounds[1:]
    else:
        offset, end = bounds[::2], bounds[1::2]
    if draw(st.booleans()):
        end = np.minimum(end, offset + draw(st.sampled_from([1, 4, 8, 300])))
    ranks = draw(st.integers(1, 5))
    owner = rng.integers(0, ranks, len(offset))
    found = []
    for rank in range(ranks):
        start, length = offset[owner == rank], (end - offset)[owner == rank]
        found.append(Extents(start, length, np.cumsum(length) - length))
    return found


domains_of = st.fixed_dictionaries(
    {
        "count": st.integers(1, 7),
        "buffer": st.sampled_from([512, 2000, 4096, 1 << 20]),
        "unit": st.sampled_from([256, 512, 4096]),
        "cyclic": st.booleans(),
    }
)


def low_and_high(ranks: list[Extents]) -> tuple[int, int]:
    full = [one for one in ranks if len(one.offset)]
    return min(int(one.offset[0]) for one in full), max(int(one.offset[-1] + one.length[-1]) for one in full)


@settings(max_examples=150, deadline=None)
@given(ranks_extents(), domains_of)
def test_what_many_ranks_write_through_windows_is_what_one_would_write(
    ranks: list[Extents], asked: dict[str, int]
) -> None:
    low, high = low_and_high(ranks)
    domains = Domains.over(low, high, **asked)
    before = np.random.default_rng(1).integers(0, 255, SPACE, dtype=np.uint8)
    expected, file = before.copy(), before.copy()
    memories = [
        np.random.default_rng(rank).integers(0, 255, one.nbytes, dtype=np.uint8) for rank, one in enumerate(ranks)
    ]
    touched = np.zeros(domains.cells, bool)
    sent: dict[int, list[npt.NDArray[np.uint8]]] = {}
    for one, memory in zip(ranks, memories, strict=True):
        copy_pieces(expected, one.offset, memory, one.place, one.length)
        cut = domains.cut(one)
        touched[cut.cells] = True
        assert np.array_equal(np.unique(cut.cells), cut.cells)
        announced = bytes_of(*cut.every_piece())
        for i, cell in enumerate(cut.cells.tolist()):
            assert announced[i] == sum(parcel.nbytes for parcel in parcels_of(*cut.pieces(i)))
            for parcel in parcels_of(*cut.pieces(i)):
                packed = np.zeros(parcel.nbytes, np.uint8)
                put(parcel, memory, packed)
                sent.setdefault(cell, []).append(packed)
    for cell in np.flatnonzero(touched).tolist():
        window, part = np.zeros(domains.window, np.uint8), domains.part(cell)
        copy_pieces(window, part.place, file, part.offset, part.length)
        together = np.concatenate(sent[cell])
        assert sizes_in(together) == [len(one) for one in sent[cell]]
        take(together, window)
        copy_pieces(file, part.offset, window, part.place, part.length)
    assert np.array_equal(file, expected)


@given(st.integers(0, 5000), st.integers(1, SPACE), domains_of)
def test_cells_cover_the_file_once_and_begin_at_stripes(low: int, span: int, asked: dict[str, int]) -> None:
    domains = Domains.over(low, low + span, **asked)
    covered = np.zeros(low + span, int)
    for cell in range(domains.cells):
        part = domains.part(cell)
        for offset, length, place in zip(*(column.tolist() for column in part), strict=True):
            covered[offset : offset + length] += 1
            assert place + length <= domains.window <= max(asked["buffer"], 1)
            assert cell % domains.windows or offset == low or offset % asked["unit"] == 0
    assert not covered[:low].any()
    assert (covered[low:] == 1).all()


def test_rounds_follow_from_the_bytes_of_a_domain_and_not_from_the_ranks() -> None:
    """A file of 14 GB, dense: as many rounds as a domain has windows."""
    for count in (100, 338, 1000):
        domains = Domains.over(4096, 14_000_000_000, count, buffer=8 << 20, unit=1 << 20)
        rounds, number = rounds_of_cells(np.ones((domains.count, domains.windows), bool))
        assert rounds == domains.windows == -(-domains.each // (8 << 20))
        assert number[0].tolist() == list(range(rounds))


def test_windows_without_data_take_no_round() -> None:
    touched = np.zeros((3, 1000), bool)
    touched[0, [5, 900]] = touched[2, 7] = True
    rounds, number = rounds_of_cells(touched)
    assert rounds == 2
    assert [number[0, 5], number[0, 900], number[2, 7]] == [0, 1, 0]


@pytest.mark.parametrize("step", [7, 300, 70_000])
def test_a_list_of_pieces_takes_few_bytes(step: int) -> None:
    inside = np.arange(1000, dtype=np.int64) * step
    length = np.full(1000, 4, np.int64)
    (parcel,) = parcels_of(inside, length, before_of(length))
    assert parcel.nbytes <= 48 + 1000 * (4 + (1 if step < 256 else 2 if step < 65536 else 4)) + 8


def test_no_parcel_is_larger_than_a_message() -> None:
    length = np.array([3 << 20, 5, LARGEST - 8, 1], np.int64)
    inside = before_of(length) + np.arange(4) * 10
    parcels = parcels_of(inside, length, before_of(length))
    assert max(parcel.nbytes for parcel in parcels) <= LARGEST
    assert bytes_of(inside, length, np.array([4])).tolist() == [sum(parcel.nbytes for parcel in parcels)]
    memory = np.random.default_rng(3).integers(0, 255, int(length.sum()), dtype=np.uint8)
    window, expected = np.zeros((2, int(inside[-1]) + 1), np.uint8)
    for parcel in parcels:
        packed = np.empty(parcel.nbytes, np.uint8)
        put(parcel, memory, packed)
        take(packed, window)
    copy_pieces(expected, inside, memory, before_of(length), length)
    assert np.array_equal(window, expected)


def before_of(length: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.cumsum(length) - length


@pytest.mark.parametrize("overlapping", [False, True])
def test_many_parcels_are_taken_at_once_in_their_order(overlapping: bool) -> None:
    """Parcels of ranks with lists of every width; where they overlap the last one counts."""
    random = np.random.default_rng(4)
    window, expected = np.zeros((2, 400_000), np.uint8)
    parts, memory = [], random.integers(1, 255, 4096, dtype=np.uint8)
    for rank in range(9):
        step = (300, 70_000, 20)[rank % 3]
        inside = np.arange(5) * step + (0 if overlapping else rank * 32)
        length = np.full(5, 7) if rank % 2 else random.integers(1, 8 if overlapping else 20, 5)
        if step == 20 and not overlapping:
            inside, length = inside + 380_000 + rank * 100, np.minimum(length, 19)
        place = before_of(length) + rank * 100
        (parcel,) = parcels_of(inside, length, place)
        parts.append(np.zeros(parcel.nbytes, np.uint8))
        put(parcel, memory, parts[-1])
        copy_pieces(expected, inside, memory, place, length)
    take(np.concatenate(parts), window)
    assert np.array_equal(window, expected)
