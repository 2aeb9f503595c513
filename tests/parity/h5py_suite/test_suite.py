"""h5py's own tests on pnc_vol, against the list of those that pass.

A test of the list that does not pass any more is a failure here, and so is one that passes and is not in the list: then
``python tests/parity/h5py_suite/test_suite.py`` writes the list anew, and the change is looked at.

``passing.txt`` has the ids of tests that pass, every file that they leave being looked at by other programs
(`checking`), those for several ranks on two of them. The same tests pass in the reopen mode (`reopening`), except for
what is in ``not_reopened.tsv`` with a reason, and over a node-local cache that the environment asks for; and in
subfiles (``pnc_layout=blob``), except for what is in ``not_in_subfiles.tsv``.
``not_passing.tsv`` has a reason for each test that could pass and does not. What is in none of them needs HDF5
itself: its files, its low-level functions, single writers.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from crash import fast_folder

from pnc_vol.testing.mpi import missing, run_mpi

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
VERSION = "3.16.0"
"""The h5py whose tests the lists are about."""

MODES = ("check", pytest.param("reopen", marks=pytest.mark.nightly))
"""Where netCDF4 is missing, files are not checked. Reads after an opening: also over a cache, and in subfiles."""
CACHES = [
    ("reopen", "e10_cache=enable"),
    pytest.param("check", "e10_cache=coherent;e10_cache_threads=4", marks=pytest.mark.nightly),
    pytest.param("reopen", "e10_cache=coherent", marks=pytest.mark.nightly),
    pytest.param("reopen", "e10_cache_flush_flag=flush_onclose;e10_cache_threads=4", marks=pytest.mark.nightly),
]
"""What the environment alone adds: the same tests over a node-local cache."""
ON_RANKS = "::TestMPI::"
"""What the ids of tests for several ranks have."""
NOT_OURS = ("test_unregister_filter",)
"""Tests that start a process of their own, which knows nothing of the swap: it would test h5py."""
VOLATILE = {"test_file.py::TestFileOpen::test_append_permissions"}
"""Tests whose outcome depends on the user: root may write any file."""
MEMORY = 8 << 30
SECONDS = 880
"""For a run that takes half a minute of a core: a hang ends, a busy machine is no failure."""
RANKS = 2


def folder_of_tests() -> Path:
    found = importlib.metadata.distribution("h5py").locate_file("h5py/tests")
    return Path(str(found))


def run(mode: str, folder: Path, hints: str = "") -> tuple[list[dict[str, tuple[str, str]]], str]:
    """Outcome and reason of each test by id, for each rank; and the last lines of what was printed."""
    tests, results = folder_of_tests(), folder / "results.tsv"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parent), str(ROOT))),
        "PNC_VOL_SUITE_RESULTS": str(results),
        "PNC_VOL_SUITE_MODE": mode,
    }
    env["PYTEST_ADDOPTS"] = ""
    if mode == "reopen":
        # What fails without an opening in between fails with one: `check` tells whether it still does.
        env["PNC_VOL_SUITE_ONLY"] = str(HERE / "passing.txt")
    # The targets of external links are in another temporary folder there.
    env["PNC_VOL_HINTS"] = f"pnc_external_links=any;{hints}".rstrip(";")
    ini = folder / "suite.ini"
    ini.write_text("[pytest]\n")
    options = [
        "-q", "-rN", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore", "-c", str(ini),
        "--rootdir", str(tests.parents[1]), "-p", "h5py_swap", f"--ignore={tests / 'test_h5pl.py'}",
    ]  # fmt: skip
    if mode == "mpi":
        done = run_mpi(RANKS, "pytest", *options, "-k", "TestMPI", tests / "test_file.py", env=env, check=False)
    else:
        options += ["-k", " and ".join(f"not {name}" for name in NOT_OURS), str(tests)]

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options], cwd=folder, env=env, capture_output=True, text=True,
            timeout=SECONDS, check=False, preexec_fn=limit,
        )  # fmt: skip
    told = []
    for rank in range(RANKS if mode == "mpi" else 1):
        mine = Path(f"{results}{rank}")
        assert mine.exists(), done.stdout[-2000:] + done.stderr[-2000:]
        rows = (line.split("\t") for line in mine.read_text().splitlines())
        told.append({name: (outcome, reason) for outcome, name, reason in rows})
    return told, done.stdout[-2000:]


def listed(name: str) -> dict[str, str]:
    """The ids of a list, with what follows them."""
    rows = (line.partition("\t") for line in (HERE / name).read_text().splitlines() if line)
    return {row[0]: row[2].strip() for row in rows}


def expected(mode: str) -> set[str]:
    names = {name for name in listed("passing.txt") if (ON_RANKS in name) == (mode == "mpi")}
    return names - listed("not_reopened.tsv").keys() if mode == "reopen" else names


def compare(mode: str, results: dict[str, tuple[str, str]], without: Iterable[str] = ()) -> None:
    passed = {name for name, (outcome, _) in results.items() if outcome == "passed"}
    wanted = expected(mode) - set(without)
    lost = {name: results.get(name, ("missing", ""))[1] for name in sorted(wanted - passed - VOLATILE)}
    assert not lost, "tests of h5py that passed until now"
    new = sorted(passed - wanted - VOLATILE)
    assert not new, "tests of h5py that pass now: write the lists anew, and look at the change"


def need_h5py() -> None:
    try:
        found = importlib.metadata.version("h5py")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("h5py is not installed")
    if found != VERSION:
        pytest.skip(f"the lists are about the tests of h5py {VERSION}, {found} is installed")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES)
def test_h5pys_own_tests(mode: str, tmp_path: Path) -> None:
    need_h5py()
    netcdf = importlib.util.find_spec("netCDF4") is not None
    (results,), text = run("plain" if mode == "check" and not netcdf else mode, tmp_path)
    compare(mode, results)
    looked(mode, text, len(results))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("mode", "hints"), CACHES)
def test_the_same_over_a_node_local_cache(mode: str, hints: str, tmp_path: Path) -> None:
    need_h5py()
    if mode == "check" and importlib.util.find_spec("netCDF4") is None:
        pytest.skip("netCDF4 is not installed")
    with tempfile.TemporaryDirectory(dir=fast_folder()) as nvm:
        (results,), text = run(mode, tmp_path, f"{hints};e10_cache_path={nvm}")
        assert not os.listdir(nvm), "no cache was left behind"
    compare(mode, results)
    looked(mode, text, len(results))
    found = re.search(r"(\d+) files had a cache, 0 lost it, (\d+) bytes went to it", text)
    assert found is not None, text
    assert int(found[1]) > len(results) / 2
    assert int(found[2]) > 100_000


@pytest.mark.timeout(900)
def test_the_same_in_subfiles(tmp_path: Path) -> None:
    need_h5py()
    (results,), text = run("reopen", tmp_path, "pnc_layout=blob")
    assert len(expected("reopen")) - len(listed("not_in_subfiles.tsv")) > 650
    compare("reopen", results, listed("not_in_subfiles.tsv"))
    looked("reopen", text, len(results))


def looked(mode: str, text: str, tests: int) -> None:
    """The mode did what it is for."""
    if mode == "reopen":
        found = re.search(r"(\d+) reads of (\d+) came after an opening", text)
        assert found is not None, text
        assert int(found[1]) > int(found[2]) / 2, found[0]
    elif importlib.util.find_spec("netCDF4") is not None:
        found = re.search(r"(\d+) files were checked", text)
        assert found is not None, text
        assert int(found[1]) > tests / 2, found[0]


@pytest.mark.skipif(bool(missing()), reason=missing() or "MPI is there")
def test_those_for_several_ranks(tmp_path: Path) -> None:
    need_h5py()
    if importlib.util.find_spec("netCDF4") is None:
        pytest.skip("netCDF4 is not installed")
    for results in run("mpi", tmp_path)[0]:
        compare("mpi", results)


def test_what_does_not_pass_has_a_reason() -> None:
    passing = listed("passing.txt").keys()
    for name in ("not_passing.tsv", "not_reopened.tsv", "not_in_subfiles.tsv"):
        rows = listed(name)
        assert all(rows.values()), name
        assert bool(rows.keys() & passing) == (name != "not_passing.tsv")


if __name__ == "__main__":
    names: set[str] = set()
    for each in ("check", "mpi", "reopen"):
        with tempfile.TemporaryDirectory() as work:
            outcomes, last = run(each, Path(work))
        found = {name for name, (outcome, _) in outcomes[0].items() if outcome == "passed"}
        print(f"{each}: {len(found)} pass of {len(outcomes[0])}\n{last}")
        if each == "reopen":
            print(
                "for not_reopened.tsv, each with a reason:",
                *sorted(n for n in names - found if ON_RANKS not in n),
                sep="\n",
            )
        else:
            names |= found
            (HERE / "passing.txt").write_text("\n".join(sorted(names)) + "\n")
