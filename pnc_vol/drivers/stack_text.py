"""The text that names a stack of drivers: parsing it, and writing it.

    "trace | posix"                           names from top to bottom
    "trace(file=t.json, limit=10) | posix"    with options
    "trace(file='a, b.json') | posix"         a value with any characters stands in quotes, a quote in it is doubled

Knows: text. Does not know: drivers.

Rule
----
`parse_stack` of what `written_layer` writes gives the same name and options.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Layer", "parse_stack", "written_layer"]

# compiled when they are used: most stacks are one word
_NAMED = r"\s*([\w-]+)\s*(\(\s*)?"
# Quoted; or bare: whatever has no comma and no bracket, but for pairs of brackets.
_OPTION = r"""(?x)\s*(?P<key>\w+)\s*=\s*
    (?: '(?P<single>(?:[^']|'')*)' | "(?P<double>(?:[^"]|"")*)" | (?P<bare>(?!\s*['"]) [^,()]* (?:\([^()]*\)[^,()]*)*) )
    \s*(?P<end>[,)])"""
_PLAIN = r"[\w./:@+-]*"


class Layer(NamedTuple):
    """One word of a stack.

    name : str
    options : what stood in brackets; numbers, ``true`` and ``false`` are read as such, other values are text.
    """

    name: str
    options: Mapping[str, Any]


# A file that is opened asks several times what its stack is.
@functools.lru_cache(maxsize=64)
def parse_stack(spec: str) -> tuple[Layer, ...]:
    """The layers of a stack's text, top first; nothing is looked up.

    Parameters
    ----------
    spec : str

    Raises
    ------
    ValueError
        The text is not a list of names with options.

    Examples
    --------
    >>> [layer.name for layer in parse_stack("trace(file=a.json, limit=10) | posix")]
    ['trace', 'posix']
    """
    if spec.isidentifier():
        return (Layer(spec, {}),)
    layers: list[Layer] = []
    at = 0
    while True:
        found = re.compile(_NAMED).match(spec, at)
        if found is None:
            raise _wrong(spec, at, "a name or name(option=value, ...)")
        at = found.end()
        options: dict[str, Any] = {}
        if found[2]:
            at, options = _options(spec, at)
        layers.append(Layer(found[1], options))
        rest = spec[at:].lstrip()
        if not rest:
            return tuple(layers)
        if rest[0] != "|":
            raise _wrong(spec, found.start(), "a name or name(option=value, ...)")
        at = len(spec) - len(rest) + 1


def _options(spec: str, at: int) -> tuple[int, dict[str, Any]]:
    """Where the options that begin at `at` end, and what they are."""
    options: dict[str, Any] = {}
    if spec.startswith(")", at):
        return at + 1, options
    while True:
        found = re.compile(_OPTION).match(spec, at)
        if found is None or not found["key"].isidentifier():
            raise _wrong(spec, at, "option=value")
        if found["bare"] is not None:
            options[found["key"]] = _value(found["bare"].strip())
        else:
            text, quote = (found["single"], "'") if found["single"] is not None else (found["double"], '"')
            options[found["key"]] = text.replace(2 * quote, quote)
        at = found.end()
        if found["end"] == ")":
            return at, options


def _wrong(spec: str, at: int, wanted: str) -> ValueError:
    return ValueError(f"{spec[at:].strip()!r} in the driver {spec!r} is not {wanted}")


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def written_layer(name: str, options: Mapping[str, Any]) -> str:
    """A layer as `parse_stack` reads it.

    Examples
    --------
    >>> written_layer("trace", {"file": "it's, here", "limit": 10}), written_layer("posix", {})
    ("trace(file='it''s, here', limit=10)", 'posix')
    """
    if not options:
        return name
    return f"{name}({', '.join(f'{key}={_written(value)}' for key, value in options.items())})"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if re.fullmatch(_PLAIN, value) and _value(value) == value:
        return value
    return "'" + value.replace("'", "''") + "'"
