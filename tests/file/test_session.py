"""An open file among processes: killed at any moment, forked, left open at the end."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
from other_process import fresh

import pnc_vol
from pnc_vol.errors import ForkedFileError

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
            with pnc_vol.File(path) as mine:
                assert mine != f
                assert mine["x"][:].tolist() == [0, 0, 0, 0]

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("publish", ["create", "close"])
def test_the_end_of_a_forked_child_harms_nothing(path: pathlib.Path, publish: str) -> None:
    done = fresh(fork, path, publish)
    assert (done.returncode, done.stderr) == (0, "")
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
