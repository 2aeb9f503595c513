"""Attributes: h5py's typed, shaped values, and how they are stored in a header.

Knows: h5py's rules for making an attribute from a value, NetCDF attributes, the marker of one attribute. Does
not know: who owns an attribute, what its name is in the file (`mapping.names`), headers.

Rules
-----
1. A NetCDF attribute is a 1-D row of values. Without a marker one value is a scalar, more are 1-D, characters are one
   ``str``. What differs from that is in the marker: shape, type, lengths.
2. Nothing is decoded before someone asks for its value; what was not changed is written as the bytes it was read as.
3. A marker is checked against the bytes; one that does not fit is ignored and reported, and no memory is ever
   allocated because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pnc_vol.errors import ConversionError, DefinitionError
from pnc_vol.format.model import Attr
from pnc_vol.format.types import CHAR
from pnc_vol.late import late
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.names import MARKER, legal_name
from pnc_vol.mapping.plain_attributes import (
    Plain,
    encode_plain,
    is_listed,
    is_plain,
    listed,
    met_before,
    shown_plainly,
    with_new,
)
from pnc_vol.mapping.special import Dtype, check_string_dtype, is_empty, metadata_of, string_dtype

if TYPE_CHECKING:
    from pnc_vol.mapping import attribute_encoding
    from pnc_vol.mapping.markers import Sink
else:
    attribute_encoding = late("pnc_vol.mapping.attribute_encoding")

__all__ = ["Attribute", "Attributes", "decode_attribute", "encode_attribute", "fitting", "make_attribute"]

Marker = Mapping[str, Any]
Table = dict[str, "Attribute | Attr"]
NO_MARKERS: Mapping[str, Any] = MappingProxyType({})
_SHORT = 8
"""Attributes up to which one is looked for without a table."""
_MANY = 64
"""Attributes from which on each is encoded when it is put."""


class Attribute(NamedTuple):
    """The value of an attribute.

    dtype : dtype as stored, with h5py's metadata.
    shape : tuple of int, or None for an empty (null) attribute.
    value : read-only ndarray of that shape, or None when `shape` is None; strings of varying length are objects
        of ``str``. Copy it before it goes to a user.
    """

    dtype: Dtype
    shape: tuple[int, ...] | None
    value: NDArray[Any] | None


# ------------------------------------------------------------------------------------ from the user's value


def make_attribute(
    value: Any, *, shape: int | tuple[int, ...] | None = None, dtype: DTypeLike | None = None
) -> Attribute:
    """Make an attribute as ``attrs.create(name, value, shape, dtype)`` of h5py 3.16 does.

    Parameters
    ----------
    value : anything array-like, str, bytes or Empty
    shape : tuple of int, int or None
        Another shape for the same number of values.
    dtype : dtype-like or None
        Type to store; by default the value's own, with ``str`` and ``bytes`` as strings of varying length.

    Raises
    ------
    TypeError
        No equivalent in HDF5: ``U`` arrays, objects that are neither all str nor all bytes.
    ValueError
        Shapes that do not agree, NULs in strings of varying length, values that do not fit.

    Examples
    --------
    >>> make_attribute("K").value.item(), make_attribute([1, 2]).shape
    ('K', (2,))
    """
    if shape is None and dtype is None:
        # What most attributes are: a text, a number.
        if is_plain(value):
            return _of_plain(value)
        if type(value) is np.ndarray or isinstance(value, np.generic):
            # Numbers that are stored as they are.
            found: Dtype = value.dtype
            element = element_for(found) if found.kind in "iuf" and found.metadata is None else None
            if element is not None and element.kind == "number" and element.dtype == found:
                return Attribute(element.dtype, value.shape, attribute_encoding.frozen(np.array(value, order="C")))
    wanted = None if dtype is None else np.dtype(dtype)
    if isinstance(shape, (int, np.integer)):
        shape = (int(shape),)
    if is_empty(value):
        if shape is not None:
            raise ConversionError("an Empty attribute has no shape; leave shape= out")
        return Attribute(element_for(value.dtype if wanted is None else wanted).dtype, None, None)
    array, wanted = attribute_encoding.as_array(value, wanted)
    element = element_for(wanted)
    if shape is not None:
        shape = tuple(int(n) for n in shape)
        if element.dtype.subdtype is not None:
            shape += element.dtype.subdtype[1]
        if int(np.prod(shape, dtype=object)) != array.size:
            raise DefinitionError(
                f"Shape of new attribute conflicts with shape of data: {shape} was asked, the data has {array.shape}"
            )
        array = array.reshape(shape)
    stored = attribute_encoding.as_stored(array, element)
    inner = 0 if element.dtype.subdtype is None else len(element.dtype.subdtype[1])
    return Attribute(element.dtype, stored.shape[: stored.ndim - inner], attribute_encoding.frozen(stored))


def fitting(attribute: Attribute, *, exact: bool) -> Attribute:
    """The attribute for a file without 64-bit integers (CDF-1, CDF-2): Python's integers are stored as int32.

    Parameters
    ----------
    exact : bool
        The type was asked for, or came with the value: it stays.

    Examples
    --------
    >>> str(fitting(make_attribute(5), exact=False).dtype)
    'int32'
    """
    value = attribute.value
    if exact or value is None or attribute.dtype != np.int64 or metadata_of(attribute.dtype):
        return attribute
    if value.size and not -(2**31) <= value.min() <= value.max() < 2**31:
        return attribute
    return make_attribute(value.astype(np.int32))


_SIMPLE = {str: string_dtype(), float: np.dtype(float), int: np.dtype(int)}


def _of_plain(value: Plain) -> Attribute:
    dtype = value.dtype if isinstance(value, np.generic) else _SIMPLE[type(value)]
    return Attribute(dtype, (), attribute_encoding.frozen(np.array(value, dtype)))


# --------------------------------------------------------------------------------------- to and from the header


def encode_attribute(name: str, attribute: Attribute) -> tuple[Attr, dict[str, Any] | None]:
    """Encode an attribute for the header.

    Parameters
    ----------
    name : str, as it will be in the file
    attribute : Attribute

    Returns
    -------
    attr : Attr
    marker : dict or None
        What the attribute alone does not say; see ``docs/reference/file-format.md``.

    Examples
    --------
    >>> encode_attribute("n", make_attribute([[1, 2]]))[1]
    {'shape': [1, 2]}
    """
    return attribute_encoding.to_attr(name, attribute.dtype, attribute.shape, attribute.value)


def decode_attribute(attr: Attr, marker: Marker | None = None, findings: Sink | None = None) -> Attribute:
    """Read an attribute of a header.

    Parameters
    ----------
    attr : Attr
    marker : dict or None
        A hint that is checked; what does not fit is ignored.
    findings : Sink or None
        Gets a sentence if the marker was ignored.

    Examples
    --------
    >>> str(decode_attribute(Attr("units", 2, 1, b"K")).value)
    'K'
    """
    if not marker and attr.type == CHAR:
        return Attribute(
            _SIMPLE[str],
            (),
            attribute_encoding.frozen(attribute_encoding.texts((attr.data.rstrip(b"\0"),), _SIMPLE[str]).reshape(())),
        )
    dtype, shape, coded = attribute_encoding.from_attr(attr, marker, findings)
    if shape is None or coded is None:
        return Attribute(dtype, None, None)
    if dtype.kind == "O" and check_string_dtype(dtype) is not None:
        coded = attribute_encoding.texts(coded.ravel().tolist(), dtype).reshape(shape)
    return Attribute(dtype, shape, attribute_encoding.frozen(coded))


# ------------------------------------------------------------------------------------------------ the mapping


class Attributes(MutableMapping[str, Attribute]):
    """The attributes of one object, by their true names, in the order of their creation.

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

    __slots__ = ("_entries", "_findings", "_own", "_plain", "_raw", "_renamed", "grown_from", "markers", "shown")

    def __init__(
        self,
        raw: tuple[Attr, ...] = (),
        markers: Mapping[str, Marker] = NO_MARKERS,
        renamed: Mapping[str, str] = NO_MARKERS,
        findings: Sink | None = None,
    ) -> None:
        self._raw: tuple[Attr, ...] | None = raw
        self.markers = markers
        self._renamed = renamed
        self._findings = findings
        self._entries: Table | None = None
        self._own = self._plain = False
        """Whether the table is of these attributes alone, and whether it has nothing but `Attr` under their names."""
        self.grown_from: tuple[Attr, ...] | None = None
        """The last `untouched`, if since then nothing happened but that attributes were added behind it."""
        self.shown: dict[str, Any] | None = None
        """Values as a user sees them, of those that were looked at; one for all objects with these attributes."""

    @property
    def untouched(self) -> tuple[Attr, ...] | None:
        """As the header has them if nothing is to be encoded, because that was done when they were put; else None."""
        table, before = self._entries, self.grown_from or ()
        if self._raw is None and self._plain and table is not None:
            # The table is not gone through, and stays: the next attribute is put to it.
            new = [*islice(reversed(table.values()), len(table) - len(before))][::-1]
            self._raw = before + tuple(new)  # type: ignore[arg-type]
        return self._raw

    def settle(self, raw: tuple[Attr, ...], markers: Mapping[str, Marker]) -> None:
        """Take the encoded form of these same attributes in place of the values, so that it is made only once."""
        renamed = {name: marker["name"] for name, marker in markers.items() if "name" in marker} if markers else {}
        self._use(raw)
        self.markers, self._renamed = markers or NO_MARKERS, renamed or NO_MARKERS

    def entries(self) -> Mapping[str, Attribute | Attr]:
        """By true name: what was made here, or an attribute as it is in the header (maybe under another name)."""
        return self._table()

    def _table(self) -> Table:
        """What is not to be changed: objects with the same attributes in the header share it."""
        if self._entries is None:
            raw = self._raw or ()
            if not self._renamed:
                found = listed(raw)
                self._entries = found.table
                # Markers may say otherwise of the same bytes.
                self.shown = None if self.markers else found.shown
                return self._entries
            table: Table = {}
            for attr in raw:
                name = self._renamed.get(attr.name, attr.name)
                # two of one name: the first is it, the other shows its name in the file, or nothing
                table.setdefault(attr.name if name in table else name, attr)
            self._entries = table
        return self._entries

    def _use(self, raw: tuple[Attr, ...]) -> None:
        """These are the attributes, as they are in the header."""
        self._raw, self._entries, self.shown, self._own = raw, None, None, False
        self.grown_from = None

    def _change(self, name: str) -> Table:
        """The table, to be changed under this name."""
        table = self._table()
        if self._raw is not None:
            self.grown_from = self._raw if len(table) == len(self._raw) else None  # of two of one name it has one
            if not self._own:
                table = self._entries = dict(table)
            self._own, self._plain = True, not self.markers and not self._renamed
            self._raw = self.shown = None
        if name in table:
            self.grown_from = None
        return table

    def names(self) -> Sequence[str]:
        """The names, sorted."""
        return sorted(self._table()) if self._raw is None or self._renamed else listed(self._raw).names

    def __getitem__(self, name: str) -> Attribute:
        entry = self._table()[name]
        if isinstance(entry, Attribute):
            return entry
        return decode_attribute(entry, self.markers.get(entry.name), self._findings)

    def plain(self, name: str) -> Any:
        """The value as a user sees it, if the header has it as one text or number; else None."""
        shown = self.shown
        if shown is not None:
            found = shown.get(name)
            if found is not None:
                return found
        table, raw = self._entries, self._raw
        if table is None and raw is not None and len(raw) <= _SHORT and not self._renamed and not is_listed(raw):
            entry: Any = next((attr for attr in raw if attr[0] == name), None)
        else:
            entry = (self._table() if table is None else table).get(name)
        if type(entry) is not Attr or entry[0] in self.markers:
            return None
        found = shown_plainly(entry)
        if self.shown is not None and found is not None:
            self.shown[name] = found
        return found

    def put_plainly(self, name: str, value: Any) -> bool:
        """Assign what `make_attribute` makes of a value of `PLAIN_TYPES`; False, nothing done, if it may be wrong."""
        raw = None if self.markers else self._raw
        made = None if raw is None else met_before(raw, name, value)
        if made is None:
            if not (name.isascii() and name and "\0" not in name and is_plain(value)):
                return False
            made = None if raw is None else with_new(raw, name, value)
        if made is not None:
            # As it will be in the header: nothing is left to do there.
            self._use(made)
        elif self._is_plain(name):
            self._change(name)[name] = encode_plain(name, value)
        else:
            self[name] = _of_plain(value)
        return True

    def _is_plain(self, name: str) -> bool:
        """Whether an attribute of this name, and all that there are, are in the header under their names."""
        self._change(name)
        return self._plain and legal_name(name) == name and name != MARKER

    def __setitem__(self, name: str, value: Attribute) -> None:
        table = self._change(name)
        if self._plain and len(table) > _MANY and self._is_plain(name):
            # Of many attributes those that are there shall not be encoded again because of one.
            attr, marker = encode_attribute(name, value)
            if not marker:
                table[name] = attr
                return
        self._plain = False
        table[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self._table():
            raise KeyError(name)
        del self._change(name)[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table()

    def __iter__(self) -> Iterator[str]:
        return iter(self._table())

    def __len__(self) -> int:
        table = self._entries
        return len(self._table() if table is None else table)

    def __repr__(self) -> str:
        return f"<Attributes {list(self)!r}>"
