"""What the tests of logs share."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

import pytest


def beside(path: str) -> Any:
    """A module of the tests, by its path from here."""
    file = pathlib.Path(__file__).parent / f"{path}.py"
    name = file.stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file.resolve())
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def programs() -> Any:
    return beside("programs")


@pytest.fixture(scope="session")
def workloads() -> Any:
    return beside("../workloads")


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder for logs."""
    made = tmp_path / "logs"
    made.mkdir()
    return made
