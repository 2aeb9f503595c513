"""These systems fail, stop, record and are slow, in place of a `System`; calls inside the package can fail, too.

Knows: the calls of `pnc_vol.system.System`, Python's profiler, a clock. Does not know: drivers, files' formats.

    FaultSystem      the n-th call fails, once or for ever, or writes only half
    StopSystem       from the n-th call on nothing happens any more, as if the process had been killed there
    TraceSystem      every call is written down, and the order of two of them can be asserted
    ThrottledSystem  files below one folder are slow: processes share a bandwidth, and each call has a latency
    FailingCalls     memory runs out at the n-th use of numpy, or in the n-th function

Rules
-----
1. Each stands on another system, so that they can be combined: ``TraceSystem(FaultSystem(REAL, fail_at=3))``.
2. Calls are counted from 1. A test that sweeps ``fail_at`` from 1 up ends when `fired` stays False.
3. The slow file system is one queue: a call waits until those that came before it, of any process, are done. It takes
   its bytes divided by the bandwidth, and the latency besides, during which others go on. It waits asleep, so that
   other threads and processes compute meanwhile. The kernel does not copy between a slow file and another one, as
   between two file systems of different kinds.
"""

from __future__ import annotations

import errno
import errno as errnos
import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pnc_vol.system import CALLS, REAL, System

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "CALLS", "CHANGING", "Call", "FailingCalls", "FaultSystem", "HookedSystem", "StopSystem", "Stopped",
    "ThrottledSystem", "TraceSystem", "nbytes_of",
]  # fmt: skip

#: Calls that change a file or a directory; `open` may, with O_CREAT or O_TRUNC.
CHANGING = frozenset(
    {"open", "pwrite", "pwritev", "ftruncate", "fallocate", "fsync", "fdatasync", "fsync_dir", "rename", "link"}
    | {"unlink", "mkdir", "rmdir", "fchmod", "fchown", "copy_range"}
)


class HookedSystem(System):
    """Passes every call through `call`, which a subclass overrides."""

    def __init__(self, inner: System = REAL) -> None:
        self.inner = inner

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the call `name`; the default does it on the inner system."""
        return getattr(self.inner, name)(*args, **kwargs)


def _hook(name: str) -> Callable[..., Any]:
    def hooked(self: HookedSystem, *args: Any, **kwargs: Any) -> Any:
        return self.call(name, args, kwargs)

    hooked.__name__ = name
    return hooked


for _name in CALLS:
    setattr(HookedSystem, _name, _hook(_name))


def _shortened(name: str, args: tuple[Any, ...], nbytes: int) -> tuple[Any, ...]:
    """Return the arguments of a `pwrite` or `pwritev` that writes only its first `nbytes` bytes."""
    fd, data, offset = args
    joined = b"".join(bytes(part) for part in data) if name == "pwritev" else bytes(data)
    return fd, joined[:nbytes], offset


def nbytes_of(name: str, args: tuple[Any, ...]) -> int:
    """Return the number of bytes that a call asks for; 0 for one that moves none."""
    if name in ("preadv", "pwritev"):
        return sum(memoryview(part).nbytes for part in args[1])
    if name in ("pread_into", "pwrite"):
        return memoryview(args[1]).nbytes
    if name in ("fallocate", "copy_range"):
        return int(args[2])
    return 0


class FaultSystem(HookedSystem):
    """The n-th call fails.

    Parameters
    ----------
    inner : System
    fail_at : int
        Which of the counted calls, from 1; 0 for none.
    errno : int
        The error's number.
    mode : {"once", "forever", "short", "short-forever"}
        ``"forever"``: the calls after it fail too. ``"short"``: a write writes half of its bytes (of one byte, none)
        and says so, without an error; the next are whole. ``"short-forever"``: half, then the error for ever, as a
        file size limit or a full disk does it.
    calls : set of str
        The names that are counted.

    Attributes
    ----------
    count : int
        Counted calls so far.
    fired : bool
        Whether the fault happened.

    Examples
    --------
    >>> system = FaultSystem(REAL, fail_at=1, errno=28, calls={"pwrite"})
    >>> system.pwrite(0, b"x", 0)
    Traceback (most recent call last):
        ...
    OSError: [Errno 28] No space left on device
    """

    def __init__(
        self,
        inner: System = REAL,
        *,
        fail_at: int,
        errno: int = errnos.ENOSPC,
        mode: Literal["once", "forever", "short", "short-forever"] = "once",
        calls: Iterable[str] = ("pwrite", "pwritev"),
    ) -> None:
        super().__init__(inner)
        self.fail_at = fail_at
        self.errno = errno
        self.mode = mode
        self.calls = _checked(calls)
        self.count = 0
        self.fired = False
        self._lock = threading.Lock()

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name not in self.calls:
            return super().call(name, args, kwargs)
        with self._lock:
            self.count += 1
            here = self.count == self.fail_at
            later = 0 < self.fail_at < self.count
            self.fired |= here
        if here and self.mode.startswith("short") and name in ("pwrite", "pwritev"):
            half = nbytes_of(name, args) // 2
            return self.inner.pwrite(*_shortened(name, args, half)) if half else 0
        if (here and self.mode in ("once", "forever")) or (later and self.mode.endswith("forever")):
            raise OSError(self.errno, os.strerror(self.errno))
        return super().call(name, args, kwargs)

    def heal(self) -> None:
        """Let everything through from now on."""
        self.fail_at = 0


def _checked(calls: Iterable[str]) -> frozenset[str]:
    names = frozenset(calls)
    if not names <= set(CALLS):
        raise ValueError(f"A System has no calls {sorted(names - set(CALLS))}")
    return names


class Stopped(BaseException):
    """The process would be dead here. No `except Exception` may catch it, as none could catch a kill."""


class StopSystem(HookedSystem):
    """From the n-th call on nothing happens: the state of the files is that of a process killed there.

    Parameters
    ----------
    inner : System
    stop_at : int
        Which of the counted calls, from 1, is the first that does not happen; 0 for none.
    torn : int, optional
        If that call is a write: bytes of it that still reach the file.
    calls : set of str
        The names that are counted; once stopped, every call raises.

    Attributes
    ----------
    count : int
    fired : bool

    Notes
    -----
    `bury` closes the descriptors that the dead process held, and with them its locks.
    """

    def __init__(
        self, inner: System = REAL, *, stop_at: int, torn: int | None = None, calls: Iterable[str] = CHANGING
    ) -> None:
        super().__init__(inner)
        self.stop_at = stop_at
        self.torn = torn
        self.calls = _checked(calls)
        self.count = 0
        self.fired = False
        self._open: set[int] = set()
        self._lock = threading.Lock()

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            if self.fired:
                raise Stopped(f"{name} after the stop")
            if name in self.calls:
                self.count += 1
                if self.count == self.stop_at:
                    self.fired = True
                    if self.torn and name in ("pwrite", "pwritev"):
                        self.inner.pwrite(*_shortened(name, args, self.torn))
                    raise Stopped(f"{name}, call {self.count}")
            result = super().call(name, args, kwargs)
            if name == "open":
                self._open.add(result)
            elif name == "close":
                self._open.discard(args[0])
            return result

    def bury(self) -> None:
        """Close what the stopped process held open."""
        with self._lock:
            self.fired = True
            while self._open:
                self.inner.close(self._open.pop())


class Call(NamedTuple):
    """One call that was made.

    number : int, from 1.
    name : str
    path : str, the file's path; for a descriptor, the path it was opened with or has got since by `rename`; for a
        `rename` and a `link`, the new name.
    offset : int, bytes from the start of the file, or -1.
    nbytes : int, bytes asked for, or 0.
    result : object, what it returned, or the exception.
    """

    number: int
    name: str
    path: str
    offset: int
    nbytes: int
    result: Any


class TraceSystem(HookedSystem):
    """Writes every call down.

    Attributes
    ----------
    log : list of Call

    Examples
    --------
    >>> system = TraceSystem()
    >>> fd = system.open("/dev/null", 1)
    >>> system.pwrite(fd, b"abc", 4)
    3
    >>> system.close(fd)
    >>> [(call.name, call.offset) for call in system.log]
    [('open', -1), ('pwrite', 4), ('close', -1)]
    """

    def __init__(self, inner: System = REAL) -> None:
        super().__init__(inner)
        self.log: list[Call] = []
        self._paths: dict[int, str] = {}
        self._lock = threading.Lock()

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            result = super().call(name, args, kwargs)
        except BaseException as error:
            self._note(name, args, error)
            raise
        self._note(name, args, result)
        return result

    def _note(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        target = args[1 if name in ("rename", "link", "copy_range") else 0] if args else ""
        offset = -1
        if name in ("pread_into", "preadv", "pwrite", "pwritev"):
            offset = args[2]
        elif name in ("ftruncate", "fallocate"):
            offset = args[1]
        elif name == "copy_range":
            offset = args[4]
        with self._lock:
            path = self._paths.get(target, "") if isinstance(target, int) else os.fsdecode(target)
            if name == "open" and isinstance(result, int):
                self._paths[result] = path
            elif name == "rename" and result is None:
                source = os.fsdecode(args[0])
                self._paths = {fd: path if known == source else known for fd, known in self._paths.items()}
            self.log.append(Call(len(self.log) + 1, name, path, offset, nbytes_of(name, args), result))

    def matching(self, **fields: Any) -> list[Call]:
        """Return the calls whose fields have these values; a set or tuple is any of its values, a function is asked.

        Examples
        --------
        >>> TraceSystem().matching(name={"pwrite", "pwritev"}, offset=lambda offset: offset >= 32)
        []
        """

        def fits(value: Any, wanted: Any) -> bool:
            if callable(wanted):
                return bool(wanted(value))
            return value in wanted if isinstance(wanted, (set, frozenset, tuple, list)) else bool(value == wanted)

        return [call for call in self.log if all(fits(getattr(call, key), want) for key, want in fields.items())]

    def assert_order(self, *steps: dict[str, Any]) -> None:
        """Each step happened, and all calls of a step came before all calls of the next one.

        Parameters
        ----------
        *steps : dict
            What `matching` takes.

        Raises
        ------
        AssertionError
            With the calls in question.
        """
        found = [self.matching(**step) for step in steps]
        for step, calls in zip(steps, found, strict=True):
            assert calls, f"no call {step} among {[call.name for call in self.log]}"
        for i in range(1, len(found)):
            before, after = found[i - 1][-1], found[i][0]
            assert before.number < after.number, f"{before} of step {i} came after {after} of step {i + 1}"


class FailingCalls:
    """Inside, the n-th call raises MemoryError in this thread, once.

    Parameters
    ----------
    fail_at : int
        Which call, from 1; 0 for none.
    functions : tuple of str, optional
        Beginnings of module names: their functions are counted, where one of the package calls them. By default what
        is counted are the package's calls of numpy: functions, and methods of arrays.

    Attributes
    ----------
    count : int
        Counted calls so far.
    fired : str
        Where the failure happened; empty if it did not.

    Examples
    --------
    >>> from pnc_vol.extents.model import before
    >>> with FailingCalls(1) as failing:
    ...     before(np.ones(3, np.int64))
    Traceback (most recent call last):
        ...
    MemoryError: no memory left for call 1: pnc_vol.extents.model, line ...
    """

    def __init__(
        self, fail_at: int, *, functions: tuple[str, ...] = (), callers: tuple[str, ...] = ("pnc_vol.",)
    ) -> None:
        self.fail_at = fail_at
        self.count = 0
        self.fired = ""
        self._functions = functions
        self._callers = callers

    def __enter__(self) -> Self:
        sys.setprofile(self._seen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            caller, counts = frame, not self._functions and _is_numpys(called)
        elif event == "call" and frame.f_back is not None:
            caller, module = frame.f_back, frame.f_globals.get("__name__", "")
            counts = module.startswith(self._functions or "numpy")
        else:
            return
        name = caller.f_globals.get("__name__", "")
        if not counts or not name.startswith(self._callers) or name.startswith("pnc_vol.testing"):
            return
        self.count += 1
        if self.count == self.fail_at:
            what = f" in {frame.f_code.co_name}" if event == "call" else ""
            self.fired = f"{name}, line {caller.f_lineno}{what}"
            sys.setprofile(None)
            raise MemoryError(f"no memory left for call {self.count}: {self.fired}")


def _is_numpys(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    return isinstance(owner, np.ndarray) or str(getattr(called, "__module__", "")).startswith("numpy")


# ----------------------------------------------------------------------------------------------- a slow file system

_MOVES = frozenset(("pread_into", "preadv", "pwrite", "pwritev", "copy_range"))
_WAITS = _MOVES | {"open", "ftruncate", "fsync", "fdatasync", "rename", "unlink", "stat"}
_TIME = struct.Struct("d")
_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux."""


class ThrottledSystem(HookedSystem):
    """A system whose files below one folder are slow.

    Parameters
    ----------
    folder : str, a directory that exists.
    bandwidth : float, bytes per second, of all processes together.
    latency : float, seconds of each call that moves bytes, opens, syncs, cuts or renames.
    shared : str, optional
        A small file by which processes on this machine share the bandwidth; made where it is not there. Without it,
        this object has the bandwidth for itself.
    inner : System

    Attributes
    ----------
    nbytes : int, moved to and from slow files by this object.
    seconds : float, that calls of this object took, of all threads together.

    Examples
    --------
    >>> import tempfile, time
    >>> folder = tempfile.mkdtemp()
    >>> system = ThrottledSystem(folder, bandwidth=1e6)
    >>> fd = system.open(os.path.join(folder, "a"), os.O_RDWR | os.O_CREAT)
    >>> start = time.perf_counter()
    >>> system.pwrite(fd, bytes(100_000), 0)
    100000
    >>> time.perf_counter() - start >= 0.1
    True
    >>> system.close(fd)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        bandwidth: float,
        latency: float = 0.0,
        shared: str | os.PathLike[str] | None = None,
        inner: System = REAL,
    ) -> None:
        super().__init__(inner)
        if not bandwidth > 0 or latency < 0:
            raise ValueError(f"bandwidth={bandwidth}, latency={latency}: more than 0 bytes per second are needed")
        self._below = os.path.join(REAL.realpath(os.fspath(folder)), "")
        self.bandwidth, self.latency = bandwidth, latency
        self._free = 0.0
        self._clock = -1 if shared is None else REAL.open(os.fspath(shared), os.O_RDWR | os.O_CREAT, 0o600)
        self._slow: set[int] = set()
        self._lock = threading.Lock()
        self.nbytes, self.seconds = 0, 0.0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        slow = name in _WAITS and self._is_slow(args[0])
        if name == "copy_range" and slow != self._is_slow(args[1]):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        start = time.monotonic()
        result = super().call(name, args, kwargs)
        if name == "open" and slow:
            with self._lock:
                self._slow.add(result)
        elif name == "close":
            with self._lock:
                self._slow.discard(args[0])
        if slow:
            moved = nbytes_of(name, args) if name in _MOVES else 0
            pause = self._done_at(start, moved) + self.latency - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            with self._lock:
                self.nbytes += moved
                self.seconds += time.monotonic() - start
        return result

    def _is_slow(self, target: Any) -> bool:
        if isinstance(target, int):
            return target in self._slow
        return os.path.join(REAL.realpath(os.path.abspath(os.fsdecode(target))), "").startswith(self._below)

    def _done_at(self, start: float, nbytes: int) -> float:
        """Return when the file system has moved bytes of a call that came at `start`, on the system's monotonic
        clock."""
        takes = nbytes / self.bandwidth
        with self._lock:
            if self._clock < 0:
                self._free = max(self._free, start) + takes
                return self._free
            REAL.record_lock(self._clock, fcntl.F_SETLKW, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            try:
                # a file that was just made reads as time 0
                kept = bytearray(_TIME.size)
                REAL.pread_into(self._clock, kept, 0)
                done: float = max(_TIME.unpack(kept)[0], start) + takes
                REAL.pwrite(self._clock, _TIME.pack(done), 0)
            finally:
                REAL.record_lock(self._clock, fcntl.F_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))
            return done
