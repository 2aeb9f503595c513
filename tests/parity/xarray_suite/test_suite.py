"""xarray's own tests of engines on this one, against the list of those that pass.

``passing.txt`` has the tests of `suite` and `distributed_suite` that pass; one of them that does not pass any more is a
failure here.
``not_passing.tsv`` has a reason for each of the others. ``python tests/parity/xarray_suite/test_suite.py`` writes the
first list anew and prints what the second one lacks.

It runs where xarray has the version of the lists and dask is installed: CI runs it once, beside the clients.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
VERSION = "2026.9.0"
"""The xarray whose tests the lists are about."""
SECONDS = 880
"""For a run that takes two minutes of a core: a hang ends, a busy machine is no failure."""
AGAIN = ("TestFilesByDask", "TestFileObjects")
"""What has the tests of `TestFiles` once more, for files read by dask, or written to and read from file objects."""


def run(folder: Path, again: bool | None = None) -> dict[str, tuple[str, str]]:
    """Outcome and reason of each test, by its name; of the classes `AGAIN` alone, or of the others alone."""
    chosen = " or ".join(AGAIN) if again else f"not {' and not '.join(AGAIN)}" if again is not None else ""
    results, ini = folder / "results.tsv", folder / "suite.ini"
    ini.write_text("[pytest]\n")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(HERE), str(ROOT))),
        "PNC_VOL_XARRAY_RESULTS": str(results),
        "PYTEST_ADDOPTS": "",
    }
    command = [
        sys.executable, "-m", "pytest", "-q", "-rN", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore",
        "-c", str(ini), "--rootdir", str(HERE), "-p", "swap", str(HERE / "suite.py"),
        str(HERE / "distributed_suite.py"), "-k", chosen,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert results.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    rows = (line.split("\t") for line in results.read_text().splitlines())
    return {name: (outcome, reason) for outcome, name, reason in rows}


def listed(name: str) -> dict[str, str]:
    """The tests of a list, with what follows them."""
    rows = (line.partition("\t") for line in (HERE / name).read_text().splitlines() if line)
    return {row[0]: row[2].strip() for row in rows}


def reason_of(name: str, reasons: dict[str, str]) -> str:
    """Why a test does not pass: the reason of the test in whatever class, without its parameters."""
    return reasons.get(name) or reasons.get(name.rpartition("::")[2].partition("[")[0], "")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_xarrays_own_tests(again: bool, tmp_path: Path) -> None:
    if importlib.util.find_spec("dask") is None or importlib.util.find_spec("pooch") is None:
        pytest.skip("dask or pooch is not installed (pip install pnc-vol[clients])")
    if importlib.metadata.version("xarray") != VERSION:
        pytest.skip(f"the lists are about the tests of xarray {VERSION}")
    results = run(tmp_path, again)
    passed = {name for name, (outcome, _) in results.items() if outcome == "passed"}
    wanted = {name for name in listed("passing.txt") if name.startswith(AGAIN) == again}
    lost = {name: results.get(name, ("missing", ""))[1] for name in sorted(wanted - passed)}
    assert not lost, "tests of xarray that passed until now"
    reasons = listed("not_passing.tsv")
    failed = [name for name, (outcome, _) in results.items() if outcome == "failed"]
    assert not [name for name in failed if not reason_of(name, reasons)], "tests that fail without a reason"


def test_nine_of_ten_pass_of_those_that_do_not_need_netcdf4() -> None:
    passing, reasons = listed("passing.txt"), listed("not_passing.tsv")
    assert all(reasons.values())
    others = [reason for reason in reasons.values() if not reason.startswith("netCDF-4:")]
    assert len(passing) > 450
    # a reason stands for a test in each of the six classes at most, and for its parameters
    assert 6 * len(others) < len(passing) / 9


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        found = run(Path(work))
    good = sorted(name for name, (outcome, _) in found.items() if outcome == "passed")
    (HERE / "passing.txt").write_text("\n".join(good) + "\n")
    known = listed("not_passing.tsv")
    print(f"{len(good)} pass of {len(found)}; failures without a reason:")
    for name, (outcome, why) in found.items():
        if outcome == "failed" and not reason_of(name, known):
            print(name, why, sep="\t")
