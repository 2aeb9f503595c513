"""What ``import pnc_vol`` costs: few modules of our own, nothing that is not needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FIRST_FILE = 99
"""Modules of the package that a script loads that writes one dataset."""
READ = 104
"""The same for one that writes and reads it."""


def _modules(statement: str) -> list[str]:
    script = f"import sys; {statement}; print('\\n'.join(sorted(sys.modules)))"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_import_loads_little() -> None:
    loaded = _modules("import pnc_vol")
    for package in ("h5py", "mpi4py", "netCDF4", "scipy", "xarray", "matplotlib", "pytest"):
        assert package not in loaded
    # each name of the package is found when it is asked for; errors are there for ``except``
    assert [name for name in loaded if name.partition(".")[0] == "pnc_vol"] == ["pnc_vol", "pnc_vol.errors"]
    assert "numpy" not in loaded


def test_all_names_are_found_and_then_kept() -> None:
    script = (
        "import pnc_vol; from pnc_vol import *\n"
        "print(len([name for name in pnc_vol.__all__ if vars(pnc_vol)[name] is not globals()[name]]))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "0\n"


def test_a_script_of_one_dataset_loads_few_modules(tmp_path: Path) -> None:
    """What a serial program never needs is loaded late: MPI, caches, logs, recovery, blobs, and what loads OpenSSL."""
    path = repr(str(tmp_path / "x.nc"))
    write = f"import pnc_vol as h5; f = h5.File({path}, 'w'); f['x'] = [1.0, 2.0]; f.close()"
    read = f"f = h5.File({path}, 'r'); assert f['x'][1] == 2; f.close()"
    assert len([name for name in _modules(write) if name.startswith("pnc_vol")]) <= FIRST_FILE
    loaded = set(_modules(f"{write}; {read}")) - set(_modules("import numpy"))
    ours = sorted(name for name in loaded if name.partition(".")[0] == "pnc_vol")
    assert len(ours) <= READ, ours
    rare = ("burst", "cache", "blob", "remote", "ranks.waiting")
    rare += ("mapping.links", "mapping.composite", "file.posted_", "file.reads.fetch")
    rare += ("exchange", "queue.spill", "drivers.mpio", "format.check", "settings.hint_files", "api.hints", "convert")
    rare += ("extents.selection", "extents.decomposition", "drivers.mmap_guard")
    rare += ("ranks.mpi", "append_log", "file.held_ranges", "api.attrs")
    assert not [name for name in ours if name[8:].startswith(rare)]
    others = {"hashlib", "logging", "concurrent.futures", "traceback", "tempfile", "json", "signal", "unicodedata"}
    assert not others & loaded


def test_opening_a_file_loads_no_mpi() -> None:
    loaded = _modules("import pnc_vol; f = pnc_vol.File('x', 'w', driver='memory'); f['x'] = 1; f.close()")
    assert "mpi4py" not in loaded
    assert "h5py" not in loaded
