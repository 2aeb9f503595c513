"""Types that NetCDF does not have: compounds, arrays of varying length, array types, opaque data, references.

h5py is the oracle: the same lines give the same values and types, also after the file was closed and opened again.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from programs import tool

import pnc_vol

COMPOUND = """
    dt = np.dtype([('x', 'f8'), ('n', '>i2'), ('s', 'S4'), ('v', 'f4', (2,)), ('b', '?')])
    d = f.create_dataset('c', (4,), dt)
    d.dtype, d.shape, d[0], d[:]
    d[1] = (1.5, 2, b'abc', [3, 4], True)
    d['x', 2:] = [7, 8]
    d['n'] = 5
    d['v'] = np.arange(8).reshape(4, 2)
    d[()], d['x'], d['x', 1:3], d['s', 'x'], d.fields('v')[1], d.fields(['n', 'b'])[::2]
    d['no'], d.fields('no')
    d['no'] = 1
    d[3] = np.array((9, 8, b'z', [7, 6], False), dt)
    d[0:2] = np.zeros(2, dt)
    d[()], d[3], d[3]['v'], d.fields('x').dtype, d.fields(['x']).dtype
    d.fields('s').shape, len(d.fields('s')), d.nbytes
    filled = np.array((3, 2.5), [('a', 'i4'), ('b', 'f4')])
    e = f.create_dataset('e', (2,), filled.dtype, fillvalue=filled)
    e[()], e.fillvalue, e['a']
    g = f.create_dataset('g', data=np.array((1, (2, 3.5)), [('p', 'i4'), ('q', [('r', 'u1'), ('t', 'f8')])]))
    g[()], g['q']
    k = f.create_dataset('k', (2,), [('a', 'i4')], maxshape=(None,))
    k['a'] = 3
    k.resize((3,))
    k['a'], k.shape
    padded = np.dtype({'names': ['a', 'b'], 'formats': ['i4', 'f8'], 'offsets': [4, 16], 'itemsize': 32})
    p = f.create_dataset('p', (2,), padded)
    p['a'] = 4
    p.dtype, p['a'], p.dtype.itemsize
    z = f.create_dataset('z', (0, 3), [('a', 'i4')])
    z.shape, z[()].shape
    m = f.create_dataset('m', (2, 2), [('a', 'i4'), ('b', 'S2')], chunks=True)
    m[1, :] = (4, b'q')
    m[()], m.maxshape
"""
COMPOUND_AGAIN = """
    [(n, f[n].dtype, f[n].shape, f[n].maxshape, f[n][()]) for n in f]
    f['e'].fillvalue, f['c'].fields('v')[:], f['c']['x', 1]
    f['c']['x'] = 0
    f['k'].resize((5,))
    f['k']['a']
"""
RAGGED = """
    d = f.create_dataset('v', (3,), h5.vlen_dtype('i4'))
    d.dtype, d.shape
    d[0] = [1, 2, 3]
    d[1] = np.arange(2)
    d[0], d[1], d[2].tolist(), [r.tolist() for r in d[:]], d[0].dtype
    d[1:] = np.array([np.arange(3), np.arange(1)], dtype=object)
    d[1], d[2], [r.tolist() for r in d[::2]]
    w = f.create_dataset('w', (2, 2), h5.vlen_dtype('f8'))
    w[0, 1] = [1.5]
    w[1] = [[1, 2], [3, 4]]
    [r.tolist() for r in w[()].ravel()]
    s = f.create_dataset('s', (2,), h5.vlen_dtype(h5.string_dtype()))
    s[0] = np.array(['a', 'bcd'], object)
    s[0].tolist()
    n = f.create_dataset('n', (), h5.vlen_dtype('i8'))
    n[()] = [4, 5]
    n[()]
    c = f.create_dataset('c', (2,), [('a', h5.vlen_dtype('i2')), ('b', h5.string_dtype()), ('d', 'f4')])
    c[0] = (np.array([1, 2], 'i2'), 'text', 3.5)
    c[0]['a'], c[0]['b'], c[0]['d'], c['a', 0]
    x = f.create_dataset('x', (1,), h5.vlen_dtype(np.dtype([('a', 'i4'), ('b', 'S3')])))
    x[0] = np.array([(1, b'a'), (2, b'bc')], [('a', 'i4'), ('b', 'S3')])
    x[0]
    h = f.create_dataset('h', (1,), h5.vlen_dtype('f4'), maxshape=(None,))
    h[0] = [1, 2]
    h.resize((2,))
    h[1] = [9]
    [r.tolist() for r in h[:]]
"""
RAGGED_AGAIN = """
    [r.tolist() for r in f['v'][:]], [r.tolist() for r in f['w'][()].ravel()], f['s'][0].tolist(), f['n'][()]
    f['c'][0]['a'], f['c'][0]['b'], f['c']['d'], f['x'][0], [r.tolist() for r in f['h'][:]], f['h'].maxshape
    f['v'][1], f['v'][[0, 2]][1]
    f['v'][1] = [7] * 5
    [r.tolist() for r in f['v'][:]]
"""
OTHERS = """
    a = f.create_dataset('a', (2,), '(2,3)i4')
    a.dtype, a.shape, a[()].shape, a.nbytes
    a[0] = [[1, 2, 3], [4, 5, 6]]
    a[()], a[0]
    a[1] = 3
    a[1] = [1, 2]
    a[:] = np.ones((2, 2, 3))
    a[:].dtype, a[()]
    b = f.create_dataset('b', data=np.array([b'abc', b'xyz'], 'V3'))
    b[()], b.dtype, b[0]
    t = np.array(['2020-01-01', 'NaT', '1999-12-31T12:00'], 'M8[s]')
    m = f.create_dataset('m', data=t.astype(h5.opaque_dtype(t.dtype)))
    m[()], m.dtype, m[0], h5.check_opaque_dtype(m.dtype)
    q = f.create_dataset('q', (2,), 'g')
    q[:] = np.longdouble(1) / 3
    q[()], q.dtype
    y = f.create_dataset('y', (2,), np.dtype((h5.string_dtype(), (2,))))
    y[0] = ['a', 'b']
    y[0].tolist()
    f.attrs['c'] = np.array([(1, 2.5), (3, 4)], [('a', 'i4'), ('b', 'f4')])
    f.attrs['c'], f.attrs['c'].dtype
    f.attrs.create('sub', np.arange(6), dtype='(6,)i2')
    f.attrs['sub'], f.attrs['sub'].dtype
    f.attrs['void'] = np.void(b'abc')
    f.attrs['void']
    f.attrs['g'] = np.longdouble(1) / 3
    f.attrs['g']
    f.attrs['vl'] = np.array([(1, 2)], 'i4,i4')
    f.attrs['vl']
    r = f.create_dataset('r', (2,), h5.ref_dtype)
    r[0] = f['a'].ref
    bool(r[0]), bool(r[1]), f[r[0]].name, type(r[0]).__name__
    rr = f.create_dataset('rr', data=[f['b'].regionref[1:]])
    f['b'][rr[0]], f[rr[0]].name
    f.attrs['ref'] = f['b'].ref
    f[f.attrs['ref']].name
    f['a'].regionref.selection(f['a'].regionref[:1]), f['a'].regionref.shape(f['a'].regionref[:1])
    f[h5.Reference()]
    h5.check_ref_dtype(r.dtype) is h5.Reference, h5.check_ref_dtype(rr.dtype) is h5.RegionReference
"""
OTHERS_AGAIN = """
    f['a'][()], f['a'].dtype, f['b'][()], f['b'].dtype, f['m'][()], f['m'].dtype, f['q'][()], f['q'].dtype
    f['y'][0].tolist(), f.attrs['c'], f.attrs['sub'], f.attrs['sub'].dtype, f.attrs['void'], f.attrs['g']
    h5.check_opaque_dtype(f['m'].dtype), h5.check_ref_dtype(f['r'].dtype) is h5.Reference
    f[f['r'][0]].name, bool(f['r'][1]), f['b'][f['rr'][0]], f[f.attrs['ref']].name
"""


@pytest.mark.parametrize(
    ("made", "again"),
    [(COMPOUND, COMPOUND_AGAIN), (RAGGED, RAGGED_AGAIN), (OTHERS, OTHERS_AGAIN)],
    ids=["compound", "ragged", "others"],
)
def test_as_h5py(both: Any, made: str, again: str) -> None:
    both.same(made)
    both.again()
    both.same(again)
    both.again()
    both.same("[n for n in f]")


SEVERAL_AXES = """
    d = f.create_dataset('d', (2, 3), 'i4', maxshape=(5, None))
    d[()] = 1
    d.maxshape, d.chunks is None
    d.resize((3, 5))
    d[()]
    d.resize(2, axis=1)
    d.resize((3, 4))
    d[()]
    d.resize((6, 4))
    d[2] = 9
    d.resize((1, 4))
    d.resize((3, 4))
    d[()]
    e = f.create_dataset('e', (2, 2), 'f4', maxshape=(None, None), fillvalue=7)
    e[0] = 1
    e.resize((3, 3))
    e[()], e.shape
    b = f.create_dataset('b', (2,), 'i2', maxshape=(4,))
    b[:] = 3
    b.resize((4,))
    b[()], b.maxshape
    z = f.create_dataset('z', (0, 0), 'i2', maxshape=(None, None))
    z.resize((2, 2))
    z[0, 1] = 4
    z[()]
    y = f.create_dataset('y', (2, 0), h5.string_dtype(), maxshape=(None, None))
    y.resize((2, 1))
    y[0] = 'text'
    y[()]
    c = f.create_dataset('c', (2, 2), [('a', 'i4')], maxshape=(2, 4))
    c['a'] = 5
    c.resize((2, 3))
    c['a']
"""


def test_any_axis_can_grow(both: Any) -> None:
    both.same(SEVERAL_AXES)
    both.again()
    both.same("""
        [(n, f[n].shape, f[n].maxshape, f[n][()]) for n in f]
        f['d'].resize((5, 1))
        f['d'][()]
        f['e'].resize((1, 5))
        f['e'][()]
        f['b'].resize((5,))
    """)
    both.again()
    both.same("[(n, f[n].shape, f[n].maxshape, f[n][()]) for n in f]")


def test_other_programs_see_columns(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        d = f.create_dataset("obs", (3,), [("lat", "f4"), ("name", "S5")])
        d[0] = (1.5, b"here")
        d.attrs["units"] = "m"
        v = f.create_dataset("tracks", (2,), pnc_vol.vlen_dtype("i4"))
        v[0], v[1] = [1, 2, 3], [4]
        f.create_dataset("box", data=np.ones((2, 3), "f4"), dtype="(3,)f4")
    text = tool("ncdump", path)
    assert "float obs_lat(dim_3)" in text
    assert "char obs_name(dim_3, strlen_5)" in text
    assert "int64 tracks_count(dim_2)" in text
    assert "tracks_values = 1, 2, 3, 4" in text
    assert "float box(dim_2, array_3)" in text
    assert 'obs:units = "m"' in text


def test_parts_that_do_not_fit_are_plain_variables(tmp_path: pathlib.Path) -> None:
    netcdf4 = pytest.importorskip("netCDF4")
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("obs", (3,), [("lat", "f4"), ("name", "S5")])["lat"] = [1, 2, 3]
    with netcdf4.Dataset(path, "a") as other:
        other.renameVariable("obs_lat", "latitude")
    with pytest.warns(pnc_vol.PncVolWarning, match="parts"):
        f = pnc_vol.File(path)
    with f:
        assert sorted(f) == ["latitude", "obs", "obs_name"]
        assert f["latitude"][()].tolist() == [1, 2, 3]
        assert f["obs"].shape == ()


def test_records_of_numpy_are_read_as_other_compounds(impl: Any) -> None:
    """Before a flush, too."""
    records = np.rec.array([(1, b"a"), (2, b"b")], dtype=[("a", "i4"), ("b", "S1")])
    with impl.open("w") as f:
        f["x"] = f.attrs["x"] = records
        for found in (f["x"], f["x"][:], f["x"][1], f.attrs["x"]):
            assert found.dtype.type is np.void
        assert f["x"][:].tolist() == records.tolist()


def test_fields_that_are_not_given_stay_as_they_are_also_in_compounds_of_compounds(both: Any) -> None:
    both.same("""
        pair = [('c', 'i4'), ('d', 'i4')]
        kind = [('a', 'i4'), ('b', pair), ('s', pair, (2,))]
        d = f.create_dataset('d', data=np.array([(1, (2, 3), [(4, 5), (6, 7)])], kind))
        d[...] = np.array([((8,), [(9,), (10,)])], [('b', [('d', 'i4')]), ('s', [('c', 'i4')], (2,))])
        d[0]
    """)
    both.again()
    both.same("f['d'][0]")


def test_fields_of_an_array_that_are_not_in_the_dataset_stay_as_they_are(both: Any) -> None:
    both.same("""
        f['d'] = np.array([(1, (2, 3)), (4, (5, 6))], [('a', 'i4'), ('b', [('c', 'i4'), ('d', 'i4')])])
        x = np.ones((2, 3), [('w', 'f4'), ('a', 'i8'), ('b', [('z', 'i2'), ('d', 'i4')])])
        f['d'].read_direct(x, np.s_[1:], np.s_[0, 2:])
        f['d'].read_direct(x, np.s_[...], np.s_[1, [0, 2]])
        x
    """)


def test_rows_may_all_be_empty(both: Any) -> None:
    both.same("""
        d = f.create_dataset('d', (2,), h5.vlen_dtype('i4'))
        d[...] = [[1], [2, 3]]
        d[...] = [[], []]
        d[:]
        d[1] = [4]
        d[...] = np.zeros((2, 0))
        d[:]
        d[0] = []
        d[1:] = [[]]
        d[...] = [np.zeros(0), [5]]
        d[:]
    """)
    both.again()
    both.same("f['d'][:]")


def test_complex_numbers_are_given_as_fields(both: Any) -> None:
    both.same("""
        ri = np.array([(1, 2), (3, 4)], [('r', 'f8'), ('i', 'f8')])
        d, e = f.create_dataset('d', (2,), 'c16'), f.create_dataset('e', (2,), '>c8')
        d[...] = ri; e[...] = ri
        d[:], e[:]
        d[...] = ri.astype([('i', 'i4'), ('r', '>f4')])
        d[:]
        d[1:] = ri[:1].astype([('r', 'u1'), ('x', 'f4'), ('i', 'u1')])
        e.write_direct(ri[::-1].copy())
        d[:], e[:]
        d[...] = ri.astype([('r', 'f8'), ('i', 'S3')])
        f.attrs['a'] = np.array([5 + 6j, 7])
        f.attrs.modify('a', ri)
        f.attrs['a']
        c = f.create_dataset('c', (2,), [('z', 'c16'), ('n', 'i4')])
        c[...] = np.array([((1, 2), 3)] * 2, [('z', ri.dtype), ('n', 'i4')])
        c[:]
    """)
    d = both.names[1]["d"]
    with pytest.raises(TypeError, match="has not the fields 'r' and 'i'"):
        d[...] = np.zeros(2, [("re", "f8"), ("im", "f8")])


def test_rows_and_references_are_read_into_arrays(both: Any) -> None:
    both.same("""
        d, r = f.create_dataset('d', (2,), h5.vlen_dtype('i4')), f.create_dataset('r', (2,), h5.ref_dtype)
        d[0], r[1] = [1, 2], d.ref
        x, y, z = np.zeros(3, d.dtype), np.zeros(2, r.dtype), np.zeros(2, object)
        d.read_direct(x, np.s_[:], np.s_[1:]), r.read_direct(y), d.read_direct(z)
        x[1], x[2], f[y[1]].name, bool(y[0]), z[0]
    """)


def test_one_number_is_given_to_all_fields(both: Any) -> None:
    both.same("""
        d = f.create_dataset('d', (3,), [('a', 'i2'), ('b', 'f8'), ('v', 'f4', (2,)), ('c', [('e', 'u1')])])
        d[0] = 5
        d[1:] = np.float32(1.5)
        d[()]
        d[0] = True
        d[2] = None
        d[()]
        f.create_dataset('e', (3,), d.dtype, fillvalue=5)
    """)


BIG = np.array([2**40, -(2**40)])
TOO_LARGE: dict[str, tuple[Any, Any, Any]] = {
    "compound": ([("a", "i4")], BIG.view([("a", "i8")]), [(2**31 - 1,), (-(2**31),)]),
    "element": ([("a", "i4")], BIG.view([("a", "i8")])[0], [(2**31 - 1,)] * 2),
    "two_fields": ([("a", "u1"), ("b", "f4")], np.array([(1, 2), (-3, 1e300)], [("a", "i8"), ("b", "f8")]),
                   [(1, 2), (0, np.inf)]),
    "tuples": ([("a", "i4"), ("b", "f4")], [(1, 1e39), (2, -1e300)], [(1, np.inf), (2, -np.inf)]),
    "nested": ([("a", [("b", "i4")])], BIG.view([("a", [("b", "i8")])]), [((2**31 - 1,),), ((-(2**31),),)]),
    "array_type": ([("a", "i4", (2,))], BIG.view([("a", "i8", (2,))]), [([2**31 - 1, -(2**31)],)] * 2),
    "number": ([("a", "i4")], np.int64(2**40), [(2**31 - 1,)] * 2),
    "numbers": ([("a", "i4"), ("b", "i8")], BIG, [(2**31 - 1, 2**40), (-(2**31), -(2**40))]),
    "rows": (pnc_vol.vlen_dtype("i4"), [BIG, BIG[:1]], [[2**31 - 1, -(2**31)], [2**31 - 1]]),
    "float16": ("f2", BIG, [np.inf, -np.inf]),
    "array": ("(2,)i4", [BIG, BIG], [[2**31 - 1, -(2**31)]] * 2),
    "row": (pnc_vol.vlen_dtype("i4"), BIG, [[2**31 - 1, -(2**31)]] * 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_fields_and_rows_that_do_not_fit_are_refused_or_cut(tmp_path: pathlib.Path, kind: str) -> None:
    """As numbers that stand alone; numpy wraps them around."""
    dtype, values, cut = TOO_LARGE[kind]
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        ds = f.create_dataset("x", (2,), dtype)
        before = ds[()].tolist()
        with pytest.raises(ValueError, match="does not fit"):
            ds[...] = values
        if kind not in ("element", "number", "array"):
            with pytest.raises(ValueError, match="does not fit"):
                f.create_dataset("y", (2,), data=values, dtype=dtype)
        assert repr(ds[()].tolist()) == repr(before)
        assert "y" not in f
    with pnc_vol.File(tmp_path / "x.nc", "w", on_overflow="clip") as f:
        ds = f.create_dataset("x", (2,), dtype)
        ds[...] = values
        for got, wanted in zip(ds[()].tolist(), cut, strict=True):
            assert np.array_equal(got, wanted), got


def test_copies_between_files(impl: Any, tmp_path: pathlib.Path) -> None:
    with impl.open("w") as f:
        f["c"] = np.array([(1, b"a"), (2, b"b")], [("a", "i4"), ("b", "S1")])
        v = f.create_dataset("v", (2,), impl.h5.vlen_dtype("i4"))
        v[1] = [1, 2]
        with impl.h5.File(tmp_path / "other.nc", "w") as g:
            f.copy("c", g)
            f.copy("v", g, "w")
            f.copy("v", f, "again")
    with impl.h5.File(tmp_path / "other.nc") as g:
        assert g["c"][()].tolist() == [(1, b"a"), (2, b"b")]
        assert [row.tolist() for row in g["w"][:]] == [[], [1, 2]]
    with impl.open() as f:
        assert [row.tolist() for row in f["again"][:]] == [[], [1, 2]]


def test_arrays_of_varying_length_are_contiguous_ragged_arrays_of_cf(tmp_path: pathlib.Path) -> None:
    netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed: it is the independent reader")
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["dim"] = np.arange(3)
        f.create_dataset("empty", (2,), pnc_vol.vlen_dtype("f4"))
        f.create_dataset("fields", (2,), [("count", "i4"), ("values", "i4")])["values"] = 7
        rows = f.create_dataset("g/rows", (3,), pnc_vol.vlen_dtype("f4"))
        rows[0], rows[2] = [1, 2, 3], [4]
    for length in (4, 6):
        with netCDF4.Dataset(tmp_path / "x.nc") as ds:
            count = ds["g_rows_count"]
            assert ds["g_rows_values"].dimensions == (count.sample_dimension,) == ("g_rows_sample",)
            assert len(ds.dimensions["g_rows_sample"]) == sum(count[:]) == length
            assert "sample_dimension" not in [*ds["empty_count"].ncattrs(), *ds["fields_count"].ncattrs()]
        with pnc_vol.File(tmp_path / "x.nc", "r+") as f:
            assert [row.tolist() for row in f["g/rows"][[0, 2]]] == [[1, 2, 3], [4]]
            assert list(f["g/rows"].attrs) == []
            f["g/rows"][1] = [8, 9]
