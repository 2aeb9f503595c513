"""Names and journals: what a file's next open finds after a replacement of its header was cut short."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
import warnings
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.disk.journal import journal_path, recover
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import OpenContext
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.errors import PncVolWarning
from pnc_vol.format.edits import changed_parts
from pnc_vol.system import REAL
from pnc_vol.testing.faults import CHANGING, FaultSystem, HookedSystem, Stopped, StopSystem

OLD = bytes(range(200)) * 5
NEW = bytes(reversed(range(250))) * 5
TAIL = b"data" * 500


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "x.nc"


def torn(path: pathlib.Path, stop_at: int, cut: int | None = None, new: bytes = NEW) -> pathlib.Path:
    """A file of OLD and TAIL whose header's replacement was stopped; its journal's path."""
    path.write_bytes(OLD.ljust(2000, b"\0") + TAIL)
    system = StopSystem(stop_at=stop_at, torn=cut, calls=CHANGING - {"open"})
    driver = PosixDriver.open(str(path), OpenContext(system=system))
    with pytest.raises(Stopped):
        Location(system, str(path), str(path)).replace_header(driver, OLD, new, changed_parts(OLD, new))
    system.bury()
    return pathlib.Path(journal_path(str(path)))


# the journal, the header, unlink of the journal
JOURNAL, HEADER, DONE = 1, 2, 3


@pytest.mark.parametrize("cut", [1, 100, 512, 1024, 1248])
def test_a_header_cut_short_is_completed(path: pathlib.Path, cut: int | None) -> None:
    journal = torn(path, HEADER, cut)
    before = path.read_bytes()
    assert recover(REAL, str(path), writable=False) == NEW
    assert path.read_bytes() == before
    assert journal.exists()
    assert recover(REAL, str(path), writable=True) is None
    assert path.read_bytes() == NEW.ljust(2000, b"\0") + TAIL
    assert not journal.exists()
    assert recover(REAL, str(path), writable=True) is None


def test_a_header_that_was_written_whole_loses_its_journal(path: pathlib.Path) -> None:
    journal = torn(path, DONE)
    assert recover(REAL, str(path), writable=False) is None
    assert recover(REAL, str(path), writable=True) is None
    assert path.read_bytes().startswith(NEW)
    assert not journal.exists()


def test_a_header_that_was_not_begun_stays_the_old_one(path: pathlib.Path) -> None:
    journal = torn(path, HEADER)
    assert recover(REAL, str(path), writable=False) is None
    assert recover(REAL, str(path), writable=True) is None
    assert path.read_bytes().startswith(OLD)
    assert not journal.exists()


@pytest.mark.parametrize("cut", [None, 1, 20, 36, 40, 900, 2280])
def test_a_torn_journal_means_that_nothing_happened(path: pathlib.Path, cut: int | None) -> None:
    journal = torn(path, JOURNAL, cut)
    assert journal.exists()
    assert recover(REAL, str(path), writable=False) is None
    assert journal.exists()
    assert recover(REAL, str(path), writable=True) is None
    assert not journal.exists()
    assert path.read_bytes().startswith(OLD)


@pytest.mark.parametrize("byte", [0, 7, 8, 20, 36, 500, -1])
def test_a_journal_with_a_wrong_byte_is_not_believed(path: pathlib.Path, byte: int) -> None:
    journal = torn(path, HEADER, 0)
    content = bytearray(journal.read_bytes())
    content[byte] ^= 1
    journal.write_bytes(content)
    with warnings.catch_warnings():
        # A wrong inode reads as a journal of another file.
        warnings.simplefilter("ignore", PncVolWarning)
        assert recover(REAL, str(path), writable=True) is None
    assert path.read_bytes().startswith(OLD)


def test_a_journal_of_another_file_is_not_used(path: pathlib.Path) -> None:
    journal = torn(path, HEADER, 100)
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)
    for writable in (False, True):
        with pytest.warns(PncVolWarning, match="belongs to another state of the file"):
            assert recover(REAL, str(path), writable=writable) is None
    assert journal.exists()


def test_a_writer_that_is_done_between_two_looks_is_no_warning(path: pathlib.Path) -> None:
    journal = torn(path, HEADER, 100)

    class Overtaken(type(REAL)):  # type: ignore[misc]
        """Another process completes the header, and makes one change more, before the file is opened."""

        def open(self, name: str, *args: Any) -> int:
            if name == str(path) and journal.exists():
                journal.unlink()
                path.write_bytes(b"the next header" + path.read_bytes()[15:])
            return super().open(name, *args)

    assert recover(Overtaken(), str(path), writable=False) is None


def test_a_journal_of_an_older_state_is_not_used(path: pathlib.Path) -> None:
    journal = torn(path, HEADER, 100)
    with path.open("r+b") as raw:
        raw.write(b"somebody else was here")
    before = path.read_bytes()
    with pytest.warns(PncVolWarning, match="belongs to another state of the file"):
        assert recover(REAL, str(path), writable=True) is None
    assert path.read_bytes() == before
    assert journal.exists()


def test_recovery_may_be_cut_short_itself(path: pathlib.Path) -> None:
    for stop_at in range(1, 10):
        for cut in (None, 7, 600):
            torn(path, HEADER, 300)
            system = StopSystem(stop_at=stop_at, torn=cut)
            try:
                recover(system, str(path), writable=True)
            except Stopped:
                system.bury()
                assert recover(REAL, str(path), writable=False) in (NEW, None)
                recover(REAL, str(path), writable=True)
            assert path.read_bytes() == NEW.ljust(2000, b"\0") + TAIL
            if not system.fired:
                return
    raise AssertionError("no end")


def test_recovery_may_fail_and_be_repeated(path: pathlib.Path) -> None:
    for fail_at in range(1, 20):
        torn(path, HEADER, 300)
        system = FaultSystem(fail_at=fail_at, errno=errno.EIO, calls=CHANGING | {"pread_into", "fstat"})
        try:
            recover(system, str(path), writable=True)
        except OSError:
            recover(REAL, str(path), writable=True)
        assert path.read_bytes() == NEW.ljust(2000, b"\0") + TAIL
        if not system.fired:
            return
    raise AssertionError("no end")


def test_who_may_read_the_file_may_read_its_journal(path: pathlib.Path) -> None:
    path.write_bytes(OLD)
    path.chmod(0o644)
    journal = torn(path, HEADER, 100)
    assert stat.S_IMODE(journal.stat().st_mode) == 0o644
    path.chmod(0o600)
    assert stat.S_IMODE(torn(path, HEADER, 100).stat().st_mode) == 0o600


def test_what_the_mask_takes_from_a_journal_is_given_back(path: pathlib.Path) -> None:
    path.write_bytes(OLD)
    path.chmod(0o664)
    before = os.umask(0o077)
    try:
        # the mode is one call more
        journal = torn(path, HEADER + 1, 100)
    finally:
        os.umask(before)
    assert stat.S_IMODE(journal.stat().st_mode) == 0o664


# -------------------------------------------------------------------------------------- whole files


def kill_in_header(path: pathlib.Path, cut: int) -> None:
    """A real file whose second header was cut short."""
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.arange(5)
        f.flush()
    for stop_at in range(1, 50):
        system = StopSystem(stop_at=stop_at, torn=cut)
        try:
            f = pnc_vol.File(path, "r+", system=system)
            f.attrs["note"] = "a header of another length"
            f["y"] = np.arange(3)
            f.close()
        except Stopped:
            f.id.handle.session.closed = True
            system.bury()
            if path.read_bytes()[cut - 1 : cut + 50] != b"" and _is_torn(path):
                return
    raise AssertionError("the header was never torn")


def _is_torn(path: pathlib.Path) -> bool:
    journal = pathlib.Path(journal_path(str(path)))
    if not journal.exists():
        return False
    journal.rename(journal.with_suffix(".away"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pnc_vol.File(path).close()
        return False
    except OSError:
        return True
    finally:
        journal.with_suffix(".away").rename(journal)


def test_a_reader_sees_through_the_journal(path: pathlib.Path) -> None:
    kill_in_header(path, 60)
    before = path.read_bytes()
    for _ in range(2):
        with pnc_vol.File(path) as f:
            assert f.attrs["note"] == "a header of another length"
            assert f["x"][:].tolist() == [0, 1, 2, 3, 4]
            assert f["y"][:].tolist() == [0, 1, 2]
    assert path.read_bytes() == before
    with pnc_vol.File(path, "a") as f:
        assert f["y"][:].tolist() == [0, 1, 2]
    assert not pathlib.Path(journal_path(str(path))).exists()
    with pnc_vol.File(path) as f:
        assert f["y"][:].tolist() == [0, 1, 2]


def test_a_new_file_is_not_taken_for_the_old_one_by_its_journal(path: pathlib.Path) -> None:
    kill_in_header(path, 60)
    with pnc_vol.File(path, "w") as f:
        f["z"] = [1]
    assert not pathlib.Path(journal_path(str(path))).exists()
    with pnc_vol.File(path) as f:
        assert list(f) == ["z"]


# --------------------------------------------------------------------------------------------- names


def test_a_file_keeps_its_permissions_and_links(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["x"] = [1]
    path.chmod(0o640)
    link = tmp_path / "link.nc"
    link.symlink_to(path)
    with pnc_vol.File(link, "r+") as f:
        f.attrs["long"] = np.arange(5000)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pnc_vol.File(link, "w") as f:
        f["y"] = [1]
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pnc_vol.File(path) as f:
        assert list(f) == ["y"]


def test_a_new_file_has_the_permissions_of_the_mask(path: pathlib.Path) -> None:
    before = os.umask(0o027)
    try:
        pnc_vol.File(path, "w").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("publish", ["create", "close"])
def test_exclusive_creation(path: pathlib.Path, publish: str) -> None:
    with pnc_vol.File(path, "x", publish=publish) as f:
        assert path.exists() == (publish == "create")
        f["a"] = [1]
    with pytest.raises(FileExistsError, match="exists"):
        pnc_vol.File(path, "x", publish=publish)
    with pnc_vol.File(path) as f:
        assert list(f) == ["a"]
    assert os.listdir(path.parent) == ["x.nc"]


def test_exclusive_at_the_close_replaces_nobody(path: pathlib.Path) -> None:
    f = pnc_vol.File(path, "x", publish="close")
    f["a"] = [1]
    path.write_bytes(b"somebody was faster")
    with pytest.raises(FileExistsError):
        f.close()
    assert path.read_bytes() == b"somebody was faster"
    assert os.listdir(path.parent) == ["x.nc"]


@pytest.mark.parametrize("fails", [False, True])
def test_where_there_are_no_hard_links(path: pathlib.Path, fails: bool) -> None:
    class NoLinks(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if kwargs.get("replace") is False:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if name == "link":
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            if name == "rename" and fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().call(name, args, kwargs)

    if fails:
        with pytest.raises(OSError, match="Input/output error"):
            pnc_vol.File(path, "x", system=NoLinks())
        assert os.listdir(path.parent) == []
        return
    with pnc_vol.File(path, "x", system=NoLinks()) as f:
        f["a"] = [1]
    assert os.listdir(path.parent) == ["x.nc"]
    with pytest.raises(FileExistsError):
        pnc_vol.File(path, "x", system=NoLinks())


def test_errors_name_the_file_that_was_asked_for(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        pnc_vol.File(tmp_path / "no" / "such" / "folder.nc", "w")
    assert caught.value.filename == str(tmp_path / "no" / "such" / "folder.nc")
    with pytest.raises(IsADirectoryError):
        pnc_vol.File(tmp_path, "w")
    with pytest.raises(IsADirectoryError):
        pnc_vol.File(tmp_path)
    system = FaultSystem(fail_at=1, errno=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        pnc_vol.File(path, "w", system=system)
    assert os.listdir(tmp_path) == []
