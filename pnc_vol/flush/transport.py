"""How the ranks of one file write at a flush: each by itself, by the MPI library's collective calls, or together.

Knows: ranks, options, a driver, what was agreed on. Does not know: requests, variables.

Rules
-----
1. The choice follows from what all ranks agreed on, so it is the same on all of them.
2. Whatever is chosen, the file becomes the same.
3. Large pieces are written by their own rank: the call costs little compared with the copy. Many small ones are
   written together.
   The MPI library's collective calls are used on request; they were not the fastest in any measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.comm import Comm
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.capabilities import CALL_COST
from pnc_vol.extents.model import Extents
from pnc_vol.flush.agree import Agreement
from pnc_vol.flush.data_sieving import write_sieved
from pnc_vol.flush.execute import Executed, Write, equal_rounds, execute
from pnc_vol.late import late
from pnc_vol.layout.places import ElementMap
from pnc_vol.options import Options
from pnc_vol.queue.batches import Batch
from pnc_vol.rank_places import Nodes

if TYPE_CHECKING:
    from pnc_vol.flush import two_phase
else:
    # of one rank there is nothing to bring together
    two_phase = late("pnc_vol.flush.two_phase")

__all__ = ["Transport", "transport_code"]

Bytes = npt.NDArray[np.uint8]

_TRANSPORTS = ("auto", "independent", "collective", "aggregate")
_BY_HINT = {"enable": "collective", "disable": "independent"}

_MANY = 512
"""Runs of a rank up to which calls of their own cost less than an exchange with the other ranks; on one node."""

_CALLS = 4
"""Runs that cost less, on average, than this many calls of the driver are written together; on one node."""

_CALLS_AFAR = 16
"""The same where a call may go over a network."""


def transport_code(options: Options) -> int:
    """What the options ask for, as a number: the largest that any rank has counts for all."""
    wanted = options.transport
    if wanted == "auto":
        wanted = _BY_HINT.get(str(options.hints.get("romio_cb_write", "")).lower(), wanted)
    if wanted == "auto" and options.aggrs_per_node:
        wanted = "aggregate"
    return _TRANSPORTS.index(wanted)


class Transport:
    """The ways of one file.

    Parameters
    ----------
    comm : Comm
    options : Options
    collective : bool, the driver has collective calls.
    call_cost : int, bytes, see `Capabilities`.
    """

    def __init__(self, comm: Comm, options: Options, *, collective: bool, call_cost: int = CALL_COST) -> None:
        self.comm = comm
        self.options = options
        self.collective = collective
        self.call_cost = call_cost
        self.last = ""
        """The way of the last flush that wrote something; "" before the first."""
        self.rounds = 0
        """Collective writes so far."""
        self.written = dict.fromkeys(("requests_written", "extents_written", "bytes_written"), 0)
        self._nodes: Nodes | None = None
        self._two_phase: two_phase.TwoPhase | None = None

    @property
    def nodes(self) -> Nodes:
        """Where ranks are; collective when it is asked first."""
        if self._nodes is None:
            self._nodes = self.comm.nodes()
        return self._nodes

    def choose(self, agreed: Agreement) -> str:
        """The way of this flush, the same on all ranks (collective).

        Returns
        -------
        {"independent", "collective", "aggregate"}
        """
        if not agreed.batches:
            return "independent"
        self.last = self._chosen(agreed)
        return self.last

    def _chosen(self, agreed: Agreement) -> str:
        if self.comm.size == 1 or self.options.ordered or not agreed.rounds:
            return "independent"
        wanted = _TRANSPORTS[agreed.transport]
        if wanted == "collective" and not self.collective:
            return "independent"
        if wanted != "auto":
            return wanted
        if agreed.runs < 2:
            return "independent"
        if self.nodes.single:
            small = agreed.nbytes < agreed.runs * _CALLS * self.call_cost
            return "aggregate" if agreed.runs > _MANY and small else "independent"
        return "aggregate" if agreed.nbytes < agreed.runs * _CALLS_AFAR * self.call_cost else "independent"

    def execute(
        self,
        driver: Driver,
        batches: list[Batch],
        maps: Mapping[int, ElementMap],
        *,
        affine: bool,
        agreed: Agreement | None = None,
    ) -> Executed:
        """Write what is posted, as far as it has a place, in the way that the ranks agreed on (collective).

        Parameters
        ----------
        driver, batches, maps, affine
            See `execute.execute`.
        agreed : Agreement, optional
            If not given, this rank writes by itself, and waits for no other one.
        """
        way = "independent" if agreed is None else self.choose(agreed)
        if agreed is not None and way != "independent":
            self.rounds += agreed.rounds
            with equal_rounds(self.comm, self._collective_write(driver, agreed, way), agreed.rounds) as together:
                done = execute(batches, maps, driver, together, affine=affine)
            done.rounds = agreed.rounds
        else:
            # What lies between small extents is touched only in a file that no other rank shares.
            write = driver.write if self.comm.size > 1 else partial(write_sieved, driver=driver)
            done = execute(batches, maps, driver, write, affine=affine)
        for name, n in zip(self.written, (done.requests, done.extents, done.nbytes), strict=True):
            self.written[name] += n
        return done

    def _collective_write(self, driver: Driver, agreed: Agreement, way: str) -> Write:
        if way == "aggregate":
            if self._two_phase is None:
                hints = self.options.hints
                self._two_phase = two_phase.TwoPhase(self.comm, self.nodes, hints, self.options.aggrs_per_node)
            # The file may have been laid out anew, in another driver.
            self._two_phase.driver = driver
            return self._two_phase.write

        def collective(extents: Extents, memory: Bytes) -> None:
            try:
                driver.write(extents, memory, collective=True)
            finally:
                # A rank that writes for others may write what lies between as well: nobody else may do so meanwhile.
                self.comm.agree("flush round")

        return collective

    def statistics(self) -> Mapping[str, Any]:
        """``transport``, ``rounds``, ``requests_written``, ``extents_written`` and ``bytes_written``."""
        return {"transport": self.last, "rounds": self.rounds, **self.written}

    def close(self) -> None:
        """Give memory back."""
        if self._two_phase is not None:
            self._two_phase.close()
