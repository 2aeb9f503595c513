"""The real h5py as the oracle: the same statements run against both, and what they give is compared.

`both` runs a line of Python against h5py and against pnc_vol; values must agree, and where h5py raises, pnc_vol must
raise something that is caught as h5py's exception. `impl` runs a whole test once with each.
"""

from __future__ import annotations

import pathlib
import types
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest

import pnc_vol
from pnc_vol import warn


@pytest.fixture(autouse=True)
def warned_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts as if every kind of option had been warned about; a test of warnings empties the set."""
    kinds = {"chunks", "compression", "shuffle", "fletcher32", "scaleoffset", "track_times", "track_order"}
    monkeypatch.setattr(warn, "_warned", kinds)


@pytest.fixture
def nothing_warned_of(warned_already: None) -> None:
    """This test starts as a new process: no kind of option has been warned about."""
    warn._warned.clear()


class Impl:
    """One of the two libraries, and a path for its file."""

    def __init__(self, module: types.ModuleType, path: pathlib.Path) -> None:
        self.h5 = module
        self.path = str(path)

    @property
    def ours(self) -> bool:
        return self.h5 is pnc_vol

    def open(self, mode: str = "r", **kwds: Any) -> Any:
        return self.h5.File(self.path, mode, **kwds)

    def again(self, file: Any, mode: str = "r+") -> Any:
        """Close the file and open it anew, so that what is read next comes from the disk."""
        file.close()
        return self.open(mode)


@pytest.fixture(params=["h5py", "pnc_vol"])
def impl(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Impl:
    return Impl({"h5py": h5py, "pnc_vol": pnc_vol}[request.param], tmp_path / "x.nc")


def plain(value: Any) -> Any:
    """A value in a form that can be compared across the two libraries."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, [plain(item) for item in value.ravel().tolist()])
    if isinstance(value, np.generic):
        return ("scalar", value.dtype.str, plain(value.item()))
    if type(value).__name__ == "Empty":
        return ("empty", value.dtype.str)
    if isinstance(value, np.dtype):
        return ("dtype", value.str)
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, type):
        return value.__name__
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, slice)):
        return value.replace("NetCDF file", "HDF5 file") if isinstance(value, str) else value
    # a file says what it is
    text = repr(value).replace("NetCDF file", "HDF5 file")
    return text.partition(" object at ")[0].rpartition(".")[2] if " object at " in text else text


class Both:
    """h5py and pnc_vol side by side."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.names: list[dict[str, Any]] = []
        for module in (h5py, pnc_vol):
            place = folder / module.__name__
            place.mkdir()
            path = str(place / "x.nc")
            self.names.append({"h5": module, "np": np, "path": path, "folder": str(place), "f": module.File(path, "w")})

    def run(self, names: dict[str, Any], line: str) -> Any:
        try:
            try:
                code = compile(line, line, "eval")
            except SyntaxError:
                exec(line, names)
                return ("value", None)
            return ("value", plain(eval(code, names)))
        except Exception as error:
            return ("error", error)

    def same(self, script: str) -> None:
        """Run each line on both; they must agree."""
        for line in filter(None, map(str.strip, script.splitlines())):
            if line.startswith("#"):
                continue
            theirs, ours = (self.run(names, line) for names in self.names)
            if theirs[0] == "error":
                assert ours[0] == "error", f"{line}: h5py raises {theirs[1]!r}, pnc_vol gives {ours[1]!r}"
                assert isinstance(ours[1], _caught_as(theirs[1])), f"{line}: {theirs[1]!r} and {ours[1]!r}"
            else:
                if ours[0] == "error":
                    raise AssertionError(f"{line}: h5py gives {theirs[1]!r}") from ours[1]
                assert ours == theirs, line

    def again(self, mode: str = "r+") -> None:
        """Close both files and open them anew."""
        for names in self.names:
            names["f"].close()
            names["f"] = names["h5"].File(names["path"], mode)

    def close(self) -> None:
        for names in self.names:
            names["f"].close()


def _caught_as(error: Exception) -> type[Exception]:
    for kind in type(error).__mro__:
        if kind.__module__ == "builtins":
            return kind
    raise AssertionError(error)


@pytest.fixture
def both(tmp_path: pathlib.Path) -> Iterator[Both]:
    pair = Both(tmp_path)
    yield pair
    pair.close()
