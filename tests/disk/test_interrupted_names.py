"""Ctrl-C at any line while a file gets its name: it has it then, and this is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from interrupts import Interrupts

from pnc_vol.disk.locking import Held
from pnc_vol.disk.publish import Location
from pnc_vol.system import REAL


def made(folder: Path, act: str) -> Location:
    """A file that is to get its name, or a new layout that is to get the temporary name of another one."""
    folder.mkdir()
    path = str(folder / "a.nc")
    location = Location.create(
        REAL, path, b"header", exclusive=act == "publish a new one", publish=False, held=Held(REAL, path)
    )
    if act == "publish a new one":
        return location
    location.keep(durable=False)
    return location.copy() if act != "publish" else location


@pytest.mark.parametrize("act", ["publish", "publish a new one", "publish a new layout", "keep a new layout"])
def test_a_file_is_renamed_once(act: str, tmp_path: Path) -> None:
    def call(location: Location) -> None:
        location.keep(durable=False) if act == "keep a new layout" else location.publish()

    counted = Interrupts(0, KeyboardInterrupt)
    for folder, trouble in (("first", Interrupts(0, KeyboardInterrupt)), ("counted", counted)):
        location = made(tmp_path / folder, act)
        with trouble:
            call(location)
        location.held.release()
    assert counted.count > 10
    for n in range(1, counted.count + 1):
        location = made(tmp_path / str(n), act)
        trouble = counted.at_line(n)
        with pytest.raises(KeyboardInterrupt), trouble:
            call(location)
        call(location)
        there = os.stat(location.work)
        assert (there.st_dev, there.st_ino) == location.key, trouble.where
        assert location.published == (act != "keep a new layout"), trouble.where
        assert len(location.held.fds) == 1, trouble.where
        location.held.release()
        assert list((tmp_path / str(n)).iterdir()) == [Path(location.work)], trouble.where
