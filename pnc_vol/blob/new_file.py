"""A file that all ranks write, and that takes its name when it is whole.

Knows: ranks, names, drivers. Does not know: what is written.

Rule
----
It has a temporary name until `publish`. It is gone if the block ends before.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pnc_vol.disk.locking import Held
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.file.driver_stack import context_of
from pnc_vol.file.leftovers import look_after
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options

__all__ = ["NewFile"]


class NewFile:
    """A new file, as a context (collective).

    path : str
    content : bytes, of the header.
    overwrite : bool, replace what has the name.
    durable : bool, bring the file and its name to stable storage.

    driver : Driver, of this rank.
    """

    driver: Driver

    def __init__(
        self, path: str, content: bytes, options: Options, comm: Comm, *, overwrite: bool, durable: bool
    ) -> None:
        self.options, self.comm, self.durable = options, comm, durable
        self.path, self.content, self.exclusive = path, content, not overwrite
        self.location: Location | None = None

    def __enter__(self) -> NewFile:
        work = on_root(self.comm, "replay create", self._create).decode(errors="surrogateescape")
        context = context_of(self.options, self.comm, writable=True)._replace(comm=None)
        error: BaseException | None = None
        try:
            self.driver = PosixDriver.open(work, context)
        except OSError as reason:
            error = reason
        try:
            self.comm.agree("replay open", error=error)
        except BaseException:
            if error is None:
                self.driver.close()
            self._discard()
            raise
        return self

    def _create(self) -> bytes:
        system = self.options.system
        real = system.realpath(os.path.abspath(self.path))
        held = Held(system, self.path, self.options.locking)
        self.location = Location.create(
            system, self.path, self.content, exclusive=self.exclusive, publish=False, target=real, held=held
        )
        return os.fsencode(self.location.work)

    def publish(self, nbytes: int) -> None:
        """Give the file its length and its name (collective)."""

        def finish() -> bytes:
            assert self.location is not None
            self.driver.resize(max(nbytes, len(self.content)))
            if self.durable or self.location.replaces:
                self.driver.sync()
            if self.location.replaces:
                target = self.location.path
                look_after(self.path, target, self.options, writable=True, replaced=True)
            self.location.publish(durable=self.durable)
            return b""

        on_root(self.comm, "replay publish", finish)

    def _discard(self) -> None:
        if self.location is not None:
            with suppress(OSError):
                self.location.discard()
            self.location.held.release()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        with suppress(OSError):
            self.driver.close()
        if error is not None:
            self._discard()
        elif self.location is not None:
            self.location.held.release()
