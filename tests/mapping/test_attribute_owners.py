"""The attributes of groups in the header: what follows from what changed is what is made anew, and costs no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from counted_work import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol

PATHS = st.sampled_from(["a", "b", "a/b", "a_b", "a/b/c", "b/a"])
KEYS = st.sampled_from(["c", "b_c", "a_b_c", "b/c", "flag"])
"""Attributes of different groups get one name in the header: ``a_b_c`` is c of /a/b and of /a_b, b_c of /a, ..."""
VALUES = st.sampled_from([1, True, "text", np.float32(2)])


def make_group(f: Any, path: str, key: str, value: Any) -> None:
    f.require_group(path)


def make_ordered_group(f: Any, path: str, key: str, value: Any) -> None:
    if path not in f:
        f.create_group(path, track_order=True)


def make_dataset(f: Any, path: str, key: str, value: Any) -> None:
    f.require_group(path)
    if key not in f[path]:
        f[f"{path}/{key}"] = np.arange(3)


def set_attribute(f: Any, path: str, key: str, value: Any) -> None:
    if path in f:
        f[path].attrs[key] = value


def set_of_root(f: Any, path: str, key: str, value: Any) -> None:
    f.attrs[key] = value


def delete_attribute(f: Any, path: str, key: str, value: Any) -> None:
    if path in f:
        f[path].attrs.pop(key, None)


def delete(f: Any, path: str, key: str, value: Any) -> None:
    if path in f:
        del f[path]


def move(f: Any, path: str, key: str, value: Any) -> None:
    if path in f and "moved" not in f:
        f.move(path, "moved")


ACTS = st.sampled_from(
    [
        make_group,
        make_ordered_group,
        make_dataset,
        make_dataset,
        set_attribute,
        set_attribute,
        set_of_root,
        delete_attribute,
        delete,
        move,
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(ACTS, PATHS, KEYS, VALUES), max_size=25), st.booleans(), st.booleans())
def test_a_flush_after_each_change_writes_what_one_at_the_end_does(
    tmp_path_factory: pytest.TempPathFactory, program: list[Any], reopened: bool, ordered: bool
) -> None:
    folder = tmp_path_factory.mktemp("x")
    each, once = folder / "each.nc", folder / "once.nc"
    for path in (each, once):
        f = pnc_vol.File(path, "w", track_order=ordered)
        if reopened:
            f.close()
            f = pnc_vol.File(path, "r+")
        with f:
            for act, *given_ in program:
                act(f, *given_)
                if path is each:
                    f.flush()
    with netCDF4.Dataset(each) as one, netCDF4.Dataset(once) as other:
        found, wanted = ({name: file.getncattr(name) for name in file.ncattrs()} for file in (one, other))
    assert list(found) == list(wanted)
    assert {k: str(v) for k, v in found.items()} == {k: str(v) for k, v in wanted.items()}


def step(f: Any, path: str, i: int) -> None:
    group = f.create_group(f"{path}{i}/mesh")
    group.attrs["time"] = i
    group["x"] = np.arange(3.0)
    f.flush()


def of_root(f: Any, path: str, i: int) -> None:
    f.attrs["last"] = i
    f.flush()


@pytest.mark.parametrize("act", [step, of_root])
@pytest.mark.parametrize("path", ["step", "steps/"])
def test_what_changes_beside_many_groups_with_attributes_costs_what_changed(
    act: Any, path: str, tmp_path: Path
) -> None:
    calls = []
    for before in (10, 300):
        with pnc_vol.File(tmp_path / "x.nc", "w") as f:
            f.create_group("about").attrs["made"] = "by a test"
            for i in range(before):
                step(f, path, i)
            of_root(f, path, 0)
            calls.append(min(calls_of(lambda i=i, f=f: act(f, path, i)) for i in range(before, before + 5)))
    assert calls[1] < 1.2 * calls[0]
