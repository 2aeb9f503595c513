"""The reopen mode: what is read comes from the file.

Before each read of data or attributes everything is flushed, and the session forgets what it knows: the definitions
are read again from
the header that is in the file, and each node takes over what was found there. So a test passes only if the file says
the same as the objects did.

Knows: sessions, trees, handles. Does not know: tests.
"""

from __future__ import annotations

import functools
from typing import Any

from pnc_vol.api.attrs import AttributeManager
from pnc_vol.api.dataset import Dataset
from pnc_vol.format.decode import decode
from pnc_vol.mapping.index import from_header
from pnc_vol.mapping.tree import DatasetNode, walk

busy: list[int] = []


def reopen(session: Any) -> None:
    """Flush, and take every node's definition from the file's header."""
    if busy or session.closed or not session.writable or session.tree.loose or session.comm.size > 1:
        return
    busy.append(1)
    try:
        session.flush()
        header = decode(session.disk_bytes, file_size=session.driver.size()).header
        found = from_header(header, separator=session.tree.separator)
        assert not found.findings, found.findings
        adopt(session.tree, found)
    finally:
        busy.pop()


def adopt(tree: Any, found: Any) -> None:
    """Compare two trees, and let the nodes of `tree` have what `found` says."""
    mine = {node.path: node for node in walk(tree.root)}
    theirs = {node.path: node for node in walk(found.root)}
    assert mine.keys() == theirs.keys(), sorted(mine.keys() ^ theirs.keys())
    for path, node in mine.items():
        read = theirs[path]
        assert type(node) is type(read), path
        node.attrs = read.attrs
        if isinstance(node, DatasetNode):
            assert node.shape == read.shape, f"{path}: {node.shape} and {read.shape} in the file"
            node.element, node.maxshape, node.fillvalue = read.element, read.maxshape, read.fillvalue
            node.scale = read.scale
            node.rows = None
        else:
            assert node.links.keys() == read.links.keys(), path
            node.order = read.order
            for name, entry in node.links.items():
                if hasattr(entry, "attrs"):
                    entry.attrs, entry.dtype = read.links[name].attrs, read.links[name].dtype


def first(method: Any) -> Any:
    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwds: Any) -> Any:
        reopen(self._id.handle.session)
        return method(self, *args, **kwds)

    return wrapped


def install() -> None:
    """Put a reopening before each read."""
    Dataset._read = first(Dataset._read)  # type: ignore[method-assign]
    for name in ("__getitem__", "__iter__", "__len__", "__contains__"):
        setattr(AttributeManager, name, first(getattr(AttributeManager, name)))
