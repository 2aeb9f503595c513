"""Several processes on one file: no reader finds a mix of two files, no writer loses what another one wrote.

Minutes of it: ``python tests/pending/processes.py FOLDER --seconds 300 --seed 1``.
"""

from __future__ import annotations

import pathlib
import runpy
from typing import Any

import pytest

PROCESSES: dict[str, Any] = runpy.run_path(str(pathlib.Path(__file__).with_name("processes.py")))
MIXES: dict[str, list[str]] = PROCESSES["MIXES"]
SECONDS = 2.0


@pytest.mark.parametrize("mix", MIXES)
def test_no_process_finds_a_mix(mix: str, tmp_path: pathlib.Path) -> None:
    told = PROCESSES["run_mix"](tmp_path, MIXES[mix], seconds=SECONDS)
    assert not told["wrong"], told
    # a process that did nothing proves nothing
    assert all(sum(done.values()) > 1 for done in told["done"].values()), told


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mix", MIXES)
def test_no_process_finds_a_mix_for_minutes(mix: str, tmp_path: pathlib.Path) -> None:
    assert not PROCESSES["run_mix"](tmp_path, MIXES[mix], seconds=60, seed=1)["wrong"]
