"""Which way the ranks of a file write or read together, and why.

Knows: numbers that all ranks agreed on, options. Does not know: ranks' messages, drivers, files.

Rules
-----
1. The choice follows from what all ranks agreed on, so it is the same on all of them.
2. Large pieces are moved by their own rank: the call costs little compared with the copy. Many small ones are moved by
   a few ranks for all. The MPI library's collective calls are used on request; they were not the fastest in any
   measurement.
"""

from __future__ import annotations

from typing import NamedTuple

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.settings.options import Options

__all__ = ["NO_READS", "Choice", "Weight", "asked_of_all", "transport_code", "weighed"]

_TRANSPORTS = ("auto", "independent", "collective", "aggregate")
_BY_HINT = {"enable": "collective", "disable": "independent"}

_MANY = 512
"""Runs of a rank up to which calls of their own cost less than an exchange with the other ranks; on one node."""

_CALLS = 4
"""Runs that cost less, on average, than this many calls of the driver are moved together; on one node."""

_CALLS_AFAR = 16
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
    """What the options ask for, as a number: the largest that any rank has counts for all."""
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
    """The way that options and hints ask for; None: the numbers decide.

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
    """The way that costs less.

    runs, nbytes : int, the most that any rank has.
    single : bool, all ranks are on one node.
    call_cost : int, bytes, see `Capabilities`.
    """
    many, calls = (_MANY, _CALLS) if single else (1, _CALLS_AFAR)
    together = runs > many and nbytes < runs * calls * call_cost
    return Choice("aggregate" if together else "independent", "", runs, nbytes, many, calls * call_cost)
