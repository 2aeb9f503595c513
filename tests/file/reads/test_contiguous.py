"""Reads of one run, done and posted, against numpy; and of files that get shorter meanwhile."""

from __future__ import annotations

import os
import pathlib
import tracemalloc
import warnings

import numpy as np
import pytest
from kills import forked, kill_after

import pnc_vol
from pnc_vol.errors import ShortFileError


def values(shape, dtype):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("size", [100_000, 3_000_001])
def test_large_runs(path, size):
    wanted = np.random.default_rng(0).random(size)
    with pnc_vol.File(path, "w") as f:
        f["x"] = wanted
    with pnc_vol.File(path) as f:
        assert np.array_equal(f["x"][...], wanted)
        assert np.array_equal(f["x"][7:-5], wanted[7:-5])
        halves = [f["x"].iget(slice(0, size // 2)), f["x"].iget(slice(size // 2, None))]
        f.wait_all()
        assert np.array_equal(np.concatenate([half.array for half in halves]), wanted)


def test_posted_reads_have_no_arrays_until_these_are_asked_for(path):
    wanted = np.random.default_rng(0).random((200, 4096))
    with pnc_vol.File(path, "w") as f:
        f["x"] = wanted
    with pnc_vol.File(path) as f:
        f["x"].iget(0).wait()
        tracemalloc.start()
        requests = [f["x"].iget(i) for i in range(200)]
        assert tracemalloc.get_traced_memory()[1] < wanted.nbytes // 10
        tracemalloc.stop()
        early = requests[3].array
        assert list(f.requests.values()) == requests
        f.wait_all()
        assert requests[3].array is early
        for request, row in zip(requests, wanted, strict=True):
            assert np.array_equal(request.array, row)
            assert request.array is request.array
        requests[5].array[:] = 0
        assert np.array_equal(requests[6].array, wanted[6]), "arrays of two requests are two"


def test_a_short_file_reads_as_the_fill_value_or_is_an_error(path):
    with pnc_vol.File(path, "w") as f:
        f["x"] = values((200, 4096), "f8") + 1
    os.truncate(path, os.path.getsize(path) - 4096 * 8 - 8)
    for strict in (False, True):
        with pytest.warns(pnc_vol.errors.ShortFileWarning) as caught:
            f = pnc_vol.File(path, strict=strict)
        assert caught[0].filename == __file__
        with f:
            ds = f["x"]
            assert ds[197].tolist() == (np.arange(4096) + 197 * 4096 + 1).tolist()
            for index in (
                199,
                (slice(None), 4095),
                (slice(None, None, 3), slice(None, None, 5)),
                slice(100, None),
                ...,
            ):
                if strict:
                    with pytest.raises(ShortFileError):
                        ds[index]
                    with pytest.raises(ShortFileError):
                        ds.iget(index).wait()
                    f.cancel()
                else:
                    expected = values((200, 4096), "f8") + 1
                    expected.reshape(-1)[-4097:] = 0
                    assert np.array_equal(ds[index], expected[index])
                    assert np.array_equal(ds.iget(index).wait(), expected[index])


def test_a_file_that_is_cut_while_it_is_read_ends_no_process(path):
    """Another process cuts the file and puts it back; what is read is the data, or zeros, and all go on."""
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.ones((1000, 512))

    def cut(pipe: int) -> None:
        content = pathlib.Path(path).read_bytes()
        fd = os.open(path, os.O_RDWR)
        os.write(pipe, b".")
        while True:
            os.ftruncate(fd, 8192)
            os.pwrite(fd, content[8192:], 8192)

    def read(pipe: int) -> None:
        warnings.simplefilter("ignore")
        with pnc_vol.File(path) as f:
            ds = f["x"]
            for i in range(150):
                for index in ((slice(None), i), (slice(None, None, 7), slice(None, None, 3)), ..., [1, 5, 999], i):
                    assert np.isin(ds[index], (0, 1)).all()

    cutter, ready = forked(cut)
    try:
        assert os.read(ready, 1) == b"."
        reader, _ = forked(read)
        assert os.waitpid(reader, 0)[1] == 0
    finally:
        kill_after(cutter, ready, 0, 0)


def test_a_read_beside_posts_takes_the_memory_of_its_result(path):
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.ones((400, 4000))
    with pnc_vol.File(path, "r+") as f:
        x = f["x"]
        x[5, 5] = 2
        x[:2, :3000]
        tracemalloc.start()
        found = x[:, :3000]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.sum() == found.size + 1
        assert peak < 1.3 * found.nbytes


@pytest.mark.parametrize(
    "index",
    [
        np.s_[:, 3, 5],
        np.s_[:, 3],
        np.s_[7:290, 2:6],
        np.s_[5, 1:15, 2:4],
        np.s_[-40:, 15, 1:8],
        np.s_[3:5, 0, 0],
        np.s_[9, :, 7],
    ],
)
@pytest.mark.parametrize("grows", [False, True])
def test_runs_at_equal_distances_are_one_look_or_one_call(path, index, grows):
    wanted = values((300, 16, 8), "i4")
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("other", data=values((300, 3), "i2"), maxshape=(None if grows else 300, 3))
        f.create_dataset("x", data=wanted, maxshape=(None if grows else 300, 16, 8))
    with pnc_vol.File(path) as f:
        x = f["x"]
        assert np.array_equal(x[index], wanted[index])
        before = f.statistics()["driver"]["posix.read_calls"]
        got = x[index]
        assert f.statistics()["driver"]["posix.read_calls"] == before + 1
        assert np.array_equal(got, wanted[index])
        assert got.dtype == wanted.dtype
        assert got.flags.c_contiguous
        # records, or bytes, that are not there any more
        os.truncate(path, 1000)
        assert not x[-1:, 15].any()
        assert not x[:, 15, 7][100:].any()


def test_a_mask_that_selects_nothing_of_a_dataset_that_grows(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        x = f.create_dataset("x", (2,), "i1", maxshape=(None,))
        f.flush()
        nothing = np.array([False, False])
        x[nothing] = []
        assert x[nothing].shape == (0,)
