"""References for zarr: read back by the rules of zarr's format, in a few lines that know nothing of NetCDF."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import pnc_vol
from pnc_vol.convert import zarr_refs


def array(refs: dict[str, Any], name: str) -> Any:
    """An array by zarr's specification, version 2; chunks without a reference are 99."""
    meta = json.loads(refs[f"{name}/.zarray"])
    assert (meta["compressor"], meta["filters"], meta["order"]) == (None, None, "C")
    shape, chunks = meta["shape"], meta["chunks"]
    out = np.full(shape, 99, "u1").astype(meta["dtype"])
    for place in itertools.product(*(range(-(-n // c)) for n, c in zip(shape, chunks, strict=True))):
        found = refs.get(f"{name}/{'.'.join(map(str, place)) or '0'}")
        if found is None:
            continue
        if isinstance(found, str):
            raw = base64.b64decode(found.removeprefix("base64:"))
        else:
            url, first, nbytes = found
            raw = Path(url).read_bytes()[first : first + nbytes]
        part = np.frombuffer(raw, meta["dtype"]).reshape(chunks)
        into = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(place, chunks, shape, strict=True))
        out[into] = part[tuple(slice(s.stop - s.start) for s in into)]
    return out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a.nc"
    rng = np.random.default_rng(0)
    with pnc_vol.File(made, "w") as f:
        f["whole"] = rng.integers(-100, 100, (30, 17), "i2")
        f["scalar"] = 2.5
        f["names"] = ["one", "three"]
        for name, dtype in (("r1", "i1"), ("r2", "f8"), ("r3", "u4")):
            r = f.create_dataset(name, (7, 3), dtype, maxshape=(None, 3), fillvalue=9)
            r[...] = rng.integers(0, 100, (7, 3))
        f["g/h/deep"] = np.arange(5, dtype="u8")
        f["g"].attrs["title"] = "group"
        f["whole"].attrs["limits"] = [1.5, np.inf]
        f["pairs"] = np.array([(1, 2.0), (3, 4.0)], [("x", "i4"), ("y", "f8")])
    return made


@pytest.mark.parametrize(("inline", "chunk"), [(0, 200), (1 << 20, 1 << 20), (50, 35)])
def test_arrays_are_those_of_the_file(path: Path, inline: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_refs, "CHUNK", chunk)
    refs = zarr_refs.references(path, inline=inline)
    with pnc_vol.File(path) as f:
        for name in ("whole", "scalar", "r1", "r2", "r3", "g/h/deep"):
            got, wanted = array(refs, name), f[name][...]
            assert (got == wanted).all()
            assert got.dtype == np.asarray(wanted).dtype.newbyteorder(">")
        assert array(refs, "names").tolist() == [[b"o", b"n", b"e", b"", b""], [b"t", b"h", b"r", b"e", b"e"]]
        assert array(refs, "pairs_y").tolist() == [2, 4]
    assert json.loads(refs["r2/.zattrs"])["_ARRAY_DIMENSIONS"][1] == "dim_3"
    assert json.loads(refs["r2/.zarray"])["fill_value"] == 9
    assert json.loads(refs["g/.zattrs"]) == {"title": "group"}
    assert json.loads(refs["whole/.zattrs"])["limits"] == [1.5, float("inf")]
    below = json.loads(refs["g/.zmetadata"])["metadata"]
    assert set(below) == {".zgroup", ".zattrs", "h/.zgroup", "h/.zattrs", "h/deep/.zarray", "h/deep/.zattrs"}
    assert not [key for key in refs if "_PncVol" in str(refs[key])]
    if chunk == 200:
        assert len([key for key in refs if key.startswith("whole/") and "." not in key[6:7]]) == 6, "5 rows each"
        assert len([key for key in refs if key.startswith("r1/") and "." not in key[3:4]]) == 7


def test_one_record_variable_without_padding_and_a_file_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "one.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("r", data=np.arange(15, dtype="i1").reshape(5, 3), maxshape=(None, 3))
    assert array(zarr_refs.references(path, inline=0), "r").tolist() == np.arange(15).reshape(5, 3).tolist()
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.warns(pnc_vol.errors.ShortFileWarning):
        cut = array(zarr_refs.references(path, inline=0), "r")
    assert cut[-2:].tolist() == [[99] * 3] * 2
    assert cut[2].tolist() == [6, 7, 8]


def test_written_files_and_what_is_refused(path: Path, tmp_path: Path, server: Any) -> None:
    target = tmp_path / "refs.json"
    written = zarr_refs.write_references(str(path), str(target), url="s3://bucket/a.nc")
    told = json.loads(target.read_text())
    assert told["version"] == 1
    assert len(told["refs"]) == written
    assert told["refs"]["scalar/0"][0] == "s3://bucket/a.nc"
    with pytest.raises(FileExistsError):
        zarr_refs.write_references(str(path), str(target))
    assert zarr_refs.write_references(str(path), str(target), overwrite=True) == written
    far = zarr_refs.references(f"{server.url}/a.nc")
    assert far["scalar/0"] == [f"{server.url}/a.nc", *zarr_refs.references(path)["scalar/0"][1:]]
    with pnc_vol.File(tmp_path / "set.nc", "w", layout="blob") as f:
        f["x"] = np.arange(4)
    with pytest.raises(ValueError, match=r"layout.*one file"):
        zarr_refs.references(tmp_path / "set.nc")


def test_attributes_are_without_the_nuls_that_c_programs_write(tmp_path: Path) -> None:
    made = tmp_path / "a.nc"
    with pnc_vol.File(made, "w") as f:
        f["x"] = 1
    with netCDF4.Dataset(made, "a") as f:
        f["x"].units, f["x"].long_name = "K\0", ""
    found = json.loads(zarr_refs.references(made)["x/.zattrs"])
    assert (found["units"], found["long_name"]) == ("K", "")
