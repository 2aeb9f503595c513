"""``python -m pnc_vol.bench io``: one large variable, rows, random small pieces, many variables; written and read back.

The works are those of users: one large array, a program that appends rows, one that scatters small pieces, a file of
many variables. Every peer gets the same values and writes a file of its own kind; what it reads back is compared.
Knows: the works. Does not know: how a peer does them (`peers.py`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import Stopwatch
from pnc_vol.bench.peers import installed as peers
from pnc_vol.bench.serial import Work, check, clear, times

__all__ = ["peers", "works"]

Array = npt.NDArray[Any]

NO_REQUESTS = dict.fromkeys(("h5py", "netCDF4", "scipy", "os.pwrite"), "has no words for it")
NO_INTO = "makes an array of its own"
QUADRATIC = "define: the time to define a variable grows with those defined already"


def works(scale: float) -> list[Work]:
    """The works, at `scale` times their real size."""
    return [
        _big(scale),
        _filled(scale),
        _rows(scale),
        _pieces(scale),
        _many(scale, 10_000, 1000),
        _many(scale, 100_000, 4),
    ]


def _read(phase: str, peer: Any, watch: Stopwatch, read: Any, values: Array, *before: Array) -> None:
    """Read into an array that is there already, and compare."""
    out = np.full(values.shape, -1, values.dtype)
    with watch(phase):
        read(*before, out)
    check(f"{phase}, {peer.path}", out, values)


def _big(scale: float) -> Work:
    n = times(scale, 1 << 27)
    title = f"{n * 8 / (1 << 30):g} GiB variable" if n >= 1 << 24 else f"variable of {n:,}"
    values = functools.cache(lambda: np.random.default_rng(0).random(n))

    def run(peer: Any, watch: Stopwatch) -> None:
        x = values()
        clear(peer.path)
        with watch(f"{title}, write"):
            peer.write(x)
        with watch(f"{title}, read"):
            found = peer.read()
        check(f"{title}, {peer.path}", found, x)
        if hasattr(peer, "read_into"):
            # its pages are there: what a program has that reads one step after another
            _read(into, peer, watch, peer.read_into, x)
        clear(peer.path)

    into = f"{title}, read into an array"
    phases = [f"{title}, write", f"{title}, read", into]
    return Work(dict.fromkeys(phases, (8 * n, 1)), run, {into: dict.fromkeys(("netCDF4", "scipy"), NO_INTO)})


def _filled(scale: float) -> Work:
    n = times(scale, 1 << 22)
    title = f"variable of {n:,} in 64 parts"
    values = functools.cache(lambda: np.random.default_rng(5).random(n))
    phases = [f"{title}, without a fill value", f"{title}, with a fill value"]
    without = {"scipy": "fills nothing", "os.pwrite": "fills nothing"}

    def run(peer: Any, watch: Stopwatch) -> None:
        x = values()
        for phase, fill in zip(phases, (None, -1.0), strict=True):
            clear(peer.path)
            with watch(phase):
                peer.write_filled(x, fill, -(-n // 64))
            check(f"{phase}, {peer.path}", peer.read(), x)
        clear(peer.path)

    return Work(dict.fromkeys(phases, (8 * n, 64)), run, dict.fromkeys(phases, without))


def _rows(scale: float) -> Work:
    count, width = times(scale, 100_000), 128
    title = f"{count:,} rows of {width}"
    values = functools.cache(lambda: np.random.default_rng(1).random((count, width)))
    phases = [f"{title}, {what}" for what in ("write, one call each", "read, one call each", "read, as requests")]

    def run(peer: Any, watch: Stopwatch) -> None:
        rows = values()
        clear(peer.path)
        with watch(phases[0]):
            peer.write_rows(rows)
        _read(phases[1], peer, watch, peer.read_rows, rows)
        if hasattr(peer, "request_rows"):
            _read(phases[2], peer, watch, peer.request_rows, rows)
        clear(peer.path)

    return Work(dict.fromkeys(phases, (count * width * 8, count)), run, {phases[2]: NO_REQUESTS})


def _pieces(scale: float) -> Work:
    count, width = times(scale, 100_000), 8
    size = 100 * count
    title = f"{count:,} random pieces of {width}"
    whats = (
        "write, one call each", "write, one call", "read, one call each", "read, one call", "read, as requests",
    )  # fmt: skip
    phases = [f"{title}, {what}" for what in whats]

    @functools.cache
    def data() -> tuple[Array, Array]:
        rng = np.random.default_rng(2)
        return rng.permutation(size // width)[:count] * width, rng.random((count, width))

    def run(peer: Any, watch: Stopwatch) -> None:
        starts, values = data()
        for way, one in ((0, False), (1, True)):
            if one and not hasattr(peer, "write_list"):
                continue
            clear(peer.path)
            with watch(phases[way]):
                (peer.write_list if one else peer.write_pieces)(size, starts, values)
            out = np.zeros_like(values)
            peer.read_pieces(starts, out)
            check(f"{phases[way]}, {peer.path}", out, values)
        _read(phases[2], peer, watch, peer.read_pieces, values, starts)
        if hasattr(peer, "read_list"):
            _read(phases[3], peer, watch, peer.read_list, values, starts)
        if hasattr(peer, "request_pieces"):
            _read(phases[4], peer, watch, peer.request_pieces, values, starts)
        clear(peer.path)

    calls = (count, 1, count, 1, count)
    return Work(
        {phase: (count * width * 8, n) for phase, n in zip(phases, calls, strict=True)},
        run,
        dict.fromkeys((phases[1], phases[3], phases[4]), NO_REQUESTS),
    )


def _many(scale: float, count: int, width: int) -> Work:
    count = times(scale, count)
    title = f"{count:,} variables of {width:,}"
    values = functools.cache(lambda: np.random.default_rng(3).random((count, width), "f4"))
    phases = [f"{title}, define and write", f"{title}, read"]

    def run(peer: Any, watch: Stopwatch) -> None:
        rows = values()
        clear(peer.path)
        with watch(phases[0]):
            peer.write_many(rows)
        _read(phases[1], peer, watch, peer.read_many, rows)
        clear(peer.path)

    return Work(
        dict.fromkeys(phases, (count * width * 4, count)),
        run,
        slow={"netCDF4": QUADRATIC},
        hopeless=frozenset({"netCDF4"} if count > 10_000 else ()),
    )
