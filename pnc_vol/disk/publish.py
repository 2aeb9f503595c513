"""A file gets its name, and its header is replaced, so that a kill at any moment does no harm.

Knows: paths, the system, header bytes. Does not know: variables, requests; ranks other than that only one calls this.

Rules
-----
1. A new file is written under a temporary name in the same directory and renamed, so that its name always
   stands for a whole file. (Under its own name, its first bytes last, a write that is done in part leaves a file that
   is neither empty nor whole.) With ``publish="close"`` the rename comes at the close. Until then a flush makes its
   temporary name stand for a whole file as well (`Location.kept_as`): it has a journal, a new layout takes that same
   name when it is complete, and it is not removed if it cannot get its own.
2. Of a header the bytes that differ are replaced in place. If they are more than a few, that is done with a journal
   beside the file (`journal`): first the journal is written, then the bytes, then the journal goes. A journal that is
   found when a file is opened is completed.
3. A layout that moves data is written to a temporary copy; the rename makes it the file.
4. What takes the place of bytes that were brought to stable storage, here or, for all that is known, by another
   process, is itself there before it does so, whoever asks.
5. Errors name the user's path, not the temporary one.
6. Only the file that was opened is written or replaced. If it was renamed, its new name is followed, where the system
   tells it; if another file has its name, that one is left alone, and a new layout keeps its temporary name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

from pnc_vol.disk.journal import content_of, forget_journal, is_atomic, journal_path, write_journal
from pnc_vol.disk.locking import Held, Key
from pnc_vol.disk.naming import beside, mode_of_new, name_new, write_new
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import SyncError
from pnc_vol.format.encode import Parts
from pnc_vol.interruptions import done_whole
from pnc_vol.system import System, exists

__all__ = ["Location"]


class Location:
    """Where a file is, and under which name it is worked on.

    path : str, the file's name, symbolic links resolved.
    work : str, the name that drivers open: `path`, or a temporary one until `publish`.
    exclusive : bool, `publish` replaces nothing.
    key : tuple of int or None, device and inode, on the rank that looked.
    replaces : bool, another file had the name when this one was made; on rank 0.
    kept_as : str, the temporary name under which there is what was flushed so far; "" if there is none. It is `work`,
        or the name of the file of which this is a new layout, until this has it.
    unseen : bool, nothing of what is worked on has ever been under the name: no flush of it can be lost.
    held : Held, the descriptors of this file and of those that it is to replace; empty but on rank 0.
    """

    def __init__(
        self,
        system: System,
        path: str,
        work: str,
        *,
        exclusive: bool = False,
        unseen: bool = False,
        held: Held | None = None,
        kept_as: str = "",
    ) -> None:
        self.held = held or Held(system, path)
        self.system = system
        self.path = path
        self.work = work
        self.exclusive = exclusive
        self.unseen = unseen
        self.kept_as = kept_as
        self.replaces = False
        self.key: tuple[int, int] | None = None
        self._folder = "unsynced"
        """Whether the name is on stable storage: "synced", or "journal removed", which a power failure undoes."""
        self._torn: tuple[bytes, Callable[[], None] | None] | None = None
        """A header that is being replaced, and how the file is synced."""
        self._journal = "", ""
        """A path, and the name of its journal: found once for many headers."""
        self._origin: Key | None = None
        """The file of which this is a new layout, if somebody can find that."""
        self._kept = False
        self.unsynced: SyncError | None = None
        """Why this file, which should take the place of another one, never does: its fsync failed."""

    @property
    def fd(self) -> int:
        """The descriptor of the file that rank 0 keeps; -1 elsewhere."""
        return self.held.fds.get(self.key, -1)

    @property
    def published(self) -> bool:
        """True if the file under its name is the one that is worked on."""
        return self.work == self.path

    @property
    def at_stake(self) -> bool:
        """True if what is under `work` is what somebody may look for after a kill."""
        return self.work in (self.path, self.kept_as)

    @property
    def takes_over(self) -> bool:
        """True if this is a new layout that is to have the temporary name of another file."""
        return self.kept_as not in ("", self.work)

    @property
    def torn(self) -> bool:
        """True if half a header may be in the file, which the next open completes by the journal."""
        return self._torn is not None

    @classmethod
    def create(
        cls,
        system: System,
        path: str,
        header: bytes,
        *,
        exclusive: bool,
        publish: bool,
        durable: bool = False,
        target: str = "",
        held: Held | None = None,
    ) -> Location:
        """Make a file that holds `header` and nothing else.

        Parameters
        ----------
        path : str
        header : bytes
        exclusive : bool
            An existing file is an error instead of being replaced.
        publish : bool
            Put it under its name now; else `publish` does.
        durable : bool
            Bring it, and the name that it has, to stable storage.
        target : str, optional
            The path without symbolic links, where it is known.
        held : Held, optional
            Locks the file, and the one that it replaces, and keeps their descriptors.

        Raises
        ------
        OSError
            FileExistsError, IsADirectoryError, PermissionError...; nothing is left behind.
        """
        target = target or system.realpath(path)
        mode: int | None = None
        if not exclusive:
            # else the name must be new when the file gets it
            with _named(path):
                mode = mode_of_new(system, target, exclusive=False, held=held)
        location = cls(system, target, beside(system, target, "pnctmp"), exclusive=exclusive, unseen=True, held=held)
        location.replaces = not publish and exists(system, target)
        with _named(path):
            # What takes the place of a file is whole on the disk before it does, or a crash leaves an empty one. From
            # then on it is a new file: to sync all data whenever a program overwrites its output would cost much, and
            # the old values are gone anyway.
            safe = durable or (publish and mode is not None)
            location.key = write_new(system, location.work, header, mode, durable=safe, held=location.held)
        try:
            if publish:
                # not done once more: nobody gets the location if that is interrupted
                location._publish(durable=durable)
            elif durable:
                system.fsync_dir(os.path.dirname(location.work) or ".")
        except OSError:
            location.discard()
            raise
        return location

    def _publish(self, *, durable: bool = False) -> None:
        """Give the file its name, in place of what was there; nothing to do if it has it.

        Parameters
        ----------
        durable : bool
            Bring the name to stable storage, once in the life of the file: an earlier flush may have been content with
            less.

        Raises
        ------
        OSError
            It has its temporary name still, and this may be called again.
        """
        with _named(self.path, "the file cannot get its name: "):
            if not self.published:
                if self._nameless():
                    self._name_again()
                elif self.exclusive:
                    self._rename(self.path, replace=False)
                else:
                    self.held.may_replace(self.path)
                    self._rename(self.path)
                self.exclusive, self._folder = False, "unsynced"
                if self.takes_over:
                    with suppress(OSError):
                        self.system.unlink(self.kept_as)
                self._origin = None
                self.held.only(self.key)
                try:
                    forget_journal(self.system, self.path)
                except OSError:
                    # it has its name all the same
                    self.note_published()
                    raise
                self.note_published()
            self._name_for_good(durable=durable)

    publish = done_whole(_publish)

    def _rename(self, target: str, *, replace: bool = True) -> None:
        """Give the file a name, unless an interrupted call has given it this one."""
        try:
            if replace:
                self.system.rename(self.work, target)
            else:
                name_new(self.system, self.work, target)
        except (FileNotFoundError, FileExistsError):
            if self.held.where(target, self.key) is None:
                raise

    def _name_for_good(self, *, durable: bool) -> None:
        if durable and self._folder == "unsynced" and self._there() is not None:
            self.system.fsync_dir(os.path.dirname(self.work) or ".")
            self._folder = "synced"

    def note_published(self) -> None:
        """The file has its name: on the ranks that did not publish it, too."""
        self.work, self.unseen, self.kept_as = self.path, False, ""

    @done_whole
    def keep(self, *, durable: bool) -> None:
        """Have a whole file under one temporary name after a flush until `publish`: a new layout takes it now.

        Parameters
        ----------
        durable : bool
            As of `publish`.

        Raises
        ------
        OSError
            This may be called again.
        """
        with _named(self.path):
            if self.takes_over:
                self._rename(self.kept_as)
                self.held.drop(self._origin)
                self._origin, self._folder = None, "unsynced"
            self.note_kept()
            self._name_for_good(durable=durable)

    def note_kept(self) -> None:
        """A flush is complete in the file, which keeps its temporary name: on the ranks that did not see to it, too."""
        self.work = self.kept_as = self.kept_as or self.work

    def note_unsynced(self, error: SyncError) -> None:
        """The file could not be synced: it never takes the place of another one."""
        self.unsynced = error.to_keep()

    def copy(self) -> Location:
        """Return a new, empty file beside this one that takes its place when published."""
        there = self._there() or self.held.stat(self.key)
        work = beside(self.system, self.path, "pnctmp")
        made = Location(
            self.system, self.path, work, exclusive=self.exclusive, unseen=self.unseen, held=self.held,
            kept_as=self.kept_as,
        )  # fmt: skip
        made.replaces = self.replaces
        made._origin = self.key if self.at_stake else self._origin
        with _named(self.path):
            made.key = write_new(self.system, made.work, b"", 0o600, held=self.held)
            from pnc_vol.disk.identity import make_alike

            try:
                make_alike(self.system, self.work, there, made.work, self.path)
            except BaseException:
                made.discard()
                raise
        return made

    def _there(self) -> os.stat_result | None:
        """Return what the system says of the file, under its name, which is followed; None if it has none any more."""
        if self.work != self.path:
            return self.held.where(self.work, self.key)
        there = self.held.where(self.path, self.key)
        name = self.held.name_of(self.key) if there is None else ""
        if name:
            self.path = self.work = name
            return self.held.where(name, self.key)
        return there

    def _name_again(self) -> None:
        """Give the new layout the name that the file had."""
        try:
            self._rename(self.path, replace=False)
        except FileExistsError:
            self._kept = True
            text = (
                "another file has taken this name since it was opened, and is not replaced; the complete file is "
                f"{self.work}: rename it"
            )
            raise FileExistsError(errno.EEXIST, text, self.path) from None

    def refusal(self) -> SyncError:
        """Return why the file that has the name is not replaced; the one that should take its place is kept."""
        assert self.unsynced is not None
        self._kept = True
        text = (
            f"the new file could not be brought to stable storage ({self.unsynced.strerror}), so the file with this "
            f"name is not replaced. What was written is in {self.work}, as far as the system kept it: check it, and "
            "write the data again"
        )
        return SyncError(self.unsynced.errno, text, self.path)

    def _nameless(self) -> bool:
        """Return whether the file that this one is to replace has no name any more; its name is followed."""
        if self.unseen or self._origin is None or self.held.where(self.path, self._origin) is not None:
            return False
        name = self.held.name_of(self._origin)
        self.path = name or self.path
        return not name

    def discard(self) -> None:
        """Remove the file if it is not under its name, and nothing was flushed to it."""
        if not self.at_stake and not self._kept:
            self.held.drop(self.key)
            self.remove_work()

    def remove_work(self) -> None:
        """Remove the temporary name as `discard` does; the file stays open, and a cache keeps nothing for it."""
        if not self.at_stake and not self._kept:
            with suppress(OSError):
                self.system.unlink(self.work)

    def replace_header(
        self, driver: Driver, old: bytes, new: bytes, parts: Parts, *, sync: Callable[[], None] | None = None
    ) -> None:
        """Put `new` where `old` is, in the file that `driver` has open: the bytes that differ.

        Parameters
        ----------
        driver : Driver
        old, new : bytes
        parts : where they differ
        sync : callable, optional
            Brings the file that has the name to stable storage: each step is safe before the next one begins, so that
            not even a power failure leaves a part of a header without a journal.

        Raises
        ------
        OSError
            The old header is in the file, or else the journal is kept, and the next open completes it.
        """
        try:
            # A write that is done or not, as that of the number of records, needs no journal.
            kept = not is_atomic(parts) and self._keep_journal(old, new, parts, sync)
            if not kept and self._folder == "journal removed":
                # To that journal, if it comes back, this header may seem torn: the folder is synced again.
                self._folder = "unsynced"
            below = driver.holder.below or driver
            for at, _, end in parts:
                below.write_one(memoryview(new)[at:end], at)
            if kept:
                self._drop_journal(sync)
        except OSError as error:
            # What failed first says more; what cannot be restored now is, before the next header.
            with suppress(OSError):
                self.restore_header(driver)
            with _named(self.path):
                raise error

    def _keep_journal(self, old: bytes, new: bytes, parts: Parts, sync: Callable[[], None] | None) -> bool:
        """Make the journal; False if the file needs none: nobody opens it before a flush is complete."""
        there = self._there() if self.at_stake else None
        if there is None:
            return False
        if self._torn is None:
            # Who may read the file must be able to read its header, wherever that is.
            mode = 0o600 | there.st_mode & 0o666
            if self._journal[0] != self.work:
                self._journal = self.work, journal_path(self.work)
            content = content_of(there.st_ino, old, new, parts)
            write_journal(self.system, self._journal[1], content, mode, durable=sync is not None)
            if sync is not None:
                self._folder = "synced"
        self._torn = old, sync
        return True

    def _drop_journal(self, sync: Callable[[], None] | None) -> None:
        """The header is in the file: the journal goes, and says so no more."""
        if sync is not None:
            sync()
        try:  # noqa: SIM105 (`suppress` takes longer than the call)
            self.system.unlink(self._journal[1])
        except FileNotFoundError:
            pass  # an interruption came after it had gone
        self._torn = None
        if sync is not None and self._folder == "synced":
            self._folder = "journal removed"

    def sync_data(self) -> None:
        """Bring what is in the file to stable storage, by the descriptor that rank 0 holds; on rank 0.

        The descriptor stands for the file whatever its name has become.

        Raises
        ------
        SyncError
        """
        try:
            self.system.fdatasync(self.fd)
        except OSError as error:
            raise SyncError(error.errno, f"{self.path}: {error.strerror}") from error

    def restore_header(self, driver: Driver) -> None:
        """Put back, before the next header, the one that a failed replacement may have left half done.

        Raises
        ------
        OSError
            The journal is kept, for the next attempt or the next open.
        """
        if self._torn is not None and not exists(self.system, self._journal[1]):
            self._torn = None  # an interruption came after it had gone: the header is whole
        if self._torn is not None:
            old, sync = self._torn
            (driver.holder.below or driver).write_one(old, 0)
            self._torn = None
            if sync is not None:
                try:
                    sync()
                except OSError:
                    # Nobody knows what of it is on stable storage; there the journal may be needed.
                    return
            forget_journal(self.system, self.work)
            if self._folder == "synced":
                self._folder = "journal removed"


class _named:
    """Let errors name the user's file, not the temporary one or the journal.

    doing : str, what failed, to begin the message with.
    """

    __slots__ = ("doing", "path")

    def __init__(self, path: str, doing: str = "") -> None:
        self.path, self.doing = path, doing

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, OSError) or not error.errno:
            return
        doing = self.doing if error.strerror == os.strerror(error.errno) else ""
        if doing or error.filename != self.path:
            raise type(error)(error.errno, f"{doing}{error.strerror}", self.path) from error
