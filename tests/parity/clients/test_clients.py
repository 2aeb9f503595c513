"""Programs that were written for h5py, unmodified: the same on pnc_vol as on h5py.

Each runs twice, in processes of its own: on h5py, and where ``import h5py`` gives pnc_vol (`as_h5py`). What they print
must be equal, or the outcomes of their own tests. Every file of the second run is read by netCDF4 and ncvalidator.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SECONDS = 240

SUITES = {
    "h5io": ("h5io.tests", ""),
    "emcee": ("emcee.tests.unit.test_backends", "reload or multi or compression or longdouble or uninit"),
}
"""Clients whose own tests are installed with them, and which of them are taken: the others of emcee do the same for
longer."""
PROGRAMS = {
    "anndata": "anndata_h5ad.py",
    "meshio": "meshio_meshes.py",
    "dask": "dask_arrays.py",
    "h5sparse": "h5sparse_matrices.py",
    "pyh5md": "pyh5md_particles.py",
    "nexusformat": "nexusformat_entries.py",
    "silx": "silx_dicts.py",
    "hickle": "hickle_objects.py",
    "astropy": "astropy_tables.py",
    "h5rdmtoolbox": "h5rdmtoolbox_records.py",
    "keras": "keras_weights.py",
}
NEEDS = {"dask": ("dask", "h5py"), "h5sparse": ("h5sparse", "scipy"), "keras": ("keras", "jax")}
"""What a client needs besides."""


def need(client: str) -> None:
    for name in ("h5py", "netCDF4", *NEEDS.get(client, (client,))):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (pip install pnc-vol[clients])")


def start(module: str, command: list[str], folder: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    env = {
        **os.environ,
        "PNC_VOL_CLIENTS": module,
        "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parent), str(ROOT))),
        "PYTHONWARNINGS": "ignore",
        "TMPDIR": str(folder),
    }
    env.pop("PYTEST_ADDOPTS", None)
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def both(command: list[str], tmp_path: Path) -> list[str]:
    """What the command prints on h5py and on pnc_vol, at the same time."""
    told = []
    with contextlib.ExitStack() as stack:
        started = {
            module: stack.enter_context(start(module, command, tmp_path / module)) for module in ("h5py", "pnc_vol")
        }
        stack.callback(lambda: [process.kill() for process in started.values()])
        for module, process in started.items():
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, f"on {module}: {out[-3000:]}\n{err[-3000:]}"
            told.append(out)
    return told


LARGE = {"keras"}
"""Clients that CI does not install; 'pytest -m nightly' runs them where they are installed."""


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=[pytest.mark.nightly] if name in LARGE else []) for name in PROGRAMS]
)
def test_program(client: str, tmp_path: Path) -> None:
    need(client)
    command = [sys.executable, str(HERE / "as_h5py.py"), str(HERE / "programs" / PROGRAMS[client])]
    theirs, ours = both(command, tmp_path)
    assert ours.splitlines() == theirs.splitlines()
    assert len(theirs) > 200, "the program says nothing that could be compared"


@pytest.mark.parametrize("client", SUITES)
def test_own_tests(client: str, tmp_path: Path) -> None:
    need(client)
    suite, chosen = SUITES[client]
    ini = tmp_path / "client.ini"
    ini.write_text("[pytest]\n")
    command = [
        sys.executable, "-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore",
        "-c", str(ini), "--rootdir", str(tmp_path), "-p", "as_h5py", "-k", chosen, "--pyargs", suite,
    ]  # fmt: skip
    theirs, ours = (
        set(re.findall(r"^(PASSED|SKIPPED|FAILED|ERROR) (\S+)", out, re.M)) for out in both(command, tmp_path)
    )
    assert ours == theirs
    assert len([1 for outcome, _ in theirs if outcome == "PASSED"]) >= 5
