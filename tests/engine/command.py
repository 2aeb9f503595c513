"""The command line of the engine: random programs over all options, with and without an event.

The programs of a seed are the same in every run. What fails is made small and printed as a script; ``--found FOLDER``
keeps the scripts.
"""

from __future__ import annotations

import argparse
import ast
import gc
import itertools
import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ranks
import run
import troubled_ranks  # noqa: F401
from events import Tally
from options import OPTIONS, Config, covering, load_plugins, ranks_options
from shrink import kind_of, script, shrunk

import pnc_vol


def configs(args: argparse.Namespace, fixed: Config) -> Iterator[Config]:
    """Covering arrays, one after another, each drawn anew."""
    chance, table = random.Random(f"configurations {args.seed}"), OPTIONS
    if args.event.startswith("rank"):
        table = ranks_options((2, 3, 4), (1, 2, 3), mpi=False)
    elif args.event == "killed":
        table = ranks_options((2, 3, 4), (1, 2, 3), mpi=True)
    elif args.event == "mpi":
        size, nodes = ranks.launched()
        table = ranks_options((size,), (nodes,), mpi=True)
    while True:
        yield from covering(3 if args.triples else 2, chance, table, fixed)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tests/engine", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one; a failure names its number")
    parser.add_argument("--seed", default="1", help="of all programs (1)")
    parser.add_argument("--event", default="nothing", choices=sorted(ranks.EVENTS), help="nothing, ...")
    parser.add_argument("--triples", action="store_true", help="all triples of options instead of all pairs")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="one value for an option")
    parser.add_argument("--states", type=int, default=30, help="moments of one program at which an event happens (30)")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many seconds")
    parser.add_argument("--smaller", type=float, default=60, help="seconds to make a failure small (60); 0: as it is")
    parser.add_argument("--found", help="a folder for the scripts of failures")
    args = parser.parse_args(given)
    load_plugins()
    warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
    fixed = dict(_pair(text) for text in args.set)
    event = ranks.EVENTS[args.event](args.states)
    begun, kinds = time.monotonic(), Counter[str]()
    tally = Tally()
    speaks = args.event != "mpi" or ranks.first()
    gc.freeze()  # what is there before the first program is no garbage of any
    for number, config in enumerate(itertools.islice(configs(args, fixed), args.first + args.programs)):
        if number < args.first:
            continue
        if time.monotonic() - begun > args.seconds:
            break
        program = run.made(f"{args.seed}:{number}", config)
        told = run.attempt(program, lambda one, folder: event(one, folder, tally))
        tally.programs += 1
        if not told:
            continue
        kinds[kind_of(told)] += 1
        if kinds[kind_of(told)] > 1:
            continue
        small, said = program, told
        if args.event != "mpi" and args.smaller:
            small, said = shrunk(program, told, lambda one: run.attempt(one, event), seconds=args.smaller)
        if speaks:
            text = event.script(small, said) if hasattr(event, "script") else script(small, said)
            tell(program.seed, told, text, args, quiet=len(kinds) > KINDS)
    if not speaks:
        return 0
    seconds = time.monotonic() - begun
    for kind, count in kinds.most_common():
        print(f"  {count} times {kind:.150}")
    print(
        f"{args.event}, seed {args.seed}: {tally.programs - tally.refused} programs, {tally.states} states, "
        f"{sum(kinds.values())} failures of {len(kinds)} kinds "
        f"(besides, {tally.refused} refused; {tally.acts} acts, {seconds:.0f} s)"
    )
    return bool(kinds)


LINES, WIDTH, KINDS = 40, 200, 10
"""What is printed of a script, and of how many: a run does not flood the terminal."""


def tell(seed: str, told: str, text: str, args: argparse.Namespace, *, quiet: bool) -> None:
    """Print a failure, and keep its script."""
    number = seed.rpartition(":")[2]
    again = f"python tests/engine --event {args.event} --seed {args.seed} --first {number} --programs 1"
    again += " --triples" * args.triples + "".join(f" --set {one}" for one in args.set)
    again += f" --states {args.states}"
    print(f"--- {again}\n{told[: 3 * WIDTH]}", flush=True)
    if args.found:
        os.makedirs(args.found, exist_ok=True)
        Path(args.found, f"{args.event}_{seed.replace(':', '_')}.py").write_text(text)
    if not quiet:
        lines = [line if len(line) <= WIDTH else f"{line[:WIDTH]} ..." for line in text.splitlines()]
        print("\n".join([*lines[:LINES], *(["..."] if len(lines) > LINES else []), ""]), flush=True)


def _pair(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if name not in OPTIONS:
        raise SystemExit(f"there is no option {name!r}; options are {', '.join(OPTIONS)}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
