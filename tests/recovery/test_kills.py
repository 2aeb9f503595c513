"""Writers are killed at random points: what had returned is in the file after a replay (see `kills`)."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

KILLS = int(os.environ.get("PNC_VOL_KILLS", "240"))
PARTS = 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_had_returned_survives_a_kill(part: int, tmp_path: pathlib.Path) -> None:
    first, last = (KILLS * n // PARTS for n in (part, part + 1))
    script = pathlib.Path(__file__).parents[1] / "shared/kills.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(first), str(last)],
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{last - first} kills" in done.stdout
