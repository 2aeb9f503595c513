"""Which journals are believed, and that one which comes back after a power failure changes nothing."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import struct
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from kills import forked
from torn_headers import NEW, begin, journal_of, torn

import pnc_vol
from pnc_vol.errors import PncVolWarning
from pnc_vol.testing.faults import HookedSystem, TraceSystem

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


# ------------------------------------------------------------------------------------------- what comes back


def test_a_journal_that_comes_back_changes_nothing(path: pathlib.Path) -> None:
    """Its removal was not on stable storage; the count of now has bytes of both counts that the journal knows."""
    kept: list[bytes] = []
    journal = journal_of(path)

    class Keeping(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "unlink" and str(args[0]) == str(journal) and journal.exists():
                kept.append(journal.read_bytes())
            return super().call(name, args, kwargs)

    with pnc_vol.File(path, "w", system=Keeping()) as f:
        x = f.create_dataset("x", (5,), "i1", maxshape=(None,))
        f.flush(durable=True)
        f.attrs["a"] = 1
        x.resize(0x0102, axis=0)
        f.flush(durable=True)
        x.resize(0x0105, axis=0)
        x[-1] = 9
        f.flush(durable=True)
    content = path.read_bytes()
    assert len(kept) >= 2
    for old in kept[-1:]:
        journal.write_bytes(old)
        with warnings.catch_warnings():
            warnings.simplefilter("error", PncVolWarning)
            for mode in ("r", "r+"):
                with pnc_vol.File(path, mode) as f:
                    assert f["x"].shape == (0x0105,)
                    assert f["x"][-1] == 9
        assert path.read_bytes() == content
        assert not journal.exists()


def test_a_header_that_has_an_old_value_again_is_not_torn(path: pathlib.Path) -> None:
    """Of two attributes that changed with a journal one gets its old value, without one: no journal may come back."""
    system = TraceSystem()
    with pnc_vol.File(path, "w", system=system, header_reserve=4096) as f:
        f["x"] = [1, 2]
        for i, (a, b) in enumerate([(0, 1), (5, 2), (5, 1)]):
            f.attrs["a"], f.attrs["b"] = np.arange(10) + a, b
            f.flush(durable=True)
            assert len(system.matching(name="unlink", path=str(journal_of(path)), result=None)) == min(i + 1, 2)
        (*_, removal) = system.matching(name="unlink", path=str(journal_of(path)), result=None)
        folders = system.matching(name="fsync_dir", path=str(path.parent))
        assert removal.number < folders[-1].number
        f["x"][0] = 3
        f.flush(durable=True)
        assert len(system.matching(name="fsync_dir")) == len(folders), "once is enough"


@pytest.mark.parametrize("count", [3, 7, 8])
def test_a_torn_header_is_completed_whatever_count_it_has(path: pathlib.Path, count: int) -> None:
    """A count that was written by itself may or may not be on stable storage when the header is replaced."""
    made = torn(path, "header", 300)
    with path.open("r+b") as file:
        file.seek(4)
        file.write(struct.pack(">q", count))
    system = TraceSystem()
    with pnc_vol.File(path, "r+", system=system) as f:
        assert f.attrs["note"] == NEW
    assert path.read_bytes() == made.new
    system.assert_order(
        {"name": "pwrite", "path": str(path)},
        {"name": "fsync", "path": str(path)},
        {"name": "unlink", "path": str(made.journal)},
    )


@pytest.mark.parametrize("note", ["longer than before " * 9, "short", None])
def test_what_lies_behind_a_longer_or_shorter_attribute_is_kept_once(path: pathlib.Path, note: str | None) -> None:
    """The journal has the bytes of all variables once; a header that was cut anywhere is completed from it."""
    with pnc_vol.File(path, "w", header_reserve=4096) as f:
        f.attrs["note"] = "an ordinary note"
        for i in range(300):
            f.create_dataset(f"variable {i}", (4,), "f4")
    old, journals = path.read_bytes(), list[bytes]()

    class Keeping(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "unlink" and str(args[0]) == str(journal_of(path)):
                journals.append(journal_of(path).read_bytes())
            return super().call(name, args, kwargs)

    with pnc_vol.File(path, "r+", system=Keeping()) as f:
        if note is None:
            del f.attrs["note"]
        else:
            f.attrs["note"] = note
    new = path.read_bytes()
    unlike = [i for i, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
    assert len(journals) == 1
    assert unlike[-1] < len(journals[0]) < 1.1 * unlike[-1]
    # the shorter header ends before the last 200 bytes that differ
    for cut in [*unlike[1:30:4], *unlike[30:-200:2999]]:
        for mixed in (new[:cut] + old[cut:], old[:cut] + new[cut:]):
            for mode in ("r", "r+"):
                path.write_bytes(mixed)
                journal_of(path).write_bytes(journals[0])
                with pnc_vol.File(path, mode) as f:
                    assert f.attrs.get("note") == note
                    assert len(f) == 300
            assert path.read_bytes() == new


# ------------------------------------------------------------------------------------------ who is believed


def check_unused(path: pathlib.Path, match: str) -> None:
    """One warning for each opening, and the file as its own header has it."""
    for mode in ("r", "r+"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pnc_vol.File(path, mode) as f:
                assert list(f) == ["pay"]
        assert [str(one.message) for one in told if match in str(one.message)], [str(one.message) for one in told]
        assert len(told) == 1


@root
def test_a_journal_of_another_user_is_not_used(path: pathlib.Path) -> None:
    made = torn(path, "header", 300)
    os.chown(made.journal, 4321, 4321)
    before = path.read_bytes()
    check_unused(path, "belongs to user 4321")
    assert path.read_bytes() == before
    os.chown(path, 4321, 4321)
    with pnc_vol.File(path) as f:
        assert f.attrs["note"] == NEW


def test_a_pipe_does_not_make_anybody_wait(path: pathlib.Path) -> None:
    os.mkfifo(journal_of(begin(path)))
    signal.alarm(20)
    try:
        check_unused(path, "is not a regular file")
    finally:
        signal.alarm(0)


def test_a_link_is_not_followed(path: pathlib.Path) -> None:
    made = torn(path, "header", 300)
    made.journal.rename(path.with_name("elsewhere"))
    made.journal.symlink_to(path.with_name("elsewhere"))
    before = path.read_bytes()
    check_unused(path, "is a symbolic link")
    assert path.read_bytes() == before


def test_a_folder_is_no_journal(path: pathlib.Path) -> None:
    os.mkdir(journal_of(begin(path)))
    check_unused(path, "is not a regular file")


@pytest.mark.parametrize("nbytes", [100 << 30, 100 << 20])
def test_a_sparse_journal_takes_no_memory(path: pathlib.Path, nbytes: int) -> None:
    """Of 100 GiB, and of a size that two headers may have."""
    inode = begin(path).stat().st_ino
    with open(journal_of(path), "wb") as file:
        file.write(struct.pack("<8sQQQIQQQQ", b"PNCJ0003", inode, nbytes - 368, 1, 7, 0, 300, nbytes - 368, 0))
        file.truncate(nbytes)

    def job(pipe: int) -> None:
        warnings.simplefilter("ignore")
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
        with pnc_vol.File(path) as f:
            os.write(pipe, ",".join(f).encode())

    child, reading = forked(job)
    assert os.read(reading, 100) == b"pay"
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_long_header_that_a_journal_tells_of_takes_no_memory(path: pathlib.Path, mode: str) -> None:
    torn(path, "header", 300)
    journal = journal_of(path)
    data = bytearray(journal.read_bytes())
    data[16:24] = (48 << 20).to_bytes(8, "little")
    journal.write_bytes(data)
    tracemalloc.start()
    try:
        with pnc_vol.File(path, mode) as f:
            assert f.attrs["note"] == NEW
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------- what is synced, and what is not


SYNCS = {"fsync", "fdatasync", "fsync_dir"}


def calls(system: TraceSystem) -> list[str]:
    changing = {*SYNCS, "pwrite", "rename", "unlink"}
    return [call.name for call in system.log if call.name in changing and not isinstance(call.result, OSError)]


def test_an_ordinary_flush_after_a_durable_one_undoes_nothing_of_it(path: pathlib.Path) -> None:
    system = TraceSystem()
    journal = str(journal_of(path))
    with pnc_vol.File(path, "w", system=system) as f:
        f["x"] = np.arange(1000.0)
        f.flush(durable=True)
        system.log.clear()
        f.attrs["a"] = 1
        f.flush()
        system.assert_order(
            {"name": "pwrite", "path": journal},
            {"name": "fsync", "path": journal},
            {"name": "fsync_dir", "path": str(path.parent)},
            {"name": "pwrite", "path": str(path), "offset": lambda at: at < 4096},
            {"name": {"fsync", "fdatasync"}, "path": str(path)},
            {"name": "unlink", "path": journal, "result": None},
        )
        assert len(system.matching(name=SYNCS)) == 3
        system.log.clear()
        f.attrs["a"] = np.arange(9000)
        f.flush()
        copy = {"path": lambda name: name.endswith("pnctmp")}
        system.assert_order(
            {"name": "pwrite", **copy},
            {"name": {"fsync", "fdatasync"}, "number": system.matching(name={"fsync", "fdatasync"}, **copy)[-1].number},
            {"name": "rename"},
        )
        assert len(system.matching(name=SYNCS)) == 2
        system.log.clear()
        f["x"][3] = 7
        f.flush()
        assert calls(system) == ["pwrite"]


def test_a_file_that_was_there_may_be_on_stable_storage(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w", header_reserve=4096) as f:
        f.create_dataset("x", data=[1, 2], maxshape=(None,))
    system = TraceSystem()
    with pnc_vol.File(path, "r+", system=system) as f:
        f["x"][:] = 7
        f.flush()
        f["x"].resize(3, axis=0)
        f["x"][2] = 3
        f.flush()
        assert not system.matching(name=SYNCS), "data and the record count replace nothing"
        f.attrs["a"] = 1
        f.flush()
        assert len(system.matching(name=SYNCS)) == 3


@pytest.mark.parametrize("publish", ["create", "close"])
def test_a_durable_file_takes_a_name_when_it_is_on_stable_storage(path: pathlib.Path, publish: str) -> None:
    path.write_bytes(b"an old file")
    system = TraceSystem()
    with pnc_vol.File(path, "w", system=system, durable=True, publish=publish) as f:
        f["x"] = [1]
    (rename,) = system.matching(name="rename")
    before = [call for call in system.log if call.number < rename.number]
    written = [call.number for call in before if call.name == "pwrite" and call.path.endswith("pnctmp")]
    synced = [call.number for call in before if call.name in ("fsync", "fdatasync")]
    assert written
    assert written[-1] < synced[-1]
    assert rename.number < system.matching(name="fsync_dir")[-1].number
    writes = [call for call in system.matching(name={"pwrite", "pwritev"}) if "pncj" not in call.path]
    assert writes[-1].number < system.matching(name={"fsync", "fdatasync"})[-1].number


@pytest.mark.parametrize("there", [False, True])
def test_a_file_that_appears_at_the_close_is_synced_if_it_replaces_one(path: pathlib.Path, there: bool) -> None:
    if there:
        path.write_bytes(b"an old file")
    system = TraceSystem()
    with pnc_vol.File(path, "w", system=system, publish="close") as f:
        f["x"] = [1]
        f.flush()
        assert not system.matching(name=SYNCS)
    synced = system.matching(name={"fsync", "fdatasync"})
    assert bool(synced) == there
    assert not there or synced[-1].number < system.matching(name="rename")[0].number


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_file_without_data_that_ends_inside_its_new_header_is_completed(tmp_path: pathlib.Path, mode: str) -> None:
    """Its new header is longer than the file was, so that a kill while it was written leaves the file too short."""

    class Killed(HookedSystem):
        """Writes half of what goes to the file itself, and nothing afterwards."""

        dead = False

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self.dead and name in ("pwrite", "pwritev", "unlink", "ftruncate"):
                raise OSError(5, "as if killed")
            if name == "pwrite" and args[2]:
                self.dead = True
                return self.inner.pwrite(args[0], bytes(args[1])[: len(args[1]) // 2], args[2])
            return super().call(name, args, kwargs)

    path = tmp_path / "x.nc"
    pnc_vol.File(path, "w").close()
    killed = pnc_vol.File(path, "r+", system=Killed())
    killed.attrs["p"] = np.arange(20, dtype="i4")
    with pytest.raises(OSError, match="as if killed"):
        killed.close()
    with pnc_vol.File(path, mode) as f:
        assert f.attrs["p"].tolist() == list(range(20))
