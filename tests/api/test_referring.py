"""Copies with what is referred to: the same objects as h5py's, but for their names."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pnc_vol


def fill(impl: Any, f: Any) -> None:
    """References of every kind, to what is in ``/g`` and to what is not, back and forth."""
    h5 = impl.h5
    f["g/inside"], f["outside"], f["far/deeper"] = [1, 2, 3], [4, 5, 6], [7.0]
    inside, outside, deeper = f["g/inside"], f["outside"], f["far/deeper"]
    outside.attrs["on"] = deeper.ref
    deeper.attrs["back"] = inside.ref
    inside.attrs["out"] = outside.ref
    inside.attrs["group"] = f["far"].ref
    inside.attrs["part"] = outside.regionref[1:]
    refs = f.create_dataset("g/refs", (4,), h5.ref_dtype)
    refs[:3] = [inside.ref, outside.ref, f["g"].ref]
    if impl.ours:
        # HDF5 copies references in compounds as they are: in the copy they lead astray.
        pair = f.create_dataset("g/pair", (2,), np.dtype([("n", "i4"), ("to", h5.ref_dtype)]))
        pair[0] = (5, deeper.ref)
    parts = f.create_dataset("g/parts", (1,), h5.regionref_dtype)
    parts[0] = outside.regionref[[0, 2]]


def look(impl: Any, f: Any, g: Any) -> list[Any]:
    """What the references of a group lead to."""
    inside, refs = g["inside"], g["refs"]
    outside = f[inside.attrs["out"]]
    deeper = f[outside.attrs["on"]]
    return [
        outside[()].tolist(),
        deeper[()].tolist(),
        f[deeper.attrs["back"]] == inside,
        f[inside.attrs["group"]]["deeper"] == deeper or f[inside.attrs["group"]]["deeper"][()].tolist(),
        f[inside.attrs["part"]][inside.attrs["part"]].tolist(),
        f[refs[0]] == inside,
        f[refs[1]] == outside,
        f[refs[2]] == g,
        bool(refs[3]),
        f[g["parts"][0]][g["parts"][0]].tolist(),
        impl.ours and f[inside.attrs["part"]] == f[g["parts"][0]] == outside,
        impl.ours and g["pair"]["n"].tolist(),
        impl.ours and f[g["pair"][0]["to"]] == deeper,
        impl.ours and bool(g["pair"][1]["to"]),
    ]


@pytest.mark.parametrize("where", ["the same file", "another file"])
def test_references_lead_to_copies(impl: Any, tmp_path: pathlib.Path, where: str) -> None:
    with impl.open("w") as f:
        fill(impl, f)
        before = look(impl, f, f["g"])
        if where == "the same file":
            f.copy("g", "c", expand_refs=True)
            # what is in the copy is not what it is a copy of
            assert f[f["c/inside"].attrs["out"]] != f["outside"]
            # within a file HDF5 makes other copies for references in datasets than for those in attributes
            n = None if impl.ours else 4
            assert look(impl, f, f["c"])[:n] == before[:n]
            assert look(impl, f, f["g"]) == before
        else:
            with impl.h5.File(tmp_path / "other.nc", "w") as other:
                f.copy("g", other, expand_refs=True)
                assert look(impl, other, other["g"]) == before
    assert before[:9] == [[4, 5, 6], [7.0], True, True, [5, 6], True, True, True, False]
    assert before[9:] == [[4, 6], *([True, [5, 0], True, False] if impl.ours else [False] * 4)]


def test_what_leads_nowhere_is_null(impl: Any, tmp_path: pathlib.Path) -> None:
    with impl.open("w") as f:
        f["x"] = 1
        f.attrs["to"] = f["x"].ref
        f.create_group("g").attrs["none"] = impl.h5.Reference()
        with impl.h5.File(tmp_path / "other.nc", "w") as other:
            f.copy("g", other, expand_refs=True)
            assert not other["g"].attrs["none"]


def test_a_copy_in_another_file_refers_to_nothing_that_was_not_copied(impl: Any, tmp_path: pathlib.Path) -> None:
    """Its path may be that of something else there. What was copied is found; in h5py every such reference is null."""
    h5 = impl.h5
    with impl.open("w") as f, h5.File(tmp_path / "other.nc", "w") as other:
        f["x"], f["g/y"], other["x"] = 1, 2, "another"
        f["g"].attrs["to"] = f["x"].ref
        f["g"].attrs["inside"] = f["g/y"].ref
        f.create_dataset("g/refs", data=[f["x"].ref, f["g/y"].ref], dtype=h5.ref_dtype)
        f.create_dataset("g/regions", data=[f["x"].regionref[()]], dtype=h5.regionref_dtype)
        f.copy("g", other, "c")
        f.copy("g/refs", other)
    with h5.File(tmp_path / "other.nc") as f:
        found = [f["c"].attrs["to"], f["c/refs"][0], f["c/regions"][0], *f["refs"]]
        assert not any(map(bool, found))
        if impl.ours:
            assert f[f["c"].attrs["inside"]] == f[f["c/refs"][1]] == f["c/y"]


def test_copies_have_names_of_their_own(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        fill(SimpleNamespace(h5=pnc_vol, ours=True), f)
        f.copy("g", "c", expand_refs=True)
        assert sorted(f) == ["c", "far", "far_1", "g", "outside", "outside_1"]
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f[f["c/inside"].attrs["out"]].name == "/outside_1"
        assert f[f["c/refs"][1]].name == "/outside_1"
