"""Threads that read beside posts, flushes and reopenings: ``python tests/engine/threads.py --reads 100000 --seed 1``.

Eight threads read one file in every way, one thread posts, one flushes, closes and opens again. Each element says which
dataset and place it belongs to, and by which post it was written: a read must see what was posted before it began, and
nothing that was not posted before it ended. After some thousand reads the file is closed, compared as a whole, read by
all threads as a file that nobody writes, and another one is used in another way.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import pnc_vol

READERS = 8
ROUND = 4000
"""Reads of one file."""
SECONDS = 300
"""Without an end after so long, the stacks of all threads are printed."""

WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "posix": lambda folder: {},
    "trace": lambda folder: {"driver": "trace | posix"},
    "small queue": lambda folder: {"buffer_size": 64 << 10},
    "log": lambda folder: {"burst_buf": True, "burst_buf_dirname": str(folder)},
    "cache": lambda folder: {"hints": {"e10_cache_path": str(folder)}},
    "log over cache": lambda folder: {
        "burst_buf": True,
        "burst_buf_dirname": str(folder),
        "hints": {"e10_cache_path": str(folder), "e10_cache_flush_flag": "flush_onclose"},
    },
    "blob": lambda folder: {"layout": "blob"},
    "durable": lambda folder: {"durable": True},
}
"""How the file is opened: a name, and the options."""

SHAPES: dict[str, tuple[int, ...]] = {
    "runs": (4000,),
    "slabs": (30, 20, 9),
    "large": (60_000,),
    "records": (40, 25),
    "text": (150,),
    "pairs": (120,),
    "rows": (25,),
}
"""The datasets; the first axis of `records` grows."""
PAIR = np.dtype([("place", "i4"), ("post", "f8")])


def encoded(name: str, places: Any, post: int) -> Any:
    """What a post writes at some places."""
    number = list(SHAPES).index(name)
    if name == "text":
        return np.array([f"{number} {place} {post}".encode() for place in places.ravel().tolist()], "S16").reshape(
            places.shape
        )
    if name == "pairs":
        made = np.empty(places.shape, PAIR)
        made["place"], made["post"] = places, post
        return made
    return (post << 32) + (number << 24) + places.astype("i8")


def decoded(name: str, values: Any) -> tuple[Any, Any]:
    """The places and posts that values say they are of; place -1 for what belongs to another dataset."""
    number = list(SHAPES).index(name)
    values = np.asarray(values)
    if name == "text":
        texts = [text.decode().split() if text else [str(number), "0", "0"] for text in values.ravel().tolist()]
        found = np.array([[int(part) for part in text] for text in texts], "i8").reshape(*values.shape, 3)
        return np.where(found[..., 0] == number, found[..., 1], -1), found[..., 2]
    if name == "pairs":
        return values["place"], values["post"]
    return np.where(values >> 24 & 255 == number, values & 0xFFFFFF, -1), values >> 32


def picked(value: Any, chosen: tuple[Any, ...]) -> Any:
    """What h5py selects: the axes one by one, which numpy does not do with a list beside a number."""
    for axis in reversed(range(len(chosen))):
        value = value[(slice(None),) * axis + (chosen[axis],)]
    return value


def a_selection(chance: random.Random, shape: tuple[int, ...], *, grows: bool) -> tuple[Any, ...]:
    """An index of any kind: numbers, slices with steps, one list, one mask, but not along an axis that grows."""
    chosen: list[Any] = []
    listed = False
    for axis, n in enumerate(shape):
        kind, low = chance.randrange(5), chance.randrange(n)
        if kind == 0:
            chosen.append(low)
        elif kind == 1 and not listed:
            chosen.append(np.unique([chance.randrange(n) for _ in range(9)]))
            listed = True
        elif kind == 2 and not listed and n < 100 and (axis or not grows):
            mask = np.array([chance.random() < 0.2 for _ in range(n)])
            mask[low] = listed = True
            chosen.append(mask)
        else:
            chosen.append(slice(low, chance.randrange(low + 1, min(n, low + 40) + 1), chance.randrange(1, 5)))
    return tuple(chosen)


WHOLE: tuple[Any, ...] = (...,)


class Wrong(AssertionError):
    """A read that saw what it must not see."""


class Round:
    """One file, and the threads that use it.

    Attributes
    ----------
    begun, done : for each dataset, by places: the last post that has begun, and the last one that has returned.
    length : records that were made.
    """

    def __init__(self, folder: Path, way: str, seed: str, reads: int) -> None:
        self.path, self.way, self.seed, self.reads = folder / "x.nc", way, seed, reads
        (folder / "fast").mkdir()
        self.options = WAYS[way](folder / "fast")
        self.counter, self.posts, self.openings, self.flushes = itertools.count(), 0, 0, 0
        shapes = {name: (400, *shape[1:]) if name == "records" else shape for name, shape in SHAPES.items()}
        self.begun = {name: np.zeros(shape, "i8") for name, shape in shapes.items()}
        self.done = {name: np.zeros(shape, "i8") for name, shape in shapes.items()}
        self.places = {name: np.arange(np.prod(shape)).reshape(shape) for name, shape in shapes.items()}
        self.length = SHAPES["records"][0]
        self.over = threading.Event()
        self.failed: list[str] = []
        self.file = self._made()

    def _made(self) -> Any:
        f = pnc_vol.File(self.path, "w", **self.options)
        for name, shape in SHAPES.items():
            dtype: Any = {"text": "S16", "pairs": PAIR, "rows": pnc_vol.vlen_dtype("i8")}.get(name, "i8")
            f.create_dataset(name, shape, dtype, maxshape=(None, *shape[1:]) if name == "records" else None)
        return f

    # ------------------------------------------------------------------------------------------ threads

    def run(self) -> None:
        """Let all threads do their work; then some more reads of the file that nobody writes any more."""
        self._together(self.reads * 3 // 4, self._posting, self._reopening)
        self.file.close()
        self.options = {"driver": self.options["driver"]} if "driver" in self.options else {}
        self.file = pnc_vol.File(self.path, "r", **self.options)
        for name in SHAPES:
            self._compare(self.file, name, WHOLE, None)
        self._together(self.reads)
        self.file.close()

    def _together(self, reads: int, *beside: Callable[[], None]) -> None:
        """Read until there were so many reads of the round, while other threads do something else."""
        self.over.clear()
        works = [*(lambda n=n: self._reads(n, reads) for n in range(READERS)), *beside]
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads[:READERS]:
            thread.join()
        self.over.set()
        for thread in threads:
            thread.join()
        if self.failed:
            with suppress(Exception):
                self.file.close()
            raise Wrong(f"{self.way}, seed {self.seed}: {self.failed[0]}")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            self.failed.append(traceback.format_exc(limit=-8))
        finally:
            if self.failed:
                self.over.set()

    def _reads(self, number: int, reads: int) -> None:
        chance = random.Random(f"{self.seed} reader {number} {reads}")
        while not self.over.is_set() and next(self.counter) < reads:
            self._again(lambda: self._read(self.file, chance))

    def _again(self, act: Callable[[], None]) -> bool:
        """Do something with the file that is open; once more with the next one, if it is closed meanwhile.

        False: it was not done, as the round is over.
        """
        while not self.over.is_set():
            file = self.file
            try:
                act()
            except pnc_vol.ClosedFileError:
                while self.file is file and not self.over.is_set():
                    time.sleep(1e-4)
            else:
                return True
        return False

    # -------------------------------------------------------------------------------------------- reading

    def _read(self, f: Any, chance: random.Random) -> None:
        name = chance.choice(list(SHAPES))
        if name == "large" and chance.random() < 0.9:
            name = "runs"
        if name == "rows":
            self._compare(f, name, (chance.randrange(SHAPES[name][0]),), chance)
            return
        shape = (self.length, *SHAPES[name][1:]) if name == "records" else SHAPES[name]
        chosen = WHOLE if name == "large" else a_selection(chance, shape, grows=name == "records")
        self._compare(f, name, chosen, chance)
        if chance.random() < 0.05:
            seen, known = int(f.attrs.get("post", 0)), self.posts
            if seen > known + 1:
                raise Wrong(f"attribute of post {seen}, after {known}")

    def _compare(self, f: Any, name: str, chosen: tuple[Any, ...], chance: random.Random | None) -> None:
        """Read some elements, in any way, and compare them with what was posted before and after."""
        ds = f[name]
        if chosen is WHOLE:
            chosen = (slice(0, ds.shape[0]),)
        least = np.array(picked(self.done[name], chosen))
        way = 0 if chance is None else chance.randrange(12)
        if name == "rows":
            rows = ds[chosen]
            rows = [rows] if isinstance(chosen[0], int) else list(rows)
            values = np.array([row[0] if len(row) else 0 for row in rows]).reshape(least.shape)
            if any(len(row) and (row != row[0]).any() for row in rows):
                raise Wrong(f"rows {chosen}: {rows}")
        elif way == 1 and name != "pairs":
            request = ds.iget(chosen)
            request.wait()
            values = request.array
        elif way == 2:
            # as many records as there are now; there may be more in a moment
            whole = np.empty(ds.shape, ds.dtype)
            ds.read_direct(whole, np.s_[: len(whole)])
            values = picked(whole, chosen)
        else:
            values = ds[chosen]
        most = np.array(picked(self.begun[name], chosen))
        places, posts = decoded(name, values)
        wanted = picked(self.places[name], chosen)
        wrong = (posts < least) | (posts > most) | ((posts > 0) & (places != wanted))
        if np.any(wrong):
            at = tuple(int(i) for i in np.argwhere(np.atleast_1d(wrong))[0])
            told = [np.atleast_1d(one)[at] for one in (places, posts, wanted, least, most)]
            raise Wrong(
                "{}[{}] read in way {}, at {}: place {}, post {}; place {}, posts {} to {} are right".format(
                    name, chosen, way, at, *told
                )
            )

    # -------------------------------------------------------------------------------------------- writing

    def _posting(self) -> None:
        chance = random.Random(f"{self.seed} posts")
        while not self.over.is_set():
            self._post(chance)
            if chance.random() < 0.3:
                time.sleep(chance.random() * 2e-3)

    def _post(self, chance: random.Random) -> None:
        post, name = self.posts + 1, chance.choice(list(SHAPES))
        if name == "records" and chance.random() < 0.3 and self.length < 400:
            self.length += self._again(lambda: self.file["records"].resize(self.length + 1, axis=0))
        if name == "rows":
            i = chance.randrange(SHAPES[name][0])
            self.begun[name][i] = post
            value = np.full(chance.randrange(1, 9), encoded(name, self.places[name][i], post))
            if self._again(lambda: self.file["rows"].__setitem__(i, value)):
                self.done[name][i] = post
        else:
            shape = (self.length, *SHAPES[name][1:]) if name == "records" else SHAPES[name]
            chosen = a_selection(chance, shape, grows=name == "records")
            places = np.array(picked(self.places[name], chosen))
            self._mark(self.begun[name], places, post)
            values, asked = encoded(name, places, post), chance.random() < 0.2
            if self._again(lambda: self._put(self.file[name], chosen, values, asked)):
                self._mark(self.done[name], places, post)
        self.posts = post
        if chance.random() < 0.05:
            self._again(lambda: self.file.attrs.__setitem__("post", post))

    def _put(self, ds: Any, chosen: tuple[Any, ...], values: Any, asked: bool) -> None:
        if asked and ds.dtype != PAIR:
            ds.iput(chosen, values)
        else:
            ds[chosen] = values

    @staticmethod
    def _mark(which: Any, places: Any, post: int) -> None:
        which.reshape(-1)[places] = post

    def _reopening(self) -> None:
        chance = random.Random(f"{self.seed} opens")
        while not self.over.wait(chance.random() * 0.02):
            if chance.random() < 0.7:
                self.file.flush()
                self.flushes += 1
            else:
                self.file.close()
                self.file = pnc_vol.File(self.path, "r+", **self.options)
                self.openings += 1


def rounds(reads: int, seed: str, ways: list[str]) -> dict[str, int]:
    """So many reads, by all ways in turn; how many posts, flushes and openings there were beside."""
    done = {"reads": 0, "posts": 0, "flushes": 0, "openings": 0}
    number = 0
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)  # threads take turns a hundred times as often as usual
    try:
        while done["reads"] < reads:
            some = min(ROUND, reads - done["reads"])
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            with tempfile.TemporaryDirectory(prefix="threads-") as made:
                one = Round(Path(made), ways[number % len(ways)], f"{seed}:{number}", some)
                one.run()
            faulthandler.cancel_dump_traceback_later()
            for name, more in (
                ("reads", some),
                ("posts", one.posts),
                ("flushes", one.flushes),
                ("openings", one.openings),
            ):
                done[name] += more
            number += 1
    finally:
        sys.setswitchinterval(before)
    return done


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tests/engine/threads.py", description=__doc__.split("\n")[0])
    parser.add_argument("--reads", type=int, default=100_000, help="how many (100000)")
    parser.add_argument("--seed", default="1", help="of all that threads do (1); when they do it is not repeated")
    parser.add_argument("--way", action="append", choices=sorted(WAYS), help="only so; may be repeated")
    args = parser.parse_args(given)
    warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
    begun = time.monotonic()
    done = rounds(args.reads, args.seed, args.way or list(WAYS))
    print(
        f"{done['reads']} reads, 0 wrong, beside {done['posts']} posts, {done['flushes']} flushes and "
        f"{done['openings']} openings; {time.monotonic() - begun:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
