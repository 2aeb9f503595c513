"""Repacking: all that a file says stays, what nothing uses goes, and whatever fails leaves the old file."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import everything
import numpy as np
import pytest
from other_process import Other
from programs import generated, tool

import pnc_vol
from pnc_vol.convert.repack import repack_on
from pnc_vol.testing.faults import CHANGING, FaultSystem, HookedSystem, Stopped, StopSystem, TraceSystem


def dump(*args: Any) -> str:
    """What ncdump says of a file, but for its name."""
    return tool("ncdump", *args).split("\n", 1)[1]


@pytest.fixture
def wasteful(tmp_path: Path) -> Path:
    """A file of every feature, with holes of deleted and relaid datasets, and dropped records."""
    path = tmp_path / "wasteful.nc"
    everything.write(path)
    with pnc_vol.File(path, "r+") as f:
        f["bounded"].resize((2, 5))
        f["long"].resize((100, 2))
    with pnc_vol.File(path, "r+") as f:
        for i in range(30):
            f.attrs[f"more{i}"] = "x" * 200
        f["gone"] = np.ones(20_000)
        f["A/gone"] = np.ones(10_000, "i2")
        f["after"] = np.arange(10)
    with pnc_vol.File(path, "r+") as f:
        for i in range(30):
            del f.attrs[f"more{i}"]
        f["long"].resize((4, 2))
        del f["gone"], f["A/gone"]
    return path


def litter(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


# ------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("in_place", [False, True])
def test_everything_is_kept_and_the_space_comes_back(wasteful: Path, tmp_path: Path, in_place: bool) -> None:
    before, header = everything.portrait(wasteful), dump("-h", wasteful)
    size = wasteful.stat().st_size
    target = wasteful if in_place else tmp_path / "packed.nc"
    tried = pnc_vol.repack(wasteful, dry_run=True)
    assert wasteful.stat().st_size == size
    done = pnc_vol.repack(wasteful, None if in_place else target)
    assert done.written
    assert (done.before, done.after, done.gained) == (size, target.stat().st_size, size - target.stat().st_size)
    assert (tried.after, tried.written) == (done.after, False)
    assert done.gained > 180_000
    # record variables: `long` 16 bytes, `short` 4, `bounded` 20, `growing` 4 and 4; 96 records of them
    assert done.records == 96 * 48
    assert everything.portrait(target) == before
    assert "valid" in tool("ncvalidator", target)
    # the same but for the records that no dataset has
    assert "(4 currently)" in dump("-h", target)
    assert dump("-h", target).replace("(4 cur", "(100 cur") == header
    assert litter(tmp_path) == []


def test_ncdump_of_both_is_equal_where_no_records_were_dropped(wasteful: Path, tmp_path: Path) -> None:
    with pnc_vol.File(wasteful, "r+") as f:
        f["long"].resize((100, 2))
    done = pnc_vol.repack(wasteful, tmp_path / "packed.nc")
    assert done.records == 0
    assert dump(wasteful) == dump(tmp_path / "packed.nc")


def test_a_repacked_file_is_not_repacked_again(wasteful: Path) -> None:
    pnc_vol.repack(wasteful)
    before = wasteful.stat()
    done = pnc_vol.repack(wasteful)
    assert (done.written, done.gained) == (False, 0)
    assert (wasteful.stat().st_ino, wasteful.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_repacked_file_is_written_on(wasteful: Path) -> None:
    pnc_vol.repack(wasteful)
    with pnc_vol.File(wasteful, "r+") as f:
        f["long"].resize((7, 2))
        f["long"][6] = 5
        f["new"] = [1, 2]
        f["growing"].resize((6,))
    with pnc_vol.File(wasteful) as f:
        assert f["long"][:, 0].tolist() == [0, 2, 4, 6, 0, 0, 5]
        assert f["short"][:].tolist() == [1, 2, 3]
        assert f["growing"].shape == (6,)
        assert f["growing"][0].tolist() == (1, b"one")


@pytest.mark.parametrize(("kind", "version"), [("classic", 1), ("64-bit-offset", 2), ("cdf5", 5)])
def test_files_of_other_software(tmp_path: Path, kind: str, version: int) -> None:
    cdl = (
        "netcdf x { dimensions: t = UNLIMITED ; x = 3 ; lone = 7 ; variables: byte b(x) ; double d(x) ; d:a = 1, 2 ;"
        " short r(t, x) ; char c(t, lone) ; float s ; :title = 'x' ; data: b = 1, 2, 3 ; d = 1, 2, 3 ;"
        ' r = 1, 2, 3, 4, 5, 6 ; c = "abc", "defghij" ; s = 4 ; }'.replace("'", '"')
    )
    generated(tmp_path / "x.nc", kind, cdl)
    done = pnc_vol.repack(tmp_path / "x.nc", tmp_path / "y.nc", header_reserve=1000, record_align=512)
    assert done.gained < -1000
    assert dump(tmp_path / "y.nc") == dump(tmp_path / "x.nc")
    with pnc_vol.File(tmp_path / "y.nc") as f:
        assert f.format == f"CDF-{version}"
        assert f["b"].id.get_offset() > 1000
    pnc_vol.repack(tmp_path / "y.nc")
    assert dump(tmp_path / "y.nc") == dump(tmp_path / "x.nc")
    assert abs((tmp_path / "y.nc").stat().st_size - (tmp_path / "x.nc").stat().st_size) <= 8


def test_the_lone_record_variable_of_small_elements(tmp_path: Path) -> None:
    netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed: it is the independent writer")
    with netCDF4.Dataset(tmp_path / "x.nc", "w", format="NETCDF3_64BIT_OFFSET") as ds:
        ds.createDimension("t", None)
        ds.createDimension("x", 3)
        ds.createVariable("v", "i1", ("t", "x"))[:] = np.arange(15).reshape(5, 3)
    pnc_vol.repack(tmp_path / "x.nc", tmp_path / "y.nc", format="CDF-5", header_reserve=64)
    with netCDF4.Dataset(tmp_path / "y.nc") as ds:
        assert ds.data_model == "NETCDF3_64BIT_DATA"
        assert ds["v"][:].tolist() == np.arange(15).reshape(5, 3).tolist()


def test_names_that_only_other_programs_give(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", header_reserve=400) as f:
        f.create_dataset("xxy", data=np.arange(6, dtype="i4").reshape(2, 3), dims=("xx", "axb"))
        f.create_dataset("xx", data=np.arange(2, dtype="i4"), dims=("xx",))
    content = path.read_bytes()
    for name, other in ((b"xxy", b"x/y"), (b"axb", b"a/b"), (b"xx\0", b"x \0")):
        content = content.replace(name, other)
    path.write_bytes(content)
    assert pnc_vol.repack(path).gained > 300
    content, values = path.read_bytes(), np.arange(6, dtype=">i4").tobytes()
    at = [content.index(b"x \0"), content.index(b"a/b"), content.index(b"x/y"), content.index(values)]
    assert at == sorted(at)


def test_short_files_stay_as_short(wasteful: Path, tmp_path: Path) -> None:
    pnc_vol.repack(wasteful, tmp_path / "x.nc", header_reserve=5000)
    os.truncate(tmp_path / "x.nc", (tmp_path / "x.nc").stat().st_size - 50)
    done = pnc_vol.repack(tmp_path / "x.nc", tmp_path / "y.nc")
    # the padding of the last record is no data
    assert 47 <= done.missing <= 50
    assert done.gained == 5000
    with pytest.warns(pnc_vol.ShortFileWarning):
        before = everything.portrait(tmp_path / "x.nc")
    with pytest.warns(pnc_vol.ShortFileWarning):
        assert everything.portrait(tmp_path / "y.nc") == before


def test_holes_stay_holes(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w", header_reserve=4000) as f:
        first, last = (f.create_dataset(name, (1 << 30,), "u1") for name in ("first", "last"))
        first[12345:12349], last[-5:] = list(b"here"), list(b"there")
    if os.stat(tmp_path / "x.nc").st_blocks * 512 > 1 << 29:
        pytest.skip("this file system has no holes")

    class Limited(HookedSystem):
        def pread_into(self, fd, buffer, offset):
            # what lies in the middle are zeros: not read here, for the sake of time
            if 1 << 20 < offset < (2 << 30) - (1 << 20):
                memoryview(buffer).cast("B")[:] = ZEROS[: memoryview(buffer).nbytes]
                return memoryview(buffer).nbytes
            return super().pread_into(fd, buffer, offset)

    repack_on(Limited(), tmp_path / "x.nc", tmp_path / "y.nc")
    made = os.stat(tmp_path / "y.nc")
    assert made.st_blocks * 512 < 1 << 20
    content = np.memmap(tmp_path / "y.nc", np.uint8, "r")
    with pnc_vol.File(tmp_path / "y.nc") as f:
        begin = f["first"].id.get_offset()
    assert content[begin + 12345 :][:4].tobytes() == b"here"
    assert content[-5:].tobytes() == b"there"


ZEROS = bytes(1 << 20)


# ---------------------------------------------------------------------------------------- versions and alignments


def test_another_version(wasteful: Path, tmp_path: Path) -> None:
    with pytest.raises(pnc_vol.DefinitionError, match="CDF-2 has no type"):
        pnc_vol.repack(wasteful, tmp_path / "y.nc", format="CDF-2")
    with pytest.raises(ValueError, match="format"):
        pnc_vol.repack(wasteful, tmp_path / "y.nc", format="HDF5")
    assert sorted(os.listdir(tmp_path)) == ["wasteful.nc"]
    with pnc_vol.File(tmp_path / "x.nc", "w", format="CDF-1") as f:
        f["x"] = np.arange(3, dtype="i4")
    assert pnc_vol.repack(tmp_path / "x.nc", format="CDF-5").written
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (f.format, f["x"][:].tolist()) == ("CDF-5", [0, 1, 2])


def test_a_reserve_takes_what_comes_later_without_moving_data(wasteful: Path) -> None:
    pnc_vol.repack(wasteful, header_reserve=8192, var_align=4096)
    with pnc_vol.File(wasteful, "r+") as f:
        assert min(f[name].id.get_offset() for name in ("A/B", "t", "half", "fixed", "lat")) % 4096 == 0
        f.attrs["late"] = "x" * 7000
        f.flush()
        assert f.statistics().get("moves", 0) == 0


# ------------------------------------------------------------------------------------------------ what is refused


def test_other_files_are_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: it writes the HDF5 file")
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"] = 1
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_text("")
    with pnc_vol.File(tmp_path / "cut", "w") as f:
        f.create_dimension("x", 3)
    os.truncate(tmp_path / "cut", 40)
    for name, what in (("x.h5", "HDF5"), ("text", "Not a NetCDF"), ("empty", "empty"), ("cut", "ends")):
        with pytest.raises(pnc_vol.FormatError, match=what):
            pnc_vol.repack(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        pnc_vol.repack(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        pnc_vol.repack(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["cut", "empty", "text", "x.h5"]


def patched(path: Path, *changes: tuple[bytes, bytes]) -> Path:
    """A file of three records of two variables of four bytes each, with changes in its header."""
    with pnc_vol.File(path, "w", header_reserve=200) as f:
        for name in "ab":
            f.create_dataset(name, data=np.full(3, 0x01010101, "i4"), maxshape=(None,))
    content = path.read_bytes()
    for old, new in changes:
        assert content.count(old) == 1
        content = content.replace(old, new)
    path.write_bytes(content)
    return path


def test_records_that_overlap_are_refused(tmp_path: Path) -> None:
    second = os.path.getsize(patched(tmp_path / "x.nc")) - 24 + 4
    patched(tmp_path / "x.nc", (second.to_bytes(8, "big"), (second + 4).to_bytes(8, "big")))
    with pytest.raises(pnc_vol.FormatError, match="overlap"):
        pnc_vol.repack(tmp_path / "x.nc")


def test_a_header_that_promises_more_than_there_is_costs_no_memory(tmp_path: Path) -> None:
    patched(tmp_path / "x.nc", (b"CDF\5" + (3).to_bytes(8, "big"), b"CDF\5" + (1 << 50).to_bytes(8, "big")))
    done = pnc_vol.repack(tmp_path / "x.nc", tmp_path / "y.nc")
    assert done.missing == (1 << 53) - 24
    assert (tmp_path / "y.nc").read_bytes()[-24:] == b"\1" * 24


def test_a_file_that_is_open_for_writing_is_refused(wasteful: Path, tmp_path: Path) -> None:
    with pnc_vol.File(wasteful, "r+"), pytest.raises(OSError, match="close it first"):
        pnc_vol.repack(wasteful)
    with pnc_vol.File(wasteful) as f:
        before = f["long"][:]
        pnc_vol.repack(wasteful)
        assert f["long"][:].tolist() == before.tolist()
        shutil.copy(wasteful, tmp_path / "copy.nc")
        with pytest.raises(OSError, match="close it first"):
            pnc_vol.repack(tmp_path / "copy.nc", wasteful, overwrite=True)


def test_logs_of_a_job_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"

    def job() -> Iterator[None]:
        f = pnc_vol.File(path, "w", burst_buf=True, burst_buf_sync="each")
        f["x"] = [1, 2, 3]
        f.flush()
        f["x"][...] = 5
        yield

    with Other(job) as other:
        assert other() == "done"
        with pytest.raises(pnc_vol.FormatError, match="when the job has ended"):
            pnc_vol.repack(path)
    with pytest.raises(pnc_vol.FormatError, match="pnc-vol replay"):
        pnc_vol.repack(path)
    with pytest.raises(pnc_vol.FormatError, match="pnc-vol replay"):
        pnc_vol.repack(path, tmp_path / "y.nc")
    pnc_vol.replay(path)
    pnc_vol.repack(path)
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [5, 5, 5]


def test_targets_that_are_refused(wasteful: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    os.symlink(wasteful, tmp_path / "link.nc")
    content = wasteful.read_bytes()
    with pytest.raises(FileExistsError):
        pnc_vol.repack(wasteful, tmp_path / "there")
    for same in (wasteful, tmp_path / "link.nc", tmp_path / ".." / tmp_path.name / "wasteful.nc"):
        with pytest.raises(OSError, match="source itself"):
            pnc_vol.repack(wasteful, same, overwrite=True)
    with pytest.raises(FileNotFoundError, match="no-folder/x"):
        pnc_vol.repack(wasteful, tmp_path / "no-folder/x")
    assert (tmp_path / "there").read_text() == "x"
    pnc_vol.repack(wasteful, tmp_path / "there", overwrite=True)
    assert wasteful.read_bytes() == content
    os.link(wasteful, tmp_path / "second")
    with pytest.raises(OSError, match="hard links"):
        pnc_vol.repack(wasteful)
    assert litter(tmp_path) == []


def test_several_ranks_are_refused(wasteful: Path) -> None:
    class Two:
        def Get_size(self) -> int:
            return 2

    with pytest.raises(pnc_vol.NotYetError, match="one process"):
        pnc_vol.repack(wasteful, comm=Two())


# --------------------------------------------------------------------------------------- names, links, permissions


def test_a_link_stays_and_permissions_too(wasteful: Path, tmp_path: Path) -> None:
    os.symlink("wasteful.nc", tmp_path / "link.nc")
    wasteful.chmod(0o640)
    traced = TraceSystem()
    repack_on(traced, tmp_path / "link.nc")
    assert (tmp_path / "link.nc").is_symlink()
    assert wasteful.stat().st_mode & 0o7777 == 0o640
    traced.assert_order(
        {"name": "fsync", "path": lambda path: path.endswith("pncrepack")}, {"name": "rename"}, {"name": "fsync_dir"}
    )
    # before anything is in it
    first = traced.matching(name="pwrite")[0]
    assert traced.matching(name="fchmod")[0].number < first.number


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator gives files away")
def test_the_owner_stays(wasteful: Path) -> None:
    os.chown(wasteful, 12345, 23456)
    wasteful.chmod(0o640)
    pnc_vol.repack(wasteful)
    there = wasteful.stat()
    assert (there.st_uid, there.st_gid, there.st_mode & 0o777) == (12345, 23456, 0o640)


def test_what_was_for_another_group_is_not_for_mine(wasteful: Path) -> None:
    class Poor(HookedSystem):
        def fchown(self, fd, user, group):
            raise PermissionError(errno.EPERM, "not permitted")

        def fstat(self, fd):
            there = super().fstat(fd)
            return (
                os.stat_result((*there[:5], there.st_gid + 1, *there[6:]), {"st_mtime_ns": there.st_mtime_ns})
                if (there.st_size == 0)
                else there
            )

    wasteful.chmod(0o664)
    repack_on(Poor(), wasteful)
    assert wasteful.stat().st_mode & 0o777 == 0o644


def test_long_names(wasteful: Path, tmp_path: Path) -> None:
    for name in ("n" * 252 + ".nc", "名" * 84 + ".nc"):
        wasteful = wasteful.rename(tmp_path / name)
        with pnc_vol.File(wasteful, "r+") as f:
            f["more"] = np.ones(1000)
            f.flush()
            del f["more"]
        assert pnc_vol.repack(wasteful).gained > 0


# ------------------------------------------------------------------------------------------------------- failures


WRITING = {"pwrite", "pwritev", "copy_range", "ftruncate", "fsync", "fchmod", "rename", "flock", "fsync_dir"}


@pytest.mark.parametrize(
    ("number", "mode", "calls"),
    [
        *((errno.ENOSPC, mode, WRITING) for mode in ("once", "forever", "short-forever")),
        (errno.EIO, "once", set(CHANGING) | {"fstat", "stat", "lstat", "pread_into"}),
    ],
)
def test_whatever_fails_leaves_the_old_file_or_the_new_one(
    wasteful: Path, tmp_path: Path, number: int, mode: Any, calls: set[str]
) -> None:
    content, before = wasteful.read_bytes(), everything.portrait(wasteful)
    for nth in range(1, 200):
        system = FaultSystem(fail_at=nth, errno=number, mode=mode, calls=calls)
        told = None
        try:
            repack_on(system, wasteful)
        except OSError as error:
            told = error
        if not system.fired:
            break
        assert litter(tmp_path) == []
        if number == errno.ENOSPC:
            # the last call may be one that cannot be short
            assert told is not None or (mode == "short-forever" and system.count == nth)
            assert told is None or (told.errno == number and "pncrepack" not in str(told))
        if wasteful.read_bytes() != content:
            # the last of all: only that the name is durable is not known
            assert system.count == nth or mode != "once" or number == errno.EIO
            assert everything.portrait(wasteful) == before
            wasteful.write_bytes(content)
        if told is None and number == errno.ENOSPC:
            break
    assert nth > 6


def test_two_at_once(wasteful: Path, tmp_path: Path) -> None:
    """The second is told so, and does no harm to the first."""
    before = everything.portrait(wasteful)
    inside, told = threading.Event(), threading.Event()

    class Slow(HookedSystem):
        def ftruncate(self, fd, nbytes):
            inside.set()
            told.wait(60)
            super().ftruncate(fd, nbytes)

    first = threading.Thread(target=repack_on, args=(Slow(), wasteful))
    first.start()
    assert inside.wait(60)
    with pytest.raises(OSError, match=r"another repack|unable to lock file"):
        pnc_vol.repack(wasteful)
    told.set()
    first.join()
    assert everything.portrait(wasteful) == before
    assert litter(tmp_path) == []


def test_a_source_that_changes_is_not_published(wasteful: Path, tmp_path: Path) -> None:
    class Busy(HookedSystem):
        def ftruncate(self, fd, nbytes):
            with open(wasteful, "r+b") as f:
                f.seek(-1, os.SEEK_END)
                f.write(b"x")
            os.utime(wasteful, (1, 1))
            super().ftruncate(fd, nbytes)

    with pytest.raises(OSError, match="it was changed while it was copied"):
        repack_on(Busy(), wasteful)
    assert wasteful.read_bytes()[-1:] == b"x"
    assert litter(tmp_path) == []


def test_a_header_that_was_being_replaced_is_completed_first(wasteful: Path, tmp_path: Path) -> None:
    """A kill within a header's replacement leaves a journal: the new header is what is repacked."""
    with pnc_vol.File(wasteful, "r+") as f:
        f["t"].attrs["units"] = 4 * "celsius"
    old = wasteful.read_bytes()
    shutil.copy(wasteful, tmp_path / "z.nc")
    with pnc_vol.File(tmp_path / "z.nc", "r+") as f:
        f["t"].attrs["units"] = 4 * "kelvins"
    new = (tmp_path / "z.nc").read_bytes()
    (tmp_path / "z.nc").unlink()
    system = StopSystem(stop_at=2, calls={"pwrite"})
    with pytest.raises(Stopped):
        f = pnc_vol.File(wasteful, "r+", system=system)
        f["t"].attrs["units"] = 4 * "kelvins"
        f.flush()
    system.bury()
    f.id.handle.session.closed = True
    del f
    assert litter(tmp_path) == [".wasteful.nc.pncj"]
    assert wasteful.read_bytes() == old
    # The kill came before the first byte of the header; half of it makes the header a torn one.
    changed = [i for i, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
    torn = bytearray(old)
    for i in changed[: len(changed) // 2]:
        torn[i] = new[i]
    assert bytes(torn) not in (old, new)
    wasteful.write_bytes(torn)
    pnc_vol.repack(wasteful, tmp_path / "y.nc")
    assert litter(tmp_path) == [".wasteful.nc.pncj"]
    pnc_vol.repack(wasteful)
    assert litter(tmp_path) == []
    for path in (wasteful, tmp_path / "y.nc"):
        with pnc_vol.File(path) as f:
            assert f["t"].attrs["units"] == 4 * "kelvins"


def test_progress_and_size(wasteful: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    pnc_vol.repack(wasteful, tmp_path / "y.nc", progress=lambda *args: told.append(args))
    assert told[-1][0] == told[-1][1]
    assert told[-1][2] == str(wasteful)
    assert pnc_vol.check(tmp_path / "y.nc") == []


def test_a_target_that_comes_up_meanwhile_is_left_alone(wasteful: Path, tmp_path: Path) -> None:
    target = tmp_path / "y.nc"
    with pytest.raises(FileExistsError):
        pnc_vol.repack(wasteful, target, progress=lambda *_: target.write_bytes(b"another program's"))
    assert target.read_bytes() == b"another program's"
    target.unlink()
    assert litter(tmp_path) == []
