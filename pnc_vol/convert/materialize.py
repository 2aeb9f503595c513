"""Virtual datasets, and those in raw files, are made ordinary ones: what they show of other files comes into theirs.

Knows: groups, datasets and links, through `api`. Does not know: how sources are read, headers.

Rules
-----
1. Elements whose source is missing get the fill value, with a warning that names the sources.
2. All values are read before anything is replaced; if that fails, the file stays as it was.
3. A dataset keeps its name, its attributes, its scales and its hard links.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.api.file import File
from pnc_vol.api.virtual_data import missing
from pnc_vol.extents.blocks import blocks
from pnc_vol.mapping.links import Hard, entries
from pnc_vol.warn import warn_outside

__all__ = ["elsewhere", "materialize"]

_ROOM = "materialized by pnc-vol"
_BLOCK = 16 << 20


def elsewhere(file: File) -> list[str]:
    """Return the paths of the datasets whose data are not in the file."""
    tree = file.id.node.tree
    return [node.path for node in tree.datasets.values() if node.away is not None and node.parent is not None]


def materialize(source: File, target: File) -> int:
    """Give a file the values that datasets of it show.

    Parameters
    ----------
    source : File, open for reading, or `target` itself.
        What is shown is looked for from there.
    target : File, open for writing, with the same datasets.

    Returns
    -------
    int
        Datasets that were replaced.

    Raises
    ------
    SourceError
        A source cannot be read.
    """
    paths = elsewhere(source)
    if not paths:
        return 0
    room = target.create_group(_ROOM)
    try:
        made = {path: _copied(source[path], room, str(i)) for i, path in enumerate(paths)}
    except BaseException:
        del target[_ROOM]
        raise
    for path, dataset in made.items():
        _replace(target, path, dataset)
    del target[_ROOM]
    return len(made)


def _copied(shown: Any, room: Any, name: str) -> Any:
    if gone := missing(shown.id):
        warn_outside(f"{shown.name}: the fill value stands for the values of sources that are missing: {gone}")
    made = room.create_dataset(name, shown.shape, shown.dtype, maxshape=_limits(shown), fillvalue=_fill(shown))
    for block in blocks(shown.shape, max(1, shown.dtype.itemsize), _BLOCK):
        made[block] = shown[block]
    return made


def _limits(shown: Any) -> Any:
    return None if shown.maxshape == shown.shape else shown.maxshape


def _fill(shown: Any) -> Any:
    return None if shown.id.node.away.fill is None else shown.fillvalue


def _replace(target: File, path: str, made: Any) -> None:
    """Let a dataset stand where the one of that path does."""
    old, new = target[path].id.node, made.id.node
    tree = old.tree
    for name, value in old.attrs.items():
        new.attrs[name] = value
    new.scale, new.made_axes = old.scale, old.axes
    if "track_order" in old.ignored:
        new.ignored = {**new.ignored, "track_order": True}
    # What is attached to it, and what else leads to it.
    for node in tree.datasets.values():
        for axis in node.made_axes or ():
            axis.scales = [new if scale is old else scale for scale in axis.scales]
    for group, name, entry in list(entries(tree)):
        if isinstance(entry, Hard) and entry.node is old:
            group.links[name] = Hard(new)
    above, name = old.parent, old.name
    tree.remove(old)
    tree.move(new, above, name)
