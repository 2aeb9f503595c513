"""Damaged sets of subfiles: each damage is one clear error, or changes nothing of what is read.

The catalogue is generated from a good set: every field that describes blobs is changed in several ways, files are cut
at every boundary, lost, exchanged and replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from damages import WANT, Change, check_damaged, good, of_the_content, values, write
from file_format import place

import pnc_vol
from pnc_vol.errors import FormatError

Damage = Callable[[Path], None]


def in_files(change: Change) -> Damage:
    """A damage of what is in the files."""

    def damage(path: Path) -> None:
        subfiles = good()
        change(subfiles)
        write(path, subfiles)

    return damage


def files() -> Iterator[tuple[str, Damage]]:
    def changed(number: int, change: Callable[[Path], None]) -> Damage:
        def damage(path: Path) -> None:
            write(path, good())
            change(Path(f"{path}.{number:04d}"))

        return damage

    def cut(nbytes: int) -> Callable[[Path], None]:
        return lambda file: os.truncate(file, nbytes)

    def replaced(content: bytes) -> Callable[[Path], None]:
        return lambda file: file.write_bytes(content) and None

    def folder(file: Path) -> None:
        file.unlink()
        file.mkdir()

    for number, one in enumerate(good()):
        whole = one.encoded()
        placed = place(one.header)
        bounds = {0, 1, 4, 12, 40, len(whole) - 1, *(var.begin for var in placed.vars)}
        for nbytes in sorted(bounds):
            yield f"{number}: cut to {nbytes} bytes", changed(number, cut(nbytes))
        for what, content_ in (
            ("text", b"no file of this kind\n" * 40),
            ("HDF5", b"\x89HDF\r\n\x1a\n" + bytes(2000)),
            ("zeros", bytes(len(whole))),
            ("CDF-1", b"CDF\1" + whole[4:]),
            ("another version", b"CDF\7" + whole[4:]),
        ):
            yield f"{number}: replaced by {what}", changed(number, replaced(content_))
        yield f"{number}: missing", changed(number, os.unlink)
        yield f"{number}: a folder", changed(number, folder)
        yield (
            f"{number}: an ordinary file",
            changed(number, lambda file: pnc_vol.File(file, "w", layout="canonical").close()),
        )
        yield f"{number}: the other one", changed(number, replaced(good()[1 - number].encoded()))


CATALOGUE = {name: in_files(change) for name, change in of_the_content()} | dict(files())


def test_the_catalogue_is_large_enough() -> None:
    assert len(CATALOGUE) >= 100


def test_the_good_set_is_good(tmp_path: Path) -> None:
    path = tmp_path / "out.nc"
    write(path, good())
    for name, found in values(path).items():
        np.testing.assert_array_equal(found, WANT[name])
    report = pnc_vol.replay(path, output=tmp_path / "one.nc")
    assert [(one.covered, one.none) for one in report.maps] == [(23, 1), (5, 1)]
    assert values(tmp_path / "one.nc").keys() == WANT.keys()


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_damage_is_an_error_that_names_the_file_or_changes_nothing(tmp_path: Path, name: str) -> None:
    CATALOGUE[name](tmp_path / "out.nc")
    check_damaged(tmp_path / "out.nc", name)


def test_a_map_larger_than_what_is_stored_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """One byte of a dimension: the supplement has all elements that are in no blob, so there can be no more."""
    path = tmp_path / "f.nc"
    with pnc_vol.File(path, "w", layout="blob") as f:
        a = f.create_dataset("a", (40,), "i4")
        a[13:21] = 29
        f.flush()
        a[2:36:3] = 43
    first = Path(f"{path}.0000")
    data = bytearray(first.read_bytes())
    at = data.index((40).to_bytes(8, "big"))
    data[at] = 8
    first.write_bytes(data)
    (finding,) = pnc_vol.check(path)
    assert finding.severity == "error"
    calls: tuple[Callable[[], object], ...] = (
        lambda: pnc_vol.replay(path, output=tmp_path / "out.nc"),
        lambda: pnc_vol.File(path),
        lambda: pnc_vol.File(path, "r+"),
    )
    for call in calls:
        with pytest.raises(FormatError, match="the supplement has all others"):
            call()
    assert os.listdir(tmp_path) == [first.name]


def test_a_replay_that_its_device_has_no_room_for_is_refused_first(tmp_path: Path) -> None:
    """Elements that are in no blob need no space in a set; one file has them all."""
    path = tmp_path / "f.nc"
    with pnc_vol.File(path, "w", layout="blob") as f:
        f.create_dataset("a", (1 << 58,), "i4")[5:9] = 1
    with pytest.raises(OSError, match="are free there"):
        pnc_vol.replay(path, output=tmp_path / "out.nc")
    with pnc_vol.File(path) as f:
        assert f["a"][3:10].tolist() == [0, 0, 1, 1, 1, 1, 0]
    assert os.listdir(tmp_path) == ["f.nc.0000"]
