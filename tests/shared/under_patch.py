"""Programs written for h5py, with `pnc_vol.patch`: each is the work of a new interpreter (`fresh`).

Knows: nothing that is loaded before they begin; so this module imports neither h5py nor pnc_vol.
"""

from __future__ import annotations

import os
import sys

import pytest


def replaced(path: str) -> None:
    """h5py and its modules are this package's until the end of the patch."""
    import pnc_vol

    undo = pnc_vol.patch()
    import importlib.util

    import h5py
    import h5py._hl.base
    import h5py._hl.dataset
    import h5py.version
    from h5py import h5s
    from h5py._hl.dataset import AsStrView

    assert h5py._hl.dataset.Dataset is pnc_vol.Dataset
    assert h5py._hl.files.File is h5py.File is pnc_vol.File
    assert h5py.__version__ == h5py.version.version != pnc_vol.__version__
    assert all(getattr(h5py, n) is getattr(pnc_vol, n) for n in pnc_vol.__all__ if n != "__version__")
    assert h5py.Datatype is pnc_vol.Datatype
    assert {"File", "Datatype"} <= set(dir(h5py))
    for name in ("h5py", "h5py._hl", "h5py._hl.files", "h5py.h5s"):
        assert importlib.util.find_spec(name).name == name
    with pytest.raises(AttributeError, match="no_such_name"):
        h5py.no_such_name  # noqa: B018
    pnc_vol.patch().undo()
    assert sys.modules["h5py"] is h5py
    assert h5s.UNLIMITED == h5py.UNLIMITED
    assert h5py._hl.base.is_hdf5 is pnc_vol.is_hdf5
    with h5py.File(path, "w") as f:
        f["x"] = ["a"]
        assert isinstance(f["x"].asstr(), AsStrView)
    undo.undo()
    assert not [name for name in sys.modules if name.partition(".")[0] == "h5py"]
    assert "_hl" not in vars(pnc_vol)
    with pnc_vol.patch():
        import h5py

        assert h5py.File is pnc_vol.File
    import h5py

    assert h5py.File is not pnc_vol.File


def the_real_one() -> None:
    """It is replaced only if the program says so."""
    import h5py as real

    import pnc_vol

    with pytest.raises(RuntimeError, match="imported already"):
        pnc_vol.patch()
    with pnc_vol.patch(force=True):
        import h5py

        assert h5py.File is pnc_vol.File
    import h5py

    assert h5py is real
    assert sys.modules["h5py._hl.files"].File is real.File


def imports() -> None:
    """What programs import."""
    import pnc_vol

    pnc_vol.patch()
    import importlib.util

    import h5py._errors
    import h5py.h5a
    import h5py.h5p
    import h5py.h5z
    from h5py import h5, h5f, h5r, h5s, h5t  # noqa: F401
    from h5py._hl import dataset, group  # noqa: F401
    from h5py._hl.base import HLObject, phil, with_phil  # noqa: F401
    from h5py._hl.files import File
    from h5py._hl.filters import guess_chunk  # noqa: F401
    from h5py._objects import ObjectID

    assert importlib.util.find_spec("h5py.h5t") is not None
    assert h5py.h5t is h5t
    assert h5py._hl.dataset is dataset
    assert issubclass(h5py.h5d.DatasetID, ObjectID)
    assert issubclass(File, HLObject)
    try:
        from h5py.h5t import py_create  # noqa: F401
    except ImportError:
        print("refused")


def reads_hdf5(folder: str) -> None:
    """A script that reads HDF5, and writes NetCDF."""
    os.chdir(folder)
    import pnc_vol

    undo = pnc_vol.patch()
    import h5py

    assert h5py.File is pnc_vol.File
    with h5py.File("in.h5", "r") as source, h5py.File("out.nc", "w") as f:
        assert isinstance(source, h5py.File)
        assert isinstance(source["g/x"], h5py.Dataset)
        f["x"] = source["g/x"][()] * 2
        f["x"].attrs.update({"units": "m"})
        # What h5py's own functions import when they run.
        assert source["g/x"].parent == source["g"]
        assert source["g/x"].file == source
        assert source[source["g"].attrs["to"]].dims[0].keys() == ["time"]
        found = []
        source.visititems(lambda name, thing: found.append((name, isinstance(thing, h5py.Group))))
        print(found[0], sorted(source["g"].attrs))
        layout = h5py.VirtualLayout((5,), "f4")
        layout[:] = h5py.VirtualSource(source["g/x"])
        f.create_virtual_dataset("v", layout)
    with h5py.File("out.nc") as f:
        print(type(f).__module__, f["x"][1], f["v"][()].tolist())
    try:
        h5py.File("in.h5", "r+")
    except OSError as error:
        print("convert" in str(error))
    undo.undo()
    import h5py

    print(h5py.File("in.h5")["g/x"].file, h5py.File.__module__)


def copies_from_hdf5(folder: str) -> None:
    """`copy` is called on what h5py has opened."""
    os.chdir(folder)
    import pnc_vol

    undo = pnc_vol.patch()
    import h5py

    with h5py.File("in.h5") as source, h5py.File("out.nc", "w") as f:
        source.copy("g/x", f)
        source.copy(source["g/x"], f, "again", without_attrs=True)
        source["g"].copy("text", f)
        source.copy("g", f, without_attrs=True)
        found: list[str] = []
        f.visit(found.append)
        print(found, f["g/x"][:].tolist())
    undo.undo()
    import h5py

    with h5py.File("in.h5") as source, h5py.File("out.h5", "w") as f:
        source["g"].copy("text", f)
        print(list(f))


def with_the_real_one(folder: str) -> None:
    """h5py was imported before."""
    os.chdir(folder)
    import h5py as real

    import pnc_vol

    copy = real.Group.copy
    with pnc_vol.patch(force=True):
        import h5py

        with h5py.File("in.h5") as f:
            print(type(f) is real.File, f["g/x"].attrs["units"], f["g/x"].parent.name)
    import h5py

    print(h5py is real, real.File("in.h5")["g/x"].attrs["units"], real.Group.copy is copy)


def without_h5py(folder: str) -> None:
    """h5py is not installed."""
    os.chdir(folder)
    sys.modules["h5py"] = None  # type: ignore[assignment]
    import pnc_vol

    try:
        pnc_vol.File("in.h5", hdf5="pass")
    except ImportError as error:
        print(error)
    with pnc_vol.File("out.nc", "w") as f:
        f["there"] = pnc_vol.ExternalLink("in.h5", "/g/x")
        try:
            f["there"]
        except KeyError as error:
            print(error)
