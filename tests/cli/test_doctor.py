"""``pnc-vol doctor``; JSON, standard input, several files and completion of the other verbs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kills import logged_job
from run_command import on_a_terminal

import pnc_vol


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "a.nc"
    with pnc_vol.File(path, "w") as f:
        f["g/x"] = [1.0, float("nan")]
        f["g/x"].attrs["units"] = "m\x1b[2J"
        f.attrs["odd"] = [float("inf"), 1]
        f.attrs["raw"] = np.bytes_(b"\xff")
        f["y"] = ["text"]
    return path


def test_doctor_says_what_set_an_option(tmp_path: Path, verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PNC_VOL_HINTS", "nc_var_align_size=512")
    found = json.loads(verb("doctor", "--json", tmp_path, code=0).out)
    assert found["versions"]["pnc_vol"] == pnc_vol.__version__
    assert found["hints"] == {"nc_var_align_size": "set by PNC_VOL_HINTS"}
    assert found["options"]["var_align"] == "512  (default 4)"
    assert found["file system"]["locks"] == "yes"
    assert "/s" in found["file system"]["writing"]
    assert found["advice"]
    assert os.listdir(tmp_path) == []
    text = verb("doctor", tmp_path, code=0).out
    assert "  nc_var_align_size          set by PNC_VOL_HINTS\n" in text
    assert "there is no such directory" in verb("doctor", tmp_path / "none", code=2).err


def test_doctor_leaves_mpi_to_the_process(tmp_path: Path, verb: Any) -> None:
    """A setting of mpi4py holds for the whole process, so later users of MPI would be aborted."""
    rc = pytest.importorskip("mpi4py", reason="mpi4py is not installed").rc
    found = json.loads(verb("doctor", "--json", tmp_path, code=0).out)
    assert found["mpi"]["standard"]
    assert rc.initialize
    assert "mpi4py.MPI" not in sys.modules


def test_doctor_without_a_working_mpi(tmp_path: Path, verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpi4py").mkdir()
    broken = tmp_path / "mpi4py" / "__init__.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for text, said in (
        ("raise ImportError('no libmpi.so')", "none (no libmpi.so)"),
        ("import os; os._exit(3)", "none (loading it ended with code 3)"),
        ("print(1); raise OSError('broken')", "none (OSError: broken)"),
    ):
        broken.write_text(text)
        assert json.loads(verb("doctor", "--json", tmp_path, code=0).out)["mpi"]["library"].startswith(said), text


def test_json_of_files(small: Path, tmp_path: Path, verb: Any) -> None:
    (found,) = json.loads(verb("ls", "--json", "-r", small, code=0).out)
    objects = {each["path"]: each for each in found["objects"]}
    assert objects.keys() == {"/", "/g", "/g/x", "/y"}
    assert objects["/g/x"]["shape"] == [2]
    assert objects["/g/x"]["attributes"] == {"units": "m\x1b[2J"}
    assert objects["/"]["attributes"] == {"odd": ["inf", 1.0], "raw": "\\xff"}
    assert objects["/y"]["type"] == "string"
    (found,) = json.loads(verb("check", "--json", "--for", "scipy", small, code=1).out)
    assert found["valid"]
    assert not found["for"]["scipy"]["readable"]
    with pnc_vol.File(tmp_path / "b.nc", "w") as f:
        f["y"] = ["other"]
    found = json.loads(verb("diff", "--json", small, tmp_path / "b.nc", code=1).out)
    assert {"path": "/g", "what": "only in the first file"} in found["differences"]
    script = tmp_path / "s.py"
    script.write_text(f"import h5py\nwith h5py.File({str(tmp_path / 'c.nc')!r}, 'w') as f: f['x'] = [1, 2]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pnc_vol.cli", "plan", "--json", str(script)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)[0]["nbytes"] == 16


def test_json_of_logs(tmp_path: Path, verb: Any) -> None:
    def work(f: pnc_vol.File) -> None:
        d = f.create_dataset("x", (4,), "f8")
        f.flush()
        d[:] = 7

    (meta,) = logged_job(tmp_path / "a.nc", tmp_path, work)
    (found,) = json.loads(verb("log", "--json", meta.parent, code=0).out)
    assert found["to_replay"] == 1
    assert not found["damaged"]
    assert "/x" in found["variables"].values()


def test_standard_input_and_several_files(
    small: Path, verb: Any, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    with small.open("rb") as stdin:
        assert command("ls", "-r", "-", check=0, stdin=stdin).stdout.count("Dataset") == 2
    with small.open("rb") as stdin:
        assert "valid, 0 errors" in command("check", "-", check=0, stdin=stdin).stdout
    done = verb("ls", small, small.parent / "none.nc", small, code=1)
    assert done.out.count("y  ") == 2
    assert "none.nc: there is no such file" in done.err


def test_colours_are_for_terminals(small: Path, verb: Any) -> None:
    assert b"\x1b[32mvalid" in on_a_terminal("check", small)
    assert b"\x1b" not in on_a_terminal("check", small, NO_COLOR="1")
    assert "\x1b" not in verb("check", small, code=0).out
