"""Every call of the system that changes a subfile fails: openings, flushes, appends and closes of a set."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damages import RECORDS, WANT, good, write

import pnc_vol
from pnc_vol.system import REAL
from pnc_vol.testing.faults import CHANGING, FaultSystem

CODES = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
WRITING = CHANGING - {"fsync", "fdatasync"}
"""What was not synced may be lost whatever comes later: no later flush makes that good, see `SyncError`."""


def put(f: Any) -> None:
    f["a"][1:3] = 7


def append(f: Any) -> None:
    f["r"].resize(RECORDS + 1, axis=0)
    f["r"][-1] = 9


def define(f: Any) -> None:
    f.create_dataset("new", (4, 6), "f8")[1:3, 2:4] = 5


def delete(f: Any) -> None:
    del f["b"]
    f.move("s", "renamed")


def wanted(*names: str) -> dict[str, Any]:
    made = dict(WANT)
    if "put" in names:
        made["a"] = np.concatenate((WANT["a"][:1], np.full((2, 6), 7.0), WANT["a"][3:]))
    if "append" in names:
        made["r"] = np.concatenate((WANT["r"], np.full((1, 4, 6), 9)))
    if "define" in names:
        made["new"] = np.zeros((4, 6))
        made["new"][1:3, 2:4] = 5
    if "delete" in names:
        del made["b"]
        made["renamed"] = made.pop("s")
    return made


def check(path: Path, want: dict[str, Any]) -> None:
    with pnc_vol.File(path) as f:
        assert set(f) == set(want)
        for name, values in want.items():
            np.testing.assert_array_equal(f[name][...], values, err_msg=name)


CHANGES = [put, append, define, delete]


@pytest.mark.parametrize("change", CHANGES)
def test_what_fails_in_a_flush_is_done_by_the_next_one(tmp_path: Path, change: Callable[[Any], None]) -> None:
    path = tmp_path / "x.nc"
    for at in range(1, 300):
        afresh(path)
        system = FaultSystem(REAL, fail_at=0, errno=CODES[at % 3], calls=WRITING)
        with pnc_vol.File(path, "r+", system=system) as f:
            change(f)
            system.fail_at = system.count + at
            try:
                f.flush()
            except OSError as error:
                told(error, path)
                f.flush()
        check(path, wanted(change.__name__))
        if not system.fired:
            assert at > 3
            return
    pytest.fail("the faults never ended")


def test_a_write_that_fails_names_its_subfile(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    afresh(path)
    system = FaultSystem(REAL, fail_at=0, errno=errno.ENOSPC, mode="forever", calls={"pwrite", "pwritev"})
    with pnc_vol.File(path, "r+", system=system) as f:
        put(f)
        system.fail_at = system.count + 1
        with pytest.raises(pnc_vol.FlushError) as caught:
            f.flush()
        system.fail_at = 0
        f.flush()
    for failure in caught.value.errors:
        assert failure.errno == errno.ENOSPC
        assert failure.variable == "/a"
        assert failure.message.endswith("(subfile x.nc.0000)") or failure.message.endswith("(subfile x.nc.0001)")
    check(path, wanted("put"))


@pytest.mark.parametrize("change", CHANGES)
def test_what_fails_in_a_close_is_whole_or_as_before(tmp_path: Path, change: Callable[[Any], None]) -> None:
    """Elements that were written stay written; definitions are those of before or after."""
    path = tmp_path / "x.nc"
    for at in range(1, 300):
        afresh(path)
        system = FaultSystem(REAL, fail_at=0, errno=CODES[at % 3], mode="forever", calls=CHANGING)
        f = pnc_vol.File(path, "r+", system=system)
        change(f)
        system.fail_at = system.count + at
        try:
            f.close()
        except OSError as error:
            told(error, path)
        if not system.fired:
            check(path, wanted(change.__name__))
            assert at > 3
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
            either(path, change.__name__)
    pytest.fail("the faults never ended")


def test_what_fails_in_an_opening_leaves_the_set(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    for at in range(1, 100):
        afresh(path)
        system = FaultSystem(REAL, fail_at=at, errno=CODES[at % 3], calls=CHANGING)
        with suppress(OSError):
            pnc_vol.File(path, "r+", system=system).close()
        check(path, wanted())
        if not system.fired:
            return
    pytest.fail("the faults never ended")


def afresh(path: Path) -> None:
    """The good set, and nothing of the last round."""
    for left in path.parent.iterdir():
        left.unlink()
    write(path, good())


def told(error: OSError, path: Path) -> None:
    """The error names a subfile, a temporary file beside it, or the set and the dataset."""
    text = f"{error} {error.filename}"
    assert path.name in text, repr(error)


def either(path: Path, name: str) -> None:
    before, after = wanted(), wanted(name)
    with pnc_vol.File(path) as f:
        assert set(f) in (set(before), set(after))
        for key in f:
            values = [want[key] for want in (before, after) if key in want]
            found = f[key][...]
            assert any(found.shape == one.shape for one in values), key
            fits = [one for one in values if one.shape == found.shape]
            assert np.logical_or.reduce([found == one for one in fits]).all(), key
