"""The benchmarks of one process run at a tiny size, and notice wrong contents; no time is asserted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.bench.__main__ import main
from pnc_vol.bench.peers import Spec, peer_of

SIZES = {
    "io": "0.0001",
    "reads": "0.0003",
    "objects": "0.0003",
    "posts": "0.0003",
    "records": "0.03",
    "small": "0.01",
    "conversion": "0.0003",
    "burst": "0.01",
    "remote": "0.0001",
}
WORKS = {
    "io": 17,
    "reads": 9,
    "objects": 16,
    "posts": 11,
    "records": 4,
    "small": 6,
    "conversion": 4,
    "burst": 6,
    "remote": 4,
}


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


def told(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: object) -> list[dict[str, Any]]:
    """Results of the benchmark `io`, with one round."""
    common = ("--rounds", 1, "--dir", folder, "--json")
    assert main(["io", *map(str, (*common, *arguments))]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
    return found


def test_peers_that_are_missing_say_why(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pnetcdf", None)
    (first, *_) = told(capsys, tmp_path, "--scale", 1e-6, "--no-memory", "--only", "write")
    assert "pnetcdf" in first["notes"]["PnetCDF-Python"]
    assert first["seconds"]["PnetCDF-Python"] == []


def test_wrong_contents_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = pnc_vol.Dataset.__setitem__

    def wrong(self: pnc_vol.Dataset, at: Any, values: Any) -> None:
        right(self, at, np.asarray(values) + 1)

    monkeypatch.setattr(pnc_vol.Dataset, "__setitem__", wrong)
    with pytest.raises(AssertionError, match="does not hold what was written"):
        main(["io", "--scale", "1e-6", "--rounds", "1", "--no-memory", "--dir", str(tmp_path)])


def test_peak_memory_is_that_of_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = told(capsys, tmp_path, "--scale", 0.03, "--only", "variable of")
    read = next(result for result in results if result["work"].endswith("read"))
    # the result itself; no peer keeps it more than three times
    for peer, nbytes in read["memory"].items():
        assert 0.9 * read["bytes"] < nbytes < 4 * read["bytes"] + (32 << 20), peer


def test_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    import matplotlib.image

    picture = tmp_path / "picture.png"
    assert main(["io", "--scale", "1e-6", "--rounds", "1", "--no-memory", "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "os.pwrite" in out
    assert "read, one call each" in out
    assert matplotlib.image.imread(str(picture)).shape[0] > 400


@pytest.mark.parametrize("peers", ["h5pi", "pnc_vol,h5pi"])
def test_a_peer_that_nobody_knows_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], peers: str) -> None:
    given = ("io", "--scale", "1e-6", "--rounds", "1", "--no-memory", "--dir", str(tmp_path), "--json")
    assert main([*given, "--peers", peers]) == 2
    out, err = capsys.readouterr()
    assert "no peer is called 'h5pi'; 'io' has PnetCDF-Python, h5py" in err
    assert all(bool(one["seconds"]["pnc_vol"]) == ("pnc_vol" in peers) for one in json.loads(out)["results"])


def test_records_of_one_number_are_read_where_they_lie(tmp_path: Path) -> None:
    """What is not NetCDF interleaves the records of its variables, too."""
    peer = peer_of("os.pwrite")
    peer.path = str(tmp_path / "raw")
    values = {"a": np.arange(4.0), "b": np.arange(8, dtype="i4").reshape(4, 2)}
    peer.create({name: Spec(x.shape, x.dtype, grows=True) for name, x in values.items()})
    for t in range(4):
        for name, x in values.items():
            peer.move("write", name, (t,) + (0,) * (x.ndim - 1), x[t : t + 1])
    peer.close()
    for name, x in values.items():
        assert np.array_equal(peer.whole(name), x)
