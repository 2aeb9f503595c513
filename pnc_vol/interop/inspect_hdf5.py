"""What an object of h5py, or of ours, says of itself beyond h5py's common ground.

Knows: h5py's low-level functions and our ids, and which question needs them. Does not know: targets, reports.

Rules
-----
1. Every function takes an object of either library; h5py is asked only about h5py's objects, and imported only then.
2. Nothing here reads the values of a dataset.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pnc_vol.errors import NotYetError
from pnc_vol.mapping.dimensions import is_nameless
from pnc_vol.mapping.special import check_string_dtype, string_dtype

__all__ = [
    "STRING_BYTES",
    "attribute",
    "attribute_names",
    "axis_label",
    "axis_scales",
    "bare_dimension",
    "bookkeeping",
    "bytes_in_memory",
    "chosen_fill",
    "is_hdf5",
    "is_netcdf4",
    "kind_of_object",
    "members",
    "names_of",
    "scale_name",
    "storable_dtype",
    "storage_options",
]

#: How netCDF-4 marks the dataset that stands for a dimension without a variable; the length follows.
_BARE = "This is a netCDF dimension but not a netCDF variable"

#: Bytes of a string object in memory without its text, and how many are looked at to guess the length of all.
STRING_BYTES, SAMPLES = 64, 32

_ALWAYS_HIDDEN = frozenset(
    {"REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict"}
)


def is_hdf5(obj: Any) -> bool:
    """Whether an object is h5py's."""
    return type(obj).__module__.partition(".")[0] == "h5py" or not hasattr(obj.id, "node")


def kind_of_object(obj: Any) -> Literal["group", "dataset", "type"]:
    """What a member of a group is."""
    if hasattr(obj, "shape"):
        return "dataset"
    return "group" if hasattr(obj, "keys") else "type"


def members(group: Any) -> list[str]:
    """The names in a group, in order of creation where that is known."""
    # h5py lists by creation where the file tracks it; ours always knows it, and lists by name as h5py does otherwise.
    if is_hdf5(group):
        return list(group)
    node = group.id.node
    return list({**node.children, **node.links}) if node.order is None else list(node.listed())


def attribute_names(obj: Any) -> list[str]:
    """The names of an object's attributes, in order of creation where that is known."""
    return list(obj.attrs) if is_hdf5(obj) else list(obj.id.node.attrs)


def names_of(obj: Any) -> int:
    """How many hard links lead to the object; of ours more than one if any object of the file may have several."""
    if not is_hdf5(obj):
        return 1 + bool(obj.id.node.tree.links)
    import h5py

    return int(h5py.h5o.get_info(obj.id).rc)


# --------------------------------------------------------------------------------------------------- datasets


def storable_dtype(dataset: Any) -> np.dtype[Any]:
    """The numpy type of a dataset.

    Raises
    ------
    TypeError, NotYetError
        The type has no numpy equivalent, or holds references.
    """
    try:
        dtype: np.dtype[Any] = dataset.dtype
    except (TypeError, ValueError) as error:
        raise NotYetError(f"its HDF5 type has no numpy equivalent: {error}") from None
    _refuse_references(dtype)
    return dtype


def _refuse_references(dtype: np.dtype[Any]) -> None:
    # A reference is an address in the source's file: copied as it is, it would point to nothing.
    metadata: Any = dtype.metadata or {}
    if "ref" in metadata:
        raise NotYetError("references are addresses inside the HDF5 file; store the path as a string")
    if dtype.subdtype is not None:
        _refuse_references(dtype.subdtype[0])
    elif check_string_dtype(dtype) is None and metadata.get("vlen") is not None:
        _refuse_references(np.dtype(metadata["vlen"]))
    for name in dtype.names or ():
        _refuse_references(dtype[name])


def bytes_in_memory(dataset: Any) -> int:
    """Bytes that one element takes while it is copied; for strings of varying length a guess from a sample."""
    if dataset.dtype.kind != "O":
        return int(dataset.dtype.itemsize)
    if not is_hdf5(dataset):
        return STRING_BYTES + 2 * int(dataset.id.node.element.itemsize)
    longest = 0
    for at in np.unique(np.linspace(0, dataset.size - 1, SAMPLES).astype(np.int64)).tolist():
        where = tuple(int(i) for i in np.unravel_index(at, dataset.shape))
        longest = max(longest, len(dataset[where]))
    return STRING_BYTES + 2 * longest


def chosen_fill(dataset: Any) -> Any:
    """The fill value that was asked for when the dataset was made; None for the default."""
    if not is_hdf5(dataset):
        node = dataset.id.node
        given = (node, *node.parts.values())
        return dataset.fillvalue if any(part.fillvalue is not None for part in given) else None
    import h5py

    if dataset.id.get_create_plist().fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return None
    if dataset.dtype.kind == "O":
        # HDF5 says "chosen" of the empty string too.
        return dataset.fillvalue or None
    return dataset.fillvalue


def storage_options(dataset: Any) -> str:
    """Chunks, filters and the like, in words; empty if there is nothing to tell."""
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
    elif dataset.external:
        found.append("external storage (the values were copied)")
    return ", ".join(found)


# ------------------------------------------------------------------------------------------------- attributes


def bookkeeping(obj: Any) -> frozenset[str]:
    """Names of the attributes that HDF5's dimension scales and netCDF-4 keep for themselves."""
    if not is_hdf5(obj) or kind_of_object(obj) == "type":
        return frozenset()
    if kind_of_object(obj) == "group":
        return frozenset({"_NCProperties", "_nc3_strict"}) if obj.name == "/" else frozenset()
    return _ALWAYS_HIDDEN | {"CLASS", "NAME"} if _is_scale(obj) else _ALWAYS_HIDDEN


def attribute(obj: Any, name: str) -> tuple[Any, tuple[int, ...] | None, np.dtype[Any]]:
    """The value, shape and type of an attribute; the shape is None for an empty one.

    Of a file that the netCDF-4 library wrote, a single value is a scalar and characters are a text: NetCDF has no other
    attributes, and the library stores them with an axis, and as bytes of fixed length.

    Raises
    ------
    NotYetError
        It holds references.
    OSError, TypeError, ValueError
        It cannot be read.
    """
    about = obj.attrs.get_id(name) if is_hdf5(obj) else obj.id.node.attrs[name]
    dtype, shape = about.dtype, about.shape
    _refuse_references(dtype)
    if shape is None:
        return None, None, dtype
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        return obj.attrs[name], (*shape, *inner), base
    value = obj.attrs[name]
    if shape in ((), (1,)) and is_netcdf4(obj):
        value, shape = value if shape == () else value[0], ()
        if dtype.kind == "S":
            value, dtype = bytes(value).decode("utf-8", "surrogateescape"), string_dtype()
    return value, tuple(shape), dtype


# ------------------------------------------------------------------------------------------- scales and labels


def _is_scale(dataset: Any) -> bool:
    if not is_hdf5(dataset):
        return dataset.id.node.scale is not None
    import h5py

    return bool(h5py.h5ds.is_scale(dataset.id))


def scale_name(dataset: Any) -> str | None:
    """The name that a dimension scale was given, maybe empty; None if the dataset is no scale."""
    if not is_hdf5(dataset):
        name: str | None = dataset.id.node.scale
        return name
    import h5py

    if not h5py.h5ds.is_scale(dataset.id):
        return None
    return bytes(h5py.h5ds.get_scale_name(dataset.id)).decode("utf-8", "replace")


def is_netcdf4(obj: Any) -> bool:
    """Whether an object is in an HDF5 file that the netCDF-4 library wrote."""
    return is_hdf5(obj) and "_NCProperties" in obj.file.attrs


def bare_dimension(dataset: Any) -> str:
    """The name of the netCDF-4 dimension that a dataset stands for, if it is no variable; else empty."""
    if not _is_scale(dataset):
        return ""
    name = scale_name(dataset) or ""
    return str(dataset.name).rpartition("/")[2] if name.startswith(_BARE) else ""


def axis_label(dataset: Any, axis: int) -> str:
    """The label of an axis; of ours, the dimension's name if someone gave it one and no scale brings it along."""
    label = str(dataset.dims[axis].label)
    if label or is_hdf5(dataset):
        return label
    found, node = dataset.id.node.axes[axis], dataset.id.node
    name: str = found.dim_name or ""
    size = 0 if axis == 0 and node.is_record else dataset.shape[axis]
    # A coordinate variable is what gives its dimension the name.
    own = node.scale is not None and name == node.cdf_name
    return "" if found.scales or own or is_nameless(name, size) else name


def axis_scales(dataset: Any, axis: int) -> list[str]:
    """Paths of the scales that are attached to an axis."""
    if is_hdf5(dataset) and "DIMENSION_LIST" not in dataset.attrs:
        return []
    return [str(scale.name) for scale in dataset.dims[axis].values()]
