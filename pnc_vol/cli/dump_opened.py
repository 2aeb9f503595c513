"""``pnc-vol dump`` reads what is no classic file by itself through `File`.

Knows: what a set of subfiles and an address are. Does not know: text. Loaded for these alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.arguments import is_address
from pnc_vol.api.file import File
from pnc_vol.convert.space import DeclaredSize, declared_by
from pnc_vol.extents.model import Runs
from pnc_vol.file.file_sets import is_set
from pnc_vol.format import model
from pnc_vol.format.model import TYPES, Header, Var
from pnc_vol.system import REAL

__all__ = ["OpenedFile", "opened"]

BLOCK_BYTES, BLOCK_VALUES = 1 << 20, 1 << 16


class OpenedFile:
    """A set of subfiles, as the classic file that it stands for, or a file under an address; like `dump.DumpedFile`."""

    def __init__(self, path: str) -> None:
        self.file = File(path)
        self.session: Any = self.file.id.handle.session
        self.header: Header = self.session.disk.header

    def declared(self) -> DeclaredSize:
        """See `dump.DumpedFile.declared`."""
        return declared_by(self.file)

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.file.close()

    def values(self, var: Var) -> Iterator[npt.NDArray[Any]]:
        """See `dump.DumpedFile.values`; what is in no blob has the fill value."""
        disk = self.session.disk
        uid = disk.layout.uids[self.header.vars.index(var)]
        at, node = disk.layout.maps[uid], self.session.defs.tree.datasets[uid]
        fill = (node.fillvalue or b"").ljust(at.itemsize, b"\0")[: at.itemsize]
        total = math.prod(model.shape(self.header, var)) * TYPES[var.type].size // at.itemsize
        step = max(1, min(BLOCK_BYTES // at.itemsize, BLOCK_VALUES))
        for first in range(0, total, step):
            n = min(step, total - first)
            memory = np.frombuffer(bytearray(fill * n), np.uint8)
            disk.driver.read(at.extents(Runs(np.array([first]), np.array([n]))), memory)
            yield memory.view(TYPES[var.type].dtype)


def opened(path: str) -> OpenedFile | None:
    """Return a set of subfiles by its name, or what is under an address; None of any other name."""
    return OpenedFile(path) if is_address(path) or is_set(REAL, path) else None
