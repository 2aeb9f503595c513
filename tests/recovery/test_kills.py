"""Writers are killed at random points: what had returned is in the file after a replay (see `kills`)."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

KILLS = int(os.environ.get("PNC_VOL_KILLS", "120"))
NIGHTLY = 1000
PARTS = 2


def kill(tmp_path: pathlib.Path, first: int, last: int, seconds: float) -> None:
    script = pathlib.Path(__file__).parents[1] / "shared/kills.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(first), str(last)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{last - first} kills" in done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_had_returned_survives_a_kill(part: int, tmp_path: pathlib.Path) -> None:
    kill(tmp_path, KILLS * part // PARTS, KILLS * (part + 1) // PARTS, 570)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_of_many_writers(tmp_path: pathlib.Path) -> None:
    kill(tmp_path, KILLS, KILLS + NIGHTLY, 3500)
