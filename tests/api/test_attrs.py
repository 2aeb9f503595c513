"""Attributes against h5py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import ConversionError, RangeError


def test_names(both: Any) -> None:
    both.same("""
        a = f.attrs
        a['zz']
        del a['zz']
        a[1]
        a[None]
        a[3] = 1
        a[''] = 1
        3 in a
        'zz' in a, a.get('zz'), a.get('zz', 5)
        a['a/b'] = 1; a[b'by'] = 2; a['é'] = 3; a['x' * 300] = 4; a[' '] = 5; a['-a.b'] = 6
        list(a), a['a/b'], a['by'], a[b'by']
    """)
    both.again()
    both.same("list(f.attrs), [f.attrs[n] for n in f.attrs]")


def test_attributes_of_datasets_and_groups(impl: Any) -> None:
    with impl.open("w") as f:
        ds = f.create_dataset("g/x", data=[1.0])
        ds.attrs["units"], f["g"].attrs["units"], f.attrs["units"] = "K", "m", "s"
        f["g"].attrs["x_units"] = 1
        f = impl.again(f)
        assert f["g/x"].attrs["units"] == "K"
        assert f["g"].attrs["units"] == "m"
        assert f.attrs["units"] == "s"
        assert dict(f["g"].attrs) == {"units": "m", "x_units": 1}
        f["g/x"].attrs["units"] = [1, 2]
        del f["g"].attrs["units"]
        f = impl.again(f, "r")
        assert f["g/x"].attrs["units"].tolist() == [1, 2]
        assert list(f["g"].attrs) == ["x_units"]
        f.close()


def test_values_under_a_mask_are_kept(both: Any) -> None:
    """The mask itself is not, as of datasets."""
    both.same("""
        m = np.ma.array([1, 2, 3], mask=[0, 1, 0])
        types = (None, 'i2', 'f4', 'f8', 'c8', '>u4', 'f2', h5.enum_dtype({'A': 1}, 'i1'))
        [f.attrs.create(str(i), m, dtype=types[i]) for i in range(len(types))]
        f.attrs['x'] = np.zeros(3); f.attrs.modify('x', m)
        d = f.create_dataset('d', (3,), 'i2'); d[...] = m; d.attrs['m'] = m
        [v for v in f.attrs.values()], d[()], d.attrs['m']
    """)


def test_texts_are_modified_by_bytes(both: Any) -> None:
    both.same("""
        f.attrs['t'] = 'abc'; f.attrs['ts'] = ['abc', 'd']; f.attrs['s'] = np.bytes_(b'abc'); f.attrs['n'] = 1
        f.attrs.modify('t', np.array([b'x'])), f.attrs['t']
        f.attrs.modify('t', np.array(b'q')), f.attrs['t']
        f.attrs.modify('ts', np.array([b'a', b'b'], 'S1')), f.attrs['ts'].tolist()
        f.attrs.modify('ts', np.array([b'abcdef', b'x'])), f.attrs['ts'].tolist()
        f.attrs.modify('ts', np.array([b'x']))
        f.attrs.modify('s', np.array([b'x'])), f.attrs['s']
        f.attrs.modify('n', np.array([b'x']))
    """)


def test_a_number_that_does_not_fit_is_no_row() -> None:
    """HDF5 stores another number."""
    with pnc_vol.File("a.nc", "w", driver="memory") as f:
        for value in (2**63, np.uint64(2**63), np.array(2**63, "u8")):
            with pytest.raises(RangeError, match="does not fit"):
                f.attrs.create("rows", value, dtype=pnc_vol.vlen_dtype("i4"))
        with pytest.raises(ConversionError):
            f.attrs.create("rows", object(), dtype=pnc_vol.vlen_dtype("i4"))
        assert not f.attrs


def test_values_are_copies() -> None:
    with pnc_vol.File("a.nc", "w", driver="memory") as f:
        given = np.array([1, 2])
        f.attrs["a"] = given
        given[0] = 9
        f.attrs["a"][1] = 9
        assert f.attrs["a"].tolist() == [1, 2]


def test_nothing_of_ours_is_shown(impl: Any) -> None:
    with impl.open("w") as f:
        f.create_group("a/b")
        f.create_dataset("a/s", data=["x", "y"])
        f.create_dataset("a/b-ool", data=[True])
        f = impl.again(f)
        assert list(f.attrs) == list(f["a"].attrs) == list(f["a/s"].attrs) == list(f["a/b-ool"].attrs) == []
        f.close()


def test_as_a_mapping(both: Any) -> None:
    both.same("""
        f.attrs['a'] = 1; f.attrs['s'] = 'x'; a = f.attrs
        g = f.create_group('g'); g.attrs.update(a); d = f.create_dataset('d', data=[1, 2])
        a == {'a': 1, 's': 'x'}, {'a': 1, 's': 'x'} == a, a == {'a': 2, 's': 'x'}, a == {'a': 1}, a == {}
        a != {'a': 1, 's': 'x'}, a == g.attrs, a == f.attrs, a == 5, a == None, d.attrs == {}, not d.attrs
        a.keys() == {'a', 's'}, sorted(a.keys() & {'a'}), sorted(a.keys() | {'z'}), a.keys() <= {'a', 's', 't'}
        ('a', 1) in a.items(), ('a', 2) in a.items(), 1 in a.values(), a.keys().isdisjoint({'q'})
        a | {'b': 1}
        reversed(a)
        a.copy()
        {**a} == a, dict(a) == a, a.setdefault('n', 4), a.pop('n'), a.pop('n', 3), a.get('zz'), a.get('zz', 5)
        hash(a)
        f.keys() == {'g', 'd'}, ('d', d) in f.items(), d in f.values(), f == {}, g == dict(g), g == f['g']
        list(reversed(f.keys())), [x.name for x in reversed(f.values())], [k for k, _ in reversed(f.items())]
        f | {}
        list(reversed(f))
        isinstance(a, h5._hl.base.MappingHDF5) if hasattr(h5, '_hl') else True
    """)


def test_arrays_are_compared_element_by_element() -> None:
    """h5py raises ValueError there, because an array has no truth value."""
    with pnc_vol.File("a.nc", "w", driver="memory") as f:
        f.attrs["v"], f.attrs["one"] = [1, 2, 3], [1]
        assert f.attrs == {"v": [1, 2, 3], "one": np.array([1])}
        assert f.attrs != {"v": [1, 2, 4], "one": [1]}
        assert f.attrs != {"v": [1, 2, 3], "one": [1, 1]}
        f["d"] = 1
        f["d"].attrs.update(f.attrs)
        assert f.attrs == f["d"].attrs


def test_representation_and_ids() -> None:
    with pnc_vol.File("a.nc", "w", driver="memory") as f:
        a = f.attrs
        a["x"] = 1
        assert repr(a) == '<Attributes of "/" (1 names)>'
        assert a.get_id("x")[1:] == (np.dtype(int), ())
        with pytest.raises(KeyError):
            a.get_id("y")
        with pytest.raises(TypeError):
            hash(a)
    assert repr(a) == "<Attributes of closed object>"
    for use in (lambda: a["x"], lambda: list(a), lambda: len(a), lambda: "x" in a, lambda: a.create("y", 1)):
        with pytest.raises(ValueError, match="closed"):
            use()
