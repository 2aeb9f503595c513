"""Programs: made from a seed, run, and looked at; the command line.

Knows: acts, options, the model. Does not know: what happens to a program on its way (`events`), how a failure is made
small (`shrink`).

    python tests/engine --programs 1000 --seed 7            every pair of options, no event
    python tests/engine --programs 1 --seed 7 --first 123   the program of one number
"""

from __future__ import annotations

import gc
import io
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import acts
import elsewhere
import h5py
from acts import ACTS, Step
from interrupts import PACKAGE
from model import Data, Impossible, Model, Values, difference, whole_difference
from options import OTHER, Config, arguments, in_file, logged, normal, on_ranks, prepare, put_into_environment, refusal

import pnc_vol
from pnc_vol.file import registry
from pnc_vol.ranks.mpi_comm import MpiComm

MEMORY = "/dev/shm"


class Wrong(AssertionError):
    """What was read, or is left over, is not what the model says."""


@dataclass
class Program:
    """A configuration and what is done with it.

    seed : str, that made it.
    """

    seed: str
    config: Config
    steps: list[Step] = field(default_factory=list)


def made(seed: str, config: Config, most: int = 25) -> Program:
    """The program of a seed."""
    chance = random.Random(seed)
    program, model = Program(seed, config), Model()
    for _ in range(chance.randint(3, most)):
        step = acts.draw(chance, model, config)
        try:
            ACTS[step.act].effect(model, **step.args)
        except Impossible:
            continue
        program.steps.append(step)
    return program


class World:
    """The ranks of a program: a communicator for each opening, which closes it, and one for the engine."""

    patience = 60.0

    def __init__(self, comm: Any, barriers: Any = None) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._comm, self._barriers = comm, barriers

    def opening(self) -> Any:
        """For `File`: real ranks give their communicator, which is copied; simulated ones a new one."""
        if not isinstance(self._comm, MpiComm):
            return self._comm
        mpi = self._comm.mpi
        return MpiComm(mpi.Split(0, self.rank), self._comm._MPI, timeout=self.patience)

    def barrier(self) -> None:
        """All have come here; real ranks with a communicator for it wait for one that failed until the time is over."""
        if isinstance(self._comm, MpiComm):
            self._comm.agree("barrier")
        elif self._barriers is None:
            self._comm.barrier()
        else:
            all_here, end = self._barriers.Ibarrier(), time.monotonic() + self.patience
            while not all_here.Test():
                if time.monotonic() > end:
                    raise TimeoutError("a rank does not come to where the others are")
                time.sleep(0)


class Run:
    """What an act works with.

    f : the open file; h : pnc_vol, or h5py.
    model : Model, after the act.
    kept : requests, by number.
    twin : bool, whether h5py runs the program.
    system : for `File`, or None.
    shared : bool, whether acts are done as several ranks do them: each posts its part, and what all posted is flushed
        before it is read.
    written : bool, whether nothing waits for a flush in atomic mode (`promises`).
    apart : bool, whether a resize that lays out a dataset anew is between two flushes, as with ranks or a log.
    """

    twin = shared = apart = written = False
    rank, size = 0, 1
    comm: Any = None
    named = True
    recovered_on: Callable[[Run, int, bool], None] | None = None
    """How some ranks recover the file, if not simulated."""

    def __init__(
        self,
        config: Config,
        folder: str,
        *,
        seed: str = "",
        system: Any = None,
        comm: Any = None,
        like: Config | None = None,
    ) -> None:
        self.seed = seed
        self.config, self.folder, self.system, self.comm = config, folder, system, comm
        if like is not None:
            self.shared, self.apart = on_ranks(like), on_ranks(like) or logged(like)
        self.h: Any = pnc_vol
        self.model = Model(tracked=config["track_order"])
        self.kept: dict[int, Any] = {}
        if comm is not None:
            self.rank, self.size, self.shared = comm.rank, comm.size, comm.size > 1
        self.place = prepare(config, folder) if self.rank == 0 else os.path.join(folder, "x.nc")
        self.barrier()
        self.f: Any = None

    def open(self, mode: str) -> Any:
        given = arguments(self.config, self.folder, mode)
        put_into_environment(given)
        if self.system is not None:
            given["system"] = self.system
        if self.comm is not None:
            given["comm"] = self.comm.opening()
        return self.h.File(self.place, mode, **given)

    def create(self) -> None:
        """The first opening."""
        self.f = self.open(self.config["created"])

    def settle(self) -> None:
        """On several ranks: what all of them posted is seen by all."""
        if self.shared:
            self.f.sync()
            self.barrier()

    def barrier(self) -> None:
        """On several ranks: all have come here."""
        if self.comm is not None:
            self.comm.barrier()

    def first(self, call: Callable[[], Any]) -> None:
        """Something that one rank does."""
        if self.rank == 0:
            call()

    def call(self, function: Any) -> Any:
        """A function of a script."""
        return function

    def refuses(self, error: str, call: Callable[[], Any]) -> None:
        """Something that raises an error of a class of the package, by its name."""
        try:
            call()
        except getattr(self.h, error):
            return
        raise Wrong(f"there is no {error}")

    def given(self, values: Values) -> Any:
        """An array to be written."""
        return values.array if values.shape else values.array[()]

    def same(self, got: Any, expected: Any) -> None:
        if wrong := difference(got, expected):
            raise Wrong(wrong)

    def whole(self) -> None:
        if wrong := whole_difference(self.h, self.f, self.model):
            raise Wrong(wrong)

    def end(self, how: str) -> None:
        """End a session: by a close, an exception in a with block, or by forgetting it."""
        self.kept.clear()
        if how == "raise":
            error = ValueError("in a with block")
            self.f.__exit__(ValueError, error, None)
        elif how == "forget":
            self.f = None
            gc.collect()
            self.forgotten()
        else:
            self.f.close()
        if self.config["cache"] == "flush_none":
            if self.config["deferred"]:
                pnc_vol.finalize()
            self.barrier()
            replayed(self)
            self.barrier()

    def last_close(self) -> None:
        """The end of the program."""
        self.end("close")
        if self.config["deferred"]:
            pnc_vol.finalize()

    def let_go(self) -> None:
        """Of a failure nothing is to be left that disturbs the next program."""
        self.kept.clear()
        with suppress(Exception):
            if self.f:
                self.f.close()
        self.f = None

    def read(self) -> None:
        """Another opening reads everything."""
        self.f = self.open("r")
        self.whole()
        self.f.close()
        self.f = None

    def forgotten(self) -> None:
        """A file was forgotten; what is raised then nobody hears (`events`)."""

    def returned(self) -> None:
        """An act has returned on this rank."""

    def read_elsewhere(self) -> None:
        if wrong := elsewhere.difference(self.place, self.model):
            raise Wrong(f"another process: {wrong}")

    def step(self, step: Step) -> bool:
        """Do one act; False if it means nothing any more."""
        one = ACTS[step.act]
        try:
            expected = one.effect(self.model, **step.args)
        except Impossible:
            return False
        one.do(self, expected, **step.args)
        self.returned()
        # A queue that is full writes before the flush: a rank that went on could change what another one still reads.
        self.barrier()
        return True


def serial(config: Config) -> Config:
    """A configuration for one process, which has no MPI-IO."""
    return config | {"stack": "posix"} if "mpio" in config["stack"] else config


def left(config: Config, folder: str, system: Any = None) -> Run:
    """What a program left, for one process that looks at it."""
    run = Run.__new__(Run)
    run.__dict__.update(config=serial(config), folder=folder, system=system, h=pnc_vol, f=None)
    run.place = os.path.join(folder, "x.nc")
    return run


class Twin(Run):
    """The same with h5py, in memory."""

    twin = True

    def __init__(self, *, tracked: bool) -> None:
        self.h, self.model, self.kept, self.tracked = h5py, Model(tracked=tracked), {}, tracked
        self.image: Any = None
        self.f = self.open("w")

    def open(self, mode: str) -> Any:
        if mode == "w":
            return h5py.File("twin.h5", "w", driver="core", backing_store=False, track_order=self.tracked)
        return h5py.File(self.image, mode)

    def end(self, how: str) -> None:
        self.f.flush()
        self.image = io.BytesIO(self.f.id.get_file_image())
        self.kept.clear()
        self.f.close()


class Twinned(AssertionError):
    """h5py does not agree with the model: a mistake of the engine."""


def twin(program: Program) -> None:
    """Run a program with h5py; it must agree with the model."""
    run = Twin(tracked=program.config["track_order"])
    try:
        for step in program.steps:
            if step.args.get("kind") in ("pair", "rows"):
                # h5py has its own rules for the shapes of such values
                continue
            if step.act == "reopen":
                step = step._replace(args=step.args | {"look": False})
            run.step(step)
        run.whole()
    finally:
        if run.f:
            run.f.close()


# ------------------------------------------------------------------------------------------------ one program


def created(program: Program, folder: str, **more: Any) -> Run | None:
    """A run with its file open; None if its configuration is refused, as it must be."""
    refused = refusal(program.config)
    run = Run(program.config, folder, seed=program.seed, **more)
    try:
        run.create()
    except Exception as error:
        if refused and isinstance(error, refused[0]) and refused[1] in str(error):
            return None
        raise
    if refused:
        raise Wrong(f"the opening does not refuse what it is said to refuse: {refused}")
    return run


def execute(program: Program, folder: str, **more: Any) -> Model | None:
    """Run a program to its end in an empty folder; None if its configuration is refused, as it must be.

    Raises
    ------
    Exception
        Whatever is wrong.
    """
    load = Loads()
    run = created(program, folder, **more)
    if run is None:
        return None
    try:
        for step in program.steps:
            run.step(step)
        run.settle()
        run.whole()
        run.last_close()
        closed(run, load)
    finally:
        run.let_go()
    return run.model


def closed(run: Run, load: Loads) -> None:
    """After the last close: other openings and other programs read it, and nothing is left over."""
    config = run.config
    if config["stack"] != "memory":
        run.read()
    run.f = None
    if in_file(config) and config["layout"] == "canonical":
        others_read(run)
    load.check()
    if in_file(config):
        left = leftovers(run)
        if left:
            raise Wrong(f"left over: {left}")


def replayed(run: Run) -> None:
    """Bring what a cache kept back to the file."""
    nvm = os.path.join(run.folder, "nvm")
    if run.rank == 0 and os.listdir(nvm):
        more = {} if run.system is None else {"system": run.system}
        pnc_vol.replay(run.place, hints={"e10_cache_path": nvm}, **more)


def leftovers(run: Run) -> list[str]:
    """Files that nobody needs any more."""
    config = run.config
    names = set(os.listdir(run.folder)) - {"hints.json", *OTHER}
    own = {"x.nc"}
    if config["layout"] in ("blob", "hdf5blob"):
        own = {f"x.nc.{n:04}" for n in range(4)}
    elif config["layout"] == "rawfiles":
        own |= {name for name in names if name.startswith("x.nc.")}
    left = sorted(names - own - {"nvm", "logs"})
    for name in ("nvm", "logs"):
        if name in names and not (name == "nvm" and config["e10_cache_discard_flag"] == "disable"):
            left += [f"{name}/{inside}" for inside in os.listdir(os.path.join(run.folder, name))]
    if config["e10_cache_discard_flag"] == "disable":
        left = [name for name in left if not name.endswith(".pncc")]
    if not config["burst_buf_del_on_close"]:
        left = [name for name in left if not name.rpartition("/")[2].startswith(("pncbb-x.nc", "pncbb-else.nc"))]
    return left


class Loads:
    """What a process holds: descriptors and threads."""

    def __init__(self) -> None:
        self.before = self._now()

    @staticmethod
    def _now() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    def check(self) -> None:
        now = self._now()
        if any(a > b for a, b in zip(now, self.before, strict=True)):
            held = []
            for fd in os.listdir("/proc/self/fd"):
                try:
                    held.append(os.readlink(f"/proc/self/fd/{fd}"))
                except OSError:
                    continue
            held = [name for name in held if not name.startswith(("pipe:", "/dev/null", "/dev/pts", "/proc/"))]
            raise Wrong(f"(descriptors, threads) were {self.before} and are {now}; open are {held}")


MAY_BE = ("a reference leads to", "a reference does not fit")
"""What `check` says of files of which nothing is wrong."""


def others_read(run: Run) -> None:
    """Other programs, a check and a repack of the closed file; a sample, since each takes as long as the program."""
    number = crc32(run.seed.encode())
    if number % 8 == 1:
        found = pnc_vol.check(run.place)
        # objects to which references lead may have been moved, deleted or made smaller
        if found := [one for one in found if not any(why in one.message for why in MAY_BE)]:
            raise Wrong(f"check: {found}")
    if number % 8 == 2:
        written = Path(run.place).read_bytes()
        pnc_vol.repack(run.place)
        run.read()
        # whose bytes are compared (`same_bytes`)
        Path(run.place).write_bytes(written)
    if number % 8 == 0:
        told = subprocess.run(["ncvalidator", "-q", run.place], capture_output=True, text=True, check=False)
        if told.returncode:
            raise Wrong(f"ncvalidator: {told.stdout}{told.stderr}")
    if number % 4 == 0:
        import netCDF4

        with netCDF4.Dataset(run.place) as other:
            other.set_auto_maskandscale(False)
            for path in run.model.paths(Data):
                data = run.model.objects[path]
                name = path.replace("/", run.config["separator"])
                if name not in other.variables or not acts.numeric(data) or other.variables[name].shape != data.shape:
                    continue
                if wrong := difference(other.variables[name][...], data.values):
                    raise Wrong(f"netCDF4 reads {name}: {wrong}")


SHAPING = (
    "layout", "subfiles", "format", "header_reserve", "var_align", "record_align", "separator", "ordered",
    "track_order", "on_overflow", "strict", "external_links", "libver",
)  # fmt: skip
"""Options on which the bytes of a file depend."""


ROOMY = {"buffer_size": 64 << 20, "burst_buf_capacity": 0, "deferred": False}
"""With other values a queue is emptied before the flush, or a close waits: both leave more room for the header."""


def same_bytes(program: Program, folder: str, again: Callable[[Program, str], Any] | None = None) -> None:
    """Ranks, drivers, stores, caches and ways to publish change no byte: the file is that of a plain serial program.

    Of several ranks each has its part of a map in a subfile: they are not compared.

    again : runs the program once more where `ROOMY` has other values; else it is not compared either.
    """
    config, ranks = program.config, on_ranks(program.config)
    if not in_file(config) or config["layout"] not in ("canonical",) + ("blob",) * (not ranks):
        return
    if (ranks or logged(config)) and any(step.act == "atomic" for step in program.steps):
        return  # what one rank writes at once, or a log that is emptied at each write, places new datasets early
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as other:
        if config | ROOMY != config:
            if again is not None:
                tight = Program(program.seed, config | ROOMY, program.steps)
                again(tight, other)
                same_bytes(tight, other)
            return
        execute(
            Program(program.seed, normal({name: config[name] for name in SHAPING}), program.steps), other, like=config
        )
        for name in sorted(os.listdir(other)):
            mine, its = (Path(one, name).read_bytes() for one in (folder, other))
            if mine != its:
                at = next(i for i in range(len(mine) + 1) if mine[i : i + 1] != its[i : i + 1])
                raise Wrong(f"byte {at} of {name}, of {len(mine)}, is not that of a plain program, of {len(its)}")


# -------------------------------------------------------------------------------------------------- many


def folder_for_programs() -> str:
    return tempfile.mkdtemp(prefix="engine", dir=MEMORY if os.path.isdir(MEMORY) else None)


def inside(folder: str, name: str) -> str:
    """A new folder in a folder."""
    path = os.path.join(folder, name)
    os.mkdir(path)
    return path


def attempt(program: Program, work: Callable[[Program, str], Any]) -> str:
    """Run a program in a folder of its own; what went wrong, "" if nothing did."""
    folder, told = folder_for_programs(), ""
    elsewhere.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
            try:
                work(program, folder)
            except Exception as error:
                told = said(error)
                traceback.clear_frames(error.__traceback__)
            if told:
                # A file that the program did not close is closed now, not in the middle of another program or test.
                gc.collect()
                registry.close_unreferenced()
    finally:
        put_into_environment({})
        shutil.rmtree(folder, ignore_errors=True)
    return told


def said(error: BaseException) -> str:
    """An error in one line, with the place in the package where it came up."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(PACKAGE)]
    where = f" ({frames[-1].filename.removeprefix(PACKAGE)}:{frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:400]}{where}"


__all__ = ["Loads", "Program", "Run", "World", "Wrong", "attempt", "execute", "made"]
