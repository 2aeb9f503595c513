"""What happens to a program on its way, and what must hold afterwards.

An event is a class: an object of it is called with a program, an empty folder and the tally, and raises what is wrong.
`EVENTS` is the table.

nothing                      the program runs to its end
kill, power                  a process that is killed, a machine that stops, after any change of a file
recovery                     a process that is killed, and another one that is killed while it recovers the file
elsewhere                    between the acts, another process reads the file, and tries to write it
error, short                 the operating system refuses a call, or writes half of what it is given
interrupt, memory            Ctrl-C, or no memory, at any line of the package
"""

from __future__ import annotations

import errno
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import elsewhere
import promises
from acts import Step
from crash.examining import states_of
from crash.recording import Rebuilt, Recorder
from crash.states import State
from interrupts import Interrupts
from options import in_file, put_into_environment, refusal
from promises import Moment
from run import Loads, Program, Run, Twinned, Wrong, execute, inside, left, said, same_bytes, twin

import pnc_vol
from pnc_vol.testing.faults import FaultSystem, StopSystem


@dataclass
class Tally:
    """What became of programs."""

    programs: int = 0
    refused: int = 0
    acts: int = 0
    states: int = 0


UNCOUNTED = Tally()

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

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        model = execute(program, folder)
        tally.refused += model is None
        tally.acts += len(program.steps)
        if model is not None:
            same_bytes(program, folder, execute)
        if model is not None and crc32(program.seed.encode()) % 4 == 0:
            try:
                twin(program)
            except Exception as error:
                raise Twinned(f"h5py: {said(error)}") from error


def refused(program: Program, tally: Tally) -> bool:
    """Whether nothing can happen to a program, which is counted: no file is on disk."""
    applies = in_file(program.config) and refusal(program.config) is None
    tally.refused += not applies
    return not applies


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
        run.create()
        moment(None, 0, [])
        for step in program.steps:
            recorder.notice()
            begin, mids = len(recorder.changes), promises.between(run.model, step)
            if run.step(step):
                moment(step, begin, mids)
        recorder.notice()
        begin = len(recorder.changes)
        run.last_close()
        moment(Step("close", {}), begin, [])
    finally:
        recorder.finish()
        run.let_go()
    return Recording(recorder.start, recorder.changes, recorder.real, moments)


@event("kill")
@event("power")
class Crash:
    """What a kill or a power failure leaves of the files is rebuilt, opened, recovered, changed and read again."""

    begun = False
    """Whether a recovery was begun before."""

    def __init__(self, states: int, name: str) -> None:
        self.states, self.kind = states, name

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        if refused(program, tally):
            return
        recording = recorded(program, folder)
        chance = random.Random(f"{program.seed} {self.kind}")
        for number, state in self.some(recording, chance):
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
        self.examine(left(program.config, folder, system), recording.moments, state, chance)

    def examine(self, run: Run, moments: list[Moment], state: State, chance: random.Random) -> None:
        """Open it, recover it, and go on with it."""
        promises.examine(run, moments, self.kind, state, chance, begun=self.begun)


@event("recovery")
class Twice(Crash):
    """A process is killed, its recovery is killed as well, and then the file is recovered again."""

    begun = True

    def __init__(self, states: int, name: str) -> None:
        super().__init__(states, "kill")

    def examine(self, run: Run, moments: list[Moment], state: State, chance: random.Random) -> None:
        n, by_itself = 1 + int(chance.expovariate(1 / 8)), chance.random() < 0.5
        child = os.fork()
        if not child:
            run.system = StopSystem(run.system, stop_at=n)
            with suppress(BaseException):
                promises.recovered(run, None, by_itself=by_itself and run.config["layout"] == "canonical")
            os._exit(0)
        os.waitpid(child, 0)
        super().examine(run, moments, state, chance)


class Crashed(AssertionError):
    """What a crash leaves is not what is promised."""


# ------------------------------------------------------------------------------------------ another process


class Beside(Run):
    """Between the acts another process reads what is promised to it, and is refused as a writer."""

    def returned(self) -> None:
        step = self.steps[len(self.moments) - 1] if self.moments else None
        at = len(self.moments)
        self.moments.append(promises.moment(self, step, at, at + 1, []))
        if self.chance.random() > self.often:
            return
        self.looks += 1
        if not self.moments[-1].published:
            return
        if self.config["locking"] is not False and not (told := elsewhere.write(self.place)).startswith("LockedError"):
            raise Wrong(f"another process opens the file for writing: {told or 'without an error'}")
        wanted = promises.promise(self.moments, at + 1, "kill")
        got = elsewhere.seen(self.place)
        if isinstance(got, str) and wanted.least is not None:
            raise Wrong(f"another process: {got}")
        if not isinstance(got, str) and wanted.least is not None:
            promises.complain("another process", got, wanted.allowed, torn=False, known=True)


@event("elsewhere")
class Elsewhere:
    """Another process reads between the acts, and tries to write; `states`: about so many times."""

    def __init__(self, states: int, name: str) -> None:
        self.states = states

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        if refused(program, tally):
            return
        if program.config["layout"] not in ("canonical", "blob"):
            tally.refused += 1
            return
        run = Beside(program.config, folder, seed=program.seed)
        run.__dict__.update(chance=random.Random(program.seed), moments=[], looks=0, steps=[])
        run.often = self.states / (len(program.steps) + 1)
        try:
            run.create()
            run.returned()
            for step in program.steps:
                run.steps.append(step)
                if not run.step(step):
                    run.steps.pop()
            run.last_close()
            if told := elsewhere.write(run.place):
                raise Wrong(f"another process writes after the close: {told}")
        finally:
            run.let_go()
        tally.states += run.looks


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


ERRORS = {"interrupt": KeyboardInterrupt, "memory": MemoryError}


class Failing(FaultSystem):
    """Fails with an error that the call can give."""

    def __init__(self, fail_at: int, chance: random.Random, mode: Any) -> None:
        calls = ("pwrite", "pwritev") if mode == "short" else tuple(ERRNOS)
        super().__init__(fail_at=fail_at, mode=mode, calls=calls)
        self.chance, self.where, self.happened = chance, "", False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.count + 1 == self.fail_at and name in self.calls:
            self.errno, self.happened = self.chance.choice(ERRNOS[name]), True
            self.where = f"{name} {self.fail_at}" + (f" {errno.errorcode[self.errno]}" if self.mode == "once" else "")
        return super().call(name, args, kwargs)


@event("error")
@event("short")
@event("interrupt")
@event("memory")
class Trouble:
    """A program in which something goes wrong once; then the file is closed, and holds what was done before."""

    def __init__(self, states: int, name: str) -> None:
        self.states, self.kind = states, name
        self.error = ERRORS.get(name)

    def __call__(self, program: Program, folder: str, tally: Tally = UNCOUNTED) -> None:
        if refused(program, tally):
            return
        chance = random.Random(f"{program.seed} {self.kind}")
        if self.error is not None:
            # what is loaded or kept at the first use is not done again
            self.once(program, inside(folder, "before"), Failing(0, chance, "once"))
        counted = self.once(program, inside(folder, "0"), self.counting(chance))
        for n in sorted(chance.sample(range(1, counted.count + 1), min(self.states, counted.count))):
            trouble = self.at(n, counted, random.Random(f"{program.seed} {n}"))
            self.once(program, inside(folder, str(n)), trouble)
            tally.states += trouble.happened

    def counting(self, chance: random.Random) -> Any:
        """What counts the places at which it can go wrong."""
        return self.at(0, None, chance) if self.error is None else Interrupts(0, self.error)

    def at(self, n: int, counted: Any, chance: random.Random) -> Any:
        """What makes it go wrong at the n-th place."""
        if self.error is not None:
            return counted.at_line(n)
        return Failing(n, chance, "once" if self.kind == "error" else "short")

    def once(self, program: Program, folder: str, trouble: Any) -> Any:
        """Run the program with something going wrong, or nothing."""
        load = Loads()
        run = Run(program.config, folder, seed=program.seed)
        moments: list[Moment] = []
        failed: BaseException | None = None
        lost = False
        system = isinstance(trouble, Failing)
        with unheard() as ignored, nullcontext() if system else trouble:
            run.system = trouble if system else None

            def forgotten() -> None:
                nonlocal lost
                if told := self.foreign(ignored):
                    # a file that nobody holds any more could not be closed, and nobody could be told
                    lost = True
                    raise told[0]

            run.forgotten = forgotten  # type: ignore[method-assign]
            try:
                run.create()
                moments.append(promises.moment(run, None, 0, 0, []))
                for step in program.steps:
                    mids, returned = promises.between(run.model, step), False
                    try:
                        if not run.step(step):
                            continue
                        returned = True
                    finally:
                        at = len(moments)
                        moments.append(promises.moment(run, step, at, at + 1, mids, failed=not returned))
                run.last_close()
            except (Exception, KeyboardInterrupt) as error:
                failed = error
        what = f"{self.kind} {trouble.where}"
        try:
            with unheard() as ignored:
                self.judge(program, run, moments, failed, load, lost=lost)
            if told := self.foreign(ignored):
                raise told[0]
        except Exception as error:
            raise Troubled(f"{said(error)} [{what}, which raised {said(failed) if failed else 'nothing'}]") from error
        finally:
            ignored.clear()
        return trouble

    def foreign(self, ignored: list[BaseException]) -> list[BaseException]:
        """All but Ctrl-C or no memory in a destructor, after which the file is closed at the next call."""
        return [error for error in ignored if self.error is None or not isinstance(error, self.error)]

    def judge(self, program: Program, run: Run, moments: list[Moment], failed: Any, load: Loads, *, lost: bool) -> None:
        """After the program has ended, by itself or not; `lost`: a close failed, and cannot be tried again."""
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
        put_into_environment({})
        # a file that the collector found in the frames of an error is closed by the next call that opens one
        pnc_vol.File("next.nc", "w", driver="memory").close()
        if program.config["deferred"]:
            pnc_vol.finalize()
        load.check()
        if moments:
            promises.after_trouble(run, moments, closed=closed and not lost, quiet=failed is None)

    def allowed(self) -> tuple[type[BaseException], ...]:
        """What the program may raise."""
        if self.kind == "interrupt":
            return (KeyboardInterrupt, OSError, pnc_vol.PncVolError)
        if self.kind == "memory":
            return (MemoryError, OSError, pnc_vol.PncVolError)
        return (OSError, pnc_vol.PncVolError)


@contextmanager
def unheard() -> Iterator[list[BaseException]]:
    """Exceptions that Python can raise nowhere, as those of a destructor: they are noted, and not printed."""
    found: list[BaseException] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda told: found.append(told.exc_value) if told.exc_value is not None else None
    try:
        yield found
    finally:
        sys.unraisablehook = before


class Troubled(AssertionError):
    """What is left after trouble is not what was done before."""
