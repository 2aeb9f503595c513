"""Folders and files that are not what a log is made of are not looked into, and that is said with the reason."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
from kills import killed_job

import pnc_vol
from pnc_vol.errors import LogError, LogRefusedError, PncVolWarning
from pnc_vol.testing.faults import HookedSystem


@pytest.fixture
def left(tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder that a killed job left."""
    killed_job(tmp_path / "x.nc", lambda f: f.__setitem__("x", [1.0, 2.0]), burst_buf=True)
    (folder,) = tmp_path.glob("pncbb-*")
    return folder


def linked(folder: pathlib.Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


CHANGES: dict[str, tuple[Any, str]] = {
    "rights": (lambda folder: folder.chmod(0o777), "others may write to it .*chmod 700"),
    "owner": (lambda folder: os.chown(folder, 12345, -1), "belongs to user 12345.*let its owner replay it"),
    "link": (linked, "it is a symbolic link; name the folder that it leads to"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_is_not_looked_into_is_told(change: str, left: pathlib.Path) -> None:
    act, why = CHANGES[change]
    if change == "owner" and os.geteuid():
        pytest.skip("only root gives files away")
    act(left)
    path = left.parent / "x.nc"
    for mode, more in (("r+", {"recover": True}), ("r", {})):
        with pytest.warns(PncVolWarning, match=f"are not read: .*{why}") as told:
            pnc_vol.File(path, mode, **more).close()
        assert len(told) == 1
    report = pnc_vol.replay(path)
    assert not report.logs
    assert not report.whole
    assert len(report.closed) == 1
    if change == "rights":
        left.chmod(0o700)
        assert pnc_vol.replay(path).replayed == 1


@pytest.mark.parametrize("suffix", [".meta", ".data", ".commit", ".defs"])
def test_a_link_inside_a_log_is_not_followed(suffix: str, left: pathlib.Path) -> None:
    (file,) = left.glob(f"*{suffix}")
    file.rename(left.parent / "elsewhere")
    file.symlink_to(left.parent / "elsewhere")
    before = (left.parent / "elsewhere").read_bytes()
    with pytest.raises(LogError, match=f"{suffix}: this is a symbolic link, which is not followed"):
        pnc_vol.replay(left.parent / "x.nc", left)
    assert (left.parent / "elsewhere").read_bytes() == before


def test_a_log_of_the_c_library_is_locked_by_a_replay(left: pathlib.Path) -> None:
    for file in (*left.glob("*.commit"), *left.glob("*.defs")):
        file.unlink()
    with pnc_vol.File(left.parent / "other.nc", "w") as f:
        f["x"] = [0.0, 0.0]

    class Meanwhile(HookedSystem):
        refused = 0

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "pwrite" and not self.refused:
                self.refused = 1
                with pytest.raises(LogRefusedError, match="another replay of it, is still running"):
                    pnc_vol.replay(left.parent / "other.nc", left, any_file=True)
            return super().call(name, args, kwargs)

    system = Meanwhile()
    assert pnc_vol.replay(left.parent / "other.nc", left, any_file=True, system=system).replayed == 1
    assert system.refused
    assert pnc_vol.replay(left.parent / "other.nc", left, any_file=True).replayed == 1


def test_a_log_whose_data_are_gone_is_damaged(left: pathlib.Path) -> None:
    """A power failure can take the name of one of its files and leave that of another."""
    (data,) = left.glob("*.data")
    data.unlink()
    with pytest.raises(LogError, match=r"\.data is not there: a power failure took it"):
        pnc_vol.replay(left.parent / "x.nc")


@pytest.mark.parametrize("posts", [2, 1500])
def test_a_crash_of_the_node_that_takes_definitions_takes_the_last_group(posts: int, tmp_path: pathlib.Path) -> None:
    """More than one group is lost by damage alone, and that is refused."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", (2000,), "i4")

    def post(f: pnc_vol.File) -> None:
        for i in range(posts):
            f["x"][i] = i + 1

    killed_job(path, post, mode="r+", burst_buf=True)
    (definitions,) = tmp_path.glob("pncbb-*/*.defs")
    with open(definitions, "r+b") as raw:
        raw.write(bytes(definitions.stat().st_size))
    text = "entry 0 writes to variable 0, whose definition is not there"
    if posts > 1024:
        with pytest.raises(LogError, match=text):
            pnc_vol.File(path, "r+", recover=True)
        return
    with pytest.warns(PncVolWarning, match=f"2 writes are lost.*{text}"), pnc_vol.File(path, "r+", recover=True) as f:
        assert not f["x"][...].any()
