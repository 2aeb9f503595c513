"""The order of attributes: `track_order` of datasets, of those made like others, of the configuration; as in h5py."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import h5py as real_h5py
import netCDF4
import numpy as np
import pytest

import pnc_vol

MODULES = (pnc_vol, real_h5py)
ORDERED, SORTED = ["z", "b", "m"], ["b", "m", "z"]


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    for module in MODULES:
        module.get_config().track_order = False


def noted(obj: Any) -> Any:
    """Give an object attributes whose order shows."""
    for number, name in enumerate(ORDERED):
        obj.attrs[name] = number
    return obj


def orders(file: Any) -> dict[str, list[str]]:
    listed = {name: [key for key in file[name].attrs if key != "_FillValue"] for name in file}
    return {"/": list(file), **listed}


def compared(tmp_path: pathlib.Path, make: Any) -> dict[str, list[str]]:
    """What both packages list, before and after the file is closed."""
    found = []
    for module in MODULES:
        path = tmp_path / module.__name__
        with module.File(path, "w", track_order=False) as f:
            make(module, f)
            before = orders(f)
        module.get_config().track_order = False
        with module.File(path, "r") as f:
            assert orders(f) == before, module.__name__
        found.append(before)
    assert found[0] == found[1]
    return found[0]


def test_datasets_made_like_others(tmp_path: pathlib.Path) -> None:
    def make(module: Any, f: Any) -> None:
        tracked = noted(f.create_dataset("tracked", (2,), "i4", track_order=True))
        plain = noted(f.create_dataset("plain", (2,), "i4"))
        noted(f.create_dataset_like("like", tracked))
        noted(f.create_dataset_like("like_plain", plain))
        noted(f.create_dataset_like("asked", plain, track_order=True))
        noted(f.create_dataset_like("not_asked", tracked, track_order=False))
        module.get_config().track_order = True
        noted(f.create_dataset_like("like_under_config", plain))

    found = compared(tmp_path, make)
    assert found["like"] == ORDERED
    assert found["like_under_config"] == SORTED


def test_copies_have_their_links_and_objects_in_the_order_of_the_original(tmp_path: pathlib.Path) -> None:
    def make(module: Any, f: Any) -> None:
        g = f.create_group("g", track_order=True)
        g["z"], g["x"] = module.SoftLink("/x"), 1
        g["m"], g["y"], g["a"] = module.ExternalLink("o", "/"), g["x"], 2
        f.copy("g", "copy")
        f.copy("g", "shallow", shallow=True)
        f["copy"]["b"] = 3

    compared(tmp_path, make)
    found = []
    for module in MODULES:
        with module.File(tmp_path / module.__name__) as f:
            found.append([list(f["g"]), list(f["copy"]), list(f["shallow"])])
    assert found[0] == found[1] == [list("zxmya"), list("zxmyab"), list("zxmya")]


def test_the_configuration_is_the_default(tmp_path: pathlib.Path) -> None:
    def make(module: Any, f: Any) -> None:
        module.get_config().track_order = True
        noted(f.create_dataset("dataset", (2,), "i4"))
        noted(f.create_dataset("none", (2,), "i4", track_order=None))
        noted(f.create_dataset("not", (2,), "i4", track_order=False))
        noted(f.create_dataset("with_data", data=np.arange(3)))
        noted(f.create_dataset("empty", data=module.Empty("f4")))
        noted(f.require_dataset("required", (2,), "i4"))
        noted(f.create_dataset("text", data="text"))
        f["assigned"], f["scalar"], f["words"] = np.arange(3), 1.5, ["a", "b"]
        for name in ("assigned", "scalar", "words"):
            noted(f[name])
        noted(f.create_group("group"))
        noted(f.create_group("group_not", track_order=False))
        noted(f.require_group("group_required"))
        f["type"] = np.dtype("i4")
        noted(f["type"])

    found = compared(tmp_path, make)
    assert found["assigned"] == found["group"] == ORDERED
    assert found["not"] == found["group_not"] == SORTED


def test_the_configuration_is_the_default_of_files(tmp_path: pathlib.Path) -> None:
    listed = []
    for module in MODULES:
        module.get_config().track_order = True
        with module.File(tmp_path / module.__name__, "w") as f:
            for name in ORDERED:
                f[name] = 1
            listed.append((list(f), list(noted(f).attrs)))
    assert listed == [(ORDERED, ORDERED)] * 2


def test_many_tracked_datasets_of_one_kind_are_tracked_when_they_are_read(tmp_path: pathlib.Path) -> None:
    """The second and later ones of a shape lost it, since they were thought to be told by their shape and type."""

    def make(module: Any, f: Any) -> None:
        for i in range(5):
            noted(f.create_dataset(f"d{i}", (2,), "i4", track_order=i != 3))

    found = compared(tmp_path, make)
    assert [found[f"d{i}"] for i in range(5)] == [ORDERED, ORDERED, ORDERED, SORTED, ORDERED]


def test_like_of_h5py(tmp_path: pathlib.Path) -> None:
    with real_h5py.File(tmp_path / "x.h5", "w") as source, pnc_vol.File(tmp_path / "x.nc", "w") as f:
        source.create_dataset("tracked", (2,), "i4", track_order=True)
        source.create_dataset("filled", (2,), "i4", fillvalue=7)
        assert list(noted(f.create_dataset_like("tracked", source["tracked"])).attrs) == ORDERED
        assert f.create_dataset_like("filled", source["filled"])[...].tolist() == [7, 7]


def test_like_does_not_choose_a_fill_value(tmp_path: pathlib.Path) -> None:
    """`_FillValue = 0` makes other programs mask zeros."""
    path = tmp_path / "x.nc"
    fields = np.dtype([("x", "f4")])
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("a", (2,), "f4")
        f.create_dataset("filled", (2,), "f4", fillvalue=-1)
        f.create_dataset("fields", (2,), fields)
        f.create_dataset("filled_fields", (2,), fields, fillvalue=np.array((3,), fields)[()])
        for name in list(f):
            f.create_dataset_like(f"{name}_like", f[name])
        assert f["filled_like"].fillvalue == -1
        assert f["filled_fields_like"][0]["x"] == 3
    with netCDF4.Dataset(path) as data:
        filled = {name for name, variable in data.variables.items() if "_FillValue" in variable.ncattrs()}
    assert filled == {"filled", "filled_like", "filled_fields_x", "filled_fields_like_x"}


def test_a_link_that_becomes_the_place_of_its_object_keeps_its_own(tmp_path: pathlib.Path) -> None:
    found = []
    for module, name in zip(MODULES, ("x.nc", "x.h5"), strict=True):
        with module.File(tmp_path / name, "w", track_order=True) as f:
            f["g/y"] = 1
            f["link"], f["last"] = f["g/y"], 2
            del f["g"]
            found.append(list(f))
        with module.File(tmp_path / name) as f:
            found.append(list(f))
    assert found == [["link", "last"]] * 4
