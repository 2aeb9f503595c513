"""Virtual datasets, h5py being the oracle: the same program on both gives equal results."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import options
import pytest
from counted_work import calls_of
from same_results import same

import pnc_vol
from pnc_vol import plugins
from pnc_vol.api import linking
from pnc_vol.errors import NotYetError, RangeError, SourceError
from pnc_vol.testing.faults import HookedSystem

U = pnc_vol.UNLIMITED
CASES: dict[str, Callable[[Any, Path], Any]] = {}


def case(program: Callable[[Any, Path], Any]) -> Callable[[Any, Path], Any]:
    CASES[program.__name__] = program
    return program


def sources(module: Any, folder: Path) -> None:
    """Three files: a table, a row that can grow, and blocks with numbers in their names."""
    with module.File(folder / "a", "w") as f:
        f["table"] = np.arange(60).reshape(6, 10)
        f.create_dataset("row", data=np.arange(8), maxshape=(None,))
        f["floats"] = [1e9, -7.5, 3.0]
        f["pairs"] = np.array([(1, 2.5), (3, 4.5)], [("n", "i4"), ("x", "f8")])
    for number in range(3):
        with module.File(folder / f"block-{number}", "w") as f:
            f["d"] = np.full(5, number)


def made(module: Any, folder: Path, shape: Any, dtype: Any, parts: Any, **how: Any) -> str:
    """A file with the virtual dataset ``v``; `parts`: where, which file, name, shape, and which elements."""
    fill = how.pop("fillvalue", None)
    layout = module.VirtualLayout(shape, dtype, **how)
    for where, file, name, of, which in parts:
        source = module.VirtualSource(str(folder / file), name, of)
        layout[where] = source if which is None else source[which]
    with module.File(folder / "v", "w") as f:
        f.create_virtual_dataset("v", layout, fillvalue=fill)
    return str(folder / "v")


@case
def joined_one_behind_the_other(module: Any, folder: Path) -> Any:
    parts = [(slice(0, 6), "a", "table", (6, 10), None), (slice(6, 9), "a", "table", (6, 10), slice(0, 3))]
    with module.File(made(module, folder, (11, 10), "i8", parts, fillvalue=-1)) as f:
        v = f["v"]
        return [v[()], v[4:8, ::3], v[7], v[-1, -1], v[[1, 7, 10]], v[:, [0, 9]], v[v[()] > 55], v.shape, v.fillvalue]


@case
def woven_into_each_other(module: Any, folder: Path) -> Any:
    parts = [
        ((slice(k, 12, 3), slice(1, 9, 2)), "a", "table", (6, 10), (slice(k, k + 4), slice(0, 8, 2))) for k in (0, 1, 2)
    ]
    with module.File(made(module, folder, (12, 10), "i8", parts)) as f:
        return [f["v"][()], f["v"][1::2, 3:7], f["v"][::5, 1]]


@case
def lists_on_both_sides(module: Any, folder: Path) -> Any:
    parts = [([0, 3, 4], "a", "row", (8,), [1, 5, 6]), ([1, 9], "a", "row", (8,), slice(0, 8, 5))]
    with module.File(made(module, folder, (10,), "i8", parts, fillvalue=7)) as f:
        return [f["v"][()], f["v"][3:], f["v"][[0, 2, 9]]]


@case
def another_number_of_axes(module: Any, folder: Path) -> Any:
    parts = [(slice(0, 2), "a", "row", (8,), None), (2, "a", "table", (6, 10), (slice(1, 3), slice(0, 2)))]
    with module.File(made(module, folder, (3, 4), "i8", parts)) as f:
        return [f["v"][()], f["v"][1, ::2], f["v"][:, 3]]


@case
def a_later_source_wins(module: Any, folder: Path) -> Any:
    parts = [(slice(0, 8), "a", "row", (8,), None), (slice(2, 7), "block-2", "d", (5,), None)]
    with module.File(made(module, folder, (8,), "i8", parts)) as f:
        return f["v"][()]


@case
def other_types(module: Any, folder: Path) -> Any:
    found = []
    for dtype in ("f4", "i1", "u1", "f8"):
        parts = [(slice(0, 3), "a", "floats", (3,), None)]
        with module.File(made(module, folder, (4,), dtype, parts, fillvalue=2)) as f:
            found.append(f["v"][()])
    return found


@case
def compounds(module: Any, folder: Path) -> Any:
    dtype = [("n", "i4"), ("x", "f8")]
    with module.File(made(module, folder, (3,), dtype, [(slice(1, 3), "a", "pairs", (2,), None)])) as f:
        return [f["v"][()], f["v"]["x"], f["v"].dtype.names]


@case
def what_is_not_there(module: Any, folder: Path) -> Any:
    parts = [(slice(0, 2), "nowhere", "x", (2,), None), (slice(2, 4), "a", "nothing", (2,), None)]
    with module.File(made(module, folder, (5,), "i8", parts, fillvalue=3)) as f:
        return f["v"][()]


@case
def no_source_at_all(module: Any, folder: Path) -> Any:
    with module.File(made(module, folder, (2, 3), "f4", [])) as f:
        return [f["v"].is_virtual, f["v"].virtual_sources(), f["v"][()]]


@case
def without_end(module: Any, folder: Path) -> Any:
    layout = module.VirtualLayout((2, 1), "i8", maxshape=(None, 1))
    whole = module.VirtualSource(str(folder / "a"), "row", (8,), maxshape=(None,))
    layout[:U, 0] = whole[1:U:2]
    found = []
    with module.File(folder / "v", "w") as f:
        v = f.create_virtual_dataset("v", layout)
        found += [v.shape, v[()]]
    with module.File(folder / "a", "r+") as f:
        f["row"].resize((12,))
        f["row"][8:] = 99
    with module.File(folder / "v") as f:
        found += [f["v"].shape, f["v"].maxshape, f["v"][2:], len(f["v"])]
    os.remove(folder / "a")
    with module.File(folder / "v") as f:
        found += [f["v"].shape, f["v"][()]]
    return found


@case
def numbers_in_names(module: Any, folder: Path) -> Any:
    layout = module.VirtualLayout((2, 5), "i8", maxshape=(None, 5))
    layout[1:U:2] = module.VirtualSource(str(folder / "block-%b"), "d", (5,))
    with module.File(folder / "v", "w") as f:
        f.create_virtual_dataset("v", layout, fillvalue=-1)
    with module.File(folder / "v") as f:
        return [f["v"].shape, f["v"][()], f["v"][3, 2:]]


@case
def virtual_of_virtual(module: Any, folder: Path) -> Any:
    made(module, folder, (12,), "i8", [(slice(2, 10), "a", "row", (8,), None)], fillvalue=-1)
    with module.File(folder / "v", "r+") as f:
        with f.build_virtual_dataset("w", (5,), "i8") as layout:
            layout[:] = module.VirtualSource(f["v"])[1:11:2]
        return [f["w"][()], f["w"].virtual_sources()[0].file_name]


@case
def sources_of_the_same_file_follow_its_name(module: Any, folder: Path) -> Any:
    with module.File(folder / "v", "w") as f:
        f["x"] = np.arange(4)
        layout = module.VirtualLayout((2, 4), "i8")
        layout[0] = layout[1] = module.VirtualSource(f["x"])
        f.create_virtual_dataset("v", layout)
    os.rename(folder / "v", folder / "w")
    with module.File(folder / "w") as f:
        return [f["v"][()], [(one.file_name, one.dset_name) for one in f["v"].virtual_sources()]]


@case
def written_through(module: Any, folder: Path) -> Any:
    parts = [(slice(0, 8), "a", "row", (8,), None), (slice(8, 13), "block-1", "d", (5,), None)]
    found: list[Any] = []
    with module.File(made(module, folder, (15,), "i8", parts, fillvalue=-1), "r+") as f:
        f["v"][2:11] = np.arange(20, 29)
        f["v"][::6][:1]
        found.append(f["v"][()])
        for wrong in (slice(None), 14):
            try:
                f["v"][wrong] = 0
            except OSError:
                found.append(f["v"][()])
    for name, path in (("a", "row"), ("block-1", "d")):
        with module.File(folder / name) as f:
            found.append(f[path][()])
    return found


@case
def copied_and_linked(module: Any, folder: Path) -> Any:
    parts = [(slice(0, 8), "a", "row", (8,), None)]
    with module.File(made(module, folder, (9,), "i8", parts), "r+") as f:
        f["v"].attrs["units"] = "K"
        f.copy("v", "g/copy")
        f["hard"], f["soft"] = f["v"], module.SoftLink("/v")
        f["v"].make_scale("v")
        f["t"] = np.zeros(9)
        f["t"].dims[0].attach_scale(f["v"])
    with module.File(folder / "v") as f:
        told = [(f[n].is_virtual, f[n].attrs["units"], f[n][()]) for n in ("v", "g/copy", "hard", "soft")]
        return [told, f["v"].is_scale, f["t"].dims[0][0][()], f["v"] == f["hard"]]


@case
def a_scalar(module: Any, folder: Path) -> Any:
    layout = module.VirtualLayout((), "i8")
    layout[()] = module.VirtualSource(str(folder / "a"), "row", (8,))[3]
    with module.File(folder / "v", "w") as f:
        return f.create_virtual_dataset("v", layout)[()]


@case
def blocks_and_percent_signs(module: Any, folder: Path) -> Any:
    with module.File(folder / "50%b", "w") as f:
        f["x%"] = [1, 2]
    parts = [
        (slice(0, 6), "a", "table", (6, 10), (slice(None), module.MultiBlockSlice(0, 4, 2, 2))),
        ((6, slice(0, 2)), "50%%b", "x%%", (2,), None),
    ]
    with module.File(made(module, folder, (7, 4), "i8", parts, fillvalue=-1)) as f:
        return [f["v"][()], f["v"].virtual_sources()[1].file_name[-5:]]


@case
def rows_and_texts_that_are_not_there(module: Any, folder: Path) -> Any:
    with module.File(folder / "o", "w") as f:
        f["texts"] = ["one", "two"]
        rows = f.create_dataset("rows", (2,), module.vlen_dtype("i4"))
        rows[0], rows[1] = [1, 2], [3]
    told = []
    for name, dtype in (("texts", module.string_dtype()), ("rows", module.vlen_dtype("i4"))):
        with module.File(made(module, folder, (3,), dtype, [(slice(1, 3), "o", name, (2,), None)])) as f:
            told.append([f["v"].fillvalue, [x if name == "texts" else (x.dtype, x.tolist()) for x in f["v"][()]]])
    return told


@case
def what_is_no_source(module: Any, folder: Path) -> Any:
    layout, told = module.VirtualLayout((2, 5), "i8"), []
    with module.File(folder / "g", "w") as f:
        f.create_group("group")
    try:
        layout[0:2] = module.VirtualSource("block-%b", "d", (2, 5))
    except ValueError:
        told.append("a number for no unlimited selection")
    try:
        with module.File(made(module, folder, (2,), "i8", [(slice(0, 2), "g", "group", (2,), None)])) as f:
            f["v"][()]
    except OSError:
        told.append("a group")
    return told


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_in_h5py(name: str, tmp_path: Path) -> None:
    told = []
    for module in (h5py, pnc_vol):
        folder = tmp_path / module.__name__
        folder.mkdir()
        sources(module, folder)
        told.append(CASES[name](module, folder))
    same(*told)


# ------------------------------------------------------------------------------------------------- ours alone


def test_a_random_plan_shows_what_numpy_shows(tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    with pnc_vol.File(tmp_path / "a", "w") as f:
        f["x"] = np.arange(35 * 9).reshape(35, 9)
    whole = np.arange(35 * 9).reshape(35, 9)
    for round_ in range(40):
        layout, wanted = pnc_vol.VirtualLayout((30, 12), "i8"), np.full((30, 12), -5)
        for _ in range(int(draw.integers(1, 4))):
            n, step, other = (int(draw.integers(1, k)) for k in (9, 4, 4))
            to = slice(int(draw.integers(0, 30 - (n - 1) * step)), None, step)
            to = slice(to.start, to.start + n * step, step)
            of = slice(int(draw.integers(0, 35 - (n - 1) * other)), None, other)
            of = slice(of.start, of.start + n * other, other)
            columns = sorted(draw.choice(12, 3, replace=False).tolist())
            layout[to, columns] = pnc_vol.VirtualSource(str(tmp_path / "a"), "x", (35, 9))[of, 2:8:2]
            wanted[to, columns] = whole[of, 2:8:2]
        with pnc_vol.File(tmp_path / f"v{round_}", "w") as f:
            f.create_virtual_dataset("v", layout, fillvalue=-5)
        with pnc_vol.File(tmp_path / f"v{round_}") as f:
            np.testing.assert_array_equal(f["v"][()], wanted)
            rows = sorted(draw.choice(30, 5, replace=False).tolist())
            np.testing.assert_array_equal(f["v"][rows, 1:11:3], wanted[rows, 1:11:3])
            np.testing.assert_array_equal(f["v"][rows[::-1]], wanted[rows[::-1]])
            mask = draw.random((30, 12)) < 0.2
            np.testing.assert_array_equal(f["v"][mask], wanted[mask])


def test_many_pieces_of_a_large_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnc_vol.api.virtual_data.PIECE", 1000)
    values = np.arange(40 * 700).reshape(40, 700)
    with pnc_vol.File(tmp_path / "a", "w") as f:
        f["x"] = values
        layout = pnc_vol.VirtualLayout((80, 700), "i4")
        layout[::2] = layout[1::2] = pnc_vol.VirtualSource(f["x"])
        v = f.create_virtual_dataset("v", layout)
        np.testing.assert_array_equal(v[()], np.repeat(values, 2, axis=0))
        v[3:9:2] = 5
        assert f["x"][1:4].tolist() == np.full((3, 700), 5).tolist()


def test_other_programs_see_a_scalar_that_says_so(tmp_path: Path) -> None:
    netCDF4 = pytest.importorskip("netCDF4")
    sources(pnc_vol, tmp_path)
    path = made(pnc_vol, tmp_path, (8,), "f4", [(slice(0, 8), "a", "row", (8,), None)])
    with netCDF4.Dataset(path) as ds:
        assert ds["v"].shape == ()
        assert '"virtual"' in ds["v"].pnc_vol_hdf5
    assert pnc_vol.check(path) == []


def test_a_file_elsewhere_is_opened_only_if_the_user_says_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    sources(pnc_vol, tmp_path / "out")
    layout = pnc_vol.VirtualLayout((8,), "i8")
    layout[:] = pnc_vol.VirtualSource(str(tmp_path / "out/a"), "row", (8,))
    path = tmp_path / "in/v"
    with pnc_vol.File(path, "w") as f:
        f.create_virtual_dataset("v", layout)
    with pnc_vol.File(path) as f, pytest.raises(SourceError, match="external_links='any'"):
        f["v"][()]
    with pnc_vol.File(path, external_links="any") as f:
        assert f["v"][()].tolist() == list(range(8))
    with pnc_vol.File(path, external_links="none") as f, pytest.raises(SourceError, match="not followed"):
        f["v"][()]


def test_a_source_in_the_working_directory_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    sources(pnc_vol, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    layout = pnc_vol.VirtualLayout((8,), "i8")
    layout[:] = pnc_vol.VirtualSource("a", "row", (8,))
    with pnc_vol.File(tmp_path / "in/v", "w") as f:
        v = f.create_virtual_dataset("v", layout)
        with pytest.raises(SourceError, match="external_links='any'"):
            v[()]
    with pnc_vol.File(tmp_path / "in/v", external_links="any") as f:
        assert f["v"][()].tolist() == list(range(8))


def test_a_file_in_memory_has_the_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources(pnc_vol, tmp_path)
    layout = pnc_vol.VirtualLayout((8,), "i8")
    layout[:] = pnc_vol.VirtualSource("a", "row", (8,))

    def filled(f: pnc_vol.File) -> pnc_vol.File:
        f.create_virtual_dataset("v", layout)
        f.create_dataset("raw", (2,), "i4", external="raw")
        f["link"] = pnc_vol.ExternalLink("a", "row")
        return f

    with filled(pnc_vol.File(tmp_path / "m", "w", driver="core", backing_store=False)) as f:
        assert f["v"][()].tolist() == f["link"][()].tolist() == list(range(8))
        f["raw"][...] = 1
    assert (tmp_path / "raw").stat().st_size == 8
    assert not (tmp_path / "m").exists()
    # Neither a name nor a folder: nothing is opened, unless the user says so.
    monkeypatch.chdir(tmp_path)
    for f in (filled(pnc_vol.File.in_memory()), filled(pnc_vol.File(io.BytesIO(), "w"))):
        with f:
            for name in ("v", "raw", "link"):
                with pytest.raises((SourceError, KeyError), match=r"no folder.*external_links='any'"):
                    f[name][()]
    with filled(pnc_vol.File.in_memory(external_links="any")) as f:
        assert f["v"][()].tolist() == f["link"][()].tolist() == list(range(8))


def test_a_circle_is_an_error(tmp_path: Path) -> None:
    for mine, other in (("a", "b"), ("b", "a")):
        with pnc_vol.File(tmp_path / mine, "w") as f:
            layout = pnc_vol.VirtualLayout((3,), "i8")
            layout[:] = pnc_vol.VirtualSource(other, "v", (3,))
            f.create_virtual_dataset("v", layout)
    with pnc_vol.File(tmp_path / "a") as f, pytest.raises(SourceError, match="circle"):
        f["v"][()]


def test_a_damaged_or_smaller_source_is_an_error(tmp_path: Path) -> None:
    sources(pnc_vol, tmp_path)
    path = made(pnc_vol, tmp_path, (9,), "i8", [(slice(0, 9), "a", "row", (9,), None)])
    with pnc_vol.File(path) as f, pytest.raises(SourceError, match=r"has shape \(8,\)"):
        f["v"][()]
    (tmp_path / "a").write_bytes(b"no file of NetCDF")
    with pnc_vol.File(path) as f, pytest.raises(SourceError, match="no NetCDF classic file"):
        f["v"][()]


def test_what_a_virtual_dataset_cannot_do_says_so(tmp_path: Path) -> None:
    sources(pnc_vol, tmp_path)
    path = made(pnc_vol, tmp_path, (8,), "i8", [(slice(0, 8), "a", "row", (8,), None)])
    with pnc_vol.File(path, "r+") as f:
        v = f["v"]
        for act in (lambda: v.iput(0, 1), lambda: v.iget(0), lambda: v.iput_many([[0]], [[1]], [1])):
            with pytest.raises(NotYetError, match="with ds"):
                act()
        with pytest.raises(TypeError, match="Only chunked datasets can be resized"):
            v.resize((9,))
    layout = pnc_vol.VirtualLayout((3,), "i8")
    with pytest.raises(ValueError, match="masks"):
        layout[np.array([True, False, True])] = pnc_vol.VirtualSource("a", "x", (2,))
    with pytest.raises(ValueError, match="different number"):
        layout[:2] = pnc_vol.VirtualSource("a", "x", (3,))


@pytest.mark.parametrize("layout", ["blob", "hdf5blob", "rawfiles"])
def test_other_layouts_have_no_virtual_datasets(layout: str, tmp_path: Path) -> None:
    with plugins.restored():
        options.load_plugins("rawfiles")
        with pytest.raises(NotYetError, match=f"'{layout}'"), pnc_vol.File(tmp_path / "b", "w", layout=layout) as f:
            f.create_virtual_dataset("v", pnc_vol.VirtualLayout((3,), "i8"))


def test_another_dataset_object_of_its_id_reads_the_same(tmp_path: Path) -> None:
    class Mine(pnc_vol.Dataset):
        pass

    sources(pnc_vol, tmp_path)
    with pnc_vol.File(made(pnc_vol, tmp_path, (8,), "i8", [(slice(0, 8), "a", "row", (8,), None)])) as f:
        assert Mine(f["v"].id)[2:4].tolist() == [2, 3]
        assert [x.tolist() for x in (f["v"].astype("f4")[:2], np.asarray(f["v"])[:2])] == [[0, 1], [0, 1]]
        assert f["v"].id.get_create_plist().get_layout() == 3
        assert f["v"].id.get_create_plist().get_virtual_filename(0) == str(tmp_path / "a")


def test_sources_of_hdf5_files(tmp_path: Path) -> None:
    sources(h5py, tmp_path)
    parts = [(slice(0, 6), "a", "table", (6, 10), None), ([6, 8], "a", "table", (6, 10), [0, 5])]
    with pnc_vol.File(made(pnc_vol, tmp_path, (9, 10), "f4", parts, fillvalue=-1), "r+") as f:
        assert f["v"][4:9, 3].tolist() == [43, 53, 3, -1, 53]
        with pytest.raises((OSError, TypeError, ValueError)):
            f["v"][0] = 1
    with h5py.File(tmp_path / "a") as f:
        assert f["table"][0].tolist() == list(range(10)), "an HDF5 file is only read"


def test_fill_values_of_objects_are_as_in_h5py(tmp_path: Path) -> None:
    told = []
    for module in (h5py, pnc_vol):
        with module.File(tmp_path / module.__name__, "w") as f:
            kinds = (module.vlen_dtype("i4"), module.ref_dtype, module.regionref_dtype, module.string_dtype())
            told.append([f.create_dataset(str(i), (2,), dtype).fillvalue for i, dtype in enumerate(kinds)])
    assert told[0] == told[1] == [None, None, None, b""]


def test_threads_that_write_through_each_others_files_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, other in ("ab", "ba"):
        with pnc_vol.File(tmp_path / name, "w") as f:
            f["x"] = np.zeros(3)
            layout = pnc_vol.VirtualLayout((3,), "f8")
            layout[:] = pnc_vol.VirtualSource(other, "x", (3,))
            f.create_virtual_dataset("v", layout)
    # Both have begun before either goes on.
    begun, real = threading.Barrier(2), linking.open_other

    def waits(*args: Any, **keywords: Any) -> Any:
        begun.wait(10)
        return real(*args, **keywords)

    monkeypatch.setattr(linking, "open_other", waits)
    with pnc_vol.File(tmp_path / "a", "r+") as a, pnc_vol.File(tmp_path / "b", "r+") as b:
        threads = [
            threading.Thread(target=f["v"].__setitem__, args=(..., number), daemon=True)
            for number, f in ((1.0, a), (2.0, b))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert (a["x"][0], b["x"][0]) == (2.0, 1.0)


def test_a_write_that_no_source_has_in_full_writes_nothing(tmp_path: Path) -> None:
    sources(pnc_vol, tmp_path)
    # As many elements as the dataset has, but of its first half only.
    parts = [(slice(0, 3), "a", "row", (8,), slice(0, 3)), (slice(0, 3), "a", "row", (8,), slice(3, 6))]
    with (
        pnc_vol.File(made(pnc_vol, tmp_path, (6,), "i8", parts), "r+") as f,
        pytest.raises(SourceError, match="no source"),
    ):
        f["v"][...] = 9
    with pnc_vol.File(tmp_path / "a") as f:
        assert f["row"][()].tolist() == list(range(8))


def test_more_sources_than_files_may_be_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    layout = pnc_vol.VirtualLayout((150, 2), "i4")
    for number in range(150):
        with pnc_vol.File(tmp_path / f"s{number}", "w") as f:
            f["x"] = np.full(2, number, "i4")
        layout[number] = pnc_vol.VirtualSource(f"s{number}", "x", (2,))
    numbered = pnc_vol.VirtualLayout((1, 2), "i4", maxshape=(None, 2))
    numbered[0:U:1] = pnc_vol.VirtualSource("s%b", "x", (2,))
    with pnc_vol.File(tmp_path / "v", "w") as f:
        f.create_virtual_dataset("v", layout)
        f.create_virtual_dataset("w", numbered)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, before[1]))
    try:
        with pnc_vol.File(tmp_path / "v") as f:
            for name in ("v", "w"):
                assert f[name][:, 1].tolist() == list(range(150))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_hostile_length_does_not_take_long(tmp_path: Path) -> None:
    """A part far away makes the dataset long; the numbered blocks before it are not counted one by one."""
    sources(pnc_vol, tmp_path)
    layout = pnc_vol.VirtualLayout((1 << 50,), "i8", maxshape=(None,))
    layout[(1 << 50) - 1] = pnc_vol.VirtualSource("a", "row", (8,))[7]
    layout[0:U:1] = pnc_vol.VirtualSource("block-%b", "d", (5,))[2]
    with pnc_vol.File(tmp_path / "v", "w") as f:
        v = f.create_virtual_dataset("v", layout, fillvalue=-1)
        assert v.shape == (1 << 50,)
        assert v[1:5].tolist() == [1, 2, -1, -1]
        assert v[-2:].tolist() == [-1, 7]


def test_a_fill_value_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "v", "w") as f:
        for value in (300, -1):
            with pytest.raises(RangeError):
                f.create_virtual_dataset("v", pnc_vol.VirtualLayout((3,), "u1"), fillvalue=value)
        with pytest.raises(TypeError):
            f.create_virtual_dataset("v", pnc_vol.VirtualLayout((3,), "i4"), fillvalue="x")
        assert list(f) == []
        assert f.create_virtual_dataset("v", pnc_vol.VirtualLayout((3,), "i4"), fillvalue=1.7)[0] == 1


class Noting(HookedSystem):
    """Notes the names of files that are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "open":
            self.names.append(os.path.basename(args[0]))
        return super().call(name, args, kwargs)


def test_other_files_are_opened_by_the_system_of_the_file(tmp_path: Path) -> None:
    """So tests of a program see all of its calls, and a link that leads back is one into the same session."""
    sources(pnc_vol, tmp_path)
    path = made(pnc_vol, tmp_path, (8,), "i8", [(slice(0, 8), "a", "row", (8,), None)])
    with pnc_vol.File(path, "r+", system=(system := Noting())) as f:
        f["table"], f["back"] = pnc_vol.ExternalLink("a", "table"), pnc_vol.ExternalLink("v", "x")
        for act in (lambda: f["v"][()], lambda: f["table"][()], lambda: f["v"].__setitem__(0, 9)):
            system.names.clear()
            act()
            assert "a" in system.names
        f["x"] = [1, 2]
        f["back"][0] = 5
        assert f["x"][:].tolist() == [5, 2]


@pytest.mark.parametrize("dtype", ["i1", "u4", "i8", "u8"])
@pytest.mark.parametrize("source", ["f4", "f8", "i8", "u8"])
def test_numbers_of_a_source_that_do_not_fit_become_the_nearest_ones(source: str, dtype: str, tmp_path: Path) -> None:
    numbers = [0, 3, -3, 1e10, -1e10, 1e30, -1e30, np.inf, -np.inf, 2.0**31, 2.0**70]
    values = np.array(numbers, source) if source[0] == "f" else np.array([0, 7, 2**62, 2**63 - 1], source)
    found = []
    for module in (h5py, pnc_vol):
        with module.File(tmp_path / f"{module.__name__}.h5", "w") as f:
            f["s"] = values
            layout = module.VirtualLayout(values.shape, dtype)
            layout[:] = module.VirtualSource(f["s"])
            found.append(f.create_virtual_dataset("v", layout)[...].tolist())
    assert found[0] == found[1]


def test_a_read_looks_at_the_sources_that_it_touches(tmp_path: Path) -> None:
    calls = []
    for many in (20, 200):
        with pnc_vol.File(tmp_path / f"{many}.nc", "w") as f:
            layout = pnc_vol.VirtualLayout((many, 3), "f8")
            for i in range(many):
                f[f"v{i}"] = [i, i + 0.25, i + 0.5]
                layout[many - 1 - i] = pnc_vol.VirtualSource(".", f"v{i}", (3,))
            v = f.create_virtual_dataset("v", layout)
            v[0]
            calls.append(calls_of(lambda v=v: v[5]))
            assert v[5].tolist() == [many - 6, many - 5.75, many - 5.5]
            assert v[[1, 7], 1].tolist() == [many - 1.75, many - 7.75]
            assert v[3:1].shape == (0, 3)
    assert calls[0] == calls[1]
