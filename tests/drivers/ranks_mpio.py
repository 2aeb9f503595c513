"""Run by test_mpio.py on several ranks: ``ranks_mpio.py FOLDER SCENARIO...``, a scenario being ``CASE SPEC``."""

from __future__ import annotations

import errno
import functools
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import scenarios
from mpi4py import MPI

import pnc_vol.drivers.mpio as mpio
from pnc_vol.testing.driver_suite import Driver, Extents, open_stack

world = MPI.COMM_WORLD
comm = SimpleNamespace(rank=world.rank, size=world.size, mpi=world)


def fresh(path: str, spec: str) -> Driver:
    if world.rank == 0:
        Path(path).write_bytes(b"")
    world.Barrier()
    return open_stack(spec, path, writable=True, comm=comm, hints={"no_such_hint": "1"})


def shares(seed: int, pieces: int, longest: int) -> tuple[np.ndarray, list[Extents]]:
    """A file's content, and extents that deal all of it out to the ranks, in random order and with random places."""
    rng = np.random.default_rng(seed)
    length = rng.integers(0, longest, pieces)
    offset = np.cumsum(length) - length
    content = rng.integers(1, 256, int(length.sum()), dtype=np.uint8)
    owner = rng.integers(0, world.size, pieces)
    if seed % 3 == 0:
        owner[owner == world.size - 1] = 0  # the last rank has nothing
    if seed % 5 == 0:
        owner[:] = rng.random(pieces) < 0.05  # rank 0 has many more rounds than the others
    dealt = []
    for rank in range(world.size):
        mine = rng.permutation(np.flatnonzero(owner == rank))
        n = length[mine]
        order = rng.permutation(len(mine)) if seed % 2 else np.arange(len(mine))
        place = np.empty(len(mine), np.int64)
        place[order] = np.cumsum(n[order]) - n[order]
        dealt.append(Extents(offset[mine], n, place))
    return content, dealt


def memory_of(extents: Extents, content: np.ndarray) -> np.ndarray:
    memory = np.zeros(extents.nbytes, np.uint8)
    for o, n, p in zip(*(column.tolist() for column in extents), strict=True):
        memory[p : p + n] = content[o : o + n]
    return memory


def interleaved(path: str, spec: str, *, together: bool = True) -> None:
    for seed in (0, 1, 5, 7):  # a rank with nothing, unequal rounds, shuffled places, even shares
        driver = fresh(path, spec)
        content, dealt = shares(seed, pieces=60, longest=50)
        mine = dealt[world.rank]
        driver.write(mine, memory_of(mine, content), collective=together)
        world.Barrier()
        assert driver.size() == len(content)
        # Another rank's share, and one that begins before and ends after it.
        other = dealt[(world.rank + 1) % world.size]
        shifted = Extents(other.offset + 7, other.length, other.place)
        overlapping = Extents(np.arange(0, 90, 3), np.full(30, 8), np.arange(30) * 8)
        for extents in (other, shifted, overlapping):
            wanted = np.full(extents.nbytes, 255, np.uint8)
            count = 0
            for o, n, p in zip(*(column.tolist() for column in extents), strict=True):
                part = content[o : o + n]
                wanted[p : p + len(part)] = part
                count += len(part)
            found = np.full(extents.nbytes, 255, np.uint8)
            assert driver.read(extents, found, collective=together) == count
            assert (found == wanted).all(), (seed, world.rank)
        driver.sync()
        driver.close()
        if world.rank == 0:
            assert Path(path).read_bytes() == content.tobytes(), seed
        world.Barrier()


def few(path: str, spec: str) -> None:
    """The path without types has two ways: few pieces go by collective calls, many by independent ones."""
    kept, mpio.PLAIN_CALLS = mpio.PLAIN_CALLS, 1000
    try:
        interleaved(path, spec)
    finally:
        mpio.PLAIN_CALLS = kept


def independent(path: str, spec: str) -> None:
    interleaved(path, spec, together=False)


def alone(path: str, spec: str) -> None:
    """One rank writes and reads by itself while the others wait elsewhere."""
    driver = fresh(path, spec)
    one = Extents(np.array([5, 20]), np.array([3, 3]), np.array([0, 3]))
    if world.rank == world.size - 1:
        driver.write(one, np.arange(6, dtype=np.uint8))
        back = np.zeros(6, np.uint8)
        assert driver.read(one, back) == 6
        assert back.tolist() == [0, 1, 2, 3, 4, 5]
        assert driver.size() == 23
    world.Barrier()
    driver.close()


def resize(path: str, spec: str) -> None:
    """What was written before is cut, what is written after stays, whatever rank is first."""
    driver = fresh(path, spec)
    for _ in range(20):
        here = Extents(np.array([100 * world.rank]), np.array([100]), np.array([0]))
        driver.write(here, np.full(100, 1, np.uint8))
        driver.resize(50)
        driver.write(Extents(here.offset + 1000, here.length, here.place), np.full(100, world.rank + 2, np.uint8))
        world.Barrier()
        assert driver.size() == 1000 + 100 * world.size
        expected = np.repeat(np.arange(1, world.size + 2, dtype=np.uint8), [50] + [100] * world.size)
        found = np.fromfile(path, np.uint8)
        assert (found[:50] == 1).all()
        assert not found[50:1000].any()
        assert (found[1000:] == expected[50:]).all()
        world.Barrier()
    driver.close()


def failing(path: str, spec: str) -> None:
    """A rank that asks for nonsense raises; the others' collective call is done, and the next one works."""
    driver = fresh(path, spec)
    bad = Extents(np.array([0]), np.array([50]), np.array([0]))
    good = Extents(100 + 10 * world.rank + np.array([0, 5]), np.array([3, 3]), np.array([3, 0]))
    memory = np.arange(6, dtype=np.uint8)
    for verb in (driver.write, driver.read):
        try:
            verb(bad if world.rank == 1 else good, memory, collective=True)
        except ValueError:
            assert world.rank == 1
        else:
            assert world.rank != 1
    driver.write(good, memory, collective=True)
    back = np.zeros(6, np.uint8)
    assert driver.read(good, back, collective=True) == 6
    assert (back == memory).all()
    driver.close()


def raised(verb: Callable[[], object]) -> OSError | None:
    try:
        verb()
    except OSError as error:
        return error
    return None


def errors(path: str, spec: str) -> None:
    error = raised(lambda: open_stack(spec, path + ".none", writable=True, comm=comm))
    assert isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename) == (errno.ENOENT, path + ".none")
    fresh(path, spec).close()
    driver = open_stack(spec, path, writable=False, comm=comm)
    one = Extents(np.array([0]), np.array([1]), np.array([0]))
    error = raised(lambda: driver.write(one, np.zeros(1, np.uint8), collective=True))
    assert error is not None
    assert error.errno == errno.EBADF
    driver.close()


def full(path: str, spec: str) -> None:
    """A file size limit (RLIMIT_FSIZE) stands for a full disk: some rank's call raises OSError, and none hangs."""
    driver = fresh(path, spec)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited[1]))
    try:
        mine = Extents(60_000 * world.rank + np.array([0, 30_000]), np.array([20_000, 20_000]), np.array([0, 20_000]))
        for together in (True, False):
            error = raised(lambda together=together: driver.write(mine, np.ones(40_000, np.uint8), collective=together))
            assert error is None or (error.errno and path in str(error))
            caught = np.array([error is not None], np.int64)
            world.Allreduce(MPI.IN_PLACE, caught, op=MPI.SUM)
            assert caught[0], "the limit was met and nobody said so"
        driver.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


def unclosed(path: str, spec: str) -> None:
    """Closing after MPI has ended is quiet."""
    driver = fresh(path, spec)
    driver.write(Extents(np.array([world.rank]), np.array([1]), np.array([0])), np.ones(1, np.uint8))
    MPI.Finalize()
    driver.close()


def main(folder: str, *names: str) -> None:
    asked = {}
    for number, name in enumerate(names):
        case, _, spec = name.partition(" ")
        asked[name] = functools.partial(globals()[case], os.path.join(folder, str(number)), spec)
    if names == ("unclosed mpio",):
        # It ends MPI, after which no results can be exchanged: a job of its own, whose return code tells.
        asked[names[0]]()
    else:
        scenarios.run(asked, seconds=60)


if __name__ == "__main__":
    main(*sys.argv[1:])
