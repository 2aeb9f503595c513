"""A file that is opened again while it is open: one session, two handles; h5py's answers where it has the same."""

from __future__ import annotations

import gc
import io
import os
import pathlib
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import ClosedFileError, DefinitionError, PncVolWarning, ReadOnlyError

MODES = ("r", "r+", "a", "w", "x")


@pytest.mark.parametrize("second", MODES)
@pytest.mark.parametrize("first", MODES)
def test_each_pair_of_modes(both: Any, first: str, second: str) -> None:
    if first != "x":
        both.same("k = h5.File(path + '2', 'w'); k['x'] = [1, 2]; k.close()")
    both.same(f"g = h5.File(path + '2', '{first}')")
    if first in "wx":
        both.same("g['x'] = [1, 2]")
    both.same(f"k = h5.File(path + '2', '{second}')")
    if "k" in both.names[0] and both.names[0]["k"]:
        both.same("g == k, hash(g) == hash(k), g.id == k.id, g['x'] == k['x'], hash(g['x']) == hash(k['x'])")
        both.same("g['x'].file == k, k['x'][:].tolist(), g is k")
        if first != "r" and second != "r":
            both.same("k.mode; k['y'] = 1; list(g); k.attrs['a'] = 2; g.attrs['a']; del k['y']; list(g)")
        both.same("k.close(); bool(k), bool(g), repr(k), g['x'][0]; k.close()")
    both.same("g.close(); bool(g); k = h5.File(path + '2', 'r'); list(k); k.close()")


@pytest.mark.parametrize("tracked", [True, False])
def test_the_order_of_names_is_that_of_the_handle_that_created_the_file(impl: Any, tracked: bool) -> None:
    with impl.open("w", track_order=tracked) as f:
        f["z"], f["a"] = 1, 2
        impl.open("r+", track_order=True).close()
        f["k"] = 3
        assert list(f) == (["z", "a", "k"] if tracked else ["a", "k", "z"])


@pytest.mark.parametrize("first", ["w", "r+", "a"])
def test_what_is_not_flushed_is_seen(impl: Any, first: str) -> None:
    if first != "w":
        impl.open("w").close()
    f, g = impl.open(first), impl.open("r+")
    f["x"] = np.arange(6)
    assert g["x"][:].tolist() == list(range(6))
    g["x"][2:4] = -1
    assert f["x"][:].tolist() == [0, 1, -1, -1, 4, 5]
    x, y = f["x"], g["x"]
    x.attrs["units"] = "K"
    assert y.attrs["units"] == "K"
    g.create_group("deep/er")["z"] = 1.5
    assert f["deep/er/z"][()] == 1.5
    r = f.create_dataset("r", (2,), "i4", maxshape=(None,), chunks=(10,))
    g["r"].resize((5,))
    assert r.shape == (5,)
    del g["deep"]
    assert "deep" not in f
    g.move("x", "moved")
    f.close()
    assert not x
    assert y
    assert g["moved"][2] == -1
    y[0] = 9
    g.close()
    assert not y
    with impl.open() as h:
        assert h["moved"][:3].tolist() == [9, 1, -1]
        assert sorted(h) == ["moved", "r"]


def test_each_spelling_of_a_path(impl: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("folder")
    os.symlink("folder", "way")
    os.symlink("../x.nc", "folder/soft.nc")
    with impl.open("w") as f:
        os.link("x.nc", "hard.nc")
        f["x"] = 1
        for name in ("x.nc", "./x.nc", "folder/../x.nc", "folder/soft.nc", "way/soft.nc", "hard.nc", b"x.nc"):
            for mode in ("r", "r+", "a"):
                with impl.h5.File(name, mode) as g:
                    assert g == f
                    assert g["x"][()] == 1
                    assert g.filename == os.fsdecode(name)
            with pytest.raises(OSError):
                impl.h5.File(name, "w")
        assert f["x"][()] == 1


def test_reading_handles_write_nothing(tmp_path: pathlib.Path) -> None:
    """h5py lets them write: here 'r' is a promise."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f, pnc_vol.File(path) as g:
        f["x"] = [1, 2]
        f["g/s"] = 1
        assert g.mode == "r"
        assert g["x"].file.mode == "r"
        assert f.mode == "r+"
        attempts = (
            lambda: g.__setitem__("y", 1),
            lambda: g.__delitem__("x"),
            lambda: g.create_group("c"),
            lambda: g["x"].__setitem__(0, 5),
            lambda: g["x"].iput(..., [3, 4]),
            lambda: g["x"].attrs.__setitem__("a", 1),
            lambda: g["x"].make_scale(),
            lambda: g["x"].dims[0].__setattr__("label", "t"),
            lambda: g.move("x", "y"),
            lambda: g.copy("x", "y"),
            lambda: g["x"].write_direct(np.zeros(2)),
        )
        for attempt in attempts:
            with pytest.raises(ReadOnlyError):
                attempt()
        assert list(f) == ["g", "x"]
        f["x"][0] = 7
        request = g["x"].iget(slice(0, 1))
        assert request.wait() == 7
        g.flush()
        assert f.statistics()["flushes"] == 1
        f.close()
        assert g["x"][:].tolist() == [7, 2]
        with pytest.raises(ReadOnlyError):
            g["x"][0] = 1
        with pnc_vol.File(path, "r+") as h:
            h["x"][1] = 8
        assert g["x"][:].tolist() == [7, 8]


def independent(path: Any) -> dict[str, Any]:
    """What another process sees."""
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(path) as data:
        return {name: variable[...].tolist() for name, variable in data.variables.items()}


@pytest.mark.parametrize("publish", ["create", "close"])
def test_the_last_writing_handle_flushes(tmp_path: pathlib.Path, publish: str) -> None:
    path = tmp_path / "x.nc"
    f = pnc_vol.File(path, "w", publish=publish)
    g, reader = pnc_vol.File(path, "a"), pnc_vol.File(path)
    assert g == f == reader
    f["x"] = [1, 2]
    f.close()
    if publish == "create":
        assert independent(path) == {}
    else:
        assert not path.exists()
    g["x"][1] = 3
    g.close()
    assert independent(path) == {"x": [1, 3]}
    assert reader["x"][:].tolist() == [1, 3]
    reader.close()
    assert independent(path) == {"x": [1, 3]}
    assert not [name for name in os.listdir(tmp_path) if name != "x.nc"]


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
@pytest.mark.parametrize(
    "given",
    [
        {"layout": "blob", "publish": "close"},
        {"layout": "hdf5blob"},
        {"layout": "blob", "publish": "close", "burst_buf": True},
    ],
    ids=str,
)
def test_a_set_that_has_not_got_its_names(tmp_path: pathlib.Path, given: dict[str, Any], mode: str) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", **given) as f:
        f["x"] = [1, 2]
        for flushed in (False, True):
            with pnc_vol.File(path, mode) as g:
                assert g == f
                assert g["x"][0] == 1
                if mode != "r":
                    g["x"][1] = 3 + flushed
            f.flush()
        with pytest.raises(OSError, match="unable to truncate"):
            pnc_vol.File(path, "w", layout=given["layout"])
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [1, 2 if mode == "r" else 4]
    with pytest.raises(FileNotFoundError):
        pnc_vol.File(tmp_path / "y.nc", "r")


def test_handles_that_are_forgotten(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    f = pnc_vol.File(path, "w")
    g = pnc_vol.File(path, "r+")
    x = g.create_dataset("x", data=[1, 2])
    del g
    gc.collect()
    x[0] = 5
    f.close()
    assert x[0] == 5
    del x
    gc.collect()
    assert independent(path) == {"x": [5, 2]}
    pnc_vol.File(path, "w").close()


def test_what_is_told_to_one_handle_holds_for_all(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", libver="latest") as f, pnc_vol.File(path, "r+") as g:
        f["x"] = [1, 2]
        f.atomic = True
        assert g.atomic
        g["x"][0] = 7
        assert independent(path) == {"x": [7, 2]}
        f.swmr_mode = True
        assert g.swmr_mode
        with pytest.raises(RuntimeError, match="already"):
            g.swmr_mode = True


def test_a_closed_handle_is_closed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = 1
        with pnc_vol.File(path, "r+") as g:
            x, group = g["x"], g["/"]
        for attempt in (
            lambda: x[()],
            lambda: list(group),
            lambda: g.mode,
            g.flush,
            lambda: x.attrs["a"],
            g.statistics,
        ):
            with pytest.raises(ClosedFileError):
                attempt()
        assert not x
        assert x.name is None
        assert repr(g) == "<Closed NetCDF file>"
        assert f["x"][()] == 1
        again = pnc_vol.File(f["x"].id)
        assert again == f
        again.close()
        assert not f


def test_a_failing_flush_of_one_handle_keeps_the_other(tmp_path: pathlib.Path) -> None:
    class Broken(io.BytesIO):
        broken = False

        def write(self, data: Any) -> int:
            if self.broken:
                raise RuntimeError("broken")
            return super().write(data)

    target = Broken()
    f, g = pnc_vol.File(target, "w"), pnc_vol.File(target, "r")
    assert f == g
    f["x"] = [1, 2]
    target.broken = True
    with pytest.raises(OSError, match="broken"):
        f.close()
    assert not f
    assert g["x"][:].tolist() == [1, 2]
    target.broken = False
    g.close()
    with pnc_vol.File(target) as f:
        assert f["x"][:].tolist() == [1, 2]


def test_options_of_a_second_opening(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", buffer_size=1 << 20, driver="trace | posix") as f:
        f["x"] = 1
        for same in ({}, {"buffer_size": 1 << 20}, {"driver": "trace | posix"}):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert pnc_vol.File(path, "r+", **same) == f
        with pytest.warns(PncVolWarning, match="not buffer_size=4096, format='CDF-2'"):
            g = pnc_vol.File(path, "a", buffer_size=4096, format="CDF-2")
        assert g == f
        assert g.format == "CDF-5"
        assert g.hints["pnc_buffer_size"] == str(1 << 20)
        with pytest.raises(DefinitionError, match=r"driver 'trace \| posix'.*'posix'"):
            pnc_vol.File(path, "r+", driver="sec2")
        g.close()
    with pnc_vol.File(path) as f, pnc_vol.File(path, strict=True) as g:
        assert f != g, "both read only, each with its own options"
        assert pnc_vol.File(path) == f
        assert pnc_vol.File(path, strict=True) == g
        with pytest.raises(OSError, match="reading only"):
            pnc_vol.File(path, "r+")


def test_a_file_that_was_removed_or_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    f = pnc_vol.File(path, "w")
    f["x"] = 1
    f.flush()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pnc_vol.File(path)
    pnc_vol.File(tmp_path / "other.nc", "w").close()
    os.rename(tmp_path / "other.nc", path)
    with pnc_vol.File(path) as g:
        assert g != f
        assert not list(g)
    for mode in ("r+", "a", "w"):
        with pytest.raises(OSError, match="removed or replaced"):
            pnc_vol.File(path, mode)
    f.close()


def test_a_new_layout_is_still_the_same_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.arange(100)
        f.flush()
        before = os.stat(path).st_ino
        f.attrs["long"] = "x" * 20000
        f.flush()
        assert os.stat(path).st_ino != before, "the file was laid out anew"
        with pnc_vol.File(path, "r+") as g:
            assert g == f
            g["y"] = 1
        assert list(f) == ["x", "y"]


def test_links_and_copies(impl: Any, tmp_path: pathlib.Path) -> None:
    with impl.open("w") as f, impl.open("r+") as g:
        f["a/x"] = np.arange(4)
        g["link"] = impl.h5.ExternalLink("x.nc", "/a")
        g["whole"] = impl.h5.ExternalLink(impl.path, "/")
        assert f["link/x"][:].tolist() == [0, 1, 2, 3]
        assert f["link"] == g["a"]
        assert f["whole"]["a/x"] == f["a/x"]
        f["link/x"][0] = 7
        assert g["a/x"][0] == 7
        f.copy("a", g, "b")
        g.copy(f["a/x"], f, "c")
        f.copy(g["a"], "d", expand_external=True)
        assert sorted(f) == ["a", "b", "c", "d", "link", "whole"]
        assert f["b/x"][:].tolist() == g["c"][:].tolist() == f["d/x"][:].tolist() == [7, 1, 2, 3]
        f["hard"] = g["c"]
        assert f["hard"] == g["c"]
    with impl.open() as f:
        assert f["link/x"][0] == 7
        assert f["hard"][0] == 7


def test_objects_of_files(both: Any) -> None:
    both.same("""
        import io; t = io.BytesIO()
        g = h5.File(path + 'o', 'w')
        k = h5.File(path + 'p', 'w')
        g == k, g != k, g['/'] == g, g['/'] == k['/'], g.id == k.id, len({g, k, g['/'], g['/'].file})
        g['x'] = 1; k['x'] = 1
        g['x'] == k['x'], g['x'].id == g['x'].id
        m = h5.File(path + 'o', 'r+')
        len({g, m, m['/'], k}), g['x'] in [m['x']], m['x'].parent == g, m['x'].file == g
        g.close(); bool(m['x'].file), m['x'][()]
        m.close(); k.close()
    """)


def test_threads(tmp_path: pathlib.Path) -> None:
    """Handles come and go in many threads; each value that was written by one of them is in the file in the end."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.zeros((8, 40), "i4")
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def work(row: int) -> None:
        try:
            start.wait()
            for i in range(40):
                with pnc_vol.File(path, "r+") as f:
                    f["x"][row, i] = i + 1
                if i % 8 == 0:
                    with pnc_vol.File(path, "a") as f:
                        assert f["x"][row, i] == i + 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    with pnc_vol.File(path) as f:
        assert (f["x"][...] == np.arange(1, 41)).all()
