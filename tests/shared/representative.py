"""What programs do with files, one act after another, each looked at; run in a process of its own on some system.

    python representative.py FOLDER

Knows: the public API, processes that are killed. Does not know: what the system lacks.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pnc_vol
from pnc_vol.errors import LockedError

warnings.simplefilter("error")
warnings.filterwarnings("default", ".*the cache .* is off from here")


def killed(work: Callable[[], object]) -> None:
    """Do something in a process of its own, which is killed then."""
    pid = os.fork()
    if pid == 0:
        try:
            _kept = work()  # a file that nobody refers to is closed
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(3)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def writing(folder: Path) -> None:
    """Creation, flush, reopening, growth of a header that makes a copy of the file, durable flush."""
    path = folder / "x.nc"
    x = np.arange(600_000.0)
    with pnc_vol.File(path, "w", header_reserve=0) as f:
        f["x"] = x
        f.flush()
        r = f.create_dataset("r", (0, 5), "i4", maxshape=(None, 5))
        for k in range(30):
            r.resize(k + 1, axis=0)
            r[k] = k
            f.flush()
    with pnc_vol.File(path, "r+") as f:
        f.attrs["long"] = "text " * 5000
        f["y"] = x[::-1]
        f.flush(durable=True)
        del f["r"]
    with pnc_vol.File(path) as f:
        assert sorted(f) == ["x", "y"]
        np.testing.assert_array_equal(f["x"][:], x)
        np.testing.assert_array_equal(f["y"][:], x[::-1])


def locking(folder: Path) -> None:
    """A second process that wants to write is refused, also when the first one has opened the file twice."""
    path = folder / "locked.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = [1]
        f.flush()
        pnc_vol.File(path).close()

        def other() -> None:
            try:
                pnc_vol.File(path, "r+")
            except LockedError:
                return
            os._exit(4)

        killed(other)
    pnc_vol.File(path, "r+").close()


def log(folder: Path) -> None:
    """Posts to a log, small and large, its flush, a kill and a replay."""
    path, logs = folder / "log.nc", folder / "logs"
    logs.mkdir()
    options: dict[str, Any] = {"burst_buf": True, "burst_buf_dirname": str(logs)}

    def work() -> pnc_vol.File:
        f = pnc_vol.File(path, "w", **options)
        x = f.create_dataset("x", (200, 1000), "f8")
        for k in range(100):
            x[k] = k
        f.flush()
        for k in range(100, 200):
            x[k, :5] = k
            x[k, 5:] = k
        for k in range(2000):
            x[0, k % 1000] = -k
        return f

    killed(work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert pnc_vol.replay(path).logs == 1
    with pnc_vol.File(path) as f:
        found = f["x"][:]
    assert (found[1:] == np.arange(1, 200)[:, None]).all()
    assert found[0].tolist() == [-k for k in range(1000, 2000)]
    assert os.listdir(logs) == []


def cache(folder: Path) -> None:
    """A node-local cache, its close, a kill and its recovery."""
    path, caches = folder / "cached.nc", folder / "caches"
    caches.mkdir()
    hints = {"e10_cache": "enable", "e10_cache_path": str(caches)}
    with pnc_vol.File(path, "w", hints=hints) as f:
        x = f.create_dataset("x", (50, 1000), "f8")
        for k in range(50):
            x[k] = k
            f.flush()

    def work() -> pnc_vol.File:
        f = pnc_vol.File(path, "r+", hints=hints)
        f["x"][10] = -1
        f.flush()
        return f

    killed(work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pnc_vol.replay(path)
    with pnc_vol.File(path) as f:
        assert f["x"][:, 0].tolist() == [-1 if k == 10 else k for k in range(50)]


def publishing(folder: Path) -> None:
    """A file that gets its name at the close, in place of another one and as a new one; repacking."""
    path = folder / "published.nc"
    for value in (1, 2):
        with pnc_vol.File(path, "w", publish="close") as f:
            f["x"] = np.full(1000, value)
            f.flush(durable=True)
            if value == 2:
                with open(path, "rb") as disk, pnc_vol.File(disk) as old:
                    assert set(old["x"][:].tolist()) == {1}
    pnc_vol.repack(path)
    with pnc_vol.File(path) as f:
        assert set(f["x"][:].tolist()) == {2}
    with pnc_vol.File(folder / "new.nc", "x", publish="close") as f:
        f["x"] = [1]
    assert not [name for name in os.listdir(folder) if name.endswith(".pnctmp")]


if __name__ == "__main__":
    for act in (writing, locking, log, publishing, cache):
        act(Path(sys.argv[1]))
    print("all acts done")
