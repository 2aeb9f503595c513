"""`File` is h5py's; it says how long a file stays open.

Knows: sessions. Does not know: how requests are executed; what keywords mean and how a file is opened (`opening`).

Rules
-----
1. Closing is flushing: what was posted is in the file. With several ranks, `flush` and `close` are collective.
2. A ``with`` block that ends with an exception closes the file; with several ranks it only releases it
   (`Session.abort`), because the others may never call close.
3. A file without references is closed, at the latest when the interpreter exits; see `file.registry`.
4. A file that is opened twice in a process is one session with two handles; see `file.registry`.
"""

from __future__ import annotations

import inspect
import itertools
import os
from abc import ABCMeta
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pnc_vol.api.group import Group
from pnc_vol.api.ids import FileID, ObjectID
from pnc_vol.api.module import get_config
from pnc_vol.api.objects import stands_for
from pnc_vol.errors import NotCDFError, printable
from pnc_vol.file import report
from pnc_vol.mapping.dimensions import declare
from pnc_vol.queue.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, TypedDict

    from typing_extensions import Unpack

    from pnc_vol.system import System

    class FileOptions(TypedDict, total=False):
        """Keywords of `File`, for type checkers: what h5py's does not have, and those of h5py's drivers ``core`` and
        ``fileobj``. What they mean is in `pnc_vol.settings.options`."""

        format: str | int
        buffer_size: int | str
        var_align: int | str
        record_align: int | str
        header_reserve: int | str | None
        publish: Literal["create", "close"]
        on_overflow: Literal["raise", "clip"]
        strict: bool
        external_links: Literal["below", "any", "none"]
        hdf5: Literal["auto", "pass", "refuse"]
        ordered: bool
        collective_timeout: float | None
        durable: bool
        separator: str
        layout: str
        subfiles: int
        ranks_per_subfile: int
        transport: str
        aggrs_per_node: int
        store: str
        burst_buf: bool
        burst_buf_dirname: str
        burst_buf_del_on_close: bool
        burst_buf_flush_buffer_size: int | str
        burst_buf_overwrite: bool
        burst_buf_shared_logs: bool
        burst_buf_sync: Literal["none", "flush", "each"]
        burst_buf_capacity: int | str
        recover: bool | Literal["any-file"]
        storage_options: Mapping[str, Any] | None
        hints_file: str
        system: System
        # of drivers, as h5py has them
        backing_store: bool
        block_size: int
        fileobj: Any


__all__ = ["File"]

_in_memory = itertools.count()


class FileClass(ABCMeta):
    """A class whose instance may turn out to be h5py's own `File`; see the option ``hdf5``."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            try:
                return super().__call__(*args, **keywords)
            except NotCDFError:
                # few programs open files that h5py has to read
                from pnc_vol.api.hdf5_files import instead

                found = instead(cls, args, keywords)
                if found is None:
                    raise
                return found

        @property
        def __signature__(cls) -> inspect.Signature:
            found = inspect.signature(cls.__init__)
            return found.replace(parameters=list(found.parameters.values())[1:])


@stands_for("file")
class File(Group, metaclass=FileClass):
    """A NetCDF file, with h5py's interface.

    Parameters
    ----------
    name : str, bytes, path-like or file-like object
        An object with ``read`` and ``seek`` (and ``write``, to be written), binary; it is the file, and stays open.
    mode : {"r", "r+", "w", "w-", "x", "a"}
        Read; read and write; create and replace; create a new one (``"w-"``, ``"x"``); read and write or create.
    driver : str or None
        None, ``"sec2"``, ``"stdio"`` and ``"posix"``: the operating system. ``"memory"``: no file at all.
        ``"core"``: as in h5py, with ``backing_store=False`` in memory alone. ``"fileobj"``: a file-like object.
        ``"mpio"``: MPI-IO over `comm`. Any other text is a stack of drivers,
        such as ``"trace | posix"``.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks that share the file; opening, flushing and closing are then collective.
    info : mpi4py.MPI.Info or mapping, optional
        Hints, as PnetCDF has them.
    hints : mapping, optional
        More of them.
    **kwds
        h5py's other keywords, which are checked and mostly have no effect.
        Options: ``format`` ("CDF-5", "CDF-2", "CDF-1"), ``buffer_size``, ``header_reserve``, ``var_align``,
        ``publish``, ``on_overflow``, ``durable``, ``ordered``, ``strict``, ...; see `pnc_vol.settings.options.Options`.

    Raises
    ------
    OSError
        `FileNotFoundError`, `FileExistsError`, `PermissionError`, ... as h5py does; `FormatError` for a file that is
        no NetCDF file.
    ValueError
        An unknown mode, driver or option value.
    TypeError
        An unknown keyword.

    Examples
    --------
    >>> with File("example.nc", "w", driver="memory") as f:
    ...     f["a/b"] = [1, 2, 3]
    ...     f["a/b"][1].item()
    2
    """

    _id: FileID

    def __init__(
        self,
        name: Any,
        mode: str = "r",
        driver: str | None = None,
        libver: Any = None,
        userblock_size: int | None = None,
        swmr: bool = False,
        rdcc_nslots: int | None = None,
        rdcc_nbytes: int | None = None,
        rdcc_w0: float | None = None,
        track_order: bool | None = None,
        fs_strategy: str | None = None,
        fs_persist: bool = False,
        fs_threshold: int = 1,
        fs_page_size: int | None = None,
        page_buf_size: int | None = None,
        min_meta_keep: int = 0,
        min_raw_keep: int = 0,
        locking: Any = None,
        alignment_threshold: int = 1,
        alignment_interval: int = 1,
        meta_block_size: int | None = None,
        *,
        track_times: bool | None = False,
        comm: Any = None,
        info: Any = None,
        hints: Any = None,
        **kwds: Unpack[FileOptions],
    ) -> None:
        if isinstance(name, ObjectID):
            super().__init__(FileID(name.handle, name.handle.session.defs.tree.root))
            return
        h5 = {
            "libver": libver,
            "userblock_size": userblock_size,
            "swmr": swmr,
            "rdcc_w0": rdcc_w0,
            "fs_strategy": fs_strategy,
            "locking": locking,
            "alignment_interval": alignment_interval,
            "track_times": track_times,
            "track_order": track_order,
        }
        opening = _opening(comm, keywords=kwds, hints=hints, info=info)
        handle = opening.open_handle(opening.Given(name, mode, driver, comm, info, hints, h5, kwds))
        session = handle.session
        first = session.disk.created and handle.ref.last
        if first and (get_config().track_order if track_order is None else track_order):
            session.defs.tree.root.order = {}
            session.defs.tree.touch()
        super().__init__(FileID(handle, session.defs.tree.root))

    @classmethod
    def in_memory(cls, file_image: Any = None, **kwargs: Any) -> File:
        """Return a file that exists in memory only and is discarded when it is closed.

        Parameters
        ----------
        file_image : bytes-like, optional
            What it holds at first; copied. ``f.id.get_file_image()`` gives such bytes.
        **kwargs
            As of `File`, but for the name, `mode`, `driver` and what has to do with files.

        Raises
        ------
        TypeError
            A keyword that means nothing here, or `file_image` is no bytes-like object.
        OSError
            The image is no NetCDF file (`FormatError`).

        Examples
        --------
        >>> with File.in_memory() as f:
        ...     f["x"] = [1, 2]
        ...     image = f.id.get_file_image()
        >>> image[:4], File.in_memory(image)["x"][1].item()
        (b'CDF\\x05', 2)
        """
        root = _opening().root_in_memory(file_image, kwargs)
        name = f"pnc_vol_in_memory_nonfile_{next(_in_memory)}"
        return cls(name, "a", driver="core", backing_store=False, fileobj=root, **kwargs)

    @property
    def filename(self) -> str:
        """The name that the file was opened by."""
        self._id.check()
        return self._id.handle.filename

    @property
    def mode(self) -> str:
        """``"r"`` or ``"r+"``."""
        self._id.check()
        return "r+" if self._id.handle.writable else "r"

    @property
    def driver(self) -> str:
        """The driver name or stack that was given; ``"sec2"`` by default, as in h5py."""
        self._id.check()
        return self._id.handle.driver

    @property
    def libver(self) -> tuple[str, str]:
        """The value of the keyword, as h5py shows it."""
        self._id.check()
        return self._id.handle.libver

    @property
    def userblock_size(self) -> int:
        """0: there is no user block."""
        self._id.check()
        return 0

    @property
    def swmr_mode(self) -> bool:
        """Whether the file was opened with ``swmr=True``, or this was set to True.

        It changes nothing: after each flush other processes can open the file, and readers call ``ds.refresh()``.

        Raises
        ------
        RuntimeError
            On setting it to True, in a file that is open for reading, or was created without ``libver="latest"``, or
            has it set already.
        ValueError
            On setting it to False.
        """
        return self._id.check().swmr or self._id.handle.swmr

    @swmr_mode.setter
    def swmr_mode(self, value: bool) -> None:
        session = self._id.check()
        _opening().start_swmr(session, self._id.handle, value)

    @property
    def atomic(self) -> bool:
        """MPI's atomic mode: a write is in the file when it returns, not at the flush. Setting it is collective."""
        return self._id.check().posted.at_once

    @atomic.setter
    def atomic(self, value: bool) -> None:
        self._id.set_mpi_atomicity(bool(value))

    @property
    def format(self) -> str:
        """``"CDF-5"``, ``"CDF-2"`` or ``"CDF-1"``."""
        return f"CDF-{self._id.check().defs.version}"

    @property
    def numrecs(self) -> int:
        """Records in the file: the length of the unlimited dimension."""
        return self._id.check().defs.numrecs

    def create_dimension(self, name: str, size: int | None) -> None:
        """Declare a NetCDF dimension, which then stays in the file, whether or not a dataset uses it.

        Dimensions are in the file in the order in which they are declared; those that are not declared follow, in the
        order in which datasets use them. Declaring one again, with the same length, has no effect.

        Parameters
        ----------
        name : str
        size : int or None
            None makes it the record dimension, of which a file has at most one.

        Raises
        ------
        ValueError
            A name that NetCDF does not allow, a length below 1, another length than the dimension has, a second record
            dimension, or the file is open for reading.

        Examples
        --------
        >>> with pnc_vol.File("dims.nc", "w") as f:
        ...     f.create_dimension("time", None)
        ...     f.create_dimension("x", 3)
        ...     time = f.create_dataset("time", (0,), "f8", maxshape=(None,), dims=("time",))
        ...     t = f.create_dataset("t", (0, 3), "f4", maxshape=(None, 3), dims=("time", "x"))
        ...     t.dims[0][0] == time, t.dims[1].label
        (True, 'x')
        """
        session = self._id.check()
        with session.lock:
            session.check_open()
            self._id.handle.check_writable("create dimension")
            declare(session.defs.tree, name, size)

    @property
    def hints(self) -> dict[str, str]:
        """The hints in force: PnetCDF's, as far as they are known here, and those that MPI-IO gets.

        Its attribute ``sources`` says what set each one: ``"default"``, ``"hints="``, ``"info"``, an environment
        variable, a keyword argument, or a line of a hint file.
        """
        from pnc_vol.api.hints import hints_in_force

        return hints_in_force(self._id.check())

    # ------------------------------------------------------------------------------------- requests

    def statistics(self) -> dict[str, Any]:
        """Return the counts of what was done for this file on this rank, by name; ``last_flush`` is a `FlushReport` as
        a dict."""
        return self._id.check().statistics()

    def plan(self) -> report.FlushPlan:
        """Return what a flush would write for this rank now, going by its own requests; nothing is written.

        Returns
        -------
        FlushPlan
            requests, runs, extents, nbytes; and ``writes``, the plans that the flush would execute, which it prints.
            In a set of subfiles ``unplaced`` names new datasets, on whose places ranks agree at the flush. With several
            ranks, ``choice`` says how they would write together, and why, if no other rank has posted more.

        Raises
        ------
        ValueError
            The file is closed.

        Examples
        --------
        >>> with pnc_vol.File("plan.nc", "w") as f:
        ...     x = f.create_dataset("x", (100, 8), "f8")
        ...     for i in range(100):
        ...         x[i] = i
        ...     print(f.plan())
        plan.nc: 100 requests, 100 runs -> 1 extents, 6400 bytes, 1 writes
        100 runs of 1 variables, 6400 bytes -> 1 extents, 6400 bytes, shared
          file         4264 .. 10664        from memory 0
        """
        session = self._id.check()
        with session.lock:
            session.check_open()
            return report.planned(session.defs, session.disk, session.posted, session.transport)

    @property
    def requests(self) -> dict[int, Request]:
        """The requests of this rank that are not done, by id."""
        session = self._id.check()
        return session.posted.waiting(session)

    def wait_all(self, requests: Iterable[Request] | None = None) -> None:
        """Complete requests.

        Parameters
        ----------
        requests : iterable of Request, optional
            These, without any other rank. By default all that are pending, by a flush: then every rank calls it.

        Raises
        ------
        OSError
            Some failed.
        RequestPendingError
            With several ranks: one of them writes to a variable that has no place in the file before the next flush.

        Examples
        --------
        >>> with pnc_vol.File("wait.nc", "w") as f:
        ...     x = f.create_dataset("x", (3,), "f8")
        ...     one, two = x.iput(0, 1.0), x.iput(1, 2.0)
        ...     f.wait_all([one])
        ...     f.wait_all()
        ...     two.status, len(f.requests)
        ('done', 0)
        """
        self._id.check().wait(None if requests is None else list(requests))

    def cancel(self, requests: Iterable[Request] | Request | None = None) -> None:
        """Discard requests of this rank that are not in the file yet; not collective.

        After a `FlushError` this is the way to go on without the requests that failed. Reads see the file again. What
        a full queue or an earlier flush wrote already stays, and so do definitions and shapes.

        Parameters
        ----------
        requests : iterable of Request, Request, optional
            These alone. By default everything that is pending, ``ds[...] = x`` included, which has no `Request`.

        Raises
        ------
        ValueError
            One of the requests is done, or was posted to another file; none is dropped then.

        Examples
        --------
        >>> with pnc_vol.File("cancel.nc", "w") as f:
        ...     x = f.create_dataset("x", data=[1, 2, 3])
        ...     f.flush()
        ...     x[:] = 0
        ...     f.cancel()
        ...     x[:].tolist()
        [1, 2, 3]
        """
        self._id.check().cancel([requests] if isinstance(requests, Request) else requests)

    def flush(self, durable: bool | None = None, *, progress: Callable[[int, int], None] | None = None) -> None:
        """Put all that was posted, and all definitions, into the file; collective with several ranks.

        Parameters
        ----------
        durable : bool, optional
            Return when everything is on stable storage; by default as the option `durable` says.
        progress : callable, optional
            Called as ``progress(done, total)`` after each write, in bytes: how many this rank has written, and how many
            it posted. With several ranks a rank may write what others posted. It must not use the file.

        Raises
        ------
        FlushError
            Requests failed; they stay pending, all others are done, and flush may be called again.
        RankError
            Another rank failed, or ranks differ in what they defined.

        Examples
        --------
        >>> with pnc_vol.File("flush.nc", "w") as f:
        ...     f["x"] = [1, 2, 3]
        ...     f.flush()
        ...     f.statistics()["last_flush"]["nbytes"]
        24
        """
        self._id.check().flush(durable=durable, progress=progress)

    def sync(self) -> None:
        """Flush, and return when the data are in the file itself, not in node-local caches; collective as `flush`.

        Raises
        ------
        FlushError, RankError
            As `flush`. What a cache holds is not lost, and `sync` may be called again.

        Examples
        --------
        >>> with pnc_vol.File("sync.nc", "w", hints={"e10_cache_path": "."}) as f:
        ...     f["x"] = [1, 2, 3]
        ...     f.sync()
        ...     with open("sync.nc", "rb") as disk, pnc_vol.File(disk) as other:
        ...         other["x"][:].tolist()
        [1, 2, 3]
        """
        self._id.check().flush(what="sync", carried=True)

    # -------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Flush and close (collective with several ranks); every object of the file is false from then on.

        Raises
        ------
        FlushError
            Requests failed; what they hold is lost.

        Examples
        --------
        >>> f = pnc_vol.File("close.nc", "w")
        >>> f.close()
        >>> bool(f)
        False
        """
        self._id.handle.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        handle = self._id.handle
        if handle.closed:
            return
        if kind is not None and handle.session.comm.size > 1:
            handle.session.abort(f"{kind.__name__}: {error}")
        else:
            handle.close()

    def __repr__(self) -> str:
        if not self:
            return "<Closed NetCDF file>"
        return printable(f'<NetCDF file "{os.path.basename(self.filename)}" (mode {self.mode})>')


def _opening(comm: Any = None, **given: Any) -> Any:
    try:
        # Loaded with the first file: `import pnc_vol` reads few files, which counts on a cluster's file system.
        from pnc_vol.api import opening
    except ImportError as error:
        # The other ranks wait in the exchange that begins an open: they are told.
        if comm is not None:
            from pnc_vol.ranks.mpi_comm import over
            from pnc_vol.settings import options

            over(comm, timeout=options.collective_timeout(**given)).agree("open", error=error)
        raise
    return opening
