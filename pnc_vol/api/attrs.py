"""`AttributeManager` is h5py's, over the attributes that `mapping` keeps.

Knows: names, h5py's error types. Does not know: how a value is made or stored (`mapping.attributes`).

Rules
-----
1. Setting an attribute makes its value first; if that fails, the old value stays.
2. Values are copied on the way in and on the way out.
3. What HDF5 keeps in attributes of scales is shown with the others, and derived (`api.scale_attrs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api import scale_attrs
from pnc_vol.api.dataset_plan import say_instead
from pnc_vol.api.ids import AttributeID
from pnc_vol.api.mappings import MutableMappingHDF5
from pnc_vol.api.paths import text_of
from pnc_vol.errors import ConversionError, NotFoundError, OperationError, ReadOnlyKeyError, printable
from pnc_vol.format.limits import check_type
from pnc_vol.mapping.attribute_encoding import Attribute, encode_attribute, fitting, make_attribute
from pnc_vol.mapping.attributes import PLAIN_TYPES, Attributes
from pnc_vol.mapping.dtypes import Empty, check_string_dtype
from pnc_vol.mapping.encoding import from_fields
from pnc_vol.mapping.tree import DatasetNode

if TYPE_CHECKING:
    from pnc_vol.api.objects import HLObject
    from pnc_vol.file.open_file import OpenFile

__all__ = ["AttributeManager", "check_attribute"]

SCALE_NAMES = frozenset(("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST"))
"""What `api.scale_attrs` derives."""


class AttributeManager(MutableMappingHDF5):
    """The attributes of an object, as a mapping from names to values; names are sorted, unless ``track_order=True``
    was given when the object was made.

    Parameters
    ----------
    parent : HLObject

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     f.attrs["units"] = "K"
    ...     f.attrs.create("levels", [1, 2, 3], dtype="i2")
    ...     dict(f.attrs)
    {'levels': array([1, 2, 3], dtype=int16), 'units': 'K'}
    """

    def __init__(self, parent: HLObject) -> None:
        self._id = parent._id

    def _open(self) -> tuple[OpenFile, Attributes]:
        session = self._id.check_for_name()
        return session, self._id.node.attrs

    def __getitem__(self, name: str | bytes) -> Any:
        """Return the value: a numpy scalar or array, ``str`` for text, `Empty`."""
        oid = self._id
        session = oid.check_for_name()
        attrs: Attributes = oid.node.attrs
        # One look at what is never changed in place, which needs no lock.
        if type(name) is str:
            plain = attrs.plain(name)
            if plain is not None:
                return plain
        with session.lock:
            session.check_open()
            return _shown(self._find(attrs, text_of(name, stored=True)))

    def _find(self, attrs: Attributes, name: str) -> Attribute:
        try:
            return attrs[name]
        except KeyError:
            found = scale_attrs.derived(self._id.node, name) if name in SCALE_NAMES else None
            if found is not None:
                return found
            raise NotFoundError(
                f"Unable to open attribute {name!r} of {self._id.node.path!r}: there is none", name=name, among=(attrs,)
            ) from None

    def __setitem__(self, name: str | bytes, value: Any) -> None:
        """Make the attribute, or replace it; type and shape are the value's."""
        oid = self._id
        if type(value) in PLAIN_TYPES and type(name) is str and name not in SCALE_NAMES:
            session = oid.check_for_name()
            node = oid.node
            # one that is replaced may have to become the last: that is not plain
            if oid.handle.writable and session.defs.version == 5 and (not _ordered(node) or name not in node.attrs):
                with session.lock:
                    if session.closed:
                        raise session.closed_error()
                    # What most attributes are: nothing is wrong with the name nor the value.
                    if node.attrs.put_plainly(name, value):
                        node.tree.touch_attributes(node)
                        return
        self.create(name, value)  # type: ignore[arg-type]

    def __delitem__(self, name: str | bytes) -> None:
        session, attrs = self._open()
        with session.lock:
            session.check_open()
            if not self._id.handle.writable:
                raise ReadOnlyKeyError(f"Unable to delete attribute {name!r} (no write intent on file)")
            text = text_of(name, stored=True)
            if text in SCALE_NAMES and scale_attrs.remove(self._id.node, text):
                return
            self._find(attrs, text)
            del attrs[text]
            self._id.node.tree.touch_attributes(self._id.node)

    def create(
        self, name: str, data: Any, shape: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None
    ) -> None:
        """Make an attribute, or replace it.

        Parameters
        ----------
        name : str
        data : array-like, str, bytes or Empty
        shape : tuple of int, optional
            Another shape for the same number of values.
        dtype : dtype-like, optional
            Type to store; by default the data's own.

        Raises
        ------
        TypeError
            A type without an equivalent in HDF5.
        ValueError
            Shapes that do not agree, a value that does not fit, or a type that the file's format does not have.
        OSError
            The file is open for reading.

        Examples
        --------
        >>> with pnc_vol.File("attrs.nc", "w") as f:
        ...     f.attrs.create("levels", [1, 2, 3], dtype="i2")
        ...     f.attrs["levels"].dtype.name
        'int16'
        """
        session, attrs = self._open()
        text = _named(name)
        with session.lock:
            session.check_open()
            if not self._id.handle.writable:
                # in HDF5 an attribute is replaced by deleting it first: that is where h5py's KeyError comes from
                raise ReadOnlyKeyError(
                    f"Unable to create attribute {text!r} of {self._id.node.path!r} (no write intent on file)"
                )
            if text in SCALE_NAMES and scale_attrs.assign(self._id.node, text, data):
                return
            try:
                made = make_attribute(data, shape=shape, dtype=dtype)
            except ConversionError as error:
                say_instead(error, f"attribute {text!r} of {self._id.node.path!r}", data, dtype)
                raise
            if session.defs.version != 5:
                made = fitting(made, exact=dtype is not None or hasattr(data, "dtype"))
                check_attribute(self._id.node.path, text, made, session.defs.version)
            _make_way(self._id.node, text)
            attrs[text] = made
            self._id.node.tree.touch_attributes(self._id.node)

    def modify(self, name: str, value: Any) -> None:
        """Change the value and keep the type; a missing attribute is created.

        Parameters
        ----------
        name : str
        value : array-like
            Of the shape that the attribute has.

        Raises
        ------
        TypeError
            The value has another shape.
        OSError
            The attribute is empty, or the file is open for reading.

        Examples
        --------
        >>> with pnc_vol.File("modify.nc", "w") as f:
        ...     f.attrs.create("n", 1, dtype="i2")
        ...     f.attrs.modify("n", 7)
        ...     f.attrs["n"].dtype.name, int(f.attrs["n"])
        ('int16', 7)
        """
        session, attrs = self._open()
        text = _named(name)
        with session.lock:
            session.check_open()
            self._id.handle.check_writable("modify attribute")
            old = attrs.get(text)
            if old is None:
                self.create(text, value)
                return
            if old.shape is None or old.value is None:
                raise ConversionError("Empty attributes can't be modified")
            array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype=old.dtype)
            if old.dtype.kind == "c":
                array = from_fields(array, old.dtype)
            if array.shape != old.shape and not array.size == old.value.size == 1:
                raise TypeError(
                    f"Shape of data {array.shape} is incompatible with existing attribute {text!r} of shape {old.shape}"
                )
            # HDF5 converts strings of one length to such of any length, too
            refused = check_string_dtype(old.dtype) is None if array.dtype.kind == "S" else old.dtype.kind == "S"
            if array.dtype.kind == "U" or refused:
                raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {old.dtype!r}")
            attrs[text] = make_attribute(array.reshape(old.shape), dtype=old.dtype)
            self._id.node.tree.touch_attributes(self._id.node)

    def get_id(self, name: str | bytes) -> AttributeID:
        """Return the type and shape of an attribute, without its value.

        Parameters
        ----------
        name : str

        Raises
        ------
        KeyError
            There is none of that name.
        """
        session, attrs = self._open()
        with session.lock:
            session.check_open()
            text = text_of(name, stored=True)
            found = self._find(attrs, text)
        return AttributeID(text, found.dtype, found.shape)

    def __iter__(self) -> Iterator[str]:
        oid = self._id
        session, node = oid.check_for_name(), oid.node
        if type(node) is DatasetNode and not node.ignored and node.made_axes is None and node.scale is None:
            # A list that is never changed: what is assigned meanwhile makes another one.
            return iter(node.attrs.names())
        with session.lock:
            session.check_open()
            names = list(node.attrs) if _ordered(node) else node.attrs.names()
            if type(node) is DatasetNode and (node.made_axes is not None or node.scale is not None):
                of_scales = scale_attrs.present(node)
                names = [*of_scales, *names] if _ordered(node) else sorted((*of_scales, *names))
        return iter(names)

    def __len__(self) -> int:
        oid = self._id
        oid.check_for_name()
        node = oid.node
        if type(node) is DatasetNode and (node.made_axes is not None or node.scale is not None):
            return len(node.attrs) + len(scale_attrs.present(node))
        return len(node.attrs)

    def __contains__(self, name: object) -> bool:
        _, attrs = self._open()
        text = text_of(name, stored=True)
        return text in attrs or (text in SCALE_NAMES and text in scale_attrs.present(self._id.node))

    def clear(self) -> None:
        """Delete all attributes.

        Raises
        ------
        OSError
            The file is open for reading.
        """
        for name in list(self):
            # without CLASS a dataset is no scale, and the others of a scale are gone
            if name in self:
                del self[name]

    def __eq__(self, other: object) -> bool:
        """Return whether another mapping has the same names with the same values, arrays compared element by
        element."""
        if isinstance(other, AttributeManager) and self._id == other._id:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        own, others = dict(self.items()), dict(other.items())
        return own.keys() == others.keys() and all(_equal(value, others[name]) for name, value in own.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not self._id:
            return "<Attributes of closed object>"
        return printable(f'<Attributes of "{self._id.node.path}" ({len(self)} names)>')


def check_attribute(path: str, name: str, attribute: Attribute, version: int) -> None:
    """Refuse an attribute whose type the file's version cannot hold.

    Parameters
    ----------
    path, name : str, of the object and of the attribute, for the text
    version : {1, 2, 5}

    Raises
    ------
    ValueError
    """
    if version != 5:
        check_type(f"attribute {name!r} of {path!r}", encode_attribute(name, attribute)[0].type, version)


def _ordered(node: Any) -> bool:
    """Return whether the attributes are listed in the order in which they were made."""
    if type(node) is DatasetNode:
        return "track_order" in node.ignored
    return getattr(node, "order", None) is not None


def _make_way(node: Any, name: str) -> None:
    """Replace an attribute by another one, which is then the last, as HDF5 does."""
    if _ordered(node) and name in node.attrs:
        del node.attrs[name]


def _named(name: object) -> str:
    text = text_of(name)
    if not text:
        raise OperationError("an attribute needs a name (no attribute name)")
    return text


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    return bool(one == other)


def _shown(attribute: Attribute) -> Any:
    if attribute.shape is None or attribute.value is None:
        return Empty(attribute.dtype)
    return attribute.value.copy() if attribute.shape else attribute.value[()]
