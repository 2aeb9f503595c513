"""Small pieces of work on a file, in steps that may be repeated, and what the file holds after each.

A step defines what is missing, posts, and ends with a call that puts everything into the file; done twice it leaves
the same. `contents` is what a reader sees: the currency in which all fault tests compare.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import pnc_vol
from pnc_vol.system import System

BUDGET = 64 << 10


class Contents(NamedTuple):
    """What a reader sees: attributes, and arrays by name; None in its place stands for no file."""

    attrs: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def alike(self, other: Contents) -> bool:
        """Whether the definitions are the same."""
        return self.attrs == other.attrs and (
            {name: (a.shape, a.dtype) for name, a in self.arrays.items()}
            == {name: (a.shape, a.dtype) for name, a in other.arrays.items()}
        )

    def equals(self, other: Contents | None) -> bool:
        return (
            other is not None
            and self.alike(other)
            and all(np.array_equal(a, other.arrays[name]) for name, a in self.arrays.items())
        )


def contents(path: pathlib.Path) -> Contents | None:
    """Read a file whole, by the real system, as another process would see it."""
    if not path.exists():
        return None
    with pnc_vol.File(path, system=System()) as f:
        attrs = {name: np.asarray(value).tolist() for name, value in f.attrs.items()}
        return Contents(attrs, {name: np.asarray(f[name][...]) for name in f})


class Context:
    """A file being worked on.

    first : str, the mode of the first open.
    options : dict, for `File`.
    """

    def __init__(self, path: pathlib.Path, system: Any, mode: str, **options: Any) -> None:
        self.path, self.mode = path, mode
        self.options = {"buffer_size": BUDGET, **options, "system": system}
        self.f: Any = None

    def open(self) -> None:
        if self.f is None:
            self.f = pnc_vol.File(self.path, self.mode, **self.options)
            self.mode = "r+"

    def dataset(self, name: str, shape: Any, dtype: Any, **keywords: Any) -> Any:
        """The dataset of that name; made if it is missing, given its length if it is a record dataset."""
        if name not in self.f:
            return self.f.create_dataset(name, shape, dtype, **keywords)
        found = self.f[name]
        if "maxshape" in keywords:
            found.resize(shape)
        return found

    def let_go(self) -> None:
        """Forget the file as a dead process does: nothing of it may run later."""
        if self.f is not None and self.f:
            self.f.id.handle.session.closed = True
        self.f = None


Step = Callable[[Context], None]


class Work(NamedTuple):
    """A name, the mode of the first open, options, what is there before, and the steps."""

    name: str
    mode: str
    options: dict[str, Any]
    before: list[Step]
    steps: list[Step]


def opening(c: Context) -> None:
    c.open()


def flushing(c: Context) -> None:
    c.f.flush()


def closing(c: Context) -> None:
    if c.f is not None:
        try:
            c.f.close()
        finally:
            if not c.f:
                # else it was flushed and has not got its name: another close tries again
                c.f = None


# ------------------------------------------------------------------------------------------- the steps


def some_data(c: Context) -> None:
    c.dataset("a", (50, 40), "f8")[:] = np.arange(2000.0).reshape(50, 40)
    c.dataset("b", (30,), "i2")[::2] = 7
    c.f.attrs["title"] = "data"
    c.f.flush()


def records(n: int) -> Step:
    def step(c: Context) -> None:
        c.dataset("r", (n, 100), "f4", maxshape=(None, 100))[:] = np.arange(n * 100).reshape(n, 100)
        c.dataset("s", (n,), "i2", maxshape=(None,), fillvalue=-9)[: n - 1] = np.arange(n - 1)
        c.f.flush()

    return step


def lone(c: Context) -> None:
    c.dataset("lone", (9, 3), "i1", maxshape=(None, 3))[:] = np.arange(27).reshape(9, 3)
    c.f.flush()


def second(c: Context) -> None:
    c.dataset("second", (9,), "f8", maxshape=(None,))[:] = np.arange(9)
    c.f.flush()


def attribute(n: int) -> Step:
    def step(c: Context) -> None:
        c.f.attrs[f"attribute{n}"] = np.arange(n, dtype="i4")
        c.f.flush()

    return step


def moved(c: Context) -> None:
    """More attributes than fit the reserve, and changed data with them."""
    c.f.attrs["much"] = np.arange(3000, dtype="i4")
    c.dataset("a", (50, 40), "f8")[3] = -1
    c.f.flush()


def texts(*words: str) -> Step:
    def step(c: Context) -> None:
        c.dataset("t", (len(words),), pnc_vol.string_dtype())[:] = list(words)
        c.f.flush()

    return step


def filled(c: Context) -> None:
    c.dataset("x", (40, 5), "f4", fillvalue=3.5)[7:9] = 1
    c.dataset("y", (6, 10), "i4", maxshape=(None, 10), fillvalue=8)[2, 3] = 5
    c.f.flush()


def overwritten(c: Context) -> None:
    c.f["a"][10:20] = -5
    c.f["b"][1::2] = 9
    c.f.flush()


def drained(c: Context) -> None:
    """More than the budget, small and large, contiguous and not, and a record variable for the spill file."""
    d = c.dataset("d", (200, 150), "f8")
    r = c.dataset("r", (8, 100), "f8", maxshape=(None, 100))
    for i in range(0, 200, 25):
        d[i : i + 25] = i
        r[i // 25] = i + 1
    c.dataset("whole", (20000,), "f8")[:] = np.arange(20000.0)
    c.dataset("strided", (12, 1000), "f8")[:, 100:900] = np.arange(9600.0).reshape(12, 800)
    c.f.flush()


def deleted(c: Context) -> None:
    for name in ("b", "s"):
        if name in c.f:
            del c.f[name]
    c.f.flush()


def works() -> Iterator[Work]:
    """All of them."""
    yield Work("create", "w", {}, [], [opening, some_data, closing])
    yield Work("create, flush at the close", "w", {}, [], [opening, lambda c: define_only(c), closing])
    yield Work("exclusive", "x", {}, [], [opening, some_data, closing])
    yield Work("over an existing file", "w", {}, [opening, some_data, closing], [opening, lone, closing])
    yield Work("publish at close", "w", {"publish": "close"}, [], [opening, unseen(some_data), unseen(lone), closing])
    yield Work(
        "publish at close, over an existing file", "w", {"publish": "close"}, [opening, some_data, closing],
        [opening, unseen(lone), closing],
    )  # fmt: skip
    yield Work("publish at close, exclusive", "x", {"publish": "close"}, [], [opening, unseen(some_data), closing])
    yield Work("append", "r+", {}, [opening, records(4), closing], [opening, records(5), records(12), closing])
    yield Work("grow in the reserve", "r+", {}, [opening, some_data, records(4), closing],
               [opening, attribute(3), attribute(200), closing])  # fmt: skip
    yield Work("move", "r+", {}, [opening, some_data, records(4), closing], [opening, moved, closing])
    yield Work("second record variable", "r+", {}, [opening, lone, closing], [opening, second, closing])
    yield Work("strings", "r+", {}, [opening, some_data, texts("a", "b"), closing],
               [opening, texts("a", "much longer than before"), closing])  # fmt: skip
    yield Work("fill", "w", {}, [], [opening, filled, closing])
    yield Work("fill and append", "r+", {}, [opening, records(3), closing], [opening, filled, records(8), closing])
    yield Work("overwrite", "r+", {}, [opening, some_data, closing], [opening, overwritten, closing])
    yield Work("drain", "w", {}, [], [opening, drained, closing])
    yield Work("drain, r+", "r+", {}, [opening, some_data, records(3), closing], [opening, drained, closing])
    yield Work("delete", "r+", {}, [opening, some_data, records(3), closing], [opening, deleted, closing])
    yield Work("durable", "w", {"durable": True}, [], [opening, some_data, attribute(2000), moved, closing])


def unseen(step: Step) -> Step:
    """The step, marked as one that no reader notices before the close."""
    return step


def define_only(c: Context) -> None:
    c.dataset("a", (5, 4), "f8")[:] = 3
    c.dataset("r", (3,), "i1", maxshape=(None,))[:] = 1
    c.f.attrs["x"] = 1
