"""What h5py has beside its classes, and `patch`."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

import h5py
import numpy as np
import pytest
import under_patch
from other_process import fresh

import pnc_vol
from pnc_vol.errors import NotYetError


def test_is_hdf5(impl: Any, tmp_path: pathlib.Path) -> None:
    with impl.open("w") as f:
        f["x"] = 1
    is_hdf5 = impl.h5.is_hdf5
    assert is_hdf5(impl.path)
    assert is_hdf5(impl.path.encode())
    assert is_hdf5(pathlib.Path(impl.path))
    assert not is_hdf5(tmp_path)
    assert not is_hdf5(tmp_path / "none")
    (tmp_path / "text").write_text("abc")
    (tmp_path / "empty").write_text("")
    assert not is_hdf5(tmp_path / "text")
    assert not is_hdf5(tmp_path / "empty")
    with pytest.raises(TypeError):
        is_hdf5(3)


def test_is_hdf5_knows_both_formats(tmp_path: pathlib.Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as f:
        f["x"] = 1
    assert pnc_vol.is_hdf5(tmp_path / "x.h5")
    (tmp_path / "x").write_bytes(b"CDF\3" + bytes(100))
    assert not pnc_vol.is_hdf5(tmp_path / "x")


def test_config(impl: Any) -> None:
    config = impl.h5.get_config()
    assert config is impl.h5.get_config()
    assert config.complex_names == ("r", "i")
    assert config.bool_names == (b"FALSE", b"TRUE")
    assert config.track_order is False
    assert not config.ros3
    assert not config.direct_vfd
    with pytest.raises(TypeError):
        config.complex_names = 3
    config.complex_names = ("re", "im")
    assert config.complex_names == ("re", "im")
    config.complex_names = ("r", "i")


def asked_for_mpi() -> None:
    print(pnc_vol.get_config().mpi, "mpi4py" in sys.modules)


def test_mpi_is_found_without_being_imported() -> None:
    assert fresh(asked_for_mpi).stdout.split() == [str(importlib.util.find_spec("mpi4py") is not None), "False"]


def test_version(impl: Any) -> None:
    version = impl.h5.version
    assert version.version_tuple.major == 3
    assert version.version_tuple[:2] >= (3, 10)
    assert version.hdf5_version_tuple >= (1, 14, 0)
    assert version.version.startswith("3.")
    assert "numpy" in version.info
    assert impl.h5.__version__


def test_names_of_h5py_are_here() -> None:
    ours, theirs = set(dir(pnc_vol)), set(h5py.__dict__)
    public = {name for name in theirs if name[:1].isalpha() and not isinstance(getattr(h5py, name), type(sys))}
    missing = public - ours - {"complex_compat_dtype", "enable_ipython_completer", "run_tests"}
    assert not missing
    assert pnc_vol.UNLIMITED == h5py.UNLIMITED
    for name in pnc_vol.__all__:
        assert hasattr(pnc_vol, name)
    with pytest.raises(AttributeError):
        _ = pnc_vol.no_such_name


def test_drivers_of_hdf5_are_noted_and_refused() -> None:
    pnc_vol.register_driver("mine", None)
    assert "mine" in pnc_vol.registered_drivers()
    with pytest.raises(NotYetError, match="HDF5"):
        pnc_vol.File("x.nc", "w", driver="mine")
    pnc_vol.unregister_driver("mine")
    with pytest.raises(ValueError, match=r"^Unknown driver type 'mine'$"):
        pnc_vol.File("x.nc", "w", driver="mine")
    assert pnc_vol.check_ref_dtype(pnc_vol.ref_dtype) is pnc_vol.Reference
    assert {"sec2", "mpio", "core", "posix"} <= pnc_vol.registered_drivers()


def test_filters(impl: Any) -> None:
    filters = impl.h5.filters
    assert filters.Gzip(3) == filters.Gzip(3) != filters.Gzip(4)
    assert dict(filters.Gzip(3)) == {"compression": 1, "compression_opts": (3,)}
    assert hash(filters.Gzip(3)) == hash(filters.Gzip(3))
    with impl.open("w") as f:
        ds = f.create_dataset("x", (5,), "i4", compression=filters.Gzip(3))
        assert (ds.compression, ds.compression_opts) == ("gzip", 3)


def test_links(impl: Any) -> None:
    soft, external = impl.h5.SoftLink("/a"), impl.h5.ExternalLink("file", "/b")
    assert soft.path == "/a"
    assert repr(soft) == '<SoftLink to "/a">'
    assert (external.filename, external.path) == ("file", "/b")
    assert repr(external) == repr(h5py.ExternalLink("file", "/b"))
    impl.h5.HardLink()


def test_empty_and_special_types(impl: Any) -> None:
    assert impl.h5.Empty("f4") == impl.h5.Empty(np.float32)
    assert impl.h5.check_string_dtype(impl.h5.string_dtype("ascii", 3)) == ("ascii", 3)


def test_patch(tmp_path: pathlib.Path) -> None:
    done = fresh(under_patch.replaced, tmp_path / "x.nc")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.nc").read_bytes()[:3] == b"CDF"


def test_patch_refuses_to_replace_the_real_one() -> None:
    done = fresh(under_patch.the_real_one)
    assert done.returncode == 0, done.stderr
