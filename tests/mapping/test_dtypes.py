"""Elements and values: h5py's datasets are the oracle for what is stored and what is refused; and h5py's own types."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import RangeError

ENUM = h5py.enum_dtype({"R": 0, "G": 1}, "i1")
DTYPES: list[Any] = [
    "i1", "u1", "<i2", ">i2", "i4", ">i4", "u8", "f4", "f8", ">f8", "f2", ">f2", bool, "c8", "c16", ">c8", "S1", "S5",
    h5py.string_dtype("ascii", 5), h5py.string_dtype("utf-8", 5), h5py.string_dtype(), h5py.string_dtype("ascii"),
    ENUM, h5py.enum_dtype({"a": 1}, ">i2"),
]  # fmt: skip
VALUES: list[Any] = [
    "hi", "é", "toolonger", b"hi", b"toolonger", b"h\0i", "h\0i", b"hi\0", b"\xff", "\udcff", "ééé", np.bytes_("x"),
    np.str_("x"), 1, 1.5, 1j, True, None, 2, -1, "1", ["a", "b"], [b"a", "b"], np.array(["a", "b"]),
    np.array(["a", 1], object), [1, 2], [0, 1], np.array([None, "a"], object), np.array("é"), bytearray(b"ab"),
    np.array(["toolonger", "é"]), np.array([1.0, 2.0]), np.array([0, 2], "i1"), np.array([0, 1], ">u8"), [None, None],
    [True, False], np.array([b"1", b"2"]),
]  # fmt: skip


def wider_than_h5py(dtype: np.dtype, value: Any) -> bool:
    """Converters that HDF5 lacks, where the meaning is clear: texts into fixed-length strings, reals into complex."""
    if dtype.kind == "S" and (dtype.itemsize > 1 or dtype.metadata):
        return isinstance(value, np.ndarray) and value.dtype.kind in "SO"
    return dtype.kind == "c"


@pytest.fixture(scope="module")
def file() -> Iterator[h5py.File]:
    with h5py.File("oracle", "w", driver="core", backing_store=False) as opened:
        yield opened


def stored(dtype: Any, value: Any) -> Any:
    """What a dataset of two elements holds after the file was closed and opened again, and its type."""
    target = io.BytesIO()
    with pnc_vol.File(target, "w") as f:
        f.create_dataset("x", (2,), dtype)[()] = value
    with pnc_vol.File(target) as f:
        return f["x"][()], f["x"].dtype


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_values_as_h5py(file: h5py.File, dtype: Any) -> None:
    for value in VALUES:
        dataset = file.create_dataset(f"{len(file)}", (2,), dtype=dtype)
        try:
            dataset[()] = value
            theirs = dataset[()]
        except Exception as error:
            if not wider_than_h5py(dataset.dtype, value):
                with pytest.raises((type(error), RangeError)):
                    stored(dtype, value)
            continue
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and "enum" in (dataset.dtype.metadata or {}):
            continue  # HDF5 clips and maps
        try:
            ours, found = stored(dtype, value)
        except RangeError:
            continue  # HDF5 stores another value without a word
        assert repr(ours) == repr(theirs), value
        for mine, its in ((ours.dtype, theirs.dtype), (found, dataset.dtype)):
            assert (mine, dict(mine.metadata or {})) == (its, dict(its.metadata or {}))


@pytest.mark.parametrize("dtype", ["U5", "O", "M8[s]", "m8[s]", object, str, "S0", "S", np.dtype("U")], ids=repr)
def test_types_that_hdf5_lacks_are_refused_as_h5py_does(file: h5py.File, dtype: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        file.create_dataset(f"r{len(file)}", (2,), dtype=dtype)
    with pnc_vol.File("x.nc", "w", driver="memory") as f, pytest.raises(theirs.type):
        f.create_dataset("x", (2,), dtype=dtype)


@pytest.mark.skipif(
    not hasattr(np, "dtypes") or not hasattr(np.dtypes, "StringDType"), reason="numpy 2 has StringDType"
)
def test_numpy_strings() -> None:
    values = np.array(["a", "éé"], np.dtypes.StringDType())
    assert stored(h5py.string_dtype(), values)[0].tolist() == [b"a", "éé".encode()]
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        f["x"] = values
        assert f["x"].dtype.metadata == {"vlen": str}


def test_what_float16_cannot_hold(tmp_path: Any) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        x = f.create_dataset("x", (2,), "f2")
        with pytest.raises(RangeError):
            x[...] = [1e6, 1]
        x[...] = [1e4, 1.5]
    # as another program may write it: infinity, without a warning
    content = path.read_bytes()
    large, too_large = (np.array([value], ">f4").tobytes() for value in (1e4, 1e10))
    assert content.count(large) == 1
    path.write_bytes(content.replace(large, too_large))
    with pnc_vol.File(path) as f:
        assert f["x"][...].tolist() == [np.inf, 1.5]


# ------------------------------------------------------------------------------------------- h5py's special types

CALLS = """
string_dtype() | string_dtype('ascii') | string_dtype('utf8', 3) | string_dtype('utf-8', 0) | string_dtype('latin')
string_dtype('nonsense') | string_dtype('utf-8', 'a') | string_dtype('utf-8', np.int64(3)) | string_dtype('utf-8', -1)
enum_dtype({'a': 1}) | enum_dtype({'a': 1}, 'i2') | enum_dtype({'a': 1}, 'f4') | enum_dtype({'a': 1}, bool)
vlen_dtype('i4') | vlen_dtype(str) | special_dtype(vlen=str) | special_dtype(vlen=bytes) | special_dtype(vlen='i4')
special_dtype(enum=('i1', {'a': 1})) | special_dtype(enum=3) | special_dtype() | special_dtype(vlen=str, enum=1)
special_dtype(foo=1) | check_dtype() | check_dtype(foo=np.dtype('i4')) | check_dtype(vlen=np.dtype('i4'))
check_dtype(vlen='i4') | check_dtype(ref=h5py.ref_dtype) | check_dtype(vlen=h5py.string_dtype())
check_dtype(enum=h5py.enum_dtype({'a': 1})) | check_string_dtype(np.dtype('S3')) | check_string_dtype('S3')
check_string_dtype(h5py.string_dtype('utf-8', 3)) | check_string_dtype(h5py.string_dtype('ascii'))
check_string_dtype(np.dtype('O')) | check_string_dtype(np.dtype('U3')) | check_string_dtype(np.dtype('i4'))
check_enum_dtype(np.dtype('i4')) | check_enum_dtype('i4') | check_enum_dtype(h5py.enum_dtype({'a': 1}))
check_vlen_dtype(h5py.vlen_dtype('i4')) | check_vlen_dtype(np.dtype('O')) | check_ref_dtype(h5py.ref_dtype)
check_ref_dtype(np.dtype('O')) | check_opaque_dtype(np.dtype('M8[s]')) | check_opaque_dtype(h5py.opaque_dtype('M8[s]'))
check_complex_dtype(np.dtype('c8')) | check_complex_dtype(np.dtype([('r', 'f4'), ('i', 'f4')]))
check_complex_dtype(np.dtype('f4')) | Empty('f4').shape | Empty('f4').size | Empty('f4') == Empty('f4')
Empty('f4') == Empty('f8') | Empty('f4') == 3 | repr(Empty('S3')) | hash(Empty('f4')) | Empty('nonsense')
opaque_dtype(np.dtype('O')) | opaque_dtype(np.dtype('i4,f4')) | opaque_dtype(np.dtype('V0'))
opaque_dtype(np.dtype('(2,)i4'))
"""
NAMES = [name for name in dir(pnc_vol) if name.endswith("dtype") or name == "Empty"]


def outcome(module: Any, call: str) -> tuple[Any, ...]:
    names = {name: getattr(module, name, None) for name in NAMES}
    try:
        found = eval(call, {"np": np, "h5py": h5py, **names})
    except Exception as error:
        # what numpy and Python themselves say may differ
        return type(error), "" if isinstance(error, AttributeError) or "opaque" in call else str(error)
    # dtypes compare without their metadata
    return found, repr(found), dict(getattr(found, "metadata", None) or {})


@pytest.mark.parametrize("call", [call.strip() for call in CALLS.replace("\n", "|").split("|") if call.strip()])
def test_special_types_as_h5py(call: str) -> None:
    assert outcome(pnc_vol, call) == outcome(h5py, call)


def test_dtypes_of_one_library_work_in_the_other() -> None:
    for how in ((), ("ascii",), ("utf-8", 4)):
        dtype = pnc_vol.string_dtype(*how)
        assert h5py.check_string_dtype(dtype) == pnc_vol.check_string_dtype(dtype)
    assert h5py.check_enum_dtype(pnc_vol.enum_dtype({"a": 1})) == {"a": 1}
    assert pnc_vol.Empty("f4") == h5py.Empty("f4")
    assert pnc_vol.check_opaque_dtype(pnc_vol.opaque_dtype("M8[s]"))
    assert pnc_vol.check_ref_dtype(pnc_vol.special_dtype(ref=pnc_vol.Reference)) is pnc_vol.Reference
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        f["empty"] = h5py.Empty("f4")
        assert f["empty"].shape is None


@pytest.mark.parametrize("dtype", ["c8", "c16", ">c16", "<c8"])
def test_complex_types_as_compounds(dtype: str) -> None:
    assert pnc_vol.complex_compat_dtype(dtype) == h5py.complex_compat_dtype(dtype)
    assert pnc_vol.check_complex_dtype(pnc_vol.complex_compat_dtype(dtype)) == np.dtype(dtype)
