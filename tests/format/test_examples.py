"""The examples in the docstrings of the format are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import pnc_vol.format

MODULES = sorted(module.name for module in pkgutil.iter_modules(pnc_vol.format.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"pnc_vol.format.{name}")).failed == 0
