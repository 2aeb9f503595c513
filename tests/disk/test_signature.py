"""Kinds of files, as their own tools write them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pathlib
import zipfile

import h5py
import pytest

import pnc_vol
from pnc_vol.disk.signature import kind_of, says_what
from pnc_vol.system import REAL


def kind(path: pathlib.Path) -> str:
    fd = os.open(path, os.O_RDONLY)
    try:
        return kind_of(REAL, fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("block", [0, 512, 4096])
def test_hdf5_behind_a_block_of_the_users(tmp_path: pathlib.Path, block: int) -> None:
    with h5py.File(tmp_path / "x", "w", userblock_size=block) as f:
        f["x"] = 1
    assert kind(tmp_path / "x") == "hdf5"
    assert "pnc-vol convert" in says_what("hdf5")


@pytest.mark.parametrize("version", ["CDF-1", "CDF-2", "CDF-5"])
def test_netcdf(tmp_path: pathlib.Path, version: str) -> None:
    pnc_vol.File(tmp_path / "x", "w", format=version).close()
    assert kind(tmp_path / "x") == "netcdf"


def test_packed_files(tmp_path: pathlib.Path) -> None:
    for name, pack in {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}.items():
        (tmp_path / "x").write_bytes(pack(b"CDF\5"))
        assert kind(tmp_path / "x") == name
        assert name in says_what(name)
    with zipfile.ZipFile(tmp_path / "x", "w") as packed:
        packed.writestr("a", b"CDF\5")
    assert kind(tmp_path / "x") == "zip"


@pytest.mark.parametrize("content", [b"", b"C", b"CDF", b"CDF\3", b"\x89HDF", b"text" * 999])
def test_anything_else(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert kind(tmp_path / "x") == says_what("") == ""
