"""Maps of cells: what is read, what is made up, who writes what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.bench.e3sm_cases import COUNTS, counted, listed
from pnc_vol.bench.e3sm_maps import invented
from pnc_vol.interop.map_files import Map, read_maps

DATA = Path(__file__).parents[2] / "../shared/data/e3sm"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="E3SM-IO's maps are not there (../shared/data/e3sm)")


def cells(one: Map, ranks: int, *, sort: bool = True) -> list[int]:
    """Every cell that some rank writes, element by element."""
    found = []
    for rank in range(ranks):
        for at, n in zip(*(one.of_rank if sort else one.share)(rank, ranks), strict=True):
            found += range(at, at + n)
    return found


@given(case=st.sampled_from("FGI"), size=st.integers(1, 4), processes=st.integers(1, 9), ranks=st.integers(1, 5))
def test_invented_maps_deal_each_cell_once(case: str, size: int, processes: int, ranks: int) -> None:
    maps, lengths = invented(case, 4 * size if case == "I" else size, processes)
    for one in maps:
        found = cells(one, ranks)
        assert len(found) == len(set(found))
        assert max(found, default=0) < np.prod(one.dims)
        if case != "I":
            assert len(found) == np.prod(one.dims)
        assert sorted(found) == sorted(cells(one, ranks, sort=False))
        for rank in range(ranks):
            at, n = one.of_rank(rank, ranks)
            assert (at // one.dims[-1] == (at + n - 1) // one.dims[-1]).all(), "a run crosses the end of a row"
            assert (np.diff(at) > 0).all()
    for name in ("f_h0", "f_h1", "g_hist", "i_h0", "i_h1"):
        if name[0].upper() == case:
            file = counted(name, lengths, floats=False)
            for variable in file.variables:
                if variable.number:
                    shape = file.shape(variable, 1, lengths)
                    assert np.prod(shape) == np.prod(maps[variable.number - 1].dims)


@needs_data
@pytest.mark.parametrize("name", list(COUNTS))
def test_counted_cases_have_as_many_variables_of_each_kind(name: str) -> None:
    real = listed(str(DATA / f"{name}.json"), floats=False)
    maps = read_maps(str(DATA / f"map_{name[0]}_case_16p.nc"))
    lengths = {
        dim: n for dims, one in zip(real.map_dims, maps, strict=True) for dim, n in zip(dims, one.dims, strict=True)
    }
    ours = counted(name, {dim: n for dim, n in real.dims.items() if n is not None}, floats=False)
    assert len(ours.variables) == len(real.variables)
    for number in range(len(maps) + 1):
        pair = [[f.is_record(v) for v in f.variables if v.number == number] for f in (real, ours)]
        assert sorted(pair[0]) == sorted(pair[1]), f"map {number}"
    assert lengths
