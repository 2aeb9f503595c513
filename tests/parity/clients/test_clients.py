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

from pnc_vol.testing.mpi import missing, run_mpi

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
    if client == "tables_io" and sys.version_info < (3, 11):
        pytest.skip("tables_io wants Python 3.11")
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


# ------------------------------------------------------------------------------------------------- case studies

CASES = {
    "emcee": ("emcee_chain.py", 20, "/mcmc/chain", "mcmc_chain"),
    "anndata": ("anndata_cells.py", 300, "/obsm/pca", "obsm_pca"),
    "tables_io": ("tables_io_ranks.py", 20000, "/catalogue/pdf", "catalogue_pdf"),
}
"""Of docs/explain/case-studies.md: the client's program, its size, and a dataset with its name in NetCDF."""


def read_by_others(written: Path, reference: Path, dataset: str, variable: str) -> None:
    """netCDF4, xarray and ncdump find in the file of pnc_vol what h5py finds in its own."""
    import h5py
    import netCDF4
    import numpy as np
    import xarray

    with h5py.File(reference) as file:
        wanted = file[dataset][()]
    with netCDF4.Dataset(written) as found:
        assert found.data_model == "NETCDF3_64BIT_DATA"
        np.testing.assert_array_equal(found[variable][...], wanted)
    with xarray.open_dataset(written, engine="netcdf4") as found:
        np.testing.assert_array_equal(found[variable].values, wanted)
    told = subprocess.run(["ncdump", "-h", written], capture_output=True, text=True, check=True).stdout
    assert f" {variable}(" in told


@pytest.mark.parametrize("client", CASES)
def test_case_study(client: str, tmp_path: Path) -> None:
    need(client)
    program, size, dataset, variable = CASES[client]
    theirs, ours = both(
        [sys.executable, str(HERE / "as_h5py.py"), str(HERE / "cases" / program), "result", str(size)], tmp_path
    )
    assert ours == theirs
    assert len(theirs) > 50
    read_by_others(tmp_path / "pnc_vol/result", tmp_path / "h5py/result", dataset, variable)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_case_study_on_ranks(tmp_path: Path) -> None:
    """The same program on four ranks, of which each writes its part of one file; h5py writes the other on one rank."""
    need("tables_io")
    program, size, dataset, variable = CASES["tables_io"]
    case = str(HERE / "cases" / program)
    alone = start("h5py", [sys.executable, str(HERE / "as_h5py.py"), case, "result", str(size)], tmp_path / "h5py")
    theirs, err = alone.communicate(timeout=SECONDS)
    assert alone.returncode == 0, err[-3000:]
    ours = run_mpi(
        4, "pnc_vol.cli", "run", case, tmp_path / "result", size, timeout=SECONDS, env={"PYTHONWARNINGS": "ignore"}
    )
    assert ours.stdout == theirs
    read_by_others(tmp_path / "result", tmp_path / "h5py/result", dataset, variable)
