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
from run_command import verb, verbs

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
@pytest.mark.parametrize("name", verbs())
def test_what_a_verb_cannot_work_with(place: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: str) -> None:
    if (name, given) in TAKES:
        return
    there = sorted(os.listdir(place))
    if name in ("run", "plan"):
        # which take h5py's place in a whole process
        done = ran(place, name, given)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        monkeypatch.chdir(place)
        ended = verb(name, given, *MORE.get(name, []))
        code, out, err = ended.code, ended.out, ended.err
    assert code != 0, out
    told = err.strip() or out.strip()
    assert told
    assert not [word for word in FOREIGN if word in err + out], told
    assert not [line for line in err.splitlines() if line.count(f"{given}: ") > 1], told
    if "://" in given:
        assert "no addresses" in told or "the server cannot be reached" in told, told
    assert len(err.splitlines()) <= 4, told  # usage lines of a wrong option are four
    assert sorted(os.listdir(place)) == there


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv to go without its rights"
)
@pytest.mark.parametrize(
    ("words", "code"),
    [("link good.nc ro/l.h5", 2), ("convert good.nc ro/b.h5", 2), ("repack good.nc ro/x.nc", 2), ("demo ro", 2),
     ("doctor ro", 0)],
)  # fmt: skip
def test_a_folder_in_which_nothing_may_be_written(place: Path, words: str, code: int) -> None:
    (place / "ro").mkdir(mode=0o555, exist_ok=True)
    unprivileged = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")
    done = ran(place, *words.split(), before=unprivileged)
    assert done.returncode == code
    if code:
        assert done.stderr.count("\n") == 1
        assert "ro: no file can be made in this directory; get permission to write there" in done.stderr
    else:
        assert "no file can be made in this directory" in done.stdout
