"""Damaged files of every kind that the package reads: ``python tests/engine/mutants.py --count 1000 --seed 1``.

A mutant is a function of the kind, the seed and its number: whole files (`mutant_kinds`), damaged in one to four places
by flipped bits and bytes, cuts, additions, extreme numbers in the place of fields, and pieces of other files; often
with checksums made right again. It is used as a user would. What must hold:

* only documented errors: of this package, and of the operating system;
* an end within `SECONDS`, and no crash of the process;
* no memory beyond `ROOM` for addresses and `MEMORY` for bytes, and no more than `MEMORY` written: the files are small;
* no warning but those of this package; no descriptor and no thread that stays.

A process of its own tries the mutants of a kind, so that a crash is a failure of one mutant. A failure prints the
command that tries it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "shared")]

from mutant_kinds import KINDS, VERBS, Kind, tally, verb

import pnc_vol

SECONDS = 20.0
"""Of one mutant, before it counts as a hang; a busy machine takes a hundredth of it."""
PATIENCE = 40.0
"""Seconds more, before a process that does not heed its alarm is killed."""
ROOM, MEMORY = 256 << 20, 64 << 20
"""Bytes of address space, and of memory, that a mutant may take beyond what whole files take."""
LONGEST = 256 << 20
"""Bytes of a file; what would write more gets the error of a device that is too small."""
_NOT_WHOLE = 3


class Failure(NamedTuple):
    """A mutant that did what none may do."""

    kind: str
    seed: str
    number: int
    told: str

    @property
    def command(self) -> str:
        return f"python tests/engine/mutants.py --kind {self.kind} --seed {self.seed} --first {self.number} --count 1"


# ---------------------------------------------------------------------------------------------- damages

_EXTREMES = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    255,
    2**15 - 1,
    2**15,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**60,
    2**62,
    2**63 - 1,
    2**63,
)


def _flipped(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    data[at] ^= 1 << chance.randrange(8)


def _another_byte(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _extreme(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    """A number in the place of a field: an extreme one, or near to what was there."""
    width = chance.choice((2, 4, 4, 8, 8))
    at &= -min(width, 4)
    order = chance.choice(("big", "little"))
    old = int.from_bytes(data[at : at + width], order)  # type: ignore[arg-type]
    new = chance.choice((*_EXTREMES, -1, -2, -(2**31), old + 1, old - 1, 2 * old, old // 2, -old, old ^ 1 << 31))
    data[at : at + width] = (new % 256**width).to_bytes(width, order)  # type: ignore[arg-type]


def _cut(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    del data[at:]


def _taken_out(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    del data[at : at + chance.choice((1, 4, 8, 64, chance.randrange(1, 200)))]


def _longer(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    n = chance.choice((1, 4, 64, chance.randrange(1, 4000)))
    data += chance.choice((bytes(n), b"\xff" * n, chance.randbytes(n), bytes(data[at : at + n])))


def _repeated(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    """A piece is where another one was, or between."""
    n, to = chance.choice((1, 4, 8, 16, 64, chance.randrange(1, 300))), chance.randrange(len(data))
    piece = bytes(data[at : at + n])
    data[to : to + chance.choice((0, len(piece)))] = piece


def _of_others(data: bytearray, at: int, chance: random.Random, others: list[bytes]) -> None:
    other = chance.choice(others)
    begin = chance.randrange(len(other))
    piece = other[begin : begin + chance.choice((8, 64, 200, len(other)))]
    data[at : at + chance.choice((0, len(piece)))] = piece


_DAMAGES = (
    _flipped, _flipped, _another_byte, _another_byte, _extreme, _extreme, _extreme, _cut, _taken_out, _longer,
    _repeated, _of_others,
)  # fmt: skip


def damaged(kind: Kind, whole: dict[str, bytes], others: list[bytes], chance: random.Random) -> dict[str, bytearray]:
    """The files of a mutant."""
    content = {name: bytearray(data) for name, data in whole.items()}
    targets = sorted(name for name in content if name.endswith(kind.damaged))
    well_formed = kind.other is not None and chance.random() < 0.5
    if kind.other is not None and well_formed:
        kind.other(content, chance)
    if not well_formed or chance.random() < 0.2:
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            data = content[chance.choice(targets)]
            if not data:
                continue
            # the beginnings of files say most
            at = chance.randrange(min(len(data), chance.choice((64, 400, 1 << 40))))
            chance.choice(_DAMAGES)(data, at, chance, others)
    if kind.right is not None and chance.random() < 0.6:
        kind.right(content, chance)
    return content


# ------------------------------------------------------------------------------------------- the files


class Stage:
    """A folder in which the files of a kind are put again and again.

    Files are written where they are, so that they stay the files that logs and journals name.
    """

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.whole: dict[str, bytes] = {}
        self._make()

    def _make(self) -> None:
        """In a process of its own, which is not closed properly; its random bytes are the same in every run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        child = os.fork()
        if not child:
            code = 1
            try:
                os.urandom = random.Random(7).randbytes
                warnings.simplefilter("ignore")
                self.kind.make(self.folder)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1]:
            raise RuntimeError(f"whole files cannot be made in {self.folder}")
        self.whole = {str(path.relative_to(self.folder)): path.read_bytes() for path in self._files()}
        assert any(name.endswith(self.kind.damaged) for name in self.whole), sorted(self.whole)
        self._inodes = {name: (self.folder / name).stat().st_ino for name in self.whole}

    def _files(self) -> Iterator[Path]:
        for root, _, names in os.walk(self.folder):
            yield from (Path(root, name) for name in names)

    def put(self, content: dict[str, Any]) -> None:
        """These files, and no other ones."""
        for path in self._files():
            if str(path.relative_to(self.folder)) not in content:
                path.unlink()
        kept = self.folder / "x.nc"
        if "x.nc" in self._inodes and (not kept.exists() or kept.stat().st_ino != self._inodes["x.nc"]):
            self._make()
        for name, data in content.items():
            path = self.folder / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(fd, data)
            os.close(fd)


# ---------------------------------------------------------------------------------------------- the trial


class _Hang(BaseException):
    """The time of a mutant is over; no error handler of the package takes it for one of its own."""


def _alarm(*_: object) -> None:
    raise _Hang("".join(traceback.format_stack(limit=14)))


def damaged_content(
    kind: str, seed: str, number: int, whole: dict[str, bytes], others: list[bytes]
) -> dict[str, bytearray]:
    """The files of a mutant: the same for the same numbers, if the whole files and the others are."""
    return damaged(KINDS[kind], whole, others, random.Random(f"{kind} {seed} {number}"))


class Trial:
    """Mutants of one kind, tried in this process.

    Parameters
    ----------
    others : pieces of them get into the files.
    """

    def __init__(self, kind: str, seed: str, stage: Stage, others: list[bytes]) -> None:
        self.kind, self.seed, self.stage, self.others = kind, seed, stage, others
        self._unraised: list[str] = []
        sys.unraisablehook = lambda told: self._unraised.append(f"{told.exc_type.__name__}: {told.exc_value}, ignored")
        threading.excepthook = lambda told: self._unraised.append(
            f"in a thread: {told.exc_type.__name__}: {told.exc_value}"
        )
        signal.signal(signal.SIGALRM, _alarm)

    def content(self, number: int) -> dict[str, bytearray]:
        return damaged_content(self.kind, self.seed, number, self.stage.whole, self.others)

    def limited(self) -> None:
        """Take what whole files take, all uses of them; then limit the addresses of this process."""
        for number in range(8):
            if told := self.use(self.stage.whole, random.Random(number), limited=False):
                raise AssertionError(f"whole files of {self.kind}: {told}")
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LONGEST, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def told_of(self, number: int) -> str:
        """What a mutant did that none may do; "" if it did not."""
        return self.use(self.content(number), random.Random(f"use {self.kind} {self.seed} {number}"))

    def use(self, content: dict[str, Any], chance: random.Random, *, limited: bool = True) -> str:
        self.stage.put(content)
        touched = sorted(name for name, data in content.items() if not limited or data != self.stage.whole.get(name))
        before, taken, written = self._held(), _memory(anew=True), _written()
        self._unraised.clear()
        told = ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                self.stage.kind.use(self.stage.folder, touched, chance)
            except _Hang as hang:
                told = f"hangs: {hang}"
            except Exception as error:
                told = "".join(traceback.format_exception(error)[-12:])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        for warning in caught:
            if issubclass(warning.category, pnc_vol.PncVolWarning):
                # a journal that is not believed is no error
                tally.refused += 1
            else:
                told = told or f"{warning.category.__name__}: {warning.message} ({warning.filename}:{warning.lineno})"
        for what, number in (("takes", _memory() - taken), ("writes", _written() - written)):
            if number > MEMORY:
                told = told or f"{what} {number >> 20} MiB"
        if not told and self._held() != before:
            gc.collect()
            if self._held() != before:
                told = f"(descriptors, threads) were {before}, and are {self._held()}"
        return told or "; ".join(self._unraised)

    @staticmethod
    def _held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()


def _memory(*, anew: bool = False) -> int:
    """Bytes that this process had at most since this was asked anew.

    Else what it had at most before, which may be given back by now, would hide what is taken.
    """
    if anew:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _written() -> int:
    """Bytes that this process has written so far."""
    with open("/proc/self/io", "rb") as file:
        return int(file.read().split(b"wchar: ")[1].split()[0])


def _serve(trial: Trial, numbers: range, at: mmap, pipe: int) -> None:
    """Try mutants; say which one is tried, and on the pipe what failed."""
    faulthandler.disable()  # a crash is told by whoever waits
    for number in numbers:
        at[:8] = number.to_bytes(8, "little")
        if told := trial.told_of(number):
            os.write(pipe, json.dumps([number, told[-6000:]]).encode() + b"\n")
        at[8:16] = tally.refused.to_bytes(8, "little")


def tried(kind: str, seed: str, numbers: range, folder: Path, others: list[bytes]) -> Iterator[tuple[int, str]]:
    """The mutants that fail, by their numbers, and what they did.

    A process that crashes or does not end is one failure, and another process goes on behind it.
    """
    stage = Stage(KINDS[kind], folder / f"{kind}-{numbers.start}")
    at = mmap(-1, 16)
    while numbers:
        at[:8] = numbers.start.to_bytes(8, "little")
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = _NOT_WHOLE
            try:
                os.close(reading)
                trial = Trial(kind, seed, stage, others)
                trial.limited()
                code, tally.refused = 1, 0
                _serve(trial, numbers, at, writing)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(writing)
        ended = yield from _watched(child, reading, at)
        number = int.from_bytes(at[:8], "little")
        tally.refused += int.from_bytes(at[8:16], "little")
        if ended:
            yield number, ended
        numbers = range(number + 1, numbers.stop)
    shutil.rmtree(stage.folder, ignore_errors=True)


def _watched(child: int, reading: int, at: mmap) -> Iterator[tuple[int, str]]:
    """What a process says of its mutants, and at last how it ended, "" if properly."""
    ended, last, since, text = "", at[:8], time.monotonic(), b""
    while True:
        if select.select([reading], [], [], 1.0)[0]:
            more = os.read(reading, 1 << 16)
            text += more
            while b"\n" in text:
                line, _, text = text.partition(b"\n")
                number, told = json.loads(line)
                yield number, told
            if not more:
                break
        if at[:8] != last:
            last, since = at[:8], time.monotonic()
        elif time.monotonic() - since > SECONDS + PATIENCE:
            ended = "hangs where no signal is handled"
            os.kill(child, signal.SIGKILL)
            since = time.monotonic()
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    if os.waitstatus_to_exitcode(status) == _NOT_WHOLE:
        raise RuntimeError("whole files fail already")
    if not ended and status:
        ended = f"the process ended with {os.waitstatus_to_exitcode(status)}"
    return ended  # type: ignore[return-value]


def donors(folder: Path) -> list[bytes]:
    """Whole files of all kinds, of which pieces get into others."""
    found = []
    for name, kind in KINDS.items():
        whole = Stage(kind, folder / f"of {name}").whole
        found += [data for _, data in sorted(whole.items()) if data]
        shutil.rmtree(folder / f"of {name}")
    return found


def failures(kinds: list[str], seed: str, first: int, count: int) -> Iterator[Failure]:
    """Try so many mutants, the same number of each kind."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=base) as made:
        others = donors(Path(made))
        for word in VERBS:
            # loaded here once, not by each process
            verb(word, "--help")
        for i, kind in enumerate(kinds):
            share, refused = (count + len(kinds) - 1 - i) // len(kinds), tally.refused
            for number, told in tried(kind, seed, range(first, first + share), Path(made), others):
                yield Failure(kind, seed, number, told)
            print(f"{kind}: {share} mutants, {tally.refused - refused} documented errors and warnings", flush=True)


def keep(failure: Failure, target: Path) -> None:
    """Leave the files of a mutant in a folder."""
    with tempfile.TemporaryDirectory() as made:
        stage = Stage(KINDS[failure.kind], Path(made, "whole"))
        content = Trial(failure.kind, failure.seed, stage, donors(Path(made))).content(failure.number)
        stage.put(content)
        shutil.copytree(stage.folder, target / f"{failure.kind}-{failure.seed}-{failure.number}", dirs_exist_ok=True)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tests/engine/mutants.py", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="how many, of all kinds together (1000)")
    parser.add_argument("--seed", default="1", help="of all mutants (1)")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="only of this kind; may be repeated")
    parser.add_argument("--first", type=int, default=0, help="number of the first one of each kind; a failure names it")
    parser.add_argument("--keep", type=Path, help="a folder for the files of the first failure of each sort")
    args = parser.parse_args(given)
    begun, sorts = time.monotonic(), Counter[str]()
    for failure in failures(args.kind or list(KINDS), args.seed, args.first, args.count):
        sort = f"{failure.kind}: {failure.told.strip().splitlines()[-1]}"[:200]
        sorts[sort] += 1
        if sorts[sort] == 1:
            print(f"--- {failure.command}\n{failure.told.strip()[-3000:]}\n", flush=True)
            if args.keep:
                keep(failure, args.keep)
    seconds = time.monotonic() - begun
    print(
        f"{args.count} mutants of {args.kind or 'all kinds'}, seed {args.seed}, {tally.refused} errors and warnings, "
        f"{seconds:.0f} s, {args.count / seconds:.0f} per second; failures: {sum(sorts.values())} of {len(sorts)} sorts"
    )
    for sort, number in sorts.most_common():
        print(f"  {number} times {sort}")
    return bool(sorts)


if __name__ == "__main__":
    sys.exit(main())
