"""Random programs with a log or a cache to which something happens, of the engine (`tests/engine`).

The engine's own tests go over all options; here each configuration has a log, or a cache, with any of the others.
"""

from __future__ import annotations

import random
from functools import cache

import options
import pytest
import run
import shrink
from ranks import EVENTS

PLAIN = {"publish": "create", "deferred": False, "layout": "canonical"}
KEPT = {
    "log": {"store": "log", "cache": "none", **PLAIN},
    "cache": {"cache": "flush_immediate", **PLAIN},
    "cache that waits": {"cache": "flush_onclose", **PLAIN},
    "coherent cache": {"cache": "coherent", **PLAIN},
    "log over a cache": {"store": "log", "cache": "flush_immediate", **PLAIN},
}
EVENTS_OF = [
    *(("log", event) for event in ("kill", "power", "error", "interrupt", "memory")),
    *((kept, "kill") for kept in ("cache", "cache that waits", "coherent cache", "log over a cache")),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def plugins() -> None:
    options.load_plugins()


@cache
def configurations(kept: str) -> list[options.Config]:
    """A covering array of pairs of all other options."""
    return list(options.covering(2, random.Random(kept), fixed=KEPT[kept]))


def programs(kept: str, event: str, share: int) -> list[run.Program]:
    """Every so manieth configuration, others for each event."""
    first = [one for to, one in EVENTS_OF if to == kept].index(event) % share
    return [run.made(f"{kept} {event}:{n}", config) for n, config in enumerate(configurations(kept))][first::share]


@pytest.mark.parametrize("share", [14, pytest.param(1, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize(("kept", "event"), EVENTS_OF)
def test_what_was_promised_is_there(kept: str, event: str, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Posts go to the slot of a log as soon as one may, and are taken without a copy if they are not tiny."""
    monkeypatch.setattr("pnc_vol.burst.store.STRETCH", 1)
    monkeypatch.setattr("pnc_vol.file.post.LEAST_LENT", 256)
    happens = EVENTS[event](6 if share > 1 else 60)
    for program in programs(kept, event, share):
        told = run.attempt(program, happens)
        assert not told, shrink.script(program, told)
