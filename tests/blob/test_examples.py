"""The examples in the docstrings of the room, and of the log files below the plug-ins, run and say the truth."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    *(
        f"blob.{name}"
        for name in ("header", "index", "maps", "names", "layout", "hdf5.container", "hdf5.data_blob", "hdf5.subfile")
    ),
    *(f"append_log.{name}" for name in ("private_folders", "records")),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"pnc_vol.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
