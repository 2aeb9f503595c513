"""Defects that are known and not mended yet, so that a run shows what is new. This list must be empty in the end.

Each line: a name, what of a configuration it needs, and what the message of the failure has.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from options import Config, logged

KNOWN: list[tuple[str, Callable[[Config], bool], str]] = [
    # an opening that is interrupted keeps its descriptors
    ("interrupted opening", lambda c: True, r"\(descriptors, threads\) were .* \[(interrupt|memory)"),
    # so does a log that cannot be made or written
    ("log that fails", logged, r"\(descriptors, threads\) were .* \[(error|short)"),
    # after an error a note may name a cache that was given up, so that the file can only be read
    ("note of a cache that is gone", lambda c: c["cache"] != "none", "its caches cannot be read here"),
]


def known(config: Config, told: str) -> str:
    """The name of the known defect that a failure shows, or ""."""
    return next((name for name, applies, text in KNOWN if applies(config) and re.search(text, told)), "")
