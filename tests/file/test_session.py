"""An open file among processes: killed at any moment, forked, left open at the end."""

from __future__ import annotations

import os
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest
from kills import forked, kill_after

import pnc_vol
from pnc_vol.errors import ForkedFileError


def writer(path: pathlib.Path, pipe: int) -> None:
    """Says once that the file is there, then after each flush that it has returned."""
    with pnc_vol.File(path, "w", buffer_size=64 << 10) as f:
        x = f.create_dataset("x", (64, 1000), "f8")
        r = f.create_dataset("r", (0, 500), "i4", maxshape=(None, 500))
        s = f.create_dataset("s", (0,), "f8", maxshape=(None,), fillvalue=-1)
        f.attrs["turn"] = 0
        f.flush()
        os.write(pipe, b".")
        for turn in range(1, 100_000):
            x[turn % 64] = turn
            r.resize(turn, axis=0)
            s.resize(turn, axis=0)
            r[turn - 1] = turn
            s[turn - 1] = turn
            f.attrs["turn"] = turn
            if turn % 7 == 0:
                f.attrs[f"more{turn}"] = np.arange(turn * 10)
            if turn % 11 == 0:
                f.create_dataset(f"d{turn}", data=np.full(50, turn))
            f.flush()
            os.write(pipe, b".")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "x.nc"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("seed", range(30))
def test_a_killed_writer_leaves_a_file_that_is_right(path: pathlib.Path, seed: int) -> None:
    chosen = random.Random(seed)
    # Some turns, so that the file is of any size however slow the machine is, and a part of one more.
    turns, seconds = chosen.randrange(90), chosen.expovariate(1 / 0.003)
    said, alive = kill_after(*forked(lambda pipe: writer(path, pipe)), 1 + turns, seconds)
    assert alive
    flushed = said - 1
    for mode in ("r", "r+", "r"):
        with pnc_vol.File(path, mode) as f:
            turn = int(f.attrs["turn"])
            assert turn in (flushed, flushed + 1)
            n = len(f["r"])
            assert n in (turn, turn + 1)
            assert (f["r"][:turn] == np.arange(1, turn + 1)[:, None]).all()
            assert f["s"][:turn].tolist() == list(range(1, turn + 1))
            x = f["x"][:]
            for row in range(64):
                last = max((t for t in range(turn + 2) if t % 64 == row and t), default=0)
                if last == turn + 1:
                    assert set(x[row].tolist()) <= {float(last), float(max(0, last - 64))}
                else:
                    assert (x[row] == last).all()
            for t in range(11, turn + 1, 11):
                assert (f[f"d{t}"][:] == t).all()
            for t in range(7, turn + 1, 7):
                assert f.attrs[f"more{t}"].tolist() == list(range(t * 10))
    left = {entry.name.rpartition(".")[2] for entry in path.parent.iterdir() if entry != path}
    assert left <= {"pnctmp", "spill"}


# ---------------------------------------------------------------------------------------------- forks


def in_child(do: object) -> int:
    """Run a function in a forked child that ends as an interpreter does; its exit status."""
    child = os.fork()
    if not child:
        status = 1
        try:
            do()  # type: ignore[operator]
            status = 0
        finally:
            # What happens at the end of an interpreter, without pytest's own.
            import gc

            gc.collect()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_cannot_use_the_file(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        x = f.create_dataset("x", (4,), "i4")
        f.flush()
        x[0] = 7

        def use() -> None:
            for action in (
                lambda: x[0],
                lambda: x.__setitem__(1, 9),
                lambda: f.flush(),
                lambda: x.iget(0),
                lambda: f.create_dataset("y", (3,)),
            ):
                with pytest.raises(ForkedFileError, match="open it again in the child"):
                    action()
            f.close()

        assert in_child(use) == 0
        assert x[:].tolist() == [7, 0, 0, 0]
    with pnc_vol.File(path) as f:
        assert list(f) == ["x"]
        assert f["x"][:].tolist() == [7, 0, 0, 0]


def fork(path: str, publish: str) -> None:
    """A program that forks with an open file, in both processes of which the interpreter comes to its end."""
    f = pnc_vol.File(path, "w", publish=publish, buffer_size=64 << 10)
    f["x"] = np.arange(5)
    r = f.create_dataset("r", (200, 100), "f8", maxshape=(None, 100), fillvalue=1)
    for i in range(200):
        r[i] = i
    f.attrs["long"] = np.arange(3000)
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        f.close()
    else:
        left.append(f)


left: list[object] = []
"""What is open at the end of the program."""


def run(*args: object) -> None:
    """Run this module: what the end of an interpreter does is tested."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__, *map(str, args)], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("publish", ["create", "close"])
def test_the_end_of_a_forked_child_harms_nothing(path: pathlib.Path, publish: str) -> None:
    run(path, publish)
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [0, 1, 2, 3, 4]
        assert (f["r"][:] == np.arange(200)[:, None]).all()
    assert os.listdir(path.parent) == ["x.nc"]


# ------------------------------------------------------------------------------------- being closed


def test_counts(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w", buffer_size=64 << 10) as f:
        f["x"] = np.arange(20_000.0)
        f.flush()
        f["x"][5] = 1
        f.flush()
        told = f.statistics()
        assert told["flushes"] == 2
        assert told["bytes_drained"] == 160_000
        assert told["requests_written"] == 1
        assert told["bytes_written"] == 8
        assert told["driver"]["posix.write_bytes"] >= 160_008


@pytest.mark.parametrize("threads", [4])
def test_threads_of_one_file(path: pathlib.Path, threads: int) -> None:
    import threading

    with pnc_vol.File(path, "w", buffer_size=64 << 10) as f:
        x = f.create_dataset("x", (threads, 200, 50), "f8")
        r = f.create_dataset("r", (200, threads), "i4", maxshape=(None, threads), fillvalue=-1)
        failures: list[BaseException] = []

        def work(me: int) -> None:
            try:
                for i in range(200):
                    x[me, i] = me * 1000 + i
                    r[i, me] = i
                    if i % 20 == me:
                        assert (x[me, i] == me * 1000 + i).all()
                        assert r[i, me] == i
                    if i % 50 == me:
                        f.flush()
            except BaseException as error:
                failures.append(error)

        running = [threading.Thread(target=work, args=(me,)) for me in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert not failures
    with pnc_vol.File(path) as f:
        wanted = np.arange(threads)[:, None] * 1000 + np.arange(200)
        assert (f["x"][:] == wanted[..., None]).all()
        assert (f["r"][:] == np.arange(200)[:, None]).all()


if __name__ == "__main__":
    fork(*sys.argv[1:])
