"""The examples in the docstrings of the room run and say the truth."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["blocks", "decomposition", "merge", "model", "place", "selection", "subarrays"])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"pnc_vol.extents.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
