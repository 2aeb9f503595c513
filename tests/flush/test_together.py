"""What ranks write and read together, in windows and parcels, is what numpy has; so are posts to many datasets.

Of simulated ranks: pieces of all sizes, near and far, over stripes in turn or one block for each rank that writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from virtual_ranks import run

import pnc_vol

N = 400_000
ONE_WINDOW = {"cb_nodes": "1", "cb_buffer_size": "16777216"}


@settings(max_examples=12, deadline=None)
@example(1, 7, 7, False, 4, 300, False, False, ONE_WINDOW)
@example(2, 7, 7, True, 4, 256, True, True, ONE_WINDOW)
@given(
    seed=st.integers(0, 1 << 32),
    ranks=st.integers(2, 7),
    nodes=st.integers(1, 7),
    in_turn=st.booleans(),
    longest=st.sampled_from([1, 4, 300]),
    gaps=st.sampled_from([3, 256, 300, 65536, 70_000]),
    even=st.booleans(),
    blocks=st.booleans(),
    hints=st.fixed_dictionaries(
        {"cb_nodes": st.sampled_from(["1", "3"]), "cb_buffer_size": st.sampled_from(["4096", "65536", "16777216"])},
        optional={"striping_unit": st.sampled_from(["512", "4096"]), "striping_factor": st.sampled_from(["2", "4"])},
    ),
)
def test_pieces_of_ranks(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    ranks: int,
    nodes: int,
    in_turn: bool,
    longest: int,
    gaps: int,
    even: bool,
    blocks: bool,
    hints: dict[str, str],
) -> None:
    path, rng = tmp_path_factory.mktemp("together") / "x.nc", np.random.default_rng(seed)
    step = rng.integers(1, gaps + 1, min(300, N // (gaps + longest))) + rng.integers(
        0, longest, min(300, N // (gaps + longest))
    )
    length = np.minimum(rng.integers(1, longest + 1, len(step)), step)
    if even:
        step, length = np.full(len(step), gaps + longest), np.full(len(step), longest)
    start = np.cumsum(step) - step
    owner, wanted = rng.integers(0, ranks, len(step)), np.full(N, -1, "i1")
    if blocks:
        owner.sort()
    for s, n, rank in zip(start.tolist(), length.tolist(), owner.tolist(), strict=True):
        wanted[s : s + n] = rank

    def job(comm: Any) -> None:
        options: dict[str, Any] = {"driver": "posix", "transport": "aggregate", "hints": hints}
        with pnc_vol.File(path, "w", comm=comm, **options) as f:
            x = f.create_dataset("x", (N,), "i1", fillvalue=-1)
            f.flush()
            mine = owner == comm.rank
            x.iput_many(start[mine][:, None], length[mine][:, None], np.full(int(length[mine].sum()), comm.rank, "i1"))
            f.sync()
            theirs = owner == (comm.rank + 1) % ranks
            runs = pnc_vol.Decomposition.from_runs(start[theirs], length[theirs], (N,))
            with x.collective:
                assert (x[runs] == (comm.rank + 1) % ranks).all()
                assert np.array_equal(x[comm.rank :: 3], wanted[comm.rank :: 3])

    run(ranks, job, nodes=min(nodes, ranks), in_turn=in_turn, timeout=60)
    with pnc_vol.File(path) as f:
        assert np.array_equal(f["x"][...], wanted)


def test_pieces_larger_than_a_message(tmp_path: Path) -> None:
    """Two of each rank, one of them of some bytes more than three messages."""

    def job(comm: Any) -> None:
        with pnc_vol.File(tmp_path / "x.nc", "w", driver="posix", comm=comm, transport="aggregate") as f:
            x = f.create_dataset("x", (2, 2, (3 << 20) + 13), "u1")
            x[0, comm.rank] = np.arange(x.shape[2]) % 251
            x[1, comm.rank, 5 + comm.rank :: 2] = 7
            f.sync()
            with x.collective:
                assert np.array_equal(x[0, 1 - comm.rank], np.arange(x.shape[2]) % 251)

    run(2, job, nodes=2, timeout=60)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert np.array_equal(f["x"][0], np.broadcast_to(np.arange((3 << 20) + 13) % 251, (2, (3 << 20) + 13)))
        assert f["x"][1, 1, 3:10].tolist() == [0, 0, 0, 7, 0, 7, 0]


@settings(max_examples=40, deadline=None)
@given(
    posts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=14),
    lists=st.booleans(),
)
def test_posts_to_many_datasets(posts: list[tuple[int, int, int]], lists: bool) -> None:
    """Rows of several datasets, with records and without, of several widths, in one flush."""
    kinds = ("f8", "i2", "u1", "f4", "i8", ">i4")
    with pnc_vol.File("posts.nc", "w", driver="memory") as f:
        wanted = [np.zeros((50, 3), kind) for kind in kinds]
        for i, values in enumerate(wanted):
            f.create_dataset(f"v{i}", data=values, maxshape=(None, 3) if i % 2 else None)
        f.flush()
        for n, (i, first, count) in enumerate(posts):
            f[f"v{i}"][first : first + count] = wanted[i][first : first + count] = n + 1
            if lists and n == len(posts) // 2:
                f[f"v{i}"][[1, 5, 9], :2] = wanted[i][[1, 5, 9], :2] = 99
        f.flush()
        for i, values in enumerate(wanted):
            assert np.array_equal(f[f"v{i}"][...], values)
