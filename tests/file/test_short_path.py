"""The short path of posts: what it costs does not creep up; `tests/test_paths.py` compares what it stores."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from counted_work import calls_of, note_copies

import pnc_vol
from pnc_vol.queue.stores import ROW_COST

# ------------------------------------------------------------------------------------------- what it costs


def calls_again(act: Callable[[], object]) -> int:
    """Functions of Python that an act calls which was done before."""
    act()
    return calls_of(act)


def setter(dataset: Any, index: Any, value: Any) -> Callable[[], None]:
    def act() -> None:
        dataset[index] = value

    return act


def test_posts_of_all_kinds_take_few_calls() -> None:
    with pnc_vol.File("calls.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (100, 50), "f8")
        y = f.create_dataset("y", (100,), "f4")
        r = f.create_dataset("r", (4, 50), "f8", maxshape=(None, 50))
        s = f.create_dataset("s", (), "f8")
        row, five = np.ones(50), slice(5, 10)
        plain = calls_again(setter(x, 3, row))
        assert plain <= 6
        for name, act in {
            "scalar": setter(y, five, 1.5),
            "f8 to f4": setter(y, five, np.ones(5)),
            "list": setter(y, five, [1.0, 2, 3, 4, 5]),
            "one number": setter(x, (4, 5), 1.0),
            "block": setter(x, (slice(2, 4), slice(10, 20)), np.ones((2, 10))),
            "two records": setter(r, slice(1, 3), np.ones((2, 50))),
            "no axes": setter(s, (), 1.5),
            "every second row": setter(x, slice(0, 50, 2), np.ones((25, 50))),
            "every second element": setter(y, slice(0, 100, 2), np.ones(50, "f4")),
            "rows of a list": setter(x, [3, 7, 20], np.ones((3, 50))),
            "rows of an array": setter(x, (np.arange(0, 90, 3), slice(None)), np.ones((30, 50))),
            "cells of a row": setter(x, (3, [1, 2, 3, 7, 9]), np.ones(5)),
            "neighbours": setter(x, [4, 5, 6], np.ones((3, 50))),
            "a mask": setter(y, np.arange(100) % 3 == 0, np.ones(34, "f4")),
            "iput": lambda: x.iput(3, row),
            "iput of a list": lambda: y.iput(five, [1.0, 2, 3, 4, 5]),
        }.items():
            assert calls_again(act) <= plain + 4, name
        assert calls_again(lambda: x.iput(3, row)) <= plain + 1
        f.wait_all()
        assert calls_again(lambda: x.iget(3)) <= 9
        f.wait_all()


def test_a_read_beside_posts_costs_the_same_whatever_is_posted() -> None:
    with pnc_vol.File("beside.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", data=np.zeros((3000, 4)))
        f.flush()
        plain = calls_again(lambda: x[2500])
        costs = []
        for many in (1, 10, 2000):
            for i in range(many):
                x[i] = i
            # apart from all that is posted, all of one post, and a part of one with what the file has
            some = slice(many - 1, many + 1)
            costs.append([calls_again(partial(x.__getitem__, index)) for index in (2500, 0, some)])
            assert x[some].tolist() == [[many - 1] * 4, [0] * 4]
        assert costs[0] == costs[1] == costs[2]
        for cost, most in zip(costs[0], (14, 6, 50), strict=True):
            assert cost <= plain + most


def test_small_posts_are_copied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with pnc_vol.File("stretch.nc", "w", driver="memory") as f:
        x, y = f.create_dataset("x", (3000, 8), "f8"), f.create_dataset("y", (3000, 8), "f8")
        copied = note_copies(monkeypatch)
        for i in range(3000):
            (y if i % 3 else x)[i] = np.full(8, i)
        # 64 bytes and a row each, 64 KiB at a time, and one copy more for the first post of a stretch
        assert len(copied) <= 2 * (3000 * (64 + ROW_COST) // (64 << 10)) + 6
        assert x[2997].tolist() == [2997.0] * 8
        f.flush()
        assert x[0:6:3, 0].tolist() == [0, 3]
        assert y[2999, 7] == 2999


def test_the_first_posts_of_variables_after_a_flush_are_copied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with pnc_vol.File("first.nc", "w", driver="memory") as f:
        made = [f.create_dataset(f"v{i}", (0, 8), "f8", maxshape=(None, 8)) for i in range(20)]
        f.flush()
        copied = note_copies(monkeypatch)
        for i in range(3):
            for n, x in enumerate(made):
                x.resize(i + 1, axis=0)
                x[i] = np.full(8, n + i)
            copied.clear()
            f.flush()
            assert len(copied) <= 2
        assert [x[2].tolist() for x in made] == [[n + 2.0] * 8 for n in range(20)]


def test_variables_in_either_byte_order_share_a_stretch() -> None:
    with pnc_vol.File("orders.nc", "w", driver="memory") as f:
        made = {dtype: f.create_dataset(dtype, (40,), dtype) for dtype in (">i8", "<i8", ">f8", "<f8")}
        for i in range(40):
            for dtype, x in made.items():
                x[i : i + 1] = np.array([i], dtype)
        for i in range(20):
            made[">i8"][i : i + 1] = np.array([-i], ">i8")
        f.flush()
        wanted = list(range(40))
        assert [made[dtype][:].tolist() for dtype in ("<i8", ">f8", "<f8")] == [wanted] * 3
        assert made[">i8"][:].tolist() == [-i for i in range(20)] + wanted[20:]


def test_nothing_is_kept_of_handles_that_were_dropped() -> None:
    with pnc_vol.File("handles.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (10,), "i4")
        kept = [x.iput(i, i) for i in range(5)]
        before = len(gc.get_objects())
        for i in range(1000):
            x.iput(i % 10, i)
        assert len(gc.get_objects()) - before < 100
        assert f.requests[kept[0].id] == kept[0]
        assert len(f.requests) == 1005
        kept[1].cancel()
        f.flush()
        assert [one.status for one in kept[:3]] == ["done", "cancelled", "done"]
        assert not f.requests


def test_a_block_is_rows_of_one_request() -> None:
    with pnc_vol.File("block.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (6, 7), "i4")
        request = x.iput((slice(1, 4), slice(2, 5)), np.arange(9).reshape(3, 3))
        kept = x.iput(0, 7)
        request.cancel()
        assert (request.status, kept.nbytes) == ("cancelled", 28)
        assert x[...].sum() == 49
        x[1:4, 2:5] = np.arange(9).reshape(3, 3)
        f.flush()
        assert x[3, 2:5].tolist() == [6, 7, 8]


def test_posts_with_a_step_cost_the_same_after_the_queue_was_full() -> None:
    with pnc_vol.File("full.nc", "w", driver="memory", buffer_size=1 << 20) as f:
        x = f.create_dataset("x", (90 * 2000,), "f8")
        f.flush()

        def post(i: int) -> int:
            return calls_of(setter(x, slice(90 * i, 90 * i + 90, 3), 4.5))

        calls = [post(i) for i in range(2000)]
        # but for the few posts that find the queue full, and empty it
        assert sum(n > max(calls[:10]) + 4 for n in calls) < 2000 * 30 * (8 + ROW_COST) / (1 << 20) * 3
        f.flush()
        assert (x[::3] == 4.5).all()
        assert not x[1::3].any()


def test_the_flush_of_many_lists_takes_calls_in_proportion() -> None:
    calls = []
    with pnc_vol.File("lists.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (400, 90), "f8")
        # runs of different lengths, which are kept as a list
        where = np.flatnonzero(np.isin(np.arange(90) % 7, (0, 1, 3)))
        for many in (100, 400):
            f.flush()
            for i in range(many):
                x[i, where] = np.full(len(where), 1.0 + i)
            calls.append(calls_of(f.flush))
        assert x[399, 0] == 400
    assert calls[1] < 4.5 * calls[0]
