"""The study of `examples/13_study`, run by ReFrame with its local scheduler."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "13_study"
#: MPI is where mpi4py is, which may be another environment than that of ReFrame.
MPI4PY = importlib.util.find_spec("mpi4py")
PROGRAMS = Path(MPI4PY.origin).parents[4] / "bin" if MPI4PY and MPI4PY.origin else Path("nowhere")

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(
        not (PROGRAMS / "mpirun").exists(), reason='MPI is not installed (pip install "pnc-vol[study]")'
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("reframe") is None, reason='reframe is not installed (pip install "pnc-vol[study]")'
    ),
]


def reframe(folder: Path, *options: str) -> str:
    """Run the study with its files in `folder`; what ReFrame printed."""
    where = (f"--prefix={folder}", "-S", f"python={PROGRAMS / 'python'}")
    # what is installed beside ReFrame is found there
    path = os.environ["PATH"] if Path(sys.executable).parent == PROGRAMS else f"{PROGRAMS}:{os.environ['PATH']}"
    command = ("-C", "settings.py", "-c", "study.py", "--nocolor", *where, *options)
    ran = subprocess.run(
        [Path(sys.executable).with_name("reframe"), *command],
        cwd=EXAMPLE,
        env=os.environ | {"HOME": str(folder), "TMPDIR": str(folder), "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_combination_is_in_the_table(tmp_path: Path) -> None:
    settings = ("-S", "block=16", "-S", f"cache_dir={tmp_path}")
    printed = reframe(tmp_path, *settings, "-r", "--system=here", "--performance-report", "--table-format=csv")
    lines = printed[printed.index("\nname,") + 1 : printed.index("\n\nLog file")].splitlines()
    rows = list(csv.DictReader(lines))
    phases = ("write", "write_open_to_close", "read", "read_open_to_close")
    names = [f"CollPerf %ranks={ranks} %cache={cache}" for ranks in (1, 2, 4) for cache in ("disable", "enable")]
    assert [(row["name"], row["pvar"]) for row in rows] == [(name, phase) for name in names for phase in phases]
    assert all(float(row["pval"]) > 0 for row in rows)
    shown = (EXAMPLE / "README.md").read_text()
    assert all(f"{row['name']} " in shown and f" {row['pvar']} " in shown for row in rows)


def test_the_scripts_for_a_batch_system(tmp_path: Path) -> None:
    options = ("-S", "ranks_per_node=2", "-S", "time_limit=30m", "-P", "cb_buffer_size=1048576,4194304")
    reframe(tmp_path, "--dry-run", "--system=cluster", *options)
    scripts = [path.read_text() for path in tmp_path.glob("stage/cluster/nodes/builtin/*/rfm_job.sh")]
    assert len(scripts) == 12
    for text in scripts:
        assert "#SBATCH --ntasks-per-node=2" in text
        assert "#SBATCH --time=0:30:0" in text
        assert "module load python\nsrun " in text
    assert sum("e10_cache=enable;e10_cache_path=/tmp;cb_buffer_size=4194304" in text for text in scripts) == 3
