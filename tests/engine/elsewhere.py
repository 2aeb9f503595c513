"""A second process, which reads a file while a program writes it, or tries to write it, too.

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
        atexit.register(_process.__exit__, None, None, None)  # after the next one
        atexit.register(_process.kill)


def difference(place: str, model: Any) -> str:
    """Where the file is not the model, as the other process reads it; "" if it is."""
    return str(_ask("difference", place, model))


def seen(place: str) -> Any:
    """What the other process sees of the file, or the error that it meets."""
    return _ask("seen", place)


def write(place: str) -> str:
    """The error that the other process meets when it opens the file for writing; "" if none."""
    return str(_ask("write", place))


def _ask(what: str, place: str, *more: Any) -> Any:
    start()
    assert _process is not None
    assert _process.stdin is not None
    assert _process.stdout is not None
    pickle.dump((what, place, *more), _process.stdin)
    _process.stdin.flush()
    return pickle.load(_process.stdout)


class Other:
    """What the other process does; it keeps the file that it read last."""

    place, f = "", None

    def difference(self, place: str, model: Any) -> str:
        from model import whole_difference

        import pnc_vol

        # links lead into other files, too
        names = (
            [name for name in self.f if isinstance(self.f.get(name, getlink=True), pnc_vol.HardLink)] if self.f else []
        )
        known = [one for one in map(self.f.get, names) if isinstance(one, pnc_vol.Dataset)] if names else []
        if known and place == self.place:
            with suppress(ValueError):  # this one was deleted; everything is refreshed all the same
                known[0].refresh()
        else:
            if self.f:
                self.f.close()
            self.place, self.f = place, pnc_vol.File(place)
        return whole_difference(pnc_vol, self.f, model)

    def seen(self, place: str) -> Any:
        import promises

        import pnc_vol

        if self.f:
            self.f.close()  # else the next one would be a handle of the same session
        with pnc_vol.File(place) as f:
            return promises.seen(f)

    def write(self, place: str) -> str:
        import pnc_vol

        if self.f:
            self.f.close()
        pnc_vol.File(place, "r+").close()
        return ""


def _serve() -> None:
    sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "shared")]
    import pnc_vol

    warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
    other = Other()
    while True:
        try:
            what, *given = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            told = getattr(other, what)(*given)
        except Exception as error:
            told, other.f = f"{type(error).__name__}: {error}", None
        pickle.dump(told, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
