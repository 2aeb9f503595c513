"""Posted reads in columns: what each of them gives, in whatever order they are completed, and what they cost."""

from __future__ import annotations

import errno
import gc
import pathlib
from typing import Any

import numpy as np
import pytest
from counted_work import calls_of

import pnc_vol
from pnc_vol.testing.faults import FaultSystem

N = 400


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    name = str(tmp_path / "file.nc")
    with pnc_vol.File(name, "w") as f:
        f["x"] = np.arange(N * 8.0).reshape(N, 8)
        f["y"] = np.arange(N, dtype="i2")
        f.create_dataset("r", data=np.arange(N * 3, dtype="f4").reshape(N, 3), maxshape=(None, 3))
        f.create_dataset("s", data=-np.arange(N, dtype="i8"), maxshape=(None,))
    return name


def places(f: pnc_vol.File) -> list[tuple[Any, Any]]:
    """Datasets and indices of all kinds, in no order."""
    made = [(f["x"], i) for i in range(N)] + [(f["y"], slice(i, i + 3)) for i in range(0, N - 3, 2)]
    made += [(f["r"], i) for i in range(0, N, 3)] + [(f["s"], slice(i, i + 1)) for i in range(N)]
    made += [(f["x"], (i, slice(2, 5))) for i in range(20)] + [(f["x"], (i, 7)) for i in range(20)]
    made += [(f["x"], (slice(i, i + 2), slice(None))) for i in range(20)]
    return [made[i] for i in np.random.default_rng(0).permutation(len(made))]


@pytest.mark.parametrize("given", [0.0, 0.5, 1.0])
def test_each_gets_its_values(path: str, given: float) -> None:
    rng = np.random.default_rng(1)
    with pnc_vol.File(path) as f:
        expected = [ds[index] for ds, index in places(f)]
        # one is turned round, of another type, or not contiguous
        outs = [
            (np.empty((*one.shape, 2), one.dtype)[..., 0] if i % 2 else np.empty(one.shape, ">f8"))
            if rng.random() < given
            else None
            for i, one in enumerate(expected)
        ]
        requests = [ds.iget(index, out) for (ds, index), out in zip(places(f), outs, strict=True)]
        early = requests[5].array
        assert {request.status for request in requests} == {"pending"}
        assert len(f.requests) == len(requests)
        f.wait_all()
        assert requests[5].array is early
        assert not f.requests
        for request, out, wanted in zip(requests, outs, expected, strict=True):
            assert request.status == "done"
            assert request.array is request.array
            assert np.array_equal(request.array, wanted)
            assert request.array.shape == wanted.shape
            assert request.array is out if out is not None else request.array.dtype == wanted.dtype


def test_in_any_order_and_without_those_that_are_cancelled(path: str) -> None:
    with pnc_vol.File(path) as f:
        expected = [ds[index] for ds, index in places(f)]
        requests = [ds.iget(index) for ds, index in places(f)]
        numbers = [request.id for request in requests]
        assert numbers == sorted(set(numbers))
        assert requests[7].wait().tolist() == expected[7].tolist()
        requests[8].cancel()
        with pytest.raises(ValueError, match="was carried out"):
            requests[7].cancel()
        f.wait_all(requests[40:20:-1])
        later = f["x"].iget(3)
        waiting = f.requests
        assert waiting[later.id] == later
        assert set(waiting) == {r.id for r in [*requests[:7], *requests[9:21], *requests[41:], later]}
        f.wait_all([*requests[:8], *requests[9:], later])
        assert [r.status for r in requests].count("done") == len(requests) - 1
        assert requests[8].status == "cancelled"
        for request, wanted in zip(requests[9:], expected[9:], strict=True):
            assert np.array_equal(request.array, wanted)
        assert later.array.tolist() == f["x"][3].tolist()


def test_those_of_a_list_are_completed_without_others(path: str) -> None:
    with pnc_vol.File(path, "r+") as f:
        requests = [f["x"].iget(i) for i in range(N)]
        f["x"][5] = -1
        f.wait_all(requests)
        assert not [one for one in f.requests.values() if one.kind == "read"]
        assert [request.array[0] for request in requests] == [8.0 * i for i in range(N)]
        late = f["x"].iget(5)
        assert late.wait().tolist() == [-1] * 8


def test_a_file_that_cannot_be_read(path: str) -> None:
    system = FaultSystem(fail_at=0, errno=errno.EIO, mode="forever", calls={"pread_into", "preadv"})
    with pnc_vol.File(path, system=system) as f:
        requests = [f["x"].iget(i) for i in range(N)]
        system.fail_at = system.count + 1
        with pytest.raises(OSError, match="Input/output error"):
            f.wait_all()
        system.heal()
        assert {request.status for request in requests} == {"failed"}
        assert all(request.error.errno == errno.EIO for request in requests)
        assert len(f.requests) == N
        f.wait_all()
        assert {request.status for request in requests} == {"done"}
        assert requests[9].error is None
        assert [request.array[0] for request in requests] == [8.0 * i for i in range(N)]


def test_an_array_that_does_not_fit_is_refused_at_once(path: str) -> None:
    fixed = np.zeros(8)
    fixed.flags.writeable = False
    with pnc_vol.File(path) as f:
        for wrong in (np.zeros(7), fixed, [0.0] * 8, np.zeros((1, 8))):
            with pytest.raises(TypeError, match="writable array of shape"):
                f["x"].iget(0, wrong)
        assert not f.requests
        f.flush()


@pytest.mark.parametrize("columns", [8000, 8192])
def test_what_does_not_fit_into_the_columns_goes_on(tmp_path: pathlib.Path, columns: int) -> None:
    wanted = np.random.default_rng(0).random((300, columns))
    large = np.arange(20_000.0)
    with pnc_vol.File(tmp_path / "large.nc", "w") as f:
        f["x"], f["large"] = wanted, large
    with pnc_vol.File(tmp_path / "large.nc") as f:
        requests = [f["x"].iget(i) for i in range(200)]
        whole = f["large"].iget(slice(0, 20_000))
        requests += [f["x"].iget(i) for i in range(200, 300)]
        f.wait_all()
        assert np.array_equal([request.array for request in requests], wanted)
        assert np.array_equal(whole.array, large)


# ------------------------------------------------------------------------------------------- what it costs


def test_a_post_takes_few_calls_and_leaves_nothing_to_the_collector(path: str) -> None:
    out = np.zeros((N, 8))
    with pnc_vol.File(path) as f:
        x, rows = f["x"], list(out)
        x.iget(0)
        # iget, whether the file is open, the post, what the index means, the handle
        assert calls_of(lambda: x.iget(1)) <= 5
        assert calls_of(lambda: x.iget(1, rows[1])) <= 5
        gc.collect()
        before = len(gc.get_objects())
        for i, row in enumerate(rows):
            x.iget(i, row)
        assert len(gc.get_objects()) - before < 10
        kept = [x.iget(i) for i in range(N)]
        assert len(gc.get_objects()) - before < N + 20
        f.wait_all()
        assert np.array_equal(out, x[...])
        assert all(one.status == "done" for one in kept)


def test_many_are_completed_in_as_many_calls_as_few(path: str) -> None:
    with pnc_vol.File(path) as f:

        def completed(count: int) -> int:
            out = list(np.zeros((count, 8)))
            for i in range(count):
                f["x"].iget(i % N, out[i])
            return calls_of(f.wait_all)

        completed(2000)
        few = completed(2000)
        # not one more for each: some for each piece of the file that is read
        assert completed(6000) <= few + 40


def test_a_program_that_waits_for_each_needs_no_columns(path: str) -> None:
    with pnc_vol.File(path) as f:
        x = f["x"]
        waited = [calls_of(lambda i=i: x.iget(i).wait()) for i in range(5)]
        # the first makes columns, of which it is taken out
        assert waited[2] == waited[4] <= waited[0] - 5
        kept = [x.iget(i) for i in range(N)]
        f.wait_all()
        again = [x.iget(i) for i in range(N)]
        assert calls_of(lambda: x.iget(1)) <= 5, "many at once are in columns again"
        f.wait_all()
        assert np.array_equal([one.array for one in kept], [one.array for one in again])


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("grows", [False, True])
def test_large_ones_are_read_where_they_belong(tmp_path: pathlib.Path, order: str, grows: bool) -> None:
    """A hyperslab with gaps, a list of long runs, and what a posted write lies over."""
    values = np.arange(600 * 400, dtype="f8").reshape(600, 400)
    starts, counts = np.array([[500, 0], [0, 0], [100, 0]]), np.array([[100, 400], [50, 400], [20, 400]])
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        x = f.create_dataset("x", data=values, maxshape=(None if grows else 600, 400))
        f.flush()
        half, every, listed = (
            np.empty((600, 200), order + "f8"),
            np.empty((300, 400)),
            np.empty(170 * 400, order + "f8"),
        )
        reads = [x.iget(np.s_[:, 100:300], half), x.iget(np.s_[::2], every), x.iget_many(starts, counts, listed)]
        reads.append(x.iget(slice(10, 500)))
        f.wait_all()
        assert {read.status for read in reads} == {"done"}
        assert np.array_equal(half, values[:, 100:300])
        assert np.array_equal(every, values[::2])
        assert np.array_equal(listed, np.concatenate([values[500:], values[:50], values[100:120]]).ravel())
        assert np.array_equal(reads[3].array, values[10:500])
        x[20] = -1
        again = x.iget(np.s_[:, 100:300], half)
        x[30] = -2
        assert again.wait() is half
        assert (half[20] == -1).all()
        assert np.array_equal(half[30], values[30, 100:300])
