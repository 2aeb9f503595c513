"""Every queue store must pass these tests, which its author runs.

    from pnc_vol.testing.store_suite import StoreSuite

    class TestMine(StoreSuite):
        store = MyStore.open

Knows: the store protocol (`pnc_vol.queue.stores`), the queue, files, numpy, a device that refuses to write. Does not
know: any store.

Rules
-----
1. Every expectation comes from numpy arrays to which each write is applied in the order of posting.
2. A test asks for what the protocol says, never for how a store does it; what a store does not declare is not asked
   of it.
"""

from __future__ import annotations

import errno
import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest

import pnc_vol
from pnc_vol.drivers import stack
from pnc_vol.drivers.base import Driver, Memory, Wrapper
from pnc_vol.errors import PncVolError, RangeError
from pnc_vol.extents.model import Extents
from pnc_vol.plugins import restored
from pnc_vol.queue import stores
from pnc_vol.queue.batches import Batch, Rows, Table, posted
from pnc_vol.queue.queue import Queue
from pnc_vol.system import REAL
from pnc_vol.testing.faults import FailingCalls

__all__ = ["StoreSuite", "queue_of"]

Arrays = dict[str, np.ndarray[Any, Any]]

SHAPES: dict[str, tuple[tuple[int, ...], str, bool]] = {
    "scalar": ((), "f8", False),
    "bytes": ((7,), "i1", False),
    "table": ((50, 30), "i2", False),
    "wide": ((6, 3000), "f8", False),
    "series": ((4,), "f4", True),
    "block": ((4, 2, 3), "f8", True),
}
"""Name, shape, type of what the tests define, and whether its first axis grows."""

LENGTH = 140_000
"""Elements of the variable of 8 bytes that `POSTS` write to: what all of it takes, ``iput`` need not copy."""

_SUBARRAYS = np.arange(0, 3000, 100)[:, None]

POSTS: dict[str, tuple[Any, Callable[[Any, Any, Any], Any]]] = {
    "run": (slice(1000, 3000), lambda x, at, values: x.iput(at, values)),
    "rows": (slice(0, 4000, 100), lambda x, at, values: x.iput(at, values)),
    "list": (np.arange(0, LENGTH, 7), lambda x, at, values: x.iput(at, values)),
    "uncopied": (slice(None), lambda x, at, values: x.iput(at, values)),
    "many": (
        (_SUBARRAYS + np.arange(50)).reshape(-1),
        lambda x, at, values: x.iput_many(_SUBARRAYS, np.full_like(_SUBARRAYS, 50), values),
    ),
}
"""Ways to post: which elements, and how."""


def queue_of(file: pnc_vol.File) -> Queue:
    """Return the queue of a file that is open."""
    queue: Queue = file.id.handle.session.posted.queue
    return queue


class _Refusing(Wrapper):
    """A system that can be set to refuse writes."""

    name = "refusing"
    active = False

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        if _Refusing.active:
            raise OSError(errno.EIO, "The device refuses to write")
        self.inner.write(extents, memory, collective=collective)


@contextmanager
def refusing() -> Iterator[None]:
    """Yield the driver ``refusing`` writes nothing."""
    _Refusing.active = True
    try:
        yield
    finally:
        _Refusing.active = False


def _refusing_over(inner: Driver) -> _Refusing:
    return _Refusing(inner)


class StoreSuite:
    """Derive from it and name the store.

    Attributes
    ----------
    store : str or callable
        A name that the option ``store`` takes, or what `pnc_vol.queue.stores.register` takes.
    options : dict
        More options of `File` that the store needs.
    """

    store: ClassVar[Any]
    options: ClassVar[dict[str, Any]] = {}

    def between(self, file: pnc_vol.File) -> None:
        """Called between posts: a store that has several places for bytes may move them here."""

    def recover(self, path: str) -> None:
        """Put into a file what a process that was killed left of it; asked of a store that declares `survives_kill`."""
        pnc_vol.replay(path)

    @pytest.fixture(autouse=True)
    def _known(self, tmp_path: os.PathLike[str]) -> Iterator[None]:
        with restored():
            stack.register("refusing", _refusing_over, "wrapper")
            self.name = self.store
            if not isinstance(self.name, str):
                self.name = "under-test"
                # The entry of the class, not a method of it.
                stores.register(self.name, type(self).store)
            self.path = os.path.join(tmp_path, "suite.nc")
            yield

    def open(self, mode: str = "r", **options: Any) -> pnc_vol.File:
        """Return the file of a test."""
        return pnc_vol.File(self.path, mode, **({"store": self.name, **self.options} if mode != "r" else {}), **options)

    def define(self, file: pnc_vol.File) -> Arrays:
        """Return the variables that most tests use, and what they hold."""
        for name, (shape, dtype, grows) in SHAPES.items():
            file.create_dataset(name, shape, dtype, maxshape=(None, *shape[1:]) if grows else None)
        return {name: np.zeros(shape, dtype) for name, (shape, dtype, _) in SHAPES.items()}

    def fill(self, file: pnc_vol.File, arrays: Arrays, first: int = 1) -> None:
        """Post something of each kind to the variables of `define`."""
        for i, (name, array) in enumerate(arrays.items(), first):
            every = ... if not array.ndim else (slice(None, None, 2), ...)
            for at in (..., every):
                file[name][at] = array[at] = array[at] + array.dtype.type(i)
                self.between(file)

    def check(self, file: pnc_vol.File, arrays: Arrays) -> None:
        """Check that what is read is what was written."""
        for name, array in arrays.items():
            np.testing.assert_array_equal(file[name][()], array, err_msg=name)

    def fail_in_turn(self, act: Callable[[pnc_vol.File, Arrays], None]) -> None:
        """Let each of numpy's calls in `act` fail in turn."""
        for n in itertools.count(1):
            with self.open("w") as f:
                arrays = self.define(f)
                self.fill(f, arrays)
                modules = ("pnc_vol.", *(kind.__module__ for kind in type(queue_of(f).store).__mro__[:-1]))
                with FailingCalls(n, callers=modules) as failing:
                    try:
                        act(f, arrays)
                    except MemoryError:
                        assert failing.fired
                self.check(f, arrays)
                self.fill(f, arrays, 2)
                self.check(f, arrays)
            with self.open() as f:
                self.check(f, arrays)
            if not failing.fired:
                return

    def killed_after(self, act: Callable[[pnc_vol.File], None]) -> None:
        """Let a process end in the middle, when it has done `act` to the file."""
        child = os.fork()
        if not child:
            try:
                act(self.open("r+"))
                os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 7

    # ------------------------------------------------------------------------------- name, declarations

    def test_it_is_found_by_its_name_and_declares_what_it_can_do(self) -> None:
        assert self.name in stores.registered()
        stores.check_name(self.name)
        with self.open("w") as f:
            queue = queue_of(f)
            assert queue.store is queue.stores[0]
            assert isinstance(queue.store, stores.Store)
            assert queue.store.usable
            assert all(isinstance(word, str) for pair in queue.hints().items() for word in pair)
            able = queue.declared
            assert isinstance(able, stores.Capabilities)
            assert able is queue.store.capabilities
            assert not (able.survives_kill and able.user_arrays), "an array of the user's does not outlive the process"

    # ------------------------------------------------------------------------------- posted and read

    @pytest.mark.parametrize("buffer_size", [8 << 20, 64 << 10])
    @pytest.mark.parametrize("seed", range(3))
    def test_what_is_posted_is_read(self, seed: int, buffer_size: int) -> None:
        random = np.random.default_rng(seed)
        f = self.open("w", buffer_size=buffer_size)
        arrays = self.define(f)
        for _ in range(60):
            name = str(random.choice(list(arrays)))
            array, act = arrays[name], int(random.integers(12))
            if act == 0:
                f.flush()
            elif act == 1:
                f.close()
                f = self.open("r+", buffer_size=buffer_size)
            elif act == 2:
                self.between(f)
            elif act == 3 and SHAPES[name][2]:
                n = int(random.integers(1, 9))
                f[name].resize(n, axis=0)
                more = np.zeros((max(n - len(array), 0), *array.shape[1:]), array.dtype)
                arrays[name] = np.concatenate((array[:n], more))
            else:
                index = tuple(random_index(random, n) for n in array.shape)
                if act < 9:
                    array[index] = values = random.integers(1, 100, array[index].shape).astype(array.dtype)
                    f[name][index] = values
                np.testing.assert_array_equal(f[name][index], array[index])
        self.check(f, arrays)
        f.close()
        with self.open() as f:
            self.check(f, arrays)

    @pytest.mark.parametrize("dtype", ["i1", "u2", ">i4", "f4", "c8", "S3", "bool"])
    def test_values_of_any_type(self, dtype: str) -> None:
        values = np.arange(40).astype(dtype)
        with self.open("w") as f:
            x = f.create_dataset("x", (40,), dtype)
            x[:] = values
            x[3:30:3] = values[:9]
            values[3:30:3] = values[:9].copy()
            np.testing.assert_array_equal(x[:], values)
        with self.open() as f:
            np.testing.assert_array_equal(f["x"][:], values)

    def test_strings_that_grow_while_they_wait(self) -> None:
        with self.open("w") as f:
            s = f.create_dataset("s", (3,), pnc_vol.string_dtype())
            s[0] = "short"
            self.between(f)
            s[1] = "a much longer one"
            s[2] = "mid"
            assert s.asstr()[:].tolist() == ["short", "a much longer one", "mid"]
        with self.open() as f:
            assert f["s"].asstr()[:].tolist() == ["short", "a much longer one", "mid"]

    @pytest.mark.parametrize("order", list(itertools.permutations(POSTS, 2)), ids="-".join)
    def test_of_posts_that_overlap_the_last_one_wins(self, order: tuple[str, str]) -> None:
        array = np.zeros(LENGTH)
        with self.open("w") as f:
            x = f.create_dataset("x", (LENGTH,), "f8")
            for i, kind in enumerate((*order, order[0]), 1):
                at, post = POSTS[kind]
                values = np.arange(len(array[at]), dtype="f8") + i * 1e6
                array[at] = values
                post(x, at, values)
                self.between(f)
            np.testing.assert_array_equal(x[990:4010], array[990:4010])
            f.flush()
            np.testing.assert_array_equal(x[:], array)
        with self.open() as f:
            np.testing.assert_array_equal(f["x"][:], array)

    # ------------------------------------------------------------------------------- room

    def test_memory_keeps_to_the_budget(self) -> None:
        with self.open("w", buffer_size=64 << 10) as f:
            queue, rows = queue_of(f), 300
            x = f.create_dataset("x", (rows, 1000), "f8")
            y = f.create_dataset("y", (rows, 20), "i4")
            for i in range(rows):
                x[i] = i
                y[i, ::2] = i
                assert queue.used <= queue.budget
                assert not i or x[i - 1, 5] == i - 1
            self.between(f)
        with self.open() as f:
            np.testing.assert_array_equal(f["x"][:], np.repeat(np.arange(rows)[:, None], 1000, axis=1))
            assert f["y"][:, 2].tolist() == list(range(rows))
            assert not f["y"][:, 1].any()

    def test_a_write_that_is_larger_than_the_budget(self) -> None:
        with self.open("w", buffer_size=64 << 10) as f:
            x = f.create_dataset("x", (40_000,), "f8")
            x[5] = 7
            x[10:] = np.arange(39_990)
            x[12] = -1
            assert x[4:14].tolist() == [0, 7, 0, 0, 0, 0, 0, 1, -1, 3]
        with self.open() as f:
            assert f["x"][4:14].tolist() == [0, 7, 0, 0, 0, 0, 0, 1, -1, 3]
            assert f["x"][-1] == 39_989

    def test_a_post_that_is_refused_leaves_nothing(self) -> None:
        with self.open("w") as f:
            x = f.create_dataset("x", (100,), "i1")
            x[:] = 1
            requests = posted(queue_of(f).batches())
            for at in (slice(0, 50), slice(0, 100, 2), np.arange(0, 100, 3)):
                with pytest.raises(RangeError):
                    x[at] = np.full(len(np.arange(100)[at]), 1000)
                assert posted(queue_of(f).batches()) == requests
            assert x[:].tolist() == [1] * 100

    def test_a_list_of_runs_is_kept_once_where_that_is_declared(self) -> None:
        with self.open("w", buffer_size=1 << 20) as f:
            x, at = f.create_dataset("x", (8000,), "i1"), np.arange(0, 8000, 4)
            f.flush()
            for i in range(50):
                x[at] = np.full(2000, i, "i1")
            moved = f.statistics().get("bytes_drained", 0) + f.statistics()["bytes_spilled"]
            assert not (moved and queue_of(f).declared.shares_lists)
            assert x[:6].tolist() == [49, 0, 0, 0, 49, 0]

    def test_an_array_stays_with_the_user_only_where_that_is_declared(self) -> None:
        values = np.ones(1 << 18)
        with self.open("w") as f:
            x = f.create_dataset("x", values.shape, "f8")
            request = x.iput(slice(None), values)
            if not (uncopied := any(batch.streamed for batch in queue_of(f).batches())):
                values[:] = 2
            assert uncopied <= queue_of(f).declared.user_arrays
            f.flush()
            assert request.status == "done"
            assert (x[:] == 1).all()

    # ------------------------------------------------------------------------------- dropping

    @pytest.mark.parametrize("kind", list(POSTS))
    def test_a_request_that_is_cancelled_is_not_written(self, kind: str) -> None:
        at, post = POSTS[kind]
        array = np.zeros(LENGTH)
        with self.open("w") as f:
            x = f.create_dataset("x", (LENGTH,), "f8")
            x[:100] = array[:100] = 5
            gone = post(x, at, np.full(len(array[at]), 9.0))
            self.between(f)
            kept = x.iput(slice(50, 2000), np.full(1950, 3.0))
            array[50:2000] = 3
            gone.cancel()
            np.testing.assert_array_equal(x[:4000], array[:4000])
            f.flush()
            assert (gone.status, kept.status) == ("cancelled", "done")
        with self.open() as f:
            np.testing.assert_array_equal(f["x"][:], array)

    def test_many_are_cancelled_at_once(self) -> None:
        with self.open("w") as f:
            x = f.create_dataset("x", (100,), "i4")
            requests = [x.iput(i, i + 1) for i in range(100)]
            self.between(f)
            f.cancel(requests[::2])
            assert x[:4].tolist() == [0, 2, 0, 4]
            f.cancel()
            assert queue_of(f).empty
            x[7] = 7
        with self.open() as f:
            assert f["x"][:].tolist() == [0] * 7 + [7] + [0] * 92

    def test_what_is_cut_off_does_not_come_back(self) -> None:
        with self.open("w") as f:
            r = f.create_dataset("r", (6, 2), "i4", maxshape=(None, 2), fillvalue=-1)
            r[:] = 5
            self.between(f)
            r.resize(2, axis=0)
            r.resize(4, axis=0)
            r[3] = 8
            assert r[:, 0].tolist() == [5, 5, -1, 8]
        with self.open() as f:
            assert f["r"][:, 1].tolist() == [5, 5, -1, 8]

    def test_a_deleted_variable_takes_its_posts_along(self) -> None:
        with self.open("w") as f:
            f["a"], f["b"] = np.arange(5), np.arange(7)
            self.between(f)
            del f["a"]
            f.create_dataset("a", (3,), "i8")
            assert f["a"][:].tolist() == [0, 0, 0]
        with self.open() as f:
            assert (f["a"][:].tolist(), f["b"][:].tolist()) == ([0, 0, 0], list(range(7)))

    # ------------------------------------------------------------------------------- batches

    def test_a_batch_loads_what_it_copies(self) -> None:
        with self.open("w") as f:
            arrays = self.define(f)
            self.fill(f, arrays)
            queue = queue_of(f)
            tree = f.id.handle.session.defs.tree
            seen: set[int] = set()
            for batch in queue.batches():
                seen.update(batch.uids())
                assert not batch.streamed
                whole = batch.load(np.empty(batch.size, np.uint8))
                assert batch.load(np.empty(0, np.uint8)).tobytes()[: batch.size] == whole.tobytes()[: batch.size]
                for uid in batch.uids():
                    rows = batch.rows(uid)
                    assert len(rows) == sum(map(len, batch.pieces(uid))) == batch.table.of(uid).runs > 0
                    assert (rows[:, 4] == uid).all()
                    assert batch.widths[uid] == tree.datasets[uid].element.itemsize
                    assert (np.diff(rows[:, 0]) >= 0).all(), "rows stand in the order of posting"
                    for begin, nbytes, content in copied(batch, uid, rows):
                        assert whole[begin : begin + nbytes].tobytes() == content
            assert seen == set(tree.datasets)
            assert not len(queue.batches()[0].rows(-1)), "a variable that has no rows"

    def test_a_batch_with_other_rows(self) -> None:
        with self.open("w") as f:
            x, y = f.create_dataset("x", (20,), "i4"), f.create_dataset("y", (20,), "i4")
            for i in range(20):
                x[i], y[i] = i, -i
            self.between(f)
            queue = queue_of(f)
            batch = queue.batches()[0]
            first, second = x.id.node.uid, y.id.node.uid
            rows = batch.rows(first)
            fewer = batch.change({first: rows[:3]})
            assert np.array_equal(fewer.rows(first), rows[:3])
            assert np.array_equal(fewer.rows(second), batch.rows(second))
            assert fewer.store is batch.store
            assert batch.change({first: rows[:0]}).uids() == [second]
            kept = batch.keep(Table(batch.rows(second)[5:6], batch.widths))
            assert kept.uids() == [second]
            assert [copied for *_, copied in copied(kept, second, kept.rows(second))] == [np.array(-5, ">i4").tobytes()]
            assert len(batch.rows(first)) == 20, "a batch is not changed in place"

    def test_what_is_written_is_given_up(self) -> None:
        with self.open("w") as f:
            arrays = self.define(f)
            queue = queue_of(f)
            for step in range(3):
                self.fill(f, arrays, step + 1)
                assert queue.batches()
                f.flush()
                assert queue.empty
                assert queue.weight() == (0, 0)
                assert queue.store is queue.stores[0], "posts go to the first store again"
            self.check(f, arrays)

    def test_what_was_not_written_stays(self) -> None:
        """A flush that fails: the batches that are left are all there, before and after more is posted."""
        with self.open("w", driver="refusing | posix") as f:
            arrays = self.define(f)
            f.flush()
            self.fill(f, arrays)
            for step in range(2):
                with refusing(), pytest.raises((PncVolError, OSError)):
                    f.flush()
                self.check(f, arrays)
                self.fill(f, arrays, step + 2)
                self.check(f, arrays)
        with self.open() as f:
            self.check(f, arrays)

    # ------------------------------------------------------------------------------- failures

    def test_memory_that_runs_out_while_a_batch_is_closed_loses_nothing(self) -> None:
        self.fail_in_turn(lambda f, arrays: queue_of(f).close_batch())

    def test_memory_that_runs_out_in_a_post_posts_nothing_or_all(self) -> None:
        def post(f: pnc_vol.File, arrays: Arrays) -> None:
            values = np.full((50, 10), 77, "i2")
            f["table"][:, 5:15] = values
            arrays["table"][:, 5:15] = values

        self.fail_in_turn(post)

    def test_a_killed_process_loses_nothing_where_that_is_declared(self) -> None:
        with self.open("w") as f:
            able = queue_of(f).declared
            f.create_dataset("x", (30,), "i4")
        if not able.survives_kill:
            return

        def post(f: pnc_vol.File) -> None:
            f["x"][:20] = np.arange(20)
            f["x"][::3] = -1

        self.killed_after(post)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
            self.recover(self.path)
        with self.open() as f:
            assert f["x"][:7].tolist() == [-1, 1, 2, -1, 4, 5, -1]
            assert f["x"][18:].tolist() == [-1, 19, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0]

    # ------------------------------------------------------------------------------- the end

    def test_a_close_writes_what_waits_and_gives_everything_up(self) -> None:
        f = self.open("w")
        arrays = self.define(f)
        self.fill(f, arrays)
        queue = queue_of(f)
        f.close()
        f.close()
        assert queue.empty
        with self.open() as f:
            self.check(f, arrays)
        beside = REAL.listdir(os.path.dirname(self.path))
        assert beside == [os.path.basename(self.path)], "nothing is left beside the file"

    def test_a_file_that_is_abandoned_keeps_what_was_flushed(self) -> None:
        f = self.open("w")
        arrays = self.define(f)
        self.fill(f, arrays)
        f.flush()
        before = {name: array.copy() for name, array in arrays.items()}
        self.fill(f, arrays, 3)
        queue = queue_of(f)
        with warnings.catch_warnings():
            # A store whose data survive says where they are.
            warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
            f.id.handle.session.abort("the suite abandons it")
            assert queue.empty
            with self.open() as f:
                self.check(f, before)


def random_index(random: np.random.Generator, n: int) -> Any:
    """Return an index of an axis of n elements: a number, or a slice with a step."""
    if random.integers(3) == 0:
        return int(random.integers(n))
    start = int(random.integers(n))
    return slice(start, int(random.integers(start + 1, n + 1)), int(random.integers(1, 4)))


def copied(batch: Batch, uid: int, rows: Rows) -> Iterator[tuple[int, int, bytes]]:
    """Yield, for each row, its address, its bytes by number, and what the batch copies there."""
    itemsize = batch.widths[uid]
    for _, _, count, address, _ in rows.tolist():
        target, one = np.zeros(count * itemsize, np.uint8), np.zeros(1, np.int64)
        batch.copy(uid, target, one, one + address, one + count * itemsize)
        yield address, count * itemsize, target.tobytes()
