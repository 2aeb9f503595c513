"""An opening asks for the hints of a cache (`CacheHints`), and for caches that an earlier job left (`CacheRecovery`).

Knows: names, words, defaults, when there may be caches. Does not know: threads, what is done about a hint or a cache.
The module is small, as it is loaded with every opening.

The hints are E10's words and ours, and the options of ``driver="cache(...) | posix"``.

Rules
-----
1. Words are accepted in any case, as E10 does; another word than those below is an error, where E10 takes it for
   ``disable`` without saying so.
2. A hint given as an option in brackets wins over one given as a hint: it stands where the driver is named.
3. Without ``e10_cache`` a directory alone enables the cache.

Source: the E10 extension of ROMIO (G. Congiu et al., IEEE CLUSTER 2016), whose names and defaults these are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, cast

from pnc_vol.file.leftovers import Left
from pnc_vol.settings.options import Options
from pnc_vol.system import CACHES_NOTED, exists, is_unnamed, neighbour

__all__ = ["HINTED", "CacheHints", "CacheRecovery", "cache_hints"]

Mode = Literal["enable", "disable", "coherent"]
Carrying = Literal["flush_immediate", "flush_onclose", "flush_none"]

_KIB = 1024


class CacheHints(NamedTuple):
    """How a cache works; each field is an option in brackets, and has a hint.

    mode : ``e10_cache``; "coherent" also locks what is not carried yet, in the global file.
    path : ``e10_cache_path``, the directory of the cache files; "" is none.
    flush : ``e10_cache_flush_flag``, when extents are given to the threads: as they are written, at a synchronisation
        or the close, or only when it is asked for explicitly.
    discard : ``e10_cache_discard_flag``, remove the cache file at the close.
    threads : ``e10_cache_threads``, of this process.
    copy_size : ``ind_wr_buffer_size``, bytes of one copy.
    capacity : ``pnc_cache_capacity``, bytes that the cache file of a process may take; 0 is no limit.
    in_flight : ``pnc_cache_in_flight``, bytes of a process that may wait to be carried; beyond it a write goes to the
        global file at once; 0 is no limit.
    """

    mode: Mode = "disable"
    path: str = ""
    flush: Carrying = "flush_immediate"
    discard: bool = True
    threads: int = 1
    copy_size: int = 512 * _KIB
    capacity: int = 0
    in_flight: int = 4 * _KIB**3

    def in_force(self) -> dict[str, str]:
        """Return the hints as text, by their names.

        Examples
        --------
        >>> CacheHints("enable", "/nvm").in_force()["e10_cache_threads"]
        '1'
        """
        return {hint: _as_text(getattr(self, name)) for name, (hint, _) in _TABLE.items()}


_FLAGS: dict[str, bool] = {"enable": True, "true": True, "1": True, "disable": False, "false": False, "0": False}


def cache_hints(
    hints: Mapping[str, str], options: Mapping[str, Any] | None = None, *, named: bool = False
) -> CacheHints:
    """Return what is asked of a cache.

    Parameters
    ----------
    hints : mapping of str to str
        All hints of a file; others than those of a cache are ignored.
    options : mapping, optional
        What stands in brackets behind ``cache`` in the driver.
    named : bool
        The driver names the cache, which asks for it unless a hint says ``disable``.

    Raises
    ------
    ValueError
        A word or a number that the hint does not take, or a cache without a directory.
    TypeError
        An option in brackets that there is not.

    Examples
    --------
    >>> asked = cache_hints({"e10_cache_path": "/nvm", "e10_cache_flush_flag": "FLUSH_ONCLOSE"})
    >>> asked.mode, asked.flush, asked.copy_size
    ('enable', 'flush_onclose', 524288)
    >>> cache_hints({"cb_nodes": "2"}).mode
    'disable'
    """
    given = {name: (hint, hints[hint]) for name, (hint, _) in _TABLE.items() if hint in hints}
    for name, value in (options or {}).items():
        if name not in _TABLE:
            known = ", ".join(CacheHints._fields)
            raise TypeError(f"got an unexpected keyword argument {name!r}; known: {known}")
        given[name] = f"{name} of the driver 'cache'", value
    found = {name: _TABLE[name][1](hint, value) for name, (hint, value) in given.items()}
    path = str(found.get("path", ""))
    mode: Mode = cast("Mode", found.get("mode") or ("enable" if path or named else "disable"))
    if mode != "disable" and not path:
        subject = f"e10_cache={mode}" if "mode" in found else "the driver 'cache'"
        raise ValueError(f"{subject} needs the directory of the cache: give e10_cache_path, on node-local storage")
    return CacheHints(**{**found, "mode": mode})


def _as_text(value: str | bool | int) -> str:
    return ("enable" if value else "disable") if isinstance(value, bool) else str(value)


def _word(*words: str) -> Callable[[str, Any], str]:
    def parse(hint: str, value: Any) -> str:
        text = str(value).lower()
        if text not in words:
            raise ValueError(f"hint {hint}={value!r}: one of {', '.join(words)} is needed")
        return text

    return parse


def _flag(hint: str, value: Any) -> bool:
    found = _FLAGS.get(str(value).lower())
    if found is None:
        raise ValueError(f"hint {hint}={value!r}: enable or disable is needed")
    return found


def _mode(hint: str, value: Any) -> str:
    return {"true": "enable", "false": "disable"}.get(str(value).lower()) or _MODE(hint, value)


_MODE = _word("enable", "disable", "coherent")


def _number(least: int, unit: str) -> Callable[[str, Any], int]:
    def parse(hint: str, value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            number = -1
        if number < least:
            raise ValueError(f"hint {hint}={value!r}: a number of {unit} >= {least} is needed")
        return number

    return parse


_TABLE: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "mode": ("e10_cache", _mode),
    "path": ("e10_cache_path", lambda hint, value: str(value)),
    "flush": ("e10_cache_flush_flag", _word("flush_immediate", "flush_onclose", "flush_none")),
    "discard": ("e10_cache_discard_flag", _flag),
    "threads": ("e10_cache_threads", _number(1, "threads")),
    "copy_size": ("ind_wr_buffer_size", _number(1, "bytes")),
    "capacity": ("pnc_cache_capacity", _number(0, "bytes")),
    "in_flight": ("pnc_cache_in_flight", _number(0, "bytes")),
}
"""For each field of `CacheHints` its hint, and what checks and reads a value of it."""


class _Hinted:
    """See `drivers.stack.Hinted`."""

    checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = dict(_TABLE.values())
    when_off: ClassVar[dict[str, str]] = {"e10_cache": "disable"}

    @staticmethod
    def asked(hints: Mapping[str, str], *, writable: bool) -> bool:
        """Return whether a file gets a cache; one that is only read has one if its reads are to wait for others.

        Examples
        --------
        >>> HINTED.asked({"e10_cache_path": "/nvm"}, writable=True)
        True
        """
        found = cache_hints(hints)
        return found.mode == "coherent" or (found.mode != "disable" and writable)


HINTED = _Hinted()


class CacheRecovery:
    """See `file.leftovers.Recovery`."""

    @staticmethod
    def look_after(path: str, real: str, options: Options, *, writable: bool, replaced: bool) -> None:
        noted = neighbour(real, CACHES_NOTED)
        if options.hints.get("e10_cache_path") or is_unnamed(real) or exists(options.system, noted):
            from pnc_vol.cache.recovery import look_after_caches

            look_after_caches(real, options, writable=writable, replaced=replaced)

    @staticmethod
    def left(real: str, options: Options) -> list[Left]:
        from pnc_vol.cache.folders import find_caches

        return [Left(folder, "caches") for folder in find_caches(options.system, real, options).own]
