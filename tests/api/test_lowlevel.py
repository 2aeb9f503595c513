"""Names of h5py's low-level modules that programs read, against h5py itself; and what ``ds.id`` tells."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
from typing import Any

import h5py
import numpy as np
import pytest
import under_patch
from other_process import fresh

import pnc_vol

TRUE_OF_BOTH = {
    # the HDF5 release: h5py's own library, ours stands for 1.14
    ("h5", "get_libversion"), ("h5f", "LIBVER_LATEST"),
}  # fmt: skip


def test_every_number_of_h5py_is_there_and_the_same() -> None:
    different = []
    for module in pkgutil.iter_modules(h5py.__path__):
        if module.name.startswith("h5") and module.name != "h5py_warnings":
            theirs, ours = vars(importlib.import_module(f"h5py.{module.name}")), getattr(pnc_vol, module.name, None)
            for key, value in theirs.items():
                if type(value) is not int or key.startswith("_") or (module.name, key) in TRUE_OF_BOTH:
                    continue
                if getattr(ours, key, None) != value:
                    different.append(f"{module.name}.{key}")
    assert different == []
    assert pnc_vol.h5z.SZIP_EC_OPTION_MASK == h5py.h5z.SZIP_EC_OPTION_MASK


def test_as_attributes_of_the_package() -> None:
    assert pnc_vol.h5t.check_string_dtype is pnc_vol.check_string_dtype
    assert pnc_vol.h5.get_libversion() >= (1, 10, 0)
    assert pnc_vol.h5z.filter_avail(pnc_vol.h5z.FILTER_DEFLATE)
    assert not pnc_vol.h5z.filter_avail(200)
    assert pnc_vol.h5f.UNLIMITED == h5py.h5f.UNLIMITED
    assert pnc_vol.h5r.Reference is pnc_vol.Reference
    assert pnc_vol._hl.group.Group is pnc_vol.Group
    assert pnc_vol._hl.dataset.Dataset is pnc_vol.Dataset
    pnc_vol._errors.silence_errors()
    with pytest.raises(AttributeError, match="only what is read is here"):
        pnc_vol.h5d.create  # noqa: B018
    with pytest.raises(AttributeError):
        pnc_vol.h5ac  # noqa: B018


def test_what_programs_import_under_patch() -> None:
    done = fresh(under_patch.imports)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused\n"


KINDS: dict[str, Any] = {
    "i4": "i4", "f8": "f8", "big": ">i2", "bool": "?", "complex": "c16", "bytes": "S5", "text": "text",
    "fixed": "fixed", "enum": "enum", "compound": [("a", "i4"), ("b", "f4")], "rows": "rows",
    "array": ("i4", (2,)), "ref": "ref",
}  # fmt: skip


def kind(module: Any, name: str) -> Any:
    made = {
        "text": module.string_dtype(), "fixed": module.string_dtype("ascii", 5), "rows": module.vlen_dtype("i4"),
        "enum": module.enum_dtype({"a": 0, "b": 1}, "i1"), "ref": module.special_dtype(ref=module.Reference),
    }  # fmt: skip
    said = KINDS[name]
    return made[said] if isinstance(said, str) and said in made else np.dtype(said)


@pytest.mark.parametrize("name", KINDS)
def test_types_spaces_and_properties_say_what_h5pys_say(tmp_path: pathlib.Path, name: str) -> None:
    told = []
    for module in (h5py, pnc_vol):
        with module.File(tmp_path / f"{module.__name__}.x", "w") as f:
            ds = f.create_dataset("x", (3, 2), kind(module, name), maxshape=(None, 2))
            one, oid = f.create_dataset("one", (), kind(module, name)), ds.id
            found, space, plist = oid.get_type(), oid.get_space(), oid.get_create_plist()
            told.append((
                found.get_class() if name != "complex" else 0,
                found.get_size() if name not in ("text", "rows", "ref") else 0,
                found.dtype.str, found.equal(one.id.get_type()),
                oid.shape, oid.dtype.str, oid.rank, space.get_simple_extent_dims(), space.get_simple_extent_ndims(),
                space.get_simple_extent_npoints(), one.id.get_space().get_simple_extent_type(),
                plist.get_layout() == module.h5d.CHUNKED, len(plist.get_chunk()),
                one.id.get_create_plist().get_layout(),
                plist.get_nfilters(), plist.get_external_count(), isinstance(oid.id, int), type(oid).__name__,
                (found.get_cset(), found.is_variable_str()) if name in ("text", "fixed", "bytes") else None,
            ))  # fmt: skip
    assert told[0] == told[1]


def test_where_and_how_large(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        x, r = f.create_dataset("x", data=np.arange(10.0)), f.create_dataset("r", (3,), "i4", maxshape=(None,))
        c = f.create_dataset("c", (4,), np.dtype([("a", "i2"), ("b", "f8")]))
        e = f.create_dataset("e", data=pnc_vol.Empty("f4"))
        assert x.id.get_offset() is None
        f.flush()
        assert [ds.id.get_storage_size() for ds in (x, r, c, e)] == [80, 12, 40, 0]
        at = x.id.get_offset()
        assert r.id.get_offset() is None
        with pytest.raises(NotImplementedError, match=r"'/x' has no chunks.*get_offset\(\)"):
            x.id.get_chunk_info(0)
        assert x.id.get_num_chunks() == 0
        assert x.id.id == f["x"].id.id != r.id.id
        assert f.id.name == str(tmp_path / "x.nc").encode()
        assert f.create_group("t", track_order=True).id.get_create_plist().get_link_creation_order() == 3
        assert f.create_group("u").id.get_create_plist().get_attr_creation_order() == 0
        x.attrs["a"] = "text"
        assert x.attrs.get_id("a").get_type().get_class() == pnc_vol.h5t.STRING
    values = np.frombuffer((tmp_path / "x.nc").read_bytes()[at : at + 80], ">f8")
    assert values.tolist() == list(range(10))


def test_as_keras_asks_before_it_reads_weights(tmp_path: pathlib.Path) -> None:
    """Keras 3 compares what a dataset claims with what is stored for it, and refuses what would expand too far."""
    with pnc_vol.File(tmp_path / "m.weights.h5", "w") as f:
        f.create_dataset("layers/dense/vars/0", data=np.ones((4, 8), "f4"), compression="gzip")
    with pnc_vol.File(tmp_path / "m.weights.h5") as f:
        ds = f["layers/dense/vars/0"]
        assert not ds.external
        assert not ds.is_virtual
        assert np.prod(ds.shape) * ds.dtype.itemsize <= ds.id.get_storage_size()
