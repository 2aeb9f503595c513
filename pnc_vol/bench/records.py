"""``python -m pnc_vol.bench records``: many record variables that grow together, with a flush every so many records.

A model writes one record of each of its variables in each step, and makes sure now and then that readers see them. In
the file the records of the variables lie interleaved, so a flush has as many pieces as records.

Knows: the works. Does not know: how a library does them (`peers.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.bench.measure import Stopwatch
from pnc_vol.bench.peers import LIBRARIES, installed
from pnc_vol.bench.serial import Work, check, clear, times

__all__ = ["peers", "works"]

VARIABLES, WIDTH = 20, 16
QUADRATIC = "writes the whole file anew at each flush"


def works(scale: float) -> list[Work]:
    """The works, at `scale` times their real size."""
    count = times(scale, 2_000)
    return [_interleaved(count, every) for every in (1, 50)]


def _interleaved(count: int, every: int) -> Work:
    title = f"{VARIABLES} record variables x {count:,} records of {WIDTH}, a flush every {every}"
    phases = [f"{title}, write", f"{title}, read a variable at a time"]

    def run(peer: Any, watch: Stopwatch) -> None:
        values = np.random.default_rng(6).random((VARIABLES, count, WIDTH))
        clear(peer.path)
        with watch(phases[0]):
            peer.append(values, every)
        out = np.zeros_like(values)
        with watch(phases[1]):
            getattr(peer, "read_many_into", peer.read_many)(out)
        check(f"{phases[1]}, {peer.path}", out, values)
        clear(peer.path)

    size = 8 * VARIABLES * count * WIDTH
    return Work(
        {phases[0]: (size, VARIABLES * count), phases[1]: (size, VARIABLES)},
        run,
        slow={"scipy": QUADRATIC},
        hopeless=frozenset({"scipy"} if every == 1 else ()),
    )


def peers(folder: str) -> dict[str, Any]:
    """Those that are installed; for the others the reason."""
    return installed(folder, LIBRARIES)
