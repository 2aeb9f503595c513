"""`Attributes` holds h5py's typed, shaped values as they are stored in a header.

Knows: NetCDF attributes, the names that they have in the header and in truth. Does not know: who owns an attribute,
headers, how a value is encoded.

Rules
-----
1. An attribute is kept as the bytes that the header has of it. What is assigned is encoded at once, and a value is
   decoded when somebody asks for it.
2. Most attributes are one text or one number (*plain*): these are encoded and decoded here, in few steps. How all
   others are is the matter of `attribute_encoding`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.format.model import BYTE, CHAR, DOUBLE, FLOAT, INT, INT64, SHORT, UBYTE, UINT, UINT64, USHORT, Attr
from pnc_vol.interruptions import done_whole
from pnc_vol.mapping.attribute_encoding import Attribute, decode_attribute, encode_attribute
from pnc_vol.mapping.names import MARKER, NameBook, legal_name

if TYPE_CHECKING:
    from pnc_vol.mapping.names import Sink

__all__ = ["NO_MARKERS", "PLAIN_TYPES", "Attributes"]

Marker = Mapping[str, Any]
NO_MARKERS: Mapping[str, Any] = MappingProxyType({})
_FEW = 64
"""Attributes up to which one is looked for without a table."""
_SHORT = 64
"""Characters of a text that is remembered, in attributes of which there are less than `_ALIKE`."""
_ALIKE = 8
_MOST_KNOWN = 1 << 12
"""Entries that are remembered; then memory is emptied, and fills with what is used now."""


# ---------------------------------------------------------------------------------------------- plain attributes

Plain = str | float | int | np.number[Any]
"""A text or a number, of Python's or numpy's, of which nothing but itself is to be stored."""

_CODES: dict[type, int] = {
    np.int8: BYTE, np.int16: SHORT, np.int32: INT, np.int64: INT64, np.float32: FLOAT, np.float64: DOUBLE,
    np.uint8: UBYTE, np.uint16: USHORT, np.uint32: UINT, np.uint64: UINT64,
}  # fmt: skip

PLAIN_TYPES = frozenset((str, float, int, *_CODES))

_LEAST, _LARGEST = -(2**63), 2**63 - 1


def is_plain(value: Any) -> bool:
    """Return True for a text or number with which nothing can be wrong.

    Examples
    --------
    >>> is_plain("K"), is_plain(2**63), is_plain(True), is_plain(np.float32(0.5))
    (True, False, False, True)
    """
    kind = type(value)
    if kind is str:
        return value.isascii() and "\0" not in value
    return kind is float or kind in _CODES or (kind is int and _LEAST <= value <= _LARGEST)


_make = tuple.__new__
_TURN = -1 if sys.byteorder == "little" else 1
_DOUBLE, _INT64 = struct.Struct(">d").pack, struct.Struct(">q").pack
_SCALARS: dict[int, tuple[Callable[[bytes], tuple[Any]], type[np.generic]]] = {
    code: (struct.Struct(letter).unpack, scalar)
    for code, letter, scalar in (
        (BYTE, ">b", np.int8),
        (SHORT, ">h", np.int16),
        (INT, ">i", np.int32),
        (FLOAT, ">f", np.float32),
        (DOUBLE, ">d", np.float64),
        (INT64, ">q", np.int64),
    )
}


def encode_plain(name: str, value: Plain) -> Attr:
    """Encode a plain value for the header; it never needs a marker.

    Examples
    --------
    >>> encode_plain("units", "K")
    Attr(name='units', type=2, nelems=1, data=b'K')
    """
    kind = type(value)
    if kind is str:
        text = value.encode()  # type: ignore[union-attr]
        return _make(Attr, (name, CHAR, len(text), text))
    if kind is float:
        return _make(Attr, (name, DOUBLE, 1, _DOUBLE(value)))
    if kind is int:
        return _make(Attr, (name, INT64, 1, _INT64(value)))
    return _make(Attr, (name, _CODES[kind], 1, value.tobytes()[::_TURN]))  # type: ignore[union-attr]


def shown_plainly(attr: Attr) -> Any:
    """Return the value of an attribute without a marker as a user sees it, if it is one text or number; else None.

    Examples
    --------
    >>> shown_plainly(encode_plain("n", 2.5)).item()
    2.5
    """
    _, code, nelems, data = attr
    if code == CHAR:
        return data.rstrip(b"\0").decode("utf-8", "surrogateescape")
    scalar = _SCALARS.get(code) if nelems == 1 else None
    return None if scalar is None else scalar[1](scalar[0](data)[0])


_lists: dict[tuple[tuple[Attr, ...], str, type, Plain], tuple[Attr, ...]] = {}
_legal: set[str] = set()


def _with_one(raw: tuple[Attr, ...], name: str, value: Plain) -> tuple[Attr, ...]:
    """Return the attributes with a plain one more, or in the place of that of its name.

    Objects that are given the same attributes have one tuple of them in common: a file of 100,000 variables may have
    few, and each is in memory, checked and encoded once.
    """
    # Zeros are equal whatever their sign, and nan is equal to nothing.
    alike = len(raw) < _ALIKE and (len(value) <= _SHORT if type(value) is str else value and value == value)
    made = _lists.get((raw, name, type(value), value)) if alike else None
    if made is None:
        made = _replaced(raw, encode_plain(name, value))
        if alike:
            if len(_lists) >= _MOST_KNOWN:
                _lists.clear()
            _lists[raw, name, type(value), value] = made
    return made


def _replaced(raw: tuple[Attr, ...], attr: Attr) -> tuple[Attr, ...]:
    for i, one in enumerate(raw):
        if one[0] == attr[0]:
            return (*raw[:i], attr, *raw[i + 1 :])
    return (*raw, attr)


def _is_legal(name: str) -> bool:
    """Return whether an attribute of that name may have it in the file, too; found once for the names that programs
    use."""
    if name in _legal:
        return True
    if not name or "\0" in name or not name.isascii() or legal_name(name) != name or name == MARKER:
        return False
    if len(_legal) < _MOST_KNOWN:
        _legal.add(name)
    return True


# ------------------------------------------------------------------------------------------------ the mapping


class Attributes(MutableMapping[str, Attribute]):
    """The attributes of one object, by their true names, in the order of their creation.

    They are a tuple, as the header has them, as long as they are few and each has its own name there; else a table.

    Parameters
    ----------
    raw : attributes as in the header, those that are shown
    markers : marker of each attribute that has one, by its name in the header
    renamed : true name of each attribute that has another name in the header
    findings : list that gets a sentence for every marker that does not fit

    Examples
    --------
    >>> attrs = Attributes((Attr("units", 2, 1, b"K"),))
    >>> attrs["units"].value.item(), len(attrs)
    ('K', 1)
    """

    __slots__ = ("_findings", "_known", "markers")

    def __init__(
        self,
        raw: tuple[Attr, ...] = (),
        markers: Mapping[str, Marker] = NO_MARKERS,
        renamed: Mapping[str, str] = NO_MARKERS,
        findings: Sink | None = None,
    ) -> None:
        self._known: tuple[Attr, ...] | dict[str, Attr] = raw
        """As the header has them; or by true name."""
        self.markers = markers
        self._findings = findings
        if renamed:
            book, table = NameBook(), dict[str, Attr]()
            for attr in raw:
                name = renamed.get(attr.name, attr.name)
                # two of one name: the first is it, the other shows its name in the file, or one that is free
                table[book.take(attr.name if name in table else name)] = attr
            self._known = table

    @property
    def raw(self) -> tuple[Attr, ...]:
        """The attributes as the header has them."""
        known = self._known
        return known if type(known) is tuple else tuple(known.values())  # type: ignore[union-attr]

    def stored(self) -> dict[str, Attr]:
        """Return the attributes as the header has them, by their true names; not to be changed."""
        known = self._known
        return known if type(known) is dict else {attr[0]: attr for attr in known}  # type: ignore[misc]

    def _find(self, name: str) -> Attr | None:
        known = self._known
        if type(known) is tuple:
            if len(known) <= _FEW:
                for attr in known:
                    if attr[0] == name:
                        return attr
                return None
            known = self._known = self.stored()
        return known.get(name)  # type: ignore[union-attr]

    def names(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self)

    def __getitem__(self, name: str) -> Attribute:
        entry = self._find(name)
        if entry is None:
            raise KeyError(name)
        return decode_attribute(entry, self.markers.get(entry.name), self._findings)

    def plain(self, name: str) -> Any:
        """Return the value as a user sees it, if the header has it as one text or number; else None."""
        entry = self._find(name)
        if entry is None or entry[0] in self.markers:
            return None
        return shown_plainly(entry)

    def put_plainly(self, name: str, value: Any) -> bool:
        """Assign what `make_attribute` makes of a value of `PLAIN_TYPES`; False, nothing done, if it may be wrong."""
        if not (is_plain(value) and _is_legal(name) and name not in self.markers):
            return False
        known = self._known
        if type(known) is tuple and len(known) < _FEW:
            self._known = _with_one(known, name, value)
            return True
        old = self._find(name)
        if old is not None and old[0] in self.markers:
            return False
        self._put(name, encode_plain(name, value))
        return True

    @done_whole
    def __setitem__(self, name: str, value: Attribute) -> None:
        called, old = self._name_in_header(name), self._find(name)
        attr, marker = encode_attribute(called, value)
        if called != name:
            marker = {**(marker or {}), "name": name}
        if old is not None:
            self._unmark(old.name)
        if marker:
            markers = self.markers if isinstance(self.markers, dict) else {}
            markers[called], self.markers = marker, markers
        self._put(name, attr)

    def _put(self, name: str, attr: Attr) -> None:
        known = self._known
        if type(known) is tuple and len(known) < _FEW and attr[0] == name:
            self._known = _replaced(known, attr)
        else:
            table = self.stored()
            table[name] = attr
            self._known = table

    def _name_in_header(self, name: str) -> str:
        """Return what an attribute that is assigned is called in the header."""
        wanted, old = legal_name(name), self._find(name)
        if wanted == name != MARKER and (wanted not in self.markers or (old is not None and old.name == wanted)):
            # An attribute that has another one's true name in the header has a marker.
            return name
        others = [attr.name for true_name, attr in self.stored().items() if true_name != name]
        return NameBook((MARKER, *others)).take(wanted)

    def _unmark(self, called: str) -> None:
        if isinstance(self.markers, dict):
            self.markers.pop(called, None)

    def __delitem__(self, name: str) -> None:
        old = self._find(name)
        if old is None:
            raise KeyError(name)
        known = self._known
        if type(known) is dict:
            del known[name]
        else:
            self._known = tuple([attr for attr in known if attr is not old])  # type: ignore[misc]
        self._unmark(old.name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        known = self._known
        return iter(known if type(known) is dict else [attr[0] for attr in known])

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<Attributes {list(self)!r}>"
