"""A file under an address, as fsspec knows it: its size and ETag, ranges of its bytes.

Knows: fsspec, HTTP's status codes. Does not know: blocks, extents.

Rules
-----
1. Every error names the address and is one of: `FileNotFoundError`, `PermissionError`, `MissingPackageError`,
   `RemoteError`. fsspec tells of a host that is down, and of a refusal, as of a file that is not there; what it wraps
   is looked at.
2. What may be better the next time is tried again, after pauses: a connection that broke, a server that is busy (429)
   or failed (5xx). What the server decided is not: 401, 403, 404.
3. The file is the one that was opened. HTTP is asked for it by its ETag (``If-Match``); others are asked what stands
   there if the last look is some seconds old. Bytes of two versions are never mixed unnoticed there.
4. A server that ignores ranges sends the whole file for each of them. Until it has sent a part from within the file, it
   is read by a call that stops there.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pnc_vol.errors import DefinitionError, MissingPackageError, RemoteError

__all__ = ["Address"]

T = TypeVar("T")

_PAUSES = (0.1, 0.3, 0.9, 2.7)
"""Seconds before a call is tried again."""
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_LOOK_AGAIN = 5.0
"""Seconds after which a store without conditional reads is asked whether the file is still the same."""
_EXTRAS = {"s3": "s3", "s3a": "s3", "http": "remote", "https": "remote"}


class Address:
    """A file that fsspec can read.

    Parameters
    ----------
    url : str
    storage_options : mapping, for fsspec's file system.
    retries : int, how often a call is tried again.

    Attributes
    ----------
    nbytes : int, of the file.
    requests : int, ranges that were asked for.

    Raises
    ------
    FileNotFoundError, PermissionError, RemoteError
        The file cannot be read.
    MissingPackageError
        fsspec, or what it needs for such addresses, is not installed.
    ValueError
        fsspec does not know such addresses.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any], *, retries: int = 3) -> None:
        self.url, self._retries = url, min(retries, len(_PAUSES))
        self.requests = 0
        self._lock = threading.Lock()
        self._fs, self._path = _file_system(url, storage_options)
        info = self._tried(lambda: self._fs.info(self._path))
        if info.get("type") == "directory":
            raise IsADirectoryError(errno.EISDIR, "the address is that of a folder", url)
        if info.get("size") is None:
            raise RemoteError(errno.EIO, "the server does not say how long the file is", url)
        if info.get("partial") is False:
            raise self._without_ranges()
        self.nbytes = int(info["size"])
        self._seen, self._looked = _version(info), time.monotonic()
        self._http = type(self._fs).__name__ == "HTTPFileSystem"
        self._ranges_known = not self._http
        etag = info.get("ETag", "") if self._http else ""
        # a weak tag never matches
        match = {"If-Match": etag} if etag.startswith('"') else {}
        headers = {**storage_options.get("headers", {}), "Accept-Encoding": "identity", **match}
        self._asking: dict[str, Any] = {"headers": headers} if self._http else {}

    def fetch(self, ranges: list[tuple[int, int]]) -> Sequence[Any]:
        """The bytes of some ranges, each not empty and within the file.

        Raises
        ------
        OSError
            As of the class.
        """
        if not self._ranges_known:
            return [self._carefully(first, end) for first, end in ranges]
        if not self._http and time.monotonic() - self._looked > _LOOK_AGAIN:
            self._check_same()
        starts, ends = [first for first, _ in ranges], [end for _, end in ranges]
        with self._lock:
            self.requests += len(ranges)
        got = self._tried(
            lambda: self._fs.cat_ranges(
                [self._path] * len(ranges), starts, ends, max_gap=None, on_error="raise", **self._asking
            )
        )
        for (first, end), data in zip(ranges, got, strict=True):
            self._check_length(first, end, len(data))
        return got  # type: ignore[no-any-return]

    def _carefully(self, first: int, end: int) -> bytes:
        """One range, from a server that may send the whole file instead."""
        with self._lock:
            self.requests += 1

        def ask() -> bytes:
            with self._fs.open(self._path, "rb", size=self.nbytes, cache_type="none", **self._asking) as file:
                return file._fetch_range(first, end)  # type: ignore[no-any-return]

        try:
            data = self._tried(ask)
        except ValueError:
            raise self._without_ranges() from None
        self._check_length(first, end, len(data))
        if first:
            self._ranges_known = True
        return data

    def _check_same(self) -> None:
        self._fs.invalidate_cache(self._path)
        info = self._tried(lambda: self._fs.info(self._path))
        if _version(info) != self._seen:
            raise self._changed()
        self._looked = time.monotonic()

    def _check_length(self, first: int, end: int, got: int) -> None:
        if got == self.nbytes != end - first:
            raise self._without_ranges()
        if got != end - first:
            text = f"the server sent {got} of {end - first} bytes from byte {first} on; open the file again"
            raise RemoteError(errno.ESTALE, text, self.url)

    def _without_ranges(self) -> RemoteError:
        text = "the server sends whole files only, not ranges of bytes; copy the file here and open the copy"
        return RemoteError(errno.EOPNOTSUPP, text, self.url)

    def _changed(self) -> RemoteError:
        return RemoteError(errno.ESTALE, "the file changed since it was opened; open it again", self.url)

    def _tried(self, call: Callable[[], T]) -> T:
        """What a call returns, tried again as long as that may help."""
        for left in range(self._retries, -1, -1):
            try:
                return call()
            except Exception as error:
                told, again = self._meant(error)
                if not (again and left):
                    raise told from error
            time.sleep(_PAUSES[self._retries - left])
        raise AssertionError

    def _meant(self, error: Exception) -> tuple[Exception, bool]:
        """What an error of fsspec says, and whether to try again."""
        chain = list(_causes(error))
        status = next((code for one in chain if (code := getattr(one, "status", None))), None)
        if status in (401, 403, 407) or any(isinstance(one, PermissionError) for one in chain):
            text = "the server refuses access (give credentials by storage_options=, or another address)"
            return PermissionError(errno.EACCES, text, self.url), False
        if status in (412, 416):
            return self._changed(), False
        if status in _BUSY:
            return RemoteError(errno.EIO, f"the server failed ({status}); try again later", self.url), True
        gone = any(isinstance(one, FileNotFoundError) for one in chain) and not any(map(_of_network, chain))
        if status in (404, 410) or (status is None and gone):
            return FileNotFoundError(errno.ENOENT, "there is no such file at this address", self.url), False
        if isinstance(error, (ValueError, TypeError)) and not isinstance(error, OSError) and len(chain) == 1:
            # nothing that the network does
            return error, False
        last = chain[-1]
        if any(isinstance(one, TimeoutError) or type(one).__name__ == "FSTimeoutError" for one in chain):
            return RemoteError(errno.ETIMEDOUT, "the server did not answer in time", self.url), False
        number = next((one.errno for one in chain if isinstance(one, OSError) and (one.errno or 0) > 0), errno.EIO)
        text = f"the server cannot be reached, or broke off ({type(last).__name__}: {last})"
        return RemoteError(number, text, self.url), True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or getattr(found, "os_error", None)


def _of_network(error: BaseException) -> bool:
    """Whether the way to the server failed, and not what it said of the file."""
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return False
    return isinstance(error, (OSError, TimeoutError)) or type(error).__module__.startswith("aiohttp")


def _version(info: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells two versions of a file apart."""
    return tuple(str(info.get(key)) for key in ("size", "ETag", "LastModified", "mtime", "updated", "created"))


def _file_system(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    protocol = url.partition("://")[0].rpartition("::")[2]
    extra = _EXTRAS.get(protocol, "remote")
    try:
        # An optional package, which takes as long to load as numpy.
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingPackageError(f'{url}: addresses need fsspec: pip install "pnc-vol[{extra}]"') from error
    try:
        fs, path = url_to_fs(url, **storage_options)
    except ImportError as error:
        raise MissingPackageError(f'{url}: {error} (pip install "pnc-vol[{extra}]")') from error
    except ValueError as error:
        raise DefinitionError(f"{url}: fsspec does not know such addresses ({error})") from error
    return fs, path
