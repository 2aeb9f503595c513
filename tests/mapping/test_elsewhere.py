"""The marker of data that live elsewhere, which is not trusted, and which elements two regions have in common."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from file_format import Header, Var
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.mapping.elsewhere import common
from pnc_vol.mapping.flatten import to_header
from pnc_vol.mapping.names import dump_marker
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.mapping.unflatten import from_header

VIRTUAL: dict[str, Any] = {
    "type": "composite",
    "dtype": "<i8",
    "shape": [4, 3],
    "max": [None, 3],
    "elsewhere": {
        "fill": "07" + "00" * 7,
        "virtual": [
            {
                "to": {"shape": [4, 3], "axes": [[0, 1, None, 1], [1, 1, 1, 1]]},
                "file": "a.nc",
                "name": "/x",
                "of": {"shape": [9], "axes": [[1, 2, None, 1]]},
            },
            {
                "to": {"shape": [4, 3], "axes": [[2, 1, 1, 2], [0, 2, 2, 1]]},
                "file": ".",
                "name": "y",
                "of": {"shape": [9], "axes": [{"list": [1, 4, 5, 8]}]},
            },
        ],
    },
}
RAW: dict[str, Any] = {
    "type": "composite", "dtype": "<i2", "shape": [5], "elsewhere": {"raw": [["a", 4, 8], ["b", 0, None]]},
}  # fmt: skip


def tree_of(marker: dict[str, Any], code: int = 1) -> Tree:
    return from_header(Header(5, 0, (), (), (Var("v", (), (dump_marker(marker),), code),)))


def node_of(marker: dict[str, Any]) -> DatasetNode:
    return tree_of(marker).datasets[0]


@pytest.mark.parametrize("marker", [VIRTUAL, RAW])
def test_both_ways(marker: dict[str, Any]) -> None:
    tree = tree_of(marker)
    assert tree.findings == []
    node = tree.datasets[0]
    assert node.away is not None
    assert node.shape == tuple(marker["shape"])
    assert node.element.dtype.str == marker["dtype"]
    made = to_header(tree).header.vars[0]
    assert (made.dims, made.type) == ((), 1)
    assert json.loads(made.attrs[0].data) == marker


def changed(marker: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(marker)
    *steps, last = path.split("/")
    at: Any = found
    for step in steps:
        at = at[int(step) if step.isdigit() else step]
    at[int(last) if last.isdigit() else last] = value
    return found


FALSE: list[tuple[dict[str, Any], str, Any]] = [
    (VIRTUAL, "shape", [4]), (VIRTUAL, "shape", [4, -3]), (VIRTUAL, "shape", None), (VIRTUAL, "shape", [1 << 62, 9]),
    (VIRTUAL, "dtype", "O"), (VIRTUAL, "dtype", 3), (VIRTUAL, "max", [3]), (VIRTUAL, "max", ["x", 3]),
    (VIRTUAL, "elsewhere", 3), (VIRTUAL, "elsewhere", {}), (VIRTUAL, "elsewhere/raw", []),
    (VIRTUAL, "elsewhere/fill", "07"), (VIRTUAL, "elsewhere/fill", "xx" * 8), (VIRTUAL, "elsewhere/virtual", 1),
    (VIRTUAL, "elsewhere/virtual/0/file", 4), (VIRTUAL, "elsewhere/virtual/0/name", None),
    (VIRTUAL, "elsewhere/virtual/0/of/axes/0", [1, 2, 3, 1]), (VIRTUAL, "elsewhere/virtual/0/to/axes/0", [0, 1]),
    (VIRTUAL, "elsewhere/virtual/0/to/axes/1", [1, 1, None, 1]),
    (VIRTUAL, "elsewhere/virtual/1/to/axes/0", [3, 1, 1, 2]),
    (VIRTUAL, "elsewhere/virtual/1/of/axes/0", {"list": [1, 4, 4, 8]}),
    (VIRTUAL, "elsewhere/virtual/1/of/axes/0", {"list": [1, 4]}),
    (VIRTUAL, "elsewhere/virtual/1/to/axes/0", [2, 0, 2, 1]), (VIRTUAL, "elsewhere/virtual/1/to/axes/0", [2, 1, 2, 2]),
    (VIRTUAL, "elsewhere/virtual/1/to/axes/0", [2, 1, 1 << 70, 1]),
    (RAW, "elsewhere/raw/0", ["a", 4]), (RAW, "elsewhere/raw/0", ["a", -4, 8]), (RAW, "elsewhere/raw/0", ["", 4, 8]),
    (RAW, "elsewhere/raw/0", ["a\0", 4, 8]),
    (RAW, "dtype", {"string": "utf-8"}),
]  # fmt: skip


@pytest.mark.parametrize(("marker", "path", "value"), FALSE)
def test_what_does_not_fit_is_a_plain_variable(marker: dict[str, Any], path: str, value: Any) -> None:
    tree = tree_of(changed(marker, path, value))
    assert tree.datasets[0].away is None
    assert any("elsewhere of its marker does not fit" in sentence for sentence in tree.findings)


def test_only_a_scalar_byte_may_have_its_data_elsewhere() -> None:
    assert tree_of(RAW, code=6).datasets[0].away is None


RANGES = st.builds(
    lambda start, step, n: range(start, start + n * step, step),
    st.integers(0, 40),
    st.integers(1, 9),
    st.integers(0, 12),
)


@given(RANGES, RANGES, st.booleans(), st.booleans())
def test_what_two_rows_of_indices_have_in_common(one: range, other: range, first: bool, second: bool) -> None:
    wanted = sorted(set(one) & set(other))
    found = common(np.array(one, np.int64) if first else one, np.array(other, np.int64) if second else other)
    assert [one[i] for i in found[0]] == [other[i] for i in found[1]] == wanted
