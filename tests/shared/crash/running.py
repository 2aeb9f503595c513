"""Scenarios, programs that say what they promise, and their recordings.

Knows: how a program is given a system and a file. Does not know: what a scenario does (`scenarios`), crashes.

Rules
-----
1. All that changes the file stands in steps, and each step says what the file holds when it returns.
2. What is there before the program begins is taken for safe.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pnc_vol
from crash.disk import Change, Disk, clear
from crash.promise import NO_FILE, Contents, Step
from crash.recording import Rebuilt, Recorder
from pnc_vol.errors import PncVolWarning
from pnc_vol.testing.faults import HookedSystem

__all__ = ["Recording", "Run", "Scenario", "fast_folder", "placed", "record"]

_MEMORY = "/dev/shm"


class Run:
    """What a scenario's program is given.

    Attributes
    ----------
    path : str, the file that is examined; folder : str, where other files may be.
    system : System, to be passed to whatever the program calls.
    options : dict, for `pnc_vol.File`.
    numbers : dict, inode numbers that files shall have, by the real ones; set where a scenario begins with a crash.
    """

    def __init__(self, folder: str, system: HookedSystem, options: Mapping[str, Any]) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "x.nc")
        self.system = system
        self.options = dict(options)
        self.steps: list[Step] = []
        self.numbers: dict[int, int] = {}

    def open(self, mode: str, **options: Any) -> Any:
        """`pnc_vol.File` of the path."""
        return pnc_vol.File(self.path, mode, system=self.system, **{**self.options, **options})

    @contextmanager
    def step(self, contents: Contents, kind: str = "flush") -> Iterator[None]:
        """What is done here brings `contents` to the file; see `promise.Step`."""
        recorder = self.system
        if not isinstance(recorder, Recorder):
            yield
            return
        recorder.notice()
        begin = len(recorder.changes)
        yield
        recorder.notice()
        self.steps.append(Step(begin, len(recorder.changes), contents, kind))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A program, and how its file is opened after a crash.

    name : str
    program : callable, given a `Run`; all that changes the file stands in steps.
    before : callable or None, makes what is there at the beginning, which is safe; returns its contents.
    options : dict, of `pnc_vol.File`, for the program; ``FOLDER`` in a hint stands for the folder of the file.
    recovery : dict, options of the open for writing after a crash.
    power : bool, whether power failures are examined as well.
    unnamed : bool, until its file has its name, the promises are those of a temporary file.
    unsynced : bool, it has caches, which a power failure may damage: then they are not recovered unless that is asked.
    """

    name: str
    program: Callable[[Run], None]
    before: Callable[[Run], Contents] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    recovery: dict[str, Any] = field(default_factory=dict)
    power: bool = True
    unnamed: bool = False
    unsynced: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """A scenario that was run once.

    start : Disk; changes : list of Change; steps : list of Step.
    first : Contents, what is there at the beginning.
    real : dict, inode numbers of the operating system.
    """

    scenario: Scenario
    start: Disk
    changes: list[Change]
    steps: list[Step]
    first: Contents
    real: dict[int, int]
    options: Mapping[str, Any]


def placed(options: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Options with the folder in the hints that name one."""
    hints = {key: value.replace("FOLDER", folder) for key, value in options.get("hints", {}).items()}
    return {**options, **({"hints": hints} if hints else {})}


def fast_folder() -> str:
    """Where states are rebuilt: in memory, if there is such a folder."""
    return _MEMORY if os.path.exists(_MEMORY) else tempfile.gettempdir()


def record(scenario: Scenario, folder: str, options: Mapping[str, Any] | None = None) -> Recording:
    """Run a scenario in an empty folder.

    Parameters
    ----------
    options : mapping
        More options of `pnc_vol.File`, such as ``{"driver": "mine | posix"}``.
    """
    clear(folder)
    given = placed({**scenario.options, **(options or {})}, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        beginning = Run(folder, HookedSystem(), options or {})
        first = NO_FILE if scenario.before is None else scenario.before(beginning)
        again = bool(beginning.numbers)
        system = Recorder(folder, Rebuilt(beginning.numbers) if again else None, token=again << 16)
        run = Run(folder, system, given)
        try:
            scenario.program(run)
        finally:
            system.finish()
    return Recording(scenario, system.start, system.changes, run.steps, first, system.real, given)
