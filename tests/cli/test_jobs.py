"""``pnc-vol jobs``: scripts of all combinations, run here by stand-ins for sbatch and qsub, and their results."""

from __future__ import annotations

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pnc_vol.cli.jobs import Job, jobs_of, script, study_of
from pnc_vol.drivers.cache.hints import CHECKS
from pnc_vol.hint_files import HintFile
from pnc_vol.options import hint_checks
from pnc_vol.testing.mpi import find_mpiexec, missing

STUDY = {"name": "s", "benchmark": "coll_perf", "output": "/global/out", "cache_dir": "/nvm"}


def test_all_combinations() -> None:
    study = study_of(
        STUDY
        | {"nodes": [1, 2], "ranks_per_node": 4, "aggregators": [8, 16]}
        | {"buffer_sizes": 4 << 20, "cache": [True, "disable"]}
    )
    jobs = jobs_of(study)
    assert len(jobs) == len({job.name for job in jobs}) == 8
    assert jobs[0] == Job(1, 4, 8, 4 << 20, "enable")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"node": 1}, "'node' is no key of a description; did you mean 'nodes'"),
        ({"nodes": "many"}, "'nodes' has 'many'"),
        ({"nodes": 0}, "at least 1"),
        ({"nodes": []}, "empty list"),
        ({"benchmark": "iozone"}, "one of coll_perf"),
        ({"scheduler": "lsf"}, "one of slurm, pbs"),
        ({"cache": "on"}, "'cache' has 'on'"),
        ({"cache": "enable", "cache_dir": ""}, "'cache_dir' is missing"),
        ({"output": ""}, "'output' is missing"),
        ({"name": "a\nb"}, "in one line"),
        ({"hints": ["cb_nodes"]}, "a mapping of hints"),
        ({"setup": [["module"]]}, "a text is needed"),
    ],
)
def test_what_is_wrong_in_a_description_is_named(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what.replace("[", r"\[")):
        study_of({**STUDY, **change})


def test_values_are_quoted_for_the_shell() -> None:
    study = study_of(
        {**STUDY, "output": "/a b/$(touch x)", "arguments": ["-b", "1; rm"], "launcher": "mpiexec -n {ranks}"}
    )
    text = script(study, Job(1, 2, 0, 0, "disable"), "/jobs")
    assert "'/a b/$(touch x)'" in text
    assert "'1; rm'" in text
    assert "mpiexec -n 2 " in text


SCHEDULER = """#!/bin/bash
# runs the script here, as a job; prints a number
for last; do :; done
echo "$0 $*" >> "$(dirname "$0")/calls"
bash "$last" > "$(dirname "$0")/$(basename "$last").log" 2>&1 || echo "failed: $last" >&2
echo 4711
"""


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_study_runs_and_its_results_are_collected(scheduler: str, tmp_path: Path, verb: Any) -> None:
    yaml = pytest.importorskip("yaml")
    slurm = scheduler == "slurm"
    study = {
        "name": "try",
        "benchmark": "coll_perf",
        "scheduler": scheduler,
        "ranks_per_node": 2,
        "aggregators": [1, 2] if slurm else 1,
        "cache": ["disable"] if slurm else ["enable"],
        "buffer_sizes": 1 << 20,
        "cache_dir": str(tmp_path / "nvm"),
        "output": str(tmp_path / "out"),
        "arguments": "-b 8 --rounds 1 --no-memory",
        "launcher": f"{find_mpiexec()} -n {{ranks}}",
        "python": sys.executable,
        "setup": ["export PYTHONWARNINGS=ignore"],
        "hints": {"nc_var_align_size": 512},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    folder = tmp_path / "jobs"
    said = verb("jobs", tmp_path / "study.yaml", "--to", folder, code=0).out
    names = sorted(path.stem for path in folder.glob("n*.sh"))
    assert said.startswith(f"{len(names)} jobs in ")
    assert "is there already" in verb("jobs", tmp_path / "study.yaml", "--to", folder, code=2).err
    hints = (
        HintFile((folder / f"{names[0]}.hints").read_bytes(), "hints", {**hint_checks(), **CHECKS})
        .match(str(tmp_path / "out" / "x" / "y.nc"))
        .hints
    )
    assert hints["cb_nodes"] == "1"
    assert hints["e10_cache"] == study["cache"][0]
    assert verb("jobs", folder, code=1).out.count("no result") == len(names)

    bin_ = tmp_path / "bin"
    bin_.mkdir()
    program = bin_ / {"slurm": "sbatch", "pbs": "qsub"}[scheduler]
    program.write_text(SCHEDULER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    subprocess.run(
        [folder / "submit.sh"], check=True, timeout=200, env=os.environ | {"PATH": f"{bin_}:{os.environ['PATH']}"}
    )
    calls = (bin_ / "calls").read_text().splitlines()
    assert len(calls) == len(names)
    assert "afterany" not in calls[0]
    assert all("afterany:4711" in call for call in calls[1:])
    logs = "".join(path.read_text() for path in bin_.glob("*.log"))
    table, picture = tmp_path / "all.csv", tmp_path / "all.png"
    out = verb("jobs", folder, "--csv", table, "--plot", picture)
    assert out.code == 0, out.out + logs
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["job"] for row in rows} == set(names)
    assert {row["state"] for row in rows} == {"done"}
    assert all(float(row["seconds"]) > 0 and row["peer"] == "pnc_vol" for row in rows)
    assert picture.read_bytes()[1:4] == b"PNG"


def test_json_and_bad_files(tmp_path: Path, verb: Any) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    verb("jobs", tmp_path / "study.json", "--to", tmp_path / "jobs", code=0)
    assert "#SBATCH --nodes=1" in (tmp_path / "jobs" / "n1-p1-a0-b0-disable.sh").read_text()
    (tmp_path / "bad.json").write_text("{")
    assert len(verb("jobs", tmp_path / "bad.json", code=2).err.strip().splitlines()) == 1
    assert "no such file" in verb("jobs", tmp_path / "none.json", code=2).err
