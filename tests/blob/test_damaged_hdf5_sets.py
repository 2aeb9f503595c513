"""Damaged sets of HDF5 blob files: each damage is one clear error, or changes nothing of what is read.

Besides the damages of what blobs say (`damages`), which are made in files of either byte order, the HDF5 files around
the blobs are cut, exchanged, flipped bit by bit, and made with other objects in them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from damages import WANT, Change, check_damaged, check_error, good, hdf5_file, of_the_content, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.blob.hdf5.container import find
from pnc_vol.blob.hdf5.subfile import NATIVE, Order, read_subfile
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.errors import FormatError, PncVolError

ORDERS: tuple[Order, ...] = ("little", "big")
Damage = Callable[[Path], None]


def put(path: Path, contents: list[bytes]) -> None:
    for number, content in enumerate(contents):
        Path(f"{path}.{number:04d}").write_bytes(content)


def in_blobs(change: Change, order: Order) -> Damage:
    """A damage of what the blobs say."""

    def damage(path: Path) -> None:
        subfiles = good()
        change(subfiles)
        put(path, [one.container(order) for one in subfiles])

    return damage


def whole() -> list[bytes]:
    return [one.container() for one in good()]


def of_file(number: int, change: Callable[[bytes], bytes]) -> Damage:
    """Another content of one file."""

    def damage(path: Path) -> None:
        contents = whole()
        contents[number] = change(contents[number])
        put(path, contents)

    return damage


def changed(number: int, change: Callable[[Path], Any]) -> Damage:
    def damage(path: Path) -> None:
        put(path, whole())
        change(Path(f"{path}.{number:04d}"))

    return damage


def rebuilt(number: int, change: Callable[[h5py.File, bytes, bytes], None]) -> Damage:
    """An HDF5 file with other objects; `change` makes them of the content of the two datasets."""

    def damage(_: bytes) -> bytes:
        made = io.BytesIO()
        with h5py.File(made, "w", libver="latest") as f:
            change(f, *good()[number].blobs())
        return made.getvalue()

    return of_file(number, damage)


def blobs_changed(number: int, change: Callable[[bytearray, bytearray], None]) -> Damage:
    """Other bytes in the two datasets."""

    def damage(_: bytes) -> bytes:
        header, data = map(bytearray, good()[number].blobs())
        change(header, data)
        return hdf5_file(bytes(header), bytes(data))

    return of_file(number, damage)


def objects() -> Iterator[tuple[str, Callable[[h5py.File, bytes, bytes], None]]]:
    """What may stand in the place of a dataset of bytes."""
    for name, other in (("header_blob", "data_blob"), ("data_blob", "header_blob")):

        def made(fill: Callable[[h5py.File, str, Any], Any], name: str = name, other: str = other) -> Any:
            def make(f: h5py.File, header: bytes, data: bytes) -> None:
                both = {"header_blob": header, "data_blob": data}
                f[other] = np.frombuffer(both[other], np.uint8)
                fill(f, name, np.frombuffer(both[name], np.uint8))

            return make

        yield f"{name} is missing", made(lambda f, name, raw: None)
        yield f"{name} has another name", made(lambda f, name, raw: f.create_dataset(name + "s", data=raw))
        yield f"{name} is in a group", made(lambda f, name, raw: f.create_dataset("g/" + name, data=raw))
        yield f"{name} is a group", made(lambda f, name, raw: f.create_group(name))
        yield f"{name} is a type", made(lambda f, name, raw: f.__setitem__(name, np.dtype("u1")))
        yield f"{name} leads nowhere", made(lambda f, name, raw: f.__setitem__(name, h5py.SoftLink("/none")))
        link = h5py.ExternalLink("none.h5", "/x")
        yield f"{name} leads to no file", made(lambda f, name, raw, link=link: f.__setitem__(name, link))
        for code in ("i1", "u2", "f8", "S1", "V1", "?"):
            yield (
                f"{name} of type {code}",
                made(lambda f, name, raw, code=code: f.create_dataset(name, data=np.zeros(raw.size, code))),
            )
        yield f"{name} of texts", made(lambda f, name, raw: f.create_dataset(name, data=["some", "words"]))
        for shape in ((1, 64), (64, 1), (2, 2, 2)):
            yield (
                f"{name} of the shape {shape}",
                made(lambda f, name, raw, shape=shape: f.create_dataset(name, data=np.resize(raw, shape))),
            )
        yield f"{name} is a scalar", made(lambda f, name, raw: f.create_dataset(name, data=np.uint8(7)))
        yield f"{name} is null", made(lambda f, name, raw: f.create_dataset(name, data=h5py.Empty("u1")))
        yield f"{name} is empty", made(lambda f, name, raw: f.create_dataset(name, data=raw[:0]))
        yield f"{name} is chunked", made(lambda f, name, raw: f.create_dataset(name, data=raw, chunks=(64,)))
        yield f"{name} is packed", made(lambda f, name, raw: f.create_dataset(name, data=raw, compression="gzip"))
        yield f"{name} can grow", made(lambda f, name, raw: f.create_dataset(name, data=raw, maxshape=(None,)))
        yield f"{name} was not written", made(lambda f, name, raw: f.create_dataset(name, raw.shape, "u1"))
        for n in (1, 4, 8, 400):
            yield f"{name} lacks {n} bytes", made(lambda f, name, raw, n=n: f.create_dataset(name, data=raw[:-n]))
            yield (
                f"{name} has {n} more",
                made(lambda f, name, raw, n=n: f.create_dataset(name, data=np.append(raw, np.zeros(n, "u1")))),
            )
        yield f"{name} is of zeros", made(lambda f, name, raw: f.create_dataset(name, data=np.zeros_like(raw)))
        yield f"{name} is of ones", made(lambda f, name, raw: f.create_dataset(name, data=np.full_like(raw, 255)))
        # more than there is memory for: what is declared is compared with the file before anything is allocated
        yield f"{name} is huge", made(lambda f, name, raw: _declared(f, name, 1 << 50))


def _declared(f: h5py.File, name: str, nbytes: int) -> None:
    """A dataset of a size for which the file has no bytes."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
    h5py.h5d.create(f.id, name.encode(), h5py.h5t.STD_U8LE, h5py.h5s.create_simple((nbytes,)), properties)


def _exchanged(f: h5py.File, header: bytes, data: bytes) -> None:
    f["header_blob"], f["data_blob"] = (np.frombuffer(raw, np.uint8) for raw in (data, header))


def _aliased(f: h5py.File, header: bytes, data: bytes) -> None:
    f["header_blob"] = np.frombuffer(header, np.uint8)
    f["data_blob"] = f["header_blob"]


def set_bytes(at: int, new: bytes) -> Callable[[bytearray, bytearray], None]:
    def change(header: bytearray, data: bytearray) -> None:
        assert header[at : at + len(new)] != new
        header[at : at + len(new)] = new

    return change


def containers() -> Iterator[tuple[str, Damage]]:
    for number, content in enumerate(whole()):
        for what, change in objects():
            yield f"{number}: {what}", rebuilt(number, change)
        yield f"{number}: the two are exchanged", rebuilt(number, _exchanged)
        yield f"{number}: the two are one", rebuilt(number, _aliased)
        parts = find(MemoryDriver(content), "x")
        ends = {0, 1, 8, 12, 47, 48, 200, len(content) - 1}
        for stored in (parts.header, parts.data):
            ends |= {stored.offset, stored.offset + 1, (stored.offset + stored.end) // 2, stored.end - 1}
        for nbytes in sorted(ends):
            yield f"{number}: cut to {nbytes} bytes", of_file(number, lambda raw, nbytes=nbytes: raw[:nbytes])
        for what, new in (
            ("text", b"no file of this kind\n" * 40),
            ("a signature", b"\x89HDF\r\n\x1a\n"),
            ("zeros", bytes(len(content))),
            ("the superblock of version 0", content[:8] + b"\0" + content[9:]),
            ("a CDF-5 file", good()[number].encoded()),
            ("the other one", whole()[1 - number]),
            ("the same in both datasets", hdf5_file(*[good()[number].blobs()[0]] * 2)),
        ):
            yield f"{number}: replaced by {what}", of_file(number, lambda _, new=new: new)
        yield f"{number}: missing", changed(number, os.unlink)
        yield f"{number}: a folder", changed(number, lambda file: (file.unlink(), file.mkdir()))
        yield f"{number}: behind 512 bytes of others", of_file(number, lambda raw: b"#" * 512 + raw)
        for what, at, new in (
            ("CDF-1", 0, b"CDF\1"),
            ("CDF-2", 0, b"CDF\2"),
            ("no magic", 0, b"HDF\5"),
            ("records = -1", 4, b"\xff" * 8),
            ("records = 2 ** 62", 4, (1 << 62).to_bytes(8, NATIVE)),
            ("records of the other byte order", 4, (3).to_bytes(8, "big")),
            ("a tag of the other byte order", 12, (10).to_bytes(4, "big")),
            ("an unknown tag", 12, (9).to_bytes(4, NATIVE)),
            ("2 ** 60 dimensions", 16, (1 << 60).to_bytes(8, NATIVE)),
            ("no dimensions", 12, bytes(12)),
        ):
            yield f"{number}: {what}", blobs_changed(number, set_bytes(at, new))


CATALOGUE = {
    f"{order}, {name}": in_blobs(change, order)
    for order, (name, change) in zip(ORDERS * 1000, of_the_content(), strict=False)
} | dict(containers())


def test_the_catalogue_is_large_enough() -> None:
    assert len(CATALOGUE) >= 600


@pytest.mark.parametrize("orders", [("little", "little"), ("big", "big"), ("little", "big"), ("big", "little")])
def test_the_good_set_is_good(tmp_path: Path, orders: tuple[Order, ...]) -> None:
    """In any byte order, and if ranks of different machines wrote."""
    path = tmp_path / "out.h5"
    put(path, [one.container(order) for one, order in zip(good(), orders, strict=True)])
    for name, found in values(path).items():
        np.testing.assert_array_equal(found, WANT[name])
    report = pnc_vol.replay(path, output=tmp_path / "one.nc")
    assert [(one.covered, one.none) for one in report.maps] == [(23, 1), (5, 1)]


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_damage_is_an_error_that_names_the_file_or_changes_nothing(tmp_path: Path, name: str) -> None:
    CATALOGUE[name](tmp_path / "out.h5")
    check_damaged(tmp_path / "out.h5", name.split(", ", 1)[-1])


def test_begins_are_not_looked_at(tmp_path: Path) -> None:
    """The C program writes 0; whoever writes something else does no harm."""
    contents = []
    for one in good():
        one.header = one.header.with_begins([1000 + 77 * i for i in range(len(one.header.vars))])
        contents.append(one.container())
    put(tmp_path / "out.h5", contents)
    for name, found in values(tmp_path / "out.h5").items():
        np.testing.assert_array_equal(found, WANT[name])


def test_every_bit_of_the_hdf5_file_around_the_blobs() -> None:
    """What h5py does not notice has no meaning for it: the two datasets stay where they are."""
    content = whole()[0]
    sound = find(MemoryDriver(content), "x")
    structure = [at for at in range(len(content)) if not any(s.offset <= at < s.end for s in sound)]
    refused = 0
    for at in structure:
        for bit in (0x01, 0x10, 0x80):
            damaged = bytearray(content)
            damaged[at] ^= bit
            try:
                found = find(MemoryDriver(bytes(damaged)), "x")
            except FormatError as error:
                check_error(error, Path("x"))
                refused += 1
            else:
                assert found == sound
    assert refused > len(structure)


SOUND = [one.blobs() for one in good()]


@given(number=st.integers(0, 1), at=st.integers(0, 1 << 30), flip=st.integers(1, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
def test_a_flipped_byte_of_a_header_is_found(tmp_path: Path, number: int, at: int, flip: int) -> None:
    contents = [hdf5_file(*blobs) for blobs in SOUND]
    header = bytearray(SOUND[number][0])
    header[at % len(header)] ^= flip
    contents[number] = hdf5_file(bytes(header), SOUND[number][1])
    path = tmp_path / "out.h5"
    put(path, contents)
    try:
        found = values(path)
    except (PncVolError, OSError) as error:
        check_error(error, path)
    else:
        assert found.keys() == WANT.keys()
        for name, want in WANT.items():
            np.testing.assert_array_equal(found[name], want)


@given(number=st.integers(0, 1), at=st.integers(0, 1 << 30), flip=st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_of_the_data_moves_nothing(number: int, at: int, flip: int) -> None:
    """It is found, or is in a value, or in a run that is another valid run of as many elements."""
    header, data = SOUND[number]
    sound = read_subfile(MemoryDriver(hdf5_file(header, data)), "x")
    damaged = bytearray(data)
    damaged[at % len(data)] ^= flip
    driver = MemoryDriver(hdf5_file(header, bytes(damaged)))
    try:
        found = read_subfile(driver, "x")
        maps = [found.read_map(found.over(driver), k) for k in range(len(found.says.maps))]
    except FormatError as error:
        check_error(error, Path("x"))
        return
    assert found.parts.starts.tolist() == sound.parts.starts.tolist()
    for k, one in enumerate(maps):
        assert one.counts.tolist() == sound.parts.counts[k].tolist()
        for runs in one.blobs:
            assert not runs.start.size or int((runs.start + runs.length).max()) <= np.prod(one.dims)
