"""Every verb, given what it cannot work with, says so in one line of its own words and changes nothing.

A new verb is in it because the help names it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from run_command import verbs

import pnc_vol

MORE = {"convert": ["out.h5"], "link": ["out.h5"], "diff": ["good.nc"], "refs": ["-o", "out.json"]}
"""What else a verb needs to begin."""
FOREIGN = (
    "Traceback",
    "[Errno",
    "errno =",
    "Warning:",
    "mode '",
    "overwrite=",
    "object at 0x",
    "Expecting",
    "byte string",
    "stored_eof",
)
GIVEN = ("folder", "missing.nc", "binary.nc", "cut.h5", "https://127.0.0.1:9/x.nc")
TAKES = {
    ("doctor", "folder"),
    ("demo", "folder"),
    ("demo", "missing.nc"),
    # what remains of a folder or file is found by its name, whatever is there
    ("replay", "folder"),
    ("replay", "binary.nc"),
    ("replay", "cut.h5"),
}
"""What a verb can work with after all."""


def ran(folder: Path, *words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", "pnc_vol.cli", *words],
        capture_output=True, text=True, check=False, cwd=folder, timeout=100, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("verbs")
    (made / "folder").mkdir()
    (made / "binary.nc").write_bytes(bytes(range(256)) * 9)
    with pnc_vol.File(made / "good.nc", "w") as f:
        f["x"] = [1]
    h5py = pytest.importorskip("h5py")
    with h5py.File(made / "cut.h5", "w") as f:
        f["x"] = range(1000)
    os.truncate(made / "cut.h5", 3000)
    return made


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("verb", verbs())
def test_what_a_verb_cannot_work_with(place: Path, verb: str, given: str) -> None:
    if (verb, given) in TAKES:
        return
    there = sorted(os.listdir(place))
    done = ran(place, verb, given, *MORE.get(verb, []))
    assert done.returncode != 0, done.stdout
    told = done.stderr.strip() or done.stdout.strip()
    assert told
    assert not [word for word in FOREIGN if word in done.stderr + done.stdout], told
    assert not [line for line in done.stderr.splitlines() if line.count(f"{given}: ") > 1], told
    if "://" in given:
        assert "no addresses" in told or "the server cannot be reached" in told, told
    assert len(done.stderr.splitlines()) <= 4, told  # usage lines of a wrong option are four
    assert sorted(os.listdir(place)) == there


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv to go without its rights"
)
@pytest.mark.parametrize(
    "words", ["link good.nc ro/l.h5", "convert good.nc ro/b.h5", "repack good.nc ro/x.nc", "demo ro"]
)
def test_a_folder_in_which_nothing_may_be_written(place: Path, words: str) -> None:
    (place / "ro").mkdir(mode=0o555, exist_ok=True)
    unprivileged = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")
    done = ran(place, *words.split(), before=unprivileged)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "ro: no file can be made in this directory; get permission to write there" in done.stderr
    report = ran(place, "doctor", "ro", before=unprivileged)
    assert report.returncode == 0
    assert "no file can be made in this directory" in report.stdout
