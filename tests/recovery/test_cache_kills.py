"""Writers with a node-local cache are killed at random points: what flushes had promised is there (`cache_kills`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = int(os.environ.get("PNC_VOL_CACHE_KILLS", "60"))
NIGHTLY = 1000


def kill(folder: Path, first: int, last: int, seconds: float) -> None:
    script = Path(__file__).parents[1] / "shared/cache_kills.py"
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(first), str(last)],
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) of \d+ writers were killed, after (\d+) flushes", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) > (last - first) / 2
    assert int(found[2]) > 4 * (last - first), "most were in the middle of their work"


@pytest.mark.timeout(600)
def test_what_flushes_had_promised_survives_a_kill(tmp_path: Path) -> None:
    kill(tmp_path, 0, KILLS, 570)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_of_many_writers(tmp_path: Path) -> None:
    kill(tmp_path, KILLS, KILLS + NIGHTLY, 3500)
