"""Programs on several ranks: simulated in one process, and real ones under ``mpiexec``.

Knows: how each rank runs a program (`Run` has a communicator then), and what holds at its end. Does not know: acts.

    python tests/engine --event ranks --programs 100                         2 to 4 simulated ranks, 1 to 3 nodes
    mpiexec -n 3 python -m mpi4py tests/engine --event mpi --programs 100    real ones
    MPIR_CVAR_NUM_CLIQUES=2 mpiexec ...                                      on emulated nodes
"""

from __future__ import annotations

import gc
import os
import random
import shutil
from functools import partial
from typing import Any

import virtual_ranks
from events import EVENTS, UNCOUNTED, Tally, event
from run import (
    Loads,
    Program,
    Run,
    World,
    Wrong,
    created,
    folder_for_programs,
    leftovers,
    others_read,
    said,
    same_bytes,
    serial,
)

__all__ = ["EVENTS", "first", "launched"]


def on_rank(comm: Any, program: Program, folder: str, barriers: Any = None) -> Any:
    """What one rank does: the program, a close, and another opening; its run."""
    run = created(program, folder, comm=World(comm, barriers))
    if run is None:
        return None
    try:
        _to_its_end(run, program)
    except BaseException as error:
        if run.f:
            # as a with block does it: the others are told, and nobody waits
            run.f.__exit__(type(error), error, None)
        raise
    return run


def _to_its_end(run: Run, program: Program) -> None:
    for step in program.steps:
        run.step(step)
    run.settle()
    run.whole()
    run.last_close()
    run.barrier()
    run.read()


def after(run: Run, load: Loads | None) -> None:
    """After the last rank has left: one process looks."""
    run.comm, run.rank, run.size = None, 0, 1
    run.config = serial(run.config)
    run.read()
    if run.config["layout"] == "canonical":
        others_read(run)
    if load is not None:
        load.check()
    if left := leftovers(run):
        raise Wrong(f"left over: {left}")


def simulated(program: Program, folder: str) -> list[Any]:
    """A program on simulated ranks."""
    config, work = program.config, partial(on_rank, program=program, folder=folder)
    return virtual_ranks.run(config["ranks"], work, nodes=config["nodes"], timeout=60)


@event("ranks")
class Simulated:
    """Ranks that take turns in one process; read again by another number of them."""

    def __init__(self, states: int, name: str) -> None:
        pass

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        load = Loads()
        found = simulated(program, folder)
        tally.acts += len(program.steps)
        tally.refused += found[0] is None
        if found[0] is not None:
            others = random.Random(program.seed).randint(1, 4)
            virtual_ranks.run(others, partial(read_again, run=found[0]), timeout=60)
            after(found[0], load)
            same_bytes(program, folder, simulated)


def read_again(comm: Any, run: Run) -> None:
    """Whatever number of ranks wrote a file, any number reads it."""
    mine = Run.__new__(Run)
    mine.__dict__.update(run.__dict__, comm=World(comm), rank=comm.rank, size=comm.size)
    mine.read()


@event("mpi")
class Real:
    """The ranks of ``mpiexec``; what one of them meets is raised on all."""

    def __init__(self, states: int, name: str) -> None:
        from mpi4py import MPI

        self.world, self.barriers = MPI.COMM_WORLD, MPI.COMM_WORLD.Dup()

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        world = self.world
        shared = world.bcast(folder_for_programs() if world.rank == 0 else None, 0)
        told, run = "", None
        try:
            run = on_rank(world, program, shared, self.barriers)
        except Exception as error:
            told = f"{said(error)} [rank {world.rank} of {world.size}]"
            error.__traceback__ = error.__context__ = error.__cause__ = None
        gc.collect()
        if not any(world.allgather(told)) and world.rank == 0 and run is not None:
            try:
                after(run, None)
                same_bytes(program, shared)
            except Exception as error:
                told = said(error)
        told = next(filter(None, world.allgather(told)), "")
        if world.rank == 0:
            shutil.rmtree(shared, ignore_errors=True)
        tally.acts += len(program.steps)
        tally.refused += run is None and not told
        if told:
            # some ranks may still be expected at a barrier
            self.barriers = world.Dup()
            raise OnRanks(told)


class OnRanks(AssertionError):
    """What went wrong on a rank."""


def launched() -> tuple[int, int]:
    """Ranks and emulated nodes of the job in which this runs; (1, 1) outside of one."""
    from mpi4py import MPI

    nodes = int(os.environ.get("MPIR_CVAR_NUM_CLIQUES", "1"))
    return MPI.COMM_WORLD.size, min(nodes, MPI.COMM_WORLD.size)


def first() -> bool:
    """Whether this is rank 0 of the job."""
    from mpi4py import MPI

    return bool(MPI.COMM_WORLD.rank == 0)
