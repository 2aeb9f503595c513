"""What ranks see and rely on with a node-local cache; one program, any number of ranks, dealt to emulated nodes.

``ranks_cache.py DIR NODES``: the launcher deals the ranks to NODES groups, round-robin. Caches that hold their data
until they are asked (``flush_onclose``) stand for slow ones.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scenarios
from full_disk import Failing
from mpi4py import MPI
from scenarios import SCENARIOS, scenario

import pnc_vol as h5py
from pnc_vol.testing.faults import HookedSystem

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, NODES = sys.argv[1], int(sys.argv[2])
NODE = RANK % NODES
SLOW = {"e10_cache_flush_flag": "flush_onclose"}
DRIVERS = ("mpio", "posix")


def name(case: str, driver: str) -> str:
    return os.path.join(FOLDER, f"{case}-{driver}-{SIZE}-{NODES}.nc")


OPTIONS = {"driver", "layout", "transport", "buffer_size", "publish", "system"}


def opened(case: str, driver: str, mode: str = "w", **given: Any) -> h5py.File:
    """`given` are options of `File`, and hints."""
    nvm = os.path.join(FOLDER, f"nvm{NODE}")
    os.makedirs(nvm, exist_ok=True)
    hints = {"e10_cache_path": nvm} | {key: value for key, value in given.items() if key not in OPTIONS}
    options = {key: value for key, value in given.items() if key in OPTIONS}
    path = name(case, driver)
    return h5py.File(path, mode, comm=WORLD, driver=driver, hints=hints, collective_timeout=15, **options)


def in_file(path: str) -> dict[str, Any]:
    """What another program finds in the file."""
    with open(path, "rb") as disk, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with h5py.File(disk) as f:
            return {key: f[key][...].tolist() for key in f}


def seen_by_all(path: str) -> dict[str, Any]:
    """The same, before any rank goes on."""
    found = in_file(path)
    WORLD.Barrier()
    return found


def raises(kind: type[BaseException], call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


# -------------------------------------------------------------------------------------- the table of promises


@scenario
def posted_is_seen_by_its_own_rank(driver: str) -> None:
    with opened("posted", driver, **SLOW) as f:
        x = f.create_dataset("x", (SIZE,), "i4")
        f.flush()
        x[RANK] = RANK + 1
        assert x[RANK] == RANK + 1
        assert seen_by_all(f.filename) == {}


@scenario
def flushed_is_seen_on_its_node_and_refused_to_others(driver: str) -> None:
    with opened("flushed", driver, **SLOW) as f:
        x = f.create_dataset("x", (SIZE, 4), "i4")
        x[RANK] = RANK + 1
        f.flush()
        assert x[RANK].tolist() == [RANK + 1] * 4
        for other in range(SIZE):
            if other % NODES == NODE:
                assert x[other].tolist() == [other + 1] * 4, "a cache of this node has it"
            else:
                error = raises(h5py.NotSyncedError, lambda other=other: x[other])
                assert "f.sync()" in str(error)
                assert "collective" in str(error)
                assert "coherent" in str(error)


@scenario
def a_new_reader_sees_an_earlier_epoch(driver: str) -> None:
    with opened("reader", driver, **SLOW) as f:
        r = f.create_dataset("r", (1, SIZE), "i4", maxshape=(None, SIZE))
        r[0, RANK] = 7
        f.flush()
        assert seen_by_all(f.filename) == {}
        f.sync()
        assert seen_by_all(f.filename) == {"r": [[7] * SIZE]}
        r.resize(2, axis=0)
        r[1, RANK] = 8
        f.flush()
        assert seen_by_all(f.filename) == {"r": [[7] * SIZE]}, "the header counts no record that is not there"
        WORLD.Barrier()
        f.sync()
        assert seen_by_all(f.filename) == {"r": [[7] * SIZE, [8] * SIZE]}


@scenario
def synced_is_seen_by_all(driver: str) -> None:
    with opened("synced", driver, **SLOW) as f:
        x = f.create_dataset("x", (SIZE,), "i4")
        x[RANK] = RANK
        f.sync()
        assert x[...].tolist() == list(range(SIZE))
        assert seen_by_all(f.filename) == {"x": list(range(SIZE))}


@scenario
def a_collective_read_synchronises(driver: str) -> None:
    with opened("collective", driver, **SLOW) as f:
        x = f.create_dataset("x", (SIZE,), "i4")
        x[RANK] = RANK
        f.flush()
        with x.collective:
            assert x[...].tolist() == list(range(SIZE))
        assert x[...].tolist() == list(range(SIZE)), "from now on alone, too"
        assert seen_by_all(f.filename) == {"x": list(range(SIZE))}, "the header followed"


@scenario
def a_durable_flush_brings_all_to_the_file(driver: str) -> None:
    with opened("durable", driver, **SLOW) as f:
        f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
        f.flush(durable=True)
        assert f["x"][...].tolist() == list(range(SIZE))
        assert seen_by_all(f.filename) == {"x": list(range(SIZE))}


@scenario
def closed_is_in_the_file(driver: str) -> None:
    with opened("closed", driver, **SLOW) as f:
        f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    assert seen_by_all(name("closed", driver)) == {"x": list(range(SIZE))}
    assert [left for left in os.listdir(os.path.join(FOLDER, f"nvm{NODE}")) if "closed" in left] == []


@scenario
def the_header_follows_at_the_next_call(driver: str) -> None:
    with opened("follows", driver) as f:
        x = f.create_dataset("x", (SIZE,), "i4")
        x[RANK] = RANK
        f.flush()
        end = time.monotonic() + 10
        found: dict[str, Any] = {}
        while WORLD.allreduce(not found, MPI.LOR):
            assert time.monotonic() < end
            time.sleep(0.01)
            f.flush()
            found = in_file(f.filename)
        assert found == {"x": list(range(SIZE))}
        assert x[...].tolist() == list(range(SIZE)), "and all nodes read it"


@scenario
def the_later_epoch_wins_between_ranks(driver: str) -> None:
    """Also where posts are more than the memory for them."""
    for size in (64 << 20, 64 << 10):
        with opened(f"later{size}", driver, buffer_size=size, **SLOW) as f:
            x = f.create_dataset("x", (SIZE, 60_000), "i4")
            x[RANK] = -1
            f.flush()
            for step in range(3):
                mine = (RANK + step) % SIZE
                for at in range(0, 60_000, 10_000):
                    x[mine, at : at + 10_000] = 10 * step + mine
                f.flush()
            f.sync()
            assert [set(row) for row in x[...].tolist()] == [{20 + rank} for rank in range(SIZE)]
        found = seen_by_all(name(f"later{size}", driver))["x"]
        assert [set(row) for row in found] == [{20 + rank} for rank in range(SIZE)]


class SlowTo(HookedSystem):
    """Copies to the global file take a while."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "copy_range" or (name == "pwrite" and len(args[1]) == 4000):
            time.sleep(0.1)
        return super().call(name, args, kwargs)


def coherent(case: str, driver: str, system: HookedSystem) -> h5py.File:
    """A file whose readers wait; it says that data are carried at once, whatever is asked for."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        f = opened(case, driver, system=system, e10_cache="coherent", **SLOW)
    told = [str(one.message) for one in shown if "flush_immediate" in str(one.message)]
    assert len(told) == (SIZE > 1 and RANK == 0), told
    assert f.hints["e10_cache_flush_flag"] == ("flush_immediate" if SIZE > 1 else "flush_onclose")
    return f


@scenario
def a_coherent_read_waits_for_other_ranks(driver: str) -> None:
    with coherent("waits", driver, SlowTo()) as f:
        x = f.create_dataset("x", (SIZE, 1000), "i4")
        f.sync()
        for step in range(3):
            x[RANK] = 10 * step + RANK
            f.flush()
            for other in range(SIZE):
                assert set(x[other].tolist()) == {10 * step + other}
            WORLD.Barrier()
    assert seen_by_all(name("waits", driver)) == {"x": [[20 + rank] * 1000 for rank in range(SIZE)]}


@scenario
def a_coherent_read_waits_for_a_rank_no_longer_than_the_time_limit(driver: str) -> None:
    last = SIZE - 1
    system = Failing(f"{os.sep}limit-{driver}")
    with coherent("limit", driver, system) as f:
        x = f.create_dataset("x", (SIZE, 1000), "i4")
        f.sync()
        WORLD.Barrier()
        system.error = errno.EIO if last == RANK else 0
        x[RANK] = RANK
        f.flush()
        if last != RANK:
            # as if collective_timeout= had been this short
            f.id.check().disk.driver._bytes.locks._limit = 0.3
            assert "locked by another process" in str(raises(TimeoutError, lambda: x[last]))
        WORLD.Barrier()
        system.error = 0
        f.sync()
        assert x[last].tolist() == [last] * 1000


# ------------------------------------------------------------------------------------------ changes of the layout


@scenario
def a_file_that_appears_at_the_close(driver: str) -> None:
    path = name("publish", driver)
    with opened("publish", driver, publish="close") as f:
        f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
        f.flush()
        assert not os.path.exists(path)
        f.sync()
        assert not os.path.exists(path)
    assert seen_by_all(path) == {"x": list(range(SIZE))}


# --------------------------------------------------------------------------------------------- trouble and words


@scenario
def a_directory_that_one_rank_lacks_turns_the_cache_off(driver: str) -> None:
    last = SIZE - 1
    where = {"e10_cache_path": os.path.join(FOLDER, "missing")} if last == RANK else {}
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        f = opened("lacks", driver, **where)
    told = [str(one.message) for one in shown if "cache" in str(one.message)]
    assert len(told) == (RANK == 0), told
    if RANK == 0:
        assert "missing" in told[0], told
        assert SIZE == 1 or f"on rank {last}" in told[0], told
    with f:
        assert f.hints["e10_cache"] == "disable"
        f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
        f.flush()
        assert seen_by_all(f.filename) == {"x": list(range(SIZE))}


@scenario
def a_device_that_is_full_on_one_rank_turns_the_cache_off(driver: str) -> None:
    last = SIZE - 1
    system = Failing("pnccache-")
    with opened("full", driver, system=system, **SLOW) as f:
        x = f.create_dataset("x", (SIZE, 100), "i4")
        x[RANK] = RANK
        f.flush()
        assert f.hints["e10_cache"] == "enable"
        system.error = errno.ENOSPC if last == RANK else 0
        x[RANK, :50] = RANK + 10
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            f.flush()
        told = [str(one.message) for one in shown if "No space left" in str(one.message)]
        assert len(told) == (RANK == 0), told
        assert f.hints["e10_cache"] == "disable"
        found = seen_by_all(f.filename)["x"]
        assert found == [[rank + 10] * 50 + [rank] * 50 for rank in range(SIZE)]
        x[RANK] = -1
    assert seen_by_all(name("full", driver)) == {"x": [[-1] * 100] * SIZE}


@scenario
def an_error_of_a_thread_is_raised_on_all_ranks(driver: str) -> None:
    last = SIZE - 1
    system = Failing(f"error-{driver}")
    with opened("error", driver, system=system, **SLOW) as f:
        x = f.create_dataset("x", (SIZE, 100), "i4")
        f.sync()
        x[RANK] = RANK
        f.flush()
        WORLD.Barrier()
        system.error = errno.EIO if last == RANK else 0
        error = raises(h5py.FlushError, f.sync)
        (failure,) = error.errors
        assert (failure.rank, failure.variable, failure.errno) == (last, "/x", errno.EIO)
        assert f"nvm{last % NODES}" in failure.message
        system.error = 0
        f.sync()
        assert seen_by_all(f.filename) == {"x": [[rank] * 100 for rank in range(SIZE)]}


@scenario
def a_wrong_word_on_one_rank_is_an_error_on_all(driver: str) -> None:
    word = "sometimes" if RANK == 0 else "enable"
    error = raises(ValueError, lambda: opened("word", driver, e10_cache=word))
    assert "e10_cache" in str(error)
    assert "coherent" in str(error)
    assert not os.path.exists(name("word", driver))


FLAGS = ("flush_immediate", "flush_onclose", "flush_none")


@scenario
def a_rank_reads_what_it_wrote(driver: str) -> None:
    for flag, transport in itertools.product(FLAGS, ("auto", "aggregate")):
        with opened(f"own-{flag}-{transport}", driver, transport=transport, e10_cache_flush_flag=flag) as f:
            x = f.create_dataset("x", (700, SIZE), "i4")
            for k in range(3):
                x[:, RANK] = k
                f.flush()
                for wait in (0, 0.01):
                    # Some of it may be in the file by then, while other nodes hold some back.
                    time.sleep(wait)
                    assert (x[:, RANK] == k).all()
            f.sync()
            assert (x[...] == 2).all()


@scenario
def what_another_node_wrote_later_is_refused(driver: str) -> None:
    with opened("later", driver, **SLOW) as f:
        x, y = (f.create_dataset(key, (SIZE, 4), "i4") for key in "xy")
        x[RANK] = y[RANK] = 1
        f.flush()
        other = (RANK + 1) % SIZE
        x[other] = 2
        f.flush()
        assert x[other].tolist() == [2] * 4
        assert y[RANK].tolist() == [1] * 4
        if (RANK - 1) % SIZE % NODES != NODE:
            raises(h5py.NotSyncedError, lambda: x[RANK])
        f.sync()
        assert x[...].tolist() == [[2] * 4] * SIZE


@scenario
def small_pieces_do_not_cross_nodes(driver: str) -> None:
    """Pieces of all ranks in turn, and holes between them that a later flush of another node fills."""
    want = np.full(20_000, -1)
    with opened("pieces", driver, transport="aggregate") as f:
        x = f.create_dataset("x", want.shape, "i4", fillvalue=-1)
        for step in range(6):
            for rank in range(SIZE):
                of = np.arange(rank + SIZE * (step % 3), len(want), SIZE * 4 + step)
                if rank == RANK:
                    x[of] = of + 10 * step + rank
                want[of] = of + 10 * step + rank
            f.flush()
        f.sync()
        assert (x[...] == want).all()
    WORLD.Barrier()
    assert in_file(name("pieces", driver))["x"] == want.tolist()


@scenario
def a_blob_set_is_flushed_and_read(driver: str) -> None:
    for flag in FLAGS:
        with opened(f"blob-{flag}", driver, layout="blob", e10_cache_flush_flag=flag) as f:
            big = f.create_dataset("big", (SIZE * 9, 50), "f8")
            plain = f.create_dataset("plain", (SIZE,), "i4", maxshape=(SIZE,), fillvalue=-1)
            steps = f.create_dataset("steps", (0, 3), "i4", maxshape=(None, 3))
            other = (RANK + 1) % SIZE
            for k in range(3):
                steps.resize(k + 1, axis=0)
                big[RANK * 9 : RANK * 9 + 9], steps[k] = k, k
                plain[...] = k
                f.flush()
                assert (big[RANK * 9 : RANK * 9 + 9] == k).all()
                assert plain[...].tolist() == [k] * SIZE, "it is in the file after each flush"
                assert steps[k].tolist() == [k] * 3
                big[other * 9 : other * 9 + 9] = 10 + k
                f.flush()
                assert (big[other * 9 : other * 9 + 9] == 10 + k).all(), "the later flush wins"
            if flag != "flush_none":
                f.sync()
                assert (big[...] == 12).all()
        WORLD.Barrier()
        if flag != "flush_none" and RANK == 0:
            with h5py.File(name(f"blob-{flag}", driver)) as f:
                assert (f["big"][...] == 12).all()
                assert f["plain"][...].tolist() == [2] * SIZE
                assert f["steps"][...].tolist() == [[0] * 3, [1] * 3, [2] * 3]


@scenario
def what_was_flushed_is_in_the_file_after_an_exception(driver: str) -> None:
    for flag, layout, alone in itertools.product(FLAGS[:2], ("", "blob"), (False, True)):
        case = f"left-{flag}-{layout}-{alone}"
        try:
            with opened(case, driver, layout=layout, e10_cache_flush_flag=flag) as f:
                f.create_dataset("x", (SIZE * 20, 50), "f8")[RANK * 20 : RANK * 20 + 20] = RANK + 1
                f.flush()
                r = f.create_dataset("r", (2, SIZE), "i4", maxshape=(None, SIZE))
                r[:, RANK] = RANK
                f.flush()
                f["x"][RANK * 20] = 99
                if not alone or RANK == SIZE - 1:
                    raise ZeroDivisionError("after the flush")
                f.flush()
        except (ZeroDivisionError, h5py.RankError):
            pass
        WORLD.Barrier()
        with h5py.File(name(case, driver)) as f:
            if SIZE > 1:
                assert (f["x"][...] == np.repeat(np.arange(SIZE) + 1, 20)[:, None]).all()
            assert f["r"][...].tolist() == [list(range(SIZE))] * 2
        left = [one for node in range(NODES) for one in os.listdir(os.path.join(FOLDER, f"nvm{node}")) if case in one]
        assert not left, "no cache stays"
        WORLD.Barrier()


@scenario
def data_that_stay_behind_are_named(driver: str) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with opened("none", driver, e10_cache_flush_flag="flush_none") as f:
            f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
            f.flush()
    assert [one for one in shown if "flush_none" in str(one.message)]
    assert seen_by_all(name("none", driver)) == {}, "the file is valid, and of an earlier epoch"
    with opened("none", driver, e10_cache_flush_flag="flush_none") as f:
        f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
        f.sync()
        assert seen_by_all(f.filename) == {"x": list(range(SIZE))}


if __name__ == "__main__":
    only = sys.argv[3:]
    scenarios.run(
        {
            f"{key} {driver}": (lambda one=one, driver=driver: one(driver))
            for key, one in SCENARIOS.items()
            for driver in DRIVERS
            if not only or key in only
        }
    )
