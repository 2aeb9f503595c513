"""What happens to one of several simulated ranks, and what must hold afterwards on all of them.

Knows: how a program is run by ranks of which one may be gone (`Together`), that all of them get an error or none does.
Does not know: acts.

rank-error, rank-short           the operating system refuses a call of one rank, or writes half of what it is given
rank-interrupt, rank-memory      Ctrl-C, or no memory, at a line of the package on one rank
rank-raises                      the user's program raises an error on one rank, inside a ``with`` block
rank-leaves                      one rank lets go of the file, or closes it while the others go on
rank-late                        one rank comes late, and perhaps later than the others wait
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import promises
import virtual_ranks
from events import ERRORS, UNCOUNTED, Failing, Tally, Troubled, event, refused, unheard
from interrupts import Interrupts
from killed import Left, finished, moments_of
from run import Loads, Program, Run, World, Wrong, inside, left, said

import pnc_vol
from pnc_vol.file import deferred

PATIENCE = 20.0
"""Seconds after which ranks give up waiting: one that waits so long has not been told of what happened."""


class Together:
    """The barriers of a program, at which nobody waits for a rank that is gone.

    arrived : int by rank, barriers to which it came.
    gone : set of int
    """

    def __init__(self, size: int) -> None:
        self.arrived, self.gone = dict.fromkeys(range(size), 0), set[int]()


class Meeting(World):
    """The communicators of one rank of a program."""

    def __init__(self, comm: Any, together: Together, patience: float) -> None:
        super().__init__(comm)
        self.together, self.patience = together, patience

    def opening(self) -> Any:
        self.barrier()
        if self.together.gone:
            # with a communicator of its own, the opening itself would wait until its time is over
            raise TimeoutError("a rank does not open the file")
        return super().opening()

    def barrier(self) -> None:
        together = self.together
        together.arrived[self.rank] += 1
        mine = together.arrived[self.rank]
        while any(came < mine for rank, came in together.arrived.items() if rank not in together.gone):
            self._comm.mpi._world.turns.next()


@dataclass
class Trouble:
    """What happens on one rank, which is `rank`.

    system : for `File`, or None.
    inside : a context in which the rank runs.
    before : what the rank does before the act with the number `at`.
    happened : says whether it happened.
    """

    rank: int
    said: str = ""
    system: Any = None
    inside: AbstractContextManager[Any] = field(default_factory=nullcontext)
    at: int = -1
    before: Callable[[Run], object] = lambda run: None
    happened: Callable[[], bool] = lambda: True
    patience: float = field(default_factory=lambda: PATIENCE)

    def where(self) -> str:
        """The call or the line."""
        return next((one.where for one in (self.system, self.inside) if hasattr(one, "where")), "")


@dataclass
class Ended:
    """How a rank ended: acts that had returned, and the error, or None."""

    acts: int
    error: BaseException | None


class Acting(Run):
    """A run that counts the acts that have returned."""

    acts = 0

    def returned(self) -> None:
        self.acts += 1

    def read_elsewhere(self) -> None:
        """Another process reads in programs to which nothing happens."""


def on_rank(comm: Any, program: Program, folder: str, together: Together, troubles: dict[int, Trouble]) -> Ended:
    """Run a program on one rank, as a ``with`` block does it."""
    trouble = troubles.get(comm.rank, Trouble(comm.rank))
    world = Meeting(comm, together, next(iter(troubles.values()), trouble).patience)
    run = Acting(program.config, folder, seed=program.seed, comm=world, system=trouble.system)
    error: BaseException | None = None
    try:
        with trouble.inside:
            run.create()
            run.returned()
            for step in program.steps:
                if run.acts == trouble.at:
                    trouble.before(run)
                run.step(step)
            if run.acts == trouble.at:
                trouble.before(run)
            run.end("close")
            run.returned()
    except (Exception, KeyboardInterrupt) as found:
        error = found
    together.gone.add(comm.rank)
    if error is not None:
        try:
            if run.f:
                run.f.__exit__(type(error), error, None)
        except (OSError, pnc_vol.PncVolError) as second:
            second.__traceback__ = None
        # its frames hold the file
        error.__traceback__ = error.__context__ = error.__cause__ = None
    run.kept.clear()
    run.f = None
    gc.collect()
    # what the end of an interpreter does: a file with a cache that ranks left is open until all have left it
    deferred.part_from_others(last=True)
    return Ended(run.acts, error)


class Gone(Exception):
    """What the user's program raises."""


class OnOneRank:
    """A program in which something happens on one rank at each of some moments."""

    errors: tuple[type[BaseException], ...] = ()
    """What may come to all ranks, besides the errors that are documented for every trouble."""

    def __init__(self, states: int, name: str) -> None:
        self.states, self.kind = states, name.removeprefix("rank-")

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        if refused(program, tally):
            return
        chance, moments = random.Random(f"{program.seed} {self.kind}"), moments_of(program)
        size = program.config["ranks"]
        # once, so that what is loaded at the first use is there
        self.once(program, inside(folder, "before"), moments, {})
        counting = {rank: self.counting(rank, chance) for rank in range(size)}
        self.once(program, inside(folder, "counted"), moments, counting)
        for n in range(self.states):
            rank = chance.randrange(size)
            trouble = self.drawn(rank, counting[rank], len(moments), chance)
            ends = self.once(program, inside(folder, str(n)), moments, {rank: trouble})
            tally.states += trouble.happened() or any(one.error for one in ends)

    def counting(self, rank: int, chance: random.Random) -> Trouble:
        """What counts the places at which something can happen on a rank."""
        return Trouble(rank)

    def drawn(self, rank: int, counted: Trouble, acts: int, chance: random.Random) -> Trouble:
        """What happens at a random place."""
        raise NotImplementedError

    def once(
        self, program: Program, folder: str, moments: list[promises.Moment], troubles: dict[int, Trouble]
    ) -> list[Ended]:
        """Run the program, and look at how it ended and at what it left."""
        load, together = Loads(), Together(program.config["ranks"])
        work = partial(on_rank, program=program, folder=folder, together=together, troubles=troubles)
        try:
            with unheard() as ignored:
                ends = virtual_ranks.run(program.config["ranks"], work, nodes=program.config["nodes"], timeout=PATIENCE)
                gc.collect()
                self.judge(program, folder, moments, ends, next(iter(troubles), -1) if len(troubles) == 1 else -1)
            foreign = [one for one in ignored if not isinstance(one, self.allowed)]
            ignored.clear()
            if foreign:
                raise foreign[0]
            gc.collect()
            load.check()
        except Exception as error:
            what = "; ".join(f"{one.said} {one.where()} on rank {one.rank}" for one in troubles.values() if one.said)
            raise Troubled(f"{said(error)} [{what or 'nothing'}]") from error
        return ends

    @property
    def allowed(self) -> tuple[type[BaseException], ...]:
        """What the program may raise."""
        return (OSError, pnc_vol.PncVolError, *self.errors)

    def judge(
        self, program: Program, folder: str, moments: list[promises.Moment], ends: list[Ended], rank: int
    ) -> None:
        """All ranks got an error or none did, and the file holds what is promised."""
        told = [f"{type(one.error).__name__}: {one.error}" if one.error else "nothing" for one in ends]
        for one in ends:
            if one.error is not None and not isinstance(one.error, self.allowed):
                raise Wrong(f"the ranks raised {told}")
        failed = [one.error is not None for one in ends]
        if any(failed) and not all(failed) and not self.alone(ends, len(moments)):
            raise Wrong(f"the ranks raised {told} after {[one.acts for one in ends]} acts of {len(moments)}")
        self.waited(told)
        if not any(failed) and min(one.acts for one in ends) < len(moments):
            raise Wrong(f"no rank raised, and only {[one.acts for one in ends]} acts of {len(moments)} were done")
        at = self.finished(moments, [one.acts for one in ends])
        most = max(one.acts for one in ends)
        begun = [replace(one, begin=min(one.begin, at)) if n <= most else one for n, one in enumerate(moments)]
        promises.examine(left(program.config, folder), begun, "kill", Left(at, torn=False), random.Random(program.seed))

    def alone(self, ends: list[Ended], acts: int) -> bool:
        """Whether ranks may have failed alone: all others had agreed that the last close has succeeded."""
        return all(one.acts == acts for one in ends if one.error is None) and all(
            one.acts == acts - 1 for one in ends if one.error is not None
        )

    def finished(self, moments: list[promises.Moment], acts: list[int]) -> int:
        """How far all of them came."""
        return finished(moments, acts)

    def waited(self, told: list[str]) -> None:
        """No rank may have waited until its time was over."""
        if any(one.startswith("CollectiveTimeout") for one in told):
            raise Wrong(f"ranks waited for the end of their time: {told}")


@event("rank-error")
@event("rank-short")
class OfTheSystem(OnOneRank):
    """A call of the system."""

    def counting(self, rank: int, chance: random.Random) -> Trouble:
        return Trouble(rank, system=self.failing(0, chance))

    def drawn(self, rank: int, counted: Trouble, acts: int, chance: random.Random) -> Trouble:
        n = chance.randint(1, max(counted.system.count, 1))
        failing = self.failing(n, random.Random(chance.random()))
        return Trouble(rank, f"{self.kind} at call {n}", failing, happened=lambda: failing.happened)

    def failing(self, n: int, chance: random.Random) -> Failing:
        return Failing(n, chance, "once" if self.kind == "error" else "short")


@event("rank-interrupt")
@event("rank-memory")
class OfALine(OnOneRank):
    """A line of the package."""

    def __init__(self, states: int, name: str) -> None:
        super().__init__(states, name)
        self.errors = (ERRORS[self.kind],)

    def counting(self, rank: int, chance: random.Random) -> Trouble:
        return Trouble(rank, inside=Interrupts(0, self.errors[0]))

    def drawn(self, rank: int, counted: Trouble, acts: int, chance: random.Random) -> Trouble:
        failing = counted.inside.at_line(chance.randint(1, counted.inside.count))  # type: ignore[attr-defined]
        # of an interruption outside of a collective call, or in the middle of its messages, the others hear by the time
        return Trouble(rank, self.kind, inside=failing, happened=lambda: failing.happened, patience=2)

    def waited(self, told: list[str]) -> None:
        """They may, as it is documented."""


@event("rank-raises")
class OfTheProgram(OnOneRank):
    """The user's own error."""

    errors = (Gone,)

    def drawn(self, rank: int, counted: Trouble, acts: int, chance: random.Random) -> Trouble:
        def fail(run: Run) -> None:
            raise Gone("the sum is wrong")

        at = chance.randint(1, acts - 1)
        return Trouble(rank, f"an error before act {at}", at=at, before=fail)


@event("rank-leaves")
class Leaves(OnOneRank):
    """A rank that does not go on, and tells nobody."""

    errors = (Gone,)

    def drawn(self, rank: int, counted: Trouble, acts: int, chance: random.Random) -> Trouble:
        self.closes = closes = chance.random() < 0.5

        def leave(run: Run) -> None:
            run.comm.together.gone.add(run.rank)
            if closes:
                run.f.close()
            run.f = None
            run.kept.clear()
            gc.collect()
            raise Gone("without the others")

        at = chance.randint(1, acts - 1)
        return Trouble(rank, f"{'closes' if closes else 'lets go of'} the file before act {at}", at=at, before=leave)

    def alone(self, ends: list[Ended], acts: int) -> bool:
        """All that the others did after its close was to post, and to close the file, too."""
        return self.closes and all(one.acts == acts for one in ends if one.error is None)

    def finished(self, moments: list[promises.Moment], acts: list[int]) -> int:
        """What it did not post nobody has."""
        return 2 * min(acts)


@event("rank-late")
class Late(OnOneRank):
    """A rank that comes late: the others wait for it, or all of them are told that they waited in vain."""

    def drawn(self, rank: int, counted: Trouble, acts: int, chance: random.Random) -> Trouble:
        too_late = chance.random() < 0.3
        patience, pause = (0.2, 0.6) if too_late else (PATIENCE, 0.02)

        def come_late(run: Run) -> None:
            end = time.monotonic() + pause
            while time.monotonic() < end:
                run.comm._comm.mpi._world.turns.next()

        at = chance.randint(1, acts - 1)
        return Trouble(rank, f"{pause} s late for act {at}", at=at, before=come_late, patience=patience)

    def waited(self, told: list[str]) -> None:
        """They may, in vain."""
