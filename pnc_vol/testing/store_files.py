"""A store under test gets files: variables, ways to post, a device that refuses to write.

Knows: the store protocol (`pnc_vol.queue.stores`), the queue, files. Does not know: what a test asks (`store_suite`).
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest

import pnc_vol
from pnc_vol.drivers import stack
from pnc_vol.drivers.base import Driver, Memory, Wrapper
from pnc_vol.extents.model import Extents
from pnc_vol.plugins import restored
from pnc_vol.queue import stores
from pnc_vol.queue.batches import Batch, Rows
from pnc_vol.queue.queue import Queue
from pnc_vol.testing.faults import FailingCalls

__all__ = ["LENGTH", "POSTS", "SHAPES", "Arrays", "StoreFiles", "copied", "queue_of", "random_index", "refusing"]

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


class StoreFiles:
    """What `StoreSuite` derives from: how its files are opened, filled and compared."""

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


def random_index(random: np.random.Generator, n: int) -> Any:
    """Return an index of an axis of n elements: a number, or a slice with a step."""
    if random.integers(3) == 0:
        return int(random.integers(n))
    start = int(random.integers(n))
    return slice(start, int(random.integers(start + 1, n + 1)), int(random.integers(1, 4)))


def copied(batch: Batch, uid: int, rows: Rows) -> Iterator[tuple[int, int, bytes]]:
    """Yield, for each row, its address, its bytes by number, and what the batch copies there."""
    for _, _, count, address, itemsize in rows.tolist():
        target, one = np.zeros(count * itemsize, np.uint8), np.zeros(1, np.int64)
        batch.copy(uid, target, one, one + address, one + count * itemsize)
        yield address, count * itemsize, target.tobytes()
