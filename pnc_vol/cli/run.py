"""``pnc-vol run``: an h5py script, unchanged, on pnc_vol.

Knows: how Python starts a script. Does not know: what the script does.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

import pnc_vol
from pnc_vol.cli.shared_options import Script, ScriptArguments
from pnc_vol.cli.show import fail, refuse_address
from pnc_vol.settings.options import reach_children
from pnc_vol.system import REAL, exists, is_folder

__all__ = ["check_script", "command"]


def command(
    script: Script,
    args: ScriptArguments = None,
) -> None:
    """Run a script with pnc_vol instead of h5py, also in the Python processes that it starts.

    Its exit code is passed on.
    """
    import runpy

    check_script(script)
    pnc_vol.patch()
    reach_children(os.path.join(os.path.dirname(__file__), "children"))
    # As `python script.py` has it: the script's folder is where its own modules are found.
    sys.argv = [script, *(args or [])]
    sys.path.insert(0, os.path.dirname(REAL.realpath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        # As `python script.py` shows it: from the script's first line on, without what started it.
        shown = _below(error.__traceback__, script)
        sys.excepthook(type(error), error.with_traceback(shown), shown)
        raise SystemExit(1) from None


def check_script(script: str) -> None:
    """End with one line if there is no such script.

    Raises
    ------
    SystemExit
        The exit code is 2.
    """
    refuse_address(script)
    if not exists(REAL, script):
        fail(script, "there is no such script; check the name")
    if is_folder(REAL, script):
        fail(script, "it is a directory; name a script in it")


def _below(traceback: TracebackType | None, script: str) -> TracebackType | None:
    """The part of a traceback that begins in the script; nothing if the script did not begin."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != script:
        traceback = traceback.tb_next
    return traceback
