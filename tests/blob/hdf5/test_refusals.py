"""What a file of HDF5 blobs lacks, and numbers in it that cannot be, are refused with their place.

The file is made by two ranks and changed by h5py; `tests/blob/test_damaged_hdf5_sets.py` has every damage of a set.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import virtual_ranks

import pnc_vol
from pnc_vol.errors import CorruptHeaderError, FormatError, MissingPackageError, NotCDFError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The only file of a set: two blobs, one map, two records of `t`, a scalar, and `f`."""

    def job(comm: Any) -> None:
        cells = ([0, 1, 4], [2, 3])[comm.rank]
        mine = pnc_vol.Decomposition.from_runs(cells, shape=(6,))
        options: dict[str, Any] = {"layout": "hdf5blob", "driver": "posix", "subfiles": 1}
        with pnc_vol.File(tmp_path / "out.h5", "w", comm=comm, **options) as f:
            t = f.create_dataset("t", (2, 6), "f8", maxshape=(None, 6), decomposition=mine)
            s = f.create_dataset("s", (), "i4")
            x = f.create_dataset("f", (6,), "i2", decomposition=mine)
            t[:, cells], x[cells] = np.arange(2.0 * len(cells)).reshape(2, -1), np.arange(len(cells))
            if comm.rank == 0:
                s[()] = 7
            f.flush()

    virtual_ranks.run(2, job)
    return tmp_path / "out.h5.0000"


def changed(path: Path, header: Callable[[bytes], bytes] = bytes, data: Callable[[bytes], bytes] = bytes) -> None:
    """Other bytes in the two datasets."""
    with h5py.File(path) as f:
        made = {"header_blob": header(f["header_blob"][()].tobytes()), "data_blob": data(f["data_blob"][()].tobytes())}
    with h5py.File(path, "w", libver="latest") as f:
        for name, raw in made.items():
            f[name] = np.frombuffer(raw, np.uint8)


def number(at: int, code: str, value: int) -> Callable[[bytes], bytes]:
    """Another number at a byte, in the byte order of the machine that wrote."""
    new = struct.pack("=" + code, value)
    return lambda raw: raw[:at] + new + raw[at + len(new) :]


def dim(name: str, size: int) -> Callable[[bytes], bytes]:
    """Another length of a dimension: it stands behind its name."""

    def change(raw: bytes) -> bytes:
        at = raw.index(name.encode()) + -(-len(name) // 4) * 4
        return number(at, "q", size)(raw)

    return change


def test_the_set_is_good(path: Path) -> None:
    changed(path)
    with pnc_vol.File(path) as f:
        assert f["t"][...].tolist() == [[0, 1, 0, 1, 2, 0], [3, 4, 2, 3, 5, 0]]
        assert f["f"][...].tolist() == [0, 1, 0, 1, 2, 0]
        assert f["s"][()] == 7


HEAD = 20
BLOB_0 = HEAD + 2 * 8 + 3 * 8 * 2 + 4 + 3 * 2


@pytest.mark.parametrize(
    ("at", "code", "value", "text"),
    [
        (0, "i", 3, "blob 0: D1.nreqs at byte .* is 3: it can be 0 to 2"),
        (0, "i", -1, "blob 0: D1.nreqs at byte .* is -1: it can be 0 to 2"),
        (0, "i", 1, "blob 0: D1|blob 1: D1"),
        (4, "q", 1, "blob 0: D1.blob_start at byte .* is 1: the blobs before it have 0 elements"),
        (12, "q", 6, "blob 0: D1.blob_count at byte .* is 6: D1.nelems leaves 5"),
        (12, "q", -1, "blob 0: D1.blob_count at byte .* is -1: D1.nelems leaves 5"),
        (12, "q", 1 << 62, "blob 0: D1.blob_count at byte .* is 4611686018427387904: D1.nelems leaves 5"),
        (12, "q", 2, "blob 1: D1.nreqs at byte|blob 1: D1.blob_start at byte"),
        (HEAD, "i", 5, r"D1.offsets\[0\] is 5: run 0 of 2 elements lies outside of the 6 elements"),
        (HEAD, "i", -1, r"D1.offsets\[0\] is -1: run 0 of 2 elements lies outside"),
        (HEAD + 8, "i", 3, r"D1.blob_count\[0\] is 3: its runs have 4 elements"),
        (HEAD + 8, "i", -1, r"D1.lengths\[0\] is -1: run 0 has a negative length"),
        (BLOB_0 + 4, "q", 4, "blob 1: D1.blob_start at byte .* is 4: the blobs before it have 3 elements"),
        (BLOB_0 + 12, "q", 1, "the 2 blobs end at byte .*, and /data_blob ends at byte"),
        (BLOB_0 + 12, "q", 3, "blob 1: D1.blob_count at byte .* is 3: D1.nelems leaves 2"),
    ],
)
def test_a_lying_number_is_refused_with_its_place(path: Path, at: int, code: str, value: int, text: str) -> None:
    changed(path, data=number(at, code, value))
    with pytest.raises(FormatError, match=f"out.h5.0000: ({text})") as caught, pnc_vol.File(path) as f:
        f["t"][...]
    assert caught.value.field


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (number(4, "q", 3), "would end at byte|D1"),
        (number(4, "q", 1), "D1"),
        (number(4, "q", 1 << 60), "would end at byte"),
        (number(4, "q", 1 << 62), "would end at byte"),
        (dim("nblobs", 3), "would end at byte"),
        (dim("nblobs", 1 << 50), "would end at byte"),
        (dim("nblobs", 1), "the 1 blobs end at byte"),
        (dim("D1.nelems", 6), "the dimension 'D1.nelems' is 6, and 5 follows from the blobs"),
        (dim("D1.nelems", 4), "D1.nelems leaves 1"),
        (dim("D1.max_nreqs", 3), "the dimension 'D1.max_nreqs' is 3, and 2 follows"),
        (dim("D1.max_nreqs", 1), "it can be 0 to 1"),
    ],
)
def test_a_header_that_does_not_fit_the_data_is_refused(
    path: Path, change: Callable[[bytes], bytes], text: str
) -> None:
    changed(path, change)
    with pytest.raises(FormatError, match=f"out.h5.0000: .*({text})"):
        pnc_vol.File(path)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda raw: raw + bytes(8), CorruptHeaderError, "The header ends at byte"),
        (lambda raw: b"CDF\2" + raw[4:], NotCDFError, "begins with b'CDF\\\\x02'"),
        (lambda raw: raw[:4] + b"\xff" * 8 + raw[12:], CorruptHeaderError, "STREAMING"),
        (lambda raw: raw[:12] + b"\x77\0\0\0" + raw[16:], CorruptHeaderError, "in neither byte order"),
        (lambda raw: b"", FormatError, "/header_blob"),
        *(
            (lambda raw, cut=cut: raw[:cut], FormatError, "/header_blob, which begins at byte")
            for cut in range(12, 200, 20)
        ),
    ],
)
def test_a_header_that_is_none_is_refused_with_its_place(
    path: Path, change: Callable[[bytes], bytes], error: type[FormatError], text: str
) -> None:
    changed(path, change)
    with pytest.raises(error, match=text) as caught:
        pnc_vol.File(path)
    assert str(path) in str(caught.value)


def test_data_that_were_cut_anywhere_are_refused(path: Path) -> None:
    whole = path.read_bytes()
    with h5py.File(path) as f:
        size = f["data_blob"].size
    for cut in [*range(1, size, 7), size - 1]:
        path.write_bytes(whole)
        changed(path, data=lambda raw, cut=cut: raw[:cut])
        with pytest.raises(FormatError, match=r"0000: (blob .* would end at byte|blob .*: D1|the 2 blobs end)"):
            pnc_vol.File(path)
    path.write_bytes(whole)
    changed(path, data=lambda raw: raw + b"\0")
    with pytest.raises(FormatError, match="the 2 blobs end at byte"):
        pnc_vol.File(path)


BYTES = np.zeros(8, "u1")


@pytest.mark.parametrize(
    ("fill", "text"),
    [
        (lambda f: None, "/data_blob is missing"),
        (lambda f: f.create_dataset("data_blob", data=BYTES, chunks=(4,)), "/data_blob is not contiguous"),
        (lambda f: f.create_dataset("data_blob", data=np.zeros(8)), "/data_blob has the type float64"),
        (lambda f: f.create_dataset("data_blob", data=BYTES.reshape(2, 4)), "/data_blob has 2 dimensions"),
        (lambda f: f.create_group("data_blob"), "/data_blob is not a dataset"),
        (lambda f: f.create_dataset("data_blob", (8,), "u1"), "/data_blob has no content"),
        (lambda f: f.__setitem__("data_blob", h5py.SoftLink("/nowhere")), "/data_blob is missing"),
        (
            lambda f: f.__delitem__("header_blob"),
            "/header_blob is missing.*'pnc-vol convert' converts other HDF5 files",
        ),
    ],
)
def test_other_hdf5_files_are_refused_by_what_they_lack(
    tmp_path: Path, fill: Callable[[h5py.File], Any], text: str
) -> None:
    with h5py.File(tmp_path / "run.0000", "w") as f:
        f["header_blob"] = BYTES
        fill(f)
    with pytest.raises(FormatError, match=f"run.0000: {text}"):
        pnc_vol.File(tmp_path / "run.0000")


@pytest.mark.parametrize("cut", [50, 200, 2100, -1])
def test_a_file_that_was_cut_is_refused(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FormatError, match="h5py cannot read this as an HDF5 blob file"):
        pnc_vol.File(path)


def test_the_hdf5_file_is_as_the_c_program_makes_it(path: Path) -> None:
    """Two contiguous datasets of bytes, which are written once, and nothing else."""
    assert path.read_bytes()[8] == 3, "the version of the superblock"
    with h5py.File(path) as f:
        assert (sorted(f), list(f.attrs)) == (["data_blob", "header_blob"], [])
        assert f["header_blob"].id.get_offset() == 2048
        for ds in f.values():
            properties = ds.id.get_create_plist()
            assert properties.get_layout() == h5py.h5d.CONTIGUOUS
            assert properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER
            assert properties.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
            assert (ds.dtype, list(ds.attrs)) == (np.uint8, [])
        assert np.array(7, "i4").tobytes() in f["data_blob"][()].tobytes()


def test_a_large_file_takes_no_memory(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "x.h5", "w", layout="hdf5blob") as f:
        whole = pnc_vol.Decomposition.from_runs([0], [1 << 38], (1 << 38,))
        f.create_dataset("x", (1 << 38,), "i1", decomposition=whole)[5:9] = 7
    assert (tmp_path / "x.h5.0000").stat().st_size > 1 << 38
    with pnc_vol.File(tmp_path / "x.h5") as f:
        assert f["x"][3:11].tolist() == [0, 0, 7, 7, 7, 7, 0, 0]


def test_without_h5py_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingPackageError, match=r'HDF5 blob file needs h5py: pip install "pnc-vol\[hdf5\]"'):
        pnc_vol.File(tmp_path / "x.h5", "w", layout="hdf5blob")
    assert not list(tmp_path.iterdir())
