"""Reads into an array of the caller: what it holds afterwards, and that no second one is made."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import pnc_vol

WANTED = np.arange(6 * 5 * 4).reshape(6, 5, 4)
SOURCES = [
    np.s_[...], np.s_[2], np.s_[1:5], np.s_[:, 2], np.s_[::2, 1:4], np.s_[3, 2, 1], np.s_[1:3, :, 0], [0, 3, 5],
    (slice(None), [1, 4]), WANTED % 3 == 0, np.s_[2:2],
]  # fmt: skip


@pytest.fixture(params=["flushed", "posted", "records"])
def dataset(request, tmp_path):
    with pnc_vol.File(tmp_path / "direct.nc", "w") as f:
        x = f.create_dataset("x", WANTED.shape, "f4", maxshape=(None, 5, 4) if request.param == "records" else None)
        f.create_dataset("between", (6,), "i2", maxshape=(None,))
        x[...] = WANTED
        f.flush()
        if request.param == "posted":
            x[2:4, 1] = WANTED[2:4, 1]
        yield x


@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "f8", "i2"])
@pytest.mark.parametrize("how", ["whole", "part", "strided", "listed", "fortran"])
def test_the_array_holds_what_the_index_selects(dataset, source, dtype, how):
    wanted = WANTED[source]
    if how == "whole":
        dest, where = np.zeros(wanted.shape, dtype), ()
    elif how == "fortran":
        dest, where = np.zeros(wanted.shape, dtype, order="F"), ()
    else:
        dest = np.zeros((9, *wanted.shape), dtype)
        where = {"part": np.s_[4], "strided": np.s_[4:5], "listed": np.s_[[4]]}[how]
    dataset.read_direct(dest, source, where)
    assert np.array_equal(np.squeeze(dest[where]), np.squeeze(wanted))
    if how not in ("whole", "fortran"):
        dest[where] = 0
        assert not dest.any(), "and nothing beside it"


def test_it_takes_no_memory_besides(tmp_path):
    values = np.random.default_rng(0).random(4 << 20)
    with pnc_vol.File(tmp_path / "large.nc", "w") as f:
        f["x"], f["y"] = values, values.reshape(2048, -1)
    dest = np.zeros_like(values)
    with pnc_vol.File(tmp_path / "large.nc") as f:
        for source, wanted in ((f["x"], values), (f["y"], values.reshape(2048, -1)[:, ::2])):
            index = np.s_[...] if wanted.ndim == 1 else np.s_[:, ::2]
            into = dest[: wanted.size].reshape(wanted.shape)
            tracemalloc.start()
            source.read_direct(into, index)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert np.array_equal(into, wanted)
            # Of 32 and 16 MiB two threads have a block each where the file is not read through a mapping, as on tmpfs.
            assert peak < 5 << 19, peak


def test_masked_arrays_and_numbers_are_not_read_into(tmp_path):
    with pnc_vol.File(tmp_path / "m.nc", "w") as f:
        x = f.create_dataset("x", data=np.arange(4.0))
        f.flush()
        masked = np.ma.masked_all(4)
        x.read_direct(masked)
        assert masked.tolist() == [0, 1, 2, 3]
        dest = np.zeros((2, 2))
        x.read_direct(dest, 3, (1, 0))
        assert dest.tolist() == [[0, 0], [3, 0]]
