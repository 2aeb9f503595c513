"""What an act costs, counted: calls of functions of Python, copies of posts to memory."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pnc_vol.queue.memory import MemoryStore


def calls_of(act: Callable[[], object]) -> int:
    """Functions of Python that an act calls, without itself and without what Python's collector may call meanwhile."""
    calls = -1

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    # others have callbacks there, hypothesis for one
    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return calls


def all_calls_of(act: Callable[[], object]) -> int:
    """Calls of functions, of Python and of C, that an act makes."""
    count = 0

    def step(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(step)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def note_copies(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that gets an item whenever posts are copied to the arena of a queue."""
    copied: list[object] = []
    real = MemoryStore._arena_of

    def arena_of(store: MemoryStore, element: Any) -> Any:
        copied.append(element)
        return real(store, element)

    monkeypatch.setattr(MemoryStore, "_arena_of", arena_of)
    return copied
