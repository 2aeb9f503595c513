"""Names: what NetCDF allows, what is cut, and how collisions are told apart."""

from __future__ import annotations

import re
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import assert_valid, tool

import pnc_vol

ODD = ["a b", "a/b", "a_b", "tr ", " lead", "1x", "(p)", "q\\r", "c\td", "n\nl", "\x7f", "'q'", '"dq"', "e\u0301", "é"]
LONG = ["q" * n for n in (254, 255, 256, 257, 300)] + ["é" * n for n in (127, 128, 129)] + ["日" * 90, "q" * 299 + "r"]
ANY = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=300).filter(
    lambda name: name not in (".", "..", "group")
)
SIMILAR = st.sampled_from(["a", "a_2", "a_3", "q" * 255, "q" * 256, "é" * 127])


def spelled(path: Path) -> list[str]:
    """The variables' names as netCDF4 reads them: all differ, and none is longer than 255 bytes."""
    with netCDF4.Dataset(path) as data:
        names = [*data.variables]
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) <= 255 for name in names)
    return names


def write(path: Path, names: list[str], separator: str = "_") -> None:
    with pnc_vol.File(path, "w", separator=separator, track_order=True) as f:
        for number, name in enumerate(names):
            f[name] = np.float64([number])
            f.attrs[name] = number
            f.require_group("group").attrs[name] = number
    with pnc_vol.File(path) as f:
        for number, name in enumerate(names):
            assert f[name][0] == f.attrs[name] == f["group"].attrs[name] == number


@given(names=st.lists(ANY | SIMILAR, max_size=9, unique=True))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_it_was_it_is_found_again_under_a_legal_name_of_its_own(names: list[str], tmp_path: Path) -> None:
    write(tmp_path / "x.nc", names)
    assert len(spelled(tmp_path / "x.nc")) == len(names)
    assert pnc_vol.check(tmp_path / "x.nc") == []


def test_legal_names_stay_and_long_ones_get_a_digest(tmp_path: Path) -> None:
    write(tmp_path / "x.nc", ["q" * 255, "q" * 256, "q" * 257, "a/b c/d"], separator=".")
    stays, *cut, path = spelled(tmp_path / "x.nc")
    assert (stays, path) == ("q" * 255, "a.b c.d")
    assert all(re.fullmatch("q{246}_[0-9a-f]{8}", name) for name in cut)


@pytest.mark.parametrize("name", ["x/y", "/", "..", ".", "a/../b", "/abs", "with space "])
def test_a_name_of_another_programs_file_is_one_step_and_never_a_way(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as data:
        data.createVariable("Z" * len(name), "f8", ())[...] = 7
    path.write_bytes(path.read_bytes().replace(b"Z" * len(name), name.encode()))
    with pytest.warns(pnc_vol.FormatWarning, match="legal name"):
        f = pnc_vol.File(path)
    with f:
        (shown,) = f
        assert "/" not in shown
        assert shown not in (".", "..")
        assert f[shown][()] == f["/" + shown][()] == 7
        assert f[shown].parent == f


def test_other_tools_read_every_name(tmp_path: Path) -> None:
    write(tmp_path / "x.nc", ODD + LONG)
    assert_valid(tmp_path / "x.nc")
    tool("ncdump", tmp_path / "x.nc")
