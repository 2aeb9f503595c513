"""What ranks exchange at a flush.

Knows: definitions, counts, a communicator. Does not know: files, drivers, data.

Rules
-----
1. One reduction begins a flush: digest of the definitions, what was drained, how much is posted. What fails here
   outside of a collective call is shared by `Comm.errors_shared`, in which every flush stands.
2. Different definitions are an error on every rank, and the text names the first object that differs.
3. Strings of varying length may have grown on some ranks only; the widest wins everywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pnc_vol.flush.choice import NO_READS, Weight
from pnc_vol.format.encode import numrecs_bytes, unplaced
from pnc_vol.format.model import Header
from pnc_vol.late import late
from pnc_vol.layout.base import LostRecords
from pnc_vol.mapping.tree import Tree
from pnc_vol.ranks.comm import Comm

if TYPE_CHECKING:
    from pnc_vol.flush import differences
else:
    # for ranks that defined different things
    differences = late("pnc_vol.flush.differences")

__all__ = ["Agreement", "agree", "agree_lost_records", "agree_widths", "derive_digest", "digest"]

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
    """16 bytes that tell one set of definitions from another; begins play no part in it.

    Raises
    ------
    Exception
        The definitions are beyond the limits that `check_limits` knows.
    """
    import hashlib  # with OpenSSL's library it takes long to load, and a single rank compares nothing

    known = header.facts.digest
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
    mine: Agreement,
    definitions: bytes,
    describe: Callable[[], list[differences.Entry]],
    reports: bool = False,
    reads: Weight = NO_READS,
) -> tuple[Agreement, bool, Weight]:
    """Open a flush of several ranks (collective).

    Parameters
    ----------
    operation : str, what this rank is about to do: a flush, or one of its kinds.
    mine : Agreement, of this rank alone.
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
    most, _ = comm.agree(operation, (one, ~one, other, ~other, reports, *reads, *mine))
    if most[0] != ~most[1] or most[2] != ~most[3]:
        differences.raise_difference(comm, definitions, describe)
    agreed = Agreement(*map(bool, most[9:14]), *most[14:])
    return agreed, bool(most[4]), Weight(*most[5:9])


def agree_widths(comm: Comm, tree: Tree, known: dict[int, int]) -> None:
    """Give every string that grew on some rank the largest of its widths (collective).

    Until the new widths are in the layout, strings that grew count with the old ones when definitions are compared: in
    `known` these are added of strings that grew elsewhere.
    """
    mine = {str(uid): tree.datasets[uid].element.itemsize for uid in sorted(known) if uid in tree.datasets}
    for uid, width in comm.merge("flush widths", mine, _widest).items():
        node = tree.datasets.get(int(uid))
        if node is not None and node.element.itemsize < width:
            known.setdefault(int(uid), node.element.itemsize)
            node.element = node.element.widened(width)
            tree.touch()


def _widest(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return one | {uid: max(width, one.get(uid, 0)) for uid, width in other.items()}


def agree_lost_records(comm: Comm, uids: Sequence[int], lost: LostRecords) -> LostRecords:
    """What all ranks know of datasets that lost records: the least that each was left (collective).

    Parameters
    ----------
    uids : sequence of int, of all variables, in the order of the header.
    lost : see `Layout.lost_records`
    """
    mine = {str(i): lost[uid] for i, uid in enumerate(uids) if uid in lost}
    least = comm.merge("flush lost records", mine, _least_left)
    return {uids[int(i)]: (first, live) for i, (first, live) in least.items()}


def _least_left(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    found = dict(one)
    for i, (first, live) in other.items():
        least, most = found.get(i, (first, live))
        found[i] = min(first, least), max(live, most)
    return {i: found[i] for i in sorted(found, key=int)}
