"""Whatever ranks write into blobs, any runs of it are read as numpy has them: whoever owns it, or nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_ranks import run

import pnc_vol

N, RECORDS = 60, 3
RUNS = st.lists(st.tuples(st.integers(0, N - 1), st.integers(1, N)), min_size=1, max_size=5)


@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    ranks=st.integers(1, 4),
    nodes=st.integers(1, 2),
    length=st.sampled_from([1, 3, 20]),
    reads=RUNS,
    most=st.sampled_from([5, 1 << 21]),
)
def test_any_runs(
    tmp_path_factory: pytest.TempPathFactory,
    layout: str,
    seed: int,
    ranks: int,
    nodes: int,
    length: int,
    reads: list[tuple[int, int]],
    most: int,
) -> None:
    path, rng = tmp_path_factory.mktemp("runs") / "x", np.random.default_rng(seed)
    # the last one of the owners is nobody
    owner = np.repeat(rng.integers(0, ranks + 1, -(-N // length)), length)[:N]
    wanted = {"t": np.zeros((RECORDS, N), "f8"), "f": np.zeros(N, "i2")}
    posts = [(rank, record, np.flatnonzero(owner == rank)) for record in range(RECORDS) for rank in range(ranks)]
    for rank, record, cells in posts:
        wanted["t"][record, cells] = 100 * (record + 1) + rank
        wanted["f"][cells] = rank + 1
    late = np.flatnonzero(owner == ranks)[::2]
    if layout == "blob":
        wanted["t"][1, late] = wanted["f"][late] = 9

    def check(f: Any) -> None:
        for first, count in reads:
            for at in (slice(first, first + count), slice(first, first + count, 4)):
                assert np.array_equal(f["t"][1:, at], wanted["t"][1:, at])
                assert np.array_equal(f["f"][at], wanted["f"][at])

    def job(comm: Any) -> None:
        with pnc_vol.File(path, "w", comm=comm, layout=layout, driver="posix", subfiles=min(nodes, ranks)) as f:
            own = pnc_vol.Decomposition.from_runs(np.flatnonzero(owner == comm.rank), shape=(N,))
            f.create_dataset("t", (RECORDS, N), "f8", maxshape=(None, N), decomposition=own)
            f.create_dataset("f", (N,), "i2", decomposition=own)
            for rank, record, cells in posts:
                if rank == comm.rank and cells.size:
                    f["t"][record, cells] = 100 * (record + 1) + rank
                    f["f"][cells] = rank + 1
            f.flush()
            if layout == "blob":
                if comm.rank == 0 and late.size:
                    f["t"][1, late] = f["f"][late] = 9
                f.sync()
                check(f)

    with pytest.MonkeyPatch.context() as patch:
        # more runs than this are found window by window
        patch.setattr("pnc_vol.blob.index._MOST_RUNS", most)
        run(ranks, job, nodes=min(nodes, ranks), timeout=60)
        with pnc_vol.File(path) as f:
            check(f)
            assert np.array_equal(f["t"][...], wanted["t"])
