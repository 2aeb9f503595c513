"""Datasets against h5py: what they are, indexing, strings, views, resizing."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import ConversionError

MAKE = """
    d = f.create_dataset('d', data=np.arange(12.).reshape(3, 4)); s = f.create_dataset('s', data=3.5)
    z = f.create_dataset('z', (0, 3), 'i4'); e = f.create_dataset('e', data=h5.Empty('f4'))
    v = f.create_dataset('v', data=['a', 'bcd']); fs = f.create_dataset('fs', data=np.array([b'a', b'bcd']))
    vs = f.create_dataset('vs', data='x'); r = f.create_dataset('r', (2, 3), 'i4', maxshape=(None, 3))
    us = f.create_dataset('us', (2,), h5.string_dtype('utf-8', 6)); bo = f.create_dataset('bo', data=[True, False])
    c = f.create_dataset('c', data=[1 + 2j, 3]); h = f.create_dataset('h', data=np.float16([1.5, 2]))
    en = f.create_dataset('en', data=np.array([1, 0], 'u1'), dtype=h5.enum_dtype({'A': 0, 'B': 1}))
    be = f.create_dataset('be', data=np.arange(3, dtype='>i4'))
"""
AGAIN = "d, s, z, e, v, fs, vs, r, us, bo, c, h, en, be = (f[n] for n in 'd s z e v fs vs r us bo c h en be'.split())"
ALL = "(d, s, z, e, v, fs, vs, r, us, bo, c, h, en, be)"


def test_what_a_dataset_is(both: Any) -> None:
    both.same(MAKE)
    for _ in range(2):
        both.same(f"""
            [(x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.maxshape, x.fillvalue, repr(x), x.name) for x in {ALL}]
            [x[()] for x in {ALL}]
            [x[...] for x in {ALL}]
            [(x.is_virtual, x.external, x.compression, x.shuffle, x.is_scale, bool(x)) for x in {ALL}]
            d.chunks, d.scaleoffset, d.compression_opts, d.fletcher32, d.filter_ids, d.filter_names, r.chunks
            h5.check_string_dtype(v.dtype), h5.check_string_dtype(us.dtype), h5.check_enum_dtype(en.dtype)
            len(d), d.len(), len(r)
            len(s)
            len(e)
            list(s)
            list(e)
            [row for row in d]
            hash(d) == hash(f['d']), d == f['d'], d == 3, d != f['d'], d == s
            d.parent, d.file, f['d'].name
            d.virtual_sources()
            d.iter_chunks()
            list(r.iter_chunks())
            d.dtype = 3
            v[0], v[()], vs[()], fs[0], bo[0], c[1], h[0], en[0], be[0], v[[0, 1]], v[1:], s[()], z[:0], e[...]
        """)
        both.again()
        both.same(AGAIN)


def test_views(both: Any) -> None:
    both.same(MAKE)
    both.same("""
        vs.asstr()[()], v.asstr()[()], v.asstr()[0], v.asstr()[1:], fs.asstr()[()], fs.asstr('ascii', 'ignore')[0]
        v.asstr().shape, v.asstr().dtype, len(v.asstr()), v.asstr().ndim, v.asstr().size, np.asarray(v.asstr())
        fs.asstr('utf-16')[()]
        d.asstr()
        d.astype('i4')[()], d.astype('i4')[0, 0], d.astype('i4').dtype, d.astype('f8'), np.asarray(d.astype('i2'))
        d.astype('i4').shape, len(d.astype('i4')), d.astype('f4')[[0, 2], 1], be.astype('f4')[()], en.astype('i8')[()]
        d.astype('S4')[()]
        v.astype('i4')[()]
        d.astype('zz')
        np.asarray(d), np.asarray(d, dtype='i2'), np.asarray(s), np.asarray(z), np.asarray(v), np.array(d[0])
        np.asarray(e)
        np.array(d, copy=False)
        d.astype('i4').__array__(copy=False)
        d.fields('a')
        d.fields(['a'])
        np.sum(d), d[...].mean()
    """)
    if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType"):
        both.same("""
            v.astype('T')[()].tolist(), us.astype('T')[()].tolist()
            d.astype('T')
        """)


def test_numbers_that_a_narrower_type_cannot_hold_are_read_as_the_nearest_ones(both: Any) -> None:
    both.same("""
        f['i'] = np.array([1, 300, -5, 2**40]); f['u'] = np.array([2**63, 1], 'u8'); f['x'] = [1.5, -2.5, 1e10, 1e300]
        f['c'] = np.array([(300, 1e300), (-1, 2.5)], [('a', 'i4'), ('b', 'f8')])
        i, u, x, c = f['i'], f['u'], f['x'], f['c']
        i.astype('i1')[:], i.astype('u1')[1:], i.astype('>i2')[3], u.astype('i8')[:], i.astype('?')[:]
        x.astype('i4')[:], x.astype('u2')[::2], x.astype('f4')[:], i.astype('f2')[:]
        np.array(i, 'i1'), np.asarray(u, 'i4'), i.__array__('u1'), np.asarray(x, 'i8')
        c.astype([('a', 'u1'), ('b', 'f4')])[:], c.fields('a').astype('u1')[:], c.fields('b').astype('i2')[0]
        y = np.zeros(4, 'u1'); i.read_direct(y); y
        y = np.zeros(4, 'i2'); x.read_direct(y, np.s_[1:3], np.s_[2:]); y
    """)


def test_writing(both: Any) -> None:
    both.same(MAKE)
    both.same("""
        d[0] = 1
        d[0, 0] = [1]
        d[0] = [1, 2]
        d[0] = [1, 2, 3, 4]
        d[...] = np.ones((3, 4))
        d[()] = np.ones((1, 3, 4))
        d[()] = np.arange(4)
        d[:, 0] = np.arange(3)
        d[()] = np.ones((3, 1))
        d[0:2] = np.ones((3, 4))
        d[()]
        d[0] = 'a'
        d[0] = 1j
        d[0] = np.array([1j])
        d[0] = object()
        d[0] = np.array(['a'])
        d['a'] = 1
        d[3] = 1
        d[[0, 2]] = np.full((2, 4), 7)
        d[:, [1, 2]] = np.arange(6).reshape(3, 2)
        d[np.ones((3, 4), bool)] = np.arange(12)
        d[np.ones((3, 4), bool)] = np.arange(11)
        d[1:1] = 5
        d[d[...] > 8] = 99
        d[()]
        s[()] = 5
        s[...] = 6
        s[0] = 5
        s[()] = [7]
        s[()] = [5, 6]
        s[()]
        e[()] = 5
        e[...] = 5
        z[()] = 5
        v[0] = 'a much longer string'
        v[1] = b'bytes'
        v[0] = 5
        v[0] = None
        v[0] = 'a\\0b'
        v[()]
        v[()] = ['é', '']
        v[()], v.asstr()[()]
        fs[0] = 'toolong'
        fs[1] = b'q'
        fs[0] = 'é'
        us[0] = 'é'
        us[1] = 'b'
        us[()], us.asstr()[()], fs[()]
        bo[1] = True
        c[0] = 5
        h[0] = 0.25
        en[0] = 0
        be[1:] = [70000, -1]
        bo[()], c[()], h[()], en[()], be[()]
        r[...] = [[1, 2, 3], [4, 5, 6]]
    """)
    both.again()
    both.same(AGAIN)
    both.same(f"[x[()] for x in {ALL}]")


def test_what_is_written_was_copied(impl: Any) -> None:
    with impl.open("w") as f:
        values = np.arange(5)
        ds = f.create_dataset("x", data=values)
        values[:] = 0
        ds[3:] = values[:2]
        values[:] = 9
        assert ds[()].tolist() == [0, 1, 2, 0, 0]


def test_direct_with_strides(tmp_path: pathlib.Path) -> None:
    """What h5py refuses: arrays in memory whose elements do not lie in C order, and numpy's pairing of lists."""
    values = np.arange(24.0).reshape(4, 6)
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        ds = f.create_dataset("x", data=values)
        for order in "CF":
            wide = np.zeros((10, 12), order=order)
            ds.read_direct(wide, np.s_[:, ::2], np.s_[1:9:2, 3:6])
            assert np.array_equal(wide[1:9:2, 3:6], values[:, ::2])
            assert wide.sum() == values[:, ::2].sum()
            ds.read_direct(wide[::2, ::-1][:4, :6])
            assert np.array_equal(wide[::2, ::-1][:4, :6], values)
        two = np.zeros((3, 3))
        ds.read_direct(two, np.s_[:2, :2], np.s_[[2, 0], [0, 2]])
        assert two.tolist() == [[6, 0, 7], [0, 0, 0], [0, 0, 1]]
        ds.write_direct(np.asfortranarray(values) * 2)
        assert np.array_equal(ds[...], values * 2)
        ds.write_direct(values[:, ::-1], np.s_[1:3, [5, 0]], np.s_[[3, 0], 1:3])
        values *= 2
        values[3, 1:3], values[0, 1:3] = [6, 11], [12, 17]
        assert np.array_equal(ds[...], values)
        with pytest.raises(TypeError, match="writable"):
            ds.read_direct(np.broadcast_to(np.zeros(6), (4, 6)))


ELEMENTS = {
    "i4": "i4", "record": "f8", "f2": "f2", "c16": "c16", "bool": "?", "S3": "S3", "text": pnc_vol.string_dtype(),
    "enum": pnc_vol.enum_dtype({"no": 0, "yes": 1}, "i1"), "compound": np.dtype([("a", "i4"), ("b", "f4")]),
    "array": np.dtype(("i4", (2,))), "rows": pnc_vol.vlen_dtype("i4"),
}  # fmt: skip


def elements(kind: str) -> Any:
    n = np.arange(24).reshape(4, 6)
    if kind == "text":
        return np.array([str(i).encode() for i in n.flat], object).reshape(n.shape)
    if kind == "compound":
        return np.array([(i, i / 2) for i in n.flat], ELEMENTS[kind]).reshape(n.shape)
    if kind == "array":
        return np.stack([n, -n], -1).astype("i4")
    if kind == "rows":
        made = np.empty(24, object)
        made[:] = [np.arange(i % 4, dtype="i4") for i in range(24)]
        return made.reshape(n.shape)
    return (n % 2).astype(ELEMENTS[kind]) if kind in ("bool", "enum") else n.astype(ELEMENTS[kind])


def alike(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and all(map(np.array_equal, one.ravel(), other.ravel()))


@pytest.mark.parametrize("kind", ELEMENTS)
def test_several_lists_are_crossed_wherever_an_index_stands(tmp_path: pathlib.Path, kind: str) -> None:
    index = ([0, 2], [0, 1, 3])
    values = elements(kind)
    wanted = values[np.ix_(*index)]
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        x = f.create_dataset("x", (4, 6), ELEMENTS[kind], maxshape=(None, 6) if kind == "record" else None)
        x[...] = values
        for state in ("posted", "flushed"):
            assert alike(x[index], wanted), state
            assert alike(x[np.array([True, False, True, False]), [0, 1, 3]], wanted)
            assert alike(x[[2, 0], [3, 0]], values[np.ix_([2, 0], [3, 0])])
            assert alike(x.iget(index).wait(), wanted)
            assert alike(x[x.regionref[index]].ravel(), wanted.ravel()) or kind == "array"
            f.flush()
        x[index] = wanted[::-1]
        values[np.ix_(*index)] = wanted[::-1]
        assert alike(x[...], values)
        x.write_direct(np.ascontiguousarray(values[::-1]), np.s_[index], np.s_[index])
        values[np.ix_(*index)] = values[::-1][np.ix_(*index)]
        if kind not in ("compound", "array", "rows"):
            x.iput(index, wanted)
            values[np.ix_(*index)] = wanted
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert alike(f["x"][...], values)
        assert alike(f["x"][index], values[np.ix_(*index)])


def test_collective_reads_nest() -> None:
    with pnc_vol.File("q.nc", "w", driver="memory") as f:
        f["x"] = [1, 2]
        ds = f["x"]
        with ds.collective:
            assert f["x"][()].tolist() == [1, 2]
            with f["x"].collective:
                ds[0] = 3
            assert ds[()].tolist() == [3, 2]
        with pytest.raises(KeyError), ds.collective:
            raise KeyError
        assert not f.id.handle.collective


class HasArray:
    """Gives an array when numpy asks, as other libraries' arrays do."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array if dtype is None else self.array.astype(dtype)


WRAPS: dict[str, Any] = {
    "array": lambda a: a, "scalar": lambda a: a[0], "number": lambda a: a[0].item(), "scalars": lambda a: [a[0], a[1]],
    "numbers": lambda a: a.tolist(), "arrays": lambda a: [np.array(x) for x in a], "has_array": HasArray,
    "memoryview": memoryview, "masked": np.ma.array, "under_a_mask": lambda a: np.ma.array(a, mask=True),
}  # fmt: skip


@pytest.mark.parametrize("big", [2**40, 1e12, -1], ids=str)
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_what_does_not_fit_is_refused_however_it_comes(tmp_path: pathlib.Path, wrap: Any, big: Any) -> None:
    value = wrap(np.array([big, big]))
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        ds = f.create_dataset("x", (2,), "u1", fillvalue=7)
        with pytest.raises(ValueError, match="does not fit uint8"):
            ds[...] = value
        with pytest.raises(ValueError, match="does not fit uint8"):
            f.create_dataset("y", data=value, dtype="u1")
        with pytest.raises(ValueError, match="cannot be stored as uint8"):
            f.attrs.create("a", value, dtype="u1")
        assert ds[()].tolist() == [7, 7]
        assert "y" not in f
        assert "a" not in f.attrs
    with pnc_vol.File(tmp_path / "x.nc", "w", on_overflow="clip") as f:
        ds = f.create_dataset("x", (2,), "u1")
        ds[...] = value
        assert set(ds[()].tolist()) == {0 if big < 0 else 255}


def test_a_dataset_is_written_into_another_with_its_values_or_not_at_all(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["big"] = np.array([1, 2**40])
        f["small"] = np.zeros(2, "i4")
        with pytest.raises(ValueError, match="1099511627776"):
            f["small"][...] = f["big"]
        f["big"][...] = [3, 4]
        f["small"][...] = f["big"]
        assert f["small"][()].tolist() == [3, 4]


def test_numbers_beyond_numpys_are_refused_in_words(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        ds = f.create_dataset("x", (2,), "i4")
        for value in (2**70, [2**70, 1], float("nan"), "3000000000"):
            with pytest.raises(ValueError, match="does not fit int32"):
                ds[...] = value
        ds[...] = "300"
        assert ds[0] == 300
        with pytest.raises(ValueError, match="cannot be stored as float32"):
            f.attrs.create("a", 1e300, dtype="f4")


def test_empty_datasets_cannot_be_written(impl: Any) -> None:
    with impl.open("w") as f:
        f["e"] = impl.h5.Empty("f4")
        with pytest.raises(OSError):
            f["e"][...] = 1
        if impl.ours:
            with pytest.raises(ConversionError, match="Empty"):
                f["e"].iput((), 1)
            with pytest.raises(ValueError, match="Empty"):
                f["e"].iget(())


def test_a_decomposition_is_an_index(tmp_path: pathlib.Path) -> None:
    owned = pnc_vol.Decomposition.from_runs([1, 4], [2, 1], shape=(6,))
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        x = f.create_dataset("x", (6,), "i4", decomposition=owned)
        r = f.create_dataset("r", (2, 6), "i4", maxshape=(None, 6))
        x[owned] = [1, 2, 3]
        r[1, owned] = [7, 8, 9]
        assert x[...].tolist() == [0, 1, 2, 0, 3, 0]
        assert r[1].tolist() == [0, 7, 8, 0, 9, 0]
        assert x[owned].tolist() == [1, 2, 3]
        assert r[1, owned].tolist() == [7, 8, 9]
        with pytest.raises(ValueError, match=r"\(6,\)"):
            f.create_dataset("y", (5, 2), "i4", decomposition=owned)
        assert "y" not in f
        with pytest.raises(TypeError, match=r"a pnc_vol\.Decomposition is needed"):
            f.create_dataset("z", (5,), "i4", decomposition=[1, 2])
        assert "z" not in f
