"""Labels and scales against h5py."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import pnc_vol


def test_labels_and_scales(both: Any) -> None:
    both.same("""
        d = f.create_dataset('d', data=np.zeros((2, 3))); x = f.create_dataset('x', data=[1., 2.])
        y = f.create_dataset('y', data=[1, 2, 3]); y2 = f.create_dataset('y2', data=[4, 5, 6])
        len(d.dims), len(list(d.dims)), d.dims[0].label, len(d.dims[0]), list(d.dims[0])
        d.dims[2]
        d.dims[0].label = 'x'
        d.dims[0].label
        d.dims[0].label = 3
        d.dims[0][0]
        d.dims[0]['a']
        d.dims[0].keys(), d.dims[0].values(), d.dims[0].items()
        d.dims[0].attach_scale(x)
        x.is_scale, d.is_scale, d.dims[0][0], len(d.dims[0]), d.dims[0].keys()
        y.make_scale('yy')
        d.dims[1].attach_scale(y)
        d.dims[1].attach_scale(y)
        d.dims[1].attach_scale(y2)
        len(d.dims[1]), d.dims[1]['yy'], d.dims[1].keys(), d.dims[1].values(), d.dims[1].items()
        d.dims[1]['nope']
        d.dims[1][5]
        d.dims[0].attach_scale(d)
        d.dims[0].attach_scale(f)
        d.dims[0].attach_scale(3)
        d.dims[0].detach_scale(y)
        d.make_scale('no')
        d.make_scale(3)
        y.dims[0].attach_scale(x)
        d.dims[0] == d.dims[0], d.dims[0] == d.dims[1], hash(d.dims[0]) == hash(d.dims[0])
        len(f.create_dataset('e', data=h5.Empty('f4')).dims), len(f.create_dataset('s', data=1).dims)
    """)
    both.again()
    both.same("""
        d = f['d']
        d.dims[0].label, d.dims[1].label, [len(a) for a in d.dims], d.dims[0].keys(), d.dims[1].keys()
        d.dims[0][0].name, d.dims[1]['yy'].name, d.dims[1][1].name
        f['x'].is_scale, f['y'].is_scale, d.is_scale
        d.dims[1].detach_scale(f['y'])
        d.dims[1].detach_scale(f['y'])
        d.dims[1].keys(), f['y'].is_scale
        f['y'].make_scale('renamed')
    """)
    both.again()
    both.same("f['d'].dims[1].keys(), f['y'].is_scale, f['d'].dims[0].keys()")


def test_a_scale_of_several_variables_is_one_when_it_is_opened_again(both: Any) -> None:
    both.same("""
        f['d'], f['c'] = [1, 2], np.zeros(2, [('a', 'i4')])
        v = f.create_dataset('v', (2,), h5.vlen_dtype('i4'))
        f['c'].make_scale('pair'), v.make_scale('')
        f['d'].dims[0].attach_scale(f['c']), f['d'].dims[0].attach_scale(v)
    """)
    both.again()
    both.same("f['c'].is_scale, f['v'].is_scale, f['d'].dims[0].keys(), f['c'].attrs['NAME']")


def test_create_scale_is_deprecated(impl: Any) -> None:
    with impl.open("w") as f:
        f["d"], f["x"] = [1.0, 2.0], [3.0, 4.0]
        with pytest.warns(Warning, match="deprecated"):
            f["d"].dims.create_scale(f["x"], "name")
        assert f["x"].is_scale


def test_a_deleted_scale_is_detached_and_those_of_another_file_are_refused(tmp_path: Any) -> None:
    """HDF5 leaves a dangling reference in both cases."""
    with pnc_vol.File(tmp_path / "x.nc", "w") as f, pnc_vol.File(tmp_path / "y.nc", "w") as other:
        f["d"], f["x"], other["x"] = [1.0, 2.0], [3.0, 4.0], [3.0, 4.0]
        with pytest.raises(RuntimeError, match="another file"):
            f["d"].dims[0].attach_scale(other["x"])
        f["d"].dims[0].attach_scale(f["x"])
        del f["x"]
        assert len(f["d"].dims[0]) == 0


def test_representations(impl: Any) -> None:
    f = impl.open("w")
    f["d"] = [1.0]
    f["d"].dims[0].label = "x"
    dims, axis = f["d"].dims, f["d"].dims[0]
    assert repr(dims).startswith('<Dimensions of "/d">' if impl.ours else "<Dimensions of HDF5 object at ")
    assert repr(axis).startswith('<"x" dimension 0 of ' + ('"/d">' if impl.ours else "HDF5 dataset at "))
    f.close()
    kind = "" if impl.ours else "HDF5 "
    assert repr(dims) == f"<Dimensions of closed {kind}dataset>"
    assert repr(axis) == f"<Dimension of closed {kind}dataset>"


def attached(dataset: Any) -> list[list[str]]:
    return [[scale.name for scale in axis.values()] for axis in dataset.dims]


def test_a_copy_within_the_file_keeps_its_scales(impl: Any) -> None:
    with impl.open("w") as f:
        f["t"] = np.arange(3.0)
        f["g/r"] = np.arange(2)
        f["g/v"] = np.zeros((3, 2))
        for axis, name in enumerate(("t", "g/r")):
            f[name].make_scale(name)
            f["g/v"].dims[axis].attach_scale(f[name])
        f.copy("g/v", "v2")
        f.copy("g", "g2")
        f.copy("g/v", "bare", without_attrs=True)
    with impl.open() as f:
        for name in ("g/v", "v2", "g2/v"):
            assert attached(f[name]) == [["/t"], ["/g/r"]]
        assert attached(f["bare"]) == [[], []]


def test_a_copy_into_another_file_has_the_scales_that_come_along(tmp_path: pathlib.Path) -> None:
    """h5py leaves references that lead nowhere."""
    with pnc_vol.File(tmp_path / "a.nc", "w") as f, pnc_vol.File(tmp_path / "b.nc", "w") as other:
        for name, of in (("t", "g/x"), ("g/y", "g/x")):
            f[name] = np.arange(3.0)
            f[name].make_scale(name)
            f.require_dataset(of, (3, 3), "f4").dims[name == "g/y"].attach_scale(f[name])
        f.copy("g", other)
        f.copy("/", other, "all")
    with pnc_vol.File(tmp_path / "b.nc") as f:
        assert attached(f["g/x"]) == [[], ["/g/y"]]
        assert attached(f["all/g/x"]) == [["/all/t"], ["/all/g/y"]]
