"""Files of other kinds, as their own tools write them: the error says which kind it is, and what to do."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pathlib
import zipfile
from collections.abc import Callable

import h5py
import pytest

import pnc_vol


def hdf5(path: pathlib.Path, block: int) -> None:
    with h5py.File(path, "w", userblock_size=block) as f:
        f["x"] = 1


def zipped(path: pathlib.Path) -> None:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a", b"CDF\5")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        *((lambda path, n=n: hdf5(path, n), "pnc-vol convert") for n in (0, 512, 4096)),
        *(
            (lambda path, pack=pack: path.write_bytes(pack(b"CDF\5")), name)
            for name, pack in (("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress))
        ),
        (zipped, "zip"),
        *(
            (lambda path, raw=raw: path.write_bytes(raw), "")
            for raw in (b"C", b"CDF", b"CDF\3", b"\x89HDF", b"text" * 999)
        ),
    ],
)
def test_the_kind_of_a_file_is_said(tmp_path: pathlib.Path, write: Callable[[pathlib.Path], object], said: str) -> None:
    path = tmp_path / "x"
    write(path)
    with pytest.raises(OSError, match=said or "(?i)not") as caught:
        pnc_vol.File(path)
    kinds = [kind for kind in ("convert", "gzip", "bzip2", "xz", "zip") if kind in str(caught.value).split("/x", 1)[-1]]
    assert bool(kinds) == bool(said), str(caught.value)
