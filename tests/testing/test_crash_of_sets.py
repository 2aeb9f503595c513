"""The crash simulator kills a writer of a set of several subfiles between any two changes of any of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from crash.examining import examine
from crash.promise import Contents
from crash.running import Run, Scenario, fast_folder, record
from damages import WANT, good, write
from virtual_ranks import run as run_on

import pnc_vol

CODES = {"a": "f8", "r": "i4", "b": "i2", "s": "i4"}


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=fast_folder()) as path:
        yield path


def model() -> Any:
    """The same in a file of h5py's in memory."""
    f = h5py.File("model", "w", driver="core", backing_store=False)
    for name, code in CODES.items():
        values = np.asarray(WANT[name], code)
        f.create_dataset(name, data=values, maxshape=(None, *values.shape[1:]) if name == "r" else None)
    f.attrs["title"], f["a"].attrs["units"] = "damage", "m"
    return f


def contents(f: Any) -> Contents:
    """Datasets and attributes."""
    attrs = {f"{name}@{key}": value for name in ("", *f) for key, value in f[name or "/"].attrs.items()}
    return Contents().having({name: f[name][...] for name in f}, attrs=attrs)


def two_subfiles(run: Run) -> Contents:
    """A set that four processes on two nodes wrote."""
    write(Path(run.path), good())
    with model() as f:
        return contents(f)


Change = Callable[[Any], Any]


def delete(*names: str) -> Change:
    return lambda f: [f.__delitem__(name) for name in names]


def rename(*pairs: tuple[str, str]) -> Change:
    return lambda f: [f.move(old, new) for old, new in pairs]


def define(name: str) -> Change:
    """A dataset of which a part is posted, so that it gets a map; h5py fills the rest if it is told to."""
    return lambda f: f.create_dataset(name, (4, 6), "f8", fill_time="alloc").__setitem__(np.s_[1:3, 2:4], 5)


def append(f: Any) -> None:
    f["r"].resize(len(f["r"]) + 1, axis=0)
    f["r"][-1] = 9


def put(f: Any) -> None:
    f["a"][1:3] = 7


def again(f: Any) -> None:
    """Another dataset with the name of one that goes."""
    del f["b"]
    f["b"] = np.arange(3.0)


SWAP = rename(("a", "other"), ("r", "a"), ("other", "r"))
SCENARIOS: dict[str, list[list[Change]]] = {
    "delete": [[delete("a")], [append]],
    "delete records": [[delete("r")], [delete("a")]],
    "rename": [[rename(("a", "z"))], [append]],
    "swap": [[SWAP], [SWAP, delete("s")]],
    "rename records, append": [[append], [append, rename(("r", "a_r"))]],
    "define": [[define("new")], [define("other"), delete("b")]],
    "rename, delete, define": [[rename(("a", "z")), delete("b"), define("new"), append]],
    "another one of the same name": [[again], [delete("s")]],
    "delete all": [[delete("a", "r", "b", "s")], [define("new")]],
    "data, delete, append": [[put], [delete("b"), put], [append]],
}


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_set_is_that_of_before_or_after(folder: str, name: str, kind: str) -> None:
    promised = "durable" if kind == "power" else "flush"

    def program(run: Run) -> None:
        with model() as twin:
            f = run.open("r+")
            for changes in SCENARIOS[name]:
                for change in changes:
                    # what is posted is of this flush
                    change(f)
                    change(twin)
                with run.step(contents(twin), promised):
                    f.flush(durable=kind == "power")
            with run.step(contents(twin), promised):
                f.close()

    recording = record(Scenario(name, program, two_subfiles), folder)
    assert examine(recording, kind, folder=folder, count=40) > 2


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
@pytest.mark.parametrize("publish", ["create", "close"])
def test_a_new_set_takes_the_names_of_the_older_one_in_one_step(
    folder: str, layout: str, publish: str, kind: str
) -> None:
    """Both have two subfiles, of different maps: a mixture could not be opened, or had wrong values."""
    values = np.arange(9.0)

    def write_set(run: Run, cells: list[slice], **options: Any) -> None:
        def of_rank(comm: Any) -> None:
            with run.open("w", comm=comm, driver="posix", subfiles=2, **options) as f:
                if cells:
                    f.create_dataset("x", (9,), "f8", fill_time="alloc")[cells[comm.rank]] = values[cells[comm.rank]]

        run_on(2, of_rank)

    def before(run: Run) -> Contents:
        write_set(run, [np.s_[:5], np.s_[5:]], layout=layout)
        return Contents().having({"x": values})

    def program(run: Run) -> None:
        at_once = publish == "create" or layout == "hdf5blob"
        cells = [] if at_once else [np.s_[2:3], np.s_[3:4]]
        new = Contents() if at_once else Contents().having({"x": np.where(np.arange(9) // 2 == 1, values, 0)})
        with run.step(new, "durable" if kind == "power" else "flush"):
            write_set(run, cells, layout=layout, publish=publish)

    recording = record(Scenario("replaced", program, before), folder)
    assert examine(recording, kind, folder=folder, count=400) > 2


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("maxshape", [(4,), (None,)], ids=["fixed", "records"])
def test_strings_that_grow_are_old_or_new(
    folder: str, maxshape: tuple[int | None], renamed: bool, ranks: int, kind: str
) -> None:
    """A part of the subfiles with longer strings would be read with strings that are cut or begin elsewhere."""
    old, new = np.array([b"old"] * 4, object), np.array([b"old", b"longer", b"longer", b"old"], object)
    then = np.where(new == b"old", b"the longest", new)

    def before(run: Run) -> Contents:
        def of_rank(comm: Any) -> None:
            with run.open("w", comm=comm, driver="posix", subfiles=2, layout="blob") as f:
                cells = np.s_[2 * comm.rank : 2 * comm.rank + 2]
                f.create_dataset("s", (4,), pnc_vol.string_dtype(), maxshape=maxshape)[cells] = old[cells]

        run_on(2, of_rank)
        return Contents().having({"s": old})

    def program(run: Run) -> None:
        def of_rank(comm: Any) -> None:
            given = {"comm": comm, "driver": "posix"} if ranks > 1 else {}
            with run.open("r+", **given) as f:
                name = "s"
                for values in (new, then):
                    if renamed:
                        f.move(name, name + "t")
                        name += "t"
                    with run.step(Contents().having({name: values}), "durable" if kind == "power" else "flush"):
                        cells = np.s_[comm.rank :: ranks]
                        f[name][cells] = values[cells]
                        f.flush(durable=kind == "power")
                    np.testing.assert_array_equal(f[name][:], values)

        run_on(ranks, of_rank)

    recording = record(Scenario("longer", program, before), folder)
    assert examine(recording, kind, folder=folder, count=60) > 2
