"""What a benchmark of many ranks is made of: arrays in memory, fill values, hints; without ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mpi4py", reason='mpi4py is not installed (pip install "pnc-vol[mpi]")')

from pnc_vol.bench.e3sm_cases import Variable, counted
from pnc_vol.bench.e3sm_maps import invented
from pnc_vol.bench.e3sm_setup import GAP, Part, Setup, buffers, untouched
from pnc_vol.bench.ranks import hints_of


def setup(case: str, name: str) -> Setup:
    maps, lengths = invented(case, 2, 3)
    parts = []
    for one in maps:
        offsets, counts = one.of_rank(0, 2)
        parts.append(Part(offsets[:, None], counts[:, None], offsets, counts, None))
    return Setup(case, [counted(name, lengths, floats=False)], lengths, parts, 1, "made up")


@given(gap=st.sampled_from([0, 1, GAP]), stride=st.integers(1, 3), case=st.sampled_from(["F f_h1", "G g_hist"]))
def test_arrays_lie_where_the_options_say(gap: int, stride: int, case: str) -> None:
    made = setup(*case.split())
    values, blocks = buffers(made, 5, gap=gap, stride=stride)
    assert untouched(made, values, blocks)
    with_map = [v for v in made.files[0].variables if v.number]
    assert [name for _, name in values] == sorted(
        (v.name for v in with_map), key=lambda name: (values[made.files[0].name, name].dtype.kind != "i", name)
    )
    for block in blocks:
        mine = [v for v in values.values() if np.shares_memory(v, block)]
        assert len({part.dtype for part in mine}) <= 1
        begins = [part.__array_interface__["data"][0] for part in mine]
        for first, begin, following in zip(mine, begins, begins[1:], strict=False):
            assert following - begin == (first.size * stride + gap) * first.itemsize
    for part in values.values():
        assert (part == 5).all()
        part[...] = 6
    assert untouched(made, values, blocks)
    if gap or stride > 1:
        max(blocks, key=len)[-1] = 7
        assert not untouched(made, values, blocks)


def test_fill_values_are_the_variables_own_or_the_formats() -> None:
    made = setup("F", "f_h1")
    assert made.fill_of(Variable("a", "f4", (), 1, {"_FillValue": 1e36})) == np.float32(1e36)
    assert made.fill_of(Variable("a", "f8", (), 1)) == 9.969209968386869e36
    assert made.fill_of(Variable("a", "i4", (), 1)) == -2147483647
    assert made.fill_of(Variable("a", "S1", (), 1)) is None


def test_a_file_of_hints_in_each_of_its_forms(tmp_path: Path) -> None:
    path = tmp_path / "hints"
    path.write_text(
        "romio_cb_write enable\n# a remark\n\ncb_nodes=4\nIOR_HINT__MPI__cb_buffer_size = 1048576  # bytes\n"
        "IOR_HINT__GPFS__fineGrainWriteSharing=1\n"
    )
    assert hints_of(str(path)) == {"romio_cb_write": "enable", "cb_nodes": "4", "cb_buffer_size": "1048576"}
