"""HDF5 files that are opened for reading as they are. What needs `patch` runs in a process of its own."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import under_patch
from other_process import fresh
from this_system import OFD

import pnc_vol
from pnc_vol.errors import MissingPackageError, NotCDFError, NotFoundError


@pytest.fixture
def path(tmp_path: Path) -> str:
    with h5py.File(tmp_path / "in.h5", "w") as f:
        f["g/x"] = np.arange(5.0)
        f["g/x"].attrs["units"] = "m"
        f["g"].attrs["names"] = ["a", "b"]
        f["g/text"] = ["one", "two"]
        f["t"] = np.arange(5)
        f["t"].make_scale("time")
        f["g/x"].dims[0].attach_scale(f["t"])
        f["hard"], f["soft"] = f["g/x"], h5py.SoftLink("/g/x")
        f["pairs"] = np.array([(1, 2.5), (3, 4.5)], [("n", "i4"), ("x", "f8")])
        f["none"], f["kind"] = h5py.Empty("f4"), np.dtype("f4")
        f["g"].attrs["to"] = f["g/x"].ref
    return str(tmp_path / "in.h5")


def test_what_comes_back_passes_for_ours(path: str) -> None:
    with pnc_vol.File(path, hdf5="pass") as f:
        assert type(f) is h5py.File
        assert isinstance(f, pnc_vol.File)
        assert isinstance(f, pnc_vol.Group)
        assert isinstance(f["g/x"], pnc_vol.Dataset)
        assert all(isinstance(one, pnc_vol.HLObject) for one in (f, f["g"], f["g/x"], f["kind"]))
        assert not isinstance(f["g"], pnc_vol.Dataset)
        assert isinstance(f["kind"], pnc_vol.Datatype)
        assert isinstance(f.get("soft", getlink=True), pnc_vol.SoftLink)
        assert isinstance(f["g"].attrs["to"], pnc_vol.Reference)
        assert f[f["g"].attrs["to"]] == f["g/x"]
    assert not f
    with open(path, "rb") as file, pnc_vol.File(file, hdf5="pass") as f:
        assert f["g/x"][2] == 2
    with pnc_vol.File(io.BytesIO(Path(path).read_bytes()), "r", hdf5="pass") as f:
        assert f["g/x"][2] == 2


def test_values_of_its_datasets_are_written(path: str, tmp_path: Path) -> None:
    with pnc_vol.File(path, hdf5="pass") as source, pnc_vol.File(tmp_path / "out.nc", "w") as f:
        f["x"] = source["g/x"]
        assert f["x"][()].tolist() == source["g/x"][()].tolist()


def _objects_of_h5py_before_any_other(path: str, target: str) -> None:
    with pnc_vol.File(target, "w") as f:
        f["soft"], f["out"] = h5py.SoftLink("/x"), h5py.ExternalLink(path, "/t")
        print(*(f.get(name, getlink=True) for name in ("soft", "out")), sep="\n")
    with h5py.File(path) as source, pnc_vol.File(target, "w") as f:
        f["x"], f["none"] = source["g/x"], source["none"]
        print(f["x"][:].tolist(), f["none"][()])
        with pytest.raises(RuntimeError, match="use copy"):
            f["g"] = source["g"]


def test_links_and_datasets_that_h5py_made_are_assigned(path: str, tmp_path: Path) -> None:
    done = fresh(_objects_of_h5py_before_any_other, path, tmp_path / "out")
    soft, out, *others = done.stdout.splitlines()
    assert soft == '<SoftLink to "/x">', done.stderr
    assert out.startswith('<ExternalLink to "/t" in file ')
    assert others == ["[0.0, 1.0, 2.0, 3.0, 4.0] Empty(dtype=dtype('float32'))"], done.stderr


def test_writing_one_and_a_subclass_stay_errors(path: str) -> None:
    class Mine(pnc_vol.File):
        pass

    for act in (
        lambda: pnc_vol.File(path),
        lambda: pnc_vol.File(path, hdf5="refuse"),
        lambda: pnc_vol.File(path, "r+", hdf5="pass"),
        lambda: pnc_vol.File(path, "a", hdf5="pass"),
        lambda: Mine(path, hdf5="pass"),
    ):
        with pytest.raises(NotCDFError, match="pnc-vol convert"):
            act()
    with pytest.raises(ValueError, match="hdf5"):
        pnc_vol.File(path, hdf5="maybe")


def test_one_that_is_cut_short_is_called_that(path: str) -> None:
    os.truncate(path, 3000)
    with pytest.raises(OSError, match=r"the HDF5 file is truncated: 3000 of \d+ bytes are there"):
        pnc_vol.File(path, hdf5="pass")


def test_a_file_of_ours_is_ours(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "ours", "w") as f:
        f["x"] = [1]
    with pnc_vol.File(tmp_path / "ours", hdf5="pass") as f:
        assert type(f) is pnc_vol.File
    (tmp_path / "none").write_bytes(b"nothing")
    with pytest.raises(NotCDFError):
        pnc_vol.File(tmp_path / "none", hdf5="pass")


def test_copies_come_into_ours(path: str, tmp_path: Path) -> None:
    with pnc_vol.File(path, hdf5="pass") as source, pnc_vol.File(tmp_path / "out", "w") as f:
        with pytest.warns(UserWarning, match="references .* were not copied: /g@to"):
            f.copy(source, f, "all")
        f.copy(source["g/x"], "x", without_attrs=True)
        f.copy(source["g/text"], f)
        with pytest.raises(RuntimeError, match="already exists"):
            f.copy(source["g/x"], "x")
        with pytest.raises(TypeError, match="HDF5 files are only read here"):
            f.copy("x", source)
    with pnc_vol.File(tmp_path / "out") as f:
        found = f["all"]
        assert sorted(found) == ["g", "hard", "kind", "none", "pairs", "soft", "t"]
        assert found["g/x"][()].tolist() == f["x"][()].tolist() == [0, 1, 2, 3, 4]
        assert found["g/x"].attrs["units"] == "m"
        assert list(f["x"].attrs) == []
        assert found["hard"] == found["g/x"]
        assert found.get("soft", getlink=True).path == "/g/x"
        assert found["g/x"].dims[0][0] == found["t"]
        assert found["t"].is_scale
        assert found["pairs"]["x"].tolist() == [2.5, 4.5]
        assert found["none"].shape is None
        assert found["g"].attrs["names"].tolist() == ["a", "b"]
        assert f["text"].asstr()[()].tolist() == ["one", "two"]


def _copy_of_one_that_h5py_opened(path: str, target: str) -> None:
    with h5py.File(path) as source, pnc_vol.File(target, "w") as f:
        f.copy(source["g"], "g", without_attrs=True)
        f.copy(source["g/x"], "x")
        print(f["g/x"][()].tolist(), f["x"][()].tolist())


def test_copies_come_from_a_file_that_h5py_itself_has_opened(path: str, tmp_path: Path) -> None:
    done = fresh(_copy_of_one_that_h5py_opened, path, tmp_path / "out")
    assert done.stdout.splitlines() == ["[0.0, 1.0, 2.0, 3.0, 4.0] [0.0, 1.0, 2.0, 3.0, 4.0]"], done.stderr


def test_links_into_it_are_expanded_by_a_copy(path: str, tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "out", "w") as f:
        f["links/x"], f["links/g"] = (pnc_vol.ExternalLink("in.h5", name) for name in ("/g/x", "/g"))
        f["links/own"] = [7]
        with pytest.warns(UserWarning, match="references .* were not copied: /g@to"):
            f.copy("links", "copies", expand_external=True)
    os.remove(path)
    with pnc_vol.File(tmp_path / "out") as f:
        found = f["copies"]
        assert found["x"][:].tolist() == found["g/x"][:].tolist() == [0, 1, 2, 3, 4]
        assert (found["x"].attrs["units"], found["own"][0]) == ("m", 7)
        assert found["g/text"].asstr()[:].tolist() == ["one", "two"]


def test_all_that_holds_references_is_left_out(path: str, tmp_path: Path) -> None:
    """Also fields of compounds, and rows."""
    pairs = np.dtype([("to", h5py.ref_dtype), ("n", "i4")])
    with h5py.File(path, "r+") as source:
        value = np.zeros(2, pairs)
        value["to"] = source["g/x"].ref
        source["g/pairs"], source["t"].attrs["pairs"] = value, value
        source.create_dataset("g/rows", (2,), h5py.vlen_dtype(h5py.ref_dtype))
    told = "not copied: /g@to, /g/pairs, /g/rows, /t@pairs; 'pnc-vol convert' keeps"
    with pnc_vol.File(path, hdf5="pass") as source, pnc_vol.File(tmp_path / "out", "w") as f, pytest.warns(match=told):
        f.copy(source, f, "all")
    with pnc_vol.File(tmp_path / "out") as f:
        assert sorted(f["all/g"]) == ["text", "x"]
        assert f["all/g/x"].attrs["units"] == "m"


def test_references_of_another_library_are_refused(path: str, tmp_path: Path) -> None:
    with pnc_vol.File(path, hdf5="pass") as source, pnc_vol.File(tmp_path / "out", "w") as f:
        f["x"] = np.zeros(5)
        given = source["g"].attrs["to"]
        pairs = np.array([(given, 1)], [("to", h5py.ref_dtype), ("n", "i4")])
        for value in (given, pairs, pairs[0]):
            with pytest.raises(TypeError, match="not a Reference of pnc_vol"):
                f.attrs["to"] = value
        for act in (lambda: f[given], lambda: f.get(given)):
            with pytest.raises(ValueError, match="it is of an HDF5 file"):
                act()
        with pytest.raises(TypeError, match=r'dataset of this file, not <HDF5 dataset "t"'):
            f["x"].dims[0].attach_scale(source["t"])
        assert dict(f.attrs) == {}


@pytest.mark.parametrize("ofd", [OFD, False])
def test_external_links_lead_into_it(monkeypatch: pytest.MonkeyPatch, path: str, tmp_path: Path, ofd: bool) -> None:
    """Also where files are locked by `flock`, as the HDF5 library does."""
    monkeypatch.setattr("pnc_vol.disk.locking._OFD", ofd)
    with pnc_vol.File(tmp_path / "out", "w") as f:
        f["there"] = pnc_vol.ExternalLink("in.h5", "/g/x")
        f["gone"] = pnc_vol.ExternalLink("in.h5", "/nothing")
        assert f["there"][1:3].tolist() == [1, 2]
        assert f.get("there", getclass=True) is pnc_vol.Dataset
        assert "there" in f
        with pytest.raises(KeyError):
            f["gone"]
        f.copy("there", "copy")
        assert f["copy"][()].tolist() == [0, 1, 2, 3, 4]


def run(program: Callable[[str], None], folder: Path) -> str:
    """What a program prints, in a process of its own."""
    done = fresh(program, folder)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def test_under_patch_a_script_reads_hdf5_and_writes_netcdf(path: str, tmp_path: Path) -> None:
    told = run(under_patch.reads_hdf5, tmp_path)
    assert told.splitlines() == [
        "('g', True) ['names', 'to']",
        "pnc_vol.api.file 2.0 [0.0, 1.0, 2.0, 3.0, 4.0]",
        "True",
        '<HDF5 file "in.h5" (mode r)> h5py._hl.files',
    ]


def test_under_patch_copy_of_h5pys_own_objects_comes_into_ours(path: str, tmp_path: Path) -> None:
    told = run(under_patch.copies_from_hdf5, tmp_path)
    assert told.splitlines() == ["['again', 'g', 'g/text', 'g/x', 'text', 'x'] [0.0, 1.0, 2.0, 3.0, 4.0]", "['text']"]


def test_an_h5py_that_was_imported_before_serves_as_well(path: str, tmp_path: Path) -> None:
    told = run(under_patch.with_the_real_one, tmp_path)
    assert told.splitlines() == ["True m /g", "True m True"]


def test_without_h5py_the_error_names_the_extra(path: str, tmp_path: Path) -> None:
    told = run(under_patch.without_h5py, tmp_path)
    assert told.count('pip install "pnc-vol[hdf5]"') == 2
    assert issubclass(MissingPackageError, ImportError)
    assert issubclass(NotFoundError, KeyError)


def test_the_signature_of_file_is_what_it_was() -> None:
    import inspect

    assert list(inspect.signature(pnc_vol.File).parameters)[:3] == ["name", "mode", "driver"]
