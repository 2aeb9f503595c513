"""The HDF5 file around two datasets of bytes: made and searched by h5py, over drivers."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from e3sm_reference import HDF5_BLOBS, content

from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.errors import FormatError, MissingPackageError
from pnc_vol.layout.hdf5blob.container import find, make


def written(header: bytes, data: bytes) -> bytes:
    container, pieces, nbytes = make(len(header), len(data))
    made = bytearray(nbytes)
    for offset, piece in pieces:
        made[offset : offset + len(piece)] = piece
    made[container.header.offset : container.header.end] = header
    made[container.data.offset : container.data.end] = data
    return bytes(made)


def some(nbytes: int) -> bytes:
    return np.random.default_rng(nbytes).bytes(nbytes)


@pytest.mark.parametrize("sizes", [(16236, 760636), (600, 7), (100, 1), (16236, 0), (1 << 20, 4096)])
def test_h5py_and_we_find_what_was_put_there(sizes: tuple[int, int]) -> None:
    header, data = map(some, sizes)
    made = written(header, data)
    with h5py.File(io.BytesIO(made)) as f:
        assert sorted(f) == ["data_blob", "header_blob"]
        assert list(f.attrs) == []
        assert f["header_blob"][()].tobytes() == header
        assert f["data_blob"][()].tobytes() == data
        for name in f:
            properties = f[name].id.get_create_plist()
            assert properties.get_layout() == h5py.h5d.CONTIGUOUS
            assert properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER
            assert properties.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
            assert f[name].dtype == np.uint8
            assert not f[name].attrs
    found = find(MemoryDriver(made), "x.h5")
    assert made[found.header.offset : found.header.end] == header
    assert made[found.data.offset : found.data.end] == data


def test_the_superblock_and_the_place_of_the_header_are_those_of_the_c_program() -> None:
    made = written(some(16236), some(760636))
    assert make(16236, 760636)[0].header.offset == 2048
    for name in HDF5_BLOBS:
        stored = content(name)
        assert made[8] == stored[8] == 3, "the version of the superblock"
        found = find(MemoryDriver(stored), name)
        assert found.header.offset == 2048
        assert found.data.offset == found.header.end
        assert found.data.end == len(stored)


def test_what_is_made_depends_on_the_sizes_alone() -> None:
    assert make(1000, 5000) == make(1000, 5000)


def test_a_large_file_takes_no_memory() -> None:
    container, pieces, nbytes = make(1 << 20, 1 << 50)
    assert nbytes == container.data.end
    assert sum(len(piece) for _, piece in pieces) < 4096


# With `nightly`: HDF5's programs come with no package that the tests install.
@pytest.mark.nightly
def test_h5dump_reads_it(tmp_path: Path) -> None:
    program = shutil.which("h5dump")
    if program is None:
        pytest.skip("h5dump is not installed")
    path = tmp_path / "x.h5"
    path.write_bytes(written(some(600), some(64)))
    told = subprocess.run([program, "-H", str(path)], capture_output=True, text=True, check=True).stdout
    assert told.count("DATASET") == 2


def _file(fill: Callable[[h5py.File], Any]) -> bytes:
    made = io.BytesIO()
    with h5py.File(made, "w") as f:
        fill(f)
    return made.getvalue()


def _only_header(f: h5py.File) -> None:
    f["header_blob"] = np.zeros(8, "u1")


def _chunked(f: h5py.File) -> None:
    _only_header(f)
    f.create_dataset("data_blob", data=np.zeros(8, "u1"), chunks=(4,))


def _numbers(f: h5py.File) -> None:
    _only_header(f)
    f["data_blob"] = np.zeros(8)


def _square(f: h5py.File) -> None:
    _only_header(f)
    f["data_blob"] = np.zeros((2, 2), "u1")


def _group(f: h5py.File) -> None:
    _only_header(f)
    f.create_group("data_blob")


def _never_written(f: h5py.File) -> None:
    _only_header(f)
    f.create_dataset("data_blob", (8,), "u1")


def _dangling(f: h5py.File) -> None:
    _only_header(f)
    f["data_blob"] = h5py.SoftLink("/nowhere")


@pytest.mark.parametrize(
    ("fill", "text"),
    [
        (_only_header, "/data_blob is missing"),
        (_chunked, "/data_blob is not contiguous"),
        (_numbers, "/data_blob has the type float64"),
        (_square, "/data_blob has 2 dimensions"),
        (_group, "/data_blob is not a dataset"),
        (_never_written, "/data_blob has no content"),
        (_dangling, "/data_blob is missing"),
        (lambda f: None, "/header_blob is missing"),
    ],
)
def test_other_hdf5_files_are_refused_by_what_they_lack(fill: Callable[[h5py.File], Any], text: str) -> None:
    with pytest.raises(FormatError, match=f"^x.h5: {text}"):
        find(MemoryDriver(_file(fill)), "x.h5")


@pytest.mark.parametrize("cut", [0, 7, 50, 200, 2100, -1])
def test_a_file_that_was_cut_is_refused(cut: int) -> None:
    made = written(some(600), some(5000))
    with pytest.raises(FormatError, match=r"^x.h5: h5py cannot read this as an HDF5 blob file"):
        find(MemoryDriver(made[:cut]), "x.h5")


def test_every_damaged_byte_of_the_structure_is_refused_or_harmless() -> None:
    header, data = some(600), some(5000)
    made = written(header, data)
    _, pieces, _ = make(600, 5000)
    for offset, piece in pieces:
        for at in range(offset, offset + len(piece), 3):
            damaged = bytearray(made)
            damaged[at] ^= 0x15
            try:
                found = find(MemoryDriver(bytes(damaged)), "x.h5")
            except FormatError:
                continue
            assert made[found.header.offset : found.header.end] == header
            assert made[found.data.offset : found.data.end] == data


def test_what_is_no_hdf5_file_is_refused() -> None:
    with pytest.raises(FormatError, match="h5py cannot read this"):
        find(MemoryDriver(b"CDF\5" + bytes(100)), "x.h5")


def test_without_h5py_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        MissingPackageError, match=r'Writing an HDF5 blob file needs h5py: pip install "pnc-vol\[hdf5\]"'
    ):
        make(10, 10)
