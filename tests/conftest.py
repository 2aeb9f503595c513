"""How examples are drawn, in all tests; how tests are spread over workers; fixtures of several folders.

The same examples in every run, so that what fails is the change that is being tested. New ones are drawn by
``PNC_VOL_EXAMPLES=random pytest``, which belongs to a search for faults, not to a check of a change.

Modules that tests import lie in ``tests/shared`` and, for programs on ranks, in ``tests/mpi``: both are on the path
(``pythonpath`` in ``pyproject.toml``).
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Their assertions say as much as those of a test.
pytest.register_assert_rewrite(*(path.stem for path in (pathlib.Path(__file__).parent / "shared").glob("*.py")))

# The machines that run these tests are busy; how long an example takes says nothing.
settings.register_profile("random", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.register_profile("same", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile(os.environ.get("PNC_VOL_EXAMPLES", "same"))

# What starts ranks, which want the cores for themselves.
RANKS = (
    "tests/mpi/",
    "tests/bench/",
    "tests/api/test_mpi.py",
    "tests/drivers/test_mpio.py",
    "tests/testing/test_mpi.py",
)


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder for logs."""
    made = tmp_path / "logs"
    made.mkdir()
    return made


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """With ``pytest -n 2`` the tests of a file stay together, and so do all that start ranks."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "ranks" if nodeid.startswith(RANKS) else nodeid.partition("::")[0]

    return Together(config, log)
