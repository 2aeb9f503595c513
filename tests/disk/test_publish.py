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
from other_process import killed
from torn_headers import NEW, OLD, begin, torn

import pnc_vol
from pnc_vol.errors import PncVolWarning
from pnc_vol.testing.faults import CHANGING, FaultSystem, HookedSystem


def note(path: pathlib.Path, mode: str = "r", **options: Any) -> str:
    """What the attribute says, and nothing else is different."""
    with pnc_vol.File(path, mode, **options) as f:
        assert f["pay"][:].tolist() == [1.0]
        return str(f.attrs["note"])


CUTS = [
    *(("journal", cut, OLD) for cut in (None, 1, 20, 36, 40, 600)),
    ("header", None, OLD),
    *(("header", cut, NEW) for cut in (1, 100, 300, 512)),
    ("done", None, NEW),
]


@pytest.mark.parametrize(("what", "cut", "seen"), CUTS)
def test_a_replacement_that_was_cut_short(path: pathlib.Path, what: str, cut: int | None, seen: str) -> None:
    """A reader sees one header and changes nothing; a writer completes it, and the journal goes."""
    made = torn(path, what, cut)
    before = path.read_bytes()
    assert made.journal.exists()
    assert (note(path), note(path)) == (seen, seen)
    assert path.read_bytes() == before
    assert made.journal.exists()
    for _ in range(2):
        assert note(path, "r+") == seen
        assert path.read_bytes() == (made.new if seen == NEW else made.old)
        assert not made.journal.exists()


@pytest.mark.parametrize("byte", [0, 7, 8, 20, 36, 500, -1])
def test_a_journal_with_a_wrong_byte_is_not_believed(path: pathlib.Path, byte: int) -> None:
    made = torn(path, "header", 100)
    before, content = path.read_bytes(), bytearray(made.journal.read_bytes())
    content[byte] ^= 1
    made.journal.write_bytes(content)
    with warnings.catch_warnings():
        # A wrong inode reads as a journal of another file.
        warnings.simplefilter("ignore", PncVolWarning)
        assert note(path, "r+") not in (OLD, NEW)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("how", ["another file", "another state"])
def test_a_journal_of_something_else_is_not_used(path: pathlib.Path, how: str, mode: str) -> None:
    made = torn(path, "header", 100)
    if how == "another file":
        other = path.with_name("other")
        other.write_bytes(path.read_bytes())
        other.replace(path)
    else:
        at = made.old.index(OLD.encode())
        with path.open("r+b") as raw:
            raw.seek(at + 500)
            raw.write(b"somebody else was here")
    before = path.read_bytes()
    with pytest.warns(PncVolWarning, match="belongs to another state of the file"):
        assert note(path, mode) not in (OLD, NEW)
    assert path.read_bytes() == before
    assert made.journal.exists()


def test_a_writer_that_is_done_between_two_looks_is_no_warning(path: pathlib.Path) -> None:
    made = torn(path, "header", 100)

    class Overtaken(HookedSystem):
        """Another process completes the header before the file is opened."""

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "open" and args[0] == str(path) and made.journal.exists():
                made.journal.unlink()
                path.write_bytes(made.new)
            return super().call(name, args, kwargs)

    assert note(path, system=Overtaken()) == NEW


@pytest.mark.parametrize("cut", [None, 7, 600])
def test_recovery_may_be_cut_short_itself(path: pathlib.Path, cut: int | None) -> None:
    for stop_at in range(1, 20):
        made = torn(path, "header", 300)
        reached = killed(lambda system: note(path, "r+", system=system), stop_at, torn=cut)
        assert note(path) == note(path, "r+") == NEW
        assert path.read_bytes() == made.new
        assert not made.journal.exists()
        if not reached:
            assert stop_at > 3
            return
        path.write_bytes(made.old)
    raise AssertionError("no end")


def test_recovery_may_fail_and_be_repeated(path: pathlib.Path) -> None:
    for fail_at in range(1, 40):
        made = torn(path, "header", 300)
        system = FaultSystem(fail_at=fail_at, errno=errno.EIO, calls=CHANGING | {"pread_into", "fstat"})
        try:
            note(path, "r+", system=system)
        except OSError:
            note(path, "r+")
        assert path.read_bytes() == made.new
        if not system.fired:
            assert fail_at > 3
            return
        path.write_bytes(made.old)
    raise AssertionError("no end")


@pytest.mark.parametrize(("mode", "mask"), [(0o644, 0o022), (0o600, 0o022), (0o664, 0o077)])
def test_who_may_read_the_file_may_read_its_journal(path: pathlib.Path, mode: int, mask: int) -> None:
    begin(path).chmod(mode)
    before = os.umask(mask)
    try:
        made = torn(path, "header", 100)
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.journal.stat().st_mode) == mode


def test_a_new_file_is_not_taken_for_the_old_one_by_its_journal(path: pathlib.Path) -> None:
    made = torn(path, "header", 60)
    with pnc_vol.File(path, "w") as f:
        f["z"] = [1]
    assert not made.journal.exists()
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


@pytest.mark.parametrize("publish", ["create", "close"])
def test_errors_of_a_new_layout_name_the_users_file(path: pathlib.Path, publish: str) -> None:
    with pnc_vol.File(path, "w", publish=publish) as f:
        f["x"] = np.arange(1000.0)
    named = []
    for number in range(1, 9):
        system = FaultSystem(fail_at=number, errno=errno.ENOSPC, calls={"pwrite", "pwritev", "fdatasync"})
        try:
            with pnc_vol.File(path, "w" if publish == "close" else "r+", publish=publish, system=system) as f:
                f["y"] = np.arange(10.0)
                f.flush()
                f.attrs["long"] = np.arange(9000 * number)
                f.flush(durable=True)
        except OSError as error:
            named.append(error.filename)
    assert len(named) > 2
    assert set(named) <= {str(path), None}
