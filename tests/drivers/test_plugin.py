"""The example of a driver from another package: by the suite, by its purpose, and by its entry point."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.drivers import stack
from pnc_vol.drivers.base import Driver, Wrapper
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.testing.driver_suite import DriverSuite, extents_of

FOLDER = Path(__file__).parents[2] / "examples" / "plugin_driver"


def example() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("pnc_vol_verify", FOLDER / "pnc_vol_verify.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestVerify(DriverSuite):
    @pytest.fixture(autouse=True)
    def known(self) -> None:
        stack.register("verify", example().VerifyDriver)

    def make(self, path: str, *, writable: bool = True) -> Driver:
        return stack.open_stack("verify(retries=1) | posix", path, writable=writable)


class Forgetful(Wrapper):
    """Storage that loses the last byte of the first `times` writes."""

    name = "forgetful"
    times = 1

    def write(self, extents, memory, *, collective=False):
        if self.times:
            self.times -= 1
            memory = memory.copy()
            memory[-1] ^= 1
        super().write(extents, memory, collective=collective)


def test_the_same_bytes_may_go_to_several_places(tmp_path: Path) -> None:
    """As fill values do."""
    stack.register("verify", example().VerifyDriver)
    with pnc_vol.File(tmp_path / "x.nc", "w", driver="verify | posix") as f:
        f.create_dataset("x", (2, 3, 3), "i4", maxshape=(None, 40, 5), fillvalue=7)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (f["x"][...] == 7).all()


@pytest.mark.parametrize("retries", [0, 1])
def test_what_storage_loses_is_seen(retries: int) -> None:
    driver = example().VerifyDriver(Forgetful(MemoryDriver()), retries=retries)
    extents, memory = extents_of((0, 2, 3), (4, 2, 0)), np.arange(1, 6, dtype=np.uint8)
    if retries:
        driver.write(extents, memory)
        assert driver.statistics()["verify.differing"] == 1
    else:
        with pytest.raises(OSError, match="read back"):
            driver.write(extents, memory)
    driver.write(extents, memory)
    assert driver.statistics()["verify.verified_bytes"] == 4 * (retries + 1)


def test_its_entry_point_makes_it_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installed package is found: by the metadata that pip leaves behind."""
    if sys.version_info < (3, 11):
        pytest.skip("tomllib, which reads the example's pyproject.toml, came with Python 3.11")
    import tomllib

    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    info = tmp_path / "pnc_vol_verify-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"][stack.GROUP]
    (info / "entry_points.txt").write_text(f"[{stack.GROUP}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert stack.registered()["verify"] == "wrapper"
    driver = stack.open_stack("verify | memory", None, writable=True)
    driver.write(extents_of((0, 1, 0)), np.ones(1, np.uint8))
    assert driver.statistics()["verify.verified_bytes"] == 1
    assert driver.describe() == "verify | memory"


def test_the_example_is_short() -> None:
    assert len((FOLDER / "pnc_vol_verify.py").read_text().splitlines()) < 60
