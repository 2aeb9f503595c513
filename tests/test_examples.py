"""Every example runs, and what it wrote is what independent readers read."""

from __future__ import annotations

import difflib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_process import fresh
from programs import assert_valid, generated

import pnc_vol
from pnc_vol.testing.mpi import find_mpiexec, missing, run_mpi

netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")

EXAMPLES = Path(__file__).parents[1] / "examples"
HEAT = ("--n", 20, "--steps", 60, "--every", 5, "--flush", 3)
needs_mpi = pytest.mark.skipif(bool(missing()), reason=missing())


def run(*command: object, cwd: Path) -> str:
    """Run an example; its standard output."""
    name, *args = command
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / str(name)), *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"MPLBACKEND": "Agg", "MPLCONFIGDIR": str(cwd)},
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def test_first_file(tmp_path: Path) -> None:
    out = run("01_first_file.py", "first.nc", cwd=tmp_path)
    assert "Kiel      15.20 degree_Celsius at the surface" in out
    with netCDF4.Dataset(tmp_path / "first.nc") as data:
        assert data["ocean_temperature"].shape == (10, 3, 6)
        assert data["ocean_temperature"].units == "degree_Celsius"
        assert data["ocean_station"][:].tolist() == ["Kiel", "Tromsø", "Nuuk"]
    assert_valid(tmp_path / "first.nc")


def test_the_port_differs_in_the_import_line_alone() -> None:
    before, after = (
        (EXAMPLES / "02_port" / name).read_text().splitlines() for name in ("before_h5py.py", "after_pnc_vol.py")
    )
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert changed == ["- import h5py", "+ import pnc_vol as h5py"]


def test_both_sides_of_the_port_say_and_hold_the_same(tmp_path: Path) -> None:
    before = run("02_port/before_h5py.py", "before.h5", cwd=tmp_path)
    after = run("02_port/after_pnc_vol.py", "after.nc", cwd=tmp_path)
    assert before == after
    assert "shots: 90 of 100" in after
    import h5py

    with h5py.File(tmp_path / "before.h5") as old, pnc_vol.File(tmp_path / "after.nc") as new:
        names: list[str] = []
        old.visit(names.append)
        found: list[str] = []
        new.visit(found.append)
        assert sorted(names) == sorted(found)
        for name in names:
            # NetCDF keeps a fill value as an attribute, and shows it.
            assert set(old[name].attrs) == set(new[name].attrs) - {"_FillValue"}
            for key, value in old[name].attrs.items():
                np.testing.assert_array_equal(new[name].attrs[key], value)
            if isinstance(old[name], h5py.Dataset):
                assert (old[name].shape, old[name].dtype, old[name].maxshape) == (
                    new[name].shape,
                    new[name].dtype,
                    new[name].maxshape,
                )
                np.testing.assert_array_equal(old[name][()], new[name][()])
    with netCDF4.Dataset(tmp_path / "after.nc") as data:
        assert data["runs_0001_signal"].shape == (100, 256)
    assert_valid(tmp_path / "after.nc")


def heat(n: int, steps: int, every: int) -> np.ndarray:
    """The records of the heat example, on one plain array."""
    u = np.zeros((n + 2, n + 2))
    y, x = (np.ogrid[-1 : n + 1, -1 : n + 1][i] + 0.5 for i in (0, 1))
    u[(y / n - 0.65) ** 2 + (x / n - 0.3) ** 2 < 0.02] = 100
    u[(y / n - 0.4) ** 2 + (x / n - 0.7) ** 2 < 0.01] = 80
    records = []
    for step in range(steps + 1):
        if step % every == 0:
            records.append(u[1:-1, 1:-1].copy())
        u[0, :] = 40
        u[1:-1, 1:-1] += 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return np.array(records)


def heat_alone(folder: str) -> None:
    os.chdir(folder)
    sys.modules["mpi4py"] = None  # type: ignore[assignment]
    sys.argv = [str(EXAMPLES / "03_heat_mpi.py"), "heat.nc", *map(str, HEAT)]
    runpy.run_path(sys.argv[0], run_name="__main__")


@pytest.fixture(scope="module")
def serial_heat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process without mpi4py writes."""
    folder = tmp_path_factory.mktemp("heat")
    done = fresh(heat_alone, folder)
    assert done.returncode == 0, done.stderr
    assert "13 records of 20 x 20 cells" in done.stdout
    return folder / "heat.nc"


def test_heat_without_mpi4py(serial_heat: Path) -> None:
    with netCDF4.Dataset(serial_heat) as data:
        np.testing.assert_array_equal(data["u"][:].data, heat(20, 60, 5))
        np.testing.assert_allclose(data["time"][:], np.arange(13) * 5 * 0.2 / 400)
        assert data["u"].dimensions == ("time", "y", "x")
        assert data.Conventions == "CF-1.8"
        dates = netCDF4.num2date(data["time"][:], data["time"].units, data["time"].calendar)
        assert str(dates[0]) == "2000-01-01 00:00:00"
        np.testing.assert_allclose(data["y"][:], (np.arange(20) + 0.5) / 20)
    assert_valid(serial_heat)


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 4))])
def test_heat_is_the_same_file_for_any_number_of_ranks(ranks: int, serial_heat: Path, tmp_path: Path) -> None:
    out = run_mpi(ranks, EXAMPLES / "03_heat_mpi.py", tmp_path / "heat.nc", *HEAT).stdout
    assert out.count("13 records of 20 x 20 cells") == 1
    assert (tmp_path / "heat.nc").read_bytes() == serial_heat.read_bytes()


def test_the_plot_shows_something(serial_heat: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("xarray", reason="xarray is not installed")
    out = run("03_plot.py", serial_heat, "heat.png", cwd=tmp_path)
    assert "4 of 13 records" in out
    import matplotlib.image

    pixels = matplotlib.image.imread(str(tmp_path / "heat.png"))
    assert pixels.shape[0] > 200
    assert pixels.shape[1] > 1000
    # The hot discs: bright pixels of the colour map, beside the black of the cold plate.
    bright = (pixels[..., 0] > 0.9) & (pixels[..., 1] > 0.9) & (pixels[..., 2] < 0.8)
    black = pixels[..., :3].max(axis=-1) < 0.05
    assert bright.sum() > 500
    assert black.sum() > 5000


def test_output_by_xarray(tmp_path: Path) -> None:
    pytest.importorskip("xarray", reason="xarray is not installed")
    out = run("11_xarray.py", "ocean.nc", cwd=tmp_path)
    assert "10 days, 2001-01-10 is the last one" in out
    assert "coldest: 270.00 K" in out
    with netCDF4.Dataset(tmp_path / "ocean.nc") as data:
        assert data["temperature"].dtype == "i2"
        assert data["temperature"][5, 1, 1] == 270
    assert_valid(tmp_path / "ocean.nc")


def test_adding_to_a_file(tmp_path: Path) -> None:
    out = run("04_add_to_a_file.py", "log.nc", cwd=tmp_path)
    moves = out.partition("times that data had to be moved:")[2]
    assert moves.count(": 0") == 4, out
    with netCDF4.Dataset(tmp_path / "log.nc") as data:
        assert data["level"][30] == 17
        assert data["daily_mean"][:].tolist() == [11.5, 11.5]
        assert data["visits"][:].tolist() == [20261120, 20261121, 20261122]
        assert data.history == "daily means added"
    assert_valid(tmp_path / "log.nc")


def test_reading_a_foreign_file(tmp_path: Path) -> None:
    out = run("05_read_foreign.py", cwd=tmp_path)
    assert "foreign.nc: CDF-5, 2 records" in out
    wind = next(line for line in out.splitlines() if "wind" in line)
    assert " ".join(wind.split()) == "data wind (2, 3, 4) float32 may grow: True axes: /time, /lat, /lon"


@pytest.mark.parametrize(
    ("kind", "version"), [("classic", "CDF-1"), ("64-bit-offset", "CDF-2"), ("64-bit-data", "CDF-5")]
)
def test_reading_a_file_of_ncgen(kind: str, version: str, tmp_path: Path) -> None:
    cdl = (
        "netcdf small { dimensions: x = 2 ; t = UNLIMITED ; variables: int x(x) ; short v(t, x) ;"
        ' :title = "small" ; data: x = 5, 6 ; v = 1, 2, 3, 4, 5, 6 ; }'
    )
    generated(tmp_path / "small.nc", kind, cdl)
    out = run("05_read_foreign.py", "small.nc", cwd=tmp_path)
    assert f"small.nc: {version}, 3 records; {{'title': 'small'}}" in out
    assert "axes: -, /x" in out


def test_a_killed_run_is_recovered(tmp_path: Path) -> None:
    out = run("06_recover_killed_run.py", "run.nc", cwd=tmp_path)
    assert "killed with signal 9" in out
    assert "told: run.nc: a job that ended early left posted data" in out
    posted, flushed, recovered = (
        int(out.partition(what)[2].split()[0]) for what in ("signal 9 after", "in the file:", "recovered:")
    )
    assert flushed % 40 == 0
    assert posted >= 100
    # The kill may fall between the two posts of a step: the record is there then, and holds the fill value.
    assert recovered in (posted, posted + 1)
    with netCDF4.Dataset(tmp_path / "run.nc") as data:
        data.set_auto_mask(False)
        values = data["u"][:]
    assert values.shape == (recovered, 1000)
    np.testing.assert_array_equal(values[:posted], np.repeat(np.arange(posted), 1000).reshape(posted, 1000))
    assert (values[posted:] == 0).all() or (values[posted:] == posted).all()
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]
    assert_valid(tmp_path / "run.nc")


KILLED = """
import os, signal, sys
from mpi4py import MPI
import pnc_vol as h5py

comm = MPI.COMM_WORLD
f = h5py.File(sys.argv[1], "w", driver="mpio", comm=comm)
x = f.create_dataset("x", (4,), "i4")
f.flush()
x[2 * comm.rank : 2 * comm.rank + 2] = comm.rank + 1
comm.Barrier()
os.kill(os.getpid(), signal.SIGKILL)
"""
# What Slurm does with the two kinds of steps of the script, on a cluster of one node.
SRUN = """#!/bin/bash
once=
while [[ $1 == --* ]]; do [[ $1 == --ntasks-per-node=1 ]] && once=1; shift; done
[[ -n $once ]] && exec "$@"
exec "$MPIEXEC" -n 2 "$@"
"""


def slurm_job(tmp_path: Path, script: str, *words: str, srun: str, **env: str) -> tuple[Any, Path]:
    """Run a script of an example where a program stands for `srun`; what it said, and the node-local folder."""
    local, command = tmp_path / "local", tmp_path / "bin" / "srun"
    local.mkdir()
    command.parent.mkdir()
    command.write_text(srun)
    command.chmod(0o755)
    env |= {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "MPIEXEC": str(find_mpiexec())}
    env |= {"SLURM_TMPDIR": str(local), "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(EXAMPLES / script), *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, env=os.environ | env,
    )  # fmt: skip
    return done, local


@needs_mpi
@pytest.mark.parametrize("killed", [False, True])
def test_the_slurm_job(killed: bool, tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    program = tmp_path / "killed.py" if killed else EXAMPLES / "03_heat_mpi.py"
    done, local = slurm_job(tmp_path, "07_burst_buffer.slurm", "out.nc", srun=SRUN, PROGRAM=str(program))
    left = [path.name for path in local.iterdir()]
    assert not list(tmp_path.glob("*.logs"))
    if not killed:
        assert (done.returncode, left) == (0, []), done.stdout + done.stderr
        assert "pncbb" not in str(list(tmp_path.iterdir()))
        return
    assert done.returncode != 0
    assert len(left) == 1
    assert "2 requests of 2 logs replayed" in done.stdout, done.stdout + done.stderr
    with netCDF4.Dataset(tmp_path / "out.nc") as data:
        assert data["x"][:].tolist() == [1, 1, 2, 2]


def test_output_is_hidden_behind_the_computation(tmp_path: Path) -> None:
    out = run("08_hidden_output.py", "results", cwd=tmp_path)
    assert "without the cache:" in out
    assert "the last file has 500000 values" in out
    # how much depends on what else the machine does; `bench cached` measures it
    assert re.search(r"computation: -?\d+%", out)
    assert_valid(tmp_path / "results" / "step0.nc")


@needs_mpi
def test_the_slurm_job_with_a_cache(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "program.py").write_text(CHECKPOINTS)
    words, srun = ("results", "program.py", "results"), '#!/bin/bash\nshift\nexec $MPIEXEC -n 2 "$@"\n'
    done, local = slurm_job(tmp_path, "09_cache.slurm", *words, srun=srun)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["enable", str(local)]
    for step in range(2):
        with pnc_vol.File(tmp_path / "results" / f"checkpoint{step}.nc") as f:
            assert f["x"][:].tolist() == [step, step + 1]
    assert not list(local.glob("**/*.cache"))


CHECKPOINTS = """
import sys
import pnc_vol
from mpi4py import MPI
comm = MPI.COMM_WORLD
for step in range(2):
    with pnc_vol.File(f"{sys.argv[1]}/checkpoint{step}.nc", "w", comm=comm) as f:
        f.create_dataset("x", (comm.size,), "i4")[comm.rank] = step + comm.rank
        hints = f.hints
if comm.rank == 0:
    print(hints["e10_cache"], hints["e10_cache_path"])
"""


def test_a_layout_of_raw_files(tmp_path: Path) -> None:
    out = run("plugin_layout/pnc_vol_rawfiles.py", "raw.nc", cwd=tmp_path)
    assert "raw.nc.raw/x: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in out
    assert "x[:, 1]: [1.0, 4.0] steps: [0, 10, 20]" in out
    assert np.fromfile(tmp_path / "raw.nc.raw" / "steps", ">i4").tolist() == [0, 10, 20]


def test_a_store_that_compresses(tmp_path: Path) -> None:
    out = run("plugin_store/pnc_vol_zipped.py", "zipped.nc", cwd=tmp_path)
    assert "posted: 4194304 bytes; drained before the flush: 0" in out
    assert "in the file: [0.0, 1.0, 2.0]" in out


@needs_mpi
@pytest.mark.parametrize(("ranks", "subfiles"), [pytest.param(1, 1, marks=pytest.mark.nightly), (4, 2)])
def test_blobs_of_a_mesh(ranks: int, subfiles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    out = run_mpi(ranks, EXAMPLES / "10_blobs.py", "ocean.nc", subfiles).stdout
    assert "heat (4, 5, 3000), mean of the last record 10.779" in out
    assert "whole.nc: 3 variables, complete: True" in out
    assert len(list(tmp_path.glob("ocean.nc.*"))) == subfiles
    lon, lat = np.random.default_rng(0).uniform([0, -90], [360, 90], (3000, 2)).T
    with netCDF4.Dataset(tmp_path / "whole.nc") as data:
        np.testing.assert_array_equal(data["lon"][:], lon)
        heat = 20 * np.cos(np.radians(lat)) - 4 + np.sin(np.radians(lon + 40))
        np.testing.assert_allclose(data["heat"][1, 4], heat, rtol=1e-5, atol=1e-5)
    assert_valid(tmp_path / "whole.nc")
    import matplotlib.image

    pixels = matplotlib.image.imread(str(tmp_path / "ocean.png"))
    # yellow: the warm cells at the equator
    assert ((pixels[..., 0] > 0.9) & (pixels[..., 1] > 0.8) & (pixels[..., 2] < 0.3)).sum() > 500


def test_the_table_of_examples_is_whole() -> None:
    table = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        if path.name[0].isdigit() or path.is_dir():
            assert f"]({path.name}" in table, f"{path.name} is missing in examples/README.md"


def test_remote(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    out = run("12_remote.py", cwd=tmp_path)
    assert "/t: (40, 200, 300), K; opened with 2 requests" in out
    assert "t[7, :2, :3] = [[420000.0, 420001.0, 420002.0], [420300.0, 420301.0, 420302.0]]; 3 requests" in out
    assert "means of four records: [29999.5, 629999.5, 1229999.5, 1829999.5]" in out


def test_data_elsewhere(tmp_path: Path) -> None:
    out = run("14_data_elsewhere.py", "days", cwd=tmp_path)
    assert "days 4 means [15.0, 16.0, 17.0, 18.0]" in out
    assert "counts [12, 13, 14]" in out
    with pnc_vol.File(tmp_path / "days/whole.nc") as f:
        assert not f["temperature"].is_virtual
        assert f["temperature"].shape == (4, 24)
