"""Names: what NetCDF allows, what is cut, and how collisions are told apart."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.format.names import is_legal_name
from pnc_vol.mapping.names import NameBook, dataset_name, is_member_name, legal_name, split_path, variable_name

ODD = [
    "a b",
    "a/b",
    "a_b",
    "tr ",
    " lead",
    "1x",
    "(p)",
    "q\\r",
    "c\td",
    "n\nl",
    "\x7f",
    "'q'",
    '"dq"',
    "e\u0301",
    "\u00e9",
]
LONG = ["q" * n for n in (254, 255, 256, 257, 300)] + ["é" * n for n in (127, 128, 129)] + ["日" * 90, "q" * 299 + "r"]


@given(st.text(min_size=1, max_size=300))
def test_whatever_it_was_the_spelling_is_legal_short_and_stable(name: str) -> None:
    spelled = legal_name(name)
    assert is_legal_name(spelled)
    assert len(spelled.encode()) <= 255
    assert legal_name(spelled) == spelled


def test_legal_names_stay_and_long_ones_get_a_digest() -> None:
    assert legal_name("q" * 255) == "q" * 255
    cut = legal_name("q" * 256)
    assert re.fullmatch("q{246}_[0-9a-f]{8}", cut)
    assert legal_name("q" * 257) != cut
    assert variable_name("/a/b c/d", ".") == "a.b c.d"


@given(st.lists(st.sampled_from(["a", "a_2", "a_3", "q" * 255, "é" * 127]), max_size=20))
def test_each_user_of_a_name_gets_one_of_its_own(names: list[str]) -> None:
    book = NameBook(["taken"])
    given_out = [book.take(name) for name in [*names, "taken"]]
    assert len({*given_out, "taken"}) == len(names) + 2
    assert all(is_legal_name(name) and len(name.encode()) <= 255 for name in given_out)


@given(st.text(max_size=9))
def test_a_name_of_the_file_is_one_step_and_never_a_way(name: str) -> None:
    shown = dataset_name(name)
    assert is_member_name(shown)
    assert split_path("/" + shown) == [shown]
    assert (shown == name) == is_member_name(name)


@pytest.mark.parametrize("path", ["", "a", "/", "//a", "/a/", "/a//b", "/..", "/a/./b", "/a\0", 3, None])
def test_what_is_no_path(path: object) -> None:
    assert split_path(path) is None


def test_other_tools_read_every_name(tmp_path: Path) -> None:
    if not (shutil.which("ncdump") and shutil.which("ncvalidator")):
        pytest.skip("ncdump or ncvalidator is not installed (Debian: netcdf-bin, pnetcdf-bin)")
    path = tmp_path / "x.nc"
    names = ODD + LONG
    with pnc_vol.File(path, "w") as f:
        for number, name in enumerate(names):
            f[name] = np.float64([number])
            f.attrs[name] = number
            f.require_group("group").attrs[name] = number
    with pnc_vol.File(path) as f:
        assert [f[name][0] for name in names] == list(range(len(names)))
        assert [f.attrs[name] for name in names] == list(range(len(names)))
        assert [f["group"].attrs[name] for name in names] == list(range(len(names)))
    for tool in (["ncvalidator", "-q"], ["ncdump"]):
        done = subprocess.run([*tool, str(path)], capture_output=True)
        assert done.returncode == 0, done.stderr
