"""Where parts of variables begin in blobs: the files of the C program to the last byte, any set of maps, damages."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from e3sm_reference import HDF5_BLOBS, NETCDF_BLOBS, content
from hdf5_blobs import BlobSet, blob_sets, planned
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.errors import FormatError, LimitError
from pnc_vol.extents.model import Runs, one_extent
from pnc_vol.format.decode import decode as decode_file
from pnc_vol.format.model import Dim, Header, Var
from pnc_vol.format.sizes import inner_bytes, is_record, record_size
from pnc_vol.format.types import TYPES
from pnc_vol.layout.blob.described import Described, described
from pnc_vol.layout.blob.maps import SubfileMap
from pnc_vol.layout.hdf5blob import container, header_blob
from pnc_vol.layout.hdf5blob.parts import Parts, read_parts
from pnc_vol.layout.hdf5blob.subfile import Hdf5Subfile, contained, plan_subfile, read_subfile


class Read(NamedTuple):
    one: Hdf5Subfile
    driver: Driver
    maps: list[SubfileMap]

    def piece(self, variable: int, blob: int, record: int, nbytes: int) -> bytes:
        offset = int(self.one.begins(variable)[blob]) + record * int(self.one.parts.record_sizes(variable)[blob])
        found = np.zeros(nbytes, np.uint8)
        assert not nbytes or self.driver.read_one(found, offset) == nbytes
        return found.tobytes()


def read(raw: bytes, name: str) -> Read:
    below = MemoryDriver(raw)
    one = read_subfile(below, name)
    driver = one.over(below)
    return Read(one, driver, [one.read_map(driver, k) for k in range(len(one.says.maps))])


@pytest.mark.parametrize(("hdf5", "netcdf"), list(zip(HDF5_BLOBS, NETCDF_BLOBS, strict=True)))
def test_every_piece_of_the_c_program_equals_its_netcdf_blob(hdf5: str, netcdf: str) -> None:
    found, other = read(content(hdf5), hdf5), content(netcdf)
    one, maps = found.one, found.maps
    assert one.parts.nbytes == one.container.data.nbytes
    header = decode_file(other, file_size=len(other)).header
    step, pieces = record_size(header), 0
    for canonical, k in enumerate(one.says.assigned):
        variable = one.says.variables[canonical]
        var = header.vars[variable]
        size = TYPES[var.type].size
        for record in range(header.numrecs if is_record(header, var) else 1):
            for blob in range(one.says.nblobs if k else 1):
                first = int(maps[k - 1].starts[blob]) * size if k else 0
                nbytes = int(maps[k - 1].counts[blob]) * size if k else inner_bytes(header, var)
                expected = other[var.begin + record * step + first :][:nbytes]
                assert found.piece(variable, blob, record, nbytes) == expected, (var.name, blob, record)
                pieces += 1
    assert pieces == 402
    for k, of in enumerate(maps):
        nreqs = header.vars[one.says.maps[k].first]
        assert np.frombuffer(other, ">i4", of.nblobs, nreqs.begin).tolist() == of.nreqs.tolist()


@pytest.mark.parametrize("name", HDF5_BLOBS)
def test_the_places_are_known_before_anything_is_written(name: str) -> None:
    one, _, maps = read(content(name), name)
    before = planned(one.header, one.says, maps, name)
    assert before.nbytes == one.parts.nbytes
    for variable in range(len(one.header.vars)):
        assert before.begins(variable).tolist() == one.parts.begins(variable).tolist()
        assert before.record_sizes(variable).tolist() == one.parts.record_sizes(variable).tolist()


@given(blob_sets(), st.sampled_from(["little", "big"]))
def test_any_subfile_is_read_back(made: BlobSet, order: str) -> None:
    for s, of in enumerate(made.maps):
        found = read(made.container(s, order), "x")
        one, maps = found.one, found.maps
        assert one.order == order
        assert one.header == made.physical(s).with_begins([0] * len(one.header.vars))
        for k, expected in enumerate(of):
            assert [[c.tolist() for c in runs] for runs in maps[k].blobs] == [
                [c.tolist() for c in runs] for runs in expected.blobs
            ]
        before = planned(one.header, one.says, of, "x")
        assert before.starts.tolist() == one.parts.starts.tolist()
        for i, k in enumerate(made.assigned):
            values = made.rows(i)
            for blob in range(one.says.nblobs):
                chosen = made.elements(s, k - 1, blob) if k else list(range(values.shape[1])) if blob == 0 else []
                for record in range(values.shape[0]):
                    part = values[record, chosen]
                    assert found.piece(one.says.variables[i], blob, record, part.nbytes) == part.tobytes()
        for i, variable in one.says.supplements.items():
            part = made.rows(i)[:, made.open_elements(made.assigned[i] - 1, len(made.maps))]
            for record in range(part.shape[0]):
                assert found.piece(variable, 0, record, part[record].nbytes) == part[record].tobytes()


def small(records: int = 2) -> BlobSet:
    """One subfile with two blobs, one map, one variable of each kind."""
    dims = (Dim("time", 0), Dim("x", 6))
    header = Header(5, records, dims, (), (Var("t", (0, 1), (), 6), Var("s", (), (), 4), Var("f", (1,), (), 3)))
    blobs = (Runs(np.array([0, 4]), np.array([2, 1])), Runs(np.array([2]), np.array([2])))
    values = [np.arange(6 * records, dtype=">f8"), np.array([7], ">i4"), np.arange(6, dtype=">i2")]
    return BlobSet(header, [[SubfileMap((6,), (1,), blobs)]], [1, 0, 1], {}, values)


HEAD = 20
ROWS = 8
BLOB_0 = HEAD + 2 * ROWS + 3 * 8 * 2 + 4 + 3 * 2


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
        (12, "q", 4, "blob 1: D1.nreqs at byte|blob 1: D1.blob_start at byte"),
        (HEAD, "i", 5, r"D1.offsets\[0\] is 5: run 0 of 2 elements lies outside of the 6 elements"),
        (HEAD, "i", -1, r"D1.offsets\[0\] is -1: run 0 of 2 elements lies outside"),
        (HEAD + 8, "i", 3, r"D1.blob_count\[0\] is 3: its runs have 4 elements"),
        (HEAD + 8, "i", -1, r"D1.lengths\[0\] is -1: run 0 has a negative length"),
        (BLOB_0 + 4, "q", 4, "blob 1: D1.blob_start at byte .* is 4: the blobs before it have 3 elements"),
        (BLOB_0 + 12, "q", 1, "the 2 blobs end at byte .*, and /data_blob ends at byte"),
        (BLOB_0 + 12, "q", 3, "blob 1: D1.blob_count at byte .* is 3: D1.nelems leaves 2"),
    ],
)
def test_a_lying_number_is_refused_with_its_place(at: int, code: str, value: int, text: str) -> None:
    raw = bytearray(small().container(0, "little"))
    offset = container.find(MemoryDriver(bytes(raw)), "x").data.offset
    struct.pack_into("<" + code, raw, offset + at, value)
    with pytest.raises(FormatError, match=f"^out.h5.0000: ({text})") as caught:
        read(bytes(raw), "out.h5.0000")
    assert caught.value.field


def _with(header: bytes, data: bytes) -> bytes:
    made = io.BytesIO()
    with h5py.File(made, "w") as f:
        f["header_blob"] = np.frombuffer(header, np.uint8)
        f["data_blob"] = np.frombuffer(data, np.uint8)
    return made.getvalue()


def test_data_that_were_cut_anywhere_are_refused() -> None:
    one = small()
    header, data = header_blob.encode(one.physical(0)), one.data(0)
    for n in range(1, len(data)):
        with pytest.raises(FormatError, match=r"^x: (blob .* would end at byte|blob .*: D1|the 2 blobs end)"):
            read(_with(header, data[:n]), "x")
    with pytest.raises(FormatError, match="the 2 blobs end at byte"):
        read(_with(header, data + b"\0"), "x")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda h: h.with_numrecs(3), "would end at byte|D1"),
        (lambda h: h.with_numrecs(1), "D1"),
        (lambda h: h.with_numrecs(1 << 60), "would end at byte"),
        (lambda h: resized(h, "nblobs", 3), "would end at byte"),
        (lambda h: resized(h, "nblobs", 1 << 50), "would end at byte"),
        (lambda h: resized(h, "nblobs", 1), "the 1 blobs end at byte"),
        (lambda h: resized(h, "D1.nelems", 6), "the dimension 'D1.nelems' is 6, and 5 follows from the blobs"),
        (lambda h: resized(h, "D1.nelems", 4), "D1.nelems leaves 1"),
        (lambda h: resized(h, "D1.max_nreqs", 3), "the dimension 'D1.max_nreqs' is 3, and 2 follows"),
        (lambda h: resized(h, "D1.max_nreqs", 1), "it can be 0 to 1"),
    ],
)
def test_a_header_that_does_not_fit_the_data_is_refused(change: object, text: str) -> None:
    one = small()
    header = change(one.physical(0))  # type: ignore[operator]
    with pytest.raises(FormatError, match=f"^x: .*({text})"):
        read(_with(header_blob.encode(header), one.data(0)), "x")


def resized(header: Header, name: str, size: int) -> Header:
    dims = tuple(Dim(dim.name, size) if dim.name == name else dim for dim in header.dims)
    return Header(5, header.numrecs, dims, header.attrs, header.vars)


def test_every_damaged_byte_is_refused_or_changes_a_value_alone() -> None:
    """No damage of the data makes a crash, and none moves what is not damaged."""
    one = small()
    header, data = header_blob.encode(one.physical(0)), one.data(0)
    sound = read(_with(header, data), "x")
    for at in range(len(data)):
        for flip in (0x01, 0x80):
            damaged = bytearray(data)
            damaged[at] ^= flip
            try:
                found = read(_with(header, bytes(damaged)), "x")
            except FormatError:
                continue
            assert found.one.parts.starts.tolist() == sound.one.parts.starts.tolist()


def test_more_than_a_file_can_hold_is_refused_before_it_is_counted() -> None:
    one = small(0)
    header = one.physical(0).with_numrecs(1 << 62)
    says: Described = described(header, "x")
    with pytest.raises(FormatError, match="the variables of its blobs take"):
        planned(header, says, one.maps[0], "x")


def test_a_file_without_maps_has_everything_in_its_first_blob() -> None:
    header = Header(5, 0, (Dim("x", 3),), (), (Var("v", (0,), (), 6),))
    made = BlobSet(header, [[]], [0], {}, [np.arange(3.0).astype(">f8")])
    found = read(made.container(0), "x")
    assert found.one.parts.nbytes == 24
    assert found.piece(0, 0, 0, 24) == made.values[0].tobytes()


def test_regions_join_variables_of_one_size() -> None:
    one = small()
    header = one.physical(0)
    parts: Parts = planned(header, described(header, "x"), one.maps[0], "x")
    regions = parts.regions(100)
    assert regions.itemsize.tolist() == [4, 8, 4, 8, 4, 2] * 2
    assert int(regions.first[0]) == 100
    assert int(regions.end[-1]) == 100 + parts.nbytes
    assert regions.end[:-1].tolist() == regions.first[1:].tolist()


def test_a_file_that_shrinks_while_it_is_read_is_noticed() -> None:
    driver = MemoryDriver(small().container(0))
    one = read_subfile(driver, "x")
    data = one.container.data
    driver.resize(data.offset + 10)
    with pytest.raises(FormatError, match=r"x: D1.offsets could not be read whole"):
        one.read_map(one.over(driver), 0)
    with pytest.raises(FormatError, match=r"blob 0: D1.blob_count would end"):
        read_parts(driver, data, one.header, one.says, one.order, "x")


def test_a_header_longer_than_is_trusted_is_refused() -> None:
    with pytest.raises(LimitError, match=r"x: /header_blob has .* bytes, more than 100; increase max_header_bytes"):
        read_subfile(MemoryDriver(small().container(0)), "x", most=100)


@pytest.mark.parametrize("name", HDF5_BLOBS)
def test_what_is_written_equals_the_c_program_in_both_datasets(name: str) -> None:
    stored = content(name)
    source = read(stored, name)
    one = source.one
    made, pieces, nbytes = contained(plan_subfile(one.header, one.parts.counts, one.parts.nreqs, name, one.order))
    below = MemoryDriver(b"")
    below.resize(nbytes)
    driver = made.over(below)
    for offset, piece in pieces:
        driver.write(one_extent(offset, len(piece)), np.frombuffer(piece, np.uint8))
    for blob in range(one.says.nblobs):
        driver.write(*made.map_rows(blob, [of.blobs[blob] for of in source.maps]))
    for i, k in enumerate(one.says.assigned):
        variable = one.says.variables[i]
        size = TYPES[one.header.vars[variable].type].size
        records = one.header.numrecs if is_record(one.header, one.header.vars[variable]) else 1
        for blob in range(one.says.nblobs if k else 1):
            part = (
                int(one.parts.counts[k - 1, blob]) * size if k else inner_bytes(one.header, one.header.vars[variable])
            )
            for record in range(records):
                offset = int(made.begins(variable)[blob]) + record * int(made.parts.record_sizes(variable)[blob])
                values = np.frombuffer(source.piece(variable, blob, record, part), np.uint8)
                driver.write(one_extent(offset, part), values)
    written = np.zeros(nbytes, np.uint8)
    below.read_one(written, 0)
    with h5py.File(io.BytesIO(written.tobytes())) as ours, h5py.File(io.BytesIO(stored)) as theirs:
        assert sorted(ours) == ["data_blob", "header_blob"]
        for dataset in theirs:
            assert ours[dataset][()].tobytes() == theirs[dataset][()].tobytes()
