"""Ranks raise one error, on all of them, that names which requests failed or which definitions differ.

Knows: what an execution left, definitions, a communicator. Does not know: files, drivers, data; when definitions are
compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pnc_vol.drivers.holding import Unwritten
from pnc_vol.errors import DefinitionMismatchError, FlushError, RequestFailure
from pnc_vol.flush.execute import Executed
from pnc_vol.format.model import TYPES, Attr, attr_values
from pnc_vol.layout.base import ElementMap, Layout, Place
from pnc_vol.mapping.flatten import Flat
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.queue.batches import Rows
from pnc_vol.ranks.comm import Comm, first_trouble, joined_lists, ranks_by_text
from pnc_vol.ranks.errors import Ranks, joined_texts, ranks_text

__all__ = [
    "HELD", "described", "failures_of", "failures_of_held", "flush_error", "raise_difference", "share_failures",
]  # fmt: skip

HELD = -1
"""`RequestFailure.request` of bytes that a driver holds."""

_MOST_FAILURES = 1000


def failures_of(done: Executed, tree: Tree, layout: Layout, rank: int) -> tuple[list[RequestFailure], int | None]:
    """Return what failed on this rank, and the first record that it should have written; None if that is no record."""
    rows_left: dict[tuple[int, int], Rows] = {}
    for batch in done.left:
        for request, uid in done.failed:
            rows = batch.rows(uid)
            rows = rows[rows[:, 0] == request]
            if len(rows):
                rows_left[request, uid] = rows
    failures, records = [], []
    for (request, uid), error in sorted(done.failed.items(), key=lambda item: item[0]):
        lost, where = rows_left.get((request, uid)), ""
        if lost is not None:
            where = f" ({int(lost[:, 2].sum())} elements from element {int(lost[0, 1])})"
            record = layout.record_of(uid, int(lost[:, 1].min()))
            records += [] if record is None else [record]
        text = error.strerror or str(error)
        failures.append(RequestFailure(request, rank, tree.datasets[uid].path, where, error.errno or 0, text))
    return failures, min(records, default=None)


def failures_of_held(
    unwritten: Sequence[Unwritten], tree: Tree, maps: Mapping[int, ElementMap], rank: int
) -> list[RequestFailure]:
    """Return the same of bytes that a driver of this rank holds, and could not write; they are of no single request."""
    found = []
    for offset, nbytes, error in unwritten:
        path = next((node.path for uid, node in tree.datasets.items() if _has(maps.get(uid), node, offset)), "")
        where = f" (bytes {offset} to {offset + nbytes} of the file)"
        found.append(RequestFailure(HELD, rank, path, where, error.errno or 0, error.strerror or str(error)))
    return found


def _has(at: ElementMap | None, node: DatasetNode, offset: int) -> bool:
    """Return whether a byte of the file belongs to a variable."""
    if not isinstance(at, Place) or offset < at.begin:
        return False
    if at.inner:
        return (offset - at.begin) % at.record_size < at.inner * at.itemsize
    return offset - at.begin < math.prod(node.shape or ()) * at.itemsize


def share_failures(
    comm: Comm, failures: Sequence[RequestFailure], lowest_record: int | None, trouble: str = ""
) -> tuple[list[RequestFailure], int | None, str]:
    """Return failed requests of all ranks, the first record that one of them should have written, and trouble
    (collective).

    One reduction if nothing failed. Of very many failures the first are kept.

    trouble : str, `Holder.trouble`; the third result is that of the lowest rank that has any, with the ranks, or "".
    """
    own = None
    if failures or lowest_record is not None or trouble:
        ranks = {trouble: [[[comm.rank, comm.rank]], 1]} if trouble else {}
        own = [lowest_record, [tuple(f) for f in failures[:_MOST_FAILURES]], ranks]
    found = comm.merge("flush data", own, _joined)
    if found is None:
        return [], None, ""
    record, failed, troubles = found
    by_text = {text: Ranks(*ranks) for text, ranks in troubles.items()}
    return [RequestFailure(*failure) for failure in failed], record, first_trouble(by_text, comm.size)


def _joined(lower: list[Any], higher: list[Any]) -> list[Any]:
    """Return what failed on some ranks, and on higher ones."""
    (record, failed, troubles), (other, more, others) = lower, higher
    least = min((one for one in (record, other) if one is not None), default=None)
    return [least, (failed + more)[:_MOST_FAILURES], joined_texts(troubles, others)]


def flush_error(failures: list[RequestFailure], path: str, *, closing: bool, held: bool = False) -> FlushError:
    """Return the error of a flush; `held`: the header was not written, since what failed should replace what it
    knows."""
    first = failures[0]
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    now = (
        "The file is closed without the data of these requests"
        if closing
        else "They stay pending: remove the cause and flush again, or cancel them"
    )
    if held:
        now += ". Datasets were to be replaced or deleted, so the file still has the definitions of the flush before"
    return FlushError(
        f"{path}: {len(failures)} request(s) failed: {first.variable}{first.selection} on rank {first.rank}: "
        f"{first.message}{more} (see .errors). {now}",
        failures,
    )


# --------------------------------------------------------------------------------------------------------- definitions
# How the definitions of ranks differ, with the user's names.
#
# Datasets come first, by their paths, and not what differs first in the header: there a dataset of one rank shows as a
# dimension that it brought.

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
