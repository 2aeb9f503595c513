"""Writers that are killed: ``python kills.py DIR FIRST LAST`` kills the programs of the seeds from FIRST to LAST.

One process that has everything imported forks a writer for each seed. The writer says on a pipe when an operation
returned; it is killed some time after a random one. Its log is replayed, sometimes by a process that is killed too, and
the file must hold what had returned, and at most one operation more.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from log_programs import Program, Run, after, complaint, mixed

import pnc_vol
from pnc_vol.log import short_posts

STEPS = 70
LARGE = 1 << 26


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """A child that does `work`, given the end of a pipe to write to; its number, and the end to read from."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        work(writing)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill_after(child: int, reading: int, acks: int, seconds: float) -> tuple[int, bool]:
    """Kill the child some time after it spoke for the `acks`-th time; how often it spoke, and whether it was alive."""
    heard = 0
    while heard < acks and (more := os.read(reading, acks - heard)):
        heard += len(more)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    while more := os.read(reading, 4096):
        heard += len(more)
    os.close(reading)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"the writer failed with {status}"
    return heard, os.WIFSIGNALED(status)


def one(folder: pathlib.Path, seed: int) -> None:
    random = np.random.default_rng([seed, 1])
    path, logs = str(folder / "x.nc"), folder / "logs"
    logs.mkdir()
    options: dict[str, object] = {
        "burst_buf": True,
        "burst_buf_dirname": str(logs) if random.integers(0, 2) else "",
        "burst_buf_flush_buffer_size": int(random.choice([0, 70_000])),
        "burst_buf_sync": str(random.choice(["none", "none", "none", "each"])),
        "burst_buf_capacity": int(random.choice([0, 0, 150_000])),
        "buffer_size": int(random.choice([LARGE, LARGE, 64 << 10])),
    }
    whole = options["buffer_size"] == LARGE and not options["burst_buf_capacity"]

    # Small posts go to the slot of the log at once, or when some came in a row.
    stretch = int(random.choice([1, 1, 3, 16]))

    def write(pipe: int) -> None:
        short_posts.STRETCH = stretch
        run, program = Run(path, options), Program(seed, cancels=whole)
        for _ in range(STEPS):
            program.step()(run)
            os.write(pipe, b".")
        run.f.close()

    done, alive = kill_after(*forked(write), int(random.integers(0, STEPS + 1)), random.exponential(0.001))
    if not os.path.exists(path):
        assert not done
        return
    options = {"burst_buf_dirname": options["burst_buf_dirname"]}
    how = int(random.integers(0, 4))
    if how == 0:
        # A replay that is killed, and another one.
        kill_after(*forked(lambda pipe: replay(path, options)), 0, random.exponential(0.01))
    if how == 1:
        with pnc_vol.File(path, "r+", recover=True, **options):
            pass
    elif how == 2:
        # Twice from a copy of the logs: the second time nothing is left to be done.
        from pnc_vol.options import resolve
        from pnc_vol.recovery.leftovers import abandoned_logs

        found = abandoned_logs(path, resolve(options))
        if found:
            sound(pnc_vol.replay(path, found))
            content = pathlib.Path(path).read_bytes()
            report = pnc_vol.replay(path, found)
            assert not report.replayed, report
            sound(report)
            assert pathlib.Path(path).read_bytes() == content
    else:
        replay(path, options)
    # Nothing is left to be warned of: warnings are errors here.
    pnc_vol.File(path, "r+", burst_buf=True, **options).close()
    before, behind = (after(seed, min(n, STEPS), cancels=whole) for n in (done, done + 1))
    wrong = complaint(path, before, behind)
    if wrong and not whole:
        wrong = mixed(path, before, behind)
    assert not wrong, f"after {done} operations (alive: {alive}): {wrong}"


def replay(path: str, options: dict[str, object]) -> None:
    sound(pnc_vol.replay(path, **options))


def sound(report: Any) -> None:
    """Nothing but the post that was under way was dropped."""
    assert report.torn <= 1, report
    assert (report.damaged, report.failed, report.uncounted) == (False, 0, 0), report


def warm_up(folder: pathlib.Path) -> None:
    """Load what a writer and a replay load: otherwise each child does."""
    folder.mkdir()
    run, program = Run(str(folder / "x.nc"), {"burst_buf": True}), Program(0)
    for _ in range(STEPS):
        program.step()(run)
    run.f.close()
    pnc_vol.replay(folder / "x.nc")
    shutil.rmtree(folder)


def main() -> None:
    folder, first, last = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("error")
    warm_up(folder / "first")
    for seed in range(first, last):
        place = folder / str(seed)
        place.mkdir()
        try:
            one(place, seed)
        except BaseException:
            print(f"seed {seed}")
            raise
        shutil.rmtree(place)
    print(f"{last - first} kills")


if __name__ == "__main__":
    main()
