"""The crash simulator: it finds what is wrong, and in the scenarios of pnc_vol nothing is."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from crash import examining
from crash.command import main, validator
from crash.disk import Disk, FolderSynced, Labelled, Made, Mode, Renamed, Synced, Unnamed, Written
from crash.examining import Broken, examine, examine_state, state, states_of
from crash.promise import NO_FILE, Contents, broken, contents_of
from crash.recording import RECORDED, UNCHANGING, Recorder
from crash.running import Run, Scenario, fast_folder, record
from crash.scenarios import SCENARIOS, SHAPES
from crash.states import kill_points, power_failure

from pnc_vol.testing.faults import CALLS

STATES = 24
CRASH = str(pathlib.Path(__file__).parents[1] / "shared" / "crash")
"""Of each scenario and kind; of the kills at least all between two changes."""


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=fast_folder()) as path:
        yield path


CASES = [
    pytest.param(scenario, kind, id=f"{scenario.name}-{kind}")
    for scenario in SCENARIOS.values()
    for kind in (("kill", "power") if scenario.power else ("kill",))
]


@pytest.mark.parametrize(("scenario", "kind"), CASES)
def test_every_state_holds_what_is_promised(scenario: Scenario, kind: str, folder: str) -> None:
    recording = record(scenario, folder)
    assert examine(recording, kind, folder=folder, count=STATES, validator=validator()) > 2


@pytest.mark.parametrize("way", ["plain", "blob", "cache"])
def test_a_power_failure_after_plain_flushes_leaves_what_is_safe(way: str, folder: str) -> None:
    recording = record(SCENARIOS[f"{way}: {', '.join(SHAPES)}"], folder)
    assert examine(recording, "power", folder=folder, count=16) > 1


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_many_states_hold_what_is_promised() -> None:
    assert main(["--states", "20000", "--seed", "1"]) == 0


# ------------------------------------------------------------------------------------------ the simulator


def test_every_call_is_known_to_the_recorder() -> None:
    """A new call of `System` must be followed by the recorder, or be known to leave files as they are."""
    assert set(CALLS) <= RECORDED | UNCHANGING
    assert not RECORDED & UNCHANGING


def in_place(run: Run) -> None:
    """What nobody should do: two attributes written over each other in place, without a journal."""
    f = run.open("r+")
    whole = REAL_HEADER.datasets | {}
    with run.step(contents_of(**whole), "durable"):
        f["x"][:] = 1
        f.flush(durable=True)
    f.close()
    # a new header by hand, in two writes
    fd = run.system.open(run.path, os.O_RDWR)
    head = os.pread(fd, 64, 0)
    with run.step(contents_of(**whole), "durable"):
        run.system.pwrite(fd, b"\0" * 64, 0)
        run.system.pwrite(fd, head, 0)
    run.system.close(fd)


REAL_HEADER = contents_of(x=[1, 1, 1])


def three_ones(run: Run) -> Contents:
    with run.open("w") as f:
        f["x"] = [1, 1, 1]
    return REAL_HEADER


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_a_header_that_is_written_in_place_is_found(kind: str, folder: str) -> None:
    recording = record(Scenario("in place", in_place, three_ones), folder)
    with pytest.raises(Broken, match=r"--scenario 'in place' --kind \w+ --seed 0 --state \d+"):
        examine(recording, kind, folder=folder, count=100)


def test_a_rename_before_the_sync_is_found(folder: str) -> None:
    def program(run: Run) -> None:
        with run.step(REAL_HEADER, "durable"):
            content = pathlib.Path(run.path).read_bytes()
            fd = run.system.open(run.path + ".new", os.O_RDWR | os.O_CREAT)
            run.system.pwrite(fd, content, 0)
            run.system.rename(run.path + ".new", run.path)
            run.system.close(fd)

    recording = record(Scenario("renamed", program, three_ones), folder)
    assert examine(recording, "kill", folder=folder) > 3
    with pytest.raises(Broken, match="empty"):
        examine(recording, "power", folder=folder, count=100)


def test_a_durable_flush_that_does_not_sync_is_found(folder: str) -> None:
    def program(run: Run) -> None:
        f = run.open("r+")
        with run.step(contents_of(x=[5, 5, 5]), "durable"):
            f["x"][:] = 5
            f.flush()
        f.close()

    with pytest.raises(Broken, match="3 of 3 elements of 'x' are wrong"):
        examine(record(Scenario("lazy", program, three_ones), folder), "power", folder=folder, count=50)


def test_a_file_that_cannot_be_opened_for_writing_is_not_validated(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for caches that are not there: what stands behind its data is cut when it is written again."""
    gone_on: list[bool] = []

    def validator(path: str) -> None:
        raise Broken(path)

    def go_on(look: Any, system: Any, torn: bool) -> bool:
        gone_on.append(real(look, system, torn))
        return gone_on[-1]

    real = examining._Look.go_on
    monkeypatch.setattr(examining._Look, "go_on", go_on)
    name = "cache, named at the close: append, fewer records, long attribute, append, ragged"
    recording = record(SCENARIOS[name], folder)
    for number in range(1, 100):
        gone_on.clear()
        broken = False
        try:
            found = state(recording, "power", number, seed=4711)
            examine_state(recording, "power", found, number, folder=folder, seed=4711, validator=validator)
        except Broken:
            broken = True
        assert broken == any(gone_on), number
        if gone_on == [False]:
            break
    assert gone_on == [False], "no state waits for caches"
    *_, (_, complete) = states_of(recording, "kill", count=4)
    with pytest.raises(Broken):
        examine_state(recording, "kill", complete, 1, folder=folder, validator=validator)


def test_states_are_the_same_in_every_run(folder: str) -> None:
    one, other = (record(SCENARIOS["data!, define"], folder) for _ in range(2))
    assert one.changes == other.changes
    for kind in ("kill", "power"):
        for (number, found), (_, again) in zip(
            states_of(one, kind, seed=3, count=20), states_of(other, kind, seed=3, count=20), strict=True
        ):
            assert found.disk.image() == again.disk.image()
            assert state(one, kind, number, seed=3).disk.image() == found.disk.image()


def test_a_state_can_be_made_again_by_the_command_that_is_told(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, CRASH, "--scenario", "publish at close", "--kind", "kill", "--state", "9"]
    told = subprocess.run([*command, "--keep", str(tmp_path)], capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    assert "no promise is broken" in told.stdout
    assert re.search(r"(?m)^ +1 Made\(path='\.x\.nc\.0{15}1\.pnctmp'", told.stdout)
    assert any(tmp_path.iterdir())


def test_stores_through_windows_are_recorded(tmp_path: pathlib.Path) -> None:
    system = Recorder(str(tmp_path))
    fd = system.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    system.fallocate(fd, 0, 4096)
    window = system.mmap(fd, 4096)
    window[100:103] = b"abc"
    window[4000:4001] = b"x"
    system.fsync(fd)
    window[0:1] = b"y"
    window.close()
    system.close(fd)
    system.finish()
    disk = system.start
    for change in system.changes:
        disk.apply(change)
    assert bytes(disk.files[1]) == (tmp_path / "a").read_bytes()
    assert [type(change).__name__ for change in system.changes] == ["Made", "Cut", "Stored", "Synced", "Stored"]


def test_a_file_is_the_same_by_every_path(tmp_path: pathlib.Path) -> None:
    system = Recorder(str(tmp_path))
    fd = system.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    system.rename(tmp_path / "a", tmp_path / "b")
    again = system.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    system.pwrite(again, b"x", 3)
    system.close(again)
    system.close(fd)
    assert system.changes[1:] == [Renamed("a", "b", 1), Written(1, 3, b"x")]


def test_a_power_failure_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    changes = [
        Made("a", 1, 0o600), Written(1, 0, b"1" * 2048), Synced(1), Written(1, 512, b"2" * 1024), Mode(1, 0o644),
        Made("b", 2, 0o600), Unnamed("a", 1),
    ]  # fmt: skip
    seen = [power_failure(Disk(), changes, seed=1, number=i, first=7).disk for i in range(300)]
    assert {tuple(sorted(disk.names)) for disk in seen} == {(), ("a",), ("b",), ("a", "b")}
    kept = {bytes(disk.files[1]) for disk in seen}
    assert all(len(content) == 2048 and content[:512] == b"1" * 512 == content[1536:] for content in kept)
    assert {(content[512:513], content[1024:1025]) for content in kept} == {
        (one, other) for one in (b"1", b"2") for other in (b"1", b"2")
    }


def test_the_last_write_to_a_file_may_come_first() -> None:
    """A header may reach the disk before the data that were written before it, whole and alone."""
    changes = [Made("a", 1, 0o600), FolderSynced(""), *(Written(1, 512 * i, b"%d" % i * 512) for i in range(8))]
    seen = [bytes(power_failure(Disk(), changes, seed=1, number=i, first=10).disk.files[1]) for i in range(600)]
    assert any(content[-512:] == b"7" * 512 and not any(content[:-512]) for content in seen if len(content) == 4096)


def test_extended_attributes_need_fsync() -> None:
    def labels(*synced: Synced) -> set[bytes]:
        changes = [Made("a", 1, 0o600), FolderSynced(""), Labelled(1, "user.x", b"1"), *synced]
        disks = [power_failure(Disk(), changes, seed=1, number=i, first=4).disk for i in range(100)]
        return {disk.labels.get(1, {}).get("user.x", b"") for disk in disks}

    assert labels(Synced(1)) == {b"1"}
    assert labels(Synced(1, whole=False)) == {b"", b"1"}


def test_short_writes_are_not_torn() -> None:
    changes = [Written(1, 4, b"8 bytes."), Written(1, 100, b"x" * 1000)]
    torn = [point for point in kill_points(changes, seed=0) if point[1]]
    assert {at for at, _ in torn} == {1}
    assert {412} < {tear for _, tear in torn}


def test_what_is_wrong_is_told() -> None:
    old, new = contents_of(x=[1, 2], y=1.0), contents_of(x=[1, 7], y=1.0)
    assert broken(old, [old, new], torn=False, all_known=True) == ""
    assert "there is no file" in broken(NO_FILE, [old], torn=False, all_known=True)
    assert "[1] is" in broken(contents_of(x=[1, 3], y=1.0), [old, new], torn=False, all_known=True)
    assert "differ" in broken(contents_of(x=[1, 2]), [old, new], torn=False, all_known=True)
    mixed = contents_of(x=[1, 0x0102], y=1.0)
    more = contents_of(x=[1, 0x0100], y=1.0)
    assert broken(mixed, [old, more], torn=True, all_known=True) == ""
    assert broken(mixed, [old, more], torn=False, all_known=True)
