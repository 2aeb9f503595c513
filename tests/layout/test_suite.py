"""Layouts by the public suite: the canonical one, and the example of another package; what files refuse of a layout."""

from __future__ import annotations

import gc
import os
import pathlib
import sys
from contextlib import suppress

import numpy as np
import options
import pytest

import pnc_vol
from pnc_vol import plugins
from pnc_vol.layout import registry
from pnc_vol.layout.canonical import CanonicalLayout
from pnc_vol.testing.faults import FaultSystem
from pnc_vol.testing.layout_suite import LayoutSuite

with plugins.restored():
    options.load_plugins("rawfiles")
RawFiles = sys.modules["pnc_vol_rawfiles"].RawFiles


class TestCanonical(LayoutSuite):
    layout = CanonicalLayout


class TestRawFiles(LayoutSuite):
    layout = RawFiles

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
        with self.open("r+", driver="trace | posix") as f:  # who wrote them before may not have synced them
            f.flush(durable=True)
            assert f.statistics()["driver"]["subfiles.open"] == 2

    def test_a_file_that_is_there_stays_where_another_one_is_refused(self) -> None:
        with self.open("w") as f:
            f["x"] = [1, 2]
        with pytest.raises(ValueError, match="'rawfiles' cannot have publish='close'"):
            self.open("w", publish="close")
        with self.open("r") as f:
            assert f["x"][:].tolist() == [1, 2]
        with self.open("r+", publish="close") as f:
            f["x"][0] = 3

    def test_an_error_leaves_nothing_open(self) -> None:
        def failing(fail_at: int) -> int:
            calls = ("open", "mkdir", "listdir", "pwrite", "pwritev", "unlink")
            system = FaultSystem(fail_at=fail_at, calls=calls)
            with suppress(OSError):
                f = self.open("w", system=system)
                try:
                    f["x"], f["y"] = np.arange(6.0), [1, 2]
                    f.flush()
                    f["x"][2] = 5
                finally:
                    f.close()
            gc.collect()
            return system.count

        gc.collect()  # what other tests left open
        before = len(os.listdir("/proc/self/fd"))
        calls = failing(1 << 30)
        assert calls > 8
        for n in range(1, calls + 1):
            failing(n)
            assert len(os.listdir("/proc/self/fd")) == before, n


class Elsewhere(RawFiles):  # type: ignore[misc]
    """Raw files, with the header in a file of another name."""

    name = "elsewhere"

    @classmethod
    def header_path(cls, path: str) -> str:
        return path + ".head"


class TestElsewhere(LayoutSuite):
    layout = Elsewhere

    def test_the_file_is_found_by_the_name_that_a_user_says(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "suite.nc"
        with self.open("w") as f:
            f["x"] = [1, 2]
        assert sorted(found.name for found in tmp_path.iterdir()) == ["suite.nc.head", "suite.nc.raw"]
        for mode in ("r", "r+", "a"):
            with pnc_vol.File(path, mode) as f, pnc_vol.File(path, mode) as same:
                assert f.filename == str(path)
                assert f["x"][:].tolist() == [1, 2]
                same["x"].file.flush()
        with pytest.raises(FileExistsError):
            self.open("x")
        with pnc_vol.File(path, "w") as f:
            f["x"] = [7]
        with pnc_vol.File(path) as f:
            assert f["x"][:].tolist() == [7], "a new file of no stated layout has the name itself"
        with self.open() as f:
            assert f["x"][:].tolist() == [1, 2]


class TestWhatAFileSays:
    """A file says which layout it has, unless it is the canonical one."""

    @pytest.fixture
    def path(self, tmp_path: pathlib.Path) -> pathlib.Path:
        registry.register("rawfiles", RawFiles)
        with pnc_vol.File(tmp_path / "x.nc", "w", layout="rawfiles") as f:
            f["x"] = np.arange(5)
        return tmp_path / "x.nc"

    def test_it_is_opened_without_a_name(self, path: pathlib.Path) -> None:
        for mode in ("r", "r+", "a"):
            with pnc_vol.File(path, mode) as f:
                assert f["x"][:].tolist() == list(range(5))
        with pnc_vol.File(path, "a") as f:
            f["y"] = [8]
            f.attrs["title"] = "more"
        with pnc_vol.File(path, layout="rawfiles") as f:
            assert f["y"][:].tolist() == [8]
            assert list(f.attrs) == ["title"]
        assert (path.parent / "x.nc.raw" / "y").stat().st_size == 8

    def test_a_layout_that_is_not_installed(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "x.nc"
        with plugins.restored():
            registry.register("elsewhere", type("Elsewhere", (RawFiles,), {"name": "elsewhere"}))
            with pnc_vol.File(path, "w", layout="elsewhere") as f:
                f["x"] = np.arange(5)
        before = path.read_bytes()
        for mode in ("r", "r+", "a"):
            with pytest.raises(
                pnc_vol.MissingPackageError, match=r"the layout 'elsewhere', which no installed .*install"
            ):
                pnc_vol.File(path, mode)
        assert path.read_bytes() == before
        with pnc_vol.File(path, "w") as f:
            f["x"] = [1]

    def test_a_reader_notices_another_layout(self, path: pathlib.Path) -> None:
        with pnc_vol.File(path) as reader:
            made = path.parent / "made.nc"
            with pnc_vol.File(made, "w") as f:
                f["x"] = np.arange(5)
            made.rename(path)
            with pytest.raises(OSError, match="another layout"):
                reader["x"].refresh()

    def test_tools_that_read_the_file_alone_refuse_it(self, path: pathlib.Path) -> None:
        with pytest.raises(pnc_vol.NotYetError, match="rawfiles"):
            pnc_vol.repack(path, path.parent / "whole.nc")
        with pnc_vol.File(path) as source, pnc_vol.File(path.parent / "whole.nc", "w") as f:
            source.copy("x", f)
        with pnc_vol.File(path.parent / "whole.nc", layout="canonical") as f:
            assert f["x"][:].tolist() == list(range(5))

    def test_a_canonical_file_says_nothing(self, tmp_path: pathlib.Path) -> None:
        for i, layout in enumerate(({}, {"layout": "canonical"})):
            with pnc_vol.File(tmp_path / f"{i}.nc", "w", **layout) as f:
                f["x"] = [1, 2]
        assert (tmp_path / "0.nc").read_bytes() == (tmp_path / "1.nc").read_bytes()
        assert b"layout" not in (tmp_path / "0.nc").read_bytes()


def test_a_layout_that_nobody_registered(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="Unknown layout 'pigeonholes'; known: blob, canonical, hdf5blob"):
        pnc_vol.File(tmp_path / "x.nc", "w", layout="pigeonholes")
    assert not list(tmp_path.iterdir())


def test_what_is_no_layout_is_not_registered() -> None:
    with pytest.raises(TypeError, match="derived from"):
        registry.register("mine", dict)  # type: ignore[arg-type]
