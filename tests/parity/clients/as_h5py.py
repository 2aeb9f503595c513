"""Run a program, or be a plugin of pytest, where ``import h5py`` gives pnc_vol.

``python as_h5py.py program.py args``, or ``pytest -p as_h5py``. Every file that was written is looked at by netCDF4
and ncvalidator when it is closed (`checking`), and the process fails if one of them finds something, or if no file was
written. With ``PNC_VOL_CLIENTS=h5py`` nothing is replaced and nothing is looked at: the same program on h5py itself.

Knows: `pnc_vol.patch`. Does not know: the clients, which are as their authors published them.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

swapped = os.environ.get("PNC_VOL_CLIENTS") != "h5py"
if swapped:
    import pnc_vol

    pnc_vol.patch()
    import checking

    checking.install()
if __name__ != "__main__":
    # PyTables reads HDF5 alone. Where it is installed, the tests of h5io open files with it; without it they go on.
    sys.modules["tables"] = None  # type: ignore[assignment]


def verdict() -> str:
    """What speaks against the files; "" if nothing does."""
    if not swapped:
        return ""
    import h5py

    if h5py.File is not pnc_vol.File:
        return "h5py is not pnc_vol any more"
    if not checking.counts["files"]:
        return "no file was written"
    return "\n".join(checking.found)


def pytest_sessionfinish(session: Any) -> None:
    told = verdict()
    if told:
        print(f"\nfiles: {told}")
        session.exitstatus = 1


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(verdict() or None)
