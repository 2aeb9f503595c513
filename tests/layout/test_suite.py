"""Layouts by the public suite: the canonical one, and the example of another package; what files refuse of a layout."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types

import numpy as np
import pytest

import pnc_vol
from pnc_vol.layout import registry
from pnc_vol.layout.canonical import CanonicalLayout
from pnc_vol.testing.layout_suite import LayoutSuite

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "plugin_layout"


def example() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("pnc_vol_rawfiles", FOLDER / "pnc_vol_rawfiles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class TestCanonical(LayoutSuite):
    layout = CanonicalLayout


class TestRawFiles(LayoutSuite):
    layout = example().RawFiles

    def test_each_variable_is_a_raw_file(self, tmp_path: pathlib.Path) -> None:
        with self.open("w") as f:
            f["x"] = np.arange(6.0).reshape(2, 3)
            f.create_dataset("r", data=[5, 6, 7], maxshape=(None,))
        folder = tmp_path / "suite.nc.raw"
        assert sorted(path.name for path in folder.iterdir()) == ["r", "x"]
        assert np.fromfile(folder / "x", ">f8").tolist() == list(range(6))
        assert np.fromfile(folder / "r", ">i8").tolist() == [5, 6, 7]

    def test_what_a_flush_wrote_is_synced_and_counted(self) -> None:
        with self.open("w", driver="trace | posix") as f:
            f["x"] = [1, 2]
            f["y"] = [3]
            f.flush(durable=True)
            assert f.statistics()["driver"]["subfiles.open"] == 2

    def test_a_log_is_refused(self) -> None:
        with pytest.raises(ValueError, match="'rawfiles' cannot have a burst buffer log"):
            self.open("w", burst_buf=True)


def test_a_layout_that_nobody_registered(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="Unknown layout 'pigeonholes'; known: canonical"):
        pnc_vol.File(tmp_path / "x.nc", "w", layout="pigeonholes")
    assert not list(tmp_path.iterdir())


def test_what_is_no_layout_is_not_registered() -> None:
    with pytest.raises(TypeError, match="derived from"):
        registry.register("mine", dict)  # type: ignore[arg-type]
