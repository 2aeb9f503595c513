"""What happens to a program on its way, and what must hold afterwards.

An event is a class: an object of it is called with a program, an empty folder and the tally, and raises what is wrong.
`EVENTS` is the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from run import Program, Tally, serial

EVENTS: dict[str, Callable[[int], Any]] = {}


def event(name: str) -> Callable[[type], type]:
    """Put a class into the table."""

    def put(cls: Any) -> Any:
        EVENTS[name] = cls
        return cls

    return put


@event("nothing")
class Nothing:
    """Only the program, and h5py's turn with every fourth."""

    def __init__(self, states: int) -> None:
        pass

    def __call__(self, program: Program, folder: str, tally: Tally | None = None) -> None:
        serial(program, folder, tally)
