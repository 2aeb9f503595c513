"""What h5py's tests use of its low-level modules, over pnc_vol's own objects.

Knows: ids, nodes, dims. Does not know: HDF5. Nothing here stores or computes anything that pnc_vol does not have: each
function looks at the node of an id, or calls the high-level method of the same meaning. Only tests use these; what
programs use of an id is in `pnc_vol.api.ids`.
"""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

import pnc_vol
from pnc_vol import check_string_dtype, get_config
from pnc_vol.api import ids
from pnc_vol.mapping.dtypes import element_for

CSET_ASCII, CSET_UTF8 = 0, 1


def text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else name


def wrap(oid: Any) -> Any:
    if isinstance(oid, ids.DatasetID):
        return pnc_vol.Dataset(oid)
    return pnc_vol.Group(oid)


# ------------------------------------------------------------------------------------------------ types


class TypeID:
    """The type of a dataset or an attribute."""

    def __init__(self, dtype: Any, name: Any = None) -> None:
        self.dtype = np.dtype(dtype)
        self._name = name

    def get_class(self) -> str:
        return "array" if self.dtype.subdtype is not None else self.dtype.kind

    def get_size(self) -> int:
        return self.dtype.itemsize

    def committed(self) -> bool:
        return self._name is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (TypeID, ids.ObjectID)) and self.dtype == getattr(other, "dtype", None)

    __hash__ = None  # type: ignore[assignment]


class TypeOpaqueID(TypeID): ...


class TypeStringID(TypeID):
    def get_cset(self) -> int:
        info = check_string_dtype(self.dtype)
        assert info is not None
        return CSET_UTF8 if info.encoding == "utf-8" else CSET_ASCII

    def is_variable_str(self) -> bool:
        info = check_string_dtype(self.dtype)
        return info is not None and info.length is None

    def copy(self) -> TypeStringID:
        return TypeStringID(self.dtype)

    def set_size(self, size: int) -> None:
        self.dtype = np.dtype(f"S{size}")


def type_id(dtype: Any, name: Any = None) -> TypeID:
    if check_string_dtype(dtype) is not None:
        return TypeStringID(dtype, name)
    return (TypeOpaqueID if dtype.kind == "V" and dtype.names is None and dtype.subdtype is None else TypeID)(
        dtype, name
    )


def vlen_dtype(base: Any) -> Any:
    return pnc_vol.vlen_dtype(base)


# ------------------------------------------------------------------------------------------------- ids


def open_attribute(owner: Any, name: Any) -> ids.AttributeID:
    return wrap(owner).attrs.get_id(name)


class LinkProxy:
    def __init__(self, oid: Any) -> None:
        self._oid = oid

    def get_info(self, name: bytes) -> Any:
        plain = text(name).isascii()
        return SimpleNamespace(cset=CSET_ASCII if plain else CSET_UTF8)


def get_offset(oid: Any) -> int | None:
    session = oid.check()
    session.disk.layout.writable(session.defs.tree, [oid.node.uid], alone=True)
    place = session.disk.layout.places.get(oid.node.uid)
    return None if place is None else place.begin


def close_id(oid: Any) -> None:
    oid.close()


for cls, methods in {
    ids.DatasetID: {
        "get_type": lambda oid: type_id(oid.node.element.dtype, getattr(oid.node, "type_name", None)),
        "get_offset": get_offset,
        "shape": property(lambda oid: oid.node.shape),
    },
    ids.AttributeID: {"get_type": lambda aid: type_id(aid.dtype)},
    ids.GroupID: {"links": property(LinkProxy)},
    ids.ObjectID: {"_close": close_id},
}.items():
    for key, value in methods.items():
        # Types are compared with those of this module, so all of them have to come from here.
        if key not in vars(cls) or key in ("get_type", "get_offset"):
            setattr(cls, key, value)


# --------------------------------------------------------------------------------------------- modules


def create_dataset(parent: Any, name: Any, tid: TypeID, space: Any, *args: Any) -> Any:
    return wrap(parent).create_dataset(text(name), shape=space.shape, dtype=tid.dtype).id


def create_attribute(parent: Any, name: Any, tid: TypeID, space: Any) -> ids.AttributeID:
    value = pnc_vol.Empty(tid.dtype) if space.shape is None else np.zeros(space.shape, tid.dtype)
    wrap(parent).attrs.create(text(name), value, dtype=None if space.shape is None else tid.dtype)
    return open_attribute(parent, name)


def create_space(kind: str) -> Any:
    return SimpleNamespace(shape=None if kind == "null" else (), close=lambda: None)


def attached(dset: Any, scale: Any, axis: int) -> bool:
    return any(found == wrap(scale) for found in wrap(dset).dims[axis].values())


def set_label(dset: Any, axis: int, label: bytes) -> None:
    wrap(dset).dims[axis].label = label


def iterate(dset: Any, axis: int, func: Any, start: int = 0) -> Any:
    for scale in wrap(dset).dims[axis].values()[start:]:
        found = func(scale.id)
        if found is not None:
            return found
    return None


def objinfo(oid: Any) -> Any:
    return SimpleNamespace(mtime=int("track_times" in oid.node.ignored))


def py_create(dtype: Any, logical: bool = False, aligned: bool = False) -> TypeID:
    return type_id(element_for(np.dtype(dtype)).dtype)


FILTERS = {
    "FILTER_DEFLATE": 1, "FILTER_SHUFFLE": 2, "FILTER_FLETCHER32": 3, "FILTER_SZIP": 4, "FILTER_SCALEOFFSET": 6,
    "FILTER_LZF": 32000,
}  # fmt: skip

MODULES: dict[str, Any] = {
    "h5": SimpleNamespace(get_config=get_config, H5PYConfig=type(get_config())),
    "h5a": SimpleNamespace(open=open_attribute, create=create_attribute, AttrID=ids.AttributeID),
    "h5d": SimpleNamespace(
        create=create_dataset,
        DatasetID=ids.DatasetID,
        FILL_TIME_ALLOC=0, FILL_TIME_NEVER=1, FILL_TIME_IFSET=2,
    ),
    "h5ds": SimpleNamespace(
        set_scale=lambda dset, name=b"": wrap(dset).make_scale(name),
        is_scale=lambda dset: wrap(dset).is_scale,
        get_scale_name=lambda dset: dset.node.scale.encode(),
        attach_scale=lambda dset, scale, axis: wrap(dset).dims[axis].attach_scale(wrap(scale)),
        detach_scale=lambda dset, scale, axis: wrap(dset).dims[axis].detach_scale(wrap(scale)),
        is_attached=attached,
        get_num_scales=lambda dset, axis: len(wrap(dset).dims[axis]),
        set_label=set_label,
        get_label=lambda dset, axis: wrap(dset).dims[axis].label.encode(),
        iterate=iterate,
    ),
    "h5g": SimpleNamespace(get_objinfo=objinfo),
    "h5s": SimpleNamespace(NULL="null", SCALAR="scalar", UNLIMITED=pnc_vol.UNLIMITED, create=create_space),
    "h5t": SimpleNamespace(
        ARRAY="array", CSET_ASCII=CSET_ASCII, CSET_UTF8=CSET_UTF8, ORDER_LE=0, ORDER_BE=1,
        TypeID=TypeID, TypeStringID=TypeStringID, TypeOpaqueID=TypeOpaqueID,
        C_S1=TypeStringID("S1"), py_create=py_create, vlen_dtype=vlen_dtype,
        **{name: getattr(pnc_vol, name) for name in pnc_vol.__all__ if name.startswith("check_")},
    ),
    "h5z": SimpleNamespace(filter_avail=lambda code: code in FILTERS.values(), **FILTERS),
    "_hl.base": SimpleNamespace(
        product=lambda numbers: int(np.prod(list(numbers), dtype=object)),
        is_empty_dataspace=lambda oid: oid.shape is None,
    ),
    "_hl.compat": SimpleNamespace(filename_encode=os.fsencode, filename_decode=os.fsdecode),
    "_hl.files": SimpleNamespace(direct_vfd=False),
    "_hl.vds": SimpleNamespace(vds_support=True),
    "_objects": SimpleNamespace(phil=threading.RLock()),
    "h5py_warnings": SimpleNamespace(H5pyDeprecationWarning=DeprecationWarning),
}  # fmt: skip


def _reference(name: str) -> Any:
    return getattr(pnc_vol, name)


MODULES["h5r"] = SimpleNamespace(Reference=_reference("Reference"), RegionReference=_reference("RegionReference"))
