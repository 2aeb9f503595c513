"""An interrupt, or memory that runs out, in the middle of a post, a flush, a cut: the log goes on, and is whole."""

from __future__ import annotations

import dis
import itertools
import pathlib
import shutil
import sys
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.log import short_posts
from pnc_vol.testing.faults import FailingCalls

Values = dict[str, np.ndarray[Any, Any]]


class Interrupting:
    """Inside, KeyboardInterrupt comes at the n-th place where Python looks for signals.

    That is where a function of the log or the queue begins, and behind each call that it makes.
    """

    def __init__(self, at: int) -> None:
        self.at, self.seen, self.fired = at, 0, ""
        self._last: dict[int, str] = {}

    def __enter__(self) -> Interrupting:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: Any, event: str, arg: Any) -> Any:
        if self.fired or not frame.f_globals.get("__name__", "").startswith(("pnc_vol.log.", "pnc_vol.queue.")):
            return None
        frame.f_trace_opcodes = True
        return self._opcode

    def _opcode(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "opcode" and not self.fired:
            before, now = self._last.get(id(frame), ""), dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self._last[id(frame)] = now
            if before.startswith("CALL") or now == "RESUME":
                self.seen += 1
                if self.seen == self.at:
                    self.fired = f"{frame.f_code.co_name}, line {frame.f_lineno}"
                    raise KeyboardInterrupt
        return self._opcode


def post(f: Any, wanted: Values) -> None:
    wanted["a"][3] = -1
    f["a"][3] = -1.0


def post_many(f: Any, wanted: Values) -> None:
    wanted["a"][::3] = -2
    f["a"][::3] = np.full(17, -2.0)


def flush(f: Any, wanted: Values) -> None:
    f.flush()


def read(f: Any, wanted: Values) -> None:
    assert f["b"][0].shape == (3,)


def cut(f: Any, wanted: Values) -> None:
    wanted["b"][30:] = 0
    f["b"].resize(30, axis=0)


def cancel(f: Any, wanted: Values) -> None:
    f.cancel(list(f.requests.values())[-1:])


def some_posts(f: Any, values: Values, count: int) -> None:
    for i in range(count):
        name = "ab"[i % 2]
        values[name][7 * i % 25] += i + 1
        f[name][7 * i % 25] = values[name][7 * i % 25]


def begun(folder: pathlib.Path) -> tuple[Any, Values]:
    (folder / "logs").mkdir(parents=True)
    f = pnc_vol.File(folder / "x.nc", "w", burst_buf=True, burst_buf_dirname=str(folder / "logs"))
    f.create_dataset("a", (50,), "f8")
    f.create_dataset("b", (50, 3), "i4", maxshape=(None, 3))
    f.flush()
    values: Values = {"a": np.zeros(50), "b": np.zeros((50, 3), "i4")}
    some_posts(f, values, 20)
    return f, values


def matches(found: Any, one: Values, other: Values) -> Values:
    """What a file has: each dataset is one or the other, as far as both go."""
    got = {name: found[name][...] for name in one}
    for name, mine in got.items():
        n = len(mine)
        assert np.array_equal(mine, one[name][:n]) or np.array_equal(mine, other[name][:n]), name
        assert not one[name][n:].any() or not other[name][n:].any(), name
    return {name: np.concatenate((mine, np.zeros_like(one[name][len(mine) :]))) for name, mine in got.items()}


def after_a_kill(folder: pathlib.Path, one: Values, other: Values) -> None:
    """What a kill at this moment would leave is replayed somewhere else."""
    left = shutil.copytree(folder, folder.with_name(f"{folder.name}-killed"))
    pnc_vol.replay(left / "x.nc", sorted(left.glob("logs/*")))
    with pnc_vol.File(left / "x.nc") as f:
        matches(f, one, other)
    shutil.rmtree(left)


@pytest.mark.parametrize("stretch", [1, 100], ids=["slot", "logs"])
@pytest.mark.parametrize(
    ("trouble", "act", "step"),
    [
        *((Interrupting, act, 11 if act in (flush, cut) else 5) for act in (post, post_many, flush, read, cut)),
        *((FailingCalls, act, 1) for act in (post, post_many, cut, cancel)),
        (FailingCalls, read, 2),
        (FailingCalls, flush, 5),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_log_goes_on(
    trouble: Any, act: Any, step: int, stretch: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are old or new; later posts, a replay and a flush find a log that is whole."""
    monkeypatch.setattr(short_posts, "STRETCH", stretch)
    for at in itertools.count(1, step):
        folder = tmp_path / str(at)
        f, old = begun(folder)
        new = {name: values.copy() for name, values in old.items()}
        if act is cancel:
            new["b"][:] = f["b"][...]
            request = f["b"].iput(40, np.array([7, 8, 9], "i4"))
            old["b"][40] = 7, 8, 9
            assert request.status == "pending"
        inside = trouble(at)
        try:
            with inside:
                act(f, new)
            old = new
        except (KeyboardInterrupt, MemoryError):
            pass
        logged = f.id.handle.session.posted.queue.store.capabilities.logged
        if logged:
            # memory that was too little for a post tells that it is not posted
            after_a_kill(folder, old, new if trouble is Interrupting else old)
        values = matches(f, old, new)
        some_posts(f, values, 6)
        if logged:
            after_a_kill(folder, values, values if trouble is FailingCalls else {**values, **_mixed(values, new)})
        f.flush()
        some_posts(f, values, 4)
        f.close()
        with pnc_vol.File(folder / "x.nc") as f:
            matches(f, values, values)
        shutil.rmtree(folder)
        if not inside.fired:
            return


def _mixed(values: Values, new: Values) -> Values:
    """With what an interrupted post wrote, where later ones did not write."""
    mixed = {name: array.copy() for name, array in values.items()}
    for name, array in new.items():
        mine = (array < 0) & (values[name] >= 0)
        mine[[7 * i % 25 for i in range(0, 6, 2)]] = False
        mixed[name][mine] = array[mine]
    return mixed
