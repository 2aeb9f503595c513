"""The benchmarks of many ranks run at a tiny size and check what they wrote; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

DATA = Path(__file__).parents[2] / "../shared/data/e3sm"
COMMON = ("--rounds", 1, "--no-memory", "--json")


def bench(ranks: int, *arguments: object) -> dict:
    """What a benchmark tells; every peer that is there has done the work, checked."""
    done = run_mpi(ranks, "pnc_vol.bench", *arguments, *COMMON, timeout=120)
    told = json.loads(done.stdout)
    for result in told["results"]:
        assert result["seconds"]["pnc_vol"], result["work"]
        for peer, seconds in result["seconds"].items():
            assert seconds or result["notes"][peer], f"{peer} neither did {result['work']!r} nor says why"
    return told


@pytest.mark.parametrize(
    "arguments",
    [
        ("coll_perf", "--shape", 7, 5, 3, "--dtype", "f8", "--grid", 1, 2, 1),
        ("coll_perf", "-b", 6, "-i", 2, "-d", 0.001),
        ("coll_perf", "--romio", "--scale", 1e-7, "--peers", "pnc_vol"),
        ("ior", "-b", "8k", "-t", "2k", "-s", 2, "-C", "-V"),
        ("ior", "-b", "4k", "-t", "2k", "-F", "-C", "-e", "-z", "-a", "PNC,POSIX", "--compute", 0.001),
        ("flash", "--cells", 2, "--blocks", 2, "-b"),
        ("create", "-v", 31, "-a", 2, "-s", 5, "-d", 3, "-l", 4, "--own-dims"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_runs_and_is_right(arguments: tuple[object, ...]) -> None:
    told = bench(2, *arguments)
    assert told["report"][0] == "2 ranks"
    assert len(told["report"]) > 2


@pytest.mark.parametrize(
    ("case", "size", "more"),
    [("F", 1, ("-j",)), ("G", 2, ("-y", -1)), ("I", 6, ("-u", "-j"))],
)
def test_e3sm_with_maps_that_are_made_up(case: str, size: int, more: tuple[object, ...]) -> None:
    told = bench(2, "e3sm", "--case", case, "--synthetic", size, "--map-ranks", 3, "-f", 1, "-r", 2, "-i", *more)
    report = "\n".join(told["report"])
    for words in ("made up", "requests in all", "MiB in all", "open to close: ", "read, open to close: "):
        assert words in report
    for result in told["results"]:
        assert result["quickest_rank"]["pnc_vol"][0] <= result["seconds"]["pnc_vol"][0], result["work"]


@pytest.mark.parametrize("line", ["nc_burst_buf {}", "nc_burst_buf={}", "IOR_HINT__MPI__nc_burst_buf = {}  # no, yes"])
def test_a_file_of_hints_in_each_of_its_forms(line: str, tmp_path: Path) -> None:
    for word in ("disable", "sometimes"):
        (tmp_path / "hints").write_text(f"# a remark\n\n{line.format(word)}\nIOR_HINT__GPFS__fineGrain=1\n")
        words = ("coll_perf", "-b", 4, *COMMON, "--peers", "pnc_vol", "--hints-file", tmp_path / "hints")
        done = run_mpi(1, "pnc_vol.bench", *words, check=False)
        assert (done.returncode == 0) == (word == "disable"), done.stderr
        assert ("nc_burst_buf" in done.stderr) == (word == "sometimes")


@pytest.mark.parametrize("case", ["F", "G"])
def test_maps_that_are_made_up_deal_each_cell(case: str, tmp_path: Path) -> None:
    more = ("-f", 1, "-u", "--peers", "pnc_vol", "-k", "-o", tmp_path / "x.nc")
    bench(2, "e3sm", "--case", case, "--synthetic", 1, "--map-ranks", 3, *more)
    (path,) = tmp_path.iterdir()
    with pnc_vol.File(path) as f:
        for ds in f.values():
            if isinstance(ds, pnc_vol.Dataset) and ds.dtype.kind == "f":
                assert (np.abs(ds[...]) < 1e30).all(), "a cell that nobody wrote has the fill value"


def test_e3sm_sees_a_set_as_one_file() -> None:
    told = bench(
        2, "e3sm", "--case", "F", "--synthetic", 1, "--map-ranks", 3, "-f", 1, "--view", "-x", "canonical", "blob",
        "-g", 2, "--peers", "pnc_vol,pnc_vol blob",
    )  # fmt: skip
    rows = {result["work"]: result["seconds"] for result in told["results"]}
    for work in ("view, open", "view, read 50 times", "view, replay; of a file: copy"):
        assert rows[work]["pnc_vol"], "a file is what the set is compared with"
        assert rows[work]["pnc_vol blob"]


@pytest.mark.skipif(not DATA.exists(), reason="E3SM-IO's maps are not there (../shared/data/e3sm)")
def test_e3sm_with_the_real_maps(tmp_path: Path) -> None:
    """A case that is made up has as many variables of each kind."""
    kinds = []
    for made in (("--data", DATA), ("--synthetic", 1)):
        path = tmp_path / f"{made[0]}.nc"
        told = bench(2, "e3sm", "--case", "F", "-f", 1, *made, "--peers", "pnc_vol", "-k", "-o", path)
        if made[0] == "--data":
            assert "51" in "\n".join(told["report"])
            # 1.25 MiB and 38,332 runs with single precision and 16 ranks; twice the bytes as double, other joints
            assert told["results"][0]["bytes"] == pytest.approx(0.64 * (1 << 20), rel=0.05)
        with pnc_vol.File(*tmp_path.glob(f"{made[0]}*")) as f:
            datasets = [ds for ds in f.values() if isinstance(ds, pnc_vol.Dataset)]
            kinds.append(Counter((ds.ndim, ds.maxshape[:1] == (None,), ds.dtype) for ds in datasets))
    assert kinds[0] == kinds[1]


def test_launches_itself() -> None:
    command = "-m pnc_vol.bench coll_perf -n 2 -b 4 --rounds 1 --no-memory --peers pnc_vol"
    told = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, check=True).stdout
    assert "2 ranks" in told
    assert "not asked for" in told
