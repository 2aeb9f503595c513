"""The examples in the docstrings of the format are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import pnc_vol

MODULES = sorted(path.stem for path in Path(pnc_vol.__file__).parent.glob("format/[!_]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"pnc_vol.format.{name}")).failed == 0
