"""A set of subfiles in one process: openings, what it replaces, what other programs find, hints of the environment."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import virtual_ranks
from other_process import Other

import pnc_vol
from pnc_vol.convert.hdf5 import convert
from pnc_vol.errors import FormatError, ShortFileError, ShortFileWarning
from pnc_vol.system import System
from pnc_vol.testing.faults import CHANGING, FaultSystem

HALF = pnc_vol.Decomposition.from_runs([0], [4], (8,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "set.nc"


def written(path: Path, layout: str = "blob", **options: Any) -> None:
    with pnc_vol.File(path, "w", layout=layout, **options) as f:
        f.create_dataset("x", (8,), "f8", decomposition=HALF)[:4] = 5
        f["g/text"] = "words"
        f.attrs["title"] = "of the set"


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir())


def test_every_name_opens_the_set(path: Path) -> None:
    written(path)
    for name, layout in ((path, ""), (path, "blob"), (f"{path}.0000", ""), (f"{path}.0000", "blob")):
        with pnc_vol.File(name, **({"layout": layout} if layout else {})) as f:
            assert f["x"][...].tolist() == [5, 5, 5, 5, 0, 0, 0, 0]
            assert f["g/text"].asstr()[()] == "words"
            assert f.attrs["title"] == "of the set"


def test_markers_are_read_with_the_axes_of_their_datasets(path: Path) -> None:
    """A variable of a subfile has the elements of a dataset as one axis; nothing is told of markers that fit."""
    whole = pnc_vol.Decomposition.from_runs([0], [4], (4, 2))
    with pnc_vol.File(path, "w", layout="blob") as f:
        x, scale = f.create_dataset("x", (4, 2), "f8", decomposition=whole), f.create_dataset("row", (4,), "f4")
        scale.make_scale("row")
        x.dims[0].label = "row"
        x.dims[0].attach_scale(scale)
        x[:2] = 1
    for mode in ("r+", "r"):
        with pnc_vol.File(path, mode) as f:
            assert [axis.label for axis in f["x"].dims] == ["row", ""]
            assert f["x"].dims[0]["row"].name == "/row"


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_marker_that_does_not_fit_is_told_of(path: Path, mode: str) -> None:
    with pnc_vol.File(path, "w", layout="blob") as f:
        f.create_dataset("b", (0, 3), "f8")
    first = path.with_name("set.nc.0000")
    first.write_bytes(first.read_bytes().replace(b'"shape":[0,3]', b'"shape":[4,3]'))
    with pytest.warns(pnc_vol.PncVolWarning, match=r"set.nc: variable 'b': .* does not fit"):
        pnc_vol.File(path, mode).close()


def test_the_name_is_the_users(path: Path) -> None:
    with pnc_vol.File(path, "w", layout="blob") as f:
        assert f.filename == str(path)
        assert f.mode == "r+"
    assert names(path) == ["set.nc.0000"]


def test_a_second_opening_joins(path: Path) -> None:
    with pnc_vol.File(path, "w", layout="blob") as f:
        f["x"] = np.arange(5)
        with pnc_vol.File(path, "r") as same, pnc_vol.File(path, "a", layout="blob") as other:
            assert same["x"][...].tolist() == [0, 1, 2, 3, 4]
            other["y"] = 1
        assert "y" in f
        with pytest.raises(OSError, match="already open"):
            pnc_vol.File(path, "w", layout="blob")


@pytest.mark.parametrize(("layout", "publish"), [("blob", "create"), ("blob", "close"), ("hdf5blob", "create")])
def test_what_it_replaces_goes(path: Path, layout: str, publish: str) -> None:
    with pnc_vol.File(path, "w") as f:
        f["old"] = 1
    with pnc_vol.File(path, "w", layout=layout, publish=publish) as f:
        f["new"] = 2
        f.flush()
        assert path.exists() == (publish == "close" or layout == "hdf5blob")
    assert names(path) == ["set.nc.0000"]
    with pnc_vol.File(path) as f:
        assert list(f) == ["new"]


@pytest.mark.parametrize("old", ["blob", "hdf5blob"])
@pytest.mark.parametrize("new", ["blob", "hdf5blob"])
def test_a_set_of_less_subfiles_leaves_none_of_the_older_one(path: Path, old: str, new: str) -> None:
    def job(comm: Any) -> None:
        with pnc_vol.File(path, "w", layout=old, driver="posix", comm=comm, subfiles=3) as f:
            f.create_dataset("t", (3, 3), "f8")[comm.rank] = 1

    virtual_ranks.run(3, job)
    path.touch()
    assert names(path) == ["set.nc", *(f"set.nc.000{n}" for n in range(3))]
    written(path, layout=new)
    assert names(path) == ["set.nc.0000"]


@pytest.mark.parametrize("mode", ["w-", "x"])
def test_what_is_there_is_not_replaced_unasked(path: Path, mode: str) -> None:
    written(path)
    with pytest.raises(FileExistsError):
        pnc_vol.File(path, mode, layout="blob")
    other = path.parent / "plain.nc"
    pnc_vol.File(other, "w").close()
    with pytest.raises(FileExistsError):
        pnc_vol.File(other, mode, layout="blob")
    stray = path.parent / "stray.nc"
    (path.parent / "stray.nc.0000").mkdir()
    with pytest.raises(IsADirectoryError):
        pnc_vol.File(stray, "w", layout="blob")


def test_a_file_that_is_there_stays_what_it_is(path: Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["x"] = 1
    with pnc_vol.File(path, "a", layout="blob") as f:
        f["y"] = 2
    with pnc_vol.File(path, layout="blob") as f:
        assert sorted(f) == ["x", "y"]
    assert names(path) == ["set.nc"]


def test_an_empty_file_is_no_file_yet(path: Path) -> None:
    path.touch()
    with pnc_vol.File(path, "a", layout="blob") as f:
        f["x"] = 1
    assert names(path) == ["set.nc.0000"]


def test_a_name_that_ends_with_a_number(path: Path) -> None:
    name = path.parent / "run.2026"
    with pnc_vol.File(name, "w", layout="blob") as f:
        f["x"] = 1
    assert names(path) == ["run.2026.0000"]
    with pnc_vol.File(name) as f:
        assert f["x"][()] == 1


def test_a_plan_has_what_is_placed(path: Path) -> None:
    """Where the elements of a new dataset lie, ranks agree on at the flush."""
    with pnc_vol.File(path, "w", layout="blob") as f:
        f.create_dataset("x", (8, 8), "f8")[2:4] = 1
        f.flush()
        f["x"][2] = 2
        f.create_dataset("y", (8, 8), "f8")[1:3, 2:5] = 1
        plan = f.plan()
        assert (plan.requests, plan.runs, plan.extents, plan.nbytes) == (2, 3, 1, 64)
        assert plan.unplaced == ("/y",)
        assert str(plan).endswith("placed by the flush: /y")
        f.flush()
        assert f.plan().unplaced == ()


def test_the_name_of_a_set_is_that_of_a_file(path: Path) -> None:
    assert not pnc_vol.is_hdf5(path)
    written(path)
    assert pnc_vol.is_hdf5(path)
    assert pnc_vol.is_hdf5(f"{path}.0000")
    with pytest.raises(ValueError, match="a set of subfiles is not repacked; 'pnc-vol replay' makes one file of it"):
        pnc_vol.repack(path, f"{path}.new")


def test_names_that_the_layout_needs(path: Path) -> None:
    f = pnc_vol.File(path, "w", layout="blob")
    f.attrs["num_subfiles"] = 3
    with pytest.raises(ValueError, match="'num_subfiles'"):
        f.flush()
    del f.attrs["num_subfiles"]
    f["x"] = 1
    f.close()
    with pnc_vol.File(path) as f:
        assert f["x"][()] == 1


def replaced_meanwhile(path: Path, layout: str) -> None:
    """Another set takes the names of one, as a writer's new layout does."""
    for name, fill in ((path, 7), (f"{path}.new", 8)):
        with pnc_vol.File(name, "w", layout=layout) as f:
            f["x"] = np.full(100, fill)
            f.attrs["long"] = [1] * 3000 * (fill - 7)


@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_reader_has_the_version_that_it_opened(path: Path, ranks: int, layout: str) -> None:
    """The offsets of the old header led to other bytes of the new file."""
    replaced_meanwhile(path, layout)

    def program(comm: Any) -> None:
        with pnc_vol.File(path, comm=comm if comm.size > 1 else None, driver="posix") as f:
            comm.agree("opened")
            if comm.rank == 0:
                os.replace(f"{path}.new.0000", f"{path}.0000")
            comm.agree("replaced")
            assert f["x"][:].tolist() == [7] * 100
            comm.agree("read")
            f["x"].refresh()
            assert f["x"][:].tolist() == [8] * 100

    virtual_ranks.run(ranks, program)


@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
def test_ranks_open_one_version_of_a_set(path: Path, layout: str) -> None:
    """The writer replaces it when rank 0 has read the headers, and the other rank has not opened the files yet."""
    replaced_meanwhile(path, layout)

    class Replacing(System):
        there = True

        def open(self, *args: Any, **how: Any) -> int:
            if self.there:
                self.there = False
                os.replace(f"{path}.new.0000", f"{path}.0000")
            return super().open(*args, **how)

    def program(comm: Any) -> None:
        system = {"system": Replacing()} if comm.rank else {}
        with pnc_vol.File(path, comm=comm, driver="posix", **system) as f:
            assert f["x"][:].tolist() == [8] * 100

    virtual_ranks.run(2, program)


def test_a_reader_keeps_few_descriptors_and_gives_them_back(path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    written(path)
    before = opened()
    for _ in range(3):
        with pnc_vol.File(path) as f:
            assert f["x"][0] == 5
            f["x"].refresh()
            assert f["x"][0] == 5
            assert opened() == before + 1
        assert opened() == before
    Path(f"{path}.0000").write_bytes(Path(f"{path}.0000").read_bytes()[:100])
    with pytest.raises(OSError, match=r"set\.nc"):
        pnc_vol.File(path)
    assert opened() == before


@pytest.mark.parametrize("mode", ["a", "w-", "x"])
@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
@pytest.mark.parametrize("left", [1, 2])
def test_no_set_is_begun_over_the_rest_of_another_one(path: Path, layout: str, left: int, mode: str) -> None:
    def job(comm: Any) -> None:
        with pnc_vol.File(path, "w", layout=layout, driver="posix", comm=comm, subfiles=3) as f:
            f.create_dataset("t", (3, 3), "f8")[comm.rank] = 1

    virtual_ranks.run(3, job)
    for number in range(left):
        Path(f"{path}.000{number}").unlink()
    there = {name: (path.parent / name).read_bytes() for name in names(path)}
    with pytest.raises(FileNotFoundError, match="the first file of this set of subfiles is missing"):
        pnc_vol.File(path, mode, layout=layout)
    assert there == {name: (path.parent / name).read_bytes() for name in names(path)}
    pnc_vol.File(path, "w", layout=layout).close()
    other = path.parent / "other.nc"
    (path.parent / "other.nc.2024").write_bytes(b"of another kind")
    pnc_vol.File(other, mode, layout=layout).close()
    assert set(names(path)) >= {"set.nc.0000", "other.nc.0000"}


@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
def test_large_pieces_of_several_subfiles_are_read_from_their_files(path: Path, layout: str) -> None:
    """A look at the pages of a file is at one file, and these pieces are long enough for looks."""
    values = np.arange(400_000.0)

    def job(comm: Any) -> None:
        with pnc_vol.File(path, "w", layout=layout, driver="posix", comm=comm, subfiles=2) as f:
            own = pnc_vol.Decomposition.from_runs([comm.rank * 100_000], [100_000], values.shape)
            x = f.create_dataset("x", values.shape, "f8", decomposition=own)
            part = slice(comm.rank * 100_000, (comm.rank + 1) * 100_000)
            x[part] = values[part]

    virtual_ranks.run(4, job, nodes=2)
    with pnc_vol.File(path) as f:
        assert np.array_equal(f["x"][...], values)
        assert np.array_equal(f["x"][90_000:310_000], values[90_000:310_000])


@pytest.mark.parametrize("publish", ["create", "close"])
@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
def test_a_set_whose_name_a_plain_file_took_stays_and_is_told_from_it(path: Path, layout: str, publish: str) -> None:
    with pnc_vol.File(path, "w", layout=layout) as f:
        f["x"] = [1, 2]
    with pnc_vol.File(path, "w", publish=publish) as f:
        f["y"] = 3
    assert names(path) == ["set.nc", "set.nc.0000"]
    with pnc_vol.File(path) as f:
        assert list(f) == ["y"]
    for name, options in ((f"{path}.0000", {}), (path, {"layout": layout})):
        with (
            pytest.warns(pnc_vol.PncVolWarning, match="an ordinary file has this name, too"),
            pnc_vol.File(name, **options) as f,
        ):
            assert list(f) == ["x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # a set takes the place of both
        pnc_vol.File(path, "w", layout=layout).close()
        pnc_vol.File(path).close()
    assert names(path) == ["set.nc.0000"]


def test_a_missing_set(path: Path) -> None:
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            pnc_vol.File(path, mode, layout="blob")


def test_a_subfile_that_ends_before_its_data(path: Path, tmp_path: Path) -> None:
    """As a power failure may leave it after a flush that was not durable: what was written before is there."""
    with pnc_vol.File(path, "w", layout="blob") as f:
        f["a"] = np.arange(10)
        f.create_dataset("b", data=np.arange(10.0), fillvalue=7)
    with open(f"{path}.0000", "r+b") as raw:
        raw.truncate(os.path.getsize(f"{path}.0000") - 24)
    for mode in ("r", "r+"):
        with pytest.warns(ShortFileWarning, match="24 bytes of data are missing at the end of the file, of b"):
            f = pnc_vol.File(path, mode)
        with f:
            assert f["a"][...].tolist() == list(range(10))
            assert f["b"][...].tolist() == [*range(7), 7, 7, 7]
    with pytest.warns(ShortFileWarning):
        f = pnc_vol.File(path, strict=True)
    with f:
        assert f["a"][-1] == 9
        with pytest.raises(ShortFileError, match="24 of 80 bytes lie beyond the end of the file"):
            f["b"][...]
    report = convert(path, tmp_path / "x.h5")
    assert [(lost.path, lost.what) for lost in report.lost] == [("/b", "values")]
    written(tmp_path / "maps.nc")
    with open(tmp_path / "maps.nc.0000", "r+b") as raw:
        raw.truncate(4100)
    with pytest.raises(FormatError, match="ends before its maps: 4 bytes of D1"):
        pnc_vol.File(tmp_path / "maps.nc")
    with warnings.catch_warnings(), pytest.raises(FormatError, match="ends before its maps: 4 bytes of D1"):
        warnings.simplefilter("ignore", ShortFileWarning)
        pnc_vol.File(tmp_path / "maps.nc", "r+")


@pytest.mark.filterwarnings("ignore:.*bytes of data are missing at the end")
def test_a_subfile_that_ends_before_its_last_records(path: Path) -> None:
    """As a power failure may leave it after a flush that was not durable: the records before are there."""
    with pnc_vol.File(path, "w", layout="blob") as f:
        f.create_dataset("r", (0, 4), "i4", maxshape=(None, 4))
        f["fixed"] = np.arange(6)
        for i in range(5):
            f["r"].resize(i + 1, axis=0)
            f["r"][i] = i + 1
    with open(f"{path}.0000", "r+b") as raw:
        raw.truncate(os.path.getsize(f"{path}.0000") - 20)
    wanted = [[i] * 4 for i in (1, 2, 3)]
    for mode in ("r", "r+"):
        with pytest.warns(ShortFileWarning, match=r"counts 5 records, and 3 of them"):
            f = pnc_vol.File(path, mode)
        assert f["r"][...].tolist() == wanted
        if mode == "r":
            f.close()
    with f:
        assert f["r"][...].tolist() == wanted
        f["r"].resize(5, axis=0)
        f["r"][4] = 9
    with pnc_vol.File(path) as f:
        assert f["r"][...].tolist() == [*wanted, [0] * 4, [9] * 4]
        assert f["fixed"][...].tolist() == list(range(6))


def test_a_reader_follows_a_writer(path: Path) -> None:
    """Another process writes: definitions, records, and a set that takes the place of the one that is open."""
    written(path)

    def writer() -> Iterator[None]:
        with pnc_vol.File(path, "a") as f:
            f["y"] = np.arange(3)
            f["x"][6] = 9
        yield
        with pnc_vol.File(path, "w", layout="blob") as f:
            f["x"] = np.arange(4)

    with Other(writer) as other, pnc_vol.File(path) as f:
        x = f["x"]
        x.refresh()
        assert other() == "done"
        x.refresh()
        assert f["y"][...].tolist() == [0, 1, 2]
        assert x[...].tolist() == [5, 5, 5, 5, 0, 0, 9, 0]
        assert other() == "done"
        x.refresh()
        assert list(f) == ["x"]
        assert x[...].tolist() == [0, 1, 2, 3]


def of_two(path: Path) -> dict[str, Any]:
    """A set of two subfiles; what is in it."""

    def job(comm: Any) -> None:
        with pnc_vol.File(path, "w", layout="blob", driver="posix", comm=comm, subfiles=2) as f:
            f.create_dataset("a", (2, 6), "f8")[comm.rank] = 1
            f.create_dataset("r", (3, 2), "i4", maxshape=(None, 2))[:, comm.rank] = 2
            f["s"] = 7

    virtual_ranks.run(2, job, nodes=2)
    return {"a": [[1] * 6] * 2, "r": [[2, 2]] * 3, "s": 7}


def put(f: Any) -> dict[str, Any]:
    f["a"][:, 1:3] = 7
    return {"a": [[1, 7, 7, 1, 1, 1]] * 2}


def append(f: Any) -> dict[str, Any]:
    f["r"].resize(4, axis=0)
    f["r"][3] = 9
    return {"r": [[2, 2]] * 3 + [[9, 9]]}


def define(f: Any) -> dict[str, Any]:
    f.create_dataset("new", (2, 3), "f8")[1] = 5
    return {"new": [[0] * 3, [5] * 3]}


def rename(f: Any) -> dict[str, Any]:
    f.move("s", "moved")
    f.move("a", "b")
    return {"s": None, "moved": 7, "a": None, "b": [[1] * 6] * 2}


@pytest.mark.parametrize(
    ("change", "durable"),
    [
        # each change with one kind of flush; with the other one at night
        pytest.param(change, durable, marks=[pytest.mark.nightly] * ((n + durable) % 2))
        for n, change in enumerate((put, append, define, rename))
        for durable in (False, True)
    ],
)
def test_what_fails_in_a_flush_names_a_subfile_and_is_done_by_the_next_one(
    path: Path, change: Callable[[Any], dict[str, Any]], durable: bool
) -> None:
    for at in range(1, 100):
        wanted = of_two(path)
        system = FaultSystem(fail_at=0, errno=errno.ENOSPC, calls=CHANGING - {"fsync", "fdatasync"})
        with pnc_vol.File(path, "r+", durable=durable, system=system) as f:
            wanted |= change(f)
            system.fail_at = system.count + at
            failed: list[OSError] = []
            try:
                f.flush()
            except OSError as error:
                failed.append(error)
                f.flush()
        for error in failed:
            assert "set.nc" in f"{error} {error.filename}"
            for failure in getattr(error, "errors", ()):
                assert failure.errno == errno.ENOSPC
                assert failure.message.endswith(("(subfile set.nc.0000)", "(subfile set.nc.0001)"))
        with pnc_vol.File(path) as f:
            assert {name: f[name][...].tolist() for name in f} == {k: v for k, v in wanted.items() if v is not None}
        if not system.fired:
            assert at > 2
            return
    pytest.fail("the faults never ended")


def test_by_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that knows nothing of sets."""
    monkeypatch.setenv("PNC_VOL_HINTS", "pnc_layout=blob")
    with pnc_vol.File(path, "w") as f:
        t = f.create_dataset("t", (0, 8), "f8", maxshape=(None, 8))
        for k in range(3):
            t.resize(k + 1, axis=0)
            t[k, ::2] = k
            f.flush()
    with pnc_vol.File(path, "a") as f:
        f["t"][0, 1] = 8
    with pnc_vol.File(path, "r") as f:
        assert f["t"][::2].tolist() == [[0, 8, 0, 0, 0, 0, 0, 0], [2, 0, 2, 0, 2, 0, 2, 0]]
    assert names(path) == ["set.nc.0000"]
    monkeypatch.undo()
    with pnc_vol.File(f"{path}.0000", layout="canonical") as f:
        assert "D1.offsets" in f


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_close_that_fails_leaves_no_header_of_maps_that_are_not_there(path: Path, nth: int) -> None:
    """The subfiles were closed one by one, each with its new header, though a map could not be written."""
    system = FaultSystem(fail_at=nth, errno=errno.ENOSPC)
    with suppress(OSError), pnc_vol.File(path, "w", layout="blob", subfiles=2, system=system) as f:
        f.create_dataset("a", (2, 5), "u2")
        f["a"][:, [0, 1, 4]] = 31
    if system.fired and not path.with_name("set.nc.0000").exists():
        return
    with pnc_vol.File(path) as f:
        assert [f[name][...].tolist() for name in f] in ([], [[[31, 31, 0, 0, 31]] * 2])


@pytest.mark.filterwarnings("ignore:.*the cache .e10_cache. is off:pnc_vol.errors.PncVolWarning")
@pytest.mark.parametrize("troubled", [0, 3])
def test_ranks_of_all_subfiles_are_told_what_failed_on_one(tmp_path: Path, troubled: int) -> None:
    """Of whatever a flush writes to one subfile, or copies from one to the other, while caches hold some of it back."""

    def once(n: int) -> FaultSystem:
        (folder := tmp_path / str(n)).mkdir()
        system = FaultSystem(fail_at=0, errno=errno.EIO, calls=CHANGING | {"pread_into"})
        hints = {"e10_cache_path": str(folder), "e10_cache_flush_flag": "flush_onclose"}

        def job(comm: Any) -> str:
            given = {"system": system} if comm.rank == troubled else {}
            f = pnc_vol.File(
                folder / "set.nc", "w", layout="blob", subfiles=2, comm=comm, driver="posix", ordered=True, hints=hints,
                collective_timeout=2, **given,
            )  # fmt: skip
            try:
                f["scalar"] = 1
                f.create_dataset("a", (2, 8), "i4")[:, 2 * comm.rank : 2 * comm.rank + 2] = comm.rank
                if comm.rank == troubled:
                    system.count, system.fail_at = 0, n
                f.sync()
                f["scalar"] = 2
                f.sync()
            except OSError as error:
                return f"{type(error).__name__}: {error}"
            finally:
                system.fail_at = 0
                with suppress(OSError):
                    f.close()
            return ""

        told = virtual_ranks.run(4, job, nodes=2, timeout=2)
        assert not any("did not call it" in one for one in told), (n, told)
        assert not any(told) or all(told), (n, told)
        return system

    for n in range(1, 60):
        if not once(n).fired:
            assert n > 5
            return
    pytest.fail("the faults never ended")


@pytest.mark.filterwarnings("ignore:.*the cache .e10_cache. is off:pnc_vol.errors.PncVolWarning")
def test_all_ranks_are_told_of_a_held_header_that_cannot_follow(tmp_path: Path) -> None:
    """Rank 0 alone writes it, when the next flush begins; the other one was in calls of another communicator."""

    def once(n: int) -> bool:
        (folder := tmp_path / str(n)).mkdir()
        system = FaultSystem(fail_at=0, errno=errno.EIO, calls=CHANGING)

        def job(comm: Any) -> str:
            given = {} if comm.rank else {"system": system}
            hints = {"e10_cache_path": str(folder), "e10_cache_flush_flag": "flush_immediate"}
            f = pnc_vol.File(
                folder / "set.nc", "w", layout="blob", comm=comm, driver="posix", hints=hints, collective_timeout=2,
                **given,
            )  # fmt: skip
            f.create_dataset("a", (3,), "i4")
            f.flush()
            if comm.rank == 0:
                system.count, system.fail_at = 0, n
            try:
                f.sync()
            except OSError as error:
                return str(error)
            finally:
                system.fail_at = 0
                f.close()
            return ""

        texts = virtual_ranks.run(2, job, timeout=2)
        assert all(texts) == any(texts), texts
        assert "did not call it" not in "".join(texts)
        return system.fired

    fired = [once(n) for n in range(1, 10)]
    assert fired[0]


@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
def test_a_subfile_that_is_replaced_while_ranks_open_the_set_is_read_again(path: Path, layout: str) -> None:
    class Replacing(System):
        done = False

        def open(self, path: Any, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
            name = os.fspath(path)
            if name.endswith("set.nc.0001") and not self.done:
                self.done = True
                shutil.copy(name, f"{name}~")
                os.replace(f"{name}~", name)
            return super().open(path, flags, mode, dir_fd=dir_fd)

    def write(comm: Any) -> None:
        cells = ([0, 1, 4, 5], [2, 3])[comm.rank]
        own = pnc_vol.Decomposition.from_runs(cells, shape=(6,))
        with pnc_vol.File(path, "w", layout=layout, comm=comm, driver="posix", subfiles=2) as f:
            f.create_dataset("x", (6,), "i8", decomposition=own)[cells] = np.array(cells)

    def read(comm: Any) -> list[int]:
        system = Replacing() if comm.rank else System()
        with pnc_vol.File(path, comm=comm, driver="posix", system=system) as f:
            found: list[int] = f["x"][...].tolist()
            return found

    virtual_ranks.run(2, write)
    assert virtual_ranks.run(2, read) == [list(range(6))] * 2
