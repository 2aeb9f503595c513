"""``pnc-vol run`` and the Python processes that its script starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pnc_vol


def run(script: Path, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pnc_vol.cli", "run", str(script)]
    where = {"cwd": folder, "env": os.environ | env, "timeout": 120}
    return subprocess.run(command, capture_output=True, text=True, check=True, **where)  # type: ignore[call-overload]


def test_children_write_cdf_however_they_are_started(tmp_path: Path) -> None:
    done = run(Path(__file__).with_name("parent.py"), tmp_path)
    for name in ("spawn", "forkserver", "fork", "program", "grandchild"):
        assert (tmp_path / name).read_bytes()[:4] == b"CDF\x05", name
        with pnc_vol.File(tmp_path / name) as f:
            assert f["x"][:].tolist() == [1, 2, 3]
    assert done.stdout.strip() == "[]", "a child that does not import h5py loads nothing of ours"
    assert not done.stderr


def test_a_sitecustomize_of_the_environment_runs_too(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.customized = __file__")
    ask = "import sys, h5py, sitecustomize; print(sys.customized == sitecustomize.__file__, h5py.File.__module__)"
    (tmp_path / "script.py").write_text(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ask!r}])")
    assert run(tmp_path / "script.py", tmp_path, PYTHONPATH=str(tmp_path / "site")).stdout.split() == [
        "True",
        "pnc_vol.api.file",
    ]


def test_a_python_without_pnc_vol_says_that_it_writes_hdf5(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=False)
    if made.returncode:
        pytest.skip("no environment can be made here")
    python, ask = str(bare / "bin" / "python"), "import importlib.util; importlib.util.find_spec('h5py')"
    (tmp_path / "script.py").write_text(f"import subprocess; subprocess.run([{python!r}, '-c', {ask!r}])")
    assert "h5py writes HDF5 in" in run(tmp_path / "script.py", tmp_path).stderr


def test_a_warning_is_one_line_of_the_command(tmp_path: Path) -> None:
    """No class, no place in this package's code; a script's own warnings keep theirs."""
    path = tmp_path / "cut.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.arange(1000.0)
    os.truncate(path, os.path.getsize(path) - 80)
    command = [sys.executable, "-m", "pnc_vol.cli"]
    done = subprocess.run([*command, "ls", str(path)], capture_output=True, text=True, check=True)
    assert done.stderr.startswith(f"pnc-vol: warning: {path}: 80 bytes of data are missing")
    assert done.stderr.count("\n") == 1
    script = tmp_path / "s.py"
    script.write_text("import warnings\nwarnings.warn('mine')\n")
    done = subprocess.run([*command, "run", str(script)], capture_output=True, text=True, check=True)
    assert f"{script}:2: UserWarning: mine" in done.stderr
