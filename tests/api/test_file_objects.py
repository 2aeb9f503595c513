"""Files that have no path: in memory, and in file-like objects. h5py's answers where it has the same."""

from __future__ import annotations

import gc
import gzip
import io
import os
import pathlib
import tempfile
import weakref
import zipfile
from typing import Any

import numpy as np
import pytest

import pnc_vol

MODES = ("r", "r+", "a", "w", "x", "w-")


def image(module: Any = pnc_vol) -> bytes:
    target = io.BytesIO()
    with module.File(target, "w") as f:
        f["x"] = np.arange(6.0).reshape(2, 3)
        f.attrs["title"] = "image"
    return target.getvalue()


# ------------------------------------------------------------------------------------------ objects


@pytest.mark.parametrize("make", ["io.BytesIO()", "tempfile.TemporaryFile()", "open(path + 'o', 'w+b')"])
def test_as_h5py(both: Any, make: str) -> None:
    for names in both.names:
        names |= {"io": io, "os": os, "tempfile": tempfile}
    both.same(f"""
        t = {make}
        g = h5.File(t, 'w')
        g.driver, g.mode, g.filename == repr(t), bool(g)
        name = chr(34) + os.path.basename(repr(t)) + chr(34)
        repr(g).replace('NetCDF', 'HDF5') == '<HDF5 file ' + name + ' (mode r+)>'
        g['x'] = np.arange(12); g['a/b'] = 1.5; g.attrs['n'] = 3
        list(g), g['x'][::5].tolist(), g['a/b'][()]
        g.flush()
        g.close()
        bool(g), repr(g)
        t.closed
        t.seek(0, 2) > 0
        g = h5.File(t)
        g.mode, list(g), g['x'][:].tolist(), g.attrs['n']
        g['y'] = 1
        g.create_group('c')
        g.close()
        g = h5.File(t, 'r+')
        g['y'] = 2; del g['a']
        g.close()
        g = h5.File(t, 'a', driver='fileobj')
        list(g), g['y'][()], g['x'][3]
        g['x'][3] = 100
        g.close()
        g = h5.File('called', driver='fileobj', fileobj=t)
        g.filename, g['x'][3]
        g.close()
        t.close()
    """)


def test_arguments(both: Any) -> None:
    for names in both.names:
        names |= {"io": io, "t": io.BytesIO()}
    both.same("""
        h5.File(t, 'w', driver='core')
        h5.File(t, 'w', driver='sec2')
        h5.File(io.BytesIO(b'1'), 'w', driver='fileobj', fileobj=t)
        h5.File(t, 'q')
        h5.File(t, 'r')
        h5.File(io.BytesIO(b'hello' * 300), 'r')
        h5.File(io.BytesIO(b'hello' * 300), 'r+')
        h5.File(io.BytesIO(b'hello' * 300), 'a')
        h5.File(None, 'w')
        h5.File(3.5, 'w')
        h5.File(path + 'n', 'w', fileobj=t)
        g = h5.File(t, 'r+'); list(g), g.mode; g.close()
    """)
    with pytest.raises(TypeError, match="fileobj"):
        pnc_vol.File("rogue", "w", driver="fileobj")
    with pytest.raises(TypeError, match="binary"):
        pnc_vol.File(io.StringIO(), "w")


def test_local_files_of_fsspec_are_written(impl: Any) -> None:
    """They deny it where their mode is "r+b"."""
    local = pytest.importorskip("fsspec").filesystem("file")
    for mode, own in (("w+b", "w"), ("r+b", "r+")):
        with local.open(impl.path, mode) as opened, impl.h5.File(opened, own) as f:
            f[own] = 1
    with impl.open() as f:
        assert list(f) == ["r+", "w"]


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_objects(mode: str) -> None:
    """As of files: h5py goes on with what an object holds even in the modes 'w' and 'x'."""
    held = image()
    target = io.BytesIO(held)
    if mode in ("x", "w-"):
        with pytest.raises(FileExistsError, match="holds"):
            pnc_vol.File(target, mode)
        assert target.getvalue() == held
    else:
        with pnc_vol.File(target, mode) as f:
            assert list(f) == ([] if mode == "w" else ["x"])
        if mode == "w":
            assert len(target.getvalue()) < len(held)
            with pnc_vol.File(target) as f:
                assert not list(f)
        else:
            assert target.getvalue() == held
    if mode != "r":
        with pnc_vol.File(io.BytesIO(), mode) as f:
            f["y"] = 1
            assert f.mode == "r+"


def test_an_object_is_the_file(tmp_path: pathlib.Path) -> None:
    """Whatever a path would hold, an object holds, byte for byte: new layouts, records, strings that grow."""

    def work(target: Any) -> None:
        with pnc_vol.File(target, "w", buffer_size=1 << 14) as f:
            f["a"] = np.arange(5000, dtype="i4")
            r = f.create_dataset("r", (2, 3), "f8", maxshape=(None, 3))
            f["s"] = ["a", "b"]
            f.flush()
            r.resize(50, axis=0)
            r[:] = 7
            f["s"][0] = "much longer than before"
            f["b" * 100] = np.ones(3000)
            f.attrs["long"] = "x" * 20000
            f.flush()
            del f["a"]
        with pnc_vol.File(target, "r+") as f:
            f["r"].resize(60, axis=0)
            f["late"] = [1, 2]

    work(tmp_path / "path.nc")
    memory = io.BytesIO()
    work(memory)
    with open(tmp_path / "object.nc", "w+b") as stream:
        work(stream)
    expected = (tmp_path / "path.nc").read_bytes()
    assert memory.getvalue() == expected
    assert (tmp_path / "object.nc").read_bytes() == expected


def test_others_read_the_bytes() -> None:
    """What goes through a web server or a pipeline: written here, read there, and the other way round."""
    netCDF4 = pytest.importorskip("netCDF4")
    netcdf_file = pytest.importorskip("scipy.io").netcdf_file
    target = io.BytesIO()
    with pnc_vol.File(target, "w", format="CDF-2") as f:
        x = f.create_dataset("x", data=[10.0, 20.0])
        x.make_scale("x")
        t = f.create_dataset("t", data=np.arange(6.0).reshape(3, 2), maxshape=(None, 2))
        t.dims[1].attach_scale(x)
        t.attrs["units"] = "K"
    held = target.getvalue()
    with netCDF4.Dataset("any", memory=held) as data:
        assert data["t"].dimensions[1] == "x"
        assert data["t"][:].tolist() == [[0, 1], [2, 3], [4, 5]]
    with netcdf_file(io.BytesIO(held), mmap=False) as data:
        assert data.variables["t"].units == b"K"
        assert data.variables["x"][:].tolist() == [10, 20]
    theirs = io.BytesIO()
    data = netcdf_file(theirs, "w", mmap=False)
    data.createDimension("n", 3)
    data.createVariable("v", "i4", ("n",))[:] = [1, 2, 3]
    data.flush()
    with pnc_vol.File(io.BytesIO(theirs.getvalue())) as f:
        assert f["v"][:].tolist() == [1, 2, 3]
    # five versions of the format have no 8-byte integers: CDF-5 has
    target = io.BytesIO()
    with pnc_vol.File(target, "w") as f:
        f["wide"] = np.array([1 << 40])
    with netCDF4.Dataset("any", memory=target.getvalue()) as data:
        assert data["wide"][0] == 1 << 40


def test_packed_files_are_read_where_they_are(tmp_path: pathlib.Path) -> None:
    held = image()
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("x.nc", held)
    (tmp_path / "x.gz").write_bytes(gzip.compress(held))
    with zipfile.ZipFile(tmp_path / "x.zip") as archive, archive.open("x.nc") as inside, pnc_vol.File(inside) as f:
        assert f["x"][1].tolist() == [3, 4, 5]
    with gzip.open(tmp_path / "x.gz") as inside, pnc_vol.File(inside) as f:
        assert f["x"][1].tolist() == [3, 4, 5]
        assert f.attrs["title"] == "image"


def test_a_flush_reaches_who_reads_the_path(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with open(path, "w+b", buffering=1 << 20) as stream, pnc_vol.File(stream, "w") as f:
        f["x"] = [1, 2]
        f.flush()
        with pnc_vol.File(path) as other:
            assert other["x"][:].tolist() == [1, 2]
        f["x"][1] = 5
        f.flush(durable=True)
        with pnc_vol.File(path) as other:
            assert other["x"][:].tolist() == [1, 5]


def test_little_memory_is_taken_for_large_data(tmp_path: pathlib.Path) -> None:
    """Writes go to the object as the queue fills; nothing keeps a copy of the whole."""
    largest = [0]

    class Watched(io.FileIO):
        def write(self, data: Any) -> int:
            largest[0] = max(largest[0], memoryview(data).nbytes)
            return super().write(data)

    with Watched(tmp_path / "x", "w+") as stream:
        with pnc_vol.File(stream, "w", buffer_size=1 << 20) as f:
            x = f.create_dataset("x", (64, 1 << 16), "f8")
            for i in range(64):
                x[i] = i
            assert os.path.getsize(tmp_path / "x") > 20 << 20, "it goes there while it is posted"
        with pnc_vol.File(stream) as f:
            assert f["x"][63, 5] == 63
    assert largest[0] <= 4 << 20


def test_an_object_is_let_go_of(tmp_path: pathlib.Path) -> None:
    class Kept(io.BytesIO): ...

    target = Kept()
    gone = weakref.ref(target)
    f = pnc_vol.File(target, "w")
    f["x"] = 1
    del target
    gc.collect()
    assert gone() is not None
    f.close()
    gc.collect()
    assert gone() is None
    target = Kept()
    f = pnc_vol.File(target, "w")
    f["x"] = 1
    del f
    gc.collect()
    with pnc_vol.File(target) as g:
        assert g["x"][()] == 1


# -------------------------------------------------------------------------------- objects that fail


class Breaking(io.BytesIO):
    broken = False

    def write(self, data: Any) -> int:
        if self.broken:
            raise RuntimeError("the line is cut")
        return super().write(data)


def test_an_object_that_fails_loses_nothing() -> None:
    target = Breaking()
    f = pnc_vol.File(target, "w")
    f["said"] = np.arange(100)
    f.flush()
    held = target.getvalue()
    target.broken = True
    f["said"][50:] = -1
    with pytest.raises(pnc_vol.FlushError, match=r"/said.*the line is cut") as caught:
        f.flush()
    assert "BytesIO" in str(caught.value) or "Breaking" in str(caught.value)
    assert target.getvalue() == held
    f["more"] = np.arange(3)
    with pytest.raises(OSError, match="the line is cut"):
        f.flush()
    with pnc_vol.File(io.BytesIO(target.getvalue())) as g:
        assert g["said"][:].tolist() == list(range(100))
    target.broken = False
    f.close()
    with pnc_vol.File(target) as g:
        assert g["said"][:50].tolist() == list(range(50))
        assert g["said"][50:].tolist() == [-1] * 50
        assert g["more"][:].tolist() == [0, 1, 2]


class Numbered(io.BytesIO):
    """From one of its calls on it raises; a write may have done a part by then."""

    calls, fails_at, part = 0, 1 << 30, 0

    def counted(self) -> bool:
        self.calls += 1
        return self.calls >= self.fails_at

    def write(self, data: Any) -> int:
        if self.counted():
            super().write(memoryview(data)[: memoryview(data).nbytes * self.part // 2])
            raise RuntimeError("for a while")
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        if self.counted():
            raise RuntimeError("for a while")
        return super().truncate(size)

    def flush(self) -> None:
        if self.counted():
            raise RuntimeError("for a while")


STEPS = (
    lambda f: f.create_dataset("a", data=np.arange(700, dtype="i4")),
    lambda f: f.create_dataset("r", (2, 3), "f8", maxshape=(None, 3)).write_direct(np.ones((2, 3))),
    lambda f: f.flush(),
    lambda f: f["a"].__setitem__(slice(100, 200), -1),
    lambda f: (f["r"].resize(20, axis=0), f["r"].__setitem__(slice(5, 20), 5)),
    lambda f: f.flush(),
    lambda f: f.attrs.__setitem__("long", "x" * 9000),
    lambda f: f["a"].__setitem__(3, 33),
    lambda f: f.flush(),
    lambda f: f.create_dataset("b", data=["text", "more"]),
    lambda f: f.__delitem__("a"),
    lambda f: f.flush(),
)


def contents(f: Any) -> dict[str, Any]:
    return {name: f[name][...].tolist() for name in f} | dict(f.attrs)


@pytest.mark.parametrize("part", [0, 1])
def test_each_call_fails(part: int) -> None:
    """Wherever an object begins to fail: an error says so, and nothing is lost once it works again."""

    def work(target: Numbered) -> tuple[list[dict[str, Any]], int, int]:
        seen, failures = [], 0
        f = pnc_vol.File(target, "w")
        for step in STEPS:
            try:
                step(f)
            except OSError as error:
                failures += "for a while" in str(error)
                seen.append(contents(f))
                target.fails_at = 1 << 30
                f.flush()
                assert contents(f) == seen.pop()
            seen.append(contents(f))
        calls = target.calls
        f.close()
        with pnc_vol.File(io.BytesIO(target.getvalue())) as f:
            seen.append(contents(f))
        return seen, failures, calls

    expected, failures, calls = work(Numbered())
    assert (failures, calls > 12) == (0, True)
    for at in range(2, calls + 1):
        target = Numbered()
        target.fails_at, target.part = at, part
        seen, failures, _ = work(target)
        assert seen == expected, f"from call {at} on"
        assert failures == 1, f"from call {at} on"


def test_an_object_that_was_closed_by_its_owner() -> None:
    target = io.BytesIO()
    f = pnc_vol.File(target, "w")
    f["x"] = 1
    target.close()
    with pytest.raises(OSError, match="closed file"):
        f.close()
    assert not f
    f.close()


def test_a_short_read_is_no_data() -> None:
    class Broken(io.BytesIO):
        def readinto(self, into: Any) -> int:
            raise RuntimeError("no more")

    target = Broken(image())
    with pytest.raises(OSError, match="no more"):
        pnc_vol.File(target)


# ----------------------------------------------------------------------------------------- in memory


def test_in_memory_as_h5py(both: Any) -> None:
    both.same("""
        g = h5.File.in_memory()
        g.mode, g.driver, bool(g), repr(g).split(chr(34))[0], g.userblock_size
        g['x'] = [1, 2]; g.attrs['a'] = 'b'
        g.flush(); img = g.id.get_file_image()
        type(img), len(img) > 0
        k = h5.File.in_memory(img)
        k.mode, list(k), k['x'][:].tolist(), k.attrs['a']
        k['y'] = 1
        list(g), list(k), g == k, g.filename == k.filename
        g.close(); k.close()
        k = h5.File.in_memory(bytearray(img)); list(k); k.close()
        k = h5.File.in_memory(memoryview(img)); list(k); k.close()
        k = h5.File.in_memory(np.frombuffer(img, 'u1').tobytes()); k.close()
        k = h5.File.in_memory(b''); list(k); k.close()
        h5.File.in_memory(b'xyz')
        h5.File.in_memory('xyz')
        h5.File.in_memory(driver='core')
        h5.File.in_memory(locking=True)
        h5.File.in_memory(backing_store=True)
        h5.File.in_memory(mode='w')
        h5.File.in_memory(bogus=1)
        h5.File.in_memory(swmr=True)
        h5.File.in_memory(img, track_order=True)
        k = h5.File.in_memory(track_order=True); k['b'] = 1; k['a'] = 1; list(k); k.close()
        k = h5.File.in_memory(img, libver='latest', block_size=10); list(k); k.close()
    """)


BLOCKS = ("1", "0", "-1", "'a'", "None", "2.5", "1 << 70", "True")


@pytest.mark.parametrize("size", BLOCKS)
def test_block_size(both: Any, size: str) -> None:
    both.same(f"g = h5.File(path + 'b', 'w', driver='core', backing_store=False, block_size={size})")
    if "g" in both.names[0]:
        both.same("g['x'] = 1; g.driver; g.close()")


@pytest.mark.parametrize("store", ["True", "False", "1", "0", "None", "'a'"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_the_core_driver_and_the_disk(both: Any, mode: str, there: bool, store: str) -> None:
    both.same("import os")
    if there:
        both.same("k = h5.File(path + 'c', 'w'); k['x'] = 1; k.close()")
    both.same(f"g = h5.File(path + 'c', '{mode}', driver='core', backing_store={store})")
    if "g" in both.names[0]:
        both.same("list(g), g.mode, g.driver")
        if mode != "r":
            both.same("g['y'] = 1; list(g)")
        both.same("g.close()")
    both.same("os.path.exists(path + 'c')")
    if there:
        both.same("k = h5.File(path + 'c'); list(k); k.close()")


def test_memory_is_not_the_file_that_is_open_beside(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = 1
    with pnc_vol.File(path, "r+") as f, pnc_vol.File(path, "r+", driver="core", backing_store=False) as memory:
        memory["y"] = 1
        f["z"] = 1
        assert list(f) == ["x", "z"]
        assert list(memory) == ["x", "y"]
    with pnc_vol.File(path) as f:
        assert list(f) == ["x", "z"]
