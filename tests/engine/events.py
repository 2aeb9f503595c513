"""What happens to a program on its way, and what must hold afterwards.

An event is a class: an object of it is called with a program, an empty folder and the tally, and raises what is wrong.
`EVENTS` is the table.

nothing                      the program runs to its end
kill, power                  a process that is killed, a machine that stops, after any change of a file
error, short                 the operating system refuses a call, or writes half of what it is given
interrupt, memory            Ctrl-C, or no memory, at any line of the package
"""

from __future__ import annotations

import errno
import gc
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import promises
from acts import Step
from crash.examining import states_of
from crash.recording import Rebuilt, Recorder
from crash.states import State
from interrupts import Interrupts
from options import in_file, refusal
from promises import Moment
from run import Loads, Program, Run, Tally, said, serial, try_close

import pnc_vol
from pnc_vol.system import REAL
from pnc_vol.testing.faults import FaultSystem

EVENTS: dict[str, Callable[[int], Any]] = {}
"""By name; `ranks` puts two more here."""


def event(name: str) -> Callable[[type], type]:
    """Put a class into the table."""

    def put(cls: Any) -> Any:
        EVENTS[name] = lambda states: cls(states, name)
        return cls

    return put


@event("nothing")
class Nothing:
    """Only the program, and h5py's turn with every fourth."""

    def __init__(self, states: int, name: str) -> None:
        pass

    def __call__(self, program: Program, folder: str, tally: Tally | None = None) -> None:
        serial(program, folder, tally)


def applies(program: Program) -> bool:
    """Whether a file is on disk, so that something can happen to it."""
    return in_file(program.config) and refusal(program.config) is None


# --------------------------------------------------------------------------------------------- kill and power


@dataclass
class Recording:
    """A program that ran on a system that wrote everything down; in the form that `states_of` takes."""

    start: Any
    changes: list[Any]
    real: dict[int, int]
    moments: list[Moment]


def recorded(program: Program, folder: str) -> Recording:
    """Run a program, noting what holds after each act."""
    run = Run(program.config, folder, seed=program.seed, system=None)
    recorder = Recorder(folder)
    run.system = recorder
    moments: list[Moment] = []

    def moment(step: Step | None, begin: int, mids: list[Any]) -> None:
        recorder.notice()
        moments.append(promises.moment(run, step, begin, len(recorder.changes), mids))

    try:
        run.f = run.open("w")
        moment(None, 0, [])
        for step in program.steps:
            recorder.notice()
            begin, mids = len(recorder.changes), promises.between(run.model, step)
            if run.step(step):
                moment(step, begin, mids)
        recorder.notice()
        begin = len(recorder.changes)
        run.end("close")
        if program.config["deferred"]:
            pnc_vol.finalize()
        moment(Step("close", {}), begin, [])
    finally:
        recorder.finish()
        run.kept.clear()
        if run.f is not None:
            try_close(run.f)
    return Recording(recorder.start, recorder.changes, recorder.real, moments)


@event("kill")
@event("power")
class Crash:
    """What a kill or a power failure leaves of the files is rebuilt, opened, recovered, changed and read again."""

    def __init__(self, states: int, name: str) -> None:
        self.states, self.kind = states, name

    def __call__(self, program: Program, folder: str, tally: Tally | None = None) -> None:
        if not applies(program):
            return
        recording = recorded(program, folder)
        chance = random.Random(f"{program.seed} {self.kind}")
        for number, state in self.some(recording, chance):
            if tally is not None:
                tally.states += 1
            try:
                self.look(program, recording, state, folder, chance)
            except Exception as error:
                raise Crashed(f"{said(error)} [{self.kind} {number}: {state.said}]") from error

    def some(self, recording: Any, chance: random.Random) -> Iterator[tuple[int, State]]:
        """As many states as are asked for, spread over the whole program."""
        if self.kind == "power":
            yield from states_of(recording, "power", seed=chance.randrange(1 << 30), count=self.states)
            return
        total = sum(1 for _ in states_of(recording, "kill", count=self.states))
        wanted = set(chance.sample(range(total), min(self.states, total)))
        for i, found in enumerate(states_of(recording, "kill", count=self.states)):
            if i in wanted:
                yield found

    def look(self, program: Program, recording: Recording, state: State, folder: str, chance: random.Random) -> None:
        told = state.disk.write(folder)
        system = Rebuilt({real: recording.real.get(inode, 0) for real, inode in told.items()})
        run = Run.__new__(Run)
        run.__dict__.update(config=program.config, folder=folder, system=system, comm=None, h=pnc_vol)
        run.place = os.path.join(folder, "x.nc")
        run.f = None
        promises.examine(run, recording.moments, self.kind, state, chance)


class Crashed(AssertionError):
    """What a crash leaves is not what is promised."""


# ------------------------------------------------------------------------------- errors, interrupts, memory

ERRNOS = {
    "open": (errno.ENOSPC, errno.EMFILE, errno.EACCES, errno.EIO),
    "pwrite": (errno.ENOSPC, errno.EIO, errno.EDQUOT), "pwritev": (errno.ENOSPC, errno.EIO, errno.EDQUOT),
    "pread_into": (errno.EIO,), "preadv": (errno.EIO,), "ftruncate": (errno.EIO, errno.ENOSPC),
    "fallocate": (errno.ENOSPC, errno.EOPNOTSUPP), "fsync": (errno.EIO, errno.ENOSPC), "fdatasync": (errno.EIO,),
    "fsync_dir": (errno.EIO,), "rename": (errno.EIO, errno.EACCES, errno.ENOSPC), "link": (errno.EMLINK, errno.EPERM),
    "unlink": (errno.EIO, errno.EACCES), "mkdir": (errno.ENOSPC, errno.EACCES), "rmdir": (errno.EIO,),
    "fchmod": (errno.EPERM,), "copy_range": (errno.EIO, errno.ENOSPC, errno.EOPNOTSUPP), "mmap": (errno.ENOMEM,),
    "fstat": (errno.EIO,), "setxattr": (errno.EOPNOTSUPP, errno.ENOSPC), "listdir": (errno.EIO,),
}  # fmt: skip
"""By call, the errors that can come there."""


class Failing(FaultSystem):
    """Fails with an error that the call can give."""

    def __init__(self, fail_at: int, chance: random.Random, mode: Any) -> None:
        calls = ("pwrite", "pwritev") if mode == "short" else tuple(ERRNOS)
        super().__init__(REAL, fail_at=fail_at, mode=mode, calls=calls)
        self.chance, self.what = chance, ""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.count + 1 == self.fail_at and name in self.calls:
            self.errno, self.what = self.chance.choice(ERRNOS[name]), name
        return super().call(name, args, kwargs)


@event("error")
@event("short")
@event("interrupt")
@event("memory")
class Trouble:
    """A program in which something goes wrong once; then the file is closed, and holds what was done before."""

    def __init__(self, states: int, name: str) -> None:
        self.states, self.kind = states, name

    def __call__(self, program: Program, folder: str, tally: Tally | None = None) -> None:
        if not applies(program):
            return
        chance = random.Random(f"{program.seed} {self.kind}")
        total = self.once(program, _inside(folder, "0"), 0, chance)
        for n in sorted(chance.sample(range(1, total + 1), min(self.states, total))):
            if tally is not None:
                tally.states += 1
            self.once(program, _inside(folder, str(n)), n, random.Random(f"{program.seed} {n}"))

    @contextmanager
    def happening(self, n: int, chance: random.Random) -> Iterator[Any]:
        """What makes it happen: a system for `File`, or None; with its `count`."""
        if self.kind in ("error", "short"):
            yield Failing(n, chance, "once" if self.kind == "error" else "short")
        else:
            with Interrupts(n, KeyboardInterrupt if self.kind == "interrupt" else MemoryError) as lines:
                yield lines

    def once(self, program: Program, folder: str, n: int, chance: random.Random) -> int:
        """Run the program with the n-th call or line failing; how many there were."""
        load = Loads()
        run = Run(program.config, folder, seed=program.seed)
        moments: list[Moment] = []
        failed: BaseException | None = None
        with self.happening(n, chance) as trouble:
            run.system = trouble if isinstance(trouble, Failing) else None
            try:
                run.f = run.open("w")
                moments.append(promises.moment(run, None, 0, 0, []))
                for step in program.steps:
                    mids = promises.between(run.model, step)
                    try:
                        if not run.step(step):
                            continue
                    finally:
                        moments.append(promises.moment(run, step, len(moments), len(moments) + 1, mids))
                run.end("close")
            except (Exception, KeyboardInterrupt) as error:
                failed = error
        what = f"{self.kind} {n}: {getattr(trouble, 'what', '') or getattr(trouble, 'where', '')}"
        try:
            self.judge(program, run, moments, failed, load)
        except Exception as error:
            raise Troubled(f"{said(error)} [{what}, which raised {said(failed) if failed else 'nothing'}]") from error
        return int(trouble.count)

    def judge(self, program: Program, run: Run, moments: list[Moment], failed: Any, load: Loads) -> None:
        """After the program has ended, by itself or not."""
        if failed is not None and not isinstance(failed, self.allowed()):
            raise failed
        closed, run.system = failed is None, None
        if failed is not None:
            # its frames hold the file
            failed.__traceback__ = failed.__context__ = failed.__cause__ = None
            try:
                if run.f:
                    run.f.close()
                    closed = True
            except OSError:
                closed = False
        run.kept.clear()
        run.f = None
        gc.collect()
        if program.config["deferred"]:
            pnc_vol.finalize()
        load.check()
        if moments:
            promises.after_trouble(run, moments, closed=closed, quiet=failed is None)

    def allowed(self) -> tuple[type[BaseException], ...]:
        """What the program may raise."""
        if self.kind == "interrupt":
            return (KeyboardInterrupt, OSError, pnc_vol.PncVolError)
        if self.kind == "memory":
            return (MemoryError, OSError, pnc_vol.PncVolError)
        return (OSError, pnc_vol.PncVolError)


class Troubled(AssertionError):
    """What is left after trouble is not what was done before."""


def _inside(folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    os.mkdir(path)
    return path
