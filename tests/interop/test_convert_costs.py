"""What a conversion to NetCDF writes and holds: each value once, at its place, from blocks that are reused."""

from __future__ import annotations

import pathlib
import tracemalloc

import numpy as np
import pytest

import pnc_vol
from pnc_vol.convert.hdf5 import convert
from pnc_vol.testing.faults import TraceSystem

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

NBYTES = 32 << 20


def test_values_are_written_once_and_not_held(tmp_path: pathlib.Path) -> None:
    values = np.random.default_rng(0).random((256, NBYTES // 8 // 256))
    source, target = tmp_path / "in.h5", tmp_path / "out.nc"
    with h5py.File(source, "w") as f:
        f.create_dataset("plain", data=values)
        f.create_dataset("filled", data=values, fillvalue=-1.0)
        f.create_dataset("grows", data=values[:, :9], maxshape=(None, 9), chunks=(16, 9), fillvalue=-1.0)
        f["texts"] = ["a", "longer than the others", "b"]
    convert(source, tmp_path / "first.nc")  # loads what is loaded late
    trace = TraceSystem()
    tracemalloc.start()
    convert(source, target, system=trace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    moved = sum(call.nbytes for call in trace.matching(name={"pwrite", "pwritev", "copy_range"}))
    assert 2 * NBYTES < moved < 2.02 * NBYTES + (1 << 20)
    assert peak < 16 << 20, peak
    with pnc_vol.File(target) as f:
        for name, wanted in (("plain", values), ("filled", values), ("grows", values[:, :9])):
            assert np.array_equal(f[name][...], wanted)
        assert f["texts"].asstr()[1] == "longer than the others"
        assert f["filled"].fillvalue == -1


def test_rows_of_varying_length_beside_numbers(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "in.h5", tmp_path / "out.nc"
    with h5py.File(source, "w") as f:
        rows = f.create_dataset("rows", (3,), h5py.vlen_dtype("i4"))
        rows[0], rows[2] = [1, 2, 3], [4]
        f.create_dataset("x", data=np.arange(5), fillvalue=-1)
    convert(source, target)
    with pnc_vol.File(target) as f:
        assert [row.tolist() for row in f["rows"]] == [[1, 2, 3], [], [4]]
        assert f["x"][...].tolist() == [0, 1, 2, 3, 4]


def test_numbers_in_one_piece_are_copied_without_the_hdf5_library(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.h5", tmp_path / "out.nc"
    values = np.random.default_rng(0).integers(0, 256, 3 << 20, "u1")
    stored = {kind: values[: values.size // 24 * 24].view(kind).reshape(-1, 3) for kind in ("<i2", ">u4", "<f8", "u1")}
    by_chunks = {"chunked": np.arange(5000.0), "odd": np.arange(7, dtype="i4")}
    with h5py.File(source, "w", userblock_size=1024) as f:
        for name, x in stored.items():
            f.create_dataset(name, data=x)
        f.create_dataset("chunked", data=by_chunks["chunked"], chunks=(512,))
        # as no machine has it: 24 of 32 bits
        odd = h5py.h5t.STD_I32LE.copy()
        odd.set_precision(24)
        made = h5py.h5d.create(f.id, b"odd", odd, h5py.h5s.create_simple((7,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, by_chunks["odd"])
        f.create_dataset("nothing", (4,), "f4", fillvalue=3)
    read, names = h5py.Dataset.read_direct, []
    monkeypatch.setattr(h5py.Dataset, "read_direct", lambda x, *args: (names.append(x.name), read(x, *args))[1])
    convert(source, target)
    assert set(names) == {"/chunked", "/odd", "/nothing"}
    with pnc_vol.File(target) as f:
        for name, x in (stored | by_chunks | {"nothing": np.full(4, 3, "f4")}).items():
            assert np.array_equal(f[name][...], x, equal_nan=x.dtype.kind == "f"), name
