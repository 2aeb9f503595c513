"""What ``import pnc_vol`` costs: few modules of our own, nothing that is not needed."""

from __future__ import annotations

import subprocess
import sys

LIMIT = 42


def _modules(statement: str) -> list[str]:
    script = f"import sys; {statement}; print('\\n'.join(sorted(sys.modules)))"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_import_loads_little() -> None:
    loaded = _modules("import pnc_vol")
    for package in ("h5py", "mpi4py", "netCDF4", "scipy", "xarray", "typer", "rich", "matplotlib", "pytest"):
        assert package not in loaded
    ours = [name for name in loaded if name.partition(".")[0] == "pnc_vol"]
    assert len(ours) <= LIMIT, ours
    assert not [name for name in ours if name.split(".")[1:2] in (["cli"], ["bench"], ["interop"], ["testing"])]


def test_opening_a_file_loads_no_mpi() -> None:
    loaded = _modules("import pnc_vol; f = pnc_vol.File('x', 'w', driver='memory'); f['x'] = 1; f.close()")
    assert "mpi4py" not in loaded
    assert "h5py" not in loaded
