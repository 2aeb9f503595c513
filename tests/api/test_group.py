"""Groups against h5py: paths, the mapping interface, moving, copying, visiting."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import DefinitionError


def test_refused_names(both: Any) -> None:
    both.same("""
        f.create_group('a/b')
        f.create_dataset('a/d', data=1)
        f.create_group('a')
        f.create_group('a/b/')
        f.create_group('a/d/x')
        f.create_dataset('a/d/x', data=1)
        f.create_dataset('a/d', data=1)
        f.create_dataset('/', data=1)
        f.create_group('')
        f.create_group('/')
        f.create_group('.')
        f.create_group(5)
        f.create_dataset(5, data=1)
        f.create_group('\\ud800')
        f['zz']
        f['zz/yy']
        f['a/yy']
        f['a/d/yy']
        f[1]
        f[None]
        f['a', 'b']
        f['']
        5 in f
        f.__setitem__('a', 1)
        f.__setitem__(3, 1)
        f.__setitem__(None, 1)
        f.__setitem__('', 1)
        f.__setitem__('/', 1)
        f.__setitem__('obj', object())
        f.__setitem__('u', np.array(['a']))
        f.__setitem__('none', None)
        f.create_group('t', track_times='x')
        list(f), list(f['a'])
    """)


def test_a_slash_at_the_end_of_a_name(both: Any) -> None:
    """Groups and links may be asked for with one; of a dataset h5py takes what is behind it for the name."""
    both.same("""
        f.create_dataset('a/', (2,), 'i4')
        f.create_dataset('//b//', (2,), 'i4')
        f.create_dataset('/', (2,), 'i4')
        f.require_dataset('c/', (2,), 'i4')
        f.create_dataset('e/', (2,), 'i4', external='raw')
        f.create_group('k/').name, f.create_group('k/m/').name, f.require_group('r/').name
        f.__setitem__('z/', 1), f['z'][()]
    """)


def test_a_refused_creation_leaves_no_group(impl: Any) -> None:
    if not impl.ours:
        pytest.skip("h5py leaves the groups on the way behind")
    with impl.open("w") as f:
        for attempt in (
            lambda: f.create_dataset("x/y/z", (3,), "U5"),
            lambda: f.create_dataset("x/y/z", (3,), "i4", data=[1]),
            lambda: f.create_dataset("x/y/z", data=[1, 300], dtype="i1"),
            lambda: f.create_group("x/y/\0"),
        ):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                attempt()
            assert len(f) == 0
        assert not f.requests


def test_mapping(both: Any) -> None:
    both.same("""
        f.create_group('g'); f['p/q/r'] = [1, 2]; f['s'] = 'text'; f['by'] = b'abc'; f['ls'] = ['a', 'bcd']
        f['npb'] = np.array([b'a', b'bcd']); f['e'] = h5.Empty('f4')
        f.keys(), repr(f.values()), repr(f.items()), f['p'].keys(), str(f['p'].keys())
        f.get('zz'), f.get('zz', 3), f.get('g'), f.get('p/q/r')[()], f.get(b'g')
        f.get('g', getclass=True), f.get('p/q/r', getclass=True), f.get('zz', 5, getclass=True)
        type(f.get('g', getlink=True)), f.get('g', getlink=True, getclass=True)
        f['s'][()], f['s'], f['by'][()], f['ls'][()], f['npb'][()], f['e'][()], f['e']
        f['p'] in f.values(), ('p', f['p']) in f.items(), ('p', f['g']) in f.items()
        list(reversed(f.keys())), [repr(v) for v in reversed(f.values())], [k for k, _ in reversed(f.items())]
        f.setdefault('sd', [1, 2])
        f.setdefault('sd', [1, 2, 3])[()]
        f.update({'x': 1, 'y': 2}, z=3)
        f.pop('zz', 3)
        f.pop('zz')
        sorted(f)
        del f['x']
        del f['zz']
        del f['p/zz']
        del f['zz/zz']
        del f['p/q/r/zz']
        del f['/']
        del f['.']
        del f['']
        del f[3]
        del f['p/q']
        list(f), list(f['p'])
        hash(f) == hash(f['/']), hash(f['g']) == hash(f['g']), f == f['/'], f['g'] == f['g'], f['g'] == f['p']
        f['g'] == 5, f['g'] != f['g'], f['g'] is f['g']
        f['g'].clear(), f['p'].clear(), len(f['p'])
        f._ipython_key_completions_()
    """)
    both.again()
    both.same("list(f), len(f), list(reversed(f)), [repr(v) for v in f.values()], [(k, repr(v)) for k, v in f.items()]")
    both.same("f['ls'][()], f['s'][()], f['npb'][()], f['e'][()], f['z'][()]")


def test_move_into_itself() -> None:
    with pnc_vol.File("m.nc", "w", driver="memory") as f:
        f.create_group("a/b")
        with pytest.raises(ValueError, match="inside"):
            f.move("a", "a/b/c")
        assert list(f) == ["a"]


def test_moved_objects_stay_usable(impl: Any) -> None:
    with impl.open("w") as f:
        ds = f.create_dataset("a/x", data=[1, 2, 3])
        ds.attrs["u"] = "m"
        f.move("a/x", "b/y")
        assert ds.name == "/b/y"
        ds[0] = 7
        f = impl.again(f)
        assert f["b/y"][()].tolist() == [7, 2, 3]
        assert f["b/y"].attrs["u"] == "m"
        assert "x" not in f["a"]
        f.close()


def test_copy_between_files(impl: Any, tmp_path: pathlib.Path) -> None:
    rows = np.arange(5 * 400_000, dtype="f8").reshape(5, 400_000)  # more than one block
    with impl.open("w") as f, impl.h5.File(tmp_path / "other", "w") as other:
        f.create_dataset("a/x", data=rows, fillvalue=3)
        f["a"].attrs["u"] = "K"
        r = f.create_dataset("r", (2, 3), "i2", maxshape=(None, 3))
        r[1] = 5
        f.copy("a", other)
        f.copy(f["r"], other["a"], name="s")
        other.flush()
    with impl.h5.File(tmp_path / "other") as other:
        assert np.array_equal(other["a/x"][()], rows)
        assert other["a/x"].fillvalue == 3
        assert other["a"].attrs["u"] == "K"
        assert other["a/s"].maxshape == (None, 3)
        assert other["a/s"][()].tolist() == [[0, 0, 0], [5, 5, 5]]


def test_copy_the_root(impl: Any, tmp_path: pathlib.Path) -> None:
    with impl.open("w") as f, impl.h5.File(tmp_path / "other", "w") as other:
        f["x"] = 1
        f.copy("/", other, name="all")
        assert list(other["all"]) == ["x"]


def test_not_yet(impl: Any) -> None:
    if not impl.ours:
        pytest.skip("h5py has these")
    with impl.open("w") as f:
        f.create_group("g")
        with pytest.raises(DefinitionError, match="NUL"):
            f.create_group("a\0b")
        with pytest.raises(DefinitionError, match=r"'\.\.'"):
            f["a/../b"] = 1


def test_deleted_objects(impl: Any) -> None:
    if not impl.ours:
        pytest.skip("in HDF5 a deleted object lives on without a name while it is open")
    with impl.open("w") as f:
        g, ds = f.create_group("g/h"), f.create_dataset("g/x", data=[1])
        del f["g"]
        assert not g
        assert not ds
        assert repr(ds) == "<Closed HDF5 dataset>"
        assert ds.name is None
        for use in (
            lambda: ds[0],
            lambda: ds.shape,
            lambda: list(g),
            lambda: ds.attrs["u"],
            lambda: g.create_group("x"),
        ):
            with pytest.raises(ValueError, match="deleted"):
                use()
        f["g"] = [3]
        assert not g
        f = impl.again(f)
        assert f["g"][()].tolist() == [3]
        f.close()


def test_subclasses_and_ids(impl: Any) -> None:
    class MyGroup(impl.h5.Group):
        def twice(self) -> int:
            return 2 * len(self)

    with impl.open("w") as f:
        f["g/x"] = [1]
        mine = MyGroup(f["g"].id)
        assert mine.twice() == 2
        assert mine == f["g"]
        assert impl.h5.Dataset(f["g/x"].id)[0] == 1
        assert impl.h5.Group(f.id).name == "/"
        assert impl.h5.File(f["g/x"].id) == f
        assert f["g"].id.valid
        for bad in (lambda: impl.h5.Group(f["g/x"].id), lambda: impl.h5.Dataset(f.id), lambda: impl.h5.Dataset(3)):
            with pytest.raises(ValueError, match="is not a"):
                bad()


def test_names_of_other_programs_that_are_no_utf8_are_found_and_deleted(tmp_path):
    path = tmp_path / "latin.nc"
    with pnc_vol.File(path, "w") as f:
        f["QQQ"], f["link"], f.attrs["AAA"] = 1, pnc_vol.SoftLink("/other"), 2
    path.write_bytes(path.read_bytes().replace(b"QQQ", b"h\xf6h").replace(b"AAA", b"\xe4hm"))
    with pytest.warns(pnc_vol.FormatWarning, match="legal name"):
        f = pnc_vol.File(path, "r+")
    with f:
        assert "h\udcf6h" in f
        assert f[b"h\xf6h"][()] == 1
        assert f.attrs[b"\xe4hm"] == 2
        del f["h\udcf6h"], f.attrs["\udce4hm"]
        assert list(f) == ["link"]
        assert list(f.attrs) == []
