"""`raise_difference` says how the definitions of ranks differ, with the user's names.

Knows: definitions, a communicator. Does not know: files, when definitions are compared.

Datasets come first, by their paths, and not what differs first in the header: there a dataset of one rank shows as a
dimension that it brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from pnc_vol.errors import DefinitionMismatchError
from pnc_vol.format.model import TYPES, Attr, attr_values
from pnc_vol.mapping.flatten import Flat
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.ranks.comm import Comm, joined_lists, ranks_by_text
from pnc_vol.ranks.errors import Ranks, ranks_text

__all__ = ["described", "raise_difference"]

_SHOWN = 3
_GROUPS = 8
"""Groups of ranks with the same definitions whose definitions are looked at."""

Entry = tuple[str, str, str]
"""Kind, name and what it is."""


def raise_difference(comm: Comm, digest: bytes, describe: Callable[[], list[Entry]]) -> NoReturn:
    """Raise, on all ranks, the error that names what differs (collective).

    The ranks fall into groups of the same digest; the lowest of each of the first groups tells what it defined.

    Raises
    ------
    DefinitionMismatchError
    """
    groups = list(ranks_by_text(comm, "flush digests", digest.hex()).values())[:_GROUPS]
    own = [[comm.rank, describe()]] if any(ranks.lowest == comm.rank for ranks in groups) else None
    by_rank = dict(comm.merge("flush definitions", own, joined_lists))
    what, odd = _difference(
        [(ranks, [(kind, name, text) for kind, name, text in by_rank[ranks.lowest]]) for ranks in groups]
    )
    raise comm.on_all(
        DefinitionMismatchError(
            f"the definitions of the ranks differ: {what}. "
            "Every rank must create the same objects and attributes, in the same order",
            odd.all(),
        )
    )


def _difference(groups: list[tuple[Ranks, list[Entry]]]) -> tuple[str, Ranks]:
    """Return what differs, the first objects of one kind, and the ranks that are fewer.

    groups : ranks that define the same, and what that is.
    """
    names = list(dict.fromkeys((kind, name) for _, descriptions in groups for kind, name, _ in descriptions))
    texts = [(ranks, {(kind, name): text for kind, name, text in descriptions}) for ranks, descriptions in groups]
    found: list[str] = []
    odd = Ranks()
    first = ""
    for key in names:
        by_text = Ranks.by_value((of_group.get(key), ranks) for ranks, of_group in texts)
        if len(by_text) == 1 or (first and key[0] != first) or len(found) == _SHOWN:
            continue
        first, odd = key[0], odd if odd.number else _fewest(by_text.values())
        parts = [f"{text or 'there'} on {ranks_text(of)}" for text, of in by_text.items() if text is not None]
        parts += [f"not on {ranks_text(of)}" for text, of in by_text.items() if text is None]
        found.append(f"{key[0]} {key[1]}: " + ", ".join(parts))
    if found:
        return "; ".join(found), odd
    for at in zip(*(descriptions for _, descriptions in groups), strict=False):
        whose = zip(groups, at, strict=True)
        order = Ranks.by_value((f"{kind} {name}", ranks) for (ranks, _), (kind, name, _) in whose)
        if len(order) > 1:
            what = ", ".join(f"{name} on {ranks_text(of)}" for name, of in order.items())
            return f"the order, where there is {what}", _fewest(order.values())
    return "the same names with different details", Ranks.union(ranks for ranks, _ in groups)


def _fewest(sets: Iterable[Ranks]) -> Ranks:
    """Return the smallest of sets of ranks."""
    return min(sets, key=lambda ranks: ranks.number)


def described(tree: Tree, flat: Flat) -> list[Entry]:
    """Return all definitions, datasets first: by the paths that they have in HDF5."""
    header = flat.header
    found: list[Entry] = []
    attributes: list[Entry] = []
    for var, uid in zip(header.vars, flat.uids, strict=True):
        node = tree.datasets[uid]
        name = repr(node.path.strip("/"))
        dims = ", ".join(header.dims[d].name for d in var.dims)
        found.append(("dataset", name, f"{_kind(node)} of shape {node.shape} along ({dims})"))
        attributes += [("attribute", f"{attr.name!r} of {name}", _value(attr)) for attr in var.attrs]
    attributes += [("attribute", f"{attr.name!r} of the file", _value(attr)) for attr in header.attrs]
    found += attributes
    found += [("dimension", repr(dim.name), f"of length {dim.size or 'unlimited'}") for dim in header.dims]
    found.append(("length", "of the record dimension", f"{header.numrecs} records"))
    return found


def _kind(node: DatasetNode) -> str:
    element = node.element
    return element.dtype.name if element.kind == "number" else element.kind.replace("_", " ")


def _value(attr: Attr) -> str:
    values = attr_values(attr)
    text = repr(values.decode(errors="backslashreplace")) if isinstance(values, bytes) else str(values.tolist())
    if not isinstance(values, bytes):
        text = f"{text[1:-1] if attr.nelems == 1 else text} ({TYPES[attr.type].name})"
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters, {hash_of(text)})"


def hash_of(text: str) -> str:
    """Return a few digits that tell one long text from another."""
    from zlib import crc32

    return f"{crc32(text.encode(errors='replace')):08x}"
