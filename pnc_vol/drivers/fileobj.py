"""The file of this root is a Python object: `io.BytesIO`, what `open` returns, whatever can be read and sought.

Knows: the methods of file-like objects. Does not know: paths, descriptors.

Rules
-----
1. Bytes are not kept here: each verb seeks, and reads or writes the object. Other users of the object find its
   position changed. (A file that is built in memory and written at the close would be simpler; it takes memory of the
   size of the file, and nothing would be in the object at a flush.)
2. Whatever the object raises is an `OSError` that names the object and what was called.
3. What the object itself buffers is written at the end of a flush (`end_flush`).
4. `close` does not close the object, which belongs to the caller.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOBase, UnsupportedOperation
from typing import Any

from pnc_vol.drivers.base import Capabilities, Memory
from pnc_vol.drivers.root import Root
from pnc_vol.drivers.vectored_io import get_extents, put_extents
from pnc_vol.extents.model import Extents
from pnc_vol.system import REAL, System

__all__ = ["FileObjectDriver"]


class FileObjectDriver(Root):
    """A file that is a Python object.

    Parameters
    ----------
    target : file-like object
        Binary, with ``read`` and ``seek``; to be written also ``write``. ``readinto``, ``truncate``, ``flush`` and
        ``fileno`` are used if it has them.
    writable : bool
    system : System
        For `sync`, where the object has a descriptor.

    Raises
    ------
    io.UnsupportedOperation
        The object says that it cannot be read, sought or, with `writable`, written. It is an OSError and a ValueError.
    TypeError
        The object gives text.

    Examples
    --------
    >>> from io import BytesIO
    >>> target = BytesIO(b"hello")
    >>> driver = FileObjectDriver(target)
    >>> driver.write(Extents(*np.array([[5], [1], [0]])), np.frombuffer(b"!", np.uint8))
    >>> driver.close()
    >>> target.getvalue()
    b'hello!'
    """

    name = "fileobj"
    capabilities = Capabilities(keeps_file=False, holds_back=True)

    def __init__(self, target: Any, *, writable: bool = True, system: System = REAL) -> None:
        super().__init__(None, writable=writable)
        self._target = target
        self._text = repr(target)
        self._system = system
        self._lock = threading.Lock()
        self._touched = False
        if isinstance(target, TextIOBase):
            raise TypeError(f"{self._text} is a text file; open it in binary mode")
        mode = str(getattr(target, "mode", ""))
        for wanted, method in (("read", "readable"), ("sought", "seekable"), ("written", "writable")):
            able = getattr(target, method, None)
            # fsspec's local files deny that they can be written where their mode is 'rb+'
            asked = wanted != "written" or (writable and "+" not in mode)
            if able is not None and asked and not able():
                raise UnsupportedOperation(
                    f"{self._text} cannot be {wanted}: it is read and written at any offset; "
                    "open it with mode 'rb', 'r+b' or 'w+b'"
                )

    @property
    def target(self) -> Any:
        """The object; None after `close`."""
        return self._target

    # -------------------------------------------------------------------------------------- the verbs

    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        with self._lock:
            return get_extents(extents, memory, self._get)

    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        with self._lock:
            return put_extents(extents, memory, self._put)

    def _size(self) -> int:
        with self._lock:
            return self._end()

    def _resize(self, nbytes: int) -> None:
        with self._lock:
            end = self._end()
            if nbytes > end:
                self._put(memoryview(b"\0"), nbytes - 1)
            elif nbytes < end:
                self._cut(nbytes)

    def _sync(self) -> None:
        self.end_flush()
        fileno = getattr(self._target, "fileno", None)
        try:
            fd = None if fileno is None else fileno()
        except (OSError, ValueError):
            # of `io.BytesIO` and its like: there is no stable storage
            return
        if isinstance(fd, int):
            self._system.fsync(fd)

    def end_flush(self) -> None:
        """Let the object write what it buffers.

        Raises
        ------
        OSError
            The object failed; a later call tries again.
        """
        with self._use, self._lock:
            if self._touched and hasattr(self._target, "flush"):
                with self._calling("flush"):
                    self._target.flush()
            self._touched = False

    def _close(self) -> None:
        self._target = None

    # ------------------------------------------------------------------------------------- the object

    @contextmanager
    def _calling(self, method: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno:
                raise
            raise self._failed(method, str(error)) from error
        except Exception as error:
            raise self._failed(method, f"{type(error).__name__}: {error}") from error

    def _failed(self, method: str, why: str) -> OSError:
        return OSError(errno.EIO, f"the file-like object {self._text} failed in {method}(): {why}")

    def _end(self) -> int:
        with self._calling("seek"):
            end = self._target.seek(0, os.SEEK_END)
            return int(self._target.tell() if end is None else end)

    def _get(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        into = getattr(self._target, "readinto", None)
        moved = 0
        for view in [buffers] if isinstance(buffers, memoryview) else buffers:
            with self._calling("seek"):
                self._target.seek(offset + moved)
            done = 0
            while done < view.nbytes:
                with self._calling("read" if into is None else "readinto"):
                    if into is not None:
                        some = into(view[done:])
                    else:
                        found = self._target.read(view.nbytes - done)
                        some = len(found)
                        view[done : done + some] = found
                if not some:
                    return moved + done
                done += some
            moved += done
        return moved

    def _put(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        calls = 0
        self._touched = True
        for view in [buffers] if isinstance(buffers, memoryview) else buffers:
            with self._calling("seek"):
                self._target.seek(offset)
            while view.nbytes:
                with self._calling("write"):
                    done = self._target.write(view)
                if not done:
                    raise self._failed("write", f"its write() wrote none of {view.nbytes} bytes at offset {offset}")
                offset, view, calls = offset + done, view[done:], calls + 1
            if self._where() != offset:
                raise self._failed(
                    "write", "it does not write at the position given to seek(); do not open it with mode 'a'"
                )
        return calls

    def _where(self) -> int:
        with self._calling("tell"):
            return int(self._target.tell() if hasattr(self._target, "tell") else self._target.seek(0, os.SEEK_CUR))

    def _cut(self, nbytes: int) -> None:
        if not hasattr(self._target, "truncate"):
            raise self._failed("truncate", "there is no such method, and it holds more than is to be left")
        self._touched = True
        with self._calling("truncate"):
            self._target.truncate(nbytes)
