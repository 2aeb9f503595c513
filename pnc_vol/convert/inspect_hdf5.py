"""This module asks an object of h5py, or of ours, questions for which the two libraries have no common call.

Knows: h5py's low-level functions and our ids, and which question needs them. Does not know: targets, reports.

Rules
-----
1. Every function takes an object of either library; h5py is asked only about h5py's objects, and imported only then.
2. Nothing but `values` reads more of a dataset than a sample. `outside` opens no other file, asks for no shape, and
   follows no link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from pnc_vol.api.hdf5_files import is_sound, of_scales, with_rows
from pnc_vol.api.scale_attrs import present
from pnc_vol.errors import NotYetError
from pnc_vol.mapping.dtypes import check_string_dtype, string_dtype

__all__ = [
    "BARE",
    "NO_COORDINATE",
    "OF_NETCDF4",
    "STRING_BYTES",
    "attribute",
    "attribute_details",
    "attribute_names",
    "attribute_refers",
    "axis_label",
    "axis_scales",
    "bare_dimension",
    "bookkeeping",
    "bytes_in_memory",
    "called_like_dimensions",
    "chosen_fill",
    "dimension_number",
    "dimension_numbers",
    "has_fill",
    "holds_characters",
    "identity",
    "identity_of",
    "is_elsewhere",
    "is_hdf5",
    "is_netcdf4",
    "is_plain_netcdf",
    "is_tracked",
    "kind_of_object",
    "members",
    "names_of",
    "outside",
    "scale_name",
    "storable_dtype",
    "storage_options",
    "stored_whole",
    "type_details",
    "values",
]

#: How netCDF-4 marks the dataset that stands for a dimension without a variable; the length follows.
BARE = "This is a netCDF dimension but not a netCDF variable"

#: Bytes of a string object in memory without its text, and how many are looked at to guess the length of all.
STRING_BYTES, SAMPLES = 64, 32

NO_COORDINATE = "_nc4_non_coord_"
"""What the netCDF-4 library puts before the name of a variable that is called like a dimension, and is not its
coordinate: in HDF5 the dimension has the name."""

OF_NETCDF4 = frozenset({"_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"})
"""Attributes that the netCDF-4 library keeps for itself."""


def is_hdf5(obj: Any) -> bool:
    """Return whether an object is h5py's."""
    return type(obj).__module__.partition(".")[0] == "h5py" or not hasattr(obj.id, "node")


def kind_of_object(obj: Any) -> Literal["group", "dataset", "type"]:
    """Return what a member of a group is."""
    if hasattr(obj, "shape"):
        return "dataset"
    return "group" if hasattr(obj, "keys") else "type"


def members(group: Any) -> list[str]:
    """Return the names in a group, in order of creation where that is known."""
    # h5py lists by creation where the file tracks it; ours always knows it, and lists by name as h5py does otherwise.
    if is_hdf5(group):
        return list(group)
    node = group.id.node
    return list(node.listed()) if node.order is not None or not is_tracked(group) else [*node.children, *node.links]


def is_tracked(obj: Any) -> bool:
    """Return whether a group lists its members, or a dataset its attributes, in the order of their creation.

    NetCDF always keeps that order. Of a file of ours it counts where it was asked for, where it is not that of the
    names, and where nothing shows that the file was ever more than NetCDF. How groups are ordered among datasets is not
    in a file, unless it was asked for.
    """
    group = kind_of_object(obj) == "group"
    if is_hdf5(obj):
        import h5py

        if not group:
            return bool(obj.id.get_create_plist().get_attr_creation_order() & h5py.h5p.CRT_ORDER_TRACKED)
        # of a file itself the list is that of the file, which the netCDF-4 library leaves alone
        return bool(obj["."].id.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED)
    node = obj.id.node
    tree = node.tree
    if (node.order is not None) if group else ("track_order" in node.ignored):
        return True
    if not tree.links and all(hasattr(child, "shape") for child in tree.root.children.values()):
        return True
    names = [name for name, child in node.children.items() if hasattr(child, "shape")] if group else list(node.attrs)
    return names != sorted(names)


def identity(obj: Any) -> Any:
    """Return what two objects of one file share if and only if they are the same, by whatever name."""
    return identity_of(obj.id) if is_hdf5(obj) else id(obj.id.node)


def identity_of(oid: Any) -> Any:
    """Return the `identity` of an object of h5py's low-level interface."""
    import h5py

    return h5py.h5o.get_info(oid).addr


def attribute_names(obj: Any) -> list[str]:
    """Return the names of an object's attributes, in order of creation where that is known."""
    return list(obj.attrs) if is_hdf5(obj) else list(obj.id.node.attrs)


def names_of(obj: Any) -> int:
    """Return how many hard links lead to the object; of ours more than one if any object of the file may have
    several."""
    if not is_hdf5(obj):
        return 1 + bool(obj.id.node.tree.links)
    import h5py

    return int(h5py.h5o.get_info(obj.id).rc)


# --------------------------------------------------------------------------------------------------- datasets


def storable_dtype(dataset: Any) -> np.dtype[Any]:
    """Return the numpy type of a dataset.

    Raises
    ------
    NotYetError
        The type has no numpy equivalent.
    """
    try:
        dtype: np.dtype[Any] = dataset.dtype
    except (TypeError, ValueError) as error:
        raise NotYetError(f"its HDF5 type has no numpy equivalent: {error}") from None
    return dtype


def bytes_in_memory(dataset: Any) -> int:
    """Return the number of bytes that one element takes while it is copied; where that varies, a guess from a
    sample."""
    dtype = dataset.dtype
    if not dtype.hasobject or not dataset.size:
        return int(dtype.itemsize)
    if not is_hdf5(dataset) and check_string_dtype(dtype) is not None:
        return STRING_BYTES + 2 * int(dataset.id.node.element.itemsize)
    longest = 0
    for at in np.unique(np.linspace(0, dataset.size - 1, SAMPLES).astype(np.int64)).tolist():
        where = tuple(int(i) for i in np.unravel_index(at, dataset.shape))
        longest = max(longest, _bytes_of(dataset[where]))
    return int(dtype.itemsize) + 2 * longest


def _bytes_of(value: Any) -> int:
    """Return the number of bytes of a value with all that it leads to."""
    if isinstance(value, (bytes, str)):
        return STRING_BYTES + len(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return STRING_BYTES + value.nbytes
    if isinstance(value, (np.ndarray, np.void, tuple)):
        items: Iterable[Any] = value if isinstance(value, tuple) else np.asarray(value).ravel().tolist()
        return STRING_BYTES + sum(_bytes_of(item) for item in items)
    return STRING_BYTES


def values(dataset: Any, selection: Any) -> Any:
    """Return a selection of a dataset, with the right numbers in rows of varying length."""
    found = dataset[selection]
    return with_rows(found, dataset.dtype, dataset.shape) if is_hdf5(dataset) else found


def has_fill(obj: Any) -> bool:
    """Return whether an object is a dataset with a fill value; h5py raises an error for one that was made without."""
    if kind_of_object(obj) != "dataset" or not is_hdf5(obj):
        return kind_of_object(obj) == "dataset"
    import h5py

    return bool(obj.id.get_create_plist().fill_value_defined() != h5py.h5d.FILL_VALUE_UNDEFINED)


def chosen_fill(dataset: Any) -> Any:
    """Return the fill value that was asked for when the dataset was made; None for the default."""
    if not is_hdf5(dataset):
        node = dataset.id.node
        given = (node, *node.parts.values())
        return dataset.fillvalue if any(part.fillvalue is not None for part in given) else None
    import h5py

    if dataset.id.get_create_plist().fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return None
    if dataset.dtype.kind == "O":
        # HDF5 calls the empty string "chosen", too. Of arrays of varying length h5py shows the fill value of one
        # member, and references have none but null.
        return (dataset.fillvalue or None) if check_string_dtype(dataset.dtype) is not None else None
    if dataset.dtype.hasobject or (holds_characters(dataset) and not dataset.fillvalue):
        # the netCDF-4 library says for all characters what HDF5 has by default
        return None
    return dataset.fillvalue


def storage_options(dataset: Any) -> str:
    """Return chunks, filters and the like, in words; empty if there are none."""
    found = []
    if dataset.chunks is not None:
        found.append(f"chunks {tuple(dataset.chunks)}")
    if dataset.compression is not None:
        level = dataset.compression_opts
        found.append(dataset.compression + ("" if level is None else f" {level}"))
    found += [name for name in ("shuffle", "fletcher32") if getattr(dataset, name)]
    if dataset.scaleoffset is not None:
        found.append(f"scaleoffset {dataset.scaleoffset}")
    if dataset.is_virtual:
        found.append("virtual (the values were copied)")
    return ", ".join(found)


def stored_whole(dataset: Any) -> tuple[int, int] | None:
    """Return the descriptor of an HDF5 file, open for reading, and the offset in it of a dataset's values, C-contiguous
    and exactly as numpy has them; None if they are not there, not so, or not in one piece.
    """
    import h5py

    oid, file = dataset.id, dataset.file
    contiguous = oid.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
    if file.driver != "sec2" or file.mode != "r" or not contiguous:
        return None
    offset, dtype = oid.get_offset(), dataset.dtype
    if offset is None or dtype.kind not in "iuf" or not oid.get_type().equal(h5py.h5t.py_create(dtype)):
        return None
    if oid.get_storage_size() != dataset.size * dtype.itemsize:
        return None
    return file.id.get_vfd_handle(), offset


def type_details(tid: Any, dtype: np.dtype[Any]) -> str:
    """Return properties of an HDF5 type that its numpy type lacks, in words; empty if it is just what h5py makes of
    that.

    They are told and not kept: to keep them, the marker would have to describe HDF5's types.

    Parameters
    ----------
    tid : h5py.h5t.TypeID
    dtype : what h5py shows of it
    """
    import h5py

    found = ["named type"] if tid.committed() else []
    try:
        made = h5py.h5t.py_create(dtype, logical=True)
    except TypeError:
        return ", ".join(found)
    if tid != made:
        found += _details(tid, made) or ["details of the HDF5 type"]
    return ", ".join(dict.fromkeys(found))


def _details(tid: Any, made: Any) -> list[str]:
    """Return how a type differs from another one that has the same numpy type."""
    import h5py

    kind = tid.get_class()
    if kind == h5py.h5t.BITFIELD:
        return ["bit field"]
    if kind != made.get_class():
        return []
    if kind == h5py.h5t.STRING:
        padding = {h5py.h5t.STR_NULLTERM: "null-terminated", h5py.h5t.STR_SPACEPAD: "padded with spaces"}
        found = []
        if tid.get_strpad() != made.get_strpad():
            found.append(f"text {padding.get(tid.get_strpad(), 'padded with NUL')}")
        if tid.get_cset() != made.get_cset():
            found.append(f"text declared as {'UTF-8' if tid.get_cset() == h5py.h5t.CSET_UTF8 else 'ASCII'}")
        return found
    if kind == h5py.h5t.OPAQUE:
        return ["tag of an opaque type"]
    if kind == h5py.h5t.COMPOUND:
        members = range(min(tid.get_nmembers(), made.get_nmembers()))
        pairs = [(tid.get_member_type(i), made.get_member_type(i)) for i in members]
        found = [word for one, other in pairs if one != other for word in _details(one, other)]
        return found or ["offsets of a compound's fields"]
    if kind in (h5py.h5t.VLEN, h5py.h5t.ARRAY, h5py.h5t.ENUM):
        return _details(tid.get_super(), made.get_super())
    return []


# ------------------------------------------------------------------------------------------------- attributes


def bookkeeping(obj: Any) -> frozenset[str]:
    """Return the names of the attributes that HDF5's dimension scales and netCDF-4 keep for themselves."""
    if not is_hdf5(obj):
        return frozenset(present(obj.id.node))
    if kind_of_object(obj) == "type":
        return frozenset()
    if kind_of_object(obj) == "group":
        return frozenset({"_NCProperties", "_nc3_strict"}) if obj.name == "/" else frozenset()
    return of_scales(obj) | OF_NETCDF4 - {"_NCProperties"}


def attribute_refers(obj: Any, name: str) -> bool:
    """Return whether the value of an attribute is or holds references."""
    try:
        dtype = obj.attrs.get_id(name).dtype if is_hdf5(obj) else obj.id.node.attrs[name].dtype
    except (OSError, TypeError, ValueError, KeyError, RuntimeError):
        return False
    # with `ls`, which asks for no references, it would load all that copies
    from pnc_vol.api.copying import refers

    return refers(dtype)


def attribute_details(obj: Any, name: str) -> str:
    """Do as `type_details` does, of an attribute."""
    if not is_hdf5(obj):
        return ""
    about = obj.attrs.get_id(name)
    return type_details(about.get_type(), about.dtype)


def attribute(obj: Any, name: str) -> tuple[Any, tuple[int, ...] | None, np.dtype[Any]]:
    """Return the value, shape and type of an attribute; the shape is None for an empty one.

    Of a file that the netCDF-4 library wrote, a single value is a scalar and characters are a text: NetCDF has no other
    attributes, and the library stores them with an axis, and as bytes of fixed length.

    Raises
    ------
    OSError, TypeError, ValueError
        It cannot be read.
    """
    about = obj.attrs.get_id(name) if is_hdf5(obj) else obj.id.node.attrs[name]
    dtype, shape = about.dtype, about.shape
    if shape is None:
        return None, None, dtype
    value = obj.attrs[name]
    if is_hdf5(obj):
        value = with_rows(value, dtype, shape)
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        return value, (*shape, *inner), base
    if is_plain_netcdf(obj, name):
        value = value if shape == () else value[0]
        if dtype.kind == "S":
            value, dtype = bytes(value).decode("utf-8", "surrogateescape"), string_dtype()
        return value, (), dtype
    if name == "_FillValue" and isinstance(value, str) and kind_of_object(obj) == "dataset" and obj.dtype == "S1":
        # for the netCDF-4 library it has the type of its variable
        return value.encode("utf-8", "surrogateescape"), (), np.dtype("S1")
    return value, tuple(shape), dtype


def is_plain_netcdf(obj: Any, name: str) -> bool:
    """Return whether an attribute is one value, or a text, as the netCDF-4 library stores them."""
    if not is_hdf5(obj):
        return False
    about = obj.attrs.get_id(name)
    return (about.shape == (1,) or (about.shape == () and about.dtype.kind == "S")) and is_netcdf4(obj)


# ------------------------------------------------------------------------------------------- scales and labels


def _is_scale(dataset: Any) -> bool:
    if not is_hdf5(dataset):
        return dataset.id.node.scale is not None
    import h5py

    return bool(h5py.h5ds.is_scale(dataset.id))


def scale_name(dataset: Any) -> str | None:
    """Return the name that a dimension scale was given, maybe empty; None if the dataset is no scale."""
    if not is_hdf5(dataset):
        return dataset.id.node.scale_name if _is_scale(dataset) else None
    import h5py

    if not h5py.h5ds.is_scale(dataset.id):
        return None
    return bytes(h5py.h5ds.get_scale_name(dataset.id)).decode("utf-8", "replace")


def is_netcdf4(obj: Any) -> bool:
    """Return whether an object is in an HDF5 file that the netCDF-4 library wrote."""
    return is_hdf5(obj) and "_NCProperties" in obj.file.attrs


def holds_characters(dataset: Any) -> bool:
    """Return whether a dataset is a char variable of a netCDF-4 file, each element of which is a character."""
    return bool(dataset.dtype == "S1" and dataset.shape) and is_netcdf4(dataset)


def dimension_number(dataset: Any) -> int | None:
    """Return the number that the netCDF-4 library gave to the dimension of a scale; None if it gave none."""
    number = dataset.attrs.get("_Netcdf4Dimid") if _is_scale(dataset) else None
    return int(number) if isinstance(number, np.integer) else None


def dimension_numbers(dataset: Any) -> list[int]:
    """Return the numbers of a variable's dimensions where the netCDF-4 library noted them; else none."""
    numbers = np.asarray(dataset.attrs.get("_Netcdf4Coordinates", ()))
    return numbers.tolist() if numbers.dtype.kind in "iu" and numbers.shape == (len(dataset.shape),) else []


def bare_dimension(dataset: Any) -> str:
    """Return the name of the netCDF-4 dimension that a dataset stands for, if it is no variable; else empty."""
    if not _is_scale(dataset):
        return ""
    name = scale_name(dataset) or ""
    return str(dataset.name).rpartition("/")[2] if name.startswith(BARE) else ""


def called_like_dimensions(file: Any) -> frozenset[str]:
    """Return the variables of a NetCDF file's root that have the name of a dimension, and are no scales; none if there
    are links, which would lead to the old name."""
    tree = file.id.node.tree
    if tree.links:
        return frozenset()
    dims = {axis.dim_name for node in tree.datasets.values() for axis in node.axes if not axis.only_label}
    dims |= tree.file_dims.spare
    return frozenset(
        name
        for name, node in tree.root.children.items()
        if name in dims and hasattr(node, "shape") and node.scale is None
    )


def axis_label(dataset: Any, axis: int) -> str:
    """Return the label of an axis; of ours, that is also the name of its dimension if no scale brings it along."""
    if is_hdf5(dataset) and not is_sound(dataset, "DIMENSION_LABELS"):
        return ""
    return str(dataset.dims[axis].label)


def axis_scales(dataset: Any, axis: int) -> list[str]:
    """Return the paths of the scales that are attached to an axis."""
    if is_hdf5(dataset) and not is_sound(dataset, "DIMENSION_LIST"):
        return []
    return [str(scale.name) for scale in dataset.dims[axis].values()]


# --------------------------------------------------------------------------------- values that are in other files


def is_elsewhere(dataset: Any) -> bool:
    """Return whether values of a dataset are those of other datasets, or in raw files."""
    if not is_hdf5(dataset):
        return dataset.id.node.away is not None
    return bool(dataset.is_virtual or dataset.external)


def outside(dataset: Any) -> str:
    """Return the other files that hold values of a dataset, in words; empty if all are in the dataset's own file.

    HDF5 keeps values in other files as external storage, and shows those of other datasets as virtual ones. Reading the
    values, and even asking for the shape of a virtual dataset, opens these files, wherever they are.
    """
    return _outside(dataset.file, dataset.id, set()) if is_hdf5(dataset) else ""


def _outside(file: Any, oid: Any, seen: set[Any]) -> str:
    import h5py

    plist = oid.get_create_plist()
    files = [plist.get_external(i)[0].decode("utf-8", "replace") for i in range(plist.get_external_count())]
    if files:
        return f"external storage, in {_some(files)}"
    if plist.get_layout() != h5py.h5d.VIRTUAL:
        return ""
    seen.add(identity_of(oid))
    sources = [(plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)) for i in range(plist.get_virtual_count())]
    files = [name for name, _ in sources if name != "."]
    if files:
        return f"virtual, with values from {_some(files)}"
    for _, name in sources:
        path = name.replace("%%", "%")
        if "%" in name.replace("%%", "") or not _only_hard(file, path):
            return f"virtual, with values from what {name!r} stands for"
        found = h5py.h5o.open(file.id, path.encode("utf-8", "surrogateescape")) if path in file else None
        if isinstance(found, h5py.h5d.DatasetID) and identity_of(found) not in seen:
            there = _outside(file, found, seen)
            if there:
                return there
    return ""


def _only_hard(file: Any, path: str) -> bool:
    """Return whether no step of a path is a soft or an external link."""
    import h5py

    steps = [step for step in path.split("/") if step and step != "."]
    for n in range(1, len(steps) + 1):
        link = file.get("/" + "/".join(steps[:n]), getlink=True)
        if link is None:
            return True
        if not isinstance(link, h5py.HardLink):
            return False
    return True


def _some(names: list[str]) -> str:
    """Return the first of several names, each once."""
    different = list(dict.fromkeys(names))
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return ", ".join(map(repr, different[:3])) + more
