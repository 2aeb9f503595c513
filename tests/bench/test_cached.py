"""Benchmarks with a node-local cache: they run, say what was hidden, and compute the bars as they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pnc_vol.bench.cached import BARS, _Told, bars
from pnc_vol.testing.mpi import missing


def test_the_bars() -> None:
    cache = {"with": _Told(seen=2.0, run=12.0, sync=10.0, waited=0.5), "without": _Told(run=11.0)}
    direct, local = {"without": _Told(run=10.0)}, {"with": _Told(seen=1.6)}
    found = bars(cache, direct, local, compute=10.0, cycles=8)
    assert list(found) == list(BARS)
    assert list(found.values()) == pytest.approx([1.25, 0.05, 12.0 / (11.0 + 1.5), 1.1])


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("name", ["coll_perf -b 16", "ior -b 64k -t 16k", "flash --blocks 4"])
def test_each_benchmark_runs_with_a_cache(name: str, tmp_path: Path) -> None:
    words = [*name.split(), "--cache", str(tmp_path), "--cycles", "2", "--rounds", "1", "-n", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "pnc_vol.bench", *words, "--bandwidth", "100", "--latency", "0"],
        capture_output=True, text=True, timeout=150, check=False, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {result["work"] for result in told["results"]} == {
        f"{what}, {how} compute" for what in ("seen", "run") for how in ("with", "without")
    }
    said = "\n".join(told["report"])
    assert all(bar in said for bar in BARS)
    for peer in ("pnc_vol", "no cache", "burst-buffer log", "flush_none", "tmpfs alone"):
        assert peer in said
        assert told["results"][0]["seconds"][peer][0] > 0
    assert not list(tmp_path.iterdir()), "all that was made is removed"
