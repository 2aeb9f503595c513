"""Random programs over every pair of options; and that the engine finds what it is there to find."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any
from zlib import crc32

import acts
import command
import options
import pytest
import run
import shrink
import troubled_ranks
from kills import ended
from model import NUMBERS
from other_process import fresh
from ranks import EVENTS

from pnc_vol.disk.publish import Location
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.ranks.mpi_comm import MpiComm
from pnc_vol.testing.faults import HookedSystem
from pnc_vol.testing.mpi import missing, run_mpi

SERIAL = ["kill", "power", "recovery", "error", "short", "interrupt", "memory", "elsewhere"]
OF_RANKS = ["error", "short", "interrupt", "memory", "raises", "leaves", "late"]
WRITTEN = acts.Step("store", {"path": "a", "values": run.Values(1, (3,), "i4")})
ORDINARY = options.normal({})


@pytest.fixture(autouse=True, scope="module")
def plugins() -> None:
    options.load_plugins()


def failing(programs: list[run.Program], event: str = "nothing", states: int = 10) -> list[str]:
    """What went wrong with programs, as scripts."""
    happens = EVENTS[event](states)
    found = []
    for program in programs:
        told = run.attempt(program, happens)
        if told:
            found.append(shrink.script(program, told))
    return found


@cache
def configurations(seed: str = "a") -> list[options.Config]:
    """A covering array of pairs, which takes longer to make than most programs take."""
    return list(options.covering(2, random.Random(seed)))


def pairs(seed: str, configs: str = "a", part: slice = slice(None)) -> list[run.Program]:
    """Programs with every pair of options, or a part of them."""
    return [run.made(f"{seed}:{n}", config) for n, config in list(enumerate(configurations(configs)))[part]]


def ordinary(count: int, seed: str = "ordinary") -> list[run.Program]:
    return [run.made(f"{seed}:{n}", ORDINARY) for n in range(count)]


def first_failure(programs: list[run.Program]) -> tuple[run.Program, str]:
    """The first program that fails, made small, and what it says."""
    happens = EVENTS["nothing"](1)
    for program in programs:
        if told := run.attempt(program, happens):
            return shrink.shrunk(program, told, lambda one: run.attempt(one, happens))
    raise AssertionError("no program fails")


@pytest.mark.parametrize("seed", ["a", *(pytest.param(seed, marks=pytest.mark.nightly) for seed in "bcdef")])
def test_every_pair_of_options(seed: str) -> None:
    assert not failing(pairs(seed, seed))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("strength", [2, 3])
def test_pairs_and_triples_at_length(strength: int) -> None:
    chance = random.Random(strength)
    configs = [config for _ in range(10 if strength == 2 else 1) for config in options.covering(strength, chance)]
    assert not failing([run.made(f"{strength}:{n}", config) for n, config in enumerate(configs)])


def test_a_covering_array_has_every_pair() -> None:
    """Of options that go together; those that are refused have configurations of their own."""
    found = configurations()
    for one in (("store", "log"), ("cache", "flush_immediate"), ("layout", "blob"), ("publish", "close")):
        for other in (("durable", True), ("buffer_size", 64 << 10), ("stack", "trace"), ("header_reserve", 0)):
            assert any(config[one[0]] == one[1] and config[other[0]] == other[1] for config in found), (one, other)
    assert all(options.refusal(config) is None for config in found if config["layout"] == "canonical")


def tell_scripts() -> None:
    options.load_plugins()
    print(crc32(repr([shrink.script(program) for program in pairs("same", part=slice(10))]).encode()))


def test_programs_are_those_of_their_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    tell_scripts()
    done = fresh(tell_scripts)
    assert done.stdout == capsys.readouterr().out, done.stderr[-500:]


def test_a_wrong_value_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a driver that loses the last byte of each write above 100 bytes; the script fails without the engine."""
    write = PosixDriver.write

    def spoiled(self: Any, extents: Any, memory: Any, *, collective: bool = False) -> None:
        if extents.nbytes > 100:
            memory = memory.copy()
            memory[-1] ^= 1
        write(self, extents, memory, collective=collective)

    with monkeypatch.context() as patched:
        patched.setattr(PosixDriver, "write", spoiled)
        program, told = first_failure(ordinary(60, "spoiled"))
    assert "elements are wrong" in told or "row" in told or "element" in told
    assert len(program.steps) <= 2
    text = shrink.script(program, told)
    assert len(text.splitlines()) < 25
    runs(text, tmp_path, 0)
    spoil = (
        "import pnc_vol.drivers.posix as p\nw = p.PosixDriver.write\n"
        "def spoiled(self, extents, memory, *, collective=False):\n"
        "    memory = memory.copy()\n    memory[-1] ^= extents.nbytes > 100\n"
        "    w(self, extents, memory, collective=collective)\np.PosixDriver.write = spoiled\n"
    )
    runs(spoil + text, tmp_path, 1)


def test_shapes_and_values_become_small() -> None:
    """Of programs that fail where a write has three elements or more."""

    def fails(program: run.Program) -> str:
        sizes = [math.prod(step.args["values"].shape) for step in program.steps if step.act == "write"]
        return "Wrong: it is" if max(sizes, default=0) >= 3 else ""

    for program in filter(fails, ordinary(20, "shapes")):
        *_, write = steps = shrink.shrunk(program, "Wrong: it is", fails)[0].steps
        assert len(steps) <= 3
        for args in (step.args for step in steps):
            assert args.get("kind", "i4") == "i4"
            assert math.prod(args.get("shape", ())) <= 4  # of (2, 2) nothing that is shorter has three
        assert (write.args["at"], write.args["way"]) == ((Ellipsis,), "assign")
        assert (write.args["values"].start, write.args["values"].kind) == (1, "i4")
        assert math.prod(write.args["values"].shape) in (3, 4)


def runs(text: str, folder: Path, code: int) -> None:
    """A script ends with this code."""
    (folder / "script.py").write_text(text)
    done = subprocess.run([sys.executable, folder / "script.py"], capture_output=True, text=True, cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr


def test_a_script_of_any_program_runs(tmp_path: Path) -> None:
    """Without the engine, to its end."""
    for n, program in enumerate(ordinary(4, "script")):
        folder = tmp_path / str(n)
        folder.mkdir()
        runs(shrink.script(program), folder, 0)


def test_a_descriptor_that_stays_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    leaked: list[int] = []
    close = PosixDriver.close

    def leaking(self: Any) -> None:
        leaked.append(os.open("/dev/null", os.O_RDONLY))
        close(self)

    monkeypatch.setattr(PosixDriver, "close", leaking)
    try:
        program, told = first_failure(ordinary(3))
    finally:
        for fd in leaked:
            os.close(fd)
    assert "(descriptors, threads) were" in told
    assert len(program.steps) <= 1


class KeepingFolders(HookedSystem):
    def rmdir(self, path: Any) -> None:
        pass


def test_a_file_that_is_left_over_is_found() -> None:
    program = ordinary(1)[0]
    config = options.normal({"cache": "flush_immediate"})
    program = run.Program("left", config, [*program.steps, WRITTEN])
    told = run.attempt(program, partial(run.execute, system=KeepingFolders()))
    assert told.startswith("Wrong: left over: ['nvm/pnccache-x.nc-")


def test_the_model_is_that_of_h5py() -> None:
    """Programs with every kind of element and every act, with h5py alone."""
    for program in ordinary(60, "twins"):
        run.twin(program)


def test_a_new_option_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    new = options.Option("rdcc_nbytes", (None, 1 << 20))
    monkeypatch.setitem(options.OPTIONS, new.name, new)
    found = list(options.covering(2, random.Random(1)))
    changed = [config for config in found if config["rdcc_nbytes"] and not options.refusal(config)]
    assert {config["store"] for config in changed} == {"memory", "log", "zipped"}
    assert options.arguments(changed[0], "folder")["rdcc_nbytes"] == 1 << 20
    assert not failing([run.made(f"new:{n}", config) for n, config in enumerate(changed[:3])])


OTHERWISE = {
    "burst_buf": "store=log", "driver": "stack", "hints": "said", "hints_file": "said", "system": "events",
    "collective_timeout": "the same for all programs on ranks", "storage_options": "an address is only read",
    "e10_cache": "cache", "e10_cache_path": "cache", "e10_cache_flush_flag": "cache",
    "nc_header_align_size": "another name of nc_var_align_size", "romio_ds_write": "one of those for MPI-IO",
}  # fmt: skip
"""Options and hints without a line of their own, and what stands for them."""


def test_the_table_has_every_option_and_hint() -> None:
    """That docs/reference/options.md has."""
    text = Path(__file__).parents[2].joinpath("docs/reference/options.md").read_text()
    tables = text.partition("## Options")[2].partition("### The lock")[0]
    hints = text.partition("## Hints")[2].partition("## Environment variables")[0]
    rows = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `")]
    told = {name for cells in (*rows, hints) for name in re.findall(r"`([a-z0-9_]+)`", cells)}
    known = {*options.OPTIONS, *options.HINTS.values(), *OTHERWISE}
    assert len(told) > 60
    assert not told - known


def test_numbers_have_their_type() -> None:
    assert {kind: str(run.Values(1, (2,), kind).array.dtype) for kind in NUMBERS[:2]} == {"i1": "int8", "i2": "int16"}


# ----------------------------------------------------------------------------------------------------- events


@pytest.mark.parametrize("event", SERIAL)
def test_what_happens_to_some_programs(event: str) -> None:
    """Of one array each event has other configurations."""
    step, states = (10, 12) if event in ("kill", "power") else (40, 3)
    assert not failing(pairs(event, part=slice(SERIAL.index(event), None, step)), event, states)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("event", SERIAL)
def test_what_happens_at_length(event: str) -> None:
    seeds = [f"{event} {n}" for n in range(5)]
    assert not failing([program for seed in seeds for program in pairs(seed, seed)], event, 60)


def test_a_sync_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a power failure: the data of a durable flush are not on the disk."""
    monkeypatch.setattr(PosixDriver, "sync", lambda self: None)
    config = options.normal({"durable": True})
    programs = [run.made(f"sync:{n}", config) for n in range(20)]
    happens = EVENTS["power"](30)
    told = next(filter(None, (run.attempt(program, happens) for program in programs)))
    assert "Crashed" in told
    assert "are wrong" in told or "definitions differ" in told or "Error" in told


def test_a_header_before_its_journal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a kill in the middle of the header."""
    monkeypatch.setattr(Location, "_keep_journal", lambda self, *given: False)
    happens = EVENTS["kill"](200)
    told = next(filter(None, (run.attempt(program, happens) for program in ordinary(30, "journal"))))
    assert "Crashed" in told


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_of_another_class_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a package that turns an error of the system into something else."""
    write = PosixDriver.write

    def clumsy(self: Any, extents: Any, memory: Any, *, collective: bool = False) -> None:
        try:
            write(self, extents, memory, collective=collective)
        except OSError as error:
            raise KeyError("not what a program expects") from error

    monkeypatch.setattr(PosixDriver, "write", clumsy)
    told = (run.attempt(program, EVENTS["error"](40)) for program in ordinary(5, "class"))
    assert any("KeyError: 'not what a program expects'" in one for one in told)


# ------------------------------------------------------------------------------------------------------ ranks


def on_ranks(seed: str, part: slice = slice(None)) -> list[run.Program]:
    table = options.ranks_options((2, 3, 4), (1, 2, 3), mpi=False)
    found = list(enumerate(options.covering(2, random.Random(seed), table)))
    return [run.made(f"{seed}:{n}", config, 12) for n, config in found[part]]


def test_programs_on_simulated_ranks() -> None:
    assert not failing(on_ranks("ranks", slice(None, None, 6)), "ranks")


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_programs_on_simulated_ranks_at_length() -> None:
    assert not failing([program for seed in range(10) for program in on_ranks(f"ranks {seed}")], "ranks")


@pytest.mark.parametrize("event", OF_RANKS)
def test_what_happens_to_one_rank(event: str) -> None:
    assert not failing(on_ranks(event, slice(None, None, 40)), f"rank-{event}", 2)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("event", OF_RANKS)
def test_what_happens_to_one_rank_at_length(event: str) -> None:
    programs = [program for seed in range(5) for program in on_ranks(f"{event} {seed}")]
    assert not failing(programs, f"rank-{event}", 20)


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(
    ("programs", "kills"),
    [(2, 2), pytest.param(400, 5, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])],
)
def test_a_rank_of_a_real_job_is_killed(programs: int, kills: int) -> None:
    done = fresh(kill_ranks, programs, kills, seconds=7000)
    assert done.stdout.count(" 0 failures of 0 kinds") == 4, done.stdout + done.stderr[-2000:]


def kill_ranks(programs: str, kills: str) -> None:
    """With any options, a log, a cache, and blobs; in a process that has loaded the engine, and no MPI or threads."""
    given = ["--event", "killed", "--smaller", "0", "--states", kills, "--programs"]

    def kill(*more: str) -> None:
        command.main([*given, *more])
        sys.stdout.flush()

    ended(partial(kill, programs))
    for only in ("store=log", "cache=flush_onclose", "layout=blob"):
        ended(partial(kill, "1", "--set", only))


def test_a_rank_that_tells_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for a rank whose program has failed, until their time is over."""
    monkeypatch.setattr(troubled_ranks, "PATIENCE", 1)
    monkeypatch.setattr(MpiComm, "abandon", lambda self, reason: None)
    config = options.normal({"ranks": 2}, options.ranks_options((2,), (1,), mpi=False))
    happens = EVENTS["rank-raises"](3)
    told = [run.attempt(run.made(f"silent:{n}", config), happens) for n in range(3)]
    assert any("ranks waited for the end of their time" in one for one in told)


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(("ranks", "nodes", "count"), [
    (2, 2, 8), (3, 1, 12),
    *(pytest.param(ranks, nodes, 100, marks=[pytest.mark.nightly, pytest.mark.timeout(1900)])
      for ranks, nodes in ((1, 1), (2, 1), (2, 2), (3, 3), (4, 1), (4, 2))),
])  # fmt: skip
def test_programs_on_real_ranks(ranks: int, nodes: int, count: int) -> None:
    arguments = ["--event", "mpi", "--programs", count, "--seed", ranks * 10 + nodes]
    if count == 12:
        # the bytes of all of them are compared
        arguments += [word for name, value in run.ROOMY.items() for word in ("--set", f"{name}={value}")]
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
    told = run_mpi(ranks, Path(__file__).with_name("__main__.py"), *arguments, env=env, timeout=1800).stdout
    assert " 0 failures of 0 kinds" in told


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_rank_of_a_real_job_that_fails_alone_is_told_of() -> None:
    """And the next program runs."""
    told = run_mpi(2, Path(__file__).with_name("failing_rank.py"), timeout=60).stdout
    assert "only here" in told or "a rank does not come" in told
    assert told.strip().endswith(", '']")


def test_a_rank_whose_values_are_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rank 1 posts by a mask goes nowhere."""
    share = acts.share

    def losing(ds: Any, cells: Any, values: Any, way: str, rank: int, size: int) -> None:
        if rank != 1:
            share(ds, cells, values, way, rank, size)

    monkeypatch.setattr(acts, "share", losing)
    config = options.normal({"ranks": 2}, options.ranks_options((2,), (1,), mpi=False))
    programs = [run.made(f"lost:{n}", config) for n in range(10)]
    assert any("elements are wrong" in run.attempt(program, EVENTS["ranks"](1)) for program in programs)
