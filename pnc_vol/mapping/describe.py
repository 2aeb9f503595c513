"""Data types are described as JSON, for the reserved attribute, and read back.

Knows: numpy dtypes with h5py's metadata. Does not know: how values of a type are stored.

Rules
-----
1. A plain type is numpy's own text (``"<f8"``), everything else an object with one leading key: ``string``, ``enum``,
   ``opaque``, ``vlen``, ``ref``, ``base`` (of an array type) or ``fields`` (of a compound).
2. What is read is not trusted: `undescribe` gives None for whatever is not a type, and allocates nothing.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from pnc_vol.mapping.dtypes import (
    Dtype,
    Reference,
    RegionReference,
    check_string_dtype,
    metadata_of,
    string_dtype,
    with_metadata,
)
from pnc_vol.mapping.names import is_shape

__all__ = ["describe", "undescribe"]

_PLAIN = re.compile(r"[<>|=](?:[biufcSV]\d{1,9}|[Mm]8(?:\[\d{0,9}[A-Za-z]{1,2}\])?)")
_DEEPEST = 16
_MOST_FIELDS = 10_000
_LARGEST = 1 << 31
_PADDING = 1 << 10
_SPARSE = 15
"""Bytes between the fields of a compound that are believed, and as many times their own: each element takes them."""


def describe(dtype: Any) -> Any:
    """Return a dtype as something that JSON holds.

    Examples
    --------
    >>> describe(np.dtype([("a", "<i2"), ("b", "S3", (2,))]))["fields"]
    [['a', '<i2', 0], ['b', {'base': '|S3', 'shape': [2]}, 2]]
    """
    if dtype is str or dtype is bytes:
        return {"string": "utf-8" if dtype is str else "ascii"}
    dt = np.dtype(dtype)
    metadata = metadata_of(dt)
    if metadata.get("h5py_opaque"):
        return {"opaque": dt.str}
    if "enum" in metadata:
        return {"enum": {str(name): int(value) for name, value in metadata["enum"].items()}, "base": dt.str}
    if "ref" in metadata:
        return {"ref": "region" if metadata["ref"].__name__ == "RegionReference" else "object"}
    info = check_string_dtype(dt)
    if info is not None and (info.length is None or info.encoding == "utf-8"):
        return {"string": info.encoding} if info.length is None else {"string": info.encoding, "length": info.length}
    if "vlen" in metadata:
        return {"vlen": describe(metadata["vlen"])}
    if dt.subdtype is not None:
        return {"base": describe(dt.subdtype[0]), "shape": list(dt.subdtype[1])}
    if dt.names is not None:
        assert dt.fields is not None
        if _too_sparse(dt):
            dt = np.dtype([(name, dt.fields[name][0]) for name in dt.names])
            assert dt.names is not None
            assert dt.fields is not None
        fields = [[name, describe(dt.fields[name][0]), int(dt.fields[name][1])] for name in dt.names]
        return {"fields": fields, "size": dt.itemsize, **({"aligned": True} if dt.isalignedstruct else {})}
    return dt.str


def undescribe(description: Any) -> Dtype | None:
    """Return the dtype that `describe` was given; None for anything else."""
    try:
        return _read(description, 0)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None


def _read(description: Any, depth: int) -> Dtype:
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if isinstance(description, str):
        if not _PLAIN.fullmatch(description):
            raise ValueError("no plain type")
        return np.dtype(description)
    if "fields" in description:
        return _compound(description, depth)
    if "shape" in description:
        shape = description["shape"]
        if not shape or not is_shape(shape) or 0 in shape:
            raise ValueError("shape")
        base = _read(description["base"], depth + 1)
        if base.itemsize * int(np.prod(shape, dtype=object)) > _LARGEST:
            raise ValueError("size")
        return np.dtype((base, tuple(shape)))
    if "enum" in description:
        if not all(type(value) is int for value in description["enum"].values()):
            raise ValueError("enum")
        base = _read(description["base"], depth + 1)
        if base.kind not in "iu":
            raise ValueError("enum")
        return with_metadata(base, {"enum": dict(description["enum"])})
    if "string" in description:
        if description["string"] not in ("utf-8", "ascii"):
            raise ValueError("string")
        length = description.get("length")
        if length is not None and not (type(length) is int and 0 < length < _LARGEST):
            raise ValueError("length")
        return string_dtype(description["string"], length)
    if "vlen" in description:
        return with_metadata("O", {"vlen": _read(description["vlen"], depth + 1)})
    if "ref" in description:
        return with_metadata("O", {"ref": {"object": Reference, "region": RegionReference}[description["ref"]]})
    base = _read(description["opaque"], depth + 1)
    return with_metadata(base, {"h5py_opaque": True})


def _compound(description: Any, depth: int) -> Dtype:
    fields, size = description["fields"], description["size"]
    if not isinstance(fields, list) or not 0 < len(fields) <= _MOST_FIELDS or type(size) is not int:
        raise ValueError("fields")
    if size > _LARGEST or not all(isinstance(name, str) and type(at) is int and at >= 0 for name, _, at in fields):
        raise ValueError("fields")
    made: Dtype = np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": [_read(kind, depth + 1) for _, kind, _ in fields],
            "offsets": [at for _, _, at in fields],
            "itemsize": size,
        },
        align=description.get("aligned") is True,
    )
    if _too_sparse(made):
        raise ValueError("padding")
    return made


def _too_sparse(dt: Dtype) -> bool:
    """Return whether a compound is so much larger than its fields that it is packed when it is stored."""
    fields = sum(kind[0].itemsize for kind in (dt.fields or {}).values())
    return dt.itemsize - fields > _PADDING + _SPARSE * fields
