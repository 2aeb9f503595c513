"""Nothing in a file can steer a terminal: not by errors, warnings, reprs, nor by what the commands print."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from run_command import on_a_terminal, verb

import pnc_vol
from pnc_vol import errors
from pnc_vol.errors import printable

EVIL = "a\x1b[2J\x9b\u202ez\u2066\u200f"


@pytest.mark.parametrize("code", [
    0x00, 0x07, 0x1B, 0x7F, 0x9B, 0xAD, 0x061C, 0x200B, 0x200E, 0x202A, 0x202E, 0x2066, 0x2069, 0xE000, 0xFEFF, 0x2028,
])  # fmt: skip
def test_what_is_not_printable_is_an_escape(code: int) -> None:
    shown = printable(f"a{chr(code)}b\nc")
    assert shown.replace("\n", "").isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b\nc")


def test_errors_and_warnings_are_printable(tmp_path: Path) -> None:
    kinds = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, (Exception, Warning))
    ]
    assert len(kinds) > 30
    for kind in kinds:
        try:
            made = kind(EVIL)
        except TypeError:
            continue
        assert str(made).isprintable(), kind
    with pnc_vol.File(tmp_path / EVIL, "w") as f:
        f["x"] = range(9)
    os.truncate(tmp_path / EVIL, os.path.getsize(tmp_path / EVIL) - 9)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pnc_vol.File(tmp_path / EVIL).close()
    assert "9 bytes" in str(caught[0].message)
    assert str(caught[0].message).isprintable()


def test_names_of_a_file_are_printable_wherever_they_are_shown(tmp_path: Path) -> None:
    path = tmp_path / f"{EVIL}.nc"
    with pnc_vol.File(path, "w") as f:
        # names that only other programs would give are not taken; what is close to them is
        group = f.create_group("\u202egroup")
        ds = group.create_dataset("\u2066x", data=[1])
        ds.dims[0].label = "\u202elabel"
        f["soft"] = pnc_vol.SoftLink("/\u202enowhere")
        f["external"] = pnc_vol.ExternalLink("\u202efile", "/x")
        f["type"] = ds.dtype
        shown = [
            f, group, ds, ds.dims, ds.dims[0], ds.attrs, f["type"], f.get("soft", getlink=True), ds.id, f.keys(),
            ds.ref, f.get("external", getlink=True),
        ]  # fmt: skip
        for each in shown:
            assert repr(each).isprintable(), type(each)
        wrongs = (
            lambda: group["\u202eabsent"],
            lambda: f["soft"],
            lambda: f["external"],
            lambda: ds[5],
            lambda: ds.attrs["\u202e"],
        )
        for wrong in wrongs:
            with pytest.raises((KeyError, IndexError)) as caught:
                wrong()
            assert str(caught.value).isprintable()


def test_dump_on_a_terminal(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.attrs["t"] = np.bytes_("ä = 1\t\u202e\x1b\x9b".encode() + b"\xff")
    shown = on_a_terminal("dump", tmp_path / "a.nc")
    assert ':t = "ä = 1\\t\\342\\200\\256\\033\\302\\233\\377"'.encode() in shown


@pytest.mark.parametrize("name", ["ls", "check", "diff", "dump", "convert"])
def test_commands_print_nothing_that_steers(name: str, tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["\u202ex"] = 1
        f["\u202ex"].attrs["\u2066y"] = "\x1b[2J\u202e"
    other = {"diff": [tmp_path / "b.nc"], "convert": [tmp_path / "a.h5"]}.get(name, [])
    with pnc_vol.File(tmp_path / "b.nc", "w") as f:
        f["\u202ez"] = 1
    words = [name, *(["-r", "-v"] if name == "ls" else []), tmp_path / "a.nc", *other]
    shown = on_a_terminal(*words).decode() if name == "dump" else verb(*words).out + verb(*words).err
    assert re.sub(r"[\r\n\t]", "", shown).isprintable()
