"""The example of a driver from another package: by the suite, by its purpose, and by its entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import options
import pytest

import pnc_vol
from pnc_vol.testing.driver_suite import DriverSuite, Wrapper, extents_of, open_stack, register

GROUP = "pnc_vol.drivers"
FOLDER = Path(__file__).parents[2] / "examples" / "plugin_driver"


@pytest.fixture
def known() -> None:
    options.load_plugins("verify")


@pytest.mark.usefixtures("known")
class TestVerify(DriverSuite):
    stack = "verify(retries=1) | posix"


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


@pytest.mark.usefixtures("known")
def test_the_same_bytes_may_go_to_several_places(tmp_path: Path) -> None:
    """As fill values do."""
    with pnc_vol.File(tmp_path / "x.nc", "w", driver="verify | posix") as f:
        f.create_dataset("x", (2, 3, 3), "i4", maxshape=(None, 40, 5), fillvalue=7)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (f["x"][...] == 7).all()


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("retries", [0, 1])
def test_what_storage_loses_is_seen(retries: int) -> None:
    register("forgetful", Forgetful)
    driver = open_stack(f"verify(retries={retries}) | forgetful | memory", None, writable=True)
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
    points = project["entry-points"][GROUP]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    driver = open_stack("verify | memory", None, writable=True)
    driver.write(extents_of((0, 1, 0)), np.ones(1, np.uint8))
    assert driver.statistics()["verify.verified_bytes"] == 1
    assert driver.describe() == "verify | memory"


def test_the_example_is_short() -> None:
    assert len((FOLDER / "pnc_vol_verify.py").read_text().splitlines()) < 60
