"""Other programs as witnesses: ncvalidator and netCDF4 read what we encode; we decode what ncgen and netCDF4 write."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nc_values import make_attr, type_named

from pnc_vol.format.check import check, short_data
from pnc_vol.format.convert import from_file, to_file
from pnc_vol.format.decode import Decoded, decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.moving import moves
from pnc_vol.format.placing import Alignment, data_end, grow, place, shape, strides
from pnc_vol.format.types import CHAR, TYPES, attr_values

SMALL = ("byte", "char", "short", "ubyte", "ushort")
SHARED = Path(__file__).parents[2].parent / "shared"


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: {'pnetcdf-bin' if name == 'ncvalidator' else 'netcdf-bin'})")
    return found


def validate(path: Path) -> None:
    """ncvalidator takes the file, without a word of warning."""
    done = subprocess.run([tool("ncvalidator"), str(path)], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "arning" not in said, said


def open_netcdf4(path: Path) -> Any:
    netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed (pip install netCDF4)")
    data = netcdf.Dataset(path)
    data.set_auto_maskandscale(False)
    data.set_auto_chartostring(False)
    return data


def view(file: np.ndarray, header: Header, var: Var) -> np.ndarray:
    """The elements of a variable in the bytes of a whole file."""
    extent = shape(header, var)
    if 0 in extent:
        return np.empty(extent, TYPES[var.type].dtype)
    return np.ndarray(extent, TYPES[var.type].dtype, file.data, var.begin, strides(header, var))


def make(header: Header, rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
    """A whole file and the values of its variables."""
    raw = encode(header)
    file = np.zeros(max(data_end(header), len(raw)), np.uint8)
    file[: len(raw)] = np.frombuffer(raw, np.uint8)
    values = []
    for var in header.vars:
        kind = TYPES[var.type]
        if kind.code == CHAR:
            data = rng.integers(97, 122, shape(header, var), np.uint8).view("S1")
        else:
            data = rng.integers(0, 127, shape(header, var)).astype(kind.dtype.newbyteorder("="))
        out = np.empty(data.size * kind.size, np.uint8)
        to_file(data, kind.dtype, out)
        view(file, header, var)[...] = out.view(kind.dtype).reshape(data.shape)
        values.append(data)
    return file, values


def agree(path: Path, header: Header, values: list[np.ndarray]) -> None:
    """netCDF4 sees the same dimensions, attributes and values."""
    with open_netcdf4(path) as data:
        version = {1: "NETCDF3_CLASSIC", 2: "NETCDF3_64BIT_OFFSET", 5: "NETCDF3_64BIT_DATA"}[header.version]
        assert data.data_model == version
        assert [(n, 0 if d.isunlimited() else len(d)) for n, d in data.dimensions.items()] == list(header.dims)
        assert list(data.variables) == [var.name for var in header.vars]
        same_attributes(data, header.attrs)
        for var, mine in zip(header.vars, values, strict=True):
            theirs = data.variables[var.name]
            same_attributes(theirs, var.attrs)
            assert theirs.dtype == TYPES[var.type].dtype.newbyteorder("=")
            got = theirs[...]
            assert got.shape == mine.shape
            np.testing.assert_array_equal(got, mine)


def same_attributes(owner: Any, attrs: tuple[Attr, ...]) -> None:
    assert owner.ncattrs() == [attr.name for attr in attrs]
    for attr in attrs:
        mine, theirs = attr_values(attr), owner.getncattr(attr.name)
        if isinstance(mine, bytes):
            # netCDF4 leaves NULs out.
            assert theirs.encode() == mine.rstrip(b"\0")
        else:
            assert np.asarray(theirs).dtype == mine.dtype
            np.testing.assert_array_equal(np.atleast_1d(theirs), mine)


def random_header(seed: int) -> Header:
    rng = random.Random(seed)
    version = (1, 2, 5)[seed % 3]
    kinds = [t for t in TYPES.values() if version in t.versions]

    def attrs(n: int) -> tuple[Attr, ...]:
        found = []
        for k in range(n):
            kind = rng.choice(kinds)
            text = "text é" * rng.randrange(1, 4)
            numbers = np.arange(rng.randrange(1, 6)) + 1
            found.append(make_attr(f"att {k}" if k else "té", text if kind.code == CHAR else numbers, kind.code))
        return tuple(found)

    dims = [Dim("time", 0), *(Dim(f"d{i}", rng.randrange(1, 7)) for i in range(3))]
    variables = []
    for i in range(rng.randrange(1, 8)):
        lead = (0,) if rng.random() < 0.5 else ()
        inner = tuple(rng.choices((1, 2, 3), k=rng.randrange(3)))
        variables.append(
            Var(f"v{i}é"[: rng.randrange(2, 4)] + str(i), lead + inner, attrs(rng.randrange(3)), rng.choice(kinds).code)
        )
    grows = any(var.dims[:1] == (0,) for var in variables)
    return Header(version, rng.randrange(4) if grows else 0, tuple(dims), attrs(2), tuple(variables))


@pytest.mark.parametrize("seed", range(15))
def test_other_readers_agree_on_what_we_place_and_encode(seed: int, tmp_path: Path) -> None:
    how = Alignment(*((4, 4, 0), (512, 64, 100))[seed % 2])
    header = place(random_header(seed), how, header_extent=(0, 4096)[seed // 2 % 2])
    file, values = make(header, np.random.default_rng(seed))
    path = tmp_path / "ours.nc"
    path.write_bytes(file.tobytes())
    validate(path)
    agree(path, header, values)
    assert check(file.tobytes(), file_size=file.size) == []
    done = subprocess.run([tool("ncdump"), str(path)], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", [1, 2, 5])
def test_lone_small_record_variables_and_the_second_one_beside_them(version: int, tmp_path: Path) -> None:
    for kind in SMALL:
        if version not in type_named(kind).versions:
            continue
        lone = Header(version, 5, (Dim("t", 0), Dim("x", 3)), (), (Var("a", (0, 1), (), type_named(kind).code),))
        old = place(lone, header_extent=300)
        file, values = make(old, np.random.default_rng(1))
        path = tmp_path / f"{kind}.nc"
        path.write_bytes(file.tobytes())
        validate(path)
        agree(path, old, values)
        new = grow(old, Header(version, 5, old.dims, (), (*old.vars, Var("b", (0,), (), 3))), [0, None])
        moved, more = make(new, np.random.default_rng(2))
        for a, b, n in zip(*moves(old, new, [0, None]), strict=True):
            moved[b : b + n] = file[a : a + n]
        path.write_bytes(moved.tobytes())
        validate(path)
        agree(path, new, [values[0], more[1]])


CDL = """netcdf witness {{
dimensions: t = UNLIMITED ; x = 3 ; y = 5 ; c = 7 ;
variables:
  byte b(t, x) ; b:valid_range = -1b, 100b ; b:_FillValue = -1b ;
  char name(x, c) ; name:long_name = "naïve" ;
  short s(y) ; s:add_offset = 1.5f, 2.5f, 3.5f ;
  int i(x, y) ; float f(t, y) ; double d ; short odd(t, c) ;
  {more}
// global attributes:
  :title = "made by ncgen" ; :numbers = 1s, 2s, 3s ; :empty = "" ;
data:
  b = 1, 2, 3, 4, 5, 6 ; name = "one", "two", "three" ; s = 1, 2, 3, 4, 5 ;
  i = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 ; f = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ;
  d = 2.5 ; odd = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 ;
}}
"""
CDF5 = "ubyte ub(t) ; ubyte ub5(x) ; ushort us(t, x) ; uint ui(y) ; int64 l(t, y) ; uint64 ul(x) ; ul:f = 7ull ;"


def read(path: Path) -> tuple[Decoded, list[np.ndarray]]:
    data = path.read_bytes()
    got = decode(data, file_size=len(data))
    file = np.frombuffer(data, np.uint8)
    values = []
    for var in got.header.vars:
        there = view(file, got.header, var)
        out = np.empty(there.shape, there.dtype.newbyteorder("="))
        from_file(np.frombuffer(there.tobytes(), np.uint8), there.dtype, out)
        values.append(out)
    return got, values


@pytest.mark.parametrize("kind", ["classic", "64-bit-offset", "cdf5"])
def test_we_read_what_ncgen_writes(kind: str, tmp_path: Path) -> None:
    source, path = tmp_path / "witness.cdl", tmp_path / "witness.nc"
    source.write_text(CDL.format(more=CDF5 if kind == "cdf5" else ""))
    subprocess.run([tool("ncgen"), "-k", kind, "-o", str(path), str(source)], check=True, timeout=60)
    got, values = read(path)
    assert got.findings == ()
    assert got.header.numrecs == 2
    assert len(got.header.vars) == (13 if kind == "cdf5" else 7)
    agree(path, got.header, values)
    raw = path.read_bytes()
    assert encode(got.header) == raw[: got.nbytes]
    assert check(raw, file_size=len(raw)) == []


def test_dimensions_beyond_two_to_the_31_of_netcdf_c_are_read(tmp_path: Path) -> None:
    netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed (pip install netCDF4)")
    path = tmp_path / "wide.nc"
    with netcdf.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as data:
        data.createDimension("x", 3_000_000_000)
    raw = path.read_bytes()
    assert decode(raw, file_size=len(raw)).header.dims == (Dim("x", 3_000_000_000),)


def test_short_data_counts_what_netcdf4_reads_as_zeros() -> None:
    variables = (Var("a", (1,), (), 4), Var("r", (0, 1), (), 4), Var("s", (0,), (), 4))
    header = place(Header(5, 3, (Dim("t", 0), Dim("x", 4)), (), variables))
    end = data_end(header)
    file = np.ones(end, np.uint8)
    for size in range(header.vars[0].begin, end + 1):
        cut = np.zeros(end, np.uint8)
        cut[:size] = file[:size]
        expected = []
        for var in header.vars:
            missing = int((np.frombuffer(view(cut, header, var).tobytes(), np.uint8) == 0).sum())
            expected += [(var.name, missing)] * (missing > 0)
        assert short_data(header, size) == expected
        findings = decode(encode(header), file_size=size).findings if size >= header.vars[0].begin else ()
        assert bool(findings) == bool(expected)


def test_checks_beyond_decoding() -> None:
    fill = make_attr("_FillValue", np.array([1, 2], "i2"))
    header = place(Header(5, 0, (Dim("x", 3),), (), (Var("a", (0,), (fill,), 4), Var("b", (0,), (), 1))))
    raw = bytearray(encode(header))
    end = data_end(header)
    got = decode(raw, file_size=end)
    (finding,) = check(raw, file_size=end)
    assert (finding.severity, finding.field) == ("warning", "var[0].att[0]")
    assert [f.field for f in check(raw, file_size=end - 1)] == ["var[0].att[0]", "file_size"]
    at = got.var_at[2] - 16
    raw[at : at + 8] = (3).to_bytes(8, "big")
    assert [f.field for f in check(raw, file_size=end)] == ["var[0].att[0]", "var[1].vsize"]
    empty = encode(Header(5))
    assert [f.field for f in check(empty, file_size=4096)] == ["file_size"]


def test_a_gap_between_record_variables_is_an_error_once_records_overlap() -> None:
    header = place(Header(5, 1, (Dim("t", 0),), (), (Var("a", (0,), (), 4), Var("b", (0,), (), 4))))
    apart = Header(5, 1, header.dims, (), (header.vars[0], header.vars[1]._replace(begin=header.vars[1].begin + 8)))
    for numrecs, severity in ((1, "warning"), (3, "error")):
        raw = encode(Header(5, numrecs, apart.dims, (), apart.vars))
        found = [f for f in check(raw, file_size=10**4) if f.field == "var[1].begin"]
        assert [f.severity for f in found] == [severity]
        assert decode(raw, file_size=10**4).header.numrecs == numrecs


def test_real_files_of_e3sm_are_without_fault() -> None:
    files = sorted((SHARED / "data" / "e3sm").glob("*.nc"))
    if not files:
        pytest.skip("../shared/data/e3sm is not there")
    for path in files:
        got, _ = read(path)
        assert got.findings == ()
        assert encode(got.header) == path.read_bytes()[: got.nbytes]
