"""``pnc-vol log`` and ``pnc-vol replay``: what a person sees of a job that was killed, and gets back."""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kills import ended

import pnc_vol


def job(folder: Path, sync: str) -> None:
    """It knows its folder for logs by a relative name, and is killed before it closes its file."""
    os.chdir(folder)
    hints = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": "scratch", "nc_burst_buf_sync": sync}
    f = pnc_vol.File("run.nc", "w", hints=hints)
    t = f.create_dataset("temperature", (0, 4), "f8", maxshape=(None, 4))
    for step in range(5):
        t.resize(step + 1, axis=0)
        t[step] = step
        if step == 2:
            f.flush()
    t.iput(np.s_[0, 0], 99.0).cancel()
    f["late"] = np.arange(3)
    f["late"][::2] = 7
    os._exit(0)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a job was killed."""
    folder = tmp_path_factory.mktemp("killed") / "job"
    folder.mkdir()
    kill_in(folder, "none")
    shutil.copytree(folder, folder.parent / "kept")
    return folder


def kill_in(folder: Path, sync: str) -> None:
    """Have the job killed in a folder, with this hint ``nc_burst_buf_sync``."""
    (folder / "scratch").mkdir()
    ended(lambda: job(folder, sync))


@pytest.fixture(name="job")
def job_again(killed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as it was left, to be changed; the working directory."""
    shutil.rmtree(killed)
    shutil.copytree(killed.parent / "kept", killed)
    monkeypatch.chdir(killed)
    return killed


def values() -> dict[str, Any]:
    with pnc_vol.File("run.nc") as f:
        return {name: f[name][...].tolist() for name in f}


WHOLE = {"temperature": [[float(i)] * 4 for i in range(5)], "late": [7, 1, 7]}


def test_a_log_is_printed(job: Path, verb: Any) -> None:
    (folder,) = (job / "scratch").iterdir()
    texts = [verb("log", name, code=0).out for name in (folder, "scratch", *folder.glob("*"))]
    texts = [text.replace(f"{folder}/", "").replace(f"scratch/{folder.name}/", "") for text in texts]
    assert len(set(texts)) == 1
    text = texts[0]
    assert f"file        {job / 'run.nc'}" in text
    assert text.count("is /temperature") == 1
    assert [line.split()[1] for line in text.splitlines() if " vara " in line or " vars " in line] == [
        "committed", "committed", "cancelled", "committed", "committed",
    ]  # fmt: skip
    assert "5 entries" in text
    assert verb("log", "--limit", 1, folder).out.count("vara") == 1
    assert "4 more entries" in verb("log", "--limit", 1, folder).out


def test_a_replay_by_the_note_from_anywhere(job: Path, verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    out = verb("replay", job / "run.nc", code=0).out
    assert "4 requests of 1 log replayed" in out
    assert "1 cancelled by their program" in out
    assert "made /late" in out
    assert not list((job / "scratch").iterdir())
    assert "no job left a log" in verb("replay", job / "run.nc", code=0).out
    monkeypatch.chdir(job)
    assert values() == WHOLE


@pytest.mark.parametrize("name", ["scratch", "folder", "meta"])
def test_a_replay_of_named_logs_keeps_them(job: Path, verb: Any, name: str) -> None:
    (folder,) = Path("scratch").iterdir()
    named = {"scratch": "scratch", "folder": folder, "meta": folder / "run.nc_0_0.meta"}[name]
    assert "4 requests of 1 log replayed" in verb("replay", "run.nc", named, code=0).out
    assert values() == WHOLE
    content = Path("run.nc").read_bytes()
    out = verb("replay", "run.nc", named, code=0).out
    assert "0 requests of 1 log replayed" in out
    assert "4 in the file already" in out
    assert Path("run.nc").read_bytes() == content
    # The next job that writes tidies up.
    pnc_vol.File("run.nc", "r+").close()
    assert not folder.exists()


def cut_commits() -> Path:
    """Cut the last record of the commit log; the folder of the log."""
    (folder,) = Path("scratch").iterdir()
    commit = folder / "run.nc_0_0.commit"
    whole = commit.read_bytes().rstrip(b"\0")
    # a record ends with its CRC, the last byte of which may be 0
    commit.write_bytes(whole[: -(-len(whole) // 64) * 64 - 10])
    return folder


def test_a_torn_tail_is_said(tmp_path: Path, verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_in(tmp_path, "each")
    monkeypatch.chdir(tmp_path)
    out = verb("replay", "run.nc", cut_commits(), code=1).out
    assert "never committed, dropped" in out
    assert values()["late"] == [0, 1, 2]


def test_what_was_posted_after_a_lost_record_is_refused_unless_asked_for(job: Path, verb: Any) -> None:
    """The record cancels a request, which would be replayed."""
    before, folder = Path("run.nc").read_bytes(), cut_commits()
    said = "1 records of the commit log are missing before the last entries"
    assert said in verb("replay", "run.nc", folder, code=2).err
    assert said in verb("log", folder, code=2).out
    assert Path("run.nc").read_bytes() == before
    assert verb("replay", "--salvage", "run.nc", folder).code == 2
    assert values()["late"] == [0, 0, 0]


def test_damage_is_refused_unless_asked_for(job: Path, verb: Any) -> None:
    (folder,) = Path("scratch").iterdir()
    meta = folder / "run.nc_0_0.meta"
    content = bytearray(meta.read_bytes())
    content[content.index(b"\0\0\0\0", 200)] ^= 0xFF
    meta.write_bytes(content)
    before = Path("run.nc").read_bytes()
    assert verb("log", folder).code == 2
    done = verb("replay", "run.nc", folder, code=2)
    assert "salvage" in done.err
    assert Path("run.nc").read_bytes() == before
    assert verb("replay", "--salvage", "run.nc", folder).code == 2
    with pnc_vol.File("run.nc") as f:
        assert f["temperature"].shape[0] >= 3


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("log", "nowhere"), 2, "nowhere.meta: there is no such file"),
        (("log", "other.txt"), 2, "this is not a log; a metadata log is called NAME.meta"),
        (("log", "empty"), 2, "there is no log .a file NAME.meta. in this folder"),
        (("replay", "nofile.nc"), 3, "there is no such file; a log holds what was posted since"),
        (("replay", "nofile.nc", "scratch"), 2, "there are logs in this folder, but none of .*nofile.nc"),
        (("replay", "other.txt", "FOLDER"), 3, "belongs to another file: .* and other.txt has none"),
        (("replay", "--any-file", "other.txt", "FOLDER"), 2, "Not a NetCDF classic file"),
        (("replay", "missing/run.nc", "FOLDER"), 3, "there is no such file; a log holds what was posted since"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(job: Path, verb: Any, args: tuple[str, ...], code: int, text: str) -> None:
    Path("other.txt").write_text("import nothing")
    Path("empty").mkdir()
    (folder,) = Path("scratch").iterdir()
    done = verb(*(folder if arg == "FOLDER" else arg for arg in args), code=code)
    said = done.err or done.out
    assert re.search(text, said), said
    assert len(said.strip().splitlines()) == 1


def test_what_a_run_that_ended_left_says_first_what_to_do(job: Path, verb: Any) -> None:
    """A log as the C library leaves it: without a commit log, and its header counts nothing."""
    (folder,) = Path("scratch").iterdir()
    (folder / "run.nc_0_0.commit").unlink()
    content = bytearray((folder / "run.nc_0_0.meta").read_bytes())
    assert struct.unpack_from("<q", content, 48) == (5,)

    def told(counted: int) -> list[str]:
        struct.pack_into("<q", content, 48, counted)
        (folder / "run.nc_0_0.meta").write_bytes(content)
        return verb("replay", "run.nc", folder, code=1).out.splitlines()

    first, *rest = told(0)
    assert first.startswith("run.nc: nothing replayed. Use --uncounted to replay the 5 requests of 1 log")
    assert not any("--uncounted" in line for line in rest)
    first, *rest = told(3)
    assert first == "run.nc: 3 requests of 1 log replayed"
    assert "--uncounted" in rest[0]
