"""What random calls, clients and h5py's users brought to light, each by itself: the same on h5py and pnc_vol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import pnc_vol

Case = Callable[[Any, Any], Any]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def raised(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except Exception as error:
        # without tracebacks: their frames would keep open what they name, files too, until Python's collector runs
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    raise AssertionError("nothing was raised")


# ------------------------------------------------------------------------------------------------- types


@case
def an_array_as_an_attribute_of_strings(module: Any, file: Any) -> Any:
    for name, values in {"n": [1, 2], "b": [True, False], "u": ["a", "bc"], "f": [0.5]}.items():
        file.attrs.create(name, np.array(values), dtype="S3")
    return {name: value.tolist() for name, value in file.attrs.items()}


@case
def complex_numbers_and_compounds_of_two_parts(module: Any, file: Any) -> Any:
    pairs = np.array([(1, np.inf), (np.nan, 2)], [("r", "f8"), ("i", "f8")])
    file["p"], file["c"] = pairs, np.array([[1 + 2j, 3], [4j, 5]])[:, 0]
    file.create_dataset("q", data=pairs, dtype=pairs.dtype)
    into = np.zeros(2, [("r", "f4"), ("i", "f4")])
    file["c"].read_direct(into)
    kinds = ([("r", "f4"), ("i", "f8")], [("i", "i2")])
    found = [file["p"].dtype, str(file["p"][:]), str(file["q"][:]), into.tolist()]
    return found + [(file["c"].astype(kind)[:].tolist(), file["c"].astype(kind)[1].dtype) for kind in kinds]


@case
def arrays_are_read_as_arrays_of_another_type(module: Any, file: Any) -> Any:
    ds = file.create_dataset("a", (2, 2), dtype=("f8", (3,)))
    ds[...] = np.arange(12.0).reshape(2, 2, 3)
    view, plain = ds.astype(("i2", (3,))), file.create_dataset("p", data=np.zeros((2, 3)))
    told = [view.dtype, view.shape, view[:].tolist(), view[0, 1].dtype, view[1, 0].tolist()]
    return [*told, raised(lambda: ds.astype(("i2", (2,)))[:]), raised(lambda: plain.astype(("f4", (3,)))[:])]


@case
def an_id_flushes_and_refreshes(module: Any, file: Any) -> Any:
    file["x"] = [1, 2]
    return file["x"].id.flush(), file["x"].id.refresh(), file["x"][:].tolist()


@case
def strings_as_an_attribute_of_numbers(module: Any, file: Any) -> Any:
    file.attrs.create("n", np.array([b"1", b"25"]), dtype="f4")
    return file.attrs["n"].tolist(), raised(lambda: file.attrs.create("m", np.array([b"x"]), dtype="i4"))


@case
def an_attribute_is_modified_by_its_own_kind_alone(module: Any, file: Any) -> Any:
    file.attrs.create("s", [b"ab"], dtype="S3")
    return [raised(lambda value=value: file.attrs.modify("s", value)) for value in (np.array(["x"]), np.array([1]))]


# ------------------------------------------------------------------------------------------------- order


@case
def a_replaced_attribute_is_the_last(module: Any, file: Any) -> Any:
    for made in (file.create_group("g", track_order=True), file.create_dataset("d", data=1, track_order=True)):
        for name in "zay":
            made.attrs[name] = 1
        made.attrs["z"] = 2
        made.attrs.create("a", 3)
        made.attrs.modify("y", 4)
    return [list(made.attrs.items()) for made in file.values()]


@case
def groups_list_members_in_the_order_of_creation(module: Any, file: Any) -> Any:
    for name, tracked in (("a", True), ("b", False)):
        group = file.create_group(name, track_order=tracked)
        for member in "zya":
            group.create_group(member)
        group.move("y", "b")
        group.copy("z", "c")
        group["d"], group["0"] = module.SoftLink("/a"), group["a"]
        del group["z"]
        group["z"] = 1
    found: list[str] = []
    file.visit_links(found.append)
    return [(list(group), list(reversed(group))) for group in file.values()], found


@case
def the_last_name_of_an_object_stays_where_it_is_listed(module: Any, file: Any) -> Any:
    group = file.create_group("g", track_order=True)
    group["h/x"], file["kind"] = 1, np.dtype("i4")
    group["z"], group["y"], group["a"] = group["h/x"], file["kind"], 2
    del group["h"], file["kind"]
    return list(group), group["z"][()], group["y"].dtype


# ------------------------------------------------------------------------------------------------- paths


@case
def links_are_kept_without_a_slash_too_many(module: Any, file: Any) -> Any:
    file["a"], file["b"] = module.SoftLink("/z//a/./b/"), module.SoftLink("z//a")
    file["c"] = module.ExternalLink("o.h5", "z//a/")
    return [file.get(name, getlink=True).path for name in file]


@case
def a_taken_name(module: Any, file: Any) -> Any:
    file["a"] = 1
    others = (module.SoftLink("/b"), module.ExternalLink("o.h5", "/b"), 2, file["a"])
    return [raised(lambda other=other: file.__setitem__("a", other)) for other in others]


@case
def a_dataset_on_the_way(module: Any, file: Any) -> Any:
    file["g"], file["broken"] = 1, module.SoftLink("/nowhere")
    told = []
    for path in ("g/a", "g/a/b", "broken/a"):
        told += [raised(lambda path=path: file.create_group(path)), raised(lambda path=path: file.__setitem__(path, 1))]
        told += [raised(lambda path=path: file.create_dataset(path, (2,))) for _ in range(path != "broken/a")]
        told += [raised(lambda path=path: file.__setitem__(path, module.SoftLink("/g")))]
    return told


@case
def a_named_type_in_a_group_that_is_not_there_yet(module: Any, file: Any) -> Any:
    file["g/h/kind"] = np.dtype([("a", "i4"), ("b", "f8")])
    file["g/h/kind"].attrs["unit"] = "K"
    file["g/h/x"] = 1
    found = file["g/h/kind"]
    return bool(found), found.name, found.dtype.names, dict(found.attrs), list(file["g/h"]), list(file["g"])


@case
def a_named_type_with_two_names(module: Any, file: Any) -> Any:
    file["a"], file["c"] = np.dtype([("x", "i4")]), np.dtype("f4")
    file["a"].attrs["u"] = "m"
    file["g/b"], file["g/c"] = file["a"], file["c"]
    file["g/b"].attrs["v"] = 1
    file.copy("g", "h")
    told = [dict(file["a"].attrs), file["g/b"].name, file["g/b"] == file["a"], dict(file["h/b"].attrs)]
    del file["a"]
    file.move("g", "k")
    found: list[str] = []
    file.visit(found.append)
    told += [found, dict(file["k/b"].attrs), file["k/b"].dtype]
    file["last"] = file["k/b"]
    del file["k"]
    return [*told, dict(file["last"].attrs), file["c"].dtype, sorted(file)]


@case
def something_is_made_through_links_to_other_files(module: Any, file: Any) -> Any:
    folder = Path(file.filename).parent
    with module.File(folder / f"other.{module.__name__}", "w") as other:
        other["g/x"] = 1
    for name, path in (("e", "/g"), ("root", "/"), ("x", "/g/x"), ("missing", "/nothing")):
        file[name] = module.ExternalLink(f"other.{module.__name__}", path)
    file["gone"], file["soft"] = module.ExternalLink("nowhere", "/"), module.SoftLink("/nothing")
    made = file.create_dataset("e/d", data=[1, 2]), file.create_group("root/new/deep"), file.require_group("e/r")
    told = [(one.name, Path(one.file.filename).stem) for one in made]
    file["e/link"], file["e/kind"], file["e/again"] = module.SoftLink("/g/x"), np.dtype("i4"), file["e/d"]
    told += [sorted(file["e"]), file["e/link"][()], file["e/again"] == file["e/d"], sorted(file["root"])]
    for path in ("x/a", "missing/a", "gone/a", "soft/a"):
        told += [raised(lambda path=path, make=make: make(path)) for make in (file.create_group, file.create_dataset)]
        told += [raised(lambda path=path: file.__setitem__(path, module.SoftLink("/g")))]
    told += [raised(lambda name=name: file.create_dataset(name, data=1)) for name in ("missing", "gone", "soft")]
    return told


# ---------------------------------------------------------------------------------------------- selections


@case
def a_field_of_what_has_none(module: Any, file: Any) -> Any:
    scalar, vector = file.create_dataset("s", data=1), file.create_dataset("v", (3,), "i4")
    return [raised(lambda ds=ds: ds.__setitem__("p", 1)) for ds in (scalar, vector)] + [
        raised(lambda ds=ds: ds["p"]) for ds in (scalar, vector)
    ]


# ------------------------------------------------------------------------------------------ what clients do


@case
def weights_are_loaded_with_care(module: Any, file: Any) -> Any:
    """As loaders of model weights do: nothing but real groups and datasets of this very file."""
    layers = file.create_group("layers/dense", track_order=True)
    layers.create_dataset("0", data=np.ones((2, 3), "f4"))
    layers.attrs["names"] = ["kernel:0", "bias:0"]
    file["layers/other"] = module.ExternalLink("elsewhere.h5", "/x")
    told: list[Any] = []

    def visit(group: Any) -> None:
        for name in group:
            kind = group.get(name, getclass=True, getlink=True)
            told.append((group.name, name, kind.__name__))
            if kind is not module.HardLink:
                continue
            found = group[name]
            if group.get(name, getclass=True) is module.Dataset:
                told.append((found.external, found.is_virtual, found.shape, found.dtype.str, found[()].tolist()))
            else:
                visit(found)

    visit(file)
    return told, list(layers.attrs["names"]), "dense" in file["layers"], file["layers"].get("none", default=3)


@case
def plans_for_virtual_datasets(module: Any, file: Any) -> Any:
    """What is refused while one is made is refused as by h5py."""
    file["x"] = np.arange(6).reshape(2, 3)
    ds, path = module.VirtualSource(file["x"]), module.VirtualSource("a", "x", (20, 30), "i4", (None, 30))
    told = [(source.name, source.shape, source.maxshape, np.dtype(source.dtype)) for source in (ds, path)]
    told += [path[index].shape for index in ((5,), (..., slice(0, 4, 3)), slice(-10, -4), ([1, 5],), ...)]
    layout = module.VirtualLayout(shape=(2, 10), dtype="f4", maxshape=(None, 10))
    layout[0], layout[:, 3] = module.VirtualSource("a", "x", shape=10), path[4:6, 7]
    told += [layout.shape, np.dtype(layout.dtype).str, layout.maxshape]
    told += [raised(lambda: layout.__setitem__(0, path)), raised(lambda: path[0][0]), raised(lambda: path[50])]
    told += [raised(lambda: module.VirtualSource("a", "x")), raised(lambda: module.VirtualSource(file["x"], "x"))]
    return told


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_in_h5py(name: str, tmp_path: Path) -> None:
    told = []
    for module in (h5py, pnc_vol):
        with module.File(tmp_path / module.__name__, "w") as file:
            told.append(CASES[name](module, file))
    same(*told)


def same(theirs: Any, ours: Any) -> None:
    """Equal, and every exception one that a handler of h5py's would catch."""
    if isinstance(theirs, BaseException):
        assert isinstance(ours, type(theirs)), (theirs, ours)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(theirs, ours, strict=True):
            same(one, other)
    else:
        assert ours == theirs
