"""The mpio driver on several ranks, and how it speaks of the library's failures."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from other_process import fresh
from scenarios import Launch

from pnc_vol.testing.driver_suite import open_stack
from pnc_vol.testing.mpi import missing

PROGRAM = Path(__file__).with_name("ranks_mpio.py")

needs_mpi = pytest.mark.skipif(bool(missing()), reason=missing())


BOTH = ["mpio", "posix"]
CASES = {
    "interleaved": [
        "mpio", "mpio(round_bytes=64)", "trace | mpio(round_bytes=30)", "mpio(derived_types=false)",
        "mpio(derived_types=false, round_bytes=200)", "posix",
    ],
    "few": ["mpio(derived_types=false, round_bytes=300)"],
    "independent": ["mpio", "mpio(round_bytes=16)", "posix"],
    "alone": BOTH,
    "resize": BOTH,
    "errors": BOTH,
    "failing": ["mpio", "mpio(round_bytes=2)", "mpio(derived_types=false)", "posix"],
    "full": ["mpio", "mpio(derived_types=false)"],
}  # fmt: skip
"""Functions of the program, and the stacks that each is done with."""
NAMES = [f"{case} {spec}" for case, specs in CASES.items() for spec in specs]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """All cases with all stacks on three ranks."""
    return Launch(3, PROGRAM, tmp_path_factory.mktemp("three"), *NAMES, timeout=280)


@needs_mpi
@pytest.mark.parametrize("name", NAMES)
def test_three_ranks(three: Launch, name: str) -> None:
    three.check(name, seconds=60)


@needs_mpi
def test_two_ranks(tmp_path: Path) -> None:
    name = "interleaved mpio(round_bytes=100)"
    two = Launch(2, PROGRAM, tmp_path, name)
    two.check(name, seconds=60)
    assert two.job.returncode == 0, two.job.stderr


@needs_mpi
def test_the_job_ends_in_order(three: Launch) -> None:
    assert three.job.returncode == 0, three.job.stderr


@needs_mpi
def test_close_after_the_end_of_mpi(tmp_path: Path) -> None:
    job = Launch(3, PROGRAM, tmp_path, "unclosed mpio").job
    assert job.returncode == 0, job.stderr


def test_broken_libraries_are_known() -> None:
    from pnc_vol.drivers.mpi_library import types_are_broken

    debian = "MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7 12:34:45 CDT 2022"
    assert types_are_broken(debian, "4.0.0")
    assert types_are_broken(debian, "4.1.2")
    assert not types_are_broken(debian, "3.1.6")
    assert not types_are_broken("MPICH Version:      4.1.2", "4.1.2")
    assert not types_are_broken("MPICH Version:      5.0.2", "4.1.2")
    assert not types_are_broken("MPICH Version:      4.3.0", "4.1.2")
    assert not types_are_broken("Open MPI v5.0.11, package: Open MPI", "4.1.2")


def test_without_mpi4py_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_mpi4py(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "mpi4py":
            raise ModuleNotFoundError("No module named 'mpi4py'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_mpi4py)
    with pytest.raises(ImportError, match=r'pip install "pnc-vol\[mpi\]"'):
        open_stack("mpio", str(tmp_path / "file"), writable=True)


@needs_mpi
def test_calls_of_more_than_2_gib_are_not_made(tmp_path: Path) -> None:
    for wrong in (0, 1 << 31):
        done = fresh(mpio, f"mpio(round_bytes={wrong})", tmp_path / "file")
        assert "ValueError" in done.stderr.splitlines()[-1]
        assert "round_bytes" in done.stderr.splitlines()[-1]


def mpio(spec: str, path: str) -> None:
    open_stack(spec, path, writable=True)
