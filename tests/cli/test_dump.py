"""dump prints what ncdump prints, byte for byte."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from programs import generated, raw

netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed: it makes the files")

MAPS = Path(__file__).parents[2] / "../shared/data/e3sm"

CDL = r"""
netcdf all {
dimensions:
    t = UNLIMITED ;
    x = 30 ;
    y = 3 ;
    s = 12 ;
    one = 1 ;
variables:
    byte b(t, x) ;
        b:_FillValue = -1b ;
        b:pair = 1b, 2b ;
    char c(y, s) ;
        c:text = "a\"b\n", "c\\ \t'q'" ;
        c:empty = "" ;
        c:ends = "line\n" ;
    char c1(s) ;
    char c0 ;
    char lone(one) ;
    short sh(x) ;
        sh:pair = 1s, -2s ;
    int iscal ;
    float f(x) ;
        f:a = 1.f, 2.5f, NaNf, Infinityf, -Infinityf, 1e20f, 1.e-5f, 100000.f, 1e6f, 1e7f, 0.1f, -0.f ;
    double d(y, x) ;
        d:a = 1., 2.5, NaN, -Infinity, 1e20, 0.1, 1e15, 1e16, 123456789.123456789, 5e-324, 1.7976931348623157e308 ;
        d:many = 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15., 16., 17., 18., 19., 20., 21., 22. ;
    int \4\ odd\(name\)(y) ;
    double a_name_so_long_that_even_the_first_value_has_to_go_to_a_line_of_its_own_whatever_happens(y) ;
    int none(t, y) ;
%(more_vars)s
// global attributes:
        :title = "line1\nline2\nline3" ;
data:
    b = 1, 2, 3, 4, 5, -1, 127, -128, _, 3 ;
    c = "abc", "d\"e\\f\n\tg\001\377", "" ;
    c1 = "abc" ;
    c0 = "x" ;
    lone = "" ;
    sh = 1, 2, 3, 4, 5, 10000, 20000, -20000, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 ;
    iscal = 5 ;
    f = 1, 2.5, NaNf, Infinityf, -Infinityf, 1e20, 1e-5, 0.1, 123456.789, 1e6, 1e7, 12345678, _, 0, -0. ;
    d = 1, 2.5, NaN, Infinity, -Infinity, 1e20, 1e-5, 0.1, 123456.789, 1e15, 1e16, 1.23456789012345678, _, 0, -0. ;
    a_name_so_long_that_even_the_first_value_has_to_go_to_a_line_of_its_own_whatever_happens = 1, 2.25, 12 ;
%(more_data)s
}
"""

MORE_VARS = """
    ubyte v_ubyte(y) ;
        v_ubyte:a = 1UB, 255UB ;
    ushort v_ushort(y) ;
        v_ushort:a = 1US ;
    uint v_uint(y) ;
        v_uint:a = 1U, 4294967295U ;
    int64 v_int64(y) ;
        v_int64:a = 1LL, -9223372036854775807LL ;
    uint64 v_uint64(y) ;
        v_uint64:a = 18446744073709551615ULL ;
        v_uint64:_FillValue = 1ULL ;
"""

MORE_DATA = """
    v_ubyte = 0, 255, 254 ;
    v_ushort = 1, 2, 65535 ;
    v_uint = 1, 2, 4294967295 ;
    v_int64 = 1, -9223372036854775806, 9223372036854775807 ;
    v_uint64 = 18446744073709551615, 18446744073709551614, 1 ;
"""


def ncdump(*args):
    return raw("ncdump", *args)


def generate(path, kind):
    new = kind == "cdf5"
    return generated(path, kind, CDL % {"more_vars": MORE_VARS if new else "", "more_data": MORE_DATA if new else ""})


@pytest.mark.parametrize("kind", ["classic", "64-bit offset", "cdf5"])
def test_all_types_in_all_versions(tmp_path, verb, kind):
    path = generate(tmp_path / "all.nc", kind)
    assert verb("dump", path, code=0).raw == ncdump(path)
    assert verb("dump", "-h", path, code=0).raw == ncdump("-h", path)
    assert verb("dump", "-v", "d,c0", path, code=0).raw == ncdump("-v", "d,c0", path)


def test_variables_that_are_called_like_words_of_cdl(tmp_path, verb):
    with netCDF4.Dataset(tmp_path / "w.nc", "w", format="NETCDF3_CLASSIC") as data:
        for name in ("variables", "dimensions", "data", "types", "group", "int"):
            data.createDimension(name, 2)
            data.createVariable(name, "i4", (name,)).units = "m"
    assert verb("dump", tmp_path / "w.nc", code=0).raw == ncdump(tmp_path / "w.nc")


def random_file(path, rng, fmt, longest):
    """A file of random variables with values that are hard to print."""
    floats = [0, 1, -1, 0.1, 1e20, 1e-5, 123456.789, np.nan, np.inf, -np.inf, 9.969209968386869e36, 1 / 3, 1e7]
    floats += [12345678, 1e15, 1e16, -0.0, 5e-324, 3, 4]
    types = ["i1", "S1", "i2", "i4", "f4", "f8", "u1", "u2", "u4", "i8", "u8"][: 11 if fmt.endswith("DATA") else 6]
    formats = {"f": ["%5.2f", "%10.3e", "<%g>"], "i": ["%d", "%8d", "i%d"], "S": ["%s"], "u": ["%x", "%o"]}
    with netCDF4.Dataset(path, "w", format=fmt) as data:
        data.createDimension("t", None)
        names = [f"d{i}" for i in range(4)]
        for name in names[:-1]:
            data.createDimension(name, int(rng.choice([1, 2, 3, 7, 30])))
        data.createDimension(names[-1], longest)
        for i in range(rng.integers(1, 6)):
            code = str(rng.choice(types))
            dims = [
                str(name) for name in rng.choice(names[: 4 if longest < 1000 else 3], rng.choice([0, 1, 1, 2, 2, 3]))
            ]
            dims = dims if longest < 1000 or i else ["d0", "d3"]
            if dims and rng.random() < 0.4:
                dims[0] = "t"
            fill = int(rng.integers(0, 5)) if code != "S1" and rng.random() < 0.3 else None
            var = data.createVariable(
                str(rng.choice(["v", "n" * 75, "a b", "ü"])) + str(i), code, dims, fill_value=fill
            )
            var.set_auto_maskandscale(False)
            var.set_auto_chartostring(False)
            if rng.random() < 0.3 and code not in ("i8", "u8"):
                var.C_format = str(rng.choice(formats[code[0]]))
            shape = [5 if dim == "t" else data.dimensions[dim].size for dim in dims]
            if code == "S1":
                values = rng.choice(np.frombuffer(b"abc\n\t\"\\\0\0'z  \x80\xff\x1b", "u1"), shape)
                var[...] = np.asarray(values, "u1").reshape(-1).view("S1").reshape(shape)
            elif code[0] == "f":
                with np.errstate(all="ignore"):
                    var[...] = np.asarray(rng.choice(floats, shape)).astype(code)
            else:
                limits = np.iinfo(code)
                wide = rng.random() < 0.5
                low, high = (limits.min, limits.max) if wide else (0, 6)
                var[...] = rng.integers(low, high, shape, dtype=code, endpoint=True)
            var.floats = np.array([1.5, np.nan, 1e30], "f4")
            var.text = "a'b\x01\x7fü\n"


@pytest.mark.parametrize("fmt", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("longest", [120, 90_000])
def test_random_files_of_more_than_a_block_and_of_less(tmp_path, verb, fmt, longest):
    """Rows, records and lines may end anywhere within a block."""
    rng = np.random.default_rng([longest, *fmt.encode()])
    for i in range(4 if longest == 120 else 1):
        path = tmp_path / f"r{i}.nc"
        random_file(path, rng, fmt, longest)
        assert verb("dump", path, code=0).raw == ncdump(path)


@pytest.mark.parametrize("case", ["f", "g", "i"])
def test_e3sm_headers_and_one_variable(verb, case):
    path = MAPS / f"map_{case}_case_16p.nc"
    if not path.exists():
        pytest.skip("the E3SM map files of ../shared are not here")
    assert verb("dump", "-h", path, code=0).raw == ncdump("-h", path)
    assert verb("dump", "-v", "D1.nreqs", path, code=0).raw == ncdump("-v", "D1.nreqs", path)


def test_what_is_missing_at_the_end_reads_as_zeros(tmp_path, verb):
    path = generate(tmp_path / "all.nc", "cdf5")
    path.write_bytes(path.read_bytes()[:-40])
    assert verb("dump", path, code=0).raw == ncdump(path)


def test_a_format_for_printing_in_the_file_cannot_do_harm(tmp_path, verb):
    with netCDF4.Dataset(tmp_path / "p.nc", "w", format="NETCDF3_CLASSIC") as data:
        data.createDimension("x", 2)
        for i, evil in enumerate(["%n", "%s%s%s", "%(x)d", "%99999999d", "%d%d", "%*d"]):
            var = data.createVariable(f"v{i}", "i4", ("x",))
            var.C_format = evil
            var[:] = [1, 2]
    text = verb("dump", tmp_path / "p.nc", code=0).out
    assert all(f" v{i} = 1, 2 ;\n" in text for i in range(6))


def test_errors_are_one_line(tmp_path, verb):
    missing = verb("dump", tmp_path / "none.nc", code=1)
    assert missing.err == f"pnc-vol: {tmp_path}/none.nc: there is no such file; check the name\n"
    (tmp_path / "bad.nc").write_bytes(b"CDF\x05\x00\x00")
    bad = verb("dump", tmp_path / "bad.nc", code=1)
    assert bad.err.count("\n") == 1
    assert bad.err.startswith(f"pnc-vol: {tmp_path}/bad.nc: ")
    generate(tmp_path / "all.nc", "cdf5")
    assert "no variable 'nix'" in verb("dump", "-v", "nix", tmp_path / "all.nc", code=1).err


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    import sys

    path = generate(tmp_path / "all.nc", "cdf5")
    line = f"{sys.executable} -m pnc_vol.cli dump {path} | head -c 10"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "netcdf all"
    assert done.stderr == ""


def test_a_pipe_is_not_waited_for(tmp_path, verb):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # somebody at the other end, so that a reader that opens the pipe does not wait for ever
    other_end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        for name, code in (("dump", 1), ("ls", 1), ("check", 2)):
            assert verb(name, pipe, code=code).err.startswith(f"pnc-vol: {pipe}: this is a pipe")
    finally:
        os.close(other_end)
