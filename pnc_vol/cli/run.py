"""``pnc-vol run``: an h5py script, unchanged, on pnc_vol.

Knows: how Python starts a script. Does not know: what the script does.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pnc_vol.cli.show import fail

__all__ = ["command"]


def command(
    script: Annotated[str, typer.Argument(help="A Python script that imports h5py.", show_default=False)],
    args: Annotated[
        list[str] | None, typer.Argument(help="Its arguments, options included.", show_default=False)
    ] = None,
) -> None:
    """Run a script with pnc_vol in the place of h5py; its exit code is passed on."""
    import runpy

    import pnc_vol
    from pnc_vol.system import REAL, exists

    if not exists(REAL, script):
        fail(script, "there is no such script; check the name")
    pnc_vol.patch()
    # As `python script.py` has it: the script's folder is where its own modules are found.
    sys.argv = [script, *(args or [])]
    sys.path.insert(0, os.path.dirname(REAL.realpath(script)))
    runpy.run_path(script, run_name="__main__")
