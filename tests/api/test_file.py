"""File against h5py: modes, names, keywords, closing, and what ours has beyond it."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import pathlib
import socket
import stat
from typing import Any

import numpy as np
import pytest
from programs import tool

import pnc_vol
from pnc_vol.errors import ClosedFileError, FlushError, NotCDFError, NotYetError
from pnc_vol.testing.faults import CHANGING, FaultSystem, HookedSystem


def test_modes(both: Any) -> None:
    both.same("""
        f['x'] = 1
        f.mode, f.driver, f.userblock_size, f.swmr_mode, f.name, bool(f), f == f['/'].file, f.filename == path
        repr(f)
        f.mode = 'r'
        h5.File(path, 'w')
        f.close(); f.close()
        h5.File(path, 'q')
        h5.File(path, 'w-')
        h5.File(path, 'x')
        h5.File(path + 'none')
        h5.File(path + 'none', 'r+')
        h5.File('/nonexistent/x', 'w')
        h5.File('/nonexistent/x', 'a')
        h5.File(folder, 'r')
        h5.File(folder, 'w')
        h5.File(3)
        h5.File(None)
        h5.File('')
        h5.File('', 'w')
        g = h5.File(path); g.mode, g['x'][()]; g.close()
        g = h5.File(path.encode(), 'r+'); g.mode, list(g); g['y'] = 2; g.close()
        g = h5.File(path, 'a'); g.mode, list(g); g.close()
        g = h5.File(path + '2', 'x'); g.mode, list(g), repr(g); g.close()
        import pathlib; g = h5.File(pathlib.Path(path + '3'), 'a'); g.mode, g.filename == path + '3'; g.close()
        g = h5.File(path, 'w'); list(g), g.libver[0]; g.close()
        f = h5.File(path)
    """)


KEYWORDS = """
driver='bogus' | driver=3 | bogus=1 | driver='sec2' | driver='stdio' | driver='core'
driver='core', backing_store=False | driver='core', block_size=4096 | libver='bogus'
libver=('earliest', 'v110') | libver=('earliest', 'bogus') | locking='x' | locking=False | locking='best-effort'
fs_strategy='x' | fs_strategy='page', fs_page_size=4096 | userblock_size='a' | userblock_size=0
track_times='x' | track_times=True | track_order=True | rdcc_nbytes=1024, rdcc_nslots=7, rdcc_w0=0.5 | rdcc_w0=3
alignment_threshold=1, alignment_interval=512 | meta_block_size=4096
"""


@pytest.mark.parametrize("keywords", [one.strip() for one in KEYWORDS.replace("\n", "|").split("|") if one.strip()])
def test_keywords(both: Any, keywords: str) -> None:
    both.same(f"g = h5.File(path + '2', 'w', {keywords})")
    if "g" in both.names[0]:
        both.same("g['x'] = 1; g.driver, g.libver[0], g.mode, g.close()")


def test_keywords_for_existing_files(both: Any) -> None:
    both.same("""
        f.close()
        h5.File(path, 'r', userblock_size=512)
        h5.File(path, 'r+', fs_strategy='page')
        f = h5.File(path)
        f.swmr_mode = False
    """)


def test_swmr_is_a_flag(both: Any) -> None:
    both.same("""
        g = h5.File(path + 's', 'w', libver='latest')
        g['x'] = [1, 2]; g['e'] = h5.ExternalLink(path + 's', '/x')
        g.swmr_mode
        g.swmr_mode = True
        g.swmr_mode, g['x'].file.swmr_mode, g.mode
        g.swmr_mode = True
        g.swmr_mode = False
        g.get('e', elink_mode='r')
        g.get('e', elink_swmr=False)
        g['x'][0] = 7; g['x'].flush(); g['x'].refresh(); g['x'][:].tolist()
        g.create_group('a')
        g.attrs['b'] = 1
        g.close()
        g = h5.File(path + 's', 'r', swmr=True)
        g.swmr_mode, g.mode, g['x'].file.swmr_mode, g['x'][0]
        g['x'].refresh(); g['x'].flush()
        g.get('e', elink_swmr=True).file.swmr_mode
        g.get('e', elink_mode='r+')
        g.get('e', elink_mode='bogus')
        g.swmr_mode = True
        g.swmr_mode = False
        g.close()
        g.swmr_mode
        g = h5.File(path + 's')
        g.swmr_mode; g['x'].refresh()
        g.swmr_mode = True
        g.close()
        h5.File(path + 't', 'w', swmr=True)
    """)
    for libver in ("'earliest'", "'v108'", "'v110'", "('v108', 'latest')", "('v110', 'v114')", "'v200'", "None"):
        both.same(f"""
            g = h5.File(path + 'v', 'w', libver={libver})
            g.swmr_mode = True
            g.swmr_mode
            g.close()
        """)


def test_refused_by_name(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    for keywords, named in (
        ({"userblock_size": 512}, "userblock_size"),
        ({"driver": "ros3"}, "ros3"),
        ({"driver": "family"}, "family"),
    ):
        with pytest.raises(NotYetError, match=named):
            pnc_vol.File(path, "w", **keywords)
    with pytest.raises(TypeError, match="comm"):
        pnc_vol.File(path, "w", driver="mpio")
    for keywords in ({"buffer_size": -1}, {"format": "CDF-7"}, {"on_overflow": "x"}, {"driver": "trace"}):
        with pytest.raises(ValueError, match=next(iter(keywords))):
            pnc_vol.File(path, "w", **keywords)


def test_what_is_no_netcdf_file(impl: Any) -> None:
    for content in (b"abc", b"a much longer text that is nothing at all" * 20):
        with open(impl.path, "wb") as stream:
            stream.write(content)
        for mode in ("r", "r+", "a"):
            with pytest.raises(OSError):
                impl.open(mode)
        with open(impl.path, "rb") as stream:
            assert stream.read() == content
    if impl.ours:
        with pytest.raises(NotCDFError):
            impl.open()
        open(impl.path, "wb").close()
        with pytest.raises(OSError):
            impl.open()


def test_closing_makes_everything_false(impl: Any) -> None:
    f = impl.open("w")
    ds, g, attrs, keys = f.create_dataset("g/x", data=[1]), f["g"], f.attrs, f.keys()
    handle = ds.file
    f.close()
    f.close()
    assert not f
    assert not ds
    assert not g
    assert not handle
    assert not ds.id.valid
    assert repr(f) == ("<Closed NetCDF file>" if impl.ours else "<Closed HDF5 file>")
    assert repr(ds) == "<Closed HDF5 dataset>"
    assert repr(g) == "<Closed HDF5 group>"
    assert ds.name is None
    assert "x" not in g
    assert ds == ds
    with f as again:
        assert again is f
    if impl.ours:
        uses = (
            lambda: ds[0], lambda: ds.shape, lambda: f["g"], lambda: attrs["x"], lambda: ds.attrs["x"], f.flush,
            lambda: ds.iput(0, 1), lambda: f.requests, lambda: ds.resize((3,)), lambda: ds.parent, f.wait_all,
            lambda: f.copy("g", "h"), f.statistics, lambda: list(keys), lambda: g.file, lambda: g.visit(print),
        )  # fmt: skip
        for use in uses:
            with pytest.raises(ClosedFileError, match="closed"):
                use()


def test_uses_of_a_closed_file_raise_what_h5py_raises(both: Any) -> None:
    both.same("""
        d = f.create_dataset('d', data=[1, 2]); g = f.create_group('g'); a = d.attrs; m = d.dims; a['u'] = 1
        f.close()
        f['d']
        g['x']
        f.get('d')
        f.get('d', 5)
        list(f)
        f.attrs['u']
        a['u']
        a['u'] = 2
        list(a)
        'u' in a
        a.get('u')
        del a['u']
        d[()]
        d[0] = 1
        d.shape
        d.size
        len(d)
        d.resize((1,))
        np.asarray(d)
        m[0].label
        f.flush()
        f.copy('d', 'e')
        f.create_group('h')
        f.create_dataset('h', data=1)
        f['h'] = 1
        f.filename
        f.mode
        d.file
        d.parent
        f.visit(print)
        d.name
        bool(d), bool(g), bool(f)
    """)


def test_changes_of_a_file_that_is_read_raise_what_h5py_raises(both: Any) -> None:
    both.same("""
        f['d'] = np.arange(3); f['s'] = np.arange(3); f['s'].make_scale('s'); f['d'].dims[0].attach_scale(f['s'])
        f['d'].attrs['u'] = 1; f['t'] = np.arange(3); g = f.create_group('g')
        r = f.create_dataset('r', (2,), 'f4', maxshape=(None,))
    """)
    both.again("r")
    both.same("""
        d, t, r, g = f['d'], f['t'], f['r'], f['g']
        d[0] = 1
        d.attrs['u'] = 2
        d.attrs['new'] = 2
        del d.attrs['u']
        del f['d']
        f.move('d', 'e')
        f.create_group('h')
        f.create_dataset('h', data=1)
        f['h'] = 1
        f.require_group('h')
        f.require_dataset('h', (1,), 'f4')
        r.resize((3,))
        t.make_scale()
        t.dims[0].label = 'x'
        t.dims[0].attach_scale(f['s'])
        d.dims[0].detach_scale(f['s'])
        f.__delitem__('amiss')
        f.require_group('g')
        f.attrs.__delitem__('x')
        f.attrs.modify('x', 1)
        d.write_direct(np.zeros(3))
        f.pop('d')
        f.update(zz=1)
        f.flush(), f.mode
        list(f), d[()], d.attrs['u']
    """)
    ours = both.names[1]["f"]
    # HDF5 copies into the file's cache and then cannot close the file
    for change in (lambda: ours.copy("d", "e"), ours.clear, lambda: ours["d"].iput(0, 1)):
        with pytest.raises(OSError, match="no write intent"):
            change()


@pytest.mark.parametrize("kind", ["pipe", "socket", "directory"])
def test_what_is_no_file_is_never_replaced_nor_waited_for(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        os.mkfifo(path)
    # somebody at the other end, so that a reader that opens the pipe does not wait for ever
    other_end = os.open(path, os.O_RDWR | os.O_NONBLOCK) if kind == "pipe" else None
    before = path.lstat().st_mode, path.lstat().st_ino
    try:
        for mode in ("r", "r+", "a", "w", "w-", "x"):
            with pytest.raises(FileExistsError if mode in ("w-", "x") else OSError, match=f"a {kind}"):
                pnc_vol.File(path, mode)
    finally:
        if other_end is not None:
            os.close(other_end)
    assert (path.lstat().st_mode, path.lstat().st_ino) == before
    assert os.listdir(tmp_path) == ["x"]


def test_a_device_is_no_place_for_a_file() -> None:
    # with a system that does not let anything be changed: a failure would cost the machine its /dev/null
    system = FaultSystem(fail_at=1, calls=set(CHANGING) - {"open"}, mode="forever", errno=errno.EPERM)
    for mode in ("w", "a", "r+", "r"):
        with pytest.raises(OSError, match="a device"):
            pnc_vol.File(os.devnull, mode, system=system)
    assert not system.fired


def test_an_empty_file_is_no_file_yet(impl: Any) -> None:
    pathlib.Path(impl.path).touch(0o600)
    with impl.open("a") as f:
        f["x"] = [1, 2]
    with impl.open() as f:
        assert f["x"][()].tolist() == [1, 2]
    assert stat.S_IMODE(os.stat(impl.path).st_mode) == 0o600
    pathlib.Path(impl.path).write_bytes(b"")
    with pytest.raises(OSError):
        impl.open("r")


def test_packed_files_and_missing_folders_are_named(tmp_path: pathlib.Path) -> None:
    for pack, name in ((gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz")):
        (tmp_path / "x").write_bytes(pack(b"CDF" + bytes(99)))
        with pytest.raises(OSError, match=f"compressed with {name}"):
            pnc_vol.File(tmp_path / "x")
    for mode in ("w", "a", "x"):
        with pytest.raises(FileNotFoundError, match="no folder"):
            pnc_vol.File(tmp_path / "no" / "x.nc", mode)


class Refusing(HookedSystem):
    """An operating system for which some paths may only be read; folders among them take no new files."""

    def __init__(self, *closed: pathlib.Path) -> None:
        super().__init__()
        self.closed = {str(path) for path in closed}

    def open(self, path: Any, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        made = bool(flags & os.O_CREAT) and os.path.dirname(path) in self.closed
        if made or (flags & os.O_ACCMODE != os.O_RDONLY and str(path) in self.closed):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().open(path, flags, mode, dir_fd=dir_fd)


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = 1
    before = path.read_bytes()
    with pytest.raises(PermissionError, match="may not be written"):
        pnc_vol.File(path, "w", system=Refusing(path))
    if os.geteuid():
        path.chmod(0o444)
        with pytest.raises(PermissionError, match="may not be written"):
            pnc_vol.File(path, "w")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.nc"]


def test_a_folder_that_takes_no_files_is_named(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    with pnc_vol.File(folder / "x.nc", "w") as f:
        f["x"] = [1, 2]
    for mode in ("w", "a", "x"):
        with pytest.raises(PermissionError, match=f"the folder '{folder}'"):
            pnc_vol.File(folder / "new.nc", mode, system=Refusing(folder))
    with pnc_vol.File(folder / "x.nc", "r+", system=Refusing(folder)) as f:
        f["x"][0] = 9
    f = pnc_vol.File(folder / "x.nc", "r+", system=Refusing(folder))
    f["y"] = 1
    with pytest.raises(PermissionError, match=f"the folder '{folder}'"):
        f.close()
    assert os.listdir(folder) == ["x.nc"]
    with pnc_vol.File(folder / "x.nc") as f:
        assert list(f) == ["x"]
        assert f["x"][()].tolist() == [9, 2]


class Full(HookedSystem):
    """A disk on which no file can grow beyond `room` bytes."""

    room = 20_000

    def pwrite(self, fd: int, buffer: Any, offset: int) -> int:
        if offset + memoryview(buffer).nbytes > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(fd, buffer, offset)

    def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
        return self.pwrite(fd, b"".join(buffers), offset)


@pytest.mark.parametrize("closing", [True, False])
def test_a_full_disk_is_told_with_the_file_and_what_was_to_be_written(tmp_path: pathlib.Path, closing: bool) -> None:
    path = tmp_path / "x.nc"
    system = Full()
    f = pnc_vol.File(path, "w", system=system)
    f["kept"] = np.arange(1000.0)
    f.flush()
    f["large"] = np.arange(10_000.0)
    with pytest.raises(FlushError, match=r"x.nc: 1 request.*/large.*No space left") as caught:
        f.close() if closing else f.flush()
    assert caught.value.errno == errno.ENOSPC
    assert [failure.variable for failure in caught.value.errors] == ["/large"]
    assert ("closed without" in str(caught.value)) == closing
    if not closing:
        system.room = 10**9
        f.flush()
        f.close()
    with pnc_vol.File(path) as f:
        assert list(f) == (["kept"] if closing else ["kept", "large"])
        assert f["kept"][999] == 999
        assert closing or f["large"][9999] == 9999


def test_a_full_disk_leaves_no_new_file(tmp_path: pathlib.Path) -> None:
    system = Full()
    system.room = 10
    with pytest.raises(OSError, match=r"No space left.*x.nc'"):
        pnc_vol.File(tmp_path / "x.nc", "w", system=system)
    assert os.listdir(tmp_path) == []


def test_an_exception_closes_the_file(impl: Any) -> None:
    with pytest.raises(KeyError), impl.open("w") as f:
        f["x"] = [1, 2]
        raise KeyError
    assert not f
    with impl.open() as f:
        assert f["x"][()].tolist() == [1, 2]


def test_ours(tmp_path: pathlib.Path) -> None:
    hints = {"nc_var_align_size": 512, "striping_unit": "1048576"}
    with pnc_vol.File(tmp_path / "x.nc", "w", format="CDF-2", hints=hints, buffer_size=1 << 20) as f:
        assert f.format == "CDF-2"
        assert f.hints["nc_var_align_size"] == "512"
        assert f.hints["striping_unit"] == "1048576"
        assert f.hints["pnc_buffer_size"] == str(1 << 20)
        assert f.numrecs == 0
        r = f.create_dataset("r", (0, 2), "f4", maxshape=(None, 2))
        r.resize((3, 2))
        assert f.numrecs == 3
        assert f.requests == {}
        request = r.iput(..., np.ones((3, 2)))
        assert f.requests == {request.id: request}
        f.flush(durable=True)
        assert f.requests == {}
        assert f.statistics()["bytes_written"] >= 24
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f.format == "CDF-2"
        assert f.numrecs == 3
        f.flush()
        f.wait_all()
    with pnc_vol.File(tmp_path / "t.nc", "w", driver="trace | posix") as f:
        f["x"] = 1
        assert f.driver == "trace | posix"
    with pnc_vol.File.in_memory() as f:
        f["x"] = [1]
        assert f.driver == "core"
        assert f["x"][0] == 1


def test_other_tools_read_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("g/t", data=np.arange(6.0).reshape(2, 3)).attrs["units"] = "K"
        f["names"] = ["a", "bcd"]
        f.move("g/t", "g/u")
        f["gone"] = 1
        del f["gone"]
    text = tool("ncdump", path)
    assert "double g_u(" in text
    assert 'g_u:units = "K"' in text
    assert '"bcd"' in text
    assert "gone" not in text
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(path) as nc:
        assert nc["g_u"][:].tolist() == [[0, 1, 2], [3, 4, 5]]
