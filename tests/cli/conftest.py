"""How the verbs are run: as a user does, or within the process where starting Python again tests nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture
def command():
    """Run ``python -m pnc_vol.cli ARGS...`` as a process of its own."""

    def run(*args, check=None, **kwds):
        done = subprocess.run(
            [sys.executable, "-m", "pnc_vol.cli", *map(str, args)], capture_output=True, text=True, check=False, **kwds
        )
        if check is not None:
            assert done.returncode == check, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def verb():
    """Run ``ARGS...`` within this process; gives ``code``, ``out`` and ``err``."""
    from run_command import verb

    return verb
