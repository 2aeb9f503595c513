"""However much is posted, memory holds the budget and a little.

Each case runs in a process of its own, which compares its peak with what it had before the file was opened.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np
import pytest
from other_process import fresh, status

import pnc_vol

MIB = 1 << 20
SLACK = 64 * MIB


# Each writes 20 budgets, and says whether what is read back is right.


def many_small(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 64, 8), "f8")
    value = np.arange(8.0)
    for i in range(0, len(x), 1):
        x[i] = value
    f.flush()
    return x[12345 % len(x)].tolist() == value.tolist()


def rows(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // (128 << 10), 128, 128), "f8")
    row = np.arange(128.0 * 128).reshape(128, 128)
    for i in range(len(x)):
        row[0, 0] = i
        x[i] = row
    f.flush()
    return x[7, 0, 0] == 7 and x[len(x) - 1, 0, 0] == len(x) - 1


def huge(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 8,), "f8")
    x[:] = np.broadcast_to(np.float64(3), x.shape)
    f.flush()
    return x[total // 9] == 3


def huge_strided(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 8, 2), "f8")
    x[:, 1] = np.broadcast_to(np.float64(3), (len(x),))
    f.flush()
    return x[total // 9].tolist() == [0, 3]


def foreign(f: Any, total: int, budget: int) -> Any:
    source = np.lib.stride_tricks.as_strided(np.arange(2048.0), (total // 8192, 1024), (0, 16))
    x = f.create_dataset("x", source.shape, "f8")
    x[:] = source
    f.flush()
    return (x[len(x) - 1] == source[0]).all()


def records(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (0, 1000), "f8", maxshape=(None, 1000))
    y = f.create_dataset("y", (0, 50), "i4", maxshape=(None, 50), fillvalue=4)
    row = np.arange(1000.0)
    n = total // 10000
    for i in range(n):
        x.resize(i + 1, axis=0)
        y.resize(i + 1, axis=0)
        x[i], y[i, ::2] = row, i
    f.flush()
    return (x[n - 1] == row).all() and y[n - 1, :2].tolist() == [n - 1, 4]


def huge_records(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 8000, 1000), "f8", maxshape=(None, 1000))
    x[:] = np.broadcast_to(np.arange(1000.0), x.shape)
    f.flush()
    return (x[len(x) - 1] == np.arange(1000.0)).all()


def texts(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 100,), pnc_vol.string_dtype())
    for i in range(0, len(x) - 1000, 1000):
        x[i : i + 1000] = "text" * (5 + (i > len(x) // 2) * 20)
    f.flush()
    return x[0] == b"text" * 5 and x[len(x) - 1500] == b"text" * 25


def lists(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 8,), "f8")
    chosen = np.arange(0, len(x), 2 * len(x) // budget * 8 + 3)
    for i in range(20):
        x[chosen + i % 3] = float(i)
    f.flush()
    return x[int(chosen[5]) + 1] == 19


def filled(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 8,), "f8", fillvalue=2.5)
    x[5] = 1
    f.flush()
    return x[4:7].tolist() == [2.5, 1, 2.5]


def moved(f: Any, total: int, budget: int) -> Any:
    x = f.create_dataset("x", (total // 8,), "f8")
    x[:] = np.broadcast_to(np.float64(3), x.shape)
    f.flush()
    f.attrs["long"] = np.arange(MIB)
    f.flush()
    return x[total // 9] == 3


def measured(path: str, budget: str, case: str) -> None:
    """In a process of its own."""
    with pnc_vol.File(path + "0", "w", buffer_size=64 << 10) as warm:
        warm.create_dataset("x", data=np.arange(20000.0))
    before = status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    with pnc_vol.File(path, "w", buffer_size=int(budget)) as f:
        right = bool(globals()[case](f, 20 * int(budget), int(budget)))
    print(json.dumps({"right": right, "grown": status("VmHWM") - before}))


CASES = {
    "many_small": 1, "rows": 8, "huge": 8, "huge_strided": 1, "foreign": 8, "records": 4, "huge_records": 8,
    "texts": 8, "lists": 1, "filled": 8, "moved": 8,
}  # fmt: skip
"""The budget of each in MiB: less where every element is a system call."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc, which only Linux has")
@pytest.mark.parametrize(("case", "mib"), [*CASES.items(), ("rows", 64)])
def test_peak_memory(case: str, mib: int, tmp_path: pathlib.Path) -> None:
    """64 MiB is the default budget."""
    done = fresh(measured, tmp_path / "x.nc", mib * MIB, case, seconds=250)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["right"]
    assert told["grown"] <= mib * MIB + SLACK, f"{case}: {told['grown'] / MIB:.0f} MiB with a budget of {mib} MiB"
