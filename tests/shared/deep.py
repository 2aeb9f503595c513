"""Two HDF5 files compared as deeply as HDF5 can be asked: by h5py's low-level interface, and by nothing of pnc_vol.

`differences` yields ``(path, what)``: ``what`` is one of the words of `WORDS`, with the two sides behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

WORDS = (
    "missing", "added", "kind", "order", "link", "shape", "maxshape", "type", "stored type", "fill", "value", "scale",
    "scales", "label", "attribute missing", "attribute added", "attribute order", "attribute shape", "attribute type",
    "attribute stored type", "attribute value", "same object", "named type",
)  # fmt: skip

#: Kept by HDF5's dimension scales, and compared as scales and labels.
SCALES = {"CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS"}


def differences(first: h5py.File, second: h5py.File) -> Iterator[tuple[str, str]]:
    sides = Side(first), Side(second)
    yield from attributes("/", *sides, first, second)
    yield from groups("", *sides, first, second, set())


class Side:
    """One file, and the first path of each of its objects."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self.names = {self.key(file["/"]): "/"}
        file.visititems(lambda path, obj: self.names.setdefault(self.key(obj), "/" + path) and None)

    def key(self, obj: Any) -> Any:
        return h5py.h5o.get_info(obj.id).addr

    def plain(self, value: Any) -> Any:
        """A value with what references lead to in their place."""
        if isinstance(value, (h5py.Reference, h5py.RegionReference)):
            return self.meaning(value)
        if isinstance(value, np.void) and value.dtype.names:
            return {name: self.plain(value[name]) for name in value.dtype.names}
        if isinstance(value, np.ndarray) and value.dtype.names:
            return [self.plain(item) for item in value.ravel()]
        if isinstance(value, np.ndarray) and value.dtype.kind == "O":
            return [self.plain(item) for item in value.ravel().tolist()]
        if isinstance(value, h5py.Empty):
            return "empty"
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            return array.astype(array.dtype.newbyteorder("="), copy=False).tobytes()
        return value

    def meaning(self, reference: Any) -> Any:
        if not reference:
            return "null"
        try:
            found = self.file[reference]
            name = self.names.get(self.key(found), "nameless")
        except (ValueError, RuntimeError, KeyError):
            return "dangling"
        if isinstance(reference, h5py.RegionReference):
            space = h5py.h5r.get_region(reference, self.file.id)
            mask = np.zeros(found.shape, bool)
            mask[...] = False
            return name, space.get_select_npoints(), space.get_select_bounds() if space.get_select_npoints() else None
        return name


def groups(path: str, one: Side, other: Side, a: Any, b: Any, seen: set[Any]) -> Iterator[tuple[str, str]]:
    if one.key(a) in seen:
        return
    seen.add(one.key(a))
    mine, its = list(a), list(b)
    for name in mine:
        if name not in its:
            yield f"{path}/{name}", "missing"
    for name in its:
        if name not in mine:
            yield f"{path}/{name}", "added"
    both = [name for name in mine if name in its]
    if both != [name for name in its if name in mine]:
        yield path or "/", f"order {mine} {its}"
    for name in both:
        here = f"{path}/{name}"
        links = [group.get(name, getlink=True) for group in (a, b)]
        if type(links[0]) is not type(links[1]):
            yield here, f"link {links}"
            continue
        if not isinstance(links[0], h5py.HardLink):
            if vars(links[0]) != vars(links[1]):
                yield here, f"link {vars(links[0])} {vars(links[1])}"
            continue
        x, y = a[name], b[name]
        if type(x) is not type(y):
            yield here, f"kind {x} {y}"
            continue
        if one.names[one.key(x)] != other.names[other.key(y)]:
            yield here, f"same object {one.names[one.key(x)]} {other.names[other.key(y)]}"
        if one.names[one.key(x)] != here:
            # another name of what is compared elsewhere
            continue
        yield from attributes(here, one, other, x, y)
        if isinstance(x, h5py.Group):
            yield from groups(here, one, other, x, y, seen)
        elif isinstance(x, h5py.Dataset):
            yield from datasets(here, one, other, x, y)
        elif x.dtype != y.dtype:
            yield here, f"type {x.dtype} {y.dtype}"


def datasets(path: str, one: Side, other: Side, a: Any, b: Any) -> Iterator[tuple[str, str]]:
    for what in ("shape", "maxshape"):
        if getattr(a, what) != getattr(b, what):
            yield path, f"{what} {getattr(a, what)} {getattr(b, what)}"
    yield from types(path, "", a.id.get_type(), b.id.get_type())
    if a.dtype.newbyteorder("=") != b.dtype.newbyteorder("=") or a.dtype.metadata != b.dtype.metadata:
        yield path, f"type {a.dtype} {b.dtype}"
    if not a.dtype.hasobject and one.plain(np.asarray(a.fillvalue)) != other.plain(np.asarray(b.fillvalue)):
        yield path, f"fill {a.fillvalue} {b.fillvalue}"
    if a.shape is not None and a.shape == b.shape and one.plain(a[()]) != other.plain(b[()]):
        yield path, "value"
    scales = [h5py.h5ds.get_scale_name(x.id) if h5py.h5ds.is_scale(x.id) else None for x in (a, b)]
    if scales[0] != scales[1]:
        yield path, f"scale {scales}"
    for axis in range(len(a.shape or ())):
        if a.shape == b.shape:
            labels = [x.dims[axis].label for x in (a, b)]
            if labels[0] != labels[1]:
                yield path, f"label {labels}"
            names = [[s.name for s in x.dims[axis].values()] if "DIMENSION_LIST" in x.attrs else [] for x in (a, b)]
            if names[0] != names[1]:
                yield path, f"scales {names}"


def types(path: str, what: str, a: Any, b: Any) -> Iterator[tuple[str, str]]:
    """Types as they are stored: byte order, padding, character sets and all else."""
    if a.committed() != b.committed():
        yield path, f"{what}named type"
    if a != b:
        yield path, f"{what}stored type {a.get_class()} {b.get_class()}"


def attributes(path: str, one: Side, other: Side, a: Any, b: Any) -> Iterator[tuple[str, str]]:
    mine, its = ([name for name in x.attrs if name not in SCALES] for x in (a, b))
    for name in mine:
        if name not in its:
            yield f"{path}@{name}", "attribute missing"
    for name in its:
        if name not in mine:
            yield f"{path}@{name}", "attribute added"
    both = [name for name in mine if name in its]
    if both != [name for name in its if name in mine]:
        yield path, f"attribute order {mine} {its}"
    for name in both:
        here = f"{path}@{name}"
        x, y = a.attrs.get_id(name), b.attrs.get_id(name)
        if x.shape != y.shape:
            yield here, f"attribute shape {x.shape} {y.shape}"
            continue
        yield from types(here, "attribute ", x.get_type(), y.get_type())
        if x.dtype.newbyteorder("=") != y.dtype.newbyteorder("=") or x.dtype.metadata != y.dtype.metadata:
            yield here, f"attribute type {x.dtype} {y.dtype}"
        if one.plain(a.attrs[name]) != other.plain(b.attrs[name]):
            yield here, f"attribute value {a.attrs[name]!r} {b.attrs[name]!r}"
