"""The reopen mode: what is read comes from the file.

Before each read of data, attributes or members, and each look at what a dataset is, the file is closed and opened anew:
another session, with another descriptor, another tree from the bytes of the file, an empty queue. Then the objects
that the test holds are told which node of the new tree they stand for, by path. So a test passes only if the file says
the same as the objects did.

Knows: sessions, trees, handles. Does not know: tests.

Rules
-----
1. What is not in a file is not opened anew: files in memory, files of several ranks, files that are read (they were
   opened from the file), and files with a dataset that has no name yet, which would be gone.
2. Nothing goes over from the old session, neither values nor the storage options of h5py that it remembers.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from pnc_vol import AttributeManager, Dataset, Group, Reference
from pnc_vol.api import ids, opening
from pnc_vol.file import registry
from pnc_vol.file.opening import open_session
from pnc_vol.file.opening_record import Opening
from pnc_vol.mapping import links, tree

counts = {"reads": 0, "reopened": 0}
busy: list[int] = []
handles: weakref.WeakSet[ids.Handle] = weakref.WeakSet()
moved: dict[int, tuple[Any, Any]] = {}
"""By the address of a node that was: that node, kept alive, and the one that stands for it."""


def reopen(session: Any) -> None:
    """Complete the file, let go of it, and open it anew."""
    counts["reads"] += 1
    if busy or session.closed or session.forked or not session.writable or session.comm.size > 1:
        return
    if session.disk.standing is None or session.defs.tree.loose:
        return
    busy.append(1)
    try:
        holders = [handle for handle in handles if handle.session is session and not handle.released]
        old = session.defs.tree
        session.close()
        new = open_session(Opening(session.disk.path, "r+", session.options, session.comm))
        assert not new.defs.tree.findings, new.defs.tree.findings
        follow(old, new.defs.tree)
        for entry in {handle.ref._entry for handle in holders}:
            registry.enter(registry.Entry(entry.token, new))
        for handle in holders:
            handle.ref = registry.SessionRef(registry._open[handle.ref._entry.token], writable=handle.ref.writable)
            handle.session = new
            registry.watch(handle, handle.ref, handle.filename)
        counts["reopened"] += 1
    finally:
        busy.pop()


def follow(old: Any, new: Any) -> None:
    """Say for each node of a tree which node of the other one stands for it."""
    mine = {node.path: node for node in tree.walk(old.root)}
    theirs = {node.path: node for node in tree.walk(new.root)}
    assert mine.keys() == theirs.keys(), sorted(mine.keys() ^ theirs.keys())
    for path, node in mine.items():
        read = theirs[path]
        assert type(node) is type(read), path
        moved[id(node)] = node, read
        if isinstance(node, tree.GroupNode):
            assert node.links.keys() == read.links.keys(), path
            for name, entry in node.links.items():
                assert type(entry) is type(read.links[name]), f"{path}/{name}"
                if isinstance(entry, links.TypeNode):
                    moved[id(entry)] = entry, read.links[name]


def following(cls: type, name: str) -> None:
    """Let an attribute that holds a node give the node that stands for it now."""
    slot = vars(cls)[name]

    def get(self: Any) -> Any:
        node = slot.__get__(self)
        while id(node) in moved:
            node = moved[id(node)][1]
        return node

    setattr(cls, name, property(get, slot.__set__))


def first(method: Any) -> Any:
    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwds: Any) -> Any:
        reopen(self._id.handle.session)
        return method(self, *args, **kwds)

    return wrapped


def install() -> None:
    """Put a reopening before each read."""
    opened = opening._opened

    def remembered(*args: Any) -> ids.Handle:
        handle = opened(*args)
        handles.add(handle)
        return handle

    opening._opened = remembered  # type: ignore[assignment]
    following(ids.ObjectID, "node")
    following(Reference, "_node")
    for cls, names in {
        Dataset: ("_read",),
        AttributeManager: ("__getitem__", "__iter__", "__len__", "__contains__"),
        Group: ("__getitem__", "__iter__", "__len__", "__contains__"),
    }.items():
        for name in names:
            setattr(cls, name, first(getattr(cls, name)))
    for name in ("shape", "dtype", "maxshape", "fillvalue", "is_scale", "dims"):
        told = vars(Dataset)[name]
        setattr(Dataset, name, property(first(told.fget), told.fset))
