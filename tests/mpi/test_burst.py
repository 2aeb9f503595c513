"""With a burst buffer ranks see the same, fail together, and lose nothing when all of them are killed.

That one rank is killed at any call is an event of the engine (`killed`, with the options of logs).
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import ranks_burst as ranks
from run_command import verb
from scenarios import Launch

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_burst.py")

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("nprocs", "hints"),
    [
        (3, "nc_burst_buf=enable;nc_burst_buf_shared_logs=enable"),
        pytest.param(2, "nc_burst_buf=enable", marks=pytest.mark.nightly),
    ],
)
def test_what_overlaps_is_seen_by_its_own_rank_only(nprocs: int, hints: str, tmp_path: Path) -> None:
    """All that ranks may do and see without a log holds with one."""
    program = PROGRAM.with_name("ranks_semantics.py")
    told = run_mpi(nprocs, program, tmp_path, timeout=300, env={"PNC_VOL_HINTS": hints}).stdout
    assert told.count("all cases") == nprocs, told
    assert not list(tmp_path.glob("pncbb-*"))


# ---------------------------------------------------------------------------------------------------- kills


PLACES = ("private", "shared", "nodes")
RECOVERING = (1, 2, 4)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What jobs of three ranks leave that are killed, by where their logs are."""
    found = {}
    for place in PLACES:
        folder = found[place] = tmp_path_factory.mktemp("killed") / "job"
        folder.mkdir()
        job = run_mpi(3, PROGRAM, "kill", folder, place, timeout=200, check=False)
        assert job.returncode != 0
        assert "Traceback" not in job.stderr, job.stderr
        assert list(folder.glob("logs/**/pncbb-x.nc-*/*.meta*"))
    return found


@pytest.fixture(params=PLACES)
def killed(request: pytest.FixtureRequest, jobs: dict[str, Path]) -> Path:
    """What one of these jobs leaves."""
    return jobs[request.param]


def copied(killed: Path, tmp_path: Path) -> Path:
    """The same under the same name, so that the logs know their file."""
    kept = tmp_path / "kept"
    shutil.copytree(killed, kept)
    return kept


def recovered(nprocs: int, how: str, jobs: dict[str, Path], kept: Path) -> tuple[Launch, dict[str, Path]]:
    """All jobs recovered in turn by one job of ranks; what that leaves of each. The jobs are as before."""
    for place, folder in jobs.items():
        shutil.copytree(folder, kept / "before" / place)
    launch, left = Launch(nprocs, PROGRAM, "recover", how, *jobs.values(), timeout=300), {}
    for place, folder in jobs.items():
        left[place] = kept / place
        shutil.copytree(folder, left[place])
        shutil.rmtree(folder)
        shutil.copytree(kept / "before" / place, folder)
    return launch, left


@pytest.fixture(scope="module")
def replays(
    jobs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[int, tuple[Launch, dict[str, Path]]]:
    return {n: recovered(n, "replay", jobs, tmp_path_factory.mktemp("replay")) for n in RECOVERING}


@pytest.fixture(scope="module")
def opens(jobs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return recovered(2, "open", jobs, tmp_path_factory.mktemp("open"))[0]


def test_ranks_of_any_number_recover_a_killed_job(
    killed: Path, replays: dict[int, tuple[Launch, dict[str, Path]]], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = request.node.callspec.params["killed"]
    kept = copied(killed, tmp_path)
    report = pnc_vol.replay(killed / "x.nc")
    ranks.check(str(killed / "x.nc"))
    told = [(report.logs, report.replayed, report.cancelled, report.whole, report.created)]
    found = {(killed / "x.nc").read_bytes()}
    shutil.rmtree(killed)
    shutil.copytree(kept, killed)
    for launch, left in replays.values():
        launch.check(str(killed), seconds=60)
        reports = [json.loads(line) for line in launch.job.stdout.splitlines() if line.startswith("{")]
        told += [report[str(killed)] for report in reports if str(killed) in report]
        found.add((left[place] / "x.nc").read_bytes())
    assert len(told) == 1 + len(RECOVERING)
    for logs, replayed, cancelled, whole, created in told:
        assert (logs, cancelled, whole) == (3, 1, True)
        assert replayed > 60
        assert sorted(created) == ["/kept", "/late", "/names"]
    assert len(found) == 1, "the number of ranks is seen in the file"


def test_ranks_recover_at_the_open(killed: Path, opens: Launch) -> None:
    opens.check(str(killed), seconds=60)


def test_the_jobs_that_recover_end_in_order(replays: dict[int, tuple[Launch, dict[str, Path]]], opens: Launch) -> None:
    for launch in [opens, *(launch for launch, _ in replays.values())]:
        assert launch.job.returncode == 0, launch.job.stderr


def test_logs_of_all_nodes_are_needed(killed: Path, tmp_path: Path) -> None:
    kept = copied(killed, tmp_path)
    if not (kept / "logs" / "node1").exists():
        pytest.skip("the logs are in one place")
    jobs = list(kept.glob("logs/node*/pncbb-*"))
    assert len({job.name for job in jobs}) == 1
    before = (kept / "x.nc").read_bytes()
    with pytest.raises(pnc_vol.errors.LogRefusedError, match=r"those of ranks 1 were not given"):
        pnc_vol.replay(kept / "x.nc", [job for job in jobs if job.parent.name == "node0"])
    assert (kept / "x.nc").read_bytes() == before
    # Gathered in any way.
    assert pnc_vol.replay(kept / "x.nc", jobs).logs == 3
    ranks.check(str(kept / "x.nc"))


def test_the_command_tells_and_recovers(killed: Path, tmp_path: Path) -> None:
    kept = copied(killed, tmp_path)
    jobs = [str(job) for job in kept.glob("logs/**/pncbb-*")]
    out = verb("log", *jobs, code=0).out
    assert [out.count(f"rank {rank} of 3") for rank in range(3)] == [1, 1, 1]
    assert out.count("cancelled") >= 1
    assert "requests of 3 logs replayed" in verb("replay", kept / "x.nc", *jobs, code=0).out
    ranks.check(str(kept / "x.nc"))
    content = (kept / "x.nc").read_bytes()
    assert " 0 requests of 3 logs replayed" in verb("replay", kept / "x.nc", *jobs, code=0).out
    assert (kept / "x.nc").read_bytes() == content


# --------------------------------------------------------------------------------------------- errors, hints


def test_what_is_wrong_on_one_rank_is_the_same_error_on_all(tmp_path: Path) -> None:
    told = run_mpi(3, PROGRAM, "wrong", tmp_path, timeout=200).stdout
    found = {line[0]: line[1:] for line in map(json.loads, told.splitlines())}
    wanted = {
        "missing": "FileNotFoundError: .*nc_burst_buf_dirname: there is no such folder.*nowhere",
        "missing on one": "FileNotFoundError: .*nc_burst_buf_dirname: there is no such folder.*rank 2.*nowhere",
        "plain": "FileNotFoundError: .*nc_burst_buf_dirname: there is no such folder.*plain",
        "sealed": "PermissionError: .*nc_burst_buf_dirname.*logs",
        "refused on one": "PermissionError: .*rank 2.*x.nc_0_2.data",
        "refused on one, shared": "PermissionError: .*rank 2.*x.nc_0_0.data",
        "shared in two places": "CollectiveMismatchError: .*nc_burst_buf_dirname.*logs.*other",
        "not the same": "CollectiveMismatchError: .*burst_buf_shared_logs",
    }
    assert found.keys() == wanted.keys()
    for what, (errors, there, logs) in found.items():
        assert len(set(errors)) == 1, errors
        assert len(errors) == 3
        assert re.match(wanted[what], errors[0]), errors[0]
        assert (there, logs) == (["old"], []), what


def test_hints_of_mpi(tmp_path: Path) -> None:
    told = run_mpi(2, PROGRAM, "info", tmp_path, timeout=200).stdout
    said, names = json.loads(told)
    assert said[0] == said[1]
    assert {
        "nc_burst_buf": "enable",
        "nc_burst_buf_dirname": str(tmp_path / "logs"),
        "nc_burst_buf_shared_logs": "enable",
        "nc_burst_buf_sync": "each",
        "nc_burst_buf_flush_buffer_size": "200000",
        "cb_buffer_size": "1048576",
        "nobody_knows_this": "7",
    }.items() <= said[0].items()
    own = [f"x.nc_0_0.{kind}.{rank}" for kind in ("commit", "defs") for rank in (0, 1)]
    assert names == sorted([*own, "x.nc_0_0.data", "x.nc_0_0.meta"])
    (tmp_path / "logs").rmdir()
    (tmp_path / "x.nc").unlink()
    env = {"PNETCDF_HINTS": "nc_burst_buf_shared_logs=disable;nobody_knows_this=8"}
    said, names = json.loads(run_mpi(2, PROGRAM, "info", tmp_path, timeout=200, env=env).stdout)
    assert [one["nobody_knows_this"] for one in said] == ["8", "8"]
    assert [one["nc_burst_buf_shared_logs"] for one in said] == ["disable", "disable"]
    assert [name for name in names if name.endswith(".meta")] == ["x.nc_0_0.meta", "x.nc_0_1.meta"]
