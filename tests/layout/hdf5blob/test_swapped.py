"""Elements turned round on their way: whole ones and parts of them, any pieces, against a model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.extents.model import Extents, before
from pnc_vol.layout.hdf5blob.swapped import Regions, SwappedDriver


@st.composite
def regions(draw: st.DrawFn) -> tuple[Regions, int]:
    """Regions with gaps, and the bytes of their file."""
    at, rows = draw(st.integers(0, 9)), []
    for _ in range(draw(st.integers(0, 5))):
        size = draw(st.sampled_from([1, 2, 4, 8]))
        end = at + size * draw(st.sampled_from([0, 1, 3, 70, 200]))
        rows.append((at, end, size))
        at = end + draw(st.sampled_from([0, 0, 1, 5]))
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return Regions(*columns), at + draw(st.integers(0, 9))


def turned(content: np.ndarray, where: Regions) -> np.ndarray:
    """The content of a file with the elements in the other order, byte by byte."""
    made = content.copy()
    for first, end, size in zip(*(column.tolist() for column in where), strict=True):
        for at in range(first, end, size):
            made[at : at + size] = content[at : at + size][::-1]
    return made


@st.composite
def pieces(draw: st.DrawFn, nbytes: int) -> Extents:
    """Disjoint pieces of a file in any order, anywhere in memory."""
    cuts = sorted(draw(st.lists(st.integers(0, nbytes), max_size=12, unique=True)))
    rows = [(low, high - low) for low, high in itertools.pairwise(cuts) if draw(st.booleans())]
    rows = draw(st.permutations(rows))
    offset, length = np.array(rows, np.int64).reshape(-1, 2).T
    gap = draw(st.integers(0, 3))
    return Extents(offset, length, before(length + gap) + gap)


@given(st.data())
def test_a_file_looks_as_if_its_elements_were_big_endian(data: st.DataObject) -> None:
    where, nbytes = data.draw(regions())
    content = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    below = MemoryDriver(turned(content, where).tobytes())
    driver = SwappedDriver(below, where)
    part = data.draw(pieces(nbytes))
    memory = np.full(int((part.place + part.length).max(initial=0)) + 2, 7, np.uint8)
    assert driver.read(part, memory) == part.nbytes
    for offset, length, place in zip(*(column.tolist() for column in part), strict=True):
        assert memory[place : place + length].tobytes() == content[offset : offset + length].tobytes()
    assert (memory == 7).sum() >= memory.nbytes - part.nbytes

    fresh = np.random.default_rng(nbytes + 1).integers(0, 256, memory.nbytes, np.uint8)
    kept = fresh.copy()
    fresh.setflags(write=False)
    driver.write(part, fresh)
    assert (fresh == kept).all(), "the caller's memory was changed"
    for offset, length, place in zip(*(column.tolist() for column in part), strict=True):
        content[offset : offset + length] = kept[place : place + length]
    found = np.empty(nbytes, np.uint8)
    if nbytes:
        assert below.read_one(found, 0) == nbytes
        assert found.tobytes() == turned(content, where).tobytes()


@pytest.mark.parametrize("cut", [0, 3, 8, 9, 16, 23, 24])
def test_a_file_that_ends_early_gives_its_whole_elements(cut: int) -> None:
    where = Regions(*np.array([[0], [24], [8]]))
    content = np.arange(3, dtype=">u8") + 1
    driver = SwappedDriver(MemoryDriver(content.astype("<u8").tobytes()[:cut]), where)
    found = np.full(3, 99, ">u8")
    assert driver.read_one(found, 0) == cut
    whole = cut // 8
    assert found[:whole].tolist() == content[:whole].tolist()
    assert found[-(-cut // 8) :].tolist() == [99] * (3 - -(-cut // 8))


def test_a_file_grows_to_the_byte() -> None:
    below = MemoryDriver(b"")
    driver = SwappedDriver(below, Regions(*np.array([[0], [24], [8]])))
    driver.grow(24)
    assert driver.size() == below.size() == 24


def test_regions_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap or are not sorted"):
        SwappedDriver(MemoryDriver(b""), Regions(*np.array([[0, 4], [8, 12], [4, 4]])))


def test_it_is_no_word_of_a_stack_and_no_mapping() -> None:
    below = MemoryDriver(b"")
    driver = SwappedDriver(below, Regions(*np.zeros((3, 0), np.int64)))
    assert driver.describe() == below.describe()
    assert not driver.capabilities.mapping
    assert not driver.look(0, 0, print)
