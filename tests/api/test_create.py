"""create_dataset against h5py: what is accepted, what is refused, what is remembered."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import h5py
import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import PncVolWarning

SHOWN = (
    "(x.shape, x.maxshape, x.dtype, x.size, x.nbytes, x.ndim, x.fillvalue, x.compression, x.compression_opts, "
    "x.shuffle, x.fletcher32, x.scaleoffset, x.filter_ids)"
)
CALLS = """
(3, 'f4') | ((), 'f4') | ((3,), 'i4') | ((0,), 'i4') | ((2, 0), 'i4') | ((3,), 'i4', [1, 2, 3])
((3, 1), 'i4', [1, 2, 3]) | ((4,), 'i4', [1, 2, 3]) | ((3,), None, 1) | ((3,), 'i4', 1) | () | (None, 'f4')
((-1,), 'f4') | ('abc', 'f4') | ([2, 3], 'f4') | ((None,), 'f4') | ((3,), 'zz') | ((3,), 'U5') | ((3,), 'M8[s]')
((3,), object) | ((3,), '?') | ((3,), 'c8') | ((3,), 'c16') | ((3,), 'f2') | ((3,), '>i4') | ((3,), 'S3')
((2,), h5.enum_dtype({'A': 1})) | ((2,), h5.string_dtype()) | ((2,), h5.string_dtype('ascii'))
((2,), h5.string_dtype('utf-8', 5)) | ((1, 2, 3, 4, 5), 'i1') | (None, None, 'abc') | (None, None, ['abc', 'd'])
(None, None, b'abc') | (None, None, [b'abc', b'd']) | (None, None, np.array([b'abc']))
(None, None, np.array(['a'])) | (None, 'S3', ['a']) | (None, h5.string_dtype('utf-8', 3), ['a', 'bcd'])
(None, h5.string_dtype(), np.array(['a', 'bc'], dtype=object))
(None, None, np.array(['a', 'bc'], dtype=object)) | (None, None, True) | (None, None, 1j)
(None, None, [[1, 2], [3]]) | (None, None, [1, 'a']) | (None, None, np.datetime64('2000-01-01'))
(None, None, h5.Empty('i4')) | ((3,), None, h5.Empty('i4')) | (None, None, []) | (None, None, np.float16(2))
(None, None, np.arange(4, dtype='>i2')) | (None, 'f4', np.arange(4)) | (None, 'i4', [1.5]) | (None, 'i1', 300)
((2, 2), None, np.arange(4)) | (None, None, np.arange(6).reshape(2, 3).T) | (None, None, range(4))
(None, None, (1, 2.5)) | ((), 'f4', chunks=True) | ((), 'f4', compression='gzip') | ((), 'f4', maxshape=(None,))
((), 'f4', maxshape=()) | (None, 'f4', chunks=True) | (None, 'f4', maxshape=(None,)) | ((3,), 'f4', scaleoffset=True)
((3,), 'f4', scaleoffset=4) | ((3,), 'S3', scaleoffset=1) | ((3,), 'f4', fillvalue=np.nan)
((3,), 'S3', fillvalue='ab') | ((3,), 'S3', fillvalue=b'ab') | ((3,), '?', fillvalue=True)
((3,), 'c8', fillvalue=1j) | ((3,), 'f8', maxshape=(3,)) | ((3, 4), 'f8', maxshape=(None, 4))
((3, 4), 'f8', maxshape=(3, 4)) | ((3, 4), 'f8', maxshape='ab') | ((2,), 'V0') | ((2,), []) | (None, None, np.void(b''))
((2,), ('i4', (0,))) | ((2,), [('a', 'i4', (0,))]) | ((2,), [('a', 'V0'), ('b', 'i4')]) | (None, None, h5.Empty('V0'))
((2,), h5.enum_dtype({chr(0xD800): 1}))
"""
KEYWORDS = """
maxshape=(None,) | maxshape=2 | maxshape=(2,) | maxshape=(None, None) | maxshape=(30,) | chunks=True
chunks=(40,) | chunks=(2,) | chunks=2 | chunks=(2, 2) | chunks=(0,) | chunks=(-1,) | chunks='a' | chunks=False
chunks=False, compression='gzip' | chunks=False, maxshape=(None,) | compression='gzip'
compression='gzip', compression_opts=9 | compression='gzip', compression_opts=10 | compression=5
compression=True | compression=0 | compression=5, compression_opts=3 | compression='lzf'
compression='lzf', compression_opts=3 | compression='szip' | compression='szip', compression_opts=('ec', 16)
compression='szip', compression_opts=('ec', 15) | compression='szip', compression_opts=('zz', 16)
compression='szip', compression_opts=4 | compression='bogus' | compression_opts=3 | shuffle=True
fletcher32=True | shuffle=True, fletcher32=True, compression='gzip', chunks=(5,) | scaleoffset=True
scaleoffset=4 | scaleoffset=-1 | scaleoffset=1, fletcher32=True | fillvalue=7 | fillvalue=7.0
fillvalue=np.int8(-3) | fillvalue='a' | track_times=True | track_times='x' | track_order='x' | track_order=True
fill_time='never' | fill_time='bogus' | bogus=1 | rdcc_nbytes=1, rdcc_w0=0.5
"""


def table(text: str) -> list[str]:
    """The entries of a table, which stand between bars."""
    return [entry.strip() for entry in text.replace("\n", "|").split("|") if entry.strip()]


@pytest.mark.parametrize("call", table(CALLS))
def test_shape_type_data(both: Any, call: str) -> None:
    if call == "()":
        both.same("f.create_dataset('x')")
        return
    arguments = call[1:-1]
    both.same(f"x = f.create_dataset('x', {arguments})")
    both.same("'x' in f")
    both.same(f"x = f['x']; shown = {SHOWN}, x[()]")
    if "x" in both.names[0]["f"]:
        both.same("shown")
        both.again()
        # how many digits were kept is not remembered in a file
        remembered = "(x.shape, x.maxshape, x.fillvalue)" if "scaleoffset=4" in call else SHOWN
        both.same(f"x = f['x']; shown = {remembered}, x[()]")
        both.same("shown")


@pytest.mark.parametrize("keywords", table(KEYWORDS))
def test_keywords(both: Any, keywords: str) -> None:
    both.same(f"x = f.create_dataset('x', (20,), 'i4', {keywords})")
    both.same("'x' in f")
    if "x" in both.names[0]["f"]:
        both.same(SHOWN)
        both.same("x.chunks, x[()]")


def test_fill_values_are_read_where_nothing_was_written(both: Any) -> None:
    both.same("""
        a = f.create_dataset('a', (2, 3), 'i2', fillvalue=-7); a[0, 1] = 3
        s = f.create_dataset('s', (3,), h5.string_dtype(), fillvalue='none'); s[1] = 'a much longer text'
        r = f.create_dataset('r', (1,), 'f8', maxshape=(None,), fillvalue=np.nan); r.resize((3,)); r[2] = 1
        a[()], s[()], r[()], s.fillvalue, r.fillvalue
    """)
    both.again()
    both.same("f['a'][()], f['s'][()], f['r'][()], f['s'].fillvalue, f['r'].fillvalue, f['a'].fillvalue")
    both.same("f['s'][0] = 'x'; f['s'][()]")
    both.again()
    both.same("f['s'][()]")


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        ("chunks", {"chunks": (2,)}),
        ("compression", {"compression": "gzip"}),
        ("shuffle", {"shuffle": True}),
        ("fletcher32", {"fletcher32": True}),
        ("scaleoffset", {"scaleoffset": 3}),
        ("track_times", {"track_times": True}),
    ],
)
@pytest.mark.usefixtures("nothing_warned_of")
def test_one_warning_per_kind(kind: str, keywords: Any) -> None:
    with pnc_vol.File("w.nc", "w", driver="memory") as f:
        with pytest.warns(PncVolWarning, match=kind) as caught:
            f.create_dataset("a", (3,), "i4", **keywords)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            f.create_dataset("b", (3,), "i4", **keywords)


def test_filters_of_plugins_are_remembered() -> None:
    class Filter:
        filter_id = 32015
        filter_options = (3,)

    with pnc_vol.File("w.nc", "w", driver="memory") as f:
        ds = f.create_dataset("a", (3,), "i4", compression=Filter())
        assert (ds.compression, ds.compression_opts, ds.filter_ids) == ("unknown", (3,), (32015,))
        assert f.create_dataset("b", (3,), "i4", compression=32001, compression_opts=(1, 2)).compression == "unknown"


def test_guessed_chunks_are_small_and_fit() -> None:
    with pnc_vol.File("c.nc", "w", driver="memory") as f:
        for number, (shape, maxshape, dtype) in enumerate(
            (((3,), None, "i4"), ((10**6, 50), (None, 50), "f8"), ((0,), (None,), "i1"), ((7, 0), None, "f8"))
        ):
            chunks = f.create_dataset(str(number), shape, dtype, maxshape=maxshape, chunks=True).chunks
            assert len(chunks) == len(shape)
            assert np.prod(chunks) * np.dtype(dtype).itemsize <= 1 << 20
            assert all(n >= 1 for n in chunks)


@pytest.mark.parametrize("version", ["CDF-1", "CDF-2"])
def test_what_the_format_cannot_hold_is_refused_at_once(tmp_path: pathlib.Path, version: str) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", format=version) as f:
        f["kept"] = np.float32([1, 2])
        for value, instead in (
            ([1, 2], "i4"),
            (np.uint8([1]), "i2"),
            (np.uint64(3), "f8"),
            (pnc_vol.Empty("u2"), "i4"),
        ):
            with pytest.raises(ValueError, match=f"'a/new': {version} has no type .*CDF-5.*{instead}"):
                f["a/new"] = value
            with pytest.raises(ValueError, match=f"'a/new': {version} has no type"):
                f.create_dataset("a/new", data=value)
        with pytest.raises(ValueError, match=f"axis 1, has 2147483648 elements; {version}"):
            f.create_dataset("a/new", (1, 2**31), "i1")
        for value in (np.int64(3), np.arange(3), np.uint8(3), [2**40]):
            with pytest.raises(ValueError, match=f"'n' of '/kept': {version} has no type"):
                f["kept"].attrs["n"] = value
        assert list(f) == ["kept"]
        assert not f["kept"].attrs
    with pnc_vol.File(path) as f:
        assert f["kept"][()].tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(2**62, 2**10), (2**60,), (2**63,), (2**61, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["f8", "S9", [("a", "f8"), ("b", "f8")]], ids=str)
def test_what_no_file_can_hold_is_refused_at_once(tmp_path: pathlib.Path, shape: tuple[int, ...], dtype: Any) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["kept"] = [1, 2]
        grows = f.create_dataset("grows", (1, 1), dtype, maxshape=(None, None))
        for limits in (None, (None, *shape[1:])):
            with pytest.raises(ValueError, match=r"CDF-5 holds|a file holds"):
                f.create_dataset("new", shape, dtype, maxshape=limits)
        for size, axis in ((2**60, 0), (2**63, 0), (2**60, 1)):
            with pytest.raises(ValueError, match=r"CDF-5 holds|a file holds"):
                grows.resize(size, axis=axis)
        with pytest.raises(ValueError, match=r"CDF-5 holds|a file holds"):
            grows.resize((2**60, 1))
        assert sorted(f) == ["grows", "kept"]
        assert grows.shape == (1, 1)
    with pnc_vol.File(path) as f:
        assert f["kept"][()].tolist() == [1, 2]


def test_empty_datasets_keep_the_length_of_their_other_axes(tmp_path: pathlib.Path) -> None:
    """Up to what numpy can read."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", (0, 2**60), "i4")
        f.create_dataset("y", (3, 0, 2**58), [("a", "i4"), ("b", "S3")])
        grows = f.create_dataset("z", (1, 0), "i4", maxshape=(None, None))
        grows.resize((2**60, 0))
        for shape, dtype in (((0, 2**61), "i4"), ((2**62, 0), [("a", "u1"), ("b", "i4")])):
            with pytest.raises(ValueError, match="no empty array"):
                f.create_dataset("new", shape, dtype)
        with pytest.raises(ValueError, match="no empty array"):
            grows.resize((2**61, 0))
    with pnc_vol.File(path) as f:
        found = {name: (ds.shape, ds[()].size) for name, ds in f.items()}
    assert found == {"x": ((0, 2**60), 0), "y": ((3, 0, 2**58), 0), "z": ((2**60, 0), 0)}


def test_pythons_integers_are_attributes_in_every_format(tmp_path: pathlib.Path) -> None:
    values = {"one": 5, "list": [1, -2], "matrix": [[1, 2], [3, 4]], "most": 2**31 - 1, "least": -(2**31), "true": True}
    for version, dtype in (("CDF-1", "i4"), ("CDF-2", "i4"), ("CDF-5", "i8")):
        with pnc_vol.File(tmp_path / "x.nc", "w", format=version) as f:
            f.attrs.update(values)
            f.create_group("g").attrs["n"] = 7
        with pnc_vol.File(tmp_path / "x.nc", "r+") as f:
            assert {name: value.tolist() for name, value in f.attrs.items()} == values
            assert f.attrs["matrix"].dtype == f["g"].attrs["n"].dtype == dtype
            f.attrs["later"] = 9
            f.attrs.modify("one", 6)
            assert f.attrs["later"].dtype == f.attrs["one"].dtype == dtype


def test_a_copy_that_the_format_cannot_hold_makes_nothing(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as new, pnc_vol.File(tmp_path / "b.nc", "w", format="CDF-2") as old:
        new["g/small"] = np.float32([1])
        new["g/big"] = np.arange(3)
        new.create_dataset("h", data=np.float32([1])).attrs["n"] = 5
        for name, what in (("g", "'/g/big'"), ("h", "'n' of '/h'")):
            with pytest.raises(ValueError, match=f"{what}: CDF-2 has no type int64"):
                new.copy(name, old)
        assert list(old) == []
        new.copy("h", old, without_attrs=True)
        assert old["h"][()].tolist() == [1]


KINDS = ["i1", "u2", "i4", "u8", "f4", "f8", ">i2", ">f8", "f2", "b1", "c8", "S3"]


@pytest.mark.parametrize("tracked", [False, True])
def test_the_short_way_makes_the_same_file_as_the_long_one(tmp_path: pathlib.Path, tracked: bool) -> None:
    """Most datasets are made in few steps; a keyword that says nothing makes it all of them."""
    rng = np.random.default_rng(0)
    made = []
    for said in ({}, {"chunks": None}):
        path = tmp_path / f"{len(said)}.nc"
        with pnc_vol.File(path, "w", track_order=tracked) as f:
            rng = np.random.default_rng(0)
            for i, kind in enumerate(KINDS):
                for shape in ((), (3,), (0,), (2, 5), (2, 0), (1, 2, 3)):
                    data = (rng.random(shape) * 100).astype(kind)
                    at = f.require_group("g") if i % 3 == 0 else f
                    name = f"{kind.strip('>')}_{i}_" + "x".join(map(str, shape))
                    ds = at.create_dataset(name, data=data, **said)
                    assert (ds.shape, ds.dtype, ds.maxshape) == (data.shape, data.dtype, data.shape)
                    np.testing.assert_array_equal(ds[()], data)
                    if kind not in ("f2", "S3"):
                        at.create_dataset(f"{name}_empty", shape, kind, **said).attrs["n"] = i
            listed = list(f)
        made.append((path.read_bytes(), listed))
    assert made[0] == made[1]


def test_the_short_way_refuses_what_the_long_one_refuses(tmp_path: pathlib.Path) -> None:
    one = np.arange(3.0)
    with pnc_vol.File(tmp_path / "f.nc", "w") as f:
        f["a"] = one
        f["s"] = pnc_vol.SoftLink("/a")
        for taken in ("a", "s"):
            with pytest.raises(ValueError, match="name already exists"):
                f.create_dataset(taken, data=one)
            with pytest.raises(OSError, match="name already exists"):
                f[taken] = one
        with pytest.raises(OverflowError, match="negative"):
            f.create_dataset("b", (-1,), "f4")
        with pytest.raises(TypeError):
            f.create_dataset("b", (3,), "nonsense")
        loose = f.create_group(None)
        with pytest.raises(NotImplementedError, match="without a name"):
            loose.create_dataset("b", data=one)
        assert list(f) == ["a", "s"]
        assert (f["a"][:] == one).all()
    for call in ("create_dataset('b', data=one)", "__setitem__('b', one)"):
        with pnc_vol.File(tmp_path / "f.nc") as f, pytest.raises(OSError, match="no write intent"):
            eval(f"f.{call}")
        with pytest.raises(ValueError, match="closed"):
            eval(f"f.{call}")
    with pnc_vol.File(tmp_path / "old.nc", "w", format="CDF-1") as f, pytest.raises(ValueError, match="CDF-5"):
        f.create_dataset("b", data=np.arange(3))


@pytest.mark.usefixtures("nothing_warned_of")
def test_a_dataset_like_another_has_its_chunks_without_a_warning(tmp_path: pathlib.Path) -> None:
    """Nobody asked for them in that call; who does is told that they are not stored."""
    with h5py.File(tmp_path / "a.h5", "w") as source, pnc_vol.File(tmp_path / "x.nc", "w") as f:
        source.create_dataset("x", (10,), "f4", chunks=(5,))
        with warnings.catch_warnings():
            warnings.simplefilter("error", PncVolWarning)
            made = f.create_dataset_like("like", source["x"], track_times=None)
            assert made.chunks == (5,)
            assert f.create_dataset_like("like it", made).chunks == (5,)
            grows = f.create_dataset("grows", (10,), "f4", maxshape=(None,))
            assert f.create_dataset_like("grows, too", grows).chunks == grows.chunks
        with pytest.warns(PncVolWarning, match="CDF has no chunks"):
            assert f.create_dataset_like("asked", made, chunks=(2,)).chunks == (2,)
