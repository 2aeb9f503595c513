"""Every driver must pass these tests, which its author runs.

    from pnc_vol.testing.driver_suite import DriverSuite

    class TestMine(DriverSuite):
        stack = "mine | posix"

What tests of a driver need besides is here too: `open_stack`, `register`, `Driver`, `Wrapper`, `Extents`, and a `Model`
to compare with.

Knows: the driver protocol (`pnc_vol.drivers.base`) and numpy. Does not know: any driver.

Rules
-----
1. Every expectation comes from a model of a few lines: a `bytearray`.
2. A test asks for what the protocol promises, never for how a driver does it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pnc_vol.drivers.base import Capabilities, Driver, Memory, Wrapper, parse_stack
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.drivers.stack import open_stack, register
from pnc_vol.errors import ClosedFileError
from pnc_vol.extents.model import Extents
from pnc_vol.system import REAL
from pnc_vol.system.full_io import write_whole

__all__ = [
    "Driver", "DriverSuite", "Extents", "Model", "Wrapper", "extents_of", "open_stack", "register", "scattered_extents",
]  # fmt: skip


def extents_of(*triples: tuple[int, int, int]) -> Extents:
    """Return extents from ``(offset, length, place)``."""
    table = np.array(triples, np.int64).reshape(-1, 3)
    return Extents(*(np.ascontiguousarray(column) for column in table.T))


class Model:
    """A file as the protocol describes it, one byte string and loops."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, extents: Extents, memory: Memory) -> None:
        for o, n, p in zip(*(column.tolist() for column in extents), strict=True):
            if n:
                self.content.extend(bytes(max(0, o + n - len(self.content))))
                self.content[o : o + n] = memory[p : p + n].tobytes()

    def read(self, extents: Extents, memory: Memory) -> int:
        count = 0
        for o, n, p in zip(*(column.tolist() for column in extents), strict=True):
            found = self.content[o : o + n]
            memory[p : p + len(found)] = np.frombuffer(bytes(found), np.uint8)
            count += len(found)
        return count

    def resize(self, nbytes: int) -> None:
        self.content = self.content[:nbytes] + bytes(max(0, nbytes - len(self.content)))


@st.composite
def scattered_extents(
    draw: Callable[..., Any], *, most: int = 40, longest: int = 40
) -> tuple[Extents, npt.NDArray[np.uint8]]:
    """Draw extents that overlap neither in the file nor in memory, in any order, and a memory that goes with them.

    Parameters
    ----------
    most : int
        Extents at most.
    longest : int
        Bytes of one at most.

    Returns
    -------
    tuple of Extents and uint8[...]
        The memory is random and writable, and larger than the extents need by up to 8 bytes.
    """
    count = draw(st.integers(0, most))
    unit = draw(st.sampled_from([1, 1, 2, 4, 8]))
    equal = draw(st.booleans())
    one = draw(st.integers(0, longest // unit))
    length = np.array([one if equal else draw(st.integers(0, longest // unit)) for _ in range(count)], np.int64) * unit
    gaps = draw(st.sampled_from([(0,), (0, 0, 0, 1), (0, 1, 7), (3, 20)]))
    gap = np.array([draw(st.sampled_from(gaps)) for _ in range(count)], np.int64) * unit
    seed = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offset = np.cumsum(gap + length) - length + draw(st.integers(0, 9))
    order = np.arange(count) if draw(st.booleans()) else seed.permutation(count)
    place = np.empty(count, np.int64)
    place[order] = np.cumsum(length[order]) - length[order] + draw(st.integers(0, 4))
    shuffle = np.arange(count) if draw(st.booleans()) else seed.permutation(count)
    memory = seed.integers(1, 256, int(length.sum()) + 8, dtype=np.uint8)
    return Extents(offset[shuffle], length[shuffle], place[shuffle]), memory


class DriverSuite:
    """Derive from it in a test module, as ``class TestMine(DriverSuite)``, and give a `stack`, or override `make`.

    Attributes
    ----------
    stack : str
        The text of the stack under test, such as ``"mine | posix"``.
    persistent : bool
        Whether another driver opened on the same path finds what was written, when it was synced or closed; at once if
        the driver does not declare that it holds bytes back.
    collective : bool
        Whether `collective=True` may be passed (a single rank is everybody).
    threads : bool
        Whether several threads may call at once.
    """

    stack = ""
    persistent = True
    collective = True
    threads = True

    def make(self, path: str, *, writable: bool = True) -> Driver:
        """Return the driver or stack under test, open on the file `path`, which exists and is empty at first."""
        return open_stack(self.stack, path, writable=writable)

    @pytest.fixture
    def path(self, tmp_path: os.PathLike[str]) -> str:
        path = os.path.join(tmp_path, "file")
        write_whole(REAL, path, b"")
        return path

    @pytest.fixture
    def driver(self, path: str) -> Iterator[Driver]:
        with contextlib.closing(self.make(path)) as driver:
            yield driver

    def content(self, driver: Driver) -> bytes:
        """Return the whole file, read through the driver."""
        memory = np.zeros(driver.size(), np.uint8)
        assert driver.read(extents_of((0, len(memory), 0)), memory) == len(memory)
        return memory.tobytes()

    # ------------------------------------------------------------------------------------------ moving bytes

    def test_a_new_file_is_empty(self, driver: Driver) -> None:
        memory = np.full(4, 7, np.uint8)
        assert driver.size() == 0
        assert driver.read(extents_of((0, 4, 0)), memory) == 0
        assert memory.tolist() == [7, 7, 7, 7]

    def test_what_was_written_is_read(self, driver: Driver) -> None:
        driver.write(extents_of((0, 5, 0)), np.frombuffer(b"hello", np.uint8))
        assert driver.size() == 5
        assert self.content(driver) == b"hello"

    def test_places_in_memory_need_no_order(self, driver: Driver) -> None:
        driver.write(extents_of((6, 2, 1), (0, 3, 5), (3, 3, 8)), np.frombuffer(b".gh..abcdef", np.uint8))
        assert self.content(driver) == b"abcdefgh"
        memory = np.frombuffer(b"............", np.uint8).copy()
        assert driver.read(extents_of((4, 4, 8), (0, 2, 1)), memory) == 6
        assert memory.tobytes() == b".ab.....efgh"

    def test_holes_read_as_zeros(self, driver: Driver) -> None:
        driver.write(extents_of((100_000, 1, 0), (10, 1, 1)), np.frombuffer(b"ba", np.uint8))
        expected = bytearray(100_001)
        expected[10], expected[100_000] = ord("a"), ord("b")
        assert self.content(driver) == bytes(expected)

    def test_no_extents_and_empty_ones_do_nothing(self, driver: Driver) -> None:
        memory = np.arange(4, dtype=np.uint8)
        for nothing in (extents_of(), extents_of((7, 0, 0)), extents_of((7, 0, 4), (0, 0, 0))):
            driver.write(nothing, memory)
            assert driver.read(nothing, memory) == 0
        assert driver.size() == 0
        driver.write(extents_of((9, 0, 2), (0, 2, 1), (5, 0, 4)), memory)
        assert self.content(driver) == b"\1\2"

    def test_a_read_is_short_only_at_the_end(self, driver: Driver) -> None:
        driver.write(extents_of((0, 10, 0)), np.arange(10, dtype=np.uint8))
        memory = np.full(30, 99, np.uint8)
        assert driver.read(extents_of((20, 5, 0), (8, 5, 5), (2, 3, 10), (9, 1, 20), (10, 4, 25)), memory) == 6
        expected = np.full(30, 99, np.uint8)
        expected[[5, 6, 10, 11, 12, 20]] = [8, 9, 2, 3, 4, 9]
        assert memory.tolist() == expected.tolist()

    def test_a_read_may_ask_for_a_byte_twice(self, driver: Driver) -> None:
        driver.write(extents_of((0, 6, 0)), np.arange(6, dtype=np.uint8))
        memory = np.zeros(9, np.uint8)
        assert driver.read(extents_of((0, 4, 0), (2, 3, 4), (2, 2, 7)), memory) == 9
        assert memory.tolist() == [0, 1, 2, 3, 2, 3, 4, 2, 3]

    def test_the_newest_write_is_seen(self, driver: Driver) -> None:
        for value in (1, 2, 3):
            driver.write(extents_of((value, 4, 0)), np.full(4, value, np.uint8))
        assert self.content(driver) == bytes([0, 1, 2, 3, 3, 3, 3])

    def test_memory_that_cannot_be_written_to_is_written_from(self, driver: Driver) -> None:
        memory = np.frombuffer(b"0123456789", np.uint8)
        assert not memory.flags.writeable
        driver.write(extents_of((0, 2, 8), (2, 2, 0), (4, 2, 4)), memory)
        assert self.content(driver) == b"890145"

    @pytest.mark.parametrize(("count", "length"), [(3000, 1), (3000, 40), (2500, 1500), (70, 70_000)])
    @pytest.mark.parametrize("gap", [0, 5])
    def test_many_extents(self, driver: Driver, count: int, length: int, gap: int) -> None:
        """More than a system takes in one vectored call, of sizes that a driver may treat differently."""
        rng = np.random.default_rng(count + length)
        step = np.arange(count, dtype=np.int64)
        offset, place = step * (length + gap) + 3, rng.permutation(step) * length
        extents = Extents(offset, np.full(count, length, np.int64), place)
        memory = rng.integers(1, 256, count * length, dtype=np.uint8)
        driver.write(extents, memory)
        expected = np.zeros((count, length + gap), np.uint8)
        expected[:, :length] = memory.reshape(count, length)[place // length]
        flat = np.concatenate([np.zeros(3, np.uint8), expected.reshape(-1)])[: driver.size()]
        assert driver.size() == int(offset[-1]) + length
        assert self.content(driver) == flat.tobytes()
        back = np.zeros_like(memory)
        assert driver.read(extents, back) == memory.nbytes
        assert np.array_equal(back, memory)

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(data=st.data())
    def test_it_does_what_the_model_does(self, driver: Driver, data: st.DataObject) -> None:
        model = Model()
        driver.resize(0)
        for _ in range(data.draw(st.integers(1, 5), label="verbs")):
            verb = data.draw(st.sampled_from(["write", "write", "read", "resize"]), label="verb")
            if verb == "resize":
                nbytes = data.draw(st.integers(0, 600), label="nbytes")
                driver.resize(nbytes)
                model.resize(nbytes)
            else:
                extents, memory = data.draw(scattered_extents(), label="extents")
                together = self.collective and data.draw(st.booleans(), label="collective")
                if verb == "write":
                    driver.write(extents, memory, collective=together)
                    model.write(extents, memory)
                else:
                    got, expected = memory.copy(), memory.copy()
                    count = driver.read(extents, got, collective=together)
                    assert count == model.read(extents, expected)
                    assert got.tobytes() == expected.tobytes()
            assert driver.size() == len(model.content)
        assert self.content(driver) == bytes(model.content)

    # -------------------------------------------------------------------------------------------- the others

    def test_resize(self, driver: Driver) -> None:
        driver.write(extents_of((0, 8, 0)), np.full(8, 5, np.uint8))
        driver.resize(3)
        assert driver.size() == 3
        driver.resize(6)
        assert self.content(driver) == b"\5\5\5\0\0\0"
        driver.resize(0)
        assert driver.size() == 0

    def test_pieces_beyond_a_file_that_was_cut_are_left_as_they_were(self, driver: Driver) -> None:
        pieces = [(10 * i, 5, 5 * i) for i in range(64)]
        driver.write(extents_of(*pieces), np.ones(320, np.uint8))
        memory = np.full(320, 9, np.uint8)
        assert driver.read(extents_of(*pieces), memory) == 320
        driver.resize(100)
        memory[:] = 9
        assert driver.read(extents_of(*pieces), memory) == 50
        assert memory.tolist() == [1] * 50 + [9] * 270

    def test_sync_and_what_is_there_afterwards(self, driver: Driver, path: str) -> None:
        driver.write(extents_of((0, 3, 0)), np.frombuffer(b"abc", np.uint8))
        driver.sync()
        driver.write(extents_of((3, 1, 0)), np.frombuffer(b"d", np.uint8))
        driver.close()
        if self.persistent:
            with contextlib.closing(self.make(path, writable=False)) as again:
                assert self.content(again) == b"abcd"

    def test_what_is_open_for_reading_is_not_written(self, path: str) -> None:
        with contextlib.closing(self.make(path, writable=False)) as driver:
            with pytest.raises(OSError):
                driver.write(extents_of((0, 1, 0)), np.zeros(1, np.uint8))
            with pytest.raises(OSError):
                driver.resize(4)
            assert driver.size() == 0

    @pytest.mark.parametrize("wrong", [(0, 5, 0), (0, 2, 3), (0, 1, 4), (0, 1, -1), (-1, 1, 0), (0, -1, 0)])
    def test_extents_outside_of_the_memory_or_before_the_file_are_refused(
        self, driver: Driver, wrong: tuple[int, int, int]
    ) -> None:
        memory = np.zeros(4, np.uint8)
        for extents in (extents_of(wrong), extents_of((8, 1, 0), wrong)):
            with pytest.raises((ValueError, OSError)):
                driver.write(extents, memory)
            with pytest.raises((ValueError, OSError)):
                driver.read(extents, memory)

    def test_closed(self, driver: Driver) -> None:
        driver.write(extents_of((0, 1, 0)), np.zeros(1, np.uint8))
        driver.close()
        driver.close()
        memory = np.zeros(1, np.uint8)
        one = extents_of((0, 1, 0))
        verbs: list[Any] = [lambda: driver.read(one, memory), lambda: driver.write(one, memory)]
        for verb in [*verbs, driver.size, lambda: driver.resize(1), driver.sync]:
            with pytest.raises(ClosedFileError):
                verb()

    def test_it_says_what_it_is(self, driver: Driver, path: str) -> None:
        layers = parse_stack(driver.describe())
        layer = driver
        for described in layers[:-1]:
            assert isinstance(layer, Wrapper)
            assert (layer.name, dict(layer.options)) == (described.name, dict(described.options))
            layer = layer.inner
        assert (layer.name, dict(layer.options)) == (layers[-1].name, dict(layers[-1].options))
        assert driver.path in (path, None)

    def test_it_declares_what_it_can_do(self, driver: Driver) -> None:
        able = driver.capabilities
        assert isinstance(able, Capabilities)
        assert able.call_cost >= 0
        assert not (able.keeps_file and able.own_paths)
        assert able.keeps_file or not able.takes_descriptor
        assert not (able.collective and able.concurrent), "MPI is not called by two threads at once"

    def test_the_fast_reads_give_what_read_gives(self, driver: Driver) -> None:
        whole = np.arange(3000, dtype=np.int32)
        driver.write(extents_of((5, whole.nbytes, 0)), whole.view(np.uint8))
        found = np.zeros(100, np.int32)
        assert driver.read_one(found, 5 + 4 * 50) == found.nbytes
        assert found.tolist() == list(range(50, 150))
        assert driver.read_one(found, 5 + 4 * 2990) == 40, "short at the end of the file"
        assert found[:10].tolist() == list(range(2990, 3000))
        seen: list[bytes] = []
        end = 5 + whole.nbytes
        if driver.look(end, whole.nbytes, lambda file: seen.append(file[5:end].tobytes())):
            assert driver.capabilities.mapping, "look() needs the capability mapping"
            assert seen == [whole.tobytes()]
        assert not driver.look(end + 1, 1, lambda file: None), "it is not there"
        driver.write(extents_of((5, 4, 0)), np.full(4, 255, np.uint8))
        seen.clear()
        if driver.look(end, 4, lambda file: seen.append(file[5:9].tobytes())):
            assert seen == [b"\xff" * 4], "look() sees what was written a moment ago"
        assert driver.read_one(found[:1], 5) == 4
        assert found[0] == -1
        driver.write_one(b"four", 9)
        driver.write_one(b"end", 3 * end)
        assert self.content(driver)[5:13] == b"\xff" * 4 + b"four"
        assert self.content(driver)[end:] == bytes(2 * end) + b"end"

    def test_order_and_end_flush_keep_what_was_written(self, driver: Driver, path: str) -> None:
        for step in range(3):
            driver.write(extents_of((4 * step, 4, 0)), np.full(4, step, np.uint8))
            driver.order()
            driver.write(extents_of((100, 4, 0)), np.full(4, step + 10, np.uint8))
            driver.end_flush()
            driver.end_flush()
            assert self.content(driver)[100:] == bytes([step + 10] * 4)
        assert self.content(driver)[:12] == bytes([0] * 4 + [1] * 4 + [2] * 4)
        if self.persistent:
            if driver.capabilities.holds_back:
                driver.sync()
            with contextlib.closing(self.make(path, writable=False)) as other:
                assert self.content(other) == self.content(driver)

    def test_a_new_content(self, driver: Driver) -> None:
        """A new layout of a file that has no name is made in a copy, which takes the place of what there was."""
        driver.write(extents_of((0, 8, 0)), np.full(8, 5, np.uint8))
        copy = driver.empty_copy() or MemoryDriver()
        copy.write(extents_of((0, 3, 0)), np.frombuffer(b"new", np.uint8))
        if driver.replace_with(copy):
            driver.end_flush()
            assert self.content(driver) == b"new"
            # what is there now is shorter than what was
            driver.grow(7)
            driver.end_flush()
            assert self.content(driver) == b"new" + bytes(4)
        else:
            assert self.content(driver) == bytes([5] * 8)
            assert self.content(copy) == b"new"
            copy.close()

    def test_statistics_are_plain_and_grow(self, driver: Driver) -> None:
        before = driver.statistics()
        driver.write(extents_of((0, 3, 0), (10, 3, 3)), np.zeros(6, np.uint8))
        driver.read(extents_of((0, 3, 0)), np.zeros(3, np.uint8))
        after = driver.statistics()
        json.dumps(after)
        assert all("." in key for key in after)
        for key in before.keys() & after.keys():
            if key.endswith(("_calls", "_bytes")):
                assert after[key] >= before[key]

    def test_several_threads(self, driver: Driver) -> None:
        if not self.threads:
            pytest.skip("this driver is for one thread at a time")
        count, errors = 60, []

        def work(number: int) -> None:
            try:
                memory = np.full(64, number, np.uint8)
                back = np.zeros(64, np.uint8)
                for i in range(count):
                    here = extents_of((64 * (4 * i + number), 64, 0))
                    driver.write(here, memory)
                    assert driver.read(here, back) == 64
                    assert (back == number).all()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        whole = np.frombuffer(self.content(driver), np.uint8).reshape(count, 4, 64)
        assert (whole == np.arange(4).reshape(1, 4, 1)).all()
