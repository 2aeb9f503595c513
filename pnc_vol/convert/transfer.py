"""The objects of one open file are copied into another, empty one.

Knows: h5py's objects, which both files have. Does not know: paths of files, temporary names, formats' bytes.

Rules
-----
1. Everything is defined before any value is copied: a NetCDF header is then complete before the first block.
2. Objects are made in the order in which the source lists them: of creation where it tracks that.
3. What the target refuses is noted in the ledger with the target's own words, and left out, and so is what other files
   hold and cannot be read there. Only other failures to read or write values (`OSError`) end the transfer.
4. HDF5's bookkeeping of dimension scales is never copied as attributes; it becomes scales and labels.
5. References are copied when everything that they may lead to is there.
6. Files that the source refers to are not opened, unless that was asked for.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from pnc_vol.api.copying import refers
from pnc_vol.api.hdf5_files import of_scales
from pnc_vol.api.virtual_data import missing
from pnc_vol.convert import inspect_hdf5
from pnc_vol.convert.copied_values import CopiedValues, create_attribute
from pnc_vol.convert.inspect_hdf5 import outside
from pnc_vol.convert.report import Ledger
from pnc_vol.errors import DefinitionError, NameExistsError, NotYetError, RangeError, SourceError
from pnc_vol.mapping.dtypes import Empty
from pnc_vol.mapping.names import MARKER, marker_attr

__all__ = ["Transfer"]

#: What a target raises when it cannot hold something, as opposed to failing at it.
REFUSALS = (DefinitionError, NotYetError, NameExistsError, RangeError, TypeError, ValueError, NotImplementedError)


class Transfer:
    """One copy.

    Parameters
    ----------
    values : CopiedValues
        Has the source and the target, which is empty; copies the values when all is defined.
    storage : dict
        Keywords for the target's datasets that have a shape.
    follow_external : bool
        Copy values that HDF5 keeps in other files.
    """

    def __init__(self, values: CopiedValues, *, storage: dict[str, Any], follow_external: bool = False) -> None:
        self.source, self.target, self.ledger = values.source, values.target, values.ledger
        self.follow_external = follow_external
        self.values = values
        self.later: list[tuple[Any, Any]] = []
        """Objects, of the source and of the target, whose attributes hold references."""
        self.to_netcdf = values.to_netcdf
        self.storage = storage
        self.apart = frozenset() if self.to_netcdf else inspect_hdf5.called_like_dimensions(self.source)
        self.copied: list[str] = []
        """Paths of the datasets in the source that are in the target, in order of definition."""
        self.scaled: list[str] = []
        """Those of them that may be a scale, or have scales or labels."""
        self.scales: dict[str, str] = {}
        """Path of each netCDF-4 dimension that has no variable of its own and one axis: the dimension's name."""
        self.numbers: dict[int, str] = {}
        """Paths of the scales of netCDF-4 dimensions, by their numbers; found if they are needed."""
        self.dimensions: dict[str, Any] = {}
        """Scales that were made in an HDF5 file for dimensions of NetCDF that have no variable."""

    def run(self) -> None:
        """Define all, then copy all values.

        Raises
        ------
        OSError
            Values cannot be read or written.
        """
        self.define()
        if self.to_netcdf:
            self.values.place(self.copied)
        for path in self.copied:
            self.values.copy(path)
        self.target.flush()
        _note_fill_values(self.ledger, self.values, self.copied)
        if self.to_netcdf:
            _note_spellings(self.ledger, self.values, self.copied, self.scales)
            _note_markers(self.ledger, self.target)
        else:
            _note_lengths(self.ledger, self.values, self.copied)

    def define(self) -> None:
        """Define all, without values."""
        self.values.references.note(self.source["/"], "/")
        self.attributes(self.source, self.target)
        self.group(self.source, self.target)
        for source, target in self.later:
            self.attributes(source, target, now=True)
        for path in self.scaled:
            self.scale(path)
        used = {name for path in self.scaled for name in self.axes(path)}
        for path in sorted(self.scales.keys() - used):
            source = self.source[path]
            try:
                self.target.create_dimension(self.scales[path], source.shape[0] if source.maxshape[0] else None)
            except REFUSALS as error:
                self.ledger.lose(path, "dimension", f"no dataset that was kept uses it, and {error}")
        if not self.to_netcdf:
            dims = self.source.id.node.tree.file_dims
            for dim in dims.order:
                if dim.name in dims.spare and self.bare_scale(dim.name, dim.size, dim.size or None) is None:
                    self.ledger.lose(f"/{dim.name}", "dimension", "no dataset uses it, and another object has its name")

    # ------------------------------------------------------------------------------------------ definitions

    def group(self, source: Any, target: Any) -> None:
        """Define what a group holds."""
        for name in inspect_hdf5.members(source):
            path = f"{source.name.rstrip('/')}/{name}"
            try:
                link = source.get(name, getlink=True)
                if type(link).__name__ == "SoftLink":
                    self.link(path, name, target, link.path)
                    continue
                if type(link).__name__ != "HardLink":
                    self.ledger.lose(path, repr(link), "the file that it points to is not converted with this one")
                    continue
                member = source[name]
                # the shape of a virtual dataset is that of its sources
                kind = inspect_hdf5.kind_of_object(member)
            except (OSError, KeyError, RuntimeError, TypeError) as error:
                self.ledger.lose(path, "object", error)
                continue
            self.member(path, name, kind, member, target)
        if self.to_netcdf:
            _note_order(self.ledger, source, target)

    def link(self, path: str, name: str, target: Any, points_to: str) -> None:
        """Make a soft link."""
        module = importlib.import_module("pnc_vol.api.objects" if self.to_netcdf else "h5py")
        try:
            target[name] = module.SoftLink(points_to)
        except (*REFUSALS, OSError, RuntimeError) as error:
            self.ledger.lose(path, "soft link", error)

    def second_name(self, path: str, name: str, target: Any, first: str) -> None:
        """Make a hard link to what was defined already."""
        try:
            target[name] = self.target[first]
        except (*REFUSALS, OSError, KeyError, RuntimeError) as error:
            self.ledger.lose(path, "second name", error)

    def named_type(self, path: str, name: str, member: Any, target: Any) -> None:
        """Make a named type, with its attributes."""
        try:
            target[name] = member.dtype
        except (*REFUSALS, OSError, RuntimeError) as error:
            self.ledger.lose(path, "named type", error)
            return
        self.values.references.note(member, path)
        self.attributes(member, target[name])

    def member(self, path: str, name: str, kind: str, member: Any, target: Any) -> None:
        """Define one member of a group."""
        first = self.values.references.place_of(member) if inspect_hdf5.names_of(member) > 1 else None
        if first is not None:
            self.second_name(path, name, target, first)
            return
        if kind == "group":
            try:
                made = target.create_group(name, track_order=self.tracked(member))
            except REFUSALS as error:
                self.ledger.lose(path, "group and all in it", error)
                return
            self.ledger.groups += 1
            self.values.references.note(member, made.name)
            self.attributes(member, made)
            self.group(member, made)
        elif kind == "dataset":
            self.dataset(path, name, member, target)
        else:
            self.named_type(path, name, member, target)

    def dataset(self, path: str, name: str, source: Any, target: Any) -> None:
        """Define one dataset, without values."""
        if (there := outside(source)) and not self.follow_external:
            why = f"its values are in other files ({there}), which are only opened with follow_external=True"
            self.ledger.lose(path, "dataset", why)
            return
        if self.to_netcdf and (dimension := inspect_hdf5.bare_dimension(source)):
            self.scales[path] = dimension
            for name in sorted(inspect_hdf5.OF_NETCDF4 & set(source.attrs)):
                self.ledger.drop(f"{path}@{name}", "bookkeeping of the netCDF-4 library")
            return
        try:
            gone = "" if self.to_netcdf or not source.is_virtual else missing(source.id)
            dtype = self.values.references.dtype(inspect_hdf5.storable_dtype(source))
            made = target.create_dataset(self.name(path, name, source), **self.definition(path, source, dtype))
        except (*REFUSALS, SourceError) as error:
            self.ledger.lose(path, "dataset", error)
            return
        if self.to_netcdf and inspect_hdf5.holds_characters(source):
            made.id.node.element = made.id.node.element.as_characters()
        self.ledger.datasets += 1
        self.note(path, source, made)
        if source.shape is not None:
            self.values.total += source.size * source.dtype.itemsize
        if gone:
            self.ledger.lose(path, "some values", f"their sources are missing: {gone}")
        if self.to_netcdf:
            details = inspect_hdf5.type_details(source.id.get_type(), source.dtype)
            copied = f"{there} (the values were copied)" if there else ""
            if storage := ", ".join(filter(None, (inspect_hdf5.storage_options(source), copied, details))):
                self.ledger.drop(path, storage)
        self.attributes(source, made)

    def note(self, path: str, source: Any, made: Any) -> None:
        """Say which dataset of the target was made for one of the source."""
        self.copied.append(path)
        self.values.places[path] = made.name
        self.values.references.note(source, made.name)
        if not self.to_netcdf or of_scales(source):
            self.scaled.append(path)

    def name(self, path: str, name: str, source: Any) -> str:
        """Return what a dataset is called in the target: netCDF-4 has a prefix for one with the name of a dimension."""
        prefix = inspect_hdf5.NO_COORDINATE
        if not self.to_netcdf:
            other = prefix + name if path[1:] in self.apart else name
        else:
            plain = name.removeprefix(prefix)
            scale = source.parent.get(plain) if plain not in (name, "") else None
            other = plain if hasattr(scale, "shape") and inspect_hdf5.bare_dimension(scale) else name
        if other != name:
            self.ledger.spell(path, f"called like a dimension, as netCDF-4 has it: {name} -> {other}")
        return other

    def definition(self, path: str, source: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return the keywords of `create_dataset`."""
        keywords: dict[str, Any] = {"track_order": True} if self.tracked(source) else {}
        if source.shape is None:
            return keywords | {"data": self.empty(dtype)}
        keywords |= {"shape": source.shape, "dtype": dtype}
        limits = source.maxshape
        if limits != source.shape:
            keywords["maxshape"] = limits
        if (fill := inspect_hdf5.chosen_fill(source)) is not None:
            keywords["fillvalue"] = fill
        return keywords | (self.storage if source.shape != () else {})

    def tracked(self, obj: Any) -> bool:
        """Return whether the target is to keep the order of a group's members, or of a dataset's attributes, too.

        NetCDF does by itself, so nothing is asked for where the netCDF-4 library wrote the source.
        """
        return inspect_hdf5.is_tracked(obj) and not inspect_hdf5.is_netcdf4(obj)

    def empty(self, dtype: np.dtype[Any]) -> Any:
        """Return the target's object for a dataset or attribute without values."""
        if self.to_netcdf:
            return Empty(dtype)
        import h5py

        return h5py.Empty(dtype)

    def attributes(self, source: Any, target: Any, *, now: bool = False) -> None:
        """Copy the attributes of one object; those that hold references only if `now`."""
        hidden = inspect_hdf5.bookkeeping(source) if self.to_netcdf else frozenset()
        names = [name for name in inspect_hdf5.attribute_names(source) if name not in hidden]
        if not now and any(inspect_hdf5.attribute_refers(source, name) for name in names):
            # all of them: they keep their order
            self.later.append((source, target))
            return
        own = sorted(inspect_hdf5.OF_NETCDF4 & hidden & set(source.attrs)) if hidden else ()
        for name in own:
            self.ledger.drop(f"{source.name}@{name}", "bookkeeping of the netCDF-4 library")
        for name in names:
            where = f"{source.name}@{name}"
            try:
                value, shape, dtype = inspect_hdf5.attribute(source, name)
                self.attribute(target, name, where, value, shape, dtype)
            except (*REFUSALS, OSError, KeyError, RuntimeError) as error:
                self.ledger.lose(where, "attribute", error)
                continue
            self.ledger.attributes += 1
            if self.to_netcdf:
                _note_attribute(self.ledger, source, name, where, shape)

    def attribute(
        self, target: Any, name: str, where: str, value: Any, shape: tuple[int, ...] | None, dtype: np.dtype[Any]
    ) -> None:
        """Give an object of the target an attribute."""
        own = self.values.references.dtype(dtype)
        if shape is None:
            target.attrs.create(name, self.empty(own))
            return
        if refers(dtype):
            with self.values.noted(where):
                value = self.values.references.values(value, dtype, shape)
        if self.to_netcdf:
            target.attrs.create(name, value, shape=shape, dtype=own)
        else:
            create_attribute(target, name, value, shape, own)

    # ------------------------------------------------------------------------------------ scales and labels

    def scale(self, path: str) -> None:
        """Make a dataset a scale if it was one; attachment needs all scales to exist."""
        source = self.source[path]
        name = inspect_hdf5.scale_name(source)
        if name is None:
            return
        if len(source.shape or ()) > 1 and inspect_hdf5.is_netcdf4(source):
            self.scales[path] = path.rpartition("/")[2]
            return
        try:
            self.target[self.values.places[path]].make_scale(name)
        except (*REFUSALS, RuntimeError) as error:
            self.ledger.lose(path, "being a dimension scale", error)

    def axes(self, path: str) -> Iterator[str]:
        """Attach scales and set labels; yields the paths of `scales` that gave an axis its name."""
        source, target = self.values.pair(path)
        for axis in range(len(source.shape or ())):
            label = self.label(source, axis)
            scales = self.own_dimensions(path, source)[axis : axis + 1] or inspect_hdf5.axis_scales(source, axis)
            for scale in scales:
                if scale in self.scales:
                    label = label or self.scales[scale]
                    yield scale
                    continue
                try:
                    # by whatever name it is attached
                    place = self.values.places.get(scale) or self.values.references.place_of(self.source[scale])
                    target.dims[axis].attach_scale(self.target[place or scale])
                except (*REFUSALS, KeyError, RuntimeError) as error:
                    self.ledger.lose(path, f"scale {scale} of axis {axis}", error)
            if not label:
                continue
            try:
                target.dims[axis].label = label
            except (*REFUSALS, RuntimeError) as error:
                self.ledger.lose(path, f"label {label!r} of axis {axis}", error)
                continue
            if not self.to_netcdf:
                self.dimension(path, source.id.node, target, axis, label)
            elif not inspect_hdf5.is_netcdf4(source):
                target.id.node.axes[axis].only_label = True

    def label(self, source: Any, axis: int) -> str:
        """Return the label that an axis is to have, maybe empty."""
        return inspect_hdf5.axis_label(source, axis)

    def own_dimensions(self, path: str, source: Any) -> list[str]:
        """Return the scales of the axes of a netCDF-4 variable that is a scale itself, with several axes; HDF5 has none
        for it, so its dimensions have numbers."""
        if path not in self.scales:
            return []
        if not self.numbers:
            known = ((inspect_hdf5.dimension_number(self.source[path]), path) for path in (*self.scales, *self.copied))
            self.numbers = {number: path for number, path in known if number is not None}
        wanted = inspect_hdf5.dimension_numbers(source)
        return [self.numbers[number] for number in wanted] if self.numbers.keys() >= set(wanted) else []

    def dimension(self, path: str, node: Any, target: Any, axis: int, name: str) -> None:
        """Give an axis the scale that stands for its NetCDF dimension, as netCDF-4 has it for one without a variable.

        Programs that know NetCDF alone find the names of dimensions there, and not in labels.
        """
        if node.axes[axis].only_label or node.scale is not None:
            return
        size = node.shape[axis]
        made = self.dimensions.get(name)
        if made is None:
            made = self.bare_scale(name, size, None if axis == 0 and node.is_record else size)
        if made is None:
            self.ledger.spell(path, f"dimension {name} -> label of axis {axis}")
            return
        if made.shape[0] == size:
            target.dims[axis].attach_scale(made)

    def bare_scale(self, name: str, size: int, limit: int | None) -> Any:
        """Return a new scale without values that stands for a dimension; None if it cannot have the name."""
        if name in self.target or "/" in name:
            return None
        made = self.target.create_dataset(name, (size,), ">f4", maxshape=(limit,), track_order=True)
        made.make_scale(f"{inspect_hdf5.BARE}.{0 if limit is None else size:10}")
        self.dimensions[name] = made
        self.ledger.spell(f"/{name}", "dimension without a variable -> scale as netCDF-4 has it, and label of axes")
        return made


# ---------------------------------------------------------------------------- what the target has in another way


SPELLINGS = {
    "string": "fixed-length string -> char with a trailing length dimension",
    "vlen_string": "string -> char with a trailing length dimension",
    "bool": 'bool -> byte with dtype="bool"',
    "enum": "enum -> integer with flag_values and flag_meanings",
    "complex": "complex -> trailing dimension of 2",
    "float16": "float16 -> float",
    "array": "array type -> more axes",
    "opaque": "opaque -> ubyte with a trailing dimension",
    "longdouble": "long double -> ubyte with a trailing dimension",
    "datetime": "date -> int64",
    "composite": "compound, reference or array of varying length -> a variable for each of its parts",
}
"""How the kinds of values that NetCDF does not have are written; see `docs/reference/file-format.md`."""

MARKED = {"track": "order of attributes", "listed": "order of members", "labels": "labels of axes"}
"""What markers hold that is no kind of value."""


def _note_order(ledger: Ledger, source: Any, target: Any) -> None:
    """Note the order of a group's members if the file will not have it: NetCDF orders its variables alone."""
    node = target.id.node
    if node.order is None and inspect_hdf5.is_tracked(source):
        datasets = [name for name, child in node.children.items() if hasattr(child, "shape")]
        kept = [*(name for name in node.children if name not in datasets), *datasets, *node.links]
        if kept != [name for name in inspect_hdf5.members(source) if name in kept]:
            ledger.drop(source.name, "order of groups, types and links among the datasets")


def _note_attribute(ledger: Ledger, source: Any, name: str, where: str, shape: tuple[int, ...] | None) -> None:
    """Note how an attribute of an HDF5 file is kept."""
    if len(shape or ()) > 1:
        ledger.spell(where, f"shape {shape} -> one axis, and the shape in {MARKER}")
    if source.attrs.get_id(name).dtype.subdtype is not None:
        ledger.spell(where, SPELLINGS["array"])
    if inspect_hdf5.is_plain_netcdf(source, name):
        ledger.spell(where, "as netCDF-4 stores it -> an attribute of NetCDF, a text or one value")
    elif details := inspect_hdf5.attribute_details(source, name):
        ledger.drop(where, details)


def _note_fill_values(ledger: Ledger, values: CopiedValues, paths: list[str]) -> None:
    """Note which fill values are attributes, too, as NetCDF has them."""
    for path in paths:
        netcdf = values.target[values.places[path]] if values.to_netcdf else values.source[path]
        if "_FillValue" not in netcdf.attrs:
            continue
        if not values.to_netcdf:
            ledger.spell(f"{path}@_FillValue", "attribute _FillValue -> fill value, and the attribute")
        elif "_FillValue" not in values.source[path].attrs:
            ledger.spell(f"{path}@_FillValue", "fill value -> attribute _FillValue")


def _note_lengths(ledger: Ledger, values: CopiedValues, paths: list[str]) -> None:
    """Note the names of dimensions that are lengths of strings; HDF5 has the length in the type."""
    for path in paths:
        element = values.source[path].id.node.element
        for name, size in zip(element.trailing_names, element.trailing, strict=True):
            if element.is_string and name != f"strlen_{size}":
                ledger.spell(path, f"dimension {name} -> length of its strings, {size}")


def _note_spellings(ledger: Ledger, values: CopiedValues, paths: list[str], scales: dict[str, str]) -> None:
    """Note which conventions the NetCDF file uses for what was copied."""
    for path in paths:
        node = values.target[values.places[path]].id.node
        if path.count("/") > 1 or node.cdf_name != node.name:
            ledger.spell(path, f"path -> variable name {node.cdf_name}")
        if node.element.kind in SPELLINGS:
            ledger.spell(path, SPELLINGS[node.element.kind])
        if node.is_placeholder and not node.parts:
            ledger.spell(path, f"no elements -> scalar placeholder, and the shape in {MARKER}")
    with_variables = set(paths)
    for path, name in scales.items():
        variable = "with a variable of several axes" if path in with_variables else "without a variable"
        ledger.spell(path, f"netCDF-4 dimension {variable} -> dimension {name}")


def _note_markers(ledger: Ledger, target: Any) -> None:
    """Note orders and labels, for which NetCDF has no words."""
    header = target.id.handle.session.disk.header
    paths = {node.cdf_name: node.path for node in target.id.node.tree.datasets.values()}
    for path, attrs in [("/", header.attrs), *((paths.get(var.name, var.name), var.attrs) for var in header.vars)]:
        marker = marker_attr(attrs)
        found = {} if marker is None else json.loads(marker.data)
        for key in MARKED.keys() & found:
            ledger.spell(path, f"{MARKED[key]} -> {MARKER}")
