"""The reserved attribute (`names.MARKER`): JSON text with what NetCDF cannot express.

Knows: how a marker is written and how one is read without trusting it. Does not know: what its keys mean.

Rules
-----
1. Compact JSON with sorted keys, in ASCII (characters beyond it are escaped), so that equal markers are equal bytes.
2. A text that is not a JSON object is ignored as a whole; the file then is a plain NetCDF file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pnc_vol.format.model import Attr
from pnc_vol.format.types import CHAR
from pnc_vol.late import late
from pnc_vol.mapping.names import MARKER
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    import json
else:
    json = late("json")

__all__ = ["About", "Findings", "Sink", "dump_marker", "load_marker", "marker_attr", "shown", "warn_of"]

Marker = dict[str, Any]

MOST_FINDINGS = 1000


@functools.cache
def _encoder() -> json.JSONEncoder:
    return json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)


class Findings(list[str]):
    """Sentences about what was wrong; a hostile file cannot make it longer than `MOST_FINDINGS`.

    path : str, the file's name once its user was told of the sentences so far. Those that come later, when an attribute
        is looked at, are warnings at once: what is shown then is not what somebody once stored.
    """

    __slots__ = ("path",)

    def __init__(self) -> None:
        super().__init__()
        self.path = ""

    def append(self, sentence: str) -> None:
        """Add a sentence unless it is there already, or there are enough."""
        if len(self) >= MOST_FINDINGS or sentence in self:
            return
        super().append(sentence)
        if self.path:
            warn_outside(f"{self.path}: {sentence}")


def warn_of(path: str, findings: list[str]) -> None:
    """Tell the user of a file of what was found in it; what is found later is told of at once."""
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        warn_outside(f"{path}: {findings[0]}{more}")
    if isinstance(findings, Findings):
        findings.path = path


class Sink(Protocol):
    """What takes sentences about what was wrong; a list is one."""

    def append(self, sentence: str, /) -> None:
        """Take a sentence."""


class About:
    """Findings about one object, whose name comes first in each sentence.

    where : str, the object.
    findings : Sink
    """

    __slots__ = ("findings", "where")

    def __init__(self, where: str, findings: Sink) -> None:
        self.where = where
        self.findings = findings

    def append(self, sentence: str) -> None:
        """Add a sentence."""
        self.findings.append(f"{self.where}: {sentence}")


def shown(value: object) -> str:
    """A value of a file as it may appear in a message: short, printable."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def dump_marker(marker: Mapping[str, Any]) -> Attr:
    """The attribute that holds `marker`.

    Examples
    --------
    >>> dump_marker({"path": "/A/B"}).data
    b'{"path":"/A/B"}'
    """
    data = _encoder().encode(marker).encode("ascii")
    return Attr(MARKER, CHAR, len(data), data)


def marker_attr(attrs: Iterable[Attr]) -> Attr | None:
    """The attribute that is the marker of an object; None if it has none.

    Examples
    --------
    >>> marker_attr((Attr("units", 2, 1, b"K"), dump_marker({"len": 3}))).data
    b'{"len":3}'
    """
    return next((attr for attr in attrs if attr.name == MARKER), None)


def load_marker(attr: Attr, where: str, findings: list[str]) -> Marker:
    """The marker that an attribute holds; empty, with a finding, if it is none.

    Parameters
    ----------
    attr : Attr called `MARKER`
    where : str, for the message
    findings : list of str
    """
    if attr.type == CHAR:
        try:
            marker = json.loads(attr.data.decode("utf-8"))
        except (ValueError, RecursionError):
            marker = None
        if isinstance(marker, dict):
            return marker
    findings.append(f"{where}: {attr.name} is not a JSON object; it is ignored")
    return {}
