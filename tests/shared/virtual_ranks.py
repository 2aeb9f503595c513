"""Many ranks in one process, on a simulated MPI: the real communicator, agreement and writes run on it.

Knows: threads, that a process knows its open files. Does not know: what ranks agree on or write; how messages come to
another rank (`virtual_mpi`).

    run(512, program, nodes=4)        program(comm) on each of 512 virtual ranks; comm is a `pnc_vol.ranks.comm.Comm`

Each rank is a thread, of which one runs at a time: a rank goes on until it tests a request that is not complete, then
another one has its turn, for which something has happened. So a run is the same every time, and time limits of the
ranks count the time of the simulation. All code above the MPI library is the real one; `Comm.traffic` counts as it does
on real ranks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from virtual_mpi import Ended, Intracomm, Turns, VirtualMPI, World

from pnc_vol.file import deferred, registry
from pnc_vol.ranks import waiting as mpi_wait
from pnc_vol.ranks.comm import Comm
from pnc_vol.ranks.mpi_comm import MpiComm

__all__ = ["run"]

_STACK = 512 << 10


def run(
    size: int,
    program: Callable[[Comm], Any],
    *,
    nodes: int = 1,
    in_turn: bool = False,
    timeout: float | None = None,
) -> list[Any]:
    """Run a program on virtual ranks.

    Parameters
    ----------
    size : int, ranks.
    program : callable
        Is given the communicator of its rank; its result is kept.
    nodes : int
        Nodes on which the ranks are, in blocks.
    in_turn : bool
        They are on the nodes in turn, as MPICH's emulated nodes (``MPIR_CVAR_NUM_CLIQUES``) have them.
    timeout : float or None, seconds that a rank waits in one collective call.

    Returns
    -------
    list
        The results, by rank.

    Raises
    ------
    Exception
        The error of the lowest rank that raised one.

    Examples
    --------
    >>> from virtual_ranks import run
    >>> run(3, lambda comm: comm.agree("largest", (comm.rank,))[0])
    [[2], [2], [2]]
    """
    turns = Turns()
    module = VirtualMPI(turns)
    world = World(turns, list(range(size)), [rank % nodes if in_turn else rank * nodes // size for rank in range(size)])
    results: list[Any] = [None] * size
    failed: dict[int, BaseException] = {}

    def one(rank: int) -> None:
        turns.enter(rank)
        try:
            results[rank] = program(MpiComm(Intracomm(world, rank), module, timeout=timeout))
        except BaseException as error:
            failed[rank] = error
            turns.ended = True
        turns.pass_on()

    before = threading.stack_size(_STACK)
    try:
        threads = [threading.Thread(target=one, args=(rank,), name=f"rank {rank}") for rank in range(size)]
        for thread in threads:
            turns.announce()
            thread.start()
    finally:
        threading.stack_size(before)
    with _own_files(), _without_sleep():
        turns.pass_on()
        for thread in threads:
            thread.join()
    module.finalized = True
    first = min((rank for rank, error in failed.items() if not isinstance(error, Ended)), default=None)
    if first is not None:
        raise failed[first]
    return results


class _OfRank(threading.local):
    """A dictionary or a list that each rank has for itself: in place of what a process knows of its open files."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._of = make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def __getitem__(self, key: Any) -> Any:
        return self._of[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._of[key] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


@contextmanager
def _own_files() -> Iterator[None]:
    """Each rank opens files as a process of its own."""
    # What the process still has to close, a rank would: and not find it among its own files.
    registry.close_unreferenced()
    before = registry._open, registry._places, deferred._left
    registry._open, registry._places = cast(Any, _OfRank(dict)), cast(Any, _OfRank(dict))
    deferred._left = cast(Any, _OfRank(list))
    try:
        yield
    finally:
        registry._open, registry._places, deferred._left = before


@contextmanager
def _without_sleep() -> Iterator[None]:
    """A rank that waits lets the others run; to sleep would keep them from it."""
    before = mpi_wait._QUICK_TURNS, mpi_wait._CROWDED_TURNS, mpi_wait._give_way
    mpi_wait._QUICK_TURNS = mpi_wait._CROWDED_TURNS = sys.maxsize
    mpi_wait._give_way = _run_on
    try:
        yield
    finally:
        mpi_wait._QUICK_TURNS, mpi_wait._CROWDED_TURNS, mpi_wait._give_way = before


def _run_on() -> None:
    """The turn was given away before."""
