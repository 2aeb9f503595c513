"""``python tests/shared/crash``: many states of all scenarios, or one state again.

Knows: the command line. Does not know: how states are made.

Rules
-----
1. The same arguments give the same states.
2. Every broken promise is printed, with the command that rebuilds its state; the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from crash.examining import Broken, examine_state, state, states_of
from crash.running import Scenario, fast_folder, record
from crash.scenarios import SCENARIOS

__all__ = ["main"]

MOST_SHOWN = 3
"""Broken states of a scenario that are printed."""


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="python tests/shared/crash", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--states", type=int, default=2000, help="states to examine, in all (default: 2000)")
    parser.add_argument(
        "--seed", type=int, default=0, help="which torn writes and power failures are drawn (default: 0)"
    )
    parser.add_argument("--scenario", help="only this one; --list shows their names")
    parser.add_argument("--kind", choices=["kill", "power"], help="only kills, or only power failures")
    parser.add_argument("--state", type=int, help="examine the state of this number, of one --scenario and --kind")
    parser.add_argument(
        "--keep", metavar="FOLDER", help="with --state: an empty folder in which the state is left as it was"
    )
    parser.add_argument("--driver", help="the driver of the files, such as 'mine | posix'")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios and stop")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 1 if a promise was broken."""
    args = arguments().parse_args(argv)
    chosen = SCENARIOS
    if args.list:
        print(*chosen, sep="\n")
        return 0
    if args.scenario is not None:
        if args.scenario not in chosen:
            print(f"there is no scenario {args.scenario!r}; --list shows their names", file=sys.stderr)
            return 2
        chosen = {args.scenario: chosen[args.scenario]}
    if args.state is not None:
        if args.scenario is None or args.kind is None:
            print("--state is a number within one --scenario and one --kind", file=sys.stderr)
            return 2
        return _again(chosen[args.scenario], args)
    begun, total, wrong = time.monotonic(), 0, 0
    jobs = [(s, kind) for s in chosen.values() for kind in ("kill", "power") if args.kind in (None, kind)]
    jobs = [(s, kind) for s, kind in jobs if s.power or kind == "kill"]
    for i, (scenario, kind) in enumerate(jobs):
        share = max(1, (args.states - total) // (len(jobs) - i))
        n, told = _examine(scenario, kind, share, args)
        total += n
        wrong += len(told)
        for text in told[:MOST_SHOWN]:
            print(text, end="\n\n")
        if told:
            print(f"{scenario.name}, {kind}: {len(told)} of {n} states are broken", flush=True)
    print(f"{total} states of {len(jobs)} scenarios and kinds, {wrong} broken, {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


def _examine(scenario: Scenario, kind: str, share: int, args: argparse.Namespace) -> tuple[int, list[str]]:
    told: list[str] = []
    n = 0
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        recording = record(scenario, folder, _options(args))
        for number, found in states_of(recording, kind, seed=args.seed, count=share):
            n += 1
            try:
                examine_state(
                    recording, kind, found, number, folder=folder, seed=args.seed,
                    again=number % 8 == 0, validator=validator() if number % 8 == 1 else None,
                )  # fmt: skip
            except Broken as error:
                told.append(str(error))
    return n, told


def _again(scenario: Scenario, args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        recording = record(scenario, folder, _options(args))
        found = state(recording, args.kind, args.state, seed=args.seed)
        print(found.said)
        for number, change in enumerate(recording.changes[: found.at], 1):
            print(f"{number:5} {change!s:.150}")
        if args.keep:
            found.disk.write(args.keep)
            print(f"the state is in {args.keep}; a journal there names other inode numbers than the files have")
        try:
            examine_state(recording, args.kind, found, args.state, folder=folder, seed=args.seed, again=True)
        except Broken as error:
            print(error)
            return 1
    print("no promise is broken")
    return 0


def _options(args: argparse.Namespace) -> dict[str, str]:
    return {"driver": args.driver} if args.driver else {}


def validator() -> Callable[[str], None] | None:
    """ncvalidator's opinion of a file, where it is installed."""
    program = shutil.which("ncvalidator")

    def ask(path: str) -> None:
        assert program is not None
        told = subprocess.run([program, path], capture_output=True, text=True, check=False)
        if told.returncode:
            raise Broken(f"ncvalidator says: {told.stdout.strip()} {told.stderr.strip()}")

    return None if program is None else ask
