"""``python -m pnc_vol.bench objects``: many small variables with three attributes each.

What a file of many objects costs, apart from its data: defining, closing, opening, listing names, reading all
attributes; then, in the same file, one more group, opening a variable by its name, and changing an attribute. Counts
and all values of one attribute are checked. Knows: the works. Does not know: how a library does them (`peers.py`).
"""

from __future__ import annotations

from typing import Any

from pnc_vol.bench.measure import Stopwatch
from pnc_vol.bench.peers import LIBRARIES, installed
from pnc_vol.bench.serial import Work, clear, times

__all__ = ["peers", "works"]

LOOKUPS = 1000
MAXIMUM = 99.5
ATTRIBUTES = {"units": "m s-1", "long_name": "a name of some length", "valid_max": MAXIMUM}


def works(scale: float) -> list[Work]:
    """10,000 and 100,000 variables, times `scale`."""
    return [_objects(times(scale, count, least=3)) for count in (10_000, 100_000)]


def _objects(count: int) -> Work:
    names = [f"v{i:06d}" for i in range(count)]
    looked = [names[(i * 7919) % count] for i in range(min(LOOKUPS, count))]
    variables = dict.fromkeys(names, ((4,), "f4"))
    changed = names[count // 2]
    title = f"{count:,} variables"
    whats = {
        "create": count, "close": 1, "open": 1, "list": 1, "read all attributes": 3 * count,
        f"open {len(looked):,} by name": len(looked),
        "reopen, write an attribute, close": 1,
        "reopen, create a group, close": 1,
    }  # fmt: skip
    phase = {what: f"{title}, {what}" for what in whats}

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        with watch(phase["create"]):
            peer.create(variables, attrs=ATTRIBUTES)
        with watch(phase["close"]):
            peer.close()
        with watch(phase["open"]):
            found = peer.open()
        with watch(phase["list"]):
            listed = list(found)
        with watch(phase["read all attributes"]):
            read = sum(float(peer.attributes(found[name])["valid_max"]) for name in names)
        with watch(phase[f"open {len(looked):,} by name"]):
            for name in looked:
                found[name]
        peer.close()
        _check(title, peer, sorted(listed) == names and read == count * MAXIMUM)
        with watch(phase["reopen, write an attribute, close"]):
            peer.set_attribute(peer.open("r+")[changed], "units", "km s-1")
            peer.close()
        if hasattr(peer, "create_group"):
            with watch(phase["reopen, create a group, close"]):
                peer.open("r+")
                peer.create_group("a group")
                peer.close()
        _check(title, peer, peer.attributes(peer.open()[changed])["units"] == "km s-1")
        peer.close()

    no_groups = dict.fromkeys(("netCDF4", "scipy", "PnetCDF-Python"), "has no groups in classic files")
    slow = {"netCDF4": "definitions take it quadratic time: 131 s for 10,000 variables without an attribute"}
    if count > 10_000:
        slow["netCDF4"] += ", hours for these"
    return Work(
        {phase[what]: (None, calls) for what, calls in whats.items()},
        run,
        {phase["reopen, create a group, close"]: no_groups},
        slow,
        hopeless=frozenset(slow) if count >= 10_000 else frozenset(),
    )


def _check(title: str, peer: Any, right: bool) -> None:
    if not right:
        raise AssertionError(f"{title}, {peer.path}: not what was written")


def peers(folder: str) -> dict[str, Any]:
    """Those that are installed; for the others the reason."""
    return installed(folder, LIBRARIES)
