"""States of a recording, rebuilt and opened, and compared with what was promised.

Knows: the whole package, as a user does. Does not know: what a scenario does (`scenarios`).

Rules
-----
1. A state is opened for reading first, which must change nothing; then for writing, which completes what was begun; a
   change is made and read back. A file that survived a crash is a file like any other.
2. States are rebuilt in the folder in which they were recorded, with the same inode numbers.
3. A recovery is a program that changes files: it is recorded and killed as well.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import pnc_vol
from crash.disk import Disk
from crash.promise import NO_FILE, Contents, broken, read
from crash.recording import Rebuilt, Recorder
from crash.running import Recording, placed
from crash.states import State, kill_points, killed, power_failure
from pnc_vol.disk.journal import recover
from pnc_vol.errors import LogError, NotYetError, PncVolWarning

__all__ = ["Broken", "examine", "examine_state", "promised", "state", "states_of"]

MOST_AGAIN = 10
"""About so many kills of one recovery."""


class Broken(AssertionError):
    """A state in which a promise is broken."""


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


def promised(recording: Recording, kind: str, at: int, *, recovered: bool = False) -> tuple[list[Contents], bool]:
    """What may be there after a crash, the promised contents first; and whether nothing is promised.

    Parameters
    ----------
    recovered : bool
        After the recovery of a log: what was logged is there, or may be.
    """
    firm = {"durable"} if kind == "power" else {"flush", "durable", "unsafe"}
    if recovered:
        firm |= {"safe log"} if kind == "power" else {"log", "safe log", "held"}
    steps = [step for step in recording.steps if recovered or not step.kind.endswith("log")]
    done = [i for i, step in enumerate(steps) if step.end <= at and step.kind in firm]
    last = done[-1] if done else -1
    later = [step for step in steps[last + 1 :] if step.begin <= at]
    contents = steps[last].contents if done else recording.first
    free = any(step.kind == "unsafe" for step in later) or (kind == "power" and not contents.there)
    return [contents, *(step.contents for step in later)], free


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
    """Rebuild states and look for what is promised; every sixteenth is killed once more, in its recovery.

    Parameters
    ----------
    recording : Recording
    kind : "kill" or "power"
    folder : str
        Where it was recorded.
    seed, count
        See `states_of`.
    validator : callable, optional
        Another program's opinion of a file, asked for every eighth state after its recovery.

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
            examine_state(
                recording, kind, found, number, folder=folder, seed=seed,
                again=len(known) % 16 == 8, validator=validator if len(known) % 8 == 1 else None,
            )  # fmt: skip
    return len(known)


def examine_state(
    recording: Recording,
    kind: str,
    found: State,
    number: int,
    *,
    folder: str,
    seed: int = 0,
    again: bool = False,
    validator: Callable[[str], None] | None = None,
) -> None:
    """Rebuild one state and look for what is promised; see `examine`.

    Parameters
    ----------
    again : bool
        Kill the recovery of this state as well.
    """
    command = (
        f"python tests/shared/crash --scenario {recording.scenario.name!r} --kind {kind} --seed {seed} "
        f"--state {number} --keep FOLDER"
    )
    look = _Look(recording, kind, found, folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            changed = look.at_state(found.disk, recording.real, found.torn)
            if again and not look.free and not recording.scenario.unsynced:
                look.at_recoveries()
            elif validator is not None and changed:
                validator(look.file)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error} ({where.name})"
        raise Broken(f"{recording.scenario.name}: {told}\n{found.said}{look.said}\nsee it with: {command}") from error


class _Look:
    """One state, opened in every way.

    path : str; free : bool, whether nothing is promised; said : str, for messages.
    """

    def __init__(self, recording: Recording, kind: str, found: State, folder: str) -> None:
        self.found, self.folder = found, folder
        self.path = os.path.join(folder, "x.nc")
        self.said = ""
        self.numbers = recording.real
        self.all_known = kind == "kill"
        self.allowed, self.free = promised(recording, kind, found.at)
        self.recovered, _ = promised(recording, kind, found.at, recovered=True)
        self.unnamed = recording.scenario.unnamed
        self.unsynced = recording.scenario.unsynced and kind == "power"
        options = {**recording.options, **placed(recording.scenario.recovery, folder)}
        # a set is known by what it says; a file that it should have replaced is no set
        self.options = {name: value for name, value in options.items() if name not in ("publish", "layout")}

    @property
    def file(self) -> str:
        """The file that is there: the path, or the first subfile of a set."""
        return self.path if os.path.exists(self.path) else f"{self.path}.0000"

    def at_state(self, disk: Disk, numbers: Mapping[int, int], torn: bool) -> bool:
        """Read, recover, change, and read again; whether there is a file that was changed."""
        system = Rebuilt({real: numbers.get(inode, 0) for real, inode in disk.write(self.folder).items()})
        if self.unnamed:
            self.find(system, torn)
        before = _listing(self.folder)
        seen = self.read(system)
        if seen is None:
            return False
        # a recovery of a log that was killed may have brought some of it to the file
        self.complain("opened for reading", seen, self.allowed + self.recovered * bool(self.said), torn)
        if _listing(self.folder) != before:
            raise Broken("opening for reading changed the folder")
        return seen.there and self.go_on(system, torn)

    def find(self, system: Rebuilt, torn: bool) -> None:
        """Where the file did not get its name, look for a temporary one with what is promised."""
        self.path = os.path.join(self.folder, "x.nc")
        if os.path.exists(self.file):
            return
        allowed = self.allowed + self.recovered * bool(self.said)
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".pnctmp"):
                work = self.path = os.path.join(self.folder, name)
                if ".0000." in name:
                    # a set is opened by the names of its subfiles
                    recover(system, work, writable=True)
                    self.path = os.path.join(self.folder, "x.nc")
                    os.rename(work, f"{self.path}.0000")
                with suppress(OSError):
                    seen = self.read(system)
                    if seen is not None and not broken(seen, allowed, torn=torn, all_known=self.all_known):
                        return
                if self.path != work:
                    os.rename(f"{self.path}.0000", work)
        if not allowed[0].there:
            # nothing was flushed to it
            self.path = os.path.join(self.folder, "x.nc")

    def go_on(self, system: Rebuilt, torn: bool) -> bool:
        try:
            with pnc_vol.File(self.path, "r+", system=system, **self.options) as f:
                recovered = read(self.path, f)
                f.attrs["after the crash"] = 1
        except NotYetError:
            # HDF5 blobs are written once
            return False
        except OSError as error:
            if self.free or (self.unsynced and isinstance(error, LogError)):
                return False
            raise
        again = self.read(system)
        if again is None or self.free:
            return False
        self.complain("opened for writing", recovered, self.recovered, torn)
        wanted = Contents(recovered.datasets, {**recovered.attrs, "@after the crash": 1}, recovered.groups)
        if wrong := broken(again, [wanted], torn=False, all_known=True):
            raise Broken(f"changed after the crash: {wrong}")
        if errors := [one for one in pnc_vol.check(self.file, values=False) if one.severity == "error"]:
            raise Broken(f"after recovery it is no valid file: {errors[0]}")
        return True

    def at_recoveries(self) -> None:
        """Kill the next opening for writing."""
        real = self.found.disk.write(self.folder)
        recorder = Recorder(
            self.folder, Rebuilt({number: self.numbers.get(inode, 0) for number, inode in real.items()})
        )
        try:
            with pnc_vol.File(self.path, "r+", system=recorder, **self.options):
                pass
        except (FileNotFoundError, NotYetError):
            return
        except LogError:
            if self.unsynced:
                return
            raise
        finally:
            recorder.finish()
        disk, done = recorder.start.copy(), 0
        points = kill_points(recorder.changes, seed=self.found.at)
        for at, tear in points[:: max(1, len(points) // MOST_AGAIN)]:
            for change in recorder.changes[done:at]:
                disk.apply(change)
            done = at
            state = killed(recorder.changes, disk, at, tear)
            self.said = f"; then opened for writing, and {state.said}"
            self.at_state(state.disk, recorder.real, self.found.torn or state.torn)

    def read(self, system: Rebuilt) -> Contents | None:
        """What a reader sees; None if the file need not be readable and is not."""
        if not os.path.exists(self.file):
            return NO_FILE
        try:
            with pnc_vol.File(self.path, "r", system=system) as f:
                return read(self.path, f)
        except OSError:
            if self.free:
                return None
            raise

    def complain(self, when: str, seen: Contents, allowed: list[Contents], torn: bool) -> None:
        if not self.free and (wrong := broken(seen, allowed, torn=torn, all_known=self.all_known)):
            raise Broken(f"{when}: {wrong}")


def _listing(folder: str) -> list[tuple[str, int, int]]:
    found = []
    for name in os.listdir(folder):
        there = os.lstat(os.path.join(folder, name))
        found.append((name, there.st_size, there.st_mtime_ns))
    return found
