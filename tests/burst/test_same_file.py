"""With and without the burst buffer a program makes the same file, byte by byte: what random programs do not do.

Of random programs, with all other options, the engine compares the bytes (``same_bytes`` in `tests/engine/run.py`).
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol


def pair(tmp_path: pathlib.Path, logs: pathlib.Path, program: Any) -> None:
    """Run a program twice and compare."""
    for name, more in (("plain", {}), ("log", {"burst_buf": True, "burst_buf_dirname": str(logs)})):
        with pnc_vol.File(tmp_path / f"{name}.nc", "w", **more) as f:
            program(f)
    assert (tmp_path / "plain.nc").read_bytes() == (tmp_path / "log.nc").read_bytes()


@pytest.mark.parametrize("ndim", [1, 7, 32])
def test_many_dimensions(ndim: int, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    shape = tuple(2 if i % 3 == 0 else 1 for i in range(ndim))

    def program(f: Any) -> None:
        x = f.create_dataset("x", shape, "i4")
        x[...] = np.arange(x.size).reshape(shape)
        x[(0,) * ndim] = -1
        x[(slice(None, None, 2),) * ndim] = -2
        x.iput_many([[0] * ndim, [n - 1 for n in shape]], [[1] * ndim] * 2, np.array([7, 8], "i4"))

    pair(tmp_path, logs, program)


def test_a_hundred_thousand_requests(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    random = np.random.default_rng(3)
    places = random.integers(0, 20_000, 100_000).tolist()

    def program(f: Any) -> None:
        x = f.create_dataset("x", (20_000,), "i4")
        for i, place in enumerate(places):
            x[place] = i

    pair(tmp_path, logs, program)
    with pnc_vol.File(tmp_path / "log.nc") as f:
        last = dict(zip(places, range(100_000), strict=True))
        np.testing.assert_array_equal(f["x"][sorted(last)], [last[place] for place in sorted(last)])


@settings(max_examples=25)
@given(
    blocks=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6), st.integers(0, 3), st.integers(0, 3)), max_size=6),
    kind=st.sampled_from(["i1", "f4", "c8", "S3", bool]),
    record=st.booleans(),
)
def test_varn(blocks: Any, kind: Any, record: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("varn")
    (tmp_path / "logs").mkdir()
    starts = np.array([block[:2] for block in blocks], np.int64).reshape(-1, 2)
    counts = np.array([[min(block[2], 9 - block[0]), min(block[3], 7 - block[1])] for block in blocks], np.int64)
    counts = counts.reshape(-1, 2)
    values = np.arange(1, counts.prod(axis=1).sum() + 1).astype(kind)

    def program(f: Any) -> None:
        x = f.create_dataset("x", (9, 7), kind, maxshape=(None, 7) if record else None)
        x.iput_many(starts, counts, values)

    pair(tmp_path, tmp_path / "logs", program)
