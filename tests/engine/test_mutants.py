"""Some hundred damaged files of every kind; and that what none may do is found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mutants
import numpy as np
import pytest
from mutant_kinds import KINDS, Kind, make_map_file


@pytest.mark.parametrize("count", [
    len(KINDS) * 30,
    pytest.param(len(KINDS) * 2000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
])  # fmt: skip
def test_mutants_of_every_kind(count: int) -> None:
    words = [sys.executable, Path(mutants.__file__), "--count", str(count), "--seed", "pytest"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in KINDS:
        (told,) = (line for line in done.stdout.splitlines() if line.startswith(f"{kind}: "))
        # a journal that is not whole was never followed by a header: it is removed without a word
        assert int(told.split()[-5]) > 0 or kind == "journal", f"{told}: a damage must be able to harm"


@pytest.mark.parametrize(("kind", "seed", "number"), [("clog", "rr1", 559)])
def test_mutants_that_once_failed(kind: str, seed: str, number: int) -> None:
    words = ["--kind", kind, "--seed", seed, "--first", str(number), "--count", "1"]
    done = subprocess.run([sys.executable, Path(mutants.__file__), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def hangs(*_: Any) -> None:
    while True:
        time.sleep(0.01)


def hangs_deaf(*_: Any) -> None:
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    hangs()


def raises(*_: Any) -> None:
    raise KeyError("not what a program expects")


def bombs(*_: Any) -> None:
    np.empty(1 << 40, np.uint8)


def swells(*_: Any) -> None:
    np.ones(100 << 20, np.uint8)


def writes(folder: Path, *_: Any) -> None:
    (folder / "large").write_bytes(bytes(80 << 20))


def leaks(*_: Any) -> None:
    os.open("/dev/null", os.O_RDONLY)


def warns(*_: Any) -> None:
    warnings.warn("invalid value", RuntimeWarning, stacklevel=1)


def mistaken(*_: Any) -> None:
    os.close(10_000)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("act", "said"),
    [
        (raises, "KeyError: 'not what a program expects'"),
        (hangs, "hangs: "),
        (hangs_deaf, "hangs where no signal is handled"),
        (os.abort, "the process ended with -6"),
        (bombs, "MemoryError"),
        (swells, "takes 1"),
        (writes, "writes 80 MiB"),
        (leaks, "(descriptors, threads) were"),
        (warns, "RuntimeWarning: invalid value"),
        (mistaken, "Bad file descriptor"),
    ],
)
def test_what_none_may_do_is_found(
    act: Callable[..., None], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    """Of a use that does it for the third mutant; those before and behind it are tried, too."""

    def use(folder: Path, names: list[str], chance: Any) -> None:
        if (folder / "map.nc").read_bytes() == third:
            act(*() if act is os.abort else (folder,))

    monkeypatch.setitem(KINDS, "bad", Kind(make_map_file, use, ("map.nc",)))
    monkeypatch.setattr(mutants, "SECONDS", 1.0 if act in (hangs, hangs_deaf) else 20.0)
    monkeypatch.setattr(mutants, "PATIENCE", 2.0)
    stage = mutants.Stage(KINDS["bad"], tmp_path / "third")
    third = bytes(mutants.damaged_content("bad", "1", 2, stage.whole, [b"other"])["map.nc"])
    found = list(mutants.tried("bad", "1", range(5), tmp_path, [b"other"]))
    assert [number for number, _ in found] == [2]
    assert said in found[0][1]


def test_a_mutant_is_the_same_again(tmp_path: Path) -> None:
    stage = mutants.Stage(KINDS["map"], tmp_path / "map")
    made = [mutants.damaged_content("map", "7", 5, stage.whole, [b"other"]) for _ in range(2)]
    assert made[0] == made[1] != stage.whole
