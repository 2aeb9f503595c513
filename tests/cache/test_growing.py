"""A file is made longer while threads, or other ranks, bring data to its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pnc_vol.cache.files import grow_file
from pnc_vol.testing.faults import HookedSystem


class Overtaken(HookedSystem):
    """Data come right after the look at the length of the file."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        told = super().call(name, args, kwargs)
        if name == "fstat":
            os.pwrite(args[0], b"\x01" * 8, 0)
        return told


def test_data_that_come_meanwhile_are_not_changed(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    try:
        grow_file(Overtaken(), fd, 8)
        assert os.pread(fd, 9, 0) == b"\x01" * 8
        grow_file(HookedSystem(), fd, 16)
        assert os.pread(fd, 17, 0) == b"\x01" * 8 + bytes(8)
    finally:
        os.close(fd)
