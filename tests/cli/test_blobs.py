"""Verbs on sets of subfiles: what a person sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``full.nc``, and ``open.nc``, in which an element is in no blob; the same in the canonical layout beside them."""
    monkeypatch.chdir(tmp_path)
    for name, first in (("full", 0), ("open", 1)):
        for layout, path in (("blob", f"{name}.nc"), ("canonical", f"{name}.one")):
            with pnc_vol.File(path, "w", layout=layout) as f:
                own = pnc_vol.Decomposition.from_runs([first], [20_000 - first], shape=(20_000,))
                x = f.create_dataset("g/x", (20_000,), "f8", fillvalue=-1.0, decomposition=own)
                x.iput(own, np.arange(20_000.0)[first:])
                f["small"] = [1, 2, 3]
    return tmp_path


def test_replay_says_what_is_covered_and_exits_with_1_where_something_is_not(folder: Path, verb: Any) -> None:
    out = verb("replay", "full.nc", "-o", "out.nc", code=0).out
    assert "out.nc: 2 variables, 156.3 KiB of 1 subfile (written by 1 rank)" in out
    assert "D1 (20000): 20000 of 20000 elements in blobs, 0 in none" in out
    assert Path("out.nc").read_bytes() == Path("full.one").read_bytes()
    out = verb("replay", "open.nc", "-o", "holes.nc", "-q", code=1).out
    assert "D1 (20000): 19999 of 20000 elements in blobs, 1 in none" in out
    assert "hole: 1 element of /g/x in no subfile, filled with the fill value" in out
    assert Path("holes.nc").read_bytes() == Path("open.one").read_bytes()
    assert not verb("replay", "open.nc", "-o", "holes.nc", "-q", "--overwrite", "--allow-holes", code=0).out
    assert "1 subfile removed" in verb("replay", "full.nc.0000", "-o", "moved.nc", "--remove", code=0).out
    assert not Path("full.nc.0000").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("full.nc", "-o", "full.one"), "full.one: it exists already; give another name, or --overwrite"),
        (("full.one", "-o", "out.nc"), "full.one: it is no set of subfiles"),
        (("no.nc", "-o", "out.nc"), "no.nc: there is no such file"),
        (("full.nc", "-o", "out.nc", "--vars", "g/y"), "no dataset or group 'g/y'"),
        (("full.nc", "-o", "out.nc", "--vars", "g", "--remove"), "would lose what is not among the variables"),
        (("full.nc", "-o", "out.nc", "--format", "CDF-3"), "CDF-3"),
        (("full.nc", "-o", "out.nc", "--partial"), "takes no logs"),
        (("full.nc", "--vars", "g"), "give the file to be written with -o"),
    ],
)
def test_wrong_uses_of_replay(folder: Path, verb: Any, arguments: tuple[str, ...], told: str) -> None:
    done = verb("replay", *arguments, code=2)
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not Path("out.nc").exists()


def test_verbs_show_a_set_as_the_file_that_it_stands_for(folder: Path, verb: Any) -> None:
    for name in ("full", "open"):
        ours, one = f"{name}.nc", f"{name}.one"
        assert verb("ls", "-rv", ours, code=0).out == verb("ls", "-rv", one, code=0).out
        assert "20000" in verb("ls", f"{ours}/g/x", code=0).out
        assert not verb("diff", ours, one, code=0).out
        assert verb("dump", ours, code=0).out == verb("dump", one, code=0).out
        assert "float64" in verb("ls", f"{ours}.0000/g/x", code=0).out
    assert verb("diff", "full.nc", "open.nc").code == 1
    verb("convert", "open.nc", "open.h5", "-q", code=0)
    assert not verb("diff", "open.h5", "open.one", code=0).out
    for name in ("ls", "dump", "check"):
        assert "there is no such file" in verb(name, "none.nc").err


def test_check_looks_at_each_subfile_and_each_map(folder: Path, verb: Any) -> None:
    assert "full.nc: valid, 0 errors, 0 warnings" in verb("check", "full.nc", code=0).out
    out = verb("check", "open.nc", code=0).out
    assert "warning: D1: 1 elements of '/g/x' (20000) and 0 more are in no blob" in out
    content = bytearray(Path("full.nc.0000").read_bytes())
    at = content.index(b"blob_count")
    assert at > 0
    with pnc_vol.File("full.nc.0000") as f:
        begin = next(v.begin for v in f.id.handle.session.file_set.files.headers[0].vars if v.name == "D1.blob_count")
    content[begin + 7] ^= 1
    Path("full.nc.0000").write_bytes(bytes(content))
    out = verb("check", "full.nc", code=1).out
    assert f"full.nc: error: byte {begin}: blob_count[0]: full.nc.0000: D1.blob_count[0] is 20001" in out
