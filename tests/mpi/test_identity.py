"""The same program makes the same file, byte by byte, on 1 to 4 ranks, by every transport, and in one process."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import ranks_identity as programs

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_identity.py")
# Ranks and emulated nodes of each launch; all variants are tried on three ranks, where blocks are uneven, and on some
# nodes those that go other ways there (all of them: ``-m nightly``).
LAUNCHES: dict[tuple[int, int], list[str]] = {
    (1, 1): ["mpio", "log", "cache-mpio"],
    (2, 2): ["posix", "log-shared"],
    (3, 1): [],
    (3, 3): ["mpio-aggregate", "posix-buffers", "cache-coherent"],
    (4, 1): ["mpio-pieces", "cache-aggregate", "log-cache"],
}
# Where one rank writes before another's data, nothing can be written before the flush: the file is packed as in a
# program that never exceeds its memory. With a log it depends on what a rank has written by then: values are compared.
LARGE = {"drains", "uneven"}

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


NAMES = [program.__name__ for program in programs.PROGRAMS]


def written(folder: Path, launches: dict[tuple[int, int], list[str]]) -> Path:
    for program in programs.PROGRAMS:
        programs.run(program, str(folder), "", None)
    for (nprocs, nodes), variants in launches.items():
        env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
        run_mpi(nprocs, PROGRAM, folder / f"{nprocs}.{nodes}", *variants, timeout=400, env=env)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("identity"), LAUNCHES)


def compare(files: Path, name: str, launches: dict[tuple[int, int], list[str]]) -> None:
    found: dict[str, list[str]] = {}
    for path in [files / f"{name}.nc", *files.glob(f"*/*/{name}.nc")]:
        told = str(path.parent.relative_to(files))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if name in LARGE and ("ordered" in told or "log" in told):
            digest = "any" if "log" in told else f"packed: {digest}"
        found.setdefault(digest, []).append(told)
    assert sum(map(len, found.values())) == 1 + sum(len(v) or len(programs.VARIANTS) for v in launches.values())
    assert len(found) == 1 + 2 * (name in LARGE), found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_ranks_and_transport_gives_the_same_bytes(files: Path, name: str) -> None:
    compare(files, name, LAUNCHES)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_every_transport_on_other_numbers_of_ranks(tmp_path: Path) -> None:
    every: dict[tuple[int, int], list[str]] = {place: [] for place in ((2, 1), (2, 2), (3, 2), (4, 1), (4, 2), (4, 4))}
    written(tmp_path, every)
    for name in NAMES:
        compare(tmp_path, name, every)


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_valid(files: Path, name: str) -> None:
    ncvalidator = shutil.which("ncvalidator")
    if ncvalidator is None:
        pytest.skip("ncvalidator is not installed (Debian: pnetcdf-bin)")
    for variant in ("3.1/mpio", "3.1/mpio-ordered"):
        told = subprocess.run(
            [ncvalidator, files / variant / f"{name}.nc"], capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stdout + told.stderr


def test_another_reader_finds_the_same_numbers(files: Path) -> None:
    with netCDF4.Dataset(files / "3.1" / "mpio-collective" / "blocks.nc") as f:
        for i, dtype in enumerate(("f8", "f4", "i2", "u1", "i8")):
            assert np.array_equal(f[f"x_{dtype}"][...].data, programs.values((37, 53), dtype, i))


def test_bytes_that_nobody_wrote_are_zero(files: Path) -> None:
    """Gaps between the pieces of several ranks, padding among them, are not what a buffer happened to hold."""
    with netCDF4.Dataset(files / "3.1" / "mpio-collective" / "records.nc") as f:
        f.set_auto_mask(False)
        assert not f["a"][17:].any()
        assert not f["c"][17:].any()
