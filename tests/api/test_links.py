"""Soft, external and hard links, named types, orders of creation, objects without a name: as h5py has them."""

from __future__ import annotations

import gc
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import pnc_vol

MAKE = """
    f.create_group('g/h')
    f['g/x'] = [1, 2, 3]
    f['soft'] = h5.SoftLink('/g/x')
    f['g/relative'] = h5.SoftLink('h')
    f['dangling'] = h5.SoftLink('nowhere/at/all')
    f['round'] = h5.SoftLink('round')
    f['again'] = f['g/x']
    f['g/up'] = f['/']
    f['g/h/self'] = f['g/h']
    f['type'] = np.dtype([('a', 'i4'), ('b', 'S3')])
    f['type'].attrs['note'] = 'named'
    f['nothere'] = h5.ExternalLink('missing.h5', '/x')
"""
LOOK = """
    sorted(f), len(f), len(f['g']), 'soft' in f, 'dangling' in f, 'soft/x' in f, 'nothere' in f
    f['soft'][()], f['again'][()], f['g/relative'] == f['g/h'], f['g/up/g/up/soft'][()], 'g/up/g/h/self/self' in f
    f['dangling']
    f['nothere']
    f['nothere/x']
    f.get('dangling'), f.get('dangling', 5), f.get('no', 6, getlink=True)
    [type(f.get(n, getlink=True)).__name__ for n in sorted(f)], [f.get(n, getlink=True, getclass=True) for n in
    sorted(f)]
    f.get('soft', getlink=True).path, f.get('nothere', getlink=True).filename, f.get('nothere', getlink=True).path
    f.get('type', getclass=True), f['type'].dtype, dict(f['type'].attrs), f['type'].name, type(f['type']).__name__
    f['soft'] == f['g/x'], f['again'] == f['g/x'], f['g/up'] == f['/'], hash(f['again']) == hash(f['g/x'])
    found = []
    f.visit(found.append)
    found
    found = []
    f.visit_links(found.append)
    found
    found = []
    f.visititems_links(lambda n, o: found.append((n, type(o).__name__)))
    found
"""
CHANGE = """
    f['soft'] = 1
    f['again'] = h5.SoftLink('x')
    f.move('soft', 'g/moved')
    f['g/moved'][()], 'soft' in f
    f.move('type', 'g/type')
    f['g/type'].dtype, f['g/type'].name, dict(f['g/type'].attrs)
    del f['g/x']
    f['again'][()]
    f['g/moved']
    del f['dangling']
    del f['nothere']
    del f['nothere']
    f['new/soft/x'] = 1
    f['to'] = h5.SoftLink('/g')
    f['to/made'] = 5
    f['g/made'][()]
    f.create_dataset('to/made2', data=[1.5])[0], 'made2' in f['g']
    f.create_dataset('typed', (2,), dtype=f['g/type']).dtype
    f['g/h/y'] = [4]
    f['kept'] = f['g/h']
    del f['g']
    f['kept/y'][()], f['kept/self/y'][()], f['kept'].name
    sorted(f)
"""


def test_links(both: Any) -> None:
    both.same(MAKE)
    both.same(LOOK)
    both.again()
    both.same(LOOK)
    both.same(CHANGE)
    both.again()
    both.same("sorted(f), f['again'][()], f['kept/y'][()], f['kept/self/y'][()], f['typed'].dtype")


def test_external_links(impl: Any, tmp_path: pathlib.Path) -> None:
    with impl.h5.File(tmp_path / "other.nc", "w") as other:
        other["a/b"] = [1, 2]
    with impl.open("w") as f:
        # beside the file that has the link, wherever the program runs
        f["there"] = impl.h5.ExternalLink("other.nc", "/a")
        f["wrong"] = impl.h5.ExternalLink("other.nc", "/q")
        assert f["there/b"][()].tolist() == [1, 2]
        assert "there/b" in f
        assert "there/c" not in f
        with pytest.raises(KeyError):
            f["wrong"]
        f.copy("there", "here", expand_external=True)
        assert f["there"].file.mode == "r+"
        f["there"].attrs["x"] = 1
        f = impl.again(f, "r")
        assert f["here/b"][()].tolist() == [1, 2]
        assert f["there"].file.mode == "r"
        assert f["there"].attrs["x"] == 1
        assert f.get("there", elink_mode="r").name == "/a"
        with pytest.raises(ValueError):
            f.get("there", elink_mode="r+")
        f.close()


def test_what_is_in_another_file_is_made_and_deleted_there(both: Any) -> None:
    both.same("""
        o = h5.File(folder + '/o', 'w'); o['x'], o['g/y'], o['kept'] = 1, 2, 3; o.close()
        f['own'], f['to'], f['deep'] = 1, h5.ExternalLink('o', '/'), h5.ExternalLink('o', '/g')
        f['soft'], f['gone'], f['nothing'] = h5.SoftLink('/to'), h5.ExternalLink('no', '/'), h5.ExternalLink('o', '/no')
        del f['to/x']
        'to/x' in f, 'deep/y' in f, 'soft/g/y' in f, 'to/no/x' in f, 'gone/x' in f, 'nothing/x' in f
        del f['deep/y']
        sorted(f['deep']), sorted(f['to'])
        del f['to/nothing']
        del f['gone/x']
        del f['nothing/x']
        # h5py makes a value in the file of the link, and links it then
        f['to/value'] = 5
        f['to/hard'] = f['own']
        f['hard'] = f['to/kept']
        f['soft/type'], f['deep/link'], f['to/out'] = np.dtype('f4'), h5.SoftLink('/x'), h5.ExternalLink('a', '/b')
        f['to/again'] = f['to/kept']
        f['deep'].create_dataset('made', data=[1, 2])[:]
        f.get('deep/link', getlink=True).path, f.get('to/out', getlink=True).filename
        f.get('to/kept', getlink=True, getclass=True), f.get('to/none', 7, getlink=True), f.get('gone/x', getlink=True)
        f.move('own', 'to/own')
        f.move('to/kept', 'kept')
        f.move('to/again', 'soft/g/again')
        f.move('soft/g/again', 'deep/new/again')
        f.move('to/none', 'to/no')
        f.move('gone/x', 'to/x')
        f.move('deep/new', 'to/new')
        f.copy('own', 'to/own')
        f.copy('to/kept', 'copied')
        sorted(f), sorted(f['to']), sorted(f['deep'])
    """)
    both.again("r")
    both.same("""
        del f['to/kept']
        f['deep/another'] = h5.SoftLink('/x')
        sorted(f['to']), sorted(f['deep']), f['to/new/again'][()], f['to/type'].dtype, f['copied'][()]
    """)


def test_a_named_type_is_no_group(both: Any) -> None:
    both.same("""
        f['t'] = np.dtype('f4')
        f.require_group('t')
        f.require_dataset('t', (2,), 'f4')
        f.create_group('t/g')
    """)


def test_a_named_type_equals_no_dataset_of_that_type(both: Any) -> None:
    both.same("""
        f['t'], f['u'], f['x'] = np.dtype('f4'), np.dtype('f4'), np.zeros(2, 'f4')
        f['t'] == f['t'], f['t'] == f['u'], f['t'] == f['x'], f['x'] == f['t'], f['t'] == f
    """)


def test_copies_of_links(both: Any) -> None:
    both.same("""
        f['g/x'] = [1]
        f['g/s'] = h5.SoftLink('/out')
        f['out'] = [7, 8]
        f['g/again'] = f['g/x']
        f['g/out'] = f['out']
        f['g/t'] = np.dtype('f4')
        f.copy('g', 'plain')
        f.copy('g', 'full', expand_soft=True)
        sorted(f['plain']), sorted(f['full']), type(f.get('plain/s', getlink=True)).__name__, f['plain/t'].dtype
        type(f.get('full/s', getlink=True)).__name__, f['full/s'][()]
        f['plain/again'] == f['plain/x'], f['plain/again'] == f['g/x'], f['plain/out'] == f['out'], f['plain/out'][()]
        o = h5.File(folder + '/o', 'w')
        f.copy('g', o, expand_soft=True)
        f.copy('g/t', o, 'u')
        sorted(o), sorted(o['g']), o['g/s'][()], o['u'].dtype
        o.close()
    """)
    both.again()
    both.same("f['plain/again'] == f['plain/x'], f['full/s'][()], f['plain/out'][()]")


def test_links_in_other_files_are_expanded_from_where_they_stand(both: Any) -> None:
    both.same("""
        import os; os.mkdir(folder + '/below')
        b, c = (h5.File(folder + '/below/' + name, 'w') for name in 'bc')
        b['g/x'], b['y'], c['z'] = [1], [7], [9]
        b['g/soft'], b['g/out'], b['g/kind'] = h5.SoftLink('/y'), h5.ExternalLink('c', '/z'), np.dtype('f4')
        b.close(); c.close()
        f['k/l'] = h5.ExternalLink('below/b', '/g')
        f.copy('k', 'copied', expand_soft=True, expand_external=True)
        g = f['copied/l']; sorted(g), g['soft'][:], g['out'][:], g['kind'].dtype
        [type(g.get(name, getlink=True)).__name__ for name in sorted(g)]
    """)


def test_a_named_type_keeps_its_second_name_in_the_file(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["b/kind"] = np.dtype("f4")
        f["a"] = f["b/kind"]
        f["a"].attrs["unit"] = "K"
    for mode in ("r", "r+"):
        with pnc_vol.File(tmp_path / "x.nc", mode) as f:
            assert [dict(f[name].attrs) for name in ("a", "b/kind")] == [{"unit": "K"}] * 2
            if mode == "r+":
                del f["b"]
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (list(f), f["a"].dtype, f["a"].attrs["unit"]) == (["a"], "f4", "K")


def test_orders_of_creation(impl: Any) -> None:
    with impl.open("w", track_order=True) as f:
        for name in "zay":
            f[name] = 1
        g = f.create_group("g", track_order=True)
        plain = f.create_group("b", track_order=False)
        for name in "qpr":
            g.create_group(name)
            plain[name] = 1
            g.attrs[name] = plain.attrs[name] = 1
        d = f.create_dataset("d", data=1, track_order=True)
        d.attrs["z"] = d.attrs["a"] = 1
        f.move("z", "last")
        for _ in range(2):
            assert list(f) == ["a", "y", "g", "b", "d", "last"]
            assert list(f["g"]) == list(f["g"].attrs) == ["q", "p", "r"]
            assert list(f["b"]) == list(f["b"].attrs) == ["p", "q", "r"]
            assert list(f["d"].attrs) == ["z", "a"]
            assert list(reversed(f["g"])) == ["r", "p", "q"]
            f = impl.again(f)
        f.close()


def test_objects_without_a_name(impl: Any) -> None:
    with impl.open("w") as f:
        gone, kept = f.create_dataset(None, data=[1, 2]), f.create_dataset(None, (2,), "i4")
        group = f.create_group(None)
        assert gone.name is kept.name is group.name is None
        with pytest.raises(ValueError):
            _ = gone.parent
        kept[1] = 5
        f.flush()
        assert list(f) == []
        assert gone[()].tolist() == [1, 2]
        f["kept"], f["group"] = kept, group
        f["group/x"] = 1
        assert kept.name == "/kept"
        f = impl.again(f)
        assert sorted(f) == ["group", "kept"]
        assert f["kept"][()].tolist() == [0, 5]
        assert f["group/x"][()] == 1
        f.close()


@pytest.mark.parametrize(
    "said",
    [
        "x", [1], {"/a": 1}, {"a": {"soft": "x"}}, {"/a": {"soft": 1}}, {"/a": {"hard": "/nowhere"}}, {"/a/": {"soft":
        "x"}}, {"/no/a": {"soft": "x"}}, {"/x": {"soft": "y"}}, {"/a": {"external": ["x"]}}, {"/a": {"dtype": "<q99"}},
        {"/a": {"dtype": {"fields": [["a", "<f4", 100]], "size": 8}}}, {"/a": {"soft": "x", "hard": "/x"}},
        {"/a": {"hard": 7}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_links_that_lie_are_left_out(tmp_path: pathlib.Path, said: Any) -> None:
    netcdf4 = pytest.importorskip("netCDF4")
    path = tmp_path / "x.nc"
    with netcdf4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as other:
        other.createVariable("x", "i4")
        other.pnc_vol_hdf5 = json.dumps({"version": 1, "links": said})
    with pytest.warns(pnc_vol.PncVolWarning):
        f = pnc_vol.File(path)
    with f:
        assert list(f) == ["x"]


def test_links_in_circles_end(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["a"], f["b"] = pnc_vol.SoftLink("b"), pnc_vol.SoftLink("a")
        f["deep"] = pnc_vol.SoftLink("deep/deep")
        for name in ("a", "deep", "deep/x"):
            with pytest.raises(KeyError):
                f[name]
        with pytest.raises(RuntimeError, match="another file"), pnc_vol.File(tmp_path / "y.nc", "w") as other:
            other["x"] = f.create_group("g")
        with pytest.raises(pnc_vol.NotYetError, match="give it a name first"):
            f.create_group(None)["x"] = np.zeros(1)


# ------------------------------------------------------------------------------------------- where links may lead


def test_a_link_to_a_name_that_no_file_can_have_leads_nowhere(impl: Any) -> None:
    with impl.open("w") as f:
        f["link"] = impl.h5.ExternalLink("a\0b", "/x")
        f["x"] = 1
    with impl.open() as f:
        assert [name for name, found in f.items() if found is None] == ["link"]
        assert f.get("link", 5) == 5
        with pytest.raises(KeyError, match="Unable to"):
            f["link"]


def test_a_link_that_leads_nowhere_keeps_nothing_open(tmp_path: pathlib.Path) -> None:
    """Also where Python's collector never runs: the error that was caught kept all frames with what they had open."""
    with pnc_vol.File(tmp_path / "other.nc", "w") as f:
        f["g/x"] = [1, 2]
    gc.disable()
    try:
        with pnc_vol.File(tmp_path / "a.nc", "w") as f:
            f["links/gone"] = pnc_vol.ExternalLink("gone.nc", "/x")
            f["links/there"] = pnc_vol.ExternalLink("other.nc", "/g")
            f.copy("links", "copies", expand_external=True)
            assert list(f["copies/there"]) == ["x"]
            # opened to write, as this file is
            f["links/there/x"][0] = 5
            with pnc_vol.File(tmp_path / "other.nc", "r+"):
                pass
    finally:
        gc.enable()


def test_a_link_says_that_its_file_is_open_in_another_way(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "other.nc", "w") as f:
        f["x"] = 1
    with pnc_vol.File(tmp_path / "other.nc"), pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["there"] = pnc_vol.ExternalLink("other.nc", "/x")
        with pytest.raises(KeyError, match="this process has it open already for reading only"):
            f["there"]


def test_circles_of_external_links_end(tmp_path):
    for name, other in (("a.nc", "b.nc"), ("b.nc", "a.nc")):
        with pnc_vol.File(tmp_path / name, "w") as f:
            f["x"] = pnc_vol.ExternalLink(other, "/x")
            f["self"] = pnc_vol.ExternalLink(name, "/self")
    with pnc_vol.File(tmp_path / "a.nc") as f:
        for name in ("x", "self"):
            with pytest.raises(KeyError, match="links form a circle"):
                f[name]
        assert f.get("x", 5) == 5


def test_external_links_stay_below_the_folder_unless_told(tmp_path):
    inner = tmp_path / "inner"
    (inner / "deep").mkdir(parents=True)
    for path in (tmp_path / "out.nc", inner / "deep/in.nc"):
        with pnc_vol.File(path, "w") as f:
            f["x"] = 7
    (inner / "link.nc").symlink_to("../out.nc")
    with pnc_vol.File(inner / "a.nc", "w") as f:
        f["below"] = pnc_vol.ExternalLink("deep/in.nc", "/x")
        f["above"] = pnc_vol.ExternalLink("../out.nc", "/x")
        f["symlink"] = pnc_vol.ExternalLink("link.nc", "/x")
        f["absolute"] = pnc_vol.ExternalLink(str(tmp_path / "out.nc"), "/x")
    with pnc_vol.File(inner / "a.nc") as f:
        assert f["below"][()] == 7
        for name in ("above", "symlink", "absolute"):
            with pytest.raises(KeyError, match="external_links='any'"):
                f[name]
    with pnc_vol.File(inner / "a.nc", external_links="any") as f:
        assert [f[name][()] for name in ("below", "above", "symlink", "absolute")] == [7] * 4
    with pnc_vol.File(inner / "a.nc", external_links="none") as f, pytest.raises(KeyError, match="not followed"):
        f["below"]


def test_an_error_says_nothing_of_what_is_in_the_other_file(tmp_path):
    (tmp_path / "secret").write_bytes(b"root:$6$secret")
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["x"] = pnc_vol.ExternalLink("secret", "/x")
    with pnc_vol.File(tmp_path / "a.nc") as f, pytest.raises(KeyError, match="no NetCDF classic file") as caught:
        f["x"]
    told = caught.value
    while told is not None:
        assert "root" not in str(told)
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
