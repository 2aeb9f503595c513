"""Systems on which calls fail on some files alone: while that is asked for, or the n-th."""

from __future__ import annotations

import os
from typing import Any

from pnc_vol.testing.faults import FaultSystem, HookedSystem

WRITES = ("pwrite", "pwritev", "copy_range", "fallocate")


class Failing(HookedSystem):
    """Writes to files with `part` in their path, and not `other`, fail with the number `error`, while that is not 0."""

    def __init__(self, part: object, other: str = "\0") -> None:
        super().__init__()
        self.part, self.other, self.error = str(part), other, 0
        self._fds: dict[int, str] = {}

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.error and name in WRITES:
            # `copy_range` writes to its second descriptor
            fd = args[2] if name == "copy_range" and not isinstance(args[1], int) else args[name == "copy_range"]
            path = self._fds.get(fd, "")
            if self.part in path and self.other not in path:
                raise OSError(self.error, os.strerror(self.error))
        made = super().call(name, args, kwargs)
        if name == "open":
            self._fds[made] = os.fspath(args[0])
        return made


class OfFolder(FaultSystem):
    """Only calls on files of a folder are counted, and fail."""

    def __init__(self, folder: object, **how: Any) -> None:
        super().__init__(**how)
        self.folder = str(folder)
        self._fds: dict[int, str] = {}

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # `copy_range` writes to its second descriptor
        first = args[name == "copy_range"] if args else ""
        path = self._fds.get(first, "") if isinstance(first, int) else os.fspath(first)
        ours = path.startswith(self.folder)
        made = super().call(name, args, kwargs) if ours else getattr(self.inner, name)(*args, **kwargs)
        if name == "open":
            self._fds[made] = path
        return made
