"""A root whose paths are not names of files: all that `File` asks of a file is asked of the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import pnc_vol
from pnc_vol.drivers.base import Capabilities, OpenContext
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.testing.driver_suite import Driver, DriverSuite, open_stack, register

PATH = "shelf://books/x.nc"


class Shelf(MemoryDriver):
    """Objects in a dict, under addresses."""

    name = "shelf"
    capabilities = Capabilities(keeps_file=False, own_paths=True, call_cost=1 << 16)
    objects: ClassVar[dict[str, bytes]] = {}

    @classmethod
    def exists(cls, path: str, context: OpenContext) -> bool:
        return path in cls.objects

    @classmethod
    def open(cls, path: str | None, context: OpenContext) -> Shelf:
        assert path is not None
        if context.new:
            cls.objects[path] = b""
        made = cls(cls.objects[path], writable=context.writable)
        made.path = path
        return made

    def empty_copy(self) -> Driver | None:  # type: ignore[override]
        return None

    def replace_with(self, copy: Driver) -> bool:
        return False

    def end_flush(self) -> None:
        if self.writable:
            self.objects[str(self.path)] = self.content()

    def _sync(self) -> None:
        self.objects[str(self.path)] = self._bytes[: self._nbytes].tobytes()

    def _close(self) -> None:
        if self.writable:
            self._sync()
        super()._close()


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shelf, "objects", {})
    register("shelf", Shelf)


class TestShelf(DriverSuite):
    def make(self, path: str, *, writable: bool = True) -> Driver:
        return open_stack("shelf", path, writable=writable, new=path not in Shelf.objects)


@pytest.mark.parametrize("spec", ["shelf", "trace | shelf"])
def test_a_file_by_its_address(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def opened(mode: str, **keywords: Any) -> pnc_vol.File:
        return pnc_vol.File(PATH, mode, driver=spec, **keywords)

    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            opened(mode)
    with opened("w-") as f:
        f["x"] = np.arange(10.0)
        f.flush()
        assert Shelf.objects[PATH][:4] == b"CDF\x05", "a flush is there when it returns"
    with pytest.raises(FileExistsError):
        opened("x")
    with opened("a") as f:
        f["y"] = [1, 2]
    with opened("r") as f:
        assert f["x"][3] == 3
        assert f["y"][...].tolist() == [1, 2]
        assert f.filename == PATH
    with opened("r+") as f:
        f["x"][0] = -1
    with opened("r") as f:
        assert f["x"][:2].tolist() == [-1, 1]
    with opened("w") as f:
        assert list(f) == []
    assert list(tmp_path.iterdir()) == [], "nothing of it is in the file system"


def test_a_new_layout_is_brought_to_the_store(tmp_path: Path) -> None:
    with pnc_vol.File(PATH, "w", driver="shelf", header_reserve=0) as f:
        f["x"] = np.arange(1000.0)
        f.flush()
        for i in range(50):
            f.attrs[f"a name that makes the header longer, number {i}"] = i
        f["y"] = 5
        f.flush()
        with pnc_vol.File(PATH, "r", driver="shelf", strict=True) as g:
            assert (g["x"][...] == np.arange(1000.0)).all()
        f["x"][1] = 7
    with pnc_vol.File(PATH, "r", driver="shelf", strict=True) as f:
        assert f["x"][:3].tolist() == [0, 7, 2]
        assert (len(f.attrs), f["y"][()]) == (50, 5)


def test_what_is_no_file_is_told_by_its_address() -> None:
    Shelf.objects[PATH] = b"not a header at all"
    with pytest.raises(OSError, match="shelf://books"):
        pnc_vol.File(PATH, "r", driver="shelf")


def test_other_drivers_say_that_an_address_is_no_name() -> None:
    for driver in ("posix", "trace | posix"):
        with pytest.raises(pnc_vol.NotYetError, match="remote"):
            pnc_vol.File(PATH, "r", driver=driver)
    with pytest.raises(pnc_vol.DefinitionError, match="fsspec does not know such addresses"):
        pnc_vol.File(PATH, "r")
