"""Random programs on a file, and what must be in the file after a kill and a replay.

A program is a seed: the same operations come out of it in the process that is killed and in the one that checks.
`State` is a model of numpy arrays. What it demands of a recovered file: every posted value, in the order of posting;
what was only defined and never posted to nor flushed may be there or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pnc_vol

Do = Callable[["Run"], None]
FIXED = ((7,), (), (300,), (12, 17), (3, 5, 11), (1, 1), (5000,))
INNER = ((), (3,), (40,), (6, 7))
NUMBERS = ("f8", "i2", "u1", "i8")
KINDS = ("f8", "i2", "u1", "i8", "text", "S5", "c16", "bool")


@dataclass
class Held:
    """A dataset of the model.

    base : its values at the last flush, on which `events` come: ("resize", n) and ("write", index, values, number).
    flushed : whether it is in the file.
    names : under which it may be found; `since`, all that it had since the last flush.
    """

    kind: str
    fill: Any
    record: bool
    base: np.ndarray
    events: list[tuple[Any, ...]] = field(default_factory=list)
    flushed: bool = False
    names: set[str] = field(default_factory=set)
    since: set[str] = field(default_factory=set)

    @property
    def posted(self) -> bool:
        """Whether it must be in the file."""
        return self.flushed or any(event[0] == "write" for event in self.events)

    @property
    def length(self) -> int:
        """Records that it must have: those of the last flush, of the last post, or those that were left by a cut."""
        length = now = len(self.base)
        if not self.flushed:
            length = 0
        for event in self.events:
            if event[0] == "write":
                length = now
            else:
                now = event[1]
                length = min(length, now)
        return length

    def now(self) -> np.ndarray:
        values = self.base.copy()
        for event in self.events:
            if event[0] == "resize":
                new = np.full((event[1], *values.shape[1:]), self.fill, values.dtype)
                n = min(len(new), len(values))
                new[:n] = values[:n]
                values = new
            elif values.size:
                values[event[1]] = event[2]
        return values


@dataclass
class State:
    """The model. `doubtful`: names that were deleted since the last flush; `waiting`: posts that can be cancelled."""

    held: dict[str, Held] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    waiting: list[tuple[int, str]] = field(default_factory=list)
    created: int = 0
    posts: int = 0

    def settle(self) -> None:
        """Everything is in the file."""
        for name, held in self.held.items():
            held.base, held.events = held.now(), []
            held.flushed, held.names, held.since = True, {name}, {name}
        self.doubtful, self.waiting = set(), []


class Run:
    """The process's side: the open file, and requests by the number that the model gave them."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.path, self.options = path, options
        self.requests: dict[int, Any] = {}
        self.f: Any = pnc_vol.File(path, "w", **options)

    def reopen(self) -> None:
        self.f.close()
        self.f = pnc_vol.File(self.path, "r+", **self.options)


def dtype_of(kind: str) -> Any:
    return pnc_vol.string_dtype() if kind == "text" else np.dtype(kind)


class Program:
    """Operations one after another; each changes the model at once and gives what a process has to do.

    cancels : bool, nothing is flushed but by `flush`, so that what can be cancelled is known.
    """

    def __init__(self, seed: int, *, cancels: bool = True) -> None:
        self.cancels = cancels
        self.random = np.random.default_rng(seed)
        self.state = State()
        self.rows = 0
        self.ways = (
            [self.write] * 12
            + [self.row] * 2
            + [self.iput] * 3
            + [self.many] * 2
            + [self.create] * 3
            + [self.resize] * 3
            + [self.flush, self.cancel, self.cancel, self.read, self.read, self.wait, self.attribute]
            + [self.delete, self.move]
        )

    def step(self) -> Do:
        """The next operation."""
        draw = int(self.random.integers(0, len(self.ways)))
        rare = self.random.random()
        if not self.state.held:
            return self.create()
        if self.rows > 0:
            return self.row()
        if rare < 0.01:
            return self.reopen()
        return self.ways[draw]()

    # ---------------------------------------------------------------------------------- definitions

    def create(self) -> Do:
        draw, state = self.random.integers, self.state
        kind = KINDS[draw(0, len(KINDS))]
        record = bool(draw(0, 2))
        shape = (int(draw(0, 6)), *INNER[draw(0, len(INNER))]) if record else FIXED[draw(0, len(FIXED))]
        fill = 9 if kind in ("f8", "i2") and draw(0, 3) == 0 else None
        if len(state.held) >= 10:
            return self.write()
        again = sorted(state.doubtful - set(state.held))
        if again and draw(0, 2):
            name = again[int(draw(0, len(again)))]
        else:
            name, state.created = f"v{state.created}", state.created + 1
            name = f"g{draw(0, 2)}/{name}" if draw(0, 3) == 0 else name
        model = np.dtype("S12") if kind == "text" else np.dtype(kind)
        held = Held(kind, fill if fill is not None else np.zeros((), model)[()], record, np.zeros(shape, model))
        held.base[...] = held.fill
        held.names, held.since = {name}, {name}
        state.held[name] = held
        keywords: dict[str, Any] = {"maxshape": (None, *shape[1:])} if record else {}
        if fill is not None:
            keywords["fillvalue"] = fill
        return lambda run: run.f.create_dataset(name, shape, dtype_of(kind), **keywords)

    def pick(self) -> tuple[str, Held]:
        names = sorted(self.state.held)
        name = names[int(self.random.integers(0, len(names)))]
        return name, self.state.held[name]

    def resize(self) -> Do:
        name, held = self.pick()
        n = int(self.random.integers(0, 12))
        if not held.record:
            return self.write()
        held.events.append(("resize", n))
        return lambda run: run.f[name].resize(n, axis=0)

    def delete(self) -> Do:
        name, held = self.pick()
        if self.random.random() < 0.5:
            return self.write()
        del self.state.held[name]
        self.state.doubtful |= held.since
        self.state.waiting = [one for one in self.state.waiting if one[1] != name]

        def do(run: Run) -> None:
            del run.f[name]

        return do

    def move(self) -> Do:
        name, held = self.pick()
        new = f"v{self.state.created}"
        self.state.created += 1
        self.state.held[new] = self.state.held.pop(name)
        held.names.add(new)
        held.since.add(new)
        self.state.waiting = [(number, new if of == name else of) for number, of in self.state.waiting]
        return lambda run: run.f.move(name, new)

    def attribute(self) -> Do:
        n = int(self.random.integers(1, 400))
        return lambda run: run.f.attrs.__setitem__("a", np.arange(n, dtype="i2"))

    # -------------------------------------------------------------------------------------- posting

    def values(self, shape: tuple[int, ...], kind: str) -> np.ndarray:
        draw = self.random.integers
        if kind == "text":
            made = np.empty(shape, "S12")
            flat = made.reshape(-1)
            for i in range(flat.size):
                flat[i] = b"abcdefghi"[: draw(0, 9)] + b"%d" % draw(0, 99)
            return made
        if kind == "S5":
            return draw(10000, 99999, shape).astype("S5")
        if kind == "bool":
            return draw(0, 2, shape).astype(bool)
        return draw(1, 120, shape).astype(kind)

    def index(self, shape: tuple[int, ...]) -> Any:
        draw = self.random.integers
        way = draw(0, 6)
        if not shape or way == 0:
            return Ellipsis
        if way == 1:
            return int(draw(0, shape[0]))
        if way == 2:
            mask = self.random.random(shape) < 0.3
            mask.flat[int(draw(0, mask.size))] = True
            return mask
        parts: list[Any] = []
        for n in shape:
            start = int(draw(0, n))
            parts.append(slice(start, int(draw(start, n)) + 1, int(draw(1, 4)) if way == 3 else None))
        if way == 4:
            axis = int(draw(0, len(shape)))
            chosen = np.flatnonzero(self.random.random(shape[axis]) < 0.4)
            parts[axis] = chosen.tolist() if len(chosen) else [0]
        return tuple(parts)

    def note(self, name: str, held: Held, event: tuple[Any, ...]) -> int:
        """A post."""
        state = self.state
        state.posts += 1
        held.events.append(("write", *event, state.posts))
        held.names = {name}
        return state.posts

    def write(self, *, posted: bool = False) -> Do:
        name, held = self.pick()
        now = held.now()
        if not now.size:
            return lambda run: None
        index = self.index(now.shape)
        values = self.values(np.empty(now.shape, "i1")[index].shape, held.kind)
        number = self.note(name, held, (index, values))
        given: Any = values.astype(object) if held.kind == "text" else values
        if not posted:
            return lambda run: run.f[name].__setitem__(index, given if values.shape else given[()])
        self.state.waiting.append((number, name))
        return lambda run: run.requests.__setitem__(number, run.f[name].iput(index, given))

    def row(self) -> Do:
        """One row of numbers, or some elements of a line: of these several come, one after another."""
        draw = self.random.integers
        self.rows = int(draw(1, 12)) if self.rows <= 0 else self.rows - 1
        fitting = [
            name
            for name, held in sorted(self.state.held.items())
            if held.kind in NUMBERS and held.now().ndim and held.now().size
        ]
        if not fitting:
            self.rows = 0
            return self.write()
        name = fitting[int(draw(0, len(fitting)))]
        held = self.state.held[name]
        now = held.now()
        first = int(draw(0, len(now)))
        index: Any = first if now.ndim > 1 else slice(first, first + 1 + int(draw(0, 9)))
        values = self.values(now[index].shape, held.kind)
        self.note(name, held, (index, values))
        return lambda run: run.f[name].__setitem__(index, values)

    def iput(self) -> Do:
        return self.write(posted=True)

    def many(self) -> Do:
        name, held = self.pick()
        now = held.now()
        if not now.size or not now.shape or held.kind in ("text", "S5"):
            return self.write()
        draw = self.random.integers
        starts = np.array([[int(draw(0, n)) for n in now.shape] for _ in range(draw(1, 5))])
        counts = np.array([[int(draw(1, n - a + 1)) for n, a in zip(now.shape, one, strict=True)] for one in starts])
        parts = [self.values(tuple(count), held.kind) for count in counts]
        for start, count, part in zip(starts, counts, parts, strict=True):
            box = tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))
            self.note(name, held, (box, part))
        flat = np.concatenate([part.ravel() for part in parts])

        def do(run: Run) -> None:
            run.f[name].iput_many(starts, counts, flat)

        return do

    def cancel(self) -> Do:
        state = self.state
        if not state.waiting or not self.cancels:
            return self.write()
        number, name = state.waiting.pop(int(self.random.integers(0, len(state.waiting))))
        held = state.held[name]
        held.events = [event for event in held.events if event[-1] != number or event[0] != "write"]
        held.names = set(held.since)
        return lambda run: run.requests[number].cancel()

    # ------------------------------------------------------------------------------------- the rest

    def flush(self) -> Do:
        self.state.settle()
        return lambda run: run.f.flush()

    def reopen(self) -> Do:
        self.state.settle()
        return Run.reopen

    def wait(self) -> Do:
        """One request, written out: what is waiting may be done too."""
        if not self.state.waiting:
            return self.write()
        number, _ = self.state.waiting[-1]
        self.state.waiting = []
        return lambda run: run.requests[number].wait()

    def read(self) -> Do:
        name, held = self.pick()
        wanted = held.now()

        def do(run: Run) -> None:
            np.testing.assert_array_equal(np.asarray(run.f[name][...]).astype(wanted.dtype), wanted)

        return do


def after(seed: int, steps: int, *, cancels: bool = True) -> State:
    """The model after so many operations."""
    program = Program(seed, cancels=cancels)
    for _ in range(steps):
        program.step()
    return program.state


def complaint(path: str, *states: State) -> str:
    """What in a recovered file is none of these states; "" if it is one of them."""
    with contextlib.closing(pnc_vol.File(path)) as f:
        return "" if any((found := _differs(f, state)) == "" for state in states) else found


def mixed(path: str, before: State, behind: State) -> str:
    """As `complaint`, where the last operation may be there in part."""
    with contextlib.closing(pnc_vol.File(path)) as f:
        return _differs(f, before, behind) and _differs(f, behind, before)


def _differs(f: Any, state: State, other: State | None = None) -> str:
    for name, held in state.held.items():
        there = sorted(n for n in held.names if n in f and n not in state.doubtful)
        if not there:
            if held.posted and not held.names & state.doubtful:
                return f"{name} is not there: {list(f)}"
            continue
        if not held.posted and held.names & state.doubtful:
            continue
        found, wanted = np.asarray(f[there[0]][...]), held.now()
        if held.record:
            if not held.length <= len(found) <= max(len(wanted), len(held.base)):
                return f"{name} has {len(found)} records, not {held.length} to {len(wanted)}"
            n = min(len(found), len(wanted))
            if not np.array_equal(
                found[n:].astype(wanted.dtype), np.full_like(found[n:], held.fill).astype(wanted.dtype)
            ):
                return f"{name} has values behind its end"
            found, wanted = found[:n], wanted[:n]
        if found.shape != wanted.shape:
            return f"{name} is {found.shape}, not {wanted.shape}"
        right = found.astype(wanted.dtype) == wanted
        if other is not None and name in other.held and (also := other.held[name].now()).shape[1:] == found.shape[1:]:
            n = min(len(also), len(found)) if found.shape else 1
            view, kept = (right.reshape(1), also.reshape(1)) if not found.shape else (right[:n], also[:n])
            view |= found.reshape(view.shape).astype(kept.dtype) == kept if not found.shape else found[:n] == kept
        if not np.all(right):
            where = np.argwhere(~np.atleast_1d(right))[:5].tolist()
            return f"{name} holds {found.ravel()[:20]}, not {wanted.ravel()[:20]}, at {where}"
    return ""
