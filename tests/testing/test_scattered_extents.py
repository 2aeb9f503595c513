"""The extents of the driver suite are what they promise, and reach the edges; the room loads no test tool by itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
from hypothesis import find, given

from pnc_vol.testing.driver_suite import scattered_extents


@given(scattered_extents())
def test_extents_do_not_overlap(drawn: tuple[Any, np.ndarray]) -> None:
    extents, memory = drawn
    for start in (extents.offset, extents.place):
        seen = [s + i for s, n in zip(start.tolist(), extents.length.tolist(), strict=True) for i in range(n)]
        assert len(seen) == len(set(seen))
        assert not seen or min(seen) >= 0
    assert int((extents.place + extents.length).max(initial=0)) <= len(memory)


def test_edges_are_reached() -> None:
    find(scattered_extents(), lambda drawn: len(drawn[0].offset) == 0)
    find(scattered_extents(), lambda drawn: bool((drawn[0].length == 0).any()))
    find(scattered_extents(), lambda drawn: bool((np.diff(drawn[0].offset) < 0).any()))


def test_the_room_itself_loads_no_test_tool() -> None:
    program = "import sys, pnc_vol.testing; assert not {'pytest', 'hypothesis'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
