"""The hints of a node-local cache: words, defaults, precedence, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pnc_vol

DEFAULTS = {
    "e10_cache": "enable", "e10_cache_flush_flag": "flush_immediate", "e10_cache_discard_flag": "enable",
    "e10_cache_threads": "1", "ind_wr_buffer_size": str(512 << 10),
}  # fmt: skip
"""Those of E10."""


@pytest.fixture
def nvm(tmp_path: Path) -> str:
    (tmp_path / "nvm").mkdir()
    return str(tmp_path / "nvm")


def in_force(nvm: str, hints: dict[str, str], driver: str | None = None) -> dict[str, str]:
    with pnc_vol.File(Path(nvm).parent / "x.nc", "w", hints=hints, driver=driver) as f:
        return dict(f.hints)


@pytest.mark.parametrize(
    ("word", "named", "mode"),
    [
        (None, False, None), (None, True, "enable"), ("disable", True, "disable"), ("ENABLE", True, "enable"),
        ("Coherent", True, "coherent"), ("disable", False, "disable"),
    ],
)  # fmt: skip
def test_the_cache_is_on_where_a_directory_or_the_word_asks_for_it(
    nvm: str, word: str | None, named: bool, mode: str | None
) -> None:
    hints = {"e10_cache": word} if word else {}
    found = in_force(nvm, hints | ({"e10_cache_path": nvm} if named else {}))
    assert found.get("e10_cache") in (mode, "disable" if mode is None else mode)
    assert mode != "enable" or DEFAULTS.items() <= found.items()


def test_every_hint_is_obeyed_and_shown(nvm: str) -> None:
    given = {
        "e10_cache": "coherent",
        "e10_cache_path": nvm,
        "e10_cache_flush_flag": "flush_onclose",
        "e10_cache_discard_flag": "disable",
        "e10_cache_threads": "3",
        "ind_wr_buffer_size": "4096",
        "pnc_cache_capacity": "1000000",
        "pnc_cache_in_flight": "5000",
    }
    assert given.items() <= in_force(nvm, given).items()


def test_options_in_brackets_win_over_hints(nvm: str) -> None:
    hints = {"e10_cache_path": nvm, "e10_cache_threads": "2"}
    found = in_force(nvm, hints, "cache(threads=4, discard=false) | posix")
    assert (found["e10_cache"], found["e10_cache_threads"], found["e10_cache_discard_flag"]) == (
        "enable", "4", "disable",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hint", "value", "says"),
    [
        ("e10_cache", "on", "enable, disable, coherent"),
        ("e10_cache_flush_flag", "immediate", "flush_immediate"),
        ("e10_cache_discard_flag", "maybe", "enable or disable"),
        ("e10_cache_threads", "0", "threads >= 1"),
        ("e10_cache_threads", "two", "threads >= 1"),
        ("ind_wr_buffer_size", "512k", "bytes >= 1"),
        ("pnc_cache_capacity", "-1", "bytes >= 0"),
        ("pnc_cache_in_flight", "", "bytes >= 0"),
    ],
)
def test_an_unknown_word_is_an_error_that_names_the_hint_and_what_it_takes(
    nvm: str, hint: str, value: str, says: str
) -> None:
    with pytest.raises(ValueError, match=f"{hint}={value!r}.*{says}"):
        in_force(nvm, {"e10_cache_path": nvm, hint: value})


@pytest.mark.parametrize(
    ("hints", "driver"),
    [({"e10_cache": "enable"}, None), ({"e10_cache": "coherent"}, None), ({}, "cache | posix")],
)
def test_a_cache_without_a_directory_is_an_error(nvm: str, hints: dict[str, Any], driver: str | None) -> None:
    with pytest.raises(ValueError, match="e10_cache_path"):
        in_force(nvm, hints, driver)


def test_an_option_in_brackets_that_there_is_not(nvm: str) -> None:
    with pytest.raises(ValueError, match=r"thread.*threads"):
        in_force(nvm, {}, f"cache(path='{nvm}', thread=4) | posix")
