"""The hints of a node-local cache: words, defaults, precedence, errors."""

from __future__ import annotations

from typing import Any

import pytest

from pnc_vol.cache.hints import CacheHints, cache_hints


@pytest.mark.parametrize(
    ("hints", "mode"),
    [
        ({}, "disable"),
        ({"e10_cache_path": "/nvm"}, "enable"),
        ({"e10_cache_path": "/nvm", "e10_cache": "disable"}, "disable"),
        ({"e10_cache_path": "/nvm", "e10_cache": "ENABLE"}, "enable"),
        ({"e10_cache_path": "/nvm", "e10_cache": "Coherent"}, "coherent"),
        ({"e10_cache": "disable"}, "disable"),
    ],
)
def test_the_cache_is_on_where_a_directory_or_the_word_asks_for_it(hints: dict[str, str], mode: str) -> None:
    assert cache_hints(hints).mode == mode


def test_defaults_are_those_of_e10() -> None:
    asked = cache_hints({"e10_cache_path": "/nvm"})
    assert (asked.flush, asked.discard, asked.threads, asked.copy_size) == ("flush_immediate", True, 1, 512 << 10)


def test_every_hint_is_obeyed_and_shown() -> None:
    given = {
        "e10_cache": "coherent",
        "e10_cache_path": "/nvm",
        "e10_cache_flush_flag": "flush_onclose",
        "e10_cache_discard_flag": "disable",
        "e10_cache_threads": "3",
        "ind_wr_buffer_size": "4096",
        "pnc_cache_capacity": "1000000",
        "pnc_cache_in_flight": "5000",
    }
    asked = cache_hints(given)
    assert asked == CacheHints("coherent", "/nvm", "flush_onclose", False, 3, 4096, 1000000, 5000)
    assert asked.in_force() == given


def test_options_in_brackets_win_over_hints() -> None:
    asked = cache_hints(
        {"e10_cache_path": "/nvm", "e10_cache_threads": "2"}, {"threads": 4, "discard": False}, named=True
    )
    assert (asked.path, asked.threads, asked.discard, asked.mode) == ("/nvm", 4, False, "enable")


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
def test_an_unknown_word_is_an_error_that_names_the_hint_and_what_it_takes(hint: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"{hint}={value!r}.*{says}"):
        cache_hints({"e10_cache_path": "/nvm", hint: value})


@pytest.mark.parametrize(
    ("hints", "named"), [({"e10_cache": "enable"}, False), ({"e10_cache": "coherent"}, False), ({}, True)]
)
def test_a_cache_without_a_directory_is_an_error(hints: dict[str, Any], named: bool) -> None:
    with pytest.raises(ValueError, match="e10_cache_path"):
        cache_hints(hints, named=named)


def test_an_option_in_brackets_that_there_is_not() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'thread'.*threads"):
        cache_hints({}, {"thread": 4})
