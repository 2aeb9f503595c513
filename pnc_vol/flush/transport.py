"""The ranks of one file write and read together: each by itself, by MPI-IO's collective calls, or few for all.

Knows: ranks, options, a driver, what was agreed on. Does not know: requests, variables; how a way is chosen (`choice`).

Rules
-----
1. Whatever is chosen, the file becomes the same, and so does what is read.
2. If ranks that read for others fail, each rank reads by itself, and finds out whether that can be read which it wants.
3. Where caches of several nodes hold back what ranks write, each rank writes by itself: no rank needs another node's
   cache to read its own data, and no cache holds bytes that lie between those of its ranks and may be another node's.
   Ranks of one node that write together would gain little: between their pieces are bytes of other nodes, which they
   may not read and write back, and the caches join what touches anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST, Driver
from pnc_vol.errors import RankError
from pnc_vol.extents.model import Extents
from pnc_vol.flush.agree import Choice, Weight, asked_of_all, transport_code, weighed
from pnc_vol.flush.execute import Executed, Write, equal_rounds, execute, write_sieved
from pnc_vol.layout.base import ElementMap
from pnc_vol.queue.batches import Batch
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from pnc_vol.exchange import two_phase
    from pnc_vol.flush.agree import Agreement
    from pnc_vol.ranks.places import Nodes

__all__ = ["Transport"]

Bytes = npt.NDArray[np.uint8]

_ALONE = Choice("independent", "there is one rank")
_APART = Choice("independent", "each rank writes to the cache of its own node; data do not cross nodes before that")
_IN_TURN = Choice("independent", "ranks write one after another (ordered=True)")


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
        self.last_write: Choice | None = None
        self.last_read: Choice | None = None
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
        """Return the way of this flush, the same on all ranks (collective).

        Returns
        -------
        {"independent", "collective", "aggregate"}
        """
        if not agreed.batches:
            return "independent"
        self.last_write = _ALONE if self.comm.size == 1 else self._chosen(agreed)
        self.last = self.last_write.way
        return self.last

    def _chosen(self, agreed: Agreement) -> Choice:
        if self.options.ordered:
            return _IN_TURN
        if agreed.apart:
            return _APART
        # Arrays that were not copied go to the file block by block, by no call of all ranks.
        if not agreed.rounds:
            return Choice("independent", "only arrays that iput did not copy are posted")
        return self._way(agreed.runs, agreed.nbytes, agreed.transport)

    def _way(self, runs: int, nbytes: int, code: int, *, reads: bool = False) -> Choice:
        """Return the way of some runs and bytes, the most that any rank has (collective)."""
        asked = asked_of_all(code, collective=self.collective, reads=reads)
        if asked is not None:
            return asked
        # One run is one call, which moving the data to another rank cannot save.
        if runs < 2:
            return Choice("independent", "no rank has more than one run")
        return weighed(runs, nbytes, single=self.nodes.single, call_cost=self.call_cost)

    def choose_read(self, most: Weight) -> str:
        """Return the way of a read of all ranks, from the most of each number that any rank has (collective)."""
        if self.comm.size == 1:
            return "independent"
        self.last_read = self._way(most.runs, most.nbytes, most.transport, reads=True)
        return self.last_read.way

    def read(self, driver: Driver, extents: Extents, memory: Bytes, *, way: str) -> int:
        """Read what each rank wants, in the way that the ranks agreed on (collective unless it is "independent").

        Returns
        -------
        int
            Bytes that were in the file.

        Raises
        ------
        OSError
        """
        if way == "collective":
            return driver.read(extents, memory, collective=True)
        if way == "aggregate":
            try:
                return self._together(driver).read(extents, memory)
            except OSError as error:
                # What all ranks raise, or what ends their calls, ends the read; else each tries by itself (rule 2).
                if self.comm.in_step(error) or isinstance(error, RankError):
                    raise
        return driver.read(extents, memory) if len(extents.offset) else 0

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
            return self._together(driver).write

        def collective(extents: Extents, memory: Bytes) -> None:
            try:
                driver.write(extents, memory, collective=True)
            finally:
                # A rank that writes for others may write what lies between as well: nobody else may do so meanwhile.
                self.comm.agree("flush round")

        return collective

    def _together(self, driver: Driver) -> two_phase.TwoPhase:
        if self._two_phase is None:
            hints = self.options.hints
            from pnc_vol.exchange import two_phase

            self._two_phase = two_phase.TwoPhase(self.comm, self.nodes, hints, self.options.aggrs_per_node)
        # The file may have been laid out anew, in another driver.
        self._two_phase.driver = driver
        return self._two_phase

    def foreseen(self, runs: int, nbytes: int) -> list[str]:
        """Return how a flush would go by what this rank has posted alone, in words; nobody is waited for."""
        if self.comm.size == 1:
            return []
        asked = asked_of_all(transport_code(self.options), collective=self.collective)
        if self.options.ordered or asked is not None:
            found = asked if asked is not None and not self.options.ordered else _IN_TURN
            return [f"transport: {found.way}: {found.why}"]
        known = self._nodes
        cases = {"on one node": True, "on several nodes": False} if known is None else {"": known.single}
        lines = []
        for where, single in cases.items():
            found = weighed(runs, nbytes, single=single, call_cost=self.call_cost)
            lines.append(" ".join(filter(None, ["transport", where])) + f": {found.way}: {found.why}")
        if known is not None:
            from pnc_vol.exchange.team import Wanted, aggregators

            wanted = Wanted.by(self.options.hints, self.options.aggrs_per_node)
            n, nodes = len(aggregators(known, wanted)), len(known.lowest)
            lines.append(f"aggregators: {n} of {known.size} ranks, on {nodes} node{'s' * (nodes > 1)}")
        return lines

    def statistics(self) -> Mapping[str, Any]:
        """Return what was written, in how many collective writes (``rounds``), and how.

        ``write_choice`` and ``read_choice`` say of the last write and the last collective read which way it went, why,
        and of one that few ranks did for all its `Sizes`; they are None before the first.
        """
        choices = {
            "write_choice": self._choice_statistics(self.last_write, "writes"),
            "read_choice": self._choice_statistics(self.last_read, "reads"),
        }
        return {"transport": self.last, "rounds": self.rounds, **self.written, **choices}

    def _choice_statistics(self, choice: Choice | None, verb: str) -> dict[str, Any] | None:
        if choice is None:
            return None
        sizes = self._two_phase.last.get(verb) if self._two_phase is not None and choice.way == "aggregate" else None
        return {"transport": choice.way, "why": choice.why, **(sizes._asdict() if sizes is not None else {})}

    def close(self) -> None:
        """Give memory back."""
        if self._two_phase is not None:
            self._two_phase.close()
