"""With and without the burst buffer a program makes the same file, byte by byte, whatever the sizes of the rounds."""

from __future__ import annotations

import pathlib
from typing import Any

import elsewhere
import numpy as np
import options
import pytest
import run as engine
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol

ROUNDS = [0, 1, 70_000, 1 << 20]
"""Bytes of memory that none of these programs needs: a queue in memory that drains early reserves a larger header."""


def logged(logs: pathlib.Path, rounds: int = 0, **more: Any) -> dict[str, Any]:
    return {"burst_buf": True, "burst_buf_dirname": str(logs), "burst_buf_flush_buffer_size": rounds, **more}


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int, tmp_path: pathlib.Path) -> None:
    """Of the engine (`tests/engine`), which compares what is read, too."""
    files = []
    elsewhere.start()
    for store in ("memory", "log"):
        folder = tmp_path / store
        folder.mkdir()
        config = options.normal({"store": store, "burst_buf_flush_buffer_size": ROUNDS[seed % 4]})
        engine.execute(engine.made(f"same {seed}", config), str(folder))
        files.append((folder / "x.nc").read_bytes())
    assert files[0] == files[1]


# ---------------------------------------------------------------------- the subjects of PnetCDF's own tests


def pair(tmp_path: pathlib.Path, logs: pathlib.Path, rounds: int, program: Any, **given: Any) -> None:
    """Run a program twice and compare."""
    for name, more in (("plain", {}), ("log", logged(logs, rounds))):
        with pnc_vol.File(tmp_path / f"{name}.nc", "w", **more, **given) as f:
            program(f)
    assert (tmp_path / "plain.nc").read_bytes() == (tmp_path / "log.nc").read_bytes()


@pytest.mark.parametrize("given", [{"publish": "close"}, {"durable": True}, {"durable": True, "publish": "close"}])
@pytest.mark.parametrize("rounds", [0, 1])
def test_files_that_are_named_late_or_durable(
    rounds: int, given: dict[str, Any], tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    """Definitions, records, texts that grow, fill values, a new layout, a deletion, and nothing but definitions."""

    def program(f: Any) -> None:
        f.create_dataset("a", (50, 40), "f8")[:] = np.arange(2000.0).reshape(50, 40)
        f.create_dataset("r", (4, 100), "f4", maxshape=(None, 100), fillvalue=-9)[1:3] = 5
        f.create_dataset("t", (2,), pnc_vol.string_dtype())[:] = ["a", "b"]
        f.flush()
        f["r"].resize(12, axis=0)
        f["r"][7] = 3
        f["t"][1] = "much longer than before"
        f.attrs["much"] = np.arange(3000)
        f["a"][3] = -1
        f.flush()
        del f["r"]
        f.create_dataset("new", (3,), "i1", maxshape=(None,))
        f["a"][::2] = 7

    pair(tmp_path, logs, rounds, program, **given)
    assert not list(logs.iterdir())


@pytest.mark.parametrize("rounds", [0, 1, 65_536, 100_000])
def test_a_buffer_smaller_than_one_request(rounds: int, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    def program(f: Any) -> None:
        large = f.create_dataset("large", (3, 60_000), "f8")
        small = f.create_dataset("small", (100,), "i2")
        for i in range(3):
            large[i] = np.arange(60_000) + i
            small[i * 30 : i * 30 + 20] = i
        large[:, ::7] = 5
        request = large.iput_many([[0, 5], [2, 100]], [[1, 30_000], [1, 20_000]], np.arange(50_000.0))
        f.flush()
        assert request.status == "done"

    pair(tmp_path, logs, rounds, program)


@pytest.mark.parametrize("ndim", [1, 7, 32])
def test_many_dimensions(ndim: int, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    shape = tuple(2 if i % 3 == 0 else 1 for i in range(ndim))

    def program(f: Any) -> None:
        x = f.create_dataset("x", shape, "i4")
        x[...] = np.arange(x.size).reshape(shape)
        x[(0,) * ndim] = -1
        x[(slice(None, None, 2),) * ndim] = -2
        x.iput_many([[0] * ndim, [n - 1 for n in shape]], [[1] * ndim] * 2, np.array([7, 8], "i4"))

    pair(tmp_path, logs, 0, program)


def test_a_hundred_thousand_requests(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    random = np.random.default_rng(3)
    places = random.integers(0, 20_000, 100_000).tolist()

    def program(f: Any) -> None:
        x = f.create_dataset("x", (20_000,), "i4")
        for i, place in enumerate(places):
            x[place] = i

    pair(tmp_path, logs, 0, program)
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

    pair(tmp_path, tmp_path / "logs", 0, program)
