"""Ranks send each other values as JSON, and behind it the bytes that are in the value.

Knows: values. Does not know: ranks, messages.

A value is None, a number, a text, bytes, or a list or dictionary of such, with texts as keys; a tuple arrives as a
list. JSON and not pickle: what a rank receives is data, and can make no object. Bytes stand behind the JSON because
headers and lists of runs may have megabytes, which as hexadecimal digits would double, and be copied once more.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["decoded", "encoded"]

_BYTES = "\0bytes"
"""The key of a dictionary that stands for bytes: their number. No name in a file begins with this character."""


def encoded(value: Any) -> bytes:
    """Return a value as bytes.

    Examples
    --------
    >>> encoded([1, "a"]), encoded({"header": b"CDF", "n": 2})
    (b'[1,"a"]', b'{"header":{"\\\\u0000bytes":3},"n":2}\\nCDF')
    >>> decoded(encoded({"header": b"CDF", "n": 2}))
    {'header': b'CDF', 'n': 2}
    """
    behind: list[bytes] = []

    def put_behind(one: Any) -> dict[str, int]:
        if not isinstance(one, bytes):
            raise TypeError(f"{type(one).__name__} cannot be sent to other ranks")
        behind.append(one)
        return {_BYTES: len(one)}

    text = json.dumps(value, separators=(",", ":"), default=put_behind).encode()
    # JSON as it is written here has no line breaks.
    return b"\n".join((text, b"".join(behind))) if behind else text


def decoded(packed: bytes) -> Any:
    """Return the value that `encoded` made into bytes."""
    at = packed.find(b"\n")
    if at < 0:
        return json.loads(packed)

    def from_behind(one: dict[str, Any]) -> Any:
        nonlocal at
        if _BYTES not in one:
            return one
        begin, at = at + 1, at + one[_BYTES]
        return packed[begin : at + 1]

    return json.loads(packed[:at], object_hook=from_behind)
