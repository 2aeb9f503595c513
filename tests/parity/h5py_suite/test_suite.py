"""h5py's own tests on pnc_vol, against the list of those that pass.

A test of the list that does not pass any more is a failure here, and so is one that passes and is not in the list: then
``python tests/parity/h5py_suite/test_suite.py`` writes the lists anew, and the change is looked at.

``passing.txt`` has the ids of tests that pass, every file that they leave being looked at by other programs
(`checking`);
``reopened.txt`` those that pass in the reopen mode (`reopening`). ``not_passing.tsv`` has a reason for each test that
could pass
and does not. What is in none of them needs HDF5 itself: its files, its low-level functions, single writers, virtual
datasets.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
VERSION = "3.16.0"
"""The h5py whose tests the lists are about."""

MODES = {"check": "passing.txt", "reopen": "reopened.txt"}
"""Which list is about which mode; where netCDF4 is missing, files are not checked."""
NOT_OURS = ("test_unregister_filter",)
"""Tests that start a process of their own, which knows nothing of the swap: it would test h5py."""
VOLATILE = {"test_file.py::TestFileOpen::test_append_permissions"}
"""Tests whose outcome depends on the user: root may write any file."""
MEMORY = 8 << 30
SECONDS = 280


def folder_of_tests() -> Path:
    found = importlib.metadata.distribution("h5py").locate_file("h5py/tests")
    return Path(str(found))


def run(mode: str, folder: Path) -> dict[str, tuple[str, str]]:
    """Outcome and reason of each test, by id."""
    tests, results = folder_of_tests(), folder / "results.tsv"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parent), str(ROOT))),
        "PNC_VOL_SUITE_RESULTS": str(results),
        "PNC_VOL_SUITE_MODE": mode,
    }
    ini = folder / "suite.ini"
    ini.write_text("[pytest]\n")
    command = [
        sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore", "-c", str(ini),
        "--rootdir", str(tests.parents[1]), "-p", "h5py_swap", f"--ignore={tests / 'test_h5pl.py'}",
        "-k", " and ".join(f"not {name}" for name in NOT_OURS), str(tests),
    ]  # fmt: skip

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False, preexec_fn=limit
    )
    assert results.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    rows = (line.split("\t") for line in results.read_text().splitlines())
    return {name: (outcome, reason) for outcome, name, reason in rows}


def listed(name: str) -> set[str]:
    return {line for line in (HERE / name).read_text().splitlines() if line}


@pytest.mark.parametrize("mode", MODES)
def test_h5pys_own_tests(mode: str, tmp_path: Path) -> None:
    try:
        found = importlib.metadata.version("h5py")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("h5py is not installed")
    if found != VERSION:
        pytest.skip(f"the lists are about the tests of h5py {VERSION}, {found} is installed")
    lists = MODES[mode]
    if mode == "check" and importlib.util.find_spec("netCDF4") is None:
        mode = "plain"
    results = run(mode, tmp_path)
    passed = {name for name, (outcome, _) in results.items() if outcome == "passed"}
    expected = listed(lists)
    lost = {name: results.get(name, ("missing", ""))[1] for name in sorted(expected - passed - VOLATILE)}
    assert not lost, "tests of h5py that passed until now"
    new = sorted(passed - expected - VOLATILE)
    assert not new, f"tests of h5py that pass now: add them to {lists}"


def test_what_does_not_pass_has_a_reason() -> None:
    rows = [line.split("\t") for line in (HERE / "not_passing.tsv").read_text().splitlines() if line]
    assert all(len(row) == 2 and row[1].strip() for row in rows)
    assert not {row[0] for row in rows} & listed("passing.txt")


if __name__ == "__main__":
    for each, name in MODES.items():
        with tempfile.TemporaryDirectory() as work:
            outcomes = run(each, Path(work))
        names = sorted(name for name, (outcome, _) in outcomes.items() if outcome == "passed")
        (HERE / name).write_text("\n".join(names) + "\n")
        print(f"{each}: {len(names)} pass of {len(outcomes)}")
