"""Scenarios: programs that are recorded, crashed in every way, and examined.

Knows: the whole package, as a user does. Does not know: what a scenario does (`scenarios`).

Rules
-----
1. A state is opened for reading first, which must change nothing; then for writing, which completes what was begun; a
   change is made and read back. A file that survived a crash is a file like any other.
2. States are rebuilt in the folder in which they were recorded, with the same inode numbers.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pnc_vol
from pnc_vol.errors import PncVolWarning
from pnc_vol.format.check import check
from pnc_vol.format.model import Finding
from pnc_vol.interop.checking import with_header
from pnc_vol.system import REAL, System, exists, scratch_folder
from pnc_vol.testing.crash.disk import Change, Disk, clear
from pnc_vol.testing.crash.promise import NO_FILE, Contents, Step, broken, read
from pnc_vol.testing.crash.recording import Rebuilt, Recorder
from pnc_vol.testing.crash.states import State, kill_points, killed, power_failure

__all__ = ["Broken", "Recording", "Run", "Scenario", "examine", "fast_folder", "record", "states_of"]

_MEMORY = "/dev/shm"


class Broken(AssertionError):
    """A state in which a promise is broken."""


class Run:
    """What a scenario's program is given.

    Attributes
    ----------
    path : str, the file that is examined; folder : str, where other files may be.
    system : System, to be passed to whatever the program calls.
    options : dict, for `pnc_vol.File`.
    """

    def __init__(self, folder: str, system: System, options: Mapping[str, Any]) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "x.nc")
        self.system = system
        self.options = dict(options)
        self.steps: list[Step] = []

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
    options : dict, of `pnc_vol.File`, for the program.
    recovery : dict, options of the open for writing after a crash.
    power : bool, whether power failures are examined as well.
    """

    name: str
    program: Callable[[Run], None]
    before: Callable[[Run], Contents] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    recovery: dict[str, Any] = field(default_factory=dict)
    power: bool = True


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


def fast_folder() -> str:
    """Where states are rebuilt: in memory, if there is such a folder."""
    return _MEMORY if exists(REAL, _MEMORY) else scratch_folder()


def record(scenario: Scenario, folder: str, options: Mapping[str, Any] | None = None) -> Recording:
    """Run a scenario in an empty folder.

    Parameters
    ----------
    options : mapping
        More options of `pnc_vol.File`, such as ``{"driver": "mine | posix"}``.
    """
    clear(folder)
    given = {**scenario.options, **(options or {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        first = NO_FILE if scenario.before is None else scenario.before(Run(folder, REAL, options or {}))
        system = Recorder(folder)
        run = Run(folder, system, given)
        try:
            scenario.program(run)
        finally:
            system.finish()
    return Recording(scenario, system.start, system.changes, run.steps, first, system.real, given)


# ------------------------------------------------------------------------------------------------- states


def states_of(
    recording: Recording, kind: str, *, seed: int = 0, count: int | None = None
) -> Iterator[tuple[int, State]]:
    """States and their numbers.

    Parameters
    ----------
    kind : "kill" or "power"
    count : int or None
        About so many; all kills between two changes are among them. None: all kills.
    """
    changes = recording.changes
    if kind == "power":
        for number in range(count or 0):
            yield number, power_failure(recording.start, changes, seed=seed, number=number)
        return
    points = kill_points(changes, seed=seed)
    wanted = {number for number, (_, tear) in enumerate(points) if not tear}
    tears = [number for number, (_, tear) in enumerate(points) if tear]
    room = len(tears) if count is None else max(0, count - len(wanted))
    wanted.update(tears[:: max(1, -(-len(tears) // room))] if room else ())
    disk, done = recording.start.copy(), 0
    for number, (at, tear) in enumerate(points):
        while done < at:
            disk.apply(changes[done])
            done += 1
        if number in wanted:
            yield number, killed(changes, disk, at, tear)


def state(recording: Recording, kind: str, number: int, *, seed: int = 0) -> State:
    """The state of a number."""
    if kind == "power":
        return power_failure(recording.start, recording.changes, seed=seed, number=number)
    return next(found for i, found in states_of(recording, kind, seed=seed) if i == number)


def promised(recording: Recording, kind: str, at: int) -> tuple[list[Contents], bool]:
    """What may be there after a crash, the promised contents first; and whether nothing is promised."""
    firm = ("durable",) if kind == "power" else ("flush", "durable", "unsafe")
    done = [i for i, step in enumerate(recording.steps) if step.end <= at and step.kind in firm]
    last = done[-1] if done else -1
    later = [step for step in recording.steps[last + 1 :] if step.begin <= at and step.kind != "logged"]
    contents = recording.steps[last].contents if done else recording.first
    free = any(step.kind == "unsafe" for step in later) or (kind == "power" and not contents.there)
    return [contents, *(step.contents for step in later)], free


def recovered_by_log(recording: Recording, at: int) -> list[Contents]:
    """What may be there after the recovery of a log: at least what was posted in steps that returned."""
    done = [step.contents for step in recording.steps if step.end <= at]
    return [done[-1] if done else recording.first, *(s.contents for s in recording.steps if s.begin <= at < s.end)]


# ------------------------------------------------------------------------------------------------ examine


def examine(
    recording: Recording,
    kind: str,
    *,
    folder: str,
    seed: int = 0,
    count: int | None = None,
    validator: Callable[[str], None] | None = None,
) -> int:
    """Rebuild states and look for what is promised.

    Parameters
    ----------
    recording : Recording
    kind : "kill" or "power"
    folder : str
        Where it was recorded.
    seed, count
        See `states_of`.
    validator : callable, optional
        Another program's opinion of a file, asked for every tenth state after its recovery.

    Returns
    -------
    int
        States examined; those that are alike count once.

    Raises
    ------
    Broken
        With the command that rebuilds the state.
    """
    known: set[int] = set()
    for number, found in states_of(recording, kind, seed=seed, count=count):
        allowed, free = promised(recording, kind, found.at)
        same = hash((found.disk.image(), found.torn, free, len(allowed), id(allowed[0])))
        if same not in known:
            known.add(same)
            asked = validator if len(known) % 10 == 0 else None
            examine_state(recording, kind, found, number, folder=folder, seed=seed, validator=asked)
    return len(known)


def examine_state(
    recording: Recording,
    kind: str,
    found: State,
    number: int,
    *,
    folder: str,
    seed: int = 0,
    validator: Callable[[str], None] | None = None,
) -> None:
    """Rebuild one state and look for what is promised; see `examine`."""
    command = (
        f"python -m pnc_vol.testing.crash --scenario {recording.scenario.name!r} --kind {kind} --seed {seed} "
        f"--state {number} --keep FOLDER"
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            _look(recording, kind, found, folder, validator)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error} ({where.name})"
        raise Broken(f"{recording.scenario.name}: {told}\n{found.said}\nsee it with: {command}") from error


def _look(recording: Recording, kind: str, found: State, folder: str, validator: Callable[[str], None] | None) -> None:
    path = os.path.join(folder, "x.nc")
    allowed, free = promised(recording, kind, found.at)
    numbers = {real: recording.real.get(inode, 0) for real, inode in found.disk.write(folder).items()}
    system = Rebuilt(numbers)
    before = _listing(folder)
    seen = _read(path, system, free)
    if free and seen is None:
        return
    assert seen is not None
    _complain(
        "opened for reading", broken(seen, allowed, torn=found.torn, all_known=kind == "kill") if not free else ""
    )
    if _listing(folder) != before:
        raise Broken("opening for reading changed the folder")
    if not seen.there:
        return
    _go_on(recording, kind, found, path, system, seen, free)
    if free:
        return
    if wrong := [finding for finding in _findings(path) if finding.severity == "error"]:
        raise Broken(f"after recovery it is no valid file: {wrong[0]}")
    if validator is not None:
        validator(path)


def _go_on(
    recording: Recording, kind: str, found: State, path: str, system: System, seen: Contents, free: bool
) -> None:
    """Open for writing, change, and read again."""
    allowed, _ = promised(recording, kind, found.at)
    options = {**recording.options, **recording.scenario.recovery}
    options.pop("publish", None)
    try:
        with pnc_vol.File(path, "r+", system=system, **options) as f:
            recovered = read(path, f)
            f.attrs["after the crash"] = 1
    except OSError:
        if free:
            return
        raise
    again = _read(path, system, free)
    if free or again is None:
        return
    if kind == "kill":
        allowed = recovered_by_log(recording, found.at)
    _complain("opened for writing", broken(recovered, allowed, torn=found.torn, all_known=kind == "kill"))
    wanted = Contents(recovered.datasets, {**recovered.attrs, "@after the crash": 1}, recovered.groups)
    _complain("changed after the crash", broken(again, [wanted], torn=False, all_known=True))


def _read(path: str, system: System, free: bool) -> Contents | None:
    """What a reader sees; None if the file need not be readable and is not."""
    if not exists(REAL, path):
        return NO_FILE
    try:
        with pnc_vol.File(path, "r", system=system) as f:
            return read(path, f)
    except OSError:
        if free:
            return None
        raise


def _findings(path: str) -> list[Finding]:
    fd = REAL.open(path, os.O_RDONLY)
    try:
        return with_header(REAL, fd, check)
    finally:
        REAL.close(fd)


def _complain(when: str, what: str) -> None:
    if what:
        raise Broken(f"{when}: {what}")


def _listing(folder: str) -> list[tuple[str, int, int]]:
    found = []
    for name in REAL.listdir(folder):
        there = REAL.lstat(os.path.join(folder, name))
        found.append((name, there.st_size, there.st_mtime_ns))
    return found
