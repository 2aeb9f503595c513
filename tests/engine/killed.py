"""Real jobs of ``mpiexec`` of which a rank is killed, and what is left of them.

Knows: how a rank notes what it has done (`Noted`), what all of them guarantee by that. Does not know: acts, how ranks
are started (`jobs`).

    python tests/engine --event killed --programs 400 --states 5         2,000 kills

The ranks of each job are real processes under ``mpiexec``, whose end the launcher sees and answers by ending the
others. Each program runs once to its end, which counts the calls of each rank that change a file; then it is run again
with a random rank killed at a random one of these calls, or in the middle of its write. What is left is opened,
recovered by one process, simulated ranks or another job of ranks, and gone on with.
"""

from __future__ import annotations

import os
import pickle
import random
import time
from functools import partial
from typing import Any, NamedTuple

import promises
from acts import Step
from events import UNCOUNTED, Crashed, Tally, event, refused
from jobs import Jobs
from kills import Killing
from model import Impossible, Model
from options import logged
from promises import FLUSHES, Moment
from run import Program, Run, World, left, said

from pnc_vol.testing.faults import CHANGING


class Left(NamedTuple):
    """What a job left, in the form that `promises.examine` takes."""

    at: int
    torn: bool


class Noted(Run):
    """Each rank notes in a file of its own when an act has returned."""

    notes = -1

    def returned(self) -> None:
        os.write(self.notes, b".")

    def read_elsewhere(self) -> None:
        """To start a process for this would take longer than the job."""


class Noting(Killing):
    """Notes that the rank is killed."""

    notes = -1

    def about_to(self) -> None:
        os.write(self.notes, b"!")


def on_job(given: str) -> None:
    """What a rank of a job does: a program, or a recovery."""
    from mpi4py import MPI

    with open(given, "rb") as asked:
        work, *more = pickle.load(asked)
    work(MPI.COMM_WORLD, *more)


def run_program(world: Any, program: Program, folder: str, notes: str, victim: int, call: int, part: float) -> None:
    """Run a program to its end, or to that of a rank; its calls are counted."""
    system = Noting(call if world.rank == victim else 0, part, CHANGING)
    system.notes = os.open(os.path.join(notes, str(world.rank)), os.O_WRONLY | os.O_CREAT)
    os.write(system.notes, b"%8d" % os.getpid())
    run = Noted(program.config, folder, seed=program.seed, comm=World(world), system=system)
    run.notes = system.notes
    run.create()
    run.returned()
    for step in program.steps:
        run.step(step)
    run.last_close()
    run.returned()
    os.write(run.notes, b"%8d" % system.count)


def run_recovery(world: Any, config: Any, folder: str, by_itself: bool) -> None:
    promises.recovered(left(config, folder), World(world), by_itself=by_itself)


def moments_of(program: Program) -> list[Moment]:
    """What holds after each act: act k begins at 2 k, and has returned at 2 k + 1."""
    run = Run.__new__(Run)
    run.config, run.model = program.config, Model()
    found = [promises.moment(run, None, 0, 1, [])]
    for step in [*program.steps, Step("close", {})]:
        mids = promises.between(run.model, step) if step.act != "close" else []
        try:
            if step.act != "close":
                promises.ACTS[step.act].effect(run.model, **step.args)
        except Impossible:
            continue
        begin = 2 * len(found)
        found.append(promises.moment(run, step, begin, begin + 1, mids))
    return found


@event("killed")
class Killed:
    """A rank of a real job is killed."""

    def __init__(self, states: int, name: str) -> None:
        self.states, self.jobs = states, Jobs(on_job)

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        if refused(program, tally):
            return
        chance, moments = random.Random(f"{program.seed} killed"), moments_of(program)
        counts = self.once(program, folder, "0", moments, chance, 0, 0)
        for n in range(self.states):
            victim = chance.choice([rank for rank, count in enumerate(counts) if count])
            call = chance.randint(1, counts[victim])
            killed = self.once(program, folder, str(n + 1), moments, chance, victim, call)
            tally.states += not killed

    def once(
        self, program: Program, folder: str, name: str, moments: list[Moment], chance: Any, victim: int, call: int
    ) -> list[int]:
        """Run a job, with a rank killed or not, and look at what is left; the calls of each rank, if none was."""
        place, notes = os.path.join(folder, name), os.path.join(folder, f"notes{name}")
        os.mkdir(place)
        os.mkdir(notes)
        part = chance.random()
        try:
            code, told = self.job(program.config, run_program, program, place, notes, victim, call, part)
            ranks = [_said(notes, rank) for rank in range(program.config["ranks"])]
            if code and not any(one.killed for one in ranks):
                raise AssertionError(f"the job ended with {code}: {told[-1500:]}")
            run = left(program.config, place)
            run.recovered_on = partial(self.recover, chance)
            # what a log holds is whole; in the file, the page in which a write was ended may cut an element
            state = Left(finished(moments, [one.acts for one in ranks]), bool(code) and not logged(program.config))
            promises.examine(run, moments, "kill", state, chance)
        except Exception as error:
            raise Crashed(f"{said(error)} [rank {victim} killed at call {call}]") from error
        return [] if code else [one.calls for one in ranks]

    def job(self, config: Any, *work: Any, ranks: int = 0) -> tuple[int, str]:
        """Let the ranks of a job do some work."""
        given = os.path.join(self.jobs.folder, "work")
        with open(given, "wb") as asked:
            pickle.dump(work, asked)
        return self.jobs.run(ranks or config["ranks"], given, nodes=config["nodes"])

    def recover(self, chance: random.Random, run: Run, ranks: int, by_itself: bool) -> None:
        """By simulated ranks, or by those of another job."""
        if chance.random() < 0.5:
            promises.by_simulated_ranks(run, ranks, by_itself)
            return
        code, told = self.job(run.config, run_recovery, run.config, run.folder, by_itself, ranks=ranks)
        if code:
            raise OSError(f"the recovery failed: {told[-1500:]}")


class Said(NamedTuple):
    """What a rank noted: acts that had returned, that it was killed, calls that it made."""

    acts: int
    killed: bool
    calls: int


def _said(notes: str, rank: int) -> Said:
    """What a rank noted; once it is gone."""
    if not os.path.exists(os.path.join(notes, str(rank))):
        return Said(0, False, 0)
    with open(os.path.join(notes, str(rank)), "rb") as file:
        told = file.read()
    while os.path.exists(f"/proc/{int(told[:8])}"):
        time.sleep(0.002)
    with open(os.path.join(notes, str(rank)), "rb") as file:
        told = file.read()[8:]
    return Said(told.count(b"."), b"!" in told, int(told.rpartition(b".")[2].strip(b"!") or 0))


def finished(moments: list[Moment], acts: list[int]) -> int:
    """How far a job came: an act has returned if it did on all ranks, and one that flushes if it did on any."""
    most, least = max(acts), min(acts)
    if most > least:
        last = moments[most - 1].step
        collective = last is None or last.act in {*FLUSHES, "again"} or (last.act == "cancel" and last.args["whole"])
        most = most if collective else least
    return 2 * most
