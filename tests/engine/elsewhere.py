"""A second process, which reads a file while a program writes it.

It keeps its handle from one look to the next and refreshes it, as a program beside a simulation does.
"""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

_process: subprocess.Popen[bytes] | None = None


def start() -> None:
    """Start the process, if there is none; before descriptors are counted."""
    global _process
    if _process is None:
        _process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(_process.kill)


def difference(place: str, model: Any) -> str:
    """Where the file is not the model, as the other process reads it; "" if it is."""
    start()
    assert _process is not None
    assert _process.stdin is not None
    assert _process.stdout is not None
    pickle.dump((place, model), _process.stdin)
    _process.stdin.flush()
    return str(pickle.load(_process.stdout))


def _serve() -> None:
    sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "shared")]
    from model import whole_difference

    import pnc_vol

    warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
    place, f = "", None
    while True:
        try:
            asked, model = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            known = [one for one in f.values() if isinstance(one, pnc_vol.Dataset)] if f and place == asked else []
            if known:
                with suppress(ValueError):  # this one was deleted; everything is refreshed all the same
                    known[0].refresh()
            else:
                if f:
                    f.close()
                place, f = asked, pnc_vol.File(asked)
            told = whole_difference(pnc_vol, f, model)
        except Exception as error:
            told, f = f"{type(error).__name__}: {error}", None
        pickle.dump(told, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
