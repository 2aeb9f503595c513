"""``python -m pnc_vol.bench objects`` makes and reads files of many variables with three attributes each.

The cost of a file of many objects, apart from its data; then, in the same file, one more group, opening a variable by
its name, and changing an attribute.

Knows: the works. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pnc_vol.bench.measure import Job, Stopwatch, times
from pnc_vol.bench.peers import LIBRARIES, Spec, installed

LOOKUPS = 1000
MAXIMUM = 99.5
ATTRIBUTES = {"units": "m s-1", "long_name": "a name of some length", "valid_max": MAXIMUM}


def main(job: Job) -> None:
    """Make and read files of many variables."""
    for count in (10_000, 100_000):
        _many_objects(job, installed(LIBRARIES), times(job.options.scale, count, least=3))


def _many_objects(job: Job, peers: Mapping[str, Any], count: int) -> None:
    names = [f"v{i:06d}" for i in range(count)]
    looked = [names[(i * 7919) % count] for i in range(min(LOOKUPS, count))]
    specs = dict.fromkeys(names, Spec((4,), "f4", attrs=ATTRIBUTES))
    changed, title = names[count // 2], f"{count:,} variables"
    whats = {
        "create": count, "close": 1, "open": 1, "list": 1, "read all attributes": 3 * count,
        f"open {len(looked):,} by name": len(looked), "reopen, write an attribute, close": 1,
        "reopen, create a group, close": 1,
    }  # fmt: skip
    create, close, opening, listing, attributes, by_name, attribute, group = (f"{title}, {what}" for what in whats)

    def run(peer: Any, watch: Stopwatch) -> None:
        with watch(create):
            peer.create(specs)
        with watch(close):
            peer.close()
        with watch(opening):
            found = peer.open()
        with watch(listing):
            listed = list(found)
        of = peer.attributes
        with watch(attributes):
            read = sum(float(of(found[name])["valid_max"]) for name in names)
        with watch(by_name):
            for name in looked:
                found[name]
        peer.close()
        right = sorted(listed) == names and read == count * MAXIMUM
        with watch(attribute):
            peer.open("r+")
            peer.set_attribute(changed, "units", "km s-1")
            peer.close()
        if "groups" in peer.ways:
            with watch(group):
                peer.open("r+")
                peer.file.create_group("a group")
                peer.close()
        else:
            watch.without("has no groups in classic files", group)
        right &= of(peer.open()[changed])["units"] == "km s-1"
        peer.close()
        if not right:
            raise AssertionError(f"{title}, {peer.path}: not what was written")

    slow = {"netCDF4": "definitions take it quadratic time: 131 s for 10,000 variables without an attribute"}
    peers = {**peers, **slow} if count >= 10_000 else peers
    job.turns({f"{title}, {what}": (None, calls) for what, calls in whats.items()}, peers, run, slow)
