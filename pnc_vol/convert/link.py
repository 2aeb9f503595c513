"""`link` makes an HDF5 file that shows the values of a NetCDF file without a copy.

Knows: where the elements of each variable lie, external storage and virtual datasets of HDF5. Does not know: how
objects are copied (`convert.transfer`).

Rules
-----
1. A link file has groups, attributes and scales of its own; the values of its datasets are byte ranges of the NetCDF
   file (HDF5's external storage). No value is read or copied, and the NetCDF file is never written.
2. The type of a dataset describes the bytes that are there: numbers are big-endian, booleans and enums are enums of
   HDF5, strings have a fixed length, complex numbers are compounds.
3. HDF5 keeps the list of ranges in the object header, which holds 64 KiB. A dataset with more than `MOST` ranges is a
   virtual dataset over parts in the group `PARTS`.
4. A link file records of which header it was made (`link_state`); it is stale when that of the NetCDF file differs.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.file import File
from pnc_vol.api.opening import refuse_remote
from pnc_vol.convert import inspect_hdf5
from pnc_vol.convert.copied_values import CopiedValues
from pnc_vol.convert.either import kind_of
from pnc_vol.convert.link_state import NOTE, digest, note_of, source_of
from pnc_vol.convert.new_files import check_names, published
from pnc_vol.convert.report import Ledger, Loss
from pnc_vol.convert.transfer import REFUSALS, Transfer
from pnc_vol.errors import PncVolError
from pnc_vol.extents.merge import coalesce
from pnc_vol.extents.model import Runs
from pnc_vol.extents.place import split_rows
from pnc_vol.format.model import Header
from pnc_vol.mapping.dtypes import Element, check_enum_dtype, enum_dtype, opaque_dtype, string_dtype
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.optional import require_h5py
from pnc_vol.system import REAL

__all__ = ["MOST", "PARTS", "Link", "link"]

MOST = 2700
"""Ranges of one dataset; HDF5 takes 2,729."""

PARTS = "pnc_vol_parts"
"""Group with the parts of datasets that have more than `MOST` ranges."""

Segment = tuple[int, int]
"""A byte range: offset and length."""


@dataclass(frozen=True, slots=True)
class Link:
    """What `link` did.

    source, target : str, paths of the NetCDF file and of the link file.
    written : bool, False if the link file was up to date.
    datasets : int, datasets whose values are shown.
    records : int, records of the NetCDF file.
    segments : int, byte ranges of all datasets.
    lost : tuple of Loss, what the link file cannot show.
    """

    source: str
    target: str
    written: bool
    datasets: int
    records: int
    segments: int
    lost: tuple[Loss, ...]


def link(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    relative: bool = False,
    overwrite: bool = False,
) -> Link:
    """Make a small HDF5 file that shows the values of a NetCDF file, without a copy.

    Every program that reads HDF5 reads it, and needs nothing of this package: h5py, h5dump, netCDF4, MATLAB, h5web.
    Called again for the same files, it replaces a link file that is stale, and leaves one alone that is up to date.

    Parameters
    ----------
    source : path-like
        A NetCDF classic file.
    target : path-like
        The HDF5 file to write.
    relative : bool
        Store the name of the source relative to the folder of the target, so that both files can be moved together.
        HDF5 looks for such a name in the working directory, unless ``HDF5_EXTFILE_PREFIX='${ORIGIN}'`` is set.
    overwrite : bool
        Replace a target that is not a link file of this source.

    Returns
    -------
    Link

    Raises
    ------
    FileExistsError
        The target exists, is no link file of this source, and `overwrite` is False.
    NotCDFError
        The source is not a NetCDF classic file.
    PncVolError
        The values of the source are in subfiles, or it is open in this process with definitions that were not flushed.
    MissingPackageError
        h5py is not installed; the extra `hdf5` brings it.
    OSError
        Reading or writing failed.

    Examples
    --------
    >>> with File("ocean.nc", "w") as f:
    ...     f["depth"] = [5.0, 10.0]
    >>> link("ocean.nc", "ocean.h5").datasets
    1
    """
    source, target = os.fspath(source), os.fspath(target)
    refuse_remote(source, "HDF5 reads the values from a file of this machine: copy it here, and link the copy")
    h5py = require_h5py("Writing a link file")
    if kind_of(source) != "netcdf":
        raise PncVolError(f"{source}: it is an HDF5 file already; HDF5 programs read it without a link file")
    before = None
    with contextlib.suppress(OSError):
        before = note_of(target)
    ours = before is not None and REAL.realpath(source_of(before, target)) == REAL.realpath(source)
    check_names(source, target, overwrite=overwrite or ours, system=REAL)
    named = os.path.relpath(source, os.path.dirname(REAL.realpath(target))) if relative else os.path.abspath(source)
    with File(source, "r") as reader:
        header = _header_of(reader, source)
        note = {"source": named, "header": digest(header), "records": header.numrecs, "version": 1}
        if ours and not overwrite and before == note:
            return Link(source, target, False, 0, header.numrecs, 0, ())
        ledger = Ledger()
        with (
            published(target, overwrite=overwrite or ours, system=REAL) as temporary,
            # Attributes above 64 KiB need the later bounds; every HDF5 since 1.10 reads virtual datasets.
            h5py.File(temporary, "w", track_order=True, libver=("v108", "latest")) as writer,
        ):
            stored = _Stored(reader, named)
            linked = _Linked(reader, writer, ledger, stored)
            linked.define()
            # of fixed length: it stands behind its name, where `note_of` finds it without the HDF5 library
            writer.attrs[NOTE] = np.bytes_(json.dumps(note).encode())
    return Link(source, target, True, len(linked.copied), header.numrecs, stored.segments, tuple(ledger.lost))


def _header_of(reader: File, source: str) -> Header:
    """Return the header in the file, of which everything that is shown must be made."""
    session = reader.id.handle.session
    if not session.disk.layout.self_contained:
        raise PncVolError(f"{source}: the values are in subfiles; gather them first with pnc-vol replay --output.")
    if session.defs.dirty:
        raise PncVolError(f"{source} is open here with definitions that are not in the file; flush it first.")
    header: Header = session.disk.header
    return header


class _Stored:
    """Where the NetCDF file has the values of its variables.

    named : str, the file, as the link file is to name it.
    maps, dims : dict, the places and the dimensions of each variable, by uid.
    records : int, of the file.
    segments : int, byte ranges that were asked for.
    """

    def __init__(self, reader: File, named: str) -> None:
        disk = reader.id.handle.session.disk
        header = disk.header
        self.named, self.records, self.segments = named, header.numrecs, 0
        self.maps = disk.layout.maps
        self.dims = {uid: [header.dims[i] for i in var.dims] for uid, var in zip(disk.uids, header.vars, strict=True)}

    def ranges(self, node: DatasetNode) -> list[Segment]:
        """Return where the values of a variable lie, in their order; ranges that adjoin are one."""
        assert node.shape is not None
        whole = Runs(np.zeros(1, np.int64), np.array([prod(node.shape)], np.int64))
        runs = split_rows(whole, prod(node.shape[1:])) if node.is_record else whole
        found = coalesce(self.maps[node.uid].extents(runs))
        self.segments += len(found.offset)
        return list(zip(found.offset.tolist(), found.length.tolist(), strict=True))


class _Linked(Transfer):
    """The objects of a NetCDF file in an HDF5 file, with external storage in the place of values."""

    def __init__(self, reader: File, writer: Any, ledger: Ledger, stored: _Stored) -> None:
        values = CopiedValues(reader, writer, ledger, to_netcdf=False, block_bytes=0, progress=None)
        super().__init__(values, storage={})
        self.stored = stored

    # ------------------------------------------------------------------------------------------- datasets

    def dataset(self, path: str, name: str, source: Any, target: Any) -> None:
        """Define one dataset over the values in the NetCDF file; one of several variables becomes a group of them."""
        node = source.id.node
        if node.away is not None:
            why = "its values are in other files; pnc-vol repack --materialize brings them into this one"
            self.ledger.lose(path, "dataset", why)
            return
        try:
            made = self.parts(node, name, target) if node.parts else self.variable(node, name, target)
        except (*REFUSALS, OSError, RuntimeError) as error:
            self.ledger.lose(path, "dataset", error)
            return
        self.ledger.datasets += 1
        if node.parts:
            self.values.references.note(source, made.name)
        else:
            self.note(path, source, made)
        self.attributes(source, made)

    def parts(self, node: DatasetNode, name: str, target: Any) -> Any:
        """Return a group with the variables of a compound, or of arrays of varying length."""
        group = target.create_group(name, track_order=True)
        for label, part in node.parts.items():
            made = self.parts(part, label, group) if part.parts else self.variable(part, label, group)
            if not part.parts:
                self.attach(part, made)
        return group

    def variable(self, node: DatasetNode, name: str, target: Any) -> Any:
        """Return a dataset over one variable."""
        dtype = _hdf5_dtype(node.element)
        if node.shape is None or not prod(node.shape):
            # netCDF-4 opens no file with a dataset that has no shape
            return target.create_dataset(name, node.shape or (0,), dtype, track_order=True)
        ranges = self.stored.ranges(node)
        fill = None if node.fillvalue is None else _fill(node.fillvalue, node.element)
        if len(ranges) <= MOST:
            return self.external(target, name, node.shape, dtype, ranges, fill)
        return self.joined(target, name, node.shape, dtype, ranges, fill)

    def external(self, target: Any, name: str, shape: Any, dtype: Any, ranges: list[Segment], fill: Any) -> Any:
        """Return a dataset of external storage."""
        import h5py

        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_attr_creation_order(h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED)
        for offset, length in ranges:
            plist.set_external(self.stored.named.encode("utf-8", "surrogateescape"), offset, length)
        kind = h5py.h5t.py_create(dtype, logical=True)
        if fill is not None:
            plist.set_fill_value(fill)
        # h5py's create_dataset leaves out the external storage of a scalar
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5d.create(target.id, name.encode("utf-8", "surrogateescape"), kind, space, plist)
        return target[name]

    def joined(self, target: Any, name: str, shape: Any, dtype: Any, ranges: list[Segment], fill: Any) -> Any:
        """Return a virtual dataset over parts of `MOST` records each; a record is a range."""
        import h5py

        group = self.target.require_group(PARTS)
        layout = h5py.VirtualLayout(shape, dtype)
        for first in range(0, len(ranges), MOST):
            some = ranges[first : first + MOST]
            part = self.external(group, str(len(group)), (len(some), *shape[1:]), dtype, some, fill)
            # "." is the file itself, by whatever name
            layout[first : first + len(some)] = h5py.VirtualSource(".", part.name, part.shape, dtype)
        if fill is not None:
            # create_virtual_dataset takes no texts
            layout.dcpl.set_fill_value(fill)
        return target.create_virtual_dataset(name, layout)

    def attribute(self, target: Any, name: str, where: str, value: Any, shape: Any, dtype: np.dtype[Any]) -> None:
        """An attribute of several axes has one, as in the NetCDF file: netCDF-4 opens no file with others."""
        if shape is not None and len(shape) > 1:
            value, shape = np.reshape(value, -1), (prod(shape),)
        super().attribute(target, name, where, value, shape, dtype)

    # -------------------------------------------------------------------------------------------- dimensions

    def label(self, source: Any, axis: int) -> str:
        """Return a label that differs from the dimension's name, which its scale already gives."""
        return super().label(source, axis) if source.id.node.axes[axis].only_label else ""

    def axes(self, path: str) -> Iterator[str]:
        """Attach scales and set labels; every dimension of NetCDF is a scale, so that netCDF-4 has its name."""
        yield from super().axes(path)
        source, target = self.values.pair(path)
        self.attach(source.id.node, target)

    def dimension(self, path: str, node: Any, target: Any, axis: int, name: str) -> None:
        """Do nothing: `attach` does it, for axes without a label too."""

    def attach(self, node: DatasetNode, made: Any) -> None:
        """Give the axes without a scale one that stands for their dimension, as netCDF-4 has it."""
        if node.scale is not None or not node.shape:
            return
        for axis, dim in zip(range(len(node.shape)), self.stored.dims[node.uid], strict=False):
            if len(made.dims[axis]):
                continue
            scale = self.dimensions.get(dim.name)
            if scale is None:
                scale = self.bare(dim.name, dim.size or self.stored.records)
            if scale.shape[0] == node.shape[axis]:
                made.dims[axis].attach_scale(scale)

    def bare(self, name: str, size: int) -> Any:
        """Return a scale without values for a dimension that has no variable; the variable of that name if it is a
        scale."""
        there = self.source.get(name)
        if hasattr(there, "shape") and inspect_hdf5.scale_name(there) is not None and name in self.target:
            scale = self.target[name]
        else:
            free = name.replace("/", "_")
            while free in self.target:
                free += "_dim"
            scale = self.target.create_dataset(free, (size,), ">f4", track_order=True)
            scale.make_scale(f"{inspect_hdf5.BARE}.{size:10}")
        self.dimensions[name] = scale
        return scale


def _fill(stored: bytes, element: Element) -> npt.NDArray[Any] | None:
    """Return a fill value as h5py takes it; None for an array type, of which numpy has no single value."""
    if element.kind == "array":
        return None
    if element.is_string:
        # h5py makes one of a fixed length of it
        return np.array(stored.rstrip(b"\0"), string_dtype(element.encoding))
    return np.frombuffer(stored, _hdf5_dtype(element) if element.kind == "datetime" else _raw(element)).reshape(())


def _raw(element: Element) -> np.dtype[Any]:
    """Return the type of one element for its bytes in the file."""
    if element.kind == "array":
        assert element.dtype.subdtype is not None
        base, shape = element.dtype.subdtype
        return np.dtype((base.newbyteorder(">"), shape))
    return element.dtype if element.kind == "longdouble" else element.file_dtype


def _hdf5_dtype(element: Element) -> Any:
    """Return the type of HDF5 that describes the bytes of an element as they are in the file, as h5py takes it."""
    if element.is_string:
        return string_dtype(element.encoding, element.itemsize)
    if element.kind == "bool":
        return np.dtype(bool)
    if element.kind == "enum":
        return enum_dtype(check_enum_dtype(element.dtype) or {}, element.file_dtype)
    if element.kind == "datetime":
        return opaque_dtype(element.dtype.newbyteorder(">"))
    return _raw(element)
