"""Ranks exchange at a flush what they have posted, agree on the way in which they write or read together, and raise one
error, on all of them, that names which requests failed or which definitions differ.

Knows: definitions, counts, what an execution left, a communicator. Does not know: files, drivers, data; when
definitions are compared.

Rules
-----
1. One reduction begins a flush: digest of the definitions, what was drained, how much is posted. What fails here
   outside of a collective call is shared by `Comm.errors_shared`, in which every flush stands.
2. Different definitions are an error on every rank, and the text names the first object that differs.
3. Strings of varying length may have grown on some ranks only; the widest wins everywhere.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.drivers.holding import Unwritten
from pnc_vol.errors import DefinitionMismatchError, FlushError, RequestFailure
from pnc_vol.flush.execute import Executed
from pnc_vol.format.encode import numrecs_bytes, unplaced
from pnc_vol.format.model import TYPES, Attr, Header, attr_values
from pnc_vol.layout.base import ElementMap, Layout, LostRecords, Place
from pnc_vol.mapping.flatten import Flat
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.queue.batches import Rows
from pnc_vol.ranks.comm import Comm, Ranks, first_trouble, joined_lists, joined_texts, ranks_by_text, ranks_text
from pnc_vol.settings.options import Options

__all__ = [
    "HELD",
    "NO_READS",
    "Agreement",
    "Choice",
    "Weight",
    "agree",
    "agree_lost_records",
    "agree_widths",
    "asked_of_all",
    "derive_digest",
    "described",
    "digest",
    "failures_of",
    "failures_of_held",
    "flush_error",
    "raise_difference",
    "share_failures",
    "transport_code",
    "weighed",
]


# -------------------------------------------------------------------------------------------------------------- choice
# Which way the ranks of a file write or read together, and why.
#
# Knows: numbers that all ranks agreed on, options. Does not know: ranks' messages, drivers, files.
#
# Rules
# -----
# 1. The choice follows from what all ranks agreed on, so it is the same on all of them.
# 2. Large pieces are moved by their own rank: the call costs little compared with the copy. Many small ones are moved
#    by a few ranks for all. The MPI library's collective calls are used on request; they were not the fastest in any
#    measurement.


_TRANSPORTS = ("auto", "independent", "collective", "aggregate")
_BY_HINT = {"enable": "collective", "disable": "independent"}

_MANY = 512
"""Runs of a rank up to which calls of their own cost less than an exchange with the other ranks; on one node."""

_CALLS = 4
"""Runs that cost less, on average, than this many calls of the driver are moved together; on one node."""

_CALLS_BETWEEN_NODES = 16
"""The same where a call may go over a network."""


class Weight(NamedTuple):
    """How much there is to read: of a rank, or the most of each number that any rank has.

    posts : int, posted reads.
    runs, nbytes : int
    transport : int, what the options ask for; see `transport_code`.
    """

    posts: int
    runs: int
    nbytes: int
    transport: int


NO_READS = Weight(0, 0, 0, 0)


def transport_code(options: Options, *, reads: bool = False) -> int:
    """Return what the options ask for, as a number: the largest that any rank has counts for all."""
    wanted = options.transport
    if wanted == "auto":
        hint = "romio_cb_read" if reads else "romio_cb_write"
        wanted = _BY_HINT.get(str(options.hints.get(hint, "")).lower(), wanted)
    if wanted == "auto" and options.aggrs_per_node:
        wanted = "aggregate"
    return _TRANSPORTS.index(wanted)


class Choice(NamedTuple):
    """A way, and what it follows from.

    way : {"independent", "collective", "aggregate"}
    because : str, what decided if the numbers did not; "" if they did.
    runs, nbytes : int, the most that any rank has.
    many : int, runs up to which each rank works by itself.
    small : int, bytes of a run, on average, from which on each rank works by itself.
    """

    way: str
    because: str = ""
    runs: int = 0
    nbytes: int = 0
    many: int = 0
    small: int = 0

    @property
    def why(self) -> str:
        """The reason in words.

        Examples
        --------
        >>> weighed(3000, 24000, single=True).why
        'a rank has up to 3000 runs, 8 bytes on average; ranks work together if there are more than 512 runs of less \
than 16384 bytes'
        """
        if self.because:
            return self.because
        return (
            f"a rank has up to {self.runs} runs, {self.nbytes // max(1, self.runs)} bytes on average; ranks work "
            f"together if there are more than {self.many} runs of less than {self.small} bytes"
        )


def asked_of_all(code: int, *, collective: bool, reads: bool = False) -> Choice | None:
    """Return the way that options and hints ask for; None: the numbers decide.

    code : int, the largest `transport_code` of any rank.
    collective : bool, the driver has collective calls.
    """
    wanted = _TRANSPORTS[code]
    if wanted == "auto":
        return None
    if wanted == "collective" and not collective:
        return Choice("independent", "the driver has no collective calls, which were asked for")
    hint = "romio_cb_read" if reads else "romio_cb_write"
    return Choice(wanted, f"it was asked for (transport, or the hints {hint} and nc_num_aggrs_per_node)")


def weighed(runs: int, nbytes: int, *, single: bool, call_cost: int = CALL_COST) -> Choice:
    """Return the way that costs less.

    runs, nbytes : int, the most that any rank has.
    single : bool, all ranks are on one node.
    call_cost : int, bytes, see `Capabilities`.
    """
    many, calls = (_MANY, _CALLS) if single else (1, _CALLS_BETWEEN_NODES)
    together = runs > many and nbytes < runs * calls * call_cost
    return Choice("aggregate" if together else "independent", "", runs, nbytes, many, calls * call_cost)


_DIGEST = struct.Struct("<2q")


class Agreement(NamedTuple):
    """What is true of all ranks together.

    drained : bool, some rank wrote data before the flush.
    widened : bool, a string of varying length grew on some rank.
    changed : bool, some rank's definitions changed.
    unknown_bytes : bool, some rank knows of bytes in the file that do not read as zero.
    lost : bool, a dataset lost records on some rank.
    records : int, records that may hold data.
    batches : int, the largest number of batches of any rank.
    runs, nbytes : int, the largest number of posted runs and bytes of any rank; these and what follows are 0 for a
        single rank, which has no choice of transport.
    rounds : int, the largest number of writes of any rank, if it makes them together with others.
    transport : int, how ranks are to write, see `transport`.
    aggregators : int, ranks of a node that write for the others; 0 for as many as are useful.
    apart : bool, ranks hold back what they write where others cannot see it.
    """

    drained: bool
    widened: bool
    changed: bool
    unknown_bytes: bool
    lost: bool
    records: int
    batches: int
    runs: int = 0
    nbytes: int = 0
    rounds: int = 0
    transport: int = 0
    aggregators: int = 0
    apart: bool = False


def digest(header: Header) -> bytes:
    """Return 16 bytes that tell one set of definitions from another; begins play no part in it.

    Raises
    ------
    Exception
        The definitions are beyond the limits that `check_limits` knows.
    """
    import hashlib  # with OpenSSL's library it takes long to load, and a single rank compares nothing

    known = header.facts.digest
    # The number of records changes with each record: all else is digested once, and kept with the header.
    if known is None:
        known = header.facts.digest = hashlib.blake2b(unplaced(header), digest_size=16).digest()
    return hashlib.blake2b(numrecs_bytes(header) + known, digest_size=16).digest()


def derive_digest(made: Header, source: Header, facts: str) -> None:
    """Let the digest of a header that follows from another one, and from facts, follow from these."""
    import hashlib  # as in `digest`

    known = digest(source.with_numrecs(0))
    made.facts.digest = hashlib.blake2b(known + facts.encode(), digest_size=16).digest()


def agree(
    comm: Comm,
    operation: str,
    own: Agreement,
    definitions: bytes,
    describe: Callable[[], list[Entry]],
    reports: bool = False,
    reads: Weight = NO_READS,
) -> tuple[Agreement, bool, Weight]:
    """Open a flush of several ranks (collective).

    Parameters
    ----------
    operation : str, what this rank is about to do: a flush, or one of its kinds.
    own : Agreement, of this rank alone.
    definitions : bytes
        `digest` of this rank's definitions.
    describe : callable
        The definitions themselves, to name what differs.
    reports : bool, this rank may hold something back, see `Epochs.reports`; the second result says whether any may.
    reads : Weight, of the posted reads that ranks complete together; the third result is the most of any rank.

    Raises
    ------
    DefinitionMismatchError
        Ranks defined different things.
    """
    one, other = _DIGEST.unpack(definitions)
    # The largest of a number is the complement of the largest complement only if all ranks gave the same.
    most, _ = comm.agree(operation, (one, ~one, other, ~other, reports, *reads, *own))
    if most[0] != ~most[1] or most[2] != ~most[3]:
        raise_difference(comm, definitions, describe)
    # In the order of the call above: four of digests, `reports`, four of reads, and those of `Agreement`.
    agreed = Agreement(*map(bool, most[9:14]), *most[14:])
    return agreed, bool(most[4]), Weight(*most[5:9])


def agree_widths(comm: Comm, tree: Tree, known: dict[int, int]) -> None:
    """Give every string that grew on some rank the largest of its widths (collective).

    Until the new widths are in the layout, strings that grew count with the old ones when definitions are compared: in
    `known` these are added of strings that grew elsewhere.
    """
    # Texts, as what ranks send each other is JSON.
    own = {str(uid): tree.datasets[uid].element.itemsize for uid in sorted(known) if uid in tree.datasets}
    for uid, width in comm.merge("flush widths", own, _widest).items():
        node = tree.datasets.get(int(uid))
        if node is not None and node.element.itemsize < width:
            known.setdefault(int(uid), node.element.itemsize)
            node.element = node.element.widened(width)
            tree.touch()


def _widest(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return one | {uid: max(width, one.get(uid, 0)) for uid, width in other.items()}


def agree_lost_records(comm: Comm, uids: Sequence[int], lost: LostRecords) -> LostRecords:
    """Return what all ranks know of datasets that lost records: the least that each was left (collective).

    Parameters
    ----------
    uids : sequence of int, of all variables, in the order of the header.
    lost : see `Layout.lost_records`
    """
    own = {str(i): lost[uid] for i, uid in enumerate(uids) if uid in lost}
    least = comm.merge("flush lost records", own, _least_left)
    return {uids[int(i)]: (first, live) for i, (first, live) in least.items()}


def _least_left(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    found = dict(one)
    for i, (first, live) in other.items():
        least, most = found.get(i, (first, live))
        found[i] = min(first, least), max(live, most)
    return {i: found[i] for i in sorted(found, key=int)}


# ------------------------------------------------------------------------------------------------------------ failures
# Which requests failed, on all ranks.

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
        # The first ones: on a full disk every request of every rank fails.
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
    # One rank of each group sends its definitions: those of all ranks might fit into no memory.
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
    # All have the same objects, so they were created in another order.
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
