"""h5py's special dtypes: the same results and the same errors as h5py's own functions."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest

from pnc_vol.mapping import special
from pnc_vol.mapping.references import Reference

CALLS = [
    "string_dtype()",
    "string_dtype('ascii')",
    "string_dtype('utf8', 3)",
    "string_dtype('utf-8', 0)",
    "string_dtype('latin')",
    "string_dtype('nonsense')",
    "string_dtype('utf-8', 'a')",
    "string_dtype('utf-8', np.int64(3))",
    "string_dtype('utf-8', -1)",
    "enum_dtype({'a': 1})",
    "enum_dtype({'a': 1}, 'i2')",
    "enum_dtype({'a': 1}, 'f4')",
    "enum_dtype({'a': 1}, bool)",
    "vlen_dtype('i4')",
    "vlen_dtype(str)",
    "special_dtype(vlen=str)",
    "special_dtype(vlen=bytes)",
    "special_dtype(vlen='i4')",
    "special_dtype(enum=('i1', {'a': 1}))",
    "special_dtype(enum=3)",
    "special_dtype()",
    "special_dtype(vlen=str, enum=1)",
    "special_dtype(foo=1)",
    "check_dtype()",
    "check_dtype(foo=np.dtype('i4'))",
    "check_dtype(vlen=np.dtype('i4'))",
    "check_dtype(vlen='i4')",
    "check_dtype(ref=h5py.ref_dtype)",
    "check_dtype(vlen=h5py.string_dtype())",
    "check_dtype(enum=h5py.enum_dtype({'a': 1}))",
    "check_string_dtype(np.dtype('S3'))",
    "check_string_dtype('S3')",
    "check_string_dtype(h5py.string_dtype('utf-8', 3))",
    "check_string_dtype(h5py.string_dtype('ascii'))",
    "check_string_dtype(np.dtype('O'))",
    "check_string_dtype(np.dtype('U3'))",
    "check_string_dtype(np.dtype('i4'))",
    "check_enum_dtype(np.dtype('i4'))",
    "check_enum_dtype('i4')",
    "check_enum_dtype(h5py.enum_dtype({'a': 1}))",
    "check_vlen_dtype(h5py.vlen_dtype('i4'))",
    "check_vlen_dtype(np.dtype('O'))",
    "check_ref_dtype(h5py.ref_dtype)",
    "check_ref_dtype(np.dtype('O'))",
    "check_opaque_dtype(np.dtype('M8[s]'))",
    "check_opaque_dtype(h5py.opaque_dtype('M8[s]'))",
    "check_complex_dtype(np.dtype('c8'))",
    "check_complex_dtype(np.dtype([('r', 'f4'), ('i', 'f4')]))",
    "check_complex_dtype(np.dtype('f4'))",
    "Empty('f4').shape",
    "Empty('f4').size",
    "Empty('f4') == Empty('f4')",
    "Empty('f4') == Empty('f8')",
    "Empty('f4') == 3",
    "repr(Empty('S3'))",
    "hash(Empty('f4'))",
    "Empty('nonsense')",
]


def outcome(module: Any, call: str) -> tuple[Any, ...]:
    names = {name: getattr(module, name, None) for name in special.__all__}
    try:
        found = eval(call, {"np": np, "h5py": h5py, **names})
    except Exception as error:
        # what numpy and Python themselves say may differ
        return type(error), "" if isinstance(error, AttributeError) else str(error)
    # dtypes compare without their metadata
    return found, repr(found), dict(getattr(found, "metadata", None) or {})


@pytest.mark.parametrize("call", CALLS)
def test_as_h5py(call: str) -> None:
    assert outcome(special, call) == outcome(h5py, call)


def test_dtypes_of_one_library_work_in_the_other() -> None:
    for dt in (special.string_dtype(), special.string_dtype("ascii"), special.string_dtype("utf-8", 4)):
        assert h5py.check_string_dtype(dt) == special.check_string_dtype(dt)
    assert h5py.check_enum_dtype(special.enum_dtype({"a": 1})) == {"a": 1}
    assert special.Empty("f4") == h5py.Empty("f4")
    assert special.is_empty(h5py.Empty("f4"))


def test_opaque_and_reference_types() -> None:
    assert special.check_opaque_dtype(special.opaque_dtype("M8[s]"))
    assert special.check_ref_dtype(special.special_dtype(ref=Reference)) is Reference
    for wrong in ("O", "i4,f4", "V0", "(2,)i4"):
        with pytest.raises(TypeError) as theirs:
            h5py.opaque_dtype(np.dtype(wrong))
        with pytest.raises(theirs.type):
            special.opaque_dtype(np.dtype(wrong))


@pytest.mark.parametrize("dtype", ["c8", "c16", ">c16", "<c8"])
def test_complex_types_as_compounds(dtype: str) -> None:
    assert special.complex_compat_dtype(dtype) == h5py.complex_compat_dtype(dtype)
    assert special.check_complex_dtype(special.complex_compat_dtype(dtype)) == np.dtype(dtype)
