"""Trees to headers and back: nothing is lost, nothing foreign is refused, no marker is trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pnc_vol.errors import DefinitionError
from pnc_vol.format.decode import decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.names import is_legal_name
from pnc_vol.format.placing import place
from pnc_vol.mapping.attributes import make_attribute
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.flatten import numrecs_of, to_header
from pnc_vol.mapping.links import remove
from pnc_vol.mapping.names import DEEPEST, MARKER
from pnc_vol.mapping.special import Empty, enum_dtype, string_dtype
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Tree, walk
from pnc_vol.mapping.unflatten import from_header

CHAR, FLOAT = 2, 5

# ------------------------------------------------------------------------------------------- random trees

NAMES = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "a_b",
            "A",
            "x",
            "dim_3",
            "record",
            "strlen_2",
            "_pfnc_complex",
            "a b ",
            ".x",
            "é",
            "e\u0301",
            MARKER,
        ]
    ),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=5),
    st.text("ab\udc80\udcff", min_size=1, max_size=3),
    st.integers(250, 400).map(lambda n: "n" * n),
).filter(lambda name: name not in (".", ".."))

DTYPES = st.sampled_from(
    [
        np.dtype(code)
        for code in (
            "i1",
            "u1",
            "<i4",
            ">i4",
            "i8",
            "u8",
            "f4",
            "f8",
            ">f8",
            "f2",
            ">f2",
            "?",
            "c8",
            "c16",
            ">c8",
            "S1",
            "S3",
        )
    ]
    + [string_dtype(), string_dtype("ascii"), string_dtype("utf-8", 4)]
    + [enum_dtype({"a b": 0, "é": 3}, "i1"), enum_dtype({"R": -5}, ">i4"), enum_dtype({})]
)

VALUES = st.one_of(
    st.text(st.characters(exclude_characters="\0"), max_size=4).filter(
        lambda t: not any("\ud800" <= c <= "\udfff" for c in t)
    ),
    st.sampled_from([b"", b"\xff", 1, True, 1.5, 2j, [], [[1, 2]], [1], ["a", "b, c"], [b"x"], [["p"], ["qq"]]]),
    st.sampled_from(
        [
            np.bytes_(b"a\0b"),
            np.array([b"a", b""], "S3"),
            np.array([True]),
            np.zeros((2, 0), ">i2"),
            np.float16(1),
            np.array([1, 0], enum_dtype({"a": 0, "b": 1})),
            Empty("f4"),
            Empty(string_dtype()),
            Empty("S7"),
            np.array(float("nan")),
        ]
    ),
)
ATTR_NAMES = NAMES | st.sampled_from(["dtype", "_Encoding", "flag_values", "a/b", "units", "A_units"])


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree = Tree()
    groups: list[GroupNode] = [tree.root]
    nodes: list[DatasetNode] = []
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from(groups))
        name = draw(NAMES)
        if name in parent.children:
            continue
        if draw(st.integers(0, 3)) == 0:
            groups.append(tree.add_group(parent, name))
            continue
        shape: Any = draw(st.none() | st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple))
        record = bool(shape) and draw(st.booleans())
        element = element_for(draw(DTYPES), width=draw(st.integers(1, 3)))
        fill = draw(st.none() | st.binary(min_size=element.itemsize, max_size=element.itemsize))
        maxshape = (None, *shape[1:]) if record else None
        nodes.append(tree.add_dataset(parent, name, element=element, shape=shape, maxshape=maxshape, fillvalue=fill))
    for node in nodes:
        node.scale = draw(st.none() | st.sampled_from(["", node.name, "s"]))
    scales = [node for node in nodes if node.scale is not None]
    for node in nodes:
        for axis in node.axes:
            axis.label = draw(st.sampled_from(["", "", "x", "a", "dim_3", "record", "_pfnc_complex", "a/b"]))
            if scales and draw(st.booleans()):
                picked = draw(st.lists(st.sampled_from(scales), unique_by=id, max_size=2))
                axis.scales = [scale for scale in picked if scale is not node]
    for owner in (*groups, *nodes):
        for name, value in draw(st.lists(st.tuples(ATTR_NAMES, VALUES), max_size=3)):
            owner.attrs[name] = make_attribute(value)
        if draw(st.integers(0, 5)) == 0:
            owner.attrs["dtype"] = make_attribute("bool")
            owner.attrs["_Encoding"] = make_attribute("utf-8")
    return tree


def portrait(tree: Tree) -> dict[str, Any]:
    """All that a user can see of a tree, as plain values."""
    found: dict[str, Any] = {}
    for node in walk(tree.root):
        attrs = {}
        for name, attribute in node.attrs.items():
            value = None if attribute.value is None else repr(attribute.value.tolist())
            attrs[name] = (attribute.dtype.str, dict(attribute.dtype.metadata or {}), attribute.shape, value)
        seen: dict[str, Any] = {"attrs": attrs}
        if isinstance(node, DatasetNode):
            attrs.pop("_FillValue", None)
            element = node.element
            seen |= {
                "element": (element.dtype.str, dict(element.dtype.metadata or {}), element.kind, element.itemsize),
                "shape": node.shape,
                "maxshape": node.maxshape if node.maxshape != node.shape else None,
                "fill": node.fillvalue,
                "scale": node.scale,
                "axes": [(axis.label, [scale.path for scale in axis.scales]) for axis in node.axes],
            }
        found[node.path] = seen
    return found


def reread(tree: Tree) -> Tree:
    """The tree as it is after a reopen: its header goes through bytes."""
    header = place(replace(to_header(tree).header, numrecs=numrecs_of(tree)))
    return from_header(decode(encode(header), file_size=1 << 40).header)


def assert_legal(header: Header) -> None:
    assert sum(dim.size == 0 for dim in header.dims) <= 1
    for names in (
        [dim.name for dim in header.dims],
        [var.name for var in header.vars],
        [attr.name for attr in header.attrs],
        *([attr.name for attr in var.attrs] for var in header.vars),
    ):
        assert len(set(names)) == len(names)
        assert all(map(is_legal_name, names))
    for var in header.vars:
        assert all(header.dims[index].size for index in var.dims[1:])


@given(trees())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_tree_comes_back_from_its_header(tree: Tree) -> None:
    before = portrait(tree)
    flat = to_header(tree)
    assert portrait(tree) == before
    assert_legal(flat.header)
    assert flat.uids == tuple(tree.datasets)
    again = reread(tree)
    assert again.findings == []
    assert portrait(again) == before
    assert [again.datasets[i].path for i in again.datasets] == [tree.datasets[i].path for i in tree.datasets]
    # a second trip changes nothing at all
    second = to_header(again).header
    assert portrait(reread(again)) == before
    assert to_header(reread(again)).header == second


@given(trees(), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_changed_tree_comes_back(tree: Tree, data: st.DataObject) -> None:
    again = reread(tree)
    for node in list(again.datasets.values()):
        change = data.draw(st.integers(0, 5))
        if change == 0:
            remove(node)
        elif change == 1 and "moved" not in again.root.children:
            again.move(node, again.root, "moved")
        elif change == 2 and node.axes:
            node.axes[0].label = data.draw(st.sampled_from(["", "y", "x"]))
        elif change == 3:
            node.scale = "now" if node.shape else node.scale
    for left in again.datasets.values():
        for axis in left.axes:
            axis.scales = [scale for scale in axis.scales if scale.scale is not None]
    before = portrait(again)
    assert_legal(to_header(again).header)
    third = reread(again)
    assert third.findings == []
    assert portrait(third) == before


# ------------------------------------------------------------------------------------------ foreign headers


def test_a_plain_file_stays_plain() -> None:
    """Rule one: what NetCDF can say needs nothing of ours, and a rewrite of a foreign header is that header."""
    header = Header(
        5,
        4,
        (Dim("time", 0), Dim("lat", 2), Dim("lon", 3), Dim("nchar", 8), Dim("unused", 9), Dim("_pfnc_complex", 2)),
        (Attr("title", CHAR, 4, b"test"), Attr("odd/name", 4, 1, b"\0\0\0\1")),
        (
            Var("time", (0,), (Attr("units", CHAR, 1, b"s"),), 6),
            Var("lat", (1,), (), FLOAT),
            Var("t", (0, 1, 2), (Attr("_FillValue", FLOAT, 1, b"\x7f\xc0\0\0"),), FLOAT),
            Var("name", (1, 3), (Attr("_Encoding", CHAR, 5, b"utf-8"),), CHAR),
            Var("flag", (2,), (Attr("dtype", CHAR, 4, b"bool"),), 1),
            Var("z", (2, 5), (), 6),
            Var("letter", (), (), CHAR),
            Var("letters", (0,), (), CHAR),
            Var("path/like", (), (), 4),
        ),
    )
    tree = from_header(header)
    assert tree.findings == []
    back = to_header(tree).header
    assert back == Header(5, 0, *(getattr(header, part) for part in ("dims", "attrs", "vars")))
    get = tree.root.children
    time, t = get["time"], get["t"]
    assert isinstance(t, DatasetNode)
    assert isinstance(time, DatasetNode)
    assert (t.shape, t.maxshape, t.fillvalue) == ((4, 2, 3), (None, 2, 3), b"\x7f\xc0\0\0")
    assert time.scale == "time"
    assert [[scale.name for scale in axis.scales] for axis in t.axes] == [["time"], ["lat"], []]
    assert [axis.label for axis in t.axes] == ["", "", "lon"]
    assert list(t.attrs) == ["_FillValue"]
    kinds = {name: (node.element.dtype.str, node.shape) for name, node in get.items() if isinstance(node, DatasetNode)}
    assert kinds["name"] == ("|O", (2,))
    assert kinds["flag"] == ("|b1", (3,))
    assert kinds["z"] == (np.dtype("c16").str, (3,))
    assert kinds["letter"] == ("|S1", ())
    assert kinds["letters"] == ("|S1", (4,))
    assert "path_like" in get


def test_names_that_meet_get_suffixes_and_come_back() -> None:
    tree = Tree()
    group = tree.add_group(tree.root, "A")
    for parent, name in ((group, "B"), (tree.root, "A_B"), (tree.root, "A_B_2")):
        tree.add_dataset(parent, name, element=element_for("i4"), shape=())
    header = to_header(tree).header
    assert [var.name for var in header.vars] == ["A_B", "A_B_2", "A_B_2_2"]
    assert {node.path for node in reread(tree).datasets.values()} == {"/A/B", "/A_B", "/A_B_2"}


def test_a_hundred_thousand_equal_names_take_linear_time() -> None:
    header = Header(5, 0, (), (), tuple(Var("v", (), (), 4) for _ in range(20_000)))
    assert len(from_header(header).root.children) == 20_000


@pytest.mark.parametrize("separator", ["_", ".", "__"])
def test_separator(separator: str) -> None:
    tree = Tree(separator=separator)
    tree.add_dataset(tree.add_group(tree.root, "A"), "B", element=element_for("i4"), shape=())
    assert to_header(tree).header.vars[0].name == f"A{separator}B"


# --------------------------------------------------------------------------------------------- false markers


def marked(marker: Any, *, var: Var | None = None, attrs: tuple[Attr, ...] = ()) -> Header:
    text = marker if isinstance(marker, bytes) else json.dumps(marker).encode()
    var = var or Var("v", (0,), (), FLOAT)
    var = var._replace(attrs=(*var.attrs, Attr(MARKER, CHAR, len(text), text)))
    return Header(5, 5, (Dim("n", 7), Dim("r", 0)), attrs, (var, Var("w", (1,), (), FLOAT)))


LIES = [
    b"",
    b"{",
    b"\xff",
    b"[1]",
    b"null",
    b"[" * 5000,
    b'"x"',
    {"path": 3},
    {"path": "v"},
    {"path": "/"},
    {"path": "/a/../b"},
    {"path": "/a\0"},
    {"path": "/\ud800"},
    {"shape": [1 << 62]},
    {"shape": [0]},
    {"shape": "x"},
    {"null": True},
    {"null": True, "shape": [0]},
    {"len": 3},
    {"type": "complex"},
    {"type": "bool"},
    {"type": ["x"]},
    {"type": "enum"},
    {"type": "enum", "enum": {"a": 1.5}},
    {"order": 3},
    {"encoding": "latin"},
    {"scales": [["v"]]},
    {"scales": [["nobody"]]},
    {"scales": 3},
    {"scales": [[3]]},
    {"labels": ["a", "b"]},
    {"labels": [1]},
    {"fill": "zz"},
    {"fill": 3},
    {"fill": "00" * 9},
    {"attrs": 3},
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: str(lie)[:30])
def test_a_lying_marker_is_ignored_and_reported(lie: Any) -> None:
    tree = from_header(marked(lie))
    assert tree.findings
    node = tree.root.children["v"]
    assert isinstance(node, DatasetNode)
    assert (node.shape, node.element.dtype, node.fillvalue, len(node.attrs)) == ((7,), np.dtype("f4"), None, 0)
    assert from_header(to_header(tree).header).findings == []


def test_a_record_length_beyond_the_file_is_ignored() -> None:
    for length in (6, -1, True, 1 << 70, "x"):
        tree = from_header(marked({"len": length}, var=Var("v", (1,), (), FLOAT)))
        assert tree.findings
        assert tree.root.children["v"].shape == (5,)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": [3, 3]},
        {"shape": [1 << 80]},
        {"shape": [0, 1 << 62]},
        {"lengths": [1 << 60]},
        {"lengths": "x"},
        {"lengths": [-1, 5]},
        {"type": "string", "width": 1 << 50},
        {"type": "string", "width": 0},
        {"type": 3},
        {"encoding": 3},
        {"type": "enum"},
        {"lengths": [1] * 9},
        {"shape": {}},
        {"shape": [True]},
        {"shape": [1] * 99},
    ],
)
def test_a_lying_attribute_marker_is_ignored_and_reported(lie: Any) -> None:
    var = Var("v", (0,), (Attr("text", CHAR, 4, b"abcd"), Attr("n", 4, 2, bytes(8))), FLOAT)
    tree = from_header(marked({"attrs": {"text": lie, "n": lie, "absent": lie}}, var=var))
    attrs = tree.root.children["v"].attrs
    assert attrs["text"].value.item() == "abcd" or "lengths" not in lie  # type: ignore[union-attr]
    assert attrs["n"].shape == (2,)
    assert tree.findings


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "path",
                        "shape",
                        "null",
                        "len",
                        "type",
                        "order",
                        "encoding",
                        "enum",
                        "attrs",
                        "own",
                        "fill",
                        "scale",
                        "scales",
                        "labels",
                        "record",
                        "groups",
                        "version",
                        "owner",
                        "name",
                        "lengths",
                        "width",
                        "text",
                        "v",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from([CHAR, FLOAT, 1, 4]),
)
@settings(max_examples=400, deadline=None)
def test_no_marker_breaks_the_reading(marker: Any, code: int) -> None:
    text = json.dumps(marker).encode()
    evil = Attr(MARKER, CHAR, len(text), text)
    extra = (Attr("text", CHAR, 4, b"abcd"), Attr("v", FLOAT, 2, bytes(8)), evil)
    header = Header(
        5, 2, (Dim("r", 0), Dim("v", 2)), extra, (Var("v", (1,), extra, code), Var("w", (0, 1), extra, code))
    )
    tree = from_header(header)
    for node in walk(tree.root):
        for attribute in node.attrs.values():
            assert attribute.shape is None or attribute.value is not None
    again = to_header(tree).header
    assert len(again.vars) == 2
    assert len(from_header(again).datasets) == 2


def test_groups_and_owners_that_lie() -> None:
    text = json.dumps(
        {
            "version": 9,
            "groups": ["/a/b", 3, "x", "/v/w"],
            "attrs": {"q": {"owner": "/nobody", "name": "z"}, "s": {"owner": 4}},
        }
    ).encode()
    header = Header(
        5,
        0,
        (),
        (Attr("q", CHAR, 1, b"1"), Attr("s", CHAR, 1, b"2"), Attr(MARKER, CHAR, len(text), text)),
        (Var("v", (), (), 4),),
    )
    tree = from_header(header)
    assert len(tree.findings) >= 5
    assert sorted(tree.root.attrs) == ["s", "z"]
    assert {node.path for node in walk(tree.root)} >= {"/a/b", "/v", "/v/w", "/v_2"}


def test_a_path_of_a_thousand_steps_and_no_more() -> None:
    path = "/a" * DEEPEST
    tree = from_header(marked({"path": path}))
    assert (tree.datasets[0].path, tree.findings) == (path, [])
    assert len(list(walk(tree.root))) == DEEPEST + 2
    tree = from_header(marked({"path": path + "/a"}))
    assert tree.datasets[0].path == "/v"
    assert len(tree.findings) == 1


def test_groups_are_made_as_deep_as_they_can_be_read() -> None:
    tree = Tree()
    group = tree.root
    with pytest.raises(DefinitionError, match="flatter"):
        for _ in range(DEEPEST):
            group = tree.add_group(group, "a")
    tree.add_dataset(group, "x", element=element_for("i4"), shape=())
    again = reread(tree)
    assert again.findings == []
    assert again.datasets[0].path == "/a" * (DEEPEST - 1) + "/x"
