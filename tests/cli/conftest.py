"""How the verbs are run: as a user does, or within the process where starting Python again tests nothing."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("typer", reason="typer is not installed (pip install 'pnc-vol[cli]')")


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
    from typer.testing import CliRunner

    from pnc_vol.cli.app import app

    def run(*args, code=None):
        done = CliRunner().invoke(app, [str(arg) for arg in args])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if code is not None:
            assert done.exit_code == code, done.output
        return SimpleNamespace(code=done.exit_code, out=done.stdout, err=done.stderr, raw=done.stdout_bytes)

    return run
