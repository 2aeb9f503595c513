"""Paths and attribute names of HDF5 become names of NetCDF, and an attribute says what names cannot.

Knows: which names each side allows, how a name is bent to fit, how collisions are told apart. Does not know: trees,
headers, markers; who calls puts the true name into a marker wherever `dataset_name` would not give it back.

Rules
-----
1. ``/A/B`` becomes ``A_B``. What NetCDF does not allow becomes ``_``; a name beyond 255 bytes is cut and gets
   a digest of the whole.
2. The second user of a name gets ``_2``, the third ``_3``...
3. A name of the file is never a path: ``/`` in it becomes ``_``, nothing is split, nothing is followed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from pnc_vol.format.limits import MAX_NAME, is_legal_name, normalise
from pnc_vol.format.model import CHAR, Attr
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    import json

__all__ = [
    "MARKER",
    "About",
    "Findings",
    "NameBook",
    "Sink",
    "dataset_name",
    "dump_json",
    "dump_marker",
    "is_member_name",
    "is_shape",
    "is_text",
    "legal_name",
    "load_marker",
    "marker_attr",
    "shown",
    "split_path",
    "variable_name",
    "warn_of",
]


MARKER = "pnc_vol_hdf5"
"""The reserved attribute, the marker. It begins with a letter, as the CF conventions ask (section 2.3). No attribute of
a user has this name in the file."""

_BAD = "[\x00-\x1f\x7f/]|[\ud800-\udfff]"
_FIRST = "[A-Za-z0-9_]|[^\x00-\x7f]"
_DIGEST = 8
_LONGEST = MAX_NAME - 1
"""Bytes of a name that is made here: NetCDF allows one more, but ncdump 4.9 fails on such attributes."""


def legal_name(name: str) -> str:
    """Bend `name` until NetCDF allows it; a name that is allowed comes back as it is.

    Examples
    --------
    >>> legal_name("temp"), legal_name("a/b "), legal_name(".hidden")
    ('temp', 'a_b_', '_.hidden')
    """
    if is_legal_name(name) and (len(name) < _LONGEST // 4 or len(name.encode()) <= _LONGEST):
        return name
    bent = re.sub(_BAD, "_", normalise(name))
    if bent.endswith(" "):
        bent = bent[:-1] + "_"
    if not re.match(_FIRST, bent):
        bent = "_" + bent
    return _shortened(bent, name)


def _shortened(bent: str, name: str, room: int = _LONGEST) -> str:
    """Return `bent` in at most `room` bytes, its end replaced by a digest of `name` if it is too long."""
    coded = bent.encode("utf-8", "surrogateescape")
    if len(coded) <= room:
        return bent
    # few names are so long, and what makes digests takes a tenth of the time to import the package
    from hashlib import blake2s

    digest = blake2s(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST // 2).hexdigest()
    return f"{coded[: room - _DIGEST - 1].decode(errors='ignore').rstrip()}_{digest}"


class NameBook:
    """Names that are taken, and the next one that is free.

    Examples
    --------
    >>> book = NameBook()
    >>> book.take("a"), book.take("a"), book.take("a")
    ('a', 'a_2', 'a_3')
    """

    __slots__ = ("_next", "taken")

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._next: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Take `name`, or the first of ``name_2``, ``name_3``... that is free."""
        if name not in self.taken:
            self.taken.add(name)
            return name
        base = _shortened(name, name, _LONGEST - 9)
        number = self._next.get(base, 2)
        while f"{base}_{number}" in self.taken:
            number += 1
        # many users of one name must not make each search start over
        self._next[base] = number + 1
        found = f"{base}_{number}"
        self.taken.add(found)
        return found


def variable_name(path: str, separator: str) -> str:
    """Return the name that a variable for the object at `path` would like to have.

    Examples
    --------
    >>> variable_name("/A/B", "_")
    'A_B'
    """
    return legal_name(path[1:].replace("/", separator))


def is_member_name(name: object) -> bool:
    """Return True if `name` can be one step of a path."""
    if not isinstance(name, str) or not name or name in (".", "..") or "/" in name or "\0" in name:
        return False
    return is_text(name)


def is_text(value: object) -> bool:
    """Return True for a text that has bytes; JSON can also spell half a surrogate pair, which has none.

    Examples
    --------
    >>> is_text("Kiel"), is_text(3), is_text(chr(0xD800))
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def dataset_name(variable: str) -> str:
    """Return the name in the root group of a variable that has no marker.

    Examples
    --------
    >>> dataset_name("temp"), dataset_name("../etc/passwd")
    ('temp', '.._etc_passwd')
    """
    if is_member_name(variable):
        return variable
    name = variable.replace("/", "_").replace("\0", "_")
    name = name.encode("utf-8", "replace").decode() if not is_member_name(name) else name
    return name if is_member_name(name) else f"_{name.strip('.')}"


def is_shape(value: object) -> bool:
    """Return True for what a marker may give as the shape of something: a list of lengths, not too many.

    Examples
    --------
    >>> is_shape([2, 0]), is_shape([-1]), is_shape([True]), is_shape([1] * 33)
    (True, False, False, False)
    """
    return (
        isinstance(value, list) and len(value) <= _MAX_RANK and all(type(n) is int and 0 <= n < 1 << 63 for n in value)
    )


_MAX_RANK = 32
DEEPEST = 1000
"""Steps of the longest path: the paths of groups within each other take the square of their number."""


def split_path(path: object) -> list[str] | None:
    """Return the steps of an absolute path; None if it is not one."""
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    steps = path[1:].split("/")
    return steps if len(steps) <= DEEPEST and all(map(is_member_name, steps)) else None


# ------------------------------------------------------------------------------------------------------------- markers
# The reserved attribute (`names.MARKER`): JSON text with what NetCDF cannot express.
#
# Knows: how a marker is written and how one is read without trusting it. Does not know: what its keys mean.
#
# Rules
# -----
# 1. Compact JSON with sorted keys, in ASCII (characters beyond it are escaped), so that equal markers are equal bytes.
# 2. A text that is not a JSON object is ignored as a whole; the file then is a plain NetCDF file.


Marker = dict[str, Any]

MOST_FINDINGS = 1000


@functools.cache
def _encoder() -> json.JSONEncoder:
    import json

    return json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)


def dump_json(value: Any) -> str:
    """Return the JSON of a value of a marker."""
    return _encoder().encode(value)


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
    """Return a value of a file as it may appear in a message: short, printable."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def dump_marker(marker: Mapping[str, Any], parts: Mapping[str, str] = MappingProxyType({})) -> Attr:
    """Return the attribute that holds `marker`.

    parts : mapping of str to str, the JSON of further keys.

    Examples
    --------
    >>> dump_marker({"path": "/A/B"}).data
    b'{"path":"/A/B"}'
    >>> dump_marker({"path": "/A/B"}, {"attrs": "{}"}).data
    b'{"attrs":{},"path":"/A/B"}'
    """
    if parts:
        texts = {**{key: dump_json(value) for key, value in marker.items()}, **parts}
        data = "{" + ",".join([f"{dump_json(key)}:{texts[key]}" for key in sorted(texts)]) + "}"
    else:
        data = _encoder().encode(marker)
    return Attr(MARKER, CHAR, len(data), data.encode("ascii"))


def marker_attr(attrs: Iterable[Attr]) -> Attr | None:
    """Return the attribute that is the marker of an object; None if it has none.

    Examples
    --------
    >>> marker_attr((Attr("units", 2, 1, b"K"), dump_marker({"len": 3}))).data
    b'{"len":3}'
    """
    return next((attr for attr in attrs if attr.name == MARKER), None)


def load_marker(attr: Attr, where: str, findings: list[str]) -> Marker:
    """Return the marker that an attribute holds; empty, with a finding, if it is none.

    Parameters
    ----------
    attr : Attr called `MARKER`
    where : str, for the message
    findings : list of str
    """
    if attr.type == CHAR:
        import json

        try:
            marker = json.loads(attr.data.decode("utf-8"))
        except (ValueError, RecursionError):
            marker = None
        if isinstance(marker, dict):
            return marker
    findings.append(f"{where}: {attr.name} is not a JSON object; it is ignored")
    return {}
