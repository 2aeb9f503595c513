"""Ranks exchange at a flush what they have posted, and agree on the way in which they write or read together.

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

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.format.encode import numrecs_bytes, unplaced
from pnc_vol.format.model import Header
from pnc_vol.layout.base import LostRecords
from pnc_vol.mapping.tree import Tree
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from pnc_vol.flush import failures

__all__ = [
    "NO_READS",
    "Agreement",
    "Choice",
    "Weight",
    "agree",
    "agree_lost_records",
    "agree_widths",
    "asked_of_all",
    "derive_digest",
    "digest",
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
    describe: Callable[[], list[failures.Entry]],
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
    most, _ = comm.agree(operation, (one, ~one, other, ~other, reports, *reads, *own))
    if most[0] != ~most[1] or most[2] != ~most[3]:
        from pnc_vol.flush import failures

        failures.raise_difference(comm, definitions, describe)
    agreed = Agreement(*map(bool, most[9:14]), *most[14:])
    return agreed, bool(most[4]), Weight(*most[5:9])


def agree_widths(comm: Comm, tree: Tree, known: dict[int, int]) -> None:
    """Give every string that grew on some rank the largest of its widths (collective).

    Until the new widths are in the layout, strings that grew count with the old ones when definitions are compared: in
    `known` these are added of strings that grew elsewhere.
    """
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
