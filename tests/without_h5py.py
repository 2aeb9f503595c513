"""``python tests/without_h5py.py NAME``: programs for a process in which h5py is not installed; see `test_optional`."""

from __future__ import annotations

import importlib
import runpy
import sys

if __name__ == "__main__":
    # the import of a module with None in its place is an ImportError
    sys.modules["h5py"] = None  # type: ignore[assignment]

import numpy as np
import pytest

import pnc_vol as h5py
from pnc_vol.convert.hdf5 import convert, open_either


def all_but_hdf5() -> None:
    for name in h5py.__all__:
        getattr(h5py, name)
    with h5py.File("all.nc", "w") as f:
        f["numbers"] = np.arange(4)
        f.create_dataset("texts", data=["a", "bc"], dtype=h5py.string_dtype())
        g = f.create_group("g")
        g.attrs["units"], g.attrs["levels"] = "m", [1, 2]
        g["point"] = np.zeros(3, [("x", "i4"), ("y", "f8")])
        g["reference"], g["region"] = f["numbers"].ref, f["numbers"].regionref[1:3]
        f.create_dataset("enum", data=[0, 1], dtype=h5py.enum_dtype({"NO": 0, "YES": 1}))
        f.create_dataset("ragged", (2,), dtype=h5py.vlen_dtype("i4"))[0] = [1, 2]
        f["bool"], f["complex"], f["opaque"], f["soft"] = True, 1j, np.void(b"12"), h5py.SoftLink("/numbers")
        f["record"] = h5py.Empty("f4")
        f["x"] = [0.5, 1]
        f["x"].make_scale("x")
    with h5py.File("all.nc") as f:
        assert f["numbers"][:].tolist() == f["soft"][:].tolist() == [0, 1, 2, 3]
        assert f["texts"].asstr()[:].tolist() == ["a", "bc"]
        assert dict(f["g"].attrs)["units"] == "m"
        assert f[f["g/reference"][()]] == f["numbers"]
        assert f["g/point"]["y"].tolist() == [0, 0, 0]
        assert f["ragged"][0].tolist() == [1, 2]
        assert h5py.check_enum_dtype(f["enum"].dtype) == {"NO": 0, "YES": 1}
    assert h5py.check("all.nc") == []
    assert h5py.repack("all.nc", "packed.nc").written
    with h5py.patch():
        patched = importlib.import_module("h5py")
        assert patched.File is h5py.File
        assert patched.h5t is importlib.import_module("h5py.h5t")
        assert patched.File("all.nc")["bool"][()]
    assert open_either("packed.nc")["x"].is_scale


def what_needs_h5py() -> None:
    with h5py.File("some.nc", "w") as f:
        f["x"] = 1
    with open("some.h5", "wb") as raw:
        raw.write(b"\x89HDF\r\n\x1a\n" + bytes(100))
    for act in (
        lambda: convert("some.h5", "out.nc"),
        lambda: convert("some.nc", "out.h5"),
        lambda: open_either("some.h5"),
    ):
        with pytest.raises(h5py.MissingPackageError) as caught:
            act()
        assert isinstance(caught.value, ImportError)
        print(caught.value)


def the_command() -> None:
    sys.argv[1:] = sys.argv[2:]
    runpy.run_module("pnc_vol.cli", run_name="__main__")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
