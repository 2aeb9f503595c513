"""Other programs as witnesses: ncvalidator, ncdump and netCDF4 read what we write; we read what ncgen writes.

The bytes of each header are decoded and encoded again: whole, by growing prefixes, and cut.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from file_format import Attr, Dim, Header, Var, decode, encode
from programs import assert_valid, generated, tool

import pnc_vol
from pnc_vol.errors import NeedBytes, TruncatedHeaderError

CODES = {1: ("i1", "S1", "i2", "i4", "f4", "f8"), 5: ("i1", "S1", "i2", "i4", "f4", "f8", "u1", "u2", "u4", "i8", "u8")}
CODES[2] = CODES[1]
MODELS = {1: "NETCDF3_CLASSIC", 2: "NETCDF3_64BIT_OFFSET", 5: "NETCDF3_64BIT_DATA"}
SHARED = Path(__file__).parents[2].parent / "shared"


def values_of(code: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    if code == "S1":
        return rng.integers(97, 122, shape, np.uint8).view("S1")
    return rng.integers(0, 127, shape).astype(code)


def attributes(rng: random.Random, version: int, n: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for k in range(n):
        code = rng.choice(CODES[version])
        values = "text é" * rng.randrange(1, 4) if code == "S1" else (np.arange(rng.randrange(2, 6)) + 1).astype(code)
        found[f"att {k}" if k else "té"] = values
    return found


def write(path: Path, seed: int, **options: Any) -> dict[str, Any]:
    """A random file of a version; the values of its variables and, under ``@``, all attributes."""
    rng, version = random.Random(seed), (1, 2, 5)[seed % 3]
    made: dict[str, Any] = {"@": {"": attributes(rng, version, 2)}}
    with pnc_vol.File(path, "w", format=f"CDF-{version}", **options) as f:
        f.create_dimension("time", None)
        sizes = {f"d{i}": rng.randrange(1, 7) for i in range(3)}
        for name, size in sizes.items():
            f.create_dimension(name, size)
        f.attrs.update(made["@"][""])
        records = rng.randrange(1, 4)
        for i in range(rng.randrange(1, 8)):
            name, code = f"v{i}é"[: rng.randrange(2, 4)] + str(i), rng.choice(CODES[version])
            dims = (*(("time",) if rng.random() < 0.5 else ()), *rng.choices(("d0", "d1", "d2"), k=rng.randrange(3)))
            shape = tuple(sizes.get(dim, records) for dim in dims)
            data = values_of(code, shape, np.random.default_rng(seed + i))
            limits = (None, *shape[1:]) if dims[:1] == ("time",) else None
            ds = f.create_dataset(name, data=data, maxshape=limits, dims=dims)
            made["@"][name] = attributes(rng, version, rng.randrange(3))
            ds.attrs.update(made["@"][name])
            made[name] = data
    return made


def agree(path: Path, made: dict[str, Any], version: int) -> None:
    """netCDF4 sees the same attributes and values."""
    with netCDF4.Dataset(path) as data:
        data.set_auto_maskandscale(False)
        data.set_auto_chartostring(False)
        assert data.data_model == MODELS[version]
        assert list(data.variables) == [name for name in made if name != "@"]
        for name, attrs in made["@"].items():
            owner = data[name] if name else data
            assert owner.ncattrs() == list(attrs)
            for key, mine in attrs.items():
                theirs = owner.getncattr(key)
                assert type(theirs) is str or theirs.dtype == mine.dtype
                np.testing.assert_array_equal(theirs, mine)
        for name, mine in made.items():
            if name != "@":
                assert data[name].dtype == mine.dtype
                # a text of one byte is a row of one character
                np.testing.assert_array_equal(data[name][...].reshape(mine.shape), mine)


def decoded_again(path: Path) -> Any:
    """What is decoded is encoded to the same bytes; prefixes ask for more; a cut header is told to be one."""
    raw = path.read_bytes()
    got = decode(raw, file_size=len(raw))
    assert got.findings == ()
    assert pnc_vol.check(path) == []
    head = raw[: got.nbytes]
    assert encode(got.header) == head
    for kind in (bytearray, memoryview):
        assert decode(kind(raw), file_size=len(raw)) == got
    have = 0
    while have < len(head):
        with pytest.raises(NeedBytes) as need:
            decode(head[:have], file_size=len(raw))
        assert have < need.value.nbytes <= len(raw)
        have += max(1, (len(head) - have) // 7)
    for at in {4, 5, len(head) // 3, len(head) // 2, len(head) - 5, len(head) - 1}:
        with pytest.raises(TruncatedHeaderError) as error:
            decode(head[:at], file_size=at)
        assert 4 <= error.value.offset <= at
    # what was found out of the definitions serves headers with other begins and records, in any order
    header = got.header
    moved = header.with_begins([var.begin + 64 for var in header.vars])
    assert encode(moved) == encode(moved.replaced()) != head or not header.vars
    assert encode(header.with_numrecs(7)) == encode(header.replaced(numrecs=7))
    assert encode(header) == head
    return got


@pytest.mark.parametrize("seed", range(15))
def test_other_readers_agree_on_what_we_place_and_encode(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "ours.nc"
    how = ({}, {"var_align": 512, "record_align": 64})[seed % 2]
    made = write(path, seed, header_reserve=(0, 4096)[seed // 2 % 2], **how)
    assert_valid(path)
    agree(path, made, (1, 2, 5)[seed % 3])
    tool("ncdump", path)
    header = decoded_again(path).header
    fixed = [var for var in header.vars if not var.dims or header.dims[var.dims[0]].size]
    records = [var for var in header.vars if var not in fixed]
    assert not fixed or fixed[0].begin % how.get("var_align", 4) in (0, 4)
    assert not records or records[0].begin % how.get("record_align", 4) == 0
    with pnc_vol.File(path) as f:
        for name, data in made.items():
            if name != "@":
                np.testing.assert_array_equal(f[name][...], data)


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


@pytest.mark.parametrize("kind", ["classic", "64-bit-offset", "cdf5"])
def test_we_read_what_ncgen_writes(kind: str, tmp_path: Path) -> None:
    path = generated(tmp_path / "witness.nc", kind, CDL.format(more=CDF5 if kind == "cdf5" else ""))
    assert decoded_again(path).header.numrecs == 2
    with netCDF4.Dataset(path) as theirs, pnc_vol.File(path) as ours:
        theirs.set_auto_maskandscale(False)
        theirs.set_auto_chartostring(False)
        assert sorted(ours) == sorted(theirs.variables)
        for name in ours:
            found, wanted = ours[name][...], theirs[name][...]
            assert found.tobytes() == wanted.tobytes()
            assert found.dtype == wanted.dtype or found.dtype.kind == "S"
            assert set(theirs[name].ncattrs()) <= set(ours[name].attrs)
        assert dict(ours.attrs).keys() == set(theirs.ncattrs())
        assert (ours.attrs["title"], ours.attrs["empty"]) == ("made by ncgen", "")


def test_dimensions_beyond_two_to_the_31_of_netcdf_c_are_read(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "wide.nc", "w", format="NETCDF3_64BIT_OFFSET") as data:
        data.createDimension("x", 3_000_000_000)
    raw = (tmp_path / "wide.nc").read_bytes()
    assert decode(raw, file_size=len(raw)).header.dims == (Dim("x", 3_000_000_000),)


def findings(path: Path, header: Header, size: int, raw: bytes | None = None) -> list[tuple[str, str]]:
    """Severity and field of what a check finds in a file of a header and zeros; not of what it means to us."""
    path.write_bytes((raw or encode(header)).ljust(size, b"\0"))
    return [(each.severity, each.field) for each in pnc_vol.check(path) if each.field != "pnc_vol_hdf5"]


def test_checks_beyond_decoding(tmp_path: Path) -> None:
    path, fill = tmp_path / "x.nc", Attr("_FillValue", 3, 2, bytes(4))
    header = Header(5, 0, (Dim("x", 3),), (), (Var("a", (0,), (fill,), 4, 300), Var("b", (0,), (), 1, 312)))
    assert findings(path, header, 316) == [("warning", "var[0].att[0]")]
    assert [field for _, field in findings(path, header, 314)] == ["var[0].att[0]", "file_size"]
    raw = bytearray(encode(header))
    at = decode(bytes(raw), file_size=316).var_at[2] - 16
    raw[at : at + 8] = (3).to_bytes(8, "big")
    assert [field for _, field in findings(path, header, 316, bytes(raw))] == ["var[0].att[0]", "var[1].vsize"]
    assert [field for _, field in findings(path, Header(5), 4096)] == ["file_size"]


def test_a_gap_between_record_variables_is_an_error_once_records_overlap(tmp_path: Path) -> None:
    variables = (Var("a", (0,), (), 4, 300), Var("b", (0,), (), 4, 312))
    for numrecs, severity in ((1, "warning"), (3, "error")):
        header = Header(5, numrecs, (Dim("t", 0),), (), variables)
        assert (severity, "var[1].begin") in findings(tmp_path / "x.nc", header, 10**4)
        assert decode(encode(header), file_size=10**4).header.numrecs == numrecs


def test_real_files_of_e3sm_are_without_fault() -> None:
    files = sorted((SHARED / "data" / "e3sm").glob("*.nc"))
    if not files:
        pytest.skip("../shared/data/e3sm is not there")
    for path in files:
        decoded_again(path)
