"""The crash simulator kills a writer of a set of several subfiles between any two changes of any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crash.examining import examine
from crash.promise import Contents
from crash.running import Run, Scenario, fast_folder, record
from damages import WANT, good, write

from pnc_vol.system import temporary_directory

CODES = {"a": "f8", "r": "i4", "b": "i2", "s": "i4"}
START = {name: np.asarray(WANT[name], code) for name, code in CODES.items()}
UNITS = {"@title": "damage", "a@units": "m"}


@pytest.fixture
def folder() -> Iterator[str]:
    with temporary_directory(fast_folder()) as path:
        yield path


def two_subfiles(run: Run) -> Contents:
    """A set that four processes on two nodes wrote."""
    write(Path(run.path), good())
    return Contents().having(START, attrs=UNITS)


class State:
    """What the set holds after each change: datasets and attributes."""

    def __init__(self) -> None:
        self.datasets = dict(START)
        self.attrs = dict(UNITS)

    def contents(self) -> Contents:
        return Contents().having(self.datasets, attrs=self.attrs)

    def rename(self, old: str, new: str) -> None:
        self.datasets[new] = self.datasets.pop(old)
        for name in [name for name in self.attrs if name.startswith(f"{old}@")]:
            self.attrs[f"{new}@{name.partition('@')[2]}"] = self.attrs.pop(name)

    def delete(self, name: str) -> None:
        del self.datasets[name]
        self.attrs = {key: value for key, value in self.attrs.items() if not key.startswith(f"{name}@")}


def delete(name: str) -> Callable[[Any, State], None]:
    def change(f: Any, state: State) -> None:
        del f[name]
        state.delete(name)

    return change


def rename(old: str, new: str) -> Callable[[Any, State], None]:
    def change(f: Any, state: State) -> None:
        f.move(old, new)
        state.rename(old, new)

    return change


def define(name: str) -> Callable[[Any, State], None]:
    """A dataset of which a part is posted, so that it gets a map."""

    def change(f: Any, state: State) -> None:
        values = np.zeros((4, 6))
        values[1:3, 2:4] = 5
        f.create_dataset(name, (4, 6), "f8")[1:3, 2:4] = 5
        state.datasets[name] = values

    return change


def append(f: Any, state: State) -> None:
    r = f["r"]
    r.resize(len(r) + 1, axis=0)
    r[-1] = 9
    state.datasets["r"] = np.concatenate((state.datasets["r"], np.full((1, 4, 6), 9, "i4")))


def put(f: Any, state: State) -> None:
    f["a"][1:3] = 7
    state.datasets["a"] = state.datasets["a"].copy()
    state.datasets["a"][1:3] = 7


def swap(f: Any, state: State) -> None:
    """Two datasets exchange their names."""
    for old, new in (("a", "other"), ("r", "a"), ("other", "r")):
        rename(old, new)(f, state)


def again(f: Any, state: State) -> None:
    """Another dataset with the name of one that goes."""
    delete("b")(f, state)
    f["b"] = np.arange(3.0)
    state.datasets["b"] = np.arange(3.0)


Changes = list[Callable[[Any, State], None]]
SCENARIOS: dict[str, list[Changes]] = {
    "delete": [[delete("a")], [append]],
    "delete records": [[delete("r")], [delete("a")]],
    "rename": [[rename("a", "z")], [append]],
    "swap": [[swap], [swap, delete("s")]],
    "rename records, append": [[append], [append, rename("r", "a_r")]],
    "define": [[define("new")], [define("other"), delete("b")]],
    "rename, delete, define": [[rename("a", "z"), delete("b"), define("new"), append]],
    "another one of the same name": [[again], [delete("s")]],
    "delete all": [[delete("a"), delete("r"), delete("b"), delete("s")], [define("new")]],
    "data, delete, append": [[put], [delete("b"), put], [append]],
}


@pytest.mark.parametrize("kind", ["kill", "power"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_set_is_that_of_before_or_after(folder: str, name: str, kind: str) -> None:
    def program(run: Run) -> None:
        state = State()
        f = run.open("r+")
        for changes in SCENARIOS[name]:
            expected = State()
            expected.datasets, expected.attrs = dict(state.datasets), dict(state.attrs)
            for change in changes:
                # what is posted is of this flush
                change(f, expected)
            state = expected
            with run.step(state.contents(), "durable" if kind == "power" else "flush"):
                f.flush(durable=kind == "power")
        with run.step(state.contents(), "durable" if kind == "power" else "flush"):
            f.close()

    recording = record(Scenario(name, program, two_subfiles), folder)
    assert examine(recording, kind, folder=folder, count=40) > 2
