"""The mpio driver on several ranks, and how it speaks of the library's failures."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from pnc_vol.drivers.stack import open_stack
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_mpio.py")

needs_mpi = pytest.mark.skipif(bool(missing()), reason=missing())


def run(case: str, path: Path, spec: str, nprocs: int = 3) -> None:
    run_mpi(nprocs, PROGRAM, case, path / "file", spec, timeout=60)


@needs_mpi
@pytest.mark.parametrize(
    "spec",
    [
        "mpio",
        "mpio(round_bytes=64)",
        "trace | mpio(round_bytes=30)",
        "mpio(derived_types=false)",
        "mpio(derived_types=false, round_bytes=200)",
        "posix",
    ],
)
def test_interleaved_shares_rank_with_nothing_unequal_rounds(tmp_path: Path, spec: str) -> None:
    run("interleaved", tmp_path, spec)


@needs_mpi
def test_two_ranks(tmp_path: Path) -> None:
    run("interleaved", tmp_path, "mpio(round_bytes=100)", nprocs=2)


@needs_mpi
def test_the_path_without_types_has_two_ways(tmp_path: Path) -> None:
    """Few pieces go by collective calls, many by independent ones; both must give the same file."""
    script = tmp_path / "few.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import pnc_vol.drivers.mpio as mpio, ranks_mpio\n"
        "mpio.PLAIN_CALLS = 1000\n"
        "ranks_mpio.interleaved(sys.argv[1], 'mpio(derived_types=false, round_bytes=300)')\n"
    )
    run_mpi(3, script, tmp_path / "file", timeout=60)


@needs_mpi
@pytest.mark.parametrize("spec", ["mpio", "mpio(round_bytes=16)", "posix"])
def test_independent_shares(tmp_path: Path, spec: str) -> None:
    run("independent", tmp_path, spec)


@needs_mpi
@pytest.mark.parametrize("spec", ["mpio", "posix"])
@pytest.mark.parametrize("case", ["alone", "resize", "errors"])
def test_ranks(tmp_path: Path, case: str, spec: str) -> None:
    run(case, tmp_path, spec)


@needs_mpi
@pytest.mark.parametrize("spec", ["mpio", "mpio(round_bytes=2)", "mpio(derived_types=false)", "posix"])
def test_a_failing_rank_keeps_no_other_waiting(tmp_path: Path, spec: str) -> None:
    run("failing", tmp_path, spec)


@needs_mpi
@pytest.mark.parametrize("spec", ["mpio", "mpio(derived_types=false)"])
def test_a_full_disk_is_an_error(tmp_path: Path, spec: str) -> None:
    run("full", tmp_path, spec)


@needs_mpi
def test_close_after_the_end_of_mpi(tmp_path: Path) -> None:
    run("unclosed", tmp_path, "mpio")


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
        with pytest.raises(ValueError, match="round_bytes"):
            open_stack(f"mpio(round_bytes={wrong})", str(tmp_path / "file"), writable=True)
