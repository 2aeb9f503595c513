"""Some thousand reads by eight threads beside posts, flushes and reopenings; and that a wrong one is found."""

from __future__ import annotations

from typing import Any

import pytest
import threads

import pnc_vol


@pytest.mark.filterwarnings("ignore::pnc_vol.PncVolWarning")
@pytest.mark.parametrize("way", threads.WAYS)
def test_no_value_is_wrong(way: str) -> None:
    done = threads.rounds(4000, "pytest", [way])
    assert done["reads"] == 4000
    assert done["posts"] > 10


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore::pnc_vol.PncVolWarning")
def test_no_value_is_wrong_at_length() -> None:
    assert threads.rounds(1_000_000, "night", list(threads.WAYS))["reads"] == 1_000_000


def test_a_post_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those to one dataset."""
    write = pnc_vol.Dataset.__setitem__

    def losing(self: Any, args: Any, value: Any) -> None:
        if self.name != "/runs":
            write(self, args, value)

    monkeypatch.setattr(pnc_vol.Dataset, "__setitem__", losing)
    with pytest.raises(threads.Wrong, match=r"runs\[.* are right"):
        threads.rounds(40_000, "lost", ["posix"])
