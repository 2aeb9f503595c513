"""The benchmarks of many ranks run at a tiny size and check what they wrote; no time is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    [("F", 1, ("-m", "-j")), ("G", 2, ("--stride", 3, "-y", -1)), ("I", 6, ("-m", "-u", "-j"))],
)
def test_e3sm_with_maps_that_are_made_up(case: str, size: int, more: tuple[object, ...]) -> None:
    told = bench(2, "e3sm", "--case", case, "--synthetic", size, "--map-ranks", 3, "-f", 1, "-r", 2, "-i", *more)
    report = "\n".join(told["report"])
    assert "made up" in report
    for words in (
        "Max   no. noncontiguous",
        "Indiv write amount MIN",
        "(write-only)",
        "(read-only)",
        "(open-to-close)",
    ):
        assert words in report
    for result in told["results"]:
        assert result["quickest_rank"]["pnc_vol"][0] <= result["seconds"]["pnc_vol"][0], result["work"]


def test_e3sm_sees_a_set_as_one_file() -> None:
    told = bench(
        2, "e3sm", "--case", "F", "--synthetic", 1, "--map-ranks", 3, "-f", 1, "--view", "-x", "canonical", "blob",
        "-g", 2, "--peers", "pnc_vol,pnc_vol blob",
    )  # fmt: skip
    report = "\n".join(told["report"])
    assert "pnc_vol blob: one rank sees" in report
    for words in ("opening", "reading", "replay", "plain copy"):
        assert words in report
    assert "==== pnc_vol:" not in report


def test_e3sm_with_ranks_that_do_not_write() -> None:
    told = bench(3, "e3sm", "--case", "G", "--synthetic", 1, "--map-ranks", 2, "-s", 2, "--peers", "pnc_vol")
    assert "Number of IO processes             = 2" in told["report"]


def test_e3sm_with_the_real_maps() -> None:
    if not DATA.exists():
        pytest.skip("E3SM-IO's maps are not there (../shared/data/e3sm)")
    told = bench(2, "e3sm", "--case", "F", "-f", 1, "--data", DATA, "--peers", "pnc_vol")
    report = "\n".join(told["report"])
    assert "51" in report
    # 1.25 MiB and 38,332 runs with single precision and 16 ranks; twice the bytes as double, other joints with 2 ranks
    whole = told["results"][0]
    assert whole["bytes"] == pytest.approx(0.64 * (1 << 20), rel=0.05)


def test_launches_itself(capfd: pytest.CaptureFixture[str]) -> None:
    from pnc_vol.bench.__main__ import main

    assert main(["coll_perf", "-n", "2", "-b", "4", "--rounds", "1", "--no-memory", "--peers", "pnc_vol"]) == 0
    out = capfd.readouterr().out
    assert "2 ranks" in out
    assert "not asked for" in out
