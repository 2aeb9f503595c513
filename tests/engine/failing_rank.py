"""Run by test_engine.py on real ranks: one of them fails in an act by itself, and the others do not wait for ever."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def only_here(run: Any, expected: Any, **args: Any) -> None:
    if run.rank == 1:
        raise ValueError("only here")


def main() -> None:
    import options
    import run
    from acts import ACTS, Step
    from ranks import EVENTS, first

    ACTS["group"] = ACTS["group"]._replace(do=only_here)
    run.World.patience = 1.0
    config = options.normal({"ranks": 2}, options.ranks_options((2,), (1,), mpi=True))
    event = EVENTS["mpi"](1)
    steps = Step("group", {"path": "g", "tracked": False}), Step("flush", {"how": "plain"})
    told = [run.attempt(run.Program("", config, [step]), event) for step in steps]
    if first():
        print(told)


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "shared")]
    main()
