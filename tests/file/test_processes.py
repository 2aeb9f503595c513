"""Several processes on one file: no reader finds a mix of two files, no writer loses what another one wrote.

Minutes of it: ``python tests/shared/processes.py FOLDER --seconds 300 --seed 1``.
"""

from __future__ import annotations

import pathlib

import pytest
from processes import MIXES, run_mix

SECONDS = 2.0


@pytest.mark.parametrize("mix", MIXES)
def test_no_process_finds_a_mix(mix: str, tmp_path: pathlib.Path) -> None:
    told = run_mix(tmp_path, MIXES[mix], seconds=SECONDS)
    assert not told["wrong"], told
    # a process that did nothing proves nothing
    assert all(sum(done.values()) > 1 for done in told["done"].values()), told


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mix", MIXES)
def test_no_process_finds_a_mix_for_minutes(mix: str, tmp_path: pathlib.Path) -> None:
    assert not run_mix(tmp_path, MIXES[mix], seconds=60, seed=1)["wrong"]
