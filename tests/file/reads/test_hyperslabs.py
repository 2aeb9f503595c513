"""Reads that fetch what lies between the elements too: the same values as numpy, whatever the cut and the driver."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.file.reads import hyperslabs as strided
from pnc_vol.testing.faults import TraceSystem

SHAPE = (13, 7, 60)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Fixed and record variables, of numbers, complex numbers, strings and booleans."""
    found = tmp_path_factory.mktemp("strided") / "a.nc"
    values = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    with pnc_vol.File(found, "w") as f:
        f["fixed"] = values
        f.create_dataset("big", data=values.astype(">i2"))
        f["complex"] = values + 1j
        f["text"] = np.char.mod("%d", values).astype("S6")
        f["flag"] = values % 3 == 0
        for name in ("one", "two"):
            f.create_dataset(name, data=values.astype("f4"), maxshape=(None, *SHAPE[1:]))
    return found


def indices() -> st.SearchStrategy[tuple[Any, ...]]:
    """Slices, integers, and at most one increasing list."""

    def one(dim: int) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.integers(0, dim - 1),
            st.builds(slice, st.integers(0, dim), st.integers(0, dim), st.integers(1, 5)),
            st.just(slice(None)),
        )

    def listed(at: int) -> st.SearchStrategy[tuple[Any, ...]]:
        parts = [one(dim) for dim in SHAPE]
        if at < len(SHAPE):
            parts[at] = st.sets(st.integers(0, SHAPE[at] - 1), min_size=1).map(sorted)
        return st.tuples(*parts)

    return st.integers(0, len(SHAPE)).flatmap(listed)


def chosen(array: np.ndarray, index: tuple[Any, ...]) -> np.ndarray:
    """The selection as h5py orders its axes; numpy would move that of a list beside an integer."""
    kept = array[tuple(slice(i, i + 1) if isinstance(i, int) else i for i in index)]
    return kept[tuple(0 if isinstance(i, int) else slice(None) for i in index)]


@settings(deadline=None, max_examples=60)
@given(index=indices(), block=st.sampled_from([64, 512, 3000, 1 << 20]), piece=st.sampled_from([0, 100, 1 << 20]))
def test_every_selection_is_numpys(path: pathlib.Path, index: tuple[Any, ...], block: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch, pnc_vol.File(path) as f:
        wanted = {name: chosen(ds[...], index) for name, ds in f.items()}
        patch.setattr(strided, "BLOCK", block)
        patch.setattr(strided, "costs_of", lambda driver: strided.Costs(min(block, piece), piece, block))
        for name, ds in f.items():
            found = ds[index]
            assert found.dtype == wanted[name].dtype
            assert np.array_equal(found, wanted[name]), name


def test_rows_are_read_whole_where_that_takes_fewer_calls(path: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(path, system=system) as f:
        before = len(system.matching(name=("pread_into", "preadv")))
        assert f["fixed"][:, :, ::3].shape == (13, 7, 20)
        assert len(system.matching(name=("pread_into", "preadv"))) - before == 1
