"""The benchmarks of one process run at a tiny size, and notice wrong contents; no time is asserted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pnc_vol.bench import io, io_peers
from pnc_vol.bench.__main__ import main
from pnc_vol.bench.measure import Result, Watch
from pnc_vol.bench.serial import run_serial
from pnc_vol.bench.table import plot, print_table

SIZES = {
    "io": "0.0001",
    "reads": "0.0003",
    "objects": "0.0003",
    "posts": "0.0003",
    "records": "0.03",
    "small": "0.01",
    "conversion": "0.0003",
}
WORKS = {"io": 17, "reads": 9, "objects": 16, "posts": 8, "records": 4, "small": 5, "conversion": 4}


@pytest.mark.parametrize("name", list(SIZES))
def test_runs_and_is_right(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--scale", SIZES[name], "--rounds", "2", "--no-memory", "--dir", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["benchmark"] == name
    assert len(told["results"]) == WORKS[name]
    for result in told["results"]:
        assert len(result["seconds"]["pnc_vol"]) == 2, result["work"]
        assert min(result["seconds"]["pnc_vol"]) >= 0
        for peer, seconds in result["seconds"].items():
            assert seconds or result["notes"][peer], f"{peer} neither did {result['work']!r} nor says why"
    assert list(tmp_path.iterdir()) == []


def test_peers_that_are_missing_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pnetcdf", None)
    (first, *_) = run_serial("pnc_vol.bench.io", scale=1e-6, rounds=1, folder=str(tmp_path), memory=False, only="write")
    assert "pnetcdf" in first.notes["PnetCDF-Python"]
    assert first.seconds["PnetCDF-Python"] == []


def test_wrong_contents_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = io_peers._H5py.write

    def wrong(self: io_peers._H5py, values: np.ndarray) -> None:
        right(self, values + 1)

    monkeypatch.setattr(io_peers._H5py, "write", wrong)
    peer = io.peers(str(tmp_path))["pnc_vol"]
    with pytest.raises(AssertionError, match="does not hold what was written"):
        io.works(1e-6)[0].run(peer, Watch())


def test_peak_memory_is_that_of_the_work(tmp_path: Path) -> None:
    results = run_serial("pnc_vol.bench.io", scale=0.03, rounds=1, folder=str(tmp_path), only="variable of")
    read = next(result for result in results if result.work.endswith("read"))
    assert read.nbytes is not None
    # the result itself; no peer keeps it more than three times
    for peer, nbytes in read.memory.items():
        assert 0.9 * read.nbytes < nbytes < 4 * read.nbytes + (32 << 20), peer


def test_the_first_round_of_ranks_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {"pnc_vol": [2.0, 1.0, 1.0], "peer": [8.0, 1.0, 1.0]}
    print_table([Result("serial", seconds)])
    assert "first round" not in capsys.readouterr().out
    print_table([Result("ranks", seconds, quickest={"pnc_vol": [1.0, 1.0, 1.0]})])
    told = capsys.readouterr().out
    assert "[1.00]" in told
    assert re.search(r"first round alone.*\n.*ranks +2\.000 +8\.000 \[4\.00\]", told), told


def test_a_phase_that_is_entered_again_adds_up() -> None:
    watch = Watch()
    held = []
    for _ in range(2):
        with watch("fill"):
            held.append(np.ones(4 << 20))
    assert watch.memory["fill"] > 30 << 20
    assert watch.seconds["fill"] > 0


def test_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    results = run_serial("pnc_vol.bench.io", scale=1e-6, rounds=1, folder=str(tmp_path), memory=False)
    print_table(results)
    out = capsys.readouterr().out
    assert "os.pwrite" in out
    assert "read, one call each" in out
    picture = tmp_path / "picture.png"
    plot(results, str(picture), "io")
    import matplotlib.image

    assert matplotlib.image.imread(str(picture)).shape[0] > 400
