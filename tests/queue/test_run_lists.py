"""Lists of runs that many posts share: they take little room, and whatever else is done with posts holds for them."""

from __future__ import annotations

import errno
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.errors import FlushError
from pnc_vol.testing.faults import FaultSystem

Array = npt.NDArray[Any]


def columns(n: int, seed: int = 0) -> Array:
    """Single elements of a row of `4 n`, in no order."""
    return np.random.default_rng(seed).permutation(4 * n)[:n, None]


def test_many_posts_of_one_list_fit_a_budget_that_their_rows_exceed_many_times(tmp_path: pathlib.Path) -> None:
    at = columns(2000)
    ones = np.ones_like(at)
    with pnc_vol.File(tmp_path / "a.nc", "w", buffer_size=2 << 20) as f:
        # some of them grow, so that a record has an element of each
        grown = [(None,) if i % 40 == 1 else None for i in range(100)]
        sets = [f.create_dataset(f"x{i}", (8000,), "i4", fillvalue=-1, maxshape=grown[i]) for i in range(100)]
        for i, ds in enumerate(sets):
            ds.iput_many(at.copy(), ones, np.arange(2000) + i)
        assert "drains" not in f.statistics()
        assert f.statistics()["bytes_spilled"] == 0
        f.flush()
        assert f.statistics()["requests_written"] == 200_000
        expected = np.full(8000, -1)
        for i, ds in enumerate(sets):
            expected[at[:, 0]] = np.arange(2000) + i
            assert np.array_equal(ds[...], expected)


Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["list", "few", "slice", "one", "read", "flush", "cancel", "shrink", "drain"]),
        st.integers(0, 2),
        st.integers(0, 3),
        st.integers(0, 7),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(steps=STEPS, small=st.booleans(), runs=st.sampled_from([100, 1 << 17]))
def test_any_mixture_of_posts_is_what_a_numpy_array_would_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], small: bool, runs: int
) -> None:
    folder, n = tmp_path_factory.mktemp("lists"), 90
    lists = [pnc_vol.Decomposition(columns(n, seed)) for seed in range(4)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pnc_vol.queue.batches.MOST_RUNS", runs)
        mixture(folder / "a.nc", steps, lists, (64 << 10) if small else (64 << 20))


def mixture(path: pathlib.Path, steps: list[Step], lists: list[Any], budget: int) -> None:
    n = len(lists[0].starts)
    model = [np.zeros((4, 4 * n), "i4") for _ in range(3)]
    with pnc_vol.File(path, "w", buffer_size=budget) as f:
        # one of them without records
        sets = [f.create_dataset(f"x{i}", (4, 4 * n), "i4", maxshape=(4 if i == 1 else None, 4 * n)) for i in range(3)]
        for number, (what, which, record, chosen) in enumerate(steps, 1):
            ds, array, one = sets[which], model[which], lists[chosen % 4]
            if what == "list":
                ds.iput((record, one), np.arange(n) * number)
                array[record, one.starts[:, 0]] = np.arange(n) * number
            elif what == "few":
                some = one.starts[:5]
                ds.iput_many(np.hstack([np.full_like(some, record), some]), None, np.arange(5) + number)
                array[record, some[:, 0]] = np.arange(5) + number
            elif what == "slice":
                ds[record, chosen : 200 + chosen : 2] = array[record, chosen : 200 + chosen : 2] = number
            elif what == "one":
                ds[record, chosen] = array[record, chosen] = number
            elif what == "read":
                assert np.array_equal(ds[record], array[record])
            elif what == "flush":
                f.flush()
            elif what == "cancel":
                request = ds.iput((record, one), np.full(n, -number))
                if not request.test():
                    request.cancel()
                else:
                    array[record, one.starts[:, 0]] = -number
            elif what == "drain":
                f.id.handle.session.drain()
            else:
                ds.resize(2, axis=0)
                ds.resize(4, axis=0)
                array[2:] = 0
        for ds, array in zip(sets, model, strict=True):
            assert np.array_equal(ds[...], array)
    with pnc_vol.File(path) as f:
        for i, array in enumerate(model):
            assert np.array_equal(f[f"x{i}"][...], array)


def test_a_list_that_cannot_be_written_is_a_failed_request_and_stays(tmp_path: pathlib.Path) -> None:
    system = FaultSystem(fail_at=0, calls={"pwrite", "pwritev"}, errno=errno.EIO, mode="forever")
    one = pnc_vol.Decomposition(columns(500))
    with pnc_vol.File(tmp_path / "a.nc", "w", driver="posix", system=system) as f:
        x, y = f.create_dataset("x", (2000,), "f8"), f.create_dataset("y", (2000,), "f8")
        f.flush()
        first, second = x.iput(one, np.arange(500.0)), y.iput(one, np.arange(500.0) + 1)
        system.fail_at = system.count + 1
        with pytest.raises(FlushError) as told:
            f.flush()
        assert {error[0] for error in told.value.errors} == {first.id, second.id}
        system.heal()
        second.cancel()
        f.flush()
        assert first.status == "done"
        assert (x[...][one.starts[:, 0]] == np.arange(500)).all()
        assert not y[...].any()


def test_a_post_of_very_many_runs_waits_for_the_flush_like_any_other(tmp_path: pathlib.Path) -> None:
    n = 400_000
    with pnc_vol.File(tmp_path / "a.nc", "w", driver="posix") as f:
        x, y = f.create_dataset("x", (2 * n,), "f8"), f.create_dataset("y", (2, n), "i2", maxshape=(None, n))
        f.flush()
        x[7] = -1.0
        before = f.statistics()["driver"]["posix.write_calls"]
        x[::2] = np.arange(n)
        y[1, ::2] = np.arange(n // 2) % 1000
        x[4] = -2.0
        expected = np.zeros(2 * n)
        expected[7] = -1
        expected[::2] = np.arange(n)
        expected[4] = -2
        assert np.array_equal(x[...], expected)
        assert f.statistics()["driver"]["posix.write_calls"] == before
        session = f.id.handle.session
        # Elements, and 8 bytes a run: most of it is data.
        assert session.posted.queue.used < n * 16 + n // 2 * 10 + 100_000
        f.flush()
        assert "drains" not in f.statistics()
        assert "bytes_drained" not in f.statistics()
        assert f.statistics()["requests_written"] == n + n // 2 + 2
        assert f.statistics()["driver"]["posix.write_calls"] - before < 60
        assert np.array_equal(x[...], expected)
        assert np.array_equal(y[1, ::2], np.arange(n // 2) % 1000)


def test_very_many_runs_of_which_a_value_does_not_fit_leave_nothing(tmp_path: pathlib.Path) -> None:
    n = 300_000
    values = np.zeros(n, "i8")
    values[-1] = 1 << 40
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        x = f.create_dataset("x", (2 * n,), "i4")
        x[::2] = np.ones(n, "i4")
        used = f.id.handle.session.posted.queue.used
        with pytest.raises(pnc_vol.RangeError):
            x[1::2] = values
        assert f.id.handle.session.posted.queue.used == used
        x[1::2] = np.full(n, 2)
        assert np.array_equal(x[...], np.tile([1, 2], n))
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert np.array_equal(f["x"][...], np.tile([1, 2], n))


def test_a_long_list_is_kept_once_for_several_posts(tmp_path: pathlib.Path) -> None:
    n = 200_000
    one = pnc_vol.Decomposition(columns(n))
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        sets = [f.create_dataset(f"x{i}", (4 * n,), "i2") for i in range(4)]
        for i, ds in enumerate(sets):
            ds.iput(one, np.full(n, i + 1, "i2"))
        assert f.id.handle.session.posted.queue.used < 4 * 2 * n + 16 * n + 10_000
        assert "drains" not in f.statistics()
        f.flush()
        for i, ds in enumerate(sets):
            expected = np.zeros(4 * n, "i2")
            expected[one.starts[:, 0]] = i + 1
            assert np.array_equal(ds[...], expected)
