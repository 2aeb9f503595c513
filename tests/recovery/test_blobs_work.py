"""The work that views and replays of blobs do: headers decoded, ranges read, memory taken."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e3sm_reference import NETCDF_BLOBS, content

import pnc_vol
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.file.reads import gathered
from pnc_vol.format.decode import Reader
from pnc_vol.recovery import gathering


@pytest.fixture
def c_set(tmp_path: Path) -> Path:
    """The set of two subfiles that the C program wrote, of 16 ranks."""
    for name in NETCDF_BLOBS:
        (tmp_path / name).write_bytes(content(name))
    return tmp_path / NETCDF_BLOBS[0][:-5]


def counted(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """The calls of a function, from now on."""
    calls: list[Any] = []
    inner = getattr(owner, name)

    def outer(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return inner(*args, **options)

    patch.setattr(owner, name, outer)
    return calls


def test_an_opening_decodes_each_header_once_and_shared_attributes_once(
    c_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = counted(monkeypatch, Reader, "variables")
    attributes = counted(monkeypatch, Reader, "attributes")
    with pnc_vol.File(c_set) as f:
        variables = len(list(f))
    assert len(headers) == 2
    # of the second header only the global ones
    assert len(attributes) <= 15 + variables + 2


def test_a_header_that_is_longer_than_the_first_read_is_not_decoded_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "many.nc"
    with pnc_vol.File(path, "w") as f:
        for i in range(1000):
            f.create_dataset(f"v{i}", (2,), "i4").attrs["about"] = f"{i} " * 20
    attributes = counted(monkeypatch, Reader, "attributes")
    with pnc_vol.File(path) as f:
        assert f["v999"].attrs["about"] == "999 " * 20
    assert len(attributes) < 1100


def test_a_whole_variable_is_one_range_of_each_subfile(c_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pnc_vol.File(c_set) as f:
        first = f["U"][...]
        orders = counted(monkeypatch, gathered, "order_of")
        ranges = counted(monkeypatch, PosixDriver, "read_one") + counted(monkeypatch, PosixDriver, "read")
        np.testing.assert_array_equal(f["U"][...], first)
        monkeypatch.undo()
    # the order of the map is known, and each record is two ranges
    assert orders == []
    assert len(ranges) <= 2 * len(first)


def test_a_replay_finds_an_order_once_for_each_map(
    c_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pnc_vol.File(c_set) as f:
        plain = sum(f[name].ndim < 2 or f[name].shape[-1] != 866 for name in f)
    orders = counted(monkeypatch, gathering, "order_of")
    reads, writes = counted(monkeypatch, PosixDriver, "_read"), counted(monkeypatch, PosixDriver, "_write")
    out = tmp_path / "whole.nc"
    report = pnc_vol.replay(c_set, output=out)
    assert len(orders) <= len(report.maps) + plain
    # a block of each subfile, and five variables of each map; not one for each of thousands of pieces
    assert len(reads) <= 2 * (1 + 5 * len(report.maps)) + 2 * (1 + out.stat().st_size // (64 << 10))
    assert len(writes) <= 2 + out.stat().st_size // (64 << 10)


@pytest.mark.parametrize("budget", [1 << 18, 1 << 20])
def test_a_replay_stays_within_its_budget(tmp_path: Path, budget: int) -> None:
    """Scattered elements of a variable that is larger than the budget, of which the index alone would be, too."""
    base, n = tmp_path / "large.nc", 1 << 18
    own = pnc_vol.Decomposition.from_runs(np.arange(0, n, 512), np.full(n // 512, 511), shape=(n,))
    with pnc_vol.File(base, "w", layout="blob") as f:
        for name in ("a", "b", "c"):
            f.create_dataset(name, (n,), "f8", decomposition=own)
            f[name].iput(own, np.full(n // 512 * 511, 1.5))
    view = pnc_vol.File(base)
    taken: list[int] = []
    copy = gathering.copy

    def measured(*args: Any) -> int:
        tracemalloc.start()
        try:
            return copy(*args)
        finally:
            taken.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pnc_vol.recovery.blobs.copy", measured)
        pnc_vol.replay(base, output=tmp_path / "whole.nc", buffer_size=budget)
    view.close()
    assert taken[0] <= 1.25 * budget + (64 << 10), taken
    with pnc_vol.File(tmp_path / "whole.nc") as f:
        assert f["c"][...].sum() == 1.5 * (n // 512) * 511
