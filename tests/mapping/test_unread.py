"""Datasets of a file that was opened are made when somebody asks for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.mapping.flatten import to_header
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.mapping.unread import fillvalue_of, itemsizes_of, read_all

MANY = tuple(f"v{i}" for i in range(20))


def header() -> Header:
    """Twenty variables of one kind, of which some lie on a coordinate variable, and a few that are looked at."""
    units = (Attr("units", 2, 1, b"K"),)
    fill = (Attr("_FillValue", 5, 1, b"\0\0\0\1"),)
    return Header(
        5,
        2,
        (Dim("t", 0), Dim("x", 3)),
        (),
        (
            Var("x", (1,), (), 6),
            *(Var(name, (0, 1), units if i % 2 else (), 5) for i, name in enumerate(MANY)),
            Var("filled", (0, 1), fill, 5),
            Var("odd name", (1,), (), 4),
        ),
    )


def unmade(tree: Tree) -> int:
    return sum(type(entry) is not DatasetNode for entry in map(dict(dict.items(tree.datasets)).get, tree.datasets))


def test_what_nobody_asked_for_is_not_made() -> None:
    tree = from_header(header())
    assert list(tree.root.children) == ["x", *MANY, "filled", "odd_name"] or "odd name" in tree.root.children
    assert list(tree.datasets) == list(range(len(tree.root.children)))
    # the first one of its kind is looked at
    assert unmade(tree) == len(MANY) - 1
    assert itemsizes_of(tree.datasets, (0, 1, 2, 5)) == [8, 4, 4, 4]
    assert fillvalue_of(tree.datasets, 3) is None
    assert fillvalue_of(tree.datasets, 21) == b"\0\0\0\1"
    assert "v3" in tree.root.children
    assert tree.root.children.get("none") is None
    with pytest.raises(KeyError):
        tree.root.children["none"]
    assert unmade(tree) == len(MANY) - 1
    node = tree.root.children["v3"]
    assert isinstance(node, DatasetNode)
    assert tree.datasets[node.uid] is node is tree.datasets.get(node.uid)
    assert unmade(tree) == len(MANY) - 2
    assert (node.path, node.shape, node.maxshape, list(node.attrs)) == ("/v3", (2, 3), (None, 3), ["units"])
    assert [axis.scales for axis in node.axes] == [[], [tree.root.children["x"]]]


@pytest.mark.parametrize("all_of_them", [dict, lambda table: {**table}, lambda table: {} | table, lambda table: table])
def test_whoever_takes_all_gets_nodes(all_of_them: object) -> None:
    tree = from_header(header())
    children = all_of_them(tree.root.children)  # type: ignore[operator]
    assert all(type(child) is DatasetNode for child in children.values())
    assert list(children.values()) == list(tree.datasets.values())
    assert unmade(tree) == 0


def test_it_is_the_same_tree_whatever_was_asked_for() -> None:
    eager, lazy = from_header(header()), from_header(header())
    read_all(eager)
    assert type(eager.datasets) is dict
    for name in MANY:
        assert lazy.root.children[name].path == "/" + name
    # with the last one the tables are as others
    assert type(lazy.datasets).get is dict.get
    for name in ("v7", "v2", "filled"):
        assert lazy.root.children[name].path == "/" + name
    assert to_header(lazy).header == to_header(eager).header


def test_threads_get_the_same_node() -> None:
    tree = from_header(header())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: tree.root.children[MANY[i % 20]], range(400)))
    assert len({id(node) for node in found}) == len(MANY)


def test_what_is_deleted_is_no_scale_of_what_is_made_later() -> None:
    tree = from_header(header())
    tree.remove(tree.root.children["x"])
    assert all(not axis.scales for node in tree.datasets.values() for axis in node.axes)
