"""Benchmarks with a node-local cache: they run, say what was hidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing

BARS = (
    "time seen for writing / tmpfs alone",
    "non-hidden sync / sync",
    "run / (1.1 max(compute, sync) + one cycle)",
    "without compute: run / run without the cache",
)


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
