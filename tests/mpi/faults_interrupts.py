"""Ctrl-C on one rank, and a forked child."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from fault_scenarios import RANK, SIZE, caught, holds, opened
from scenarios import scenario

from pnc_vol.testing.faults import HookedSystem


class Interrupted(HookedSystem):
    """Ctrl-C comes while data are written, once it is armed."""

    armed = False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.armed and name in ("pwrite", "pwritev"):
            raise KeyboardInterrupt
        return super().call(name, args, kwargs)


@scenario
def interrupted() -> None:
    """Inside a flush, or inside a close: the rank leaves, and the others are told."""
    for inside in ("flush", "close"):
        system = Interrupted()

        def run(inside: str = inside, system: Interrupted = system) -> None:
            with opened(driver="posix", system=system, name=inside) as f:
                x = f.create_dataset("x", (SIZE,), "i4")
                f.flush()
                x[RANK] = 9
                system.armed = RANK == 1
                getattr(f, inside)()

        try:
            told = caught(run)
        except KeyboardInterrupt:
            told = {"type": "KeyboardInterrupt", "text": ""}
        if RANK == 1:
            assert told["type"] == "KeyboardInterrupt", told
        else:
            assert told["type"] == "RankError", told
            assert "KeyboardInterrupt" in told["text"]
            assert told["ranks"] == [1]


@scenario
def forked_child() -> None:
    """A child of one rank can neither use the file nor harm it."""
    f = opened(driver="posix")
    f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    if RANK == 1:
        child = os.fork()
        if child == 0:
            kind = caught(f.flush)["type"]
            os._exit(0 if kind == "ForkedFileError" else 1)
        assert os.waitpid(child, 0)[1] == 0
    f.flush()
    f.close()
    holds("x", np.arange(SIZE))
