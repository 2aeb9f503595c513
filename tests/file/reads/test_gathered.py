"""Reads of variables that share a map: its order is kept while variables move, and is used for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol

N = 40
BLOB, REST = slice(13, 21), slice(2, 36, 3)


@pytest.mark.parametrize("names", ["a", "abc"])
@pytest.mark.parametrize("records", [False, True])
def test_blobs_and_supplement_that_adjoin_today(tmp_path: Path, records: bool, names: str) -> None:
    """Definitions move the supplement, and other variables and records have it elsewhere."""
    path = tmp_path / "f.nc"
    shape: Any = (2, N) if records else (N,)
    with pnc_vol.File(path, "w", layout="blob") as f:
        model = {}
        for name, dtype in zip(names, ("i4", "f8", "i4"), strict=False):
            f.create_dataset(name, shape, dtype, maxshape=(None, N) if records else None)
            model[name] = np.zeros(shape, dtype)
        # the blob of the last variable is followed by the only supplement
        for at, value, of in ((BLOB, 29, names), (REST, 43, names[-1])):
            for name in of:
                f[name][..., at] = model[name][..., at] = value
            f.flush()
        for k in range(20):
            for name in model:
                assert (f[name][...] == model[name]).all(), (k, name)
            f.create_dataset(f"new{k}", (7 + k,), "i4")
            f.flush()
    pnc_vol.replay(path, output=tmp_path / "one.nc")
    for name in (path, tmp_path / "one.nc"):
        with pnc_vol.File(name) as f:
            for each in model:
                assert (f[each][...] == model[each]).all(), name


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, N - 1), st.integers(1, N), st.integers(1, 4)),
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(0, N - 1), st.integers(1, N), st.just(1)),
        st.tuples(st.sampled_from(["flush", "define", "delete", "rename", "reopen"]), *[st.integers(0, 9)] * 4),
    ),
    max_size=25,
)


@pytest.mark.parametrize("layout", ["blob", "canonical"])
@given(acts=ACTS, fill=st.sampled_from([None, 7]))
@settings(max_examples=60)
def test_any_program_of_one_session(
    tmp_path_factory: pytest.TempPathFactory, layout: str, acts: Any, fill: Any
) -> None:
    path = tmp_path_factory.mktemp("s") / "f.nc"
    f = pnc_vol.File(path, "w", layout=layout)
    names, model = ["a", "b", "c"], []
    for name, dtype in zip(names, ("i4", "f8", "i2"), strict=True):
        f.create_dataset(name, (N,), dtype, fillvalue=fill)
        model.append(np.full(N, fill or 0, dtype))
    defined = value = 0
    try:
        for what, which, first, count, step in acts:
            at = slice(first, first + count, step)
            if what == "write":
                value += 1
                f[names[which]][at] = model[which][at] = value
            elif what == "read":
                assert (f[names[which]][at] == model[which][at]).all()
            elif what == "flush":
                f.flush()
            elif what == "define":
                defined += 1
                f.create_dataset(f"new{defined}", (which + 1,), "f8")
            elif what == "delete" and defined:
                del f[f"new{defined}"]
                defined -= 1
            elif what == "rename":
                which %= 3
                f.move(names[which], names[which] + "x")
                names[which] += "x"
            elif what == "reopen":
                f.close()
                f = pnc_vol.File(path, "r+")
            for name, values in zip(names, model, strict=True):
                assert (f[name][...] == values).all()
    finally:
        f.close()
    with pnc_vol.File(path) as f:
        for name, values in zip(names, model, strict=True):
            assert (f[name][...] == values).all()
