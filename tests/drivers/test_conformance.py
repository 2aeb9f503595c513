"""The public suite on every driver of the package, and on stacks of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pnc_vol.testing.driver_suite import Driver, DriverSuite, Wrapper, extents_of, open_stack, register


class TestPosix(DriverSuite):
    stack = "posix"


class TestMemory(DriverSuite):
    stack = "memory"
    persistent = False


class TestTracedPosix(DriverSuite):
    stack = "trace | posix"


class TestTracedMemory(DriverSuite):
    stack = "trace(limit=3) | memory"
    persistent = False


class PassThrough(Wrapper):
    """The least that a wrapper can be."""

    name = "pass"


class TestPassThrough(DriverSuite):
    stack = "pass | trace | pass | posix"

    @pytest.fixture(autouse=True)
    def known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        register("pass", PassThrough)

    def test_every_verb_reaches_the_root(self, driver: Driver) -> None:
        assert isinstance(driver, Wrapper)
        traced = driver.inner
        driver.write(extents_of((0, 1, 0)), np.ones(1, np.uint8), collective=True)
        driver.read(extents_of((0, 1, 0)), np.ones(1, np.uint8))
        driver.size()
        driver.resize(0)
        driver.sync()
        driver.close()
        events = [(event.verb, event.collective) for event in traced.events]  # type: ignore[attr-defined]
        assert events == [
            ("write", True), ("read", False), ("size", False), ("resize", False), ("sync", False), ("close", False),
        ]  # fmt: skip


def test_trace_measures_the_path_that_is_taken_without_it(tmp_path: Path) -> None:
    """The fast reads go through it, and are counted."""
    path = tmp_path / "x"
    path.write_bytes(bytes(range(256)) * 64)
    plain, traced = (open_stack(spec, str(path), writable=False) for spec in ("posix", "trace | posix"))
    found = np.zeros(4, np.uint8)
    for driver in (plain, traced):
        assert driver.read_one(found, 8) == 4
        seen = driver.look(1024, 512, lambda file: None)
    calls = {key: value for key, value in traced.statistics().items() if key.startswith("posix.")}
    assert calls == plain.statistics()
    statistics = traced.statistics()
    assert statistics["trace.read_calls"] == statistics["posix.read_calls"] == 1 + seen
    assert statistics["trace.read_bytes"] == statistics["posix.read_bytes"]
    plain.close()
    traced.close()


def test_a_wrapper_that_changes_reads_changes_the_fast_ones_too(tmp_path: Path) -> None:
    class Inverted(Wrapper):
        name = "inverted"

        def read(self, extents, memory, *, collective=False):
            count = super().read(extents, memory)
            np.invert(memory, out=memory)
            return count

    path = tmp_path / "x"
    path.write_bytes(b"\0" * 100)
    driver = Inverted(open_stack("posix", str(path), writable=False))
    found = np.zeros(4, np.uint8)
    assert driver.read_one(found, 0) == 4
    assert found.tolist() == [255] * 4
    assert not driver.look(100, 4, lambda file: None)
    driver.close()


def test_trace_counts_and_draws(tmp_path: object) -> None:
    target = os.path.join(str(tmp_path), "run.json")
    driver = open_stack(f"trace(file='{target}') | memory", None, writable=True)
    driver.write(extents_of((7, 2, 0), (3, 1, 2)), np.zeros(3, np.uint8))
    with pytest.raises(ValueError):
        driver.write(extents_of((0, 9, 0)), np.zeros(3, np.uint8))
    statistics = driver.statistics()
    assert (statistics["trace.write_calls"], statistics["trace.write_extents"]) == (2, 3)
    assert statistics["memory.write_bytes"] == 3
    driver.close()
    driver.close()
    with open(target) as file:
        drawn = json.load(file)
    told = {event["name"] for event in drawn["traceEvents"] if event["ph"] == "M"}
    assert told == {"process_name", "thread_name"}
    done = [event for event in drawn["traceEvents"] if event["ph"] != "M"]
    assert [event["name"] for event in done] == ["write", "write", "close"]
    first, second, _ = (event["args"] for event in done)
    assert (first["first"], first["last"], first["extents"], first["nbytes"]) == (3, 9, 2, 3)
    assert second["error"].startswith("ValueError")
    assert drawn["otherData"]["stack"] == f"trace(file={target}) | memory"
