"""fsspec answers for a file under an address: its size and ETag, ranges of its bytes.

Knows: fsspec, HTTP's status codes. Does not know: blocks, extents.

Rules
-----
1. Every error names the address and is one of: `FileNotFoundError`, `PermissionError`, `MissingPackageError`,
   `RemoteError`. fsspec raises the same error for a host that is down, a refusal, and a file that is not there; the
   error that it wraps is looked at.
2. What may be better the next time is tried again, after pauses: a connection that broke, a server that is busy (429)
   or failed (5xx). What the server decided is not: 401, 403, 404.
3. The file is the one that was opened. HTTP is asked for it by its ETag (``If-Match``), and each answer must have the
   version and the range that were asked for, because servers and proxies ignore such headers; other stores, to which
   fsspec passes no conditions, are asked what stands there if the last look is some seconds old. Bytes of two
   versions are never mixed unnoticed there.
4. A server that ignores ranges sends the whole file for each of them; no more is read of it than was asked for.
5. What takes longer than `timeout` is an error, also if the server sends a byte now and then. Only file systems that
   fsspec calls asynchronously can be stopped.
"""

from __future__ import annotations

import asyncio
import errno
import re
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
    timeout : float, seconds for the ranges of one call of `fetch`, and for the call that asks for the size.

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
        fsspec does not know such addresses, or `timeout` is not above 0.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any], *, retries: int = 3, timeout: float = 300) -> None:
        if not timeout > 0:
            raise ValueError(f"remote(timeout={timeout}): more than 0 seconds are needed")
        self.url, self._retries, self._timeout = url, min(retries, len(_PAUSES)), timeout
        self.requests = 0
        self._lock = threading.Lock()
        self._fs, self._path = _file_system(url, storage_options)
        info = self._info()
        if info.get("type") == "directory":
            raise IsADirectoryError(errno.EISDIR, "the address is that of a folder", url)
        if info.get("size") is None:
            raise RemoteError(errno.EIO, "the server does not say how long the file is", url)
        if info.get("partial") is False:
            raise self._without_ranges()
        self.nbytes = int(info["size"])
        self._seen, self._looked = _version(info), time.monotonic()
        self._http = type(self._fs).__name__ == "HTTPFileSystem"
        self._validators = {key: str(info[key]) for key in ("ETag", "Last-Modified") if info.get(key)}
        etag = self._validators.get("ETag", "")
        # a weak tag never matches
        match = {"If-Match": etag} if etag.startswith('"') else {}
        self._headers = {**storage_options.get("headers", {}), "Accept-Encoding": "identity", **match}

    def fetch(self, ranges: list[tuple[int, int]]) -> Sequence[Any]:
        """Return the bytes of some ranges, each not empty and within the file.

        Raises
        ------
        OSError
            As of the class.
        """
        if not self._http and time.monotonic() - self._looked > _LOOK_AGAIN:
            self._check_same()
        with self._lock:
            self.requests += len(ranges)
        if self._http:
            got = self._tried(lambda: self._limited(self._http_ranges, ranges))
        else:
            starts, ends = [first for first, _ in ranges], [end for _, end in ranges]
            paths = [self._path] * len(ranges)
            got = self._tried(lambda: self._limited("cat_ranges", paths, starts, ends, max_gap=None, on_error="raise"))
        for (first, end), data in zip(ranges, got, strict=True):
            self._check_length(first, end, len(data))
        return got  # type: ignore[no-any-return]

    def _info(self) -> Mapping[str, Any]:
        return self._tried(lambda: self._limited("info", self._path))

    def _limited(self, call: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what a method of the file system, or a coroutine function, returns, stopped after `timeout`."""
        from fsspec.asyn import AsyncFileSystem, sync

        if not isinstance(self._fs, AsyncFileSystem):
            return getattr(self._fs, str(call))(*args, **kwargs)
        call = getattr(self._fs, f"_{call}") if isinstance(call, str) else call
        return sync(self._fs.loop, call, *args, timeout=self._timeout, **kwargs)

    async def _http_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        session = await self._fs.set_session()
        tasks = [asyncio.ensure_future(self._http_range(session, first, end)) for first, end in ranges]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _http_range(self, session: Any, first: int, end: int) -> bytes:
        """Return one range, and not more of what a server sends than one byte behind it."""
        headers = {**self._headers, "Range": f"bytes={first}-{end - 1}"}
        async with session.get(self._fs.encode_url(self._path), **{**self._fs.kwargs, "headers": headers}) as answer:
            self._fs._raise_not_found_for_status(answer, self._path)
            self._check_answer(answer.status, answer.headers, first, end)
            got = bytearray()
            # Of a range that is longer than it says, one byte more is enough to see it.
            most = end - first + (answer.status == 206)
            while len(got) < most and (part := await answer.content.read(most - len(got))):
                got += part
        return bytes(got)

    def _check_answer(self, status: int, headers: Mapping[str, str], first: int, end: int) -> None:
        """Compare the head of an answer of HTTP with what was asked for."""
        for key, asked in self._validators.items():
            if key in headers:
                if headers[key].removeprefix("W/") != asked.removeprefix("W/"):
                    raise self._changed()
                break
        if status != 206:
            if first:
                raise self._without_ranges()
            return
        field = headers.get("Content-Range", "")
        sent = re.fullmatch(r"\s*bytes (\d+)-(\d+)/(\d+|\*)\s*", field)
        if sent and sent[3] not in ("*", str(self.nbytes)):
            raise self._changed()
        if not sent or (int(sent[1]), int(sent[2])) != (first, end - 1):
            text = (
                f"the server was asked for the bytes {first}-{end - 1} and sent others (Content-Range: "
                f"{field or 'missing'}); it or a proxy is wrong: copy the file here and open the copy"
            )
            raise RemoteError(errno.EIO, text, self.url)

    def _check_same(self) -> None:
        self._fs.invalidate_cache(self._path)
        if _version(self._info()) != self._seen:
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
        """Return what a call returns, tried again as long as that may help."""
        for left in range(self._retries, -1, -1):
            try:
                return call()
            except Exception as error:
                meant, again = self._meant(error)
                if not (again and left):
                    raise meant from error
            time.sleep(_PAUSES[self._retries - left])
        raise AssertionError

    def _meant(self, error: Exception) -> tuple[Exception, bool]:
        """Return what an error of fsspec means, and whether to try again."""
        if isinstance(error, RemoteError):
            return error, False
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
            text = (
                f"the server did not answer in time ({self._timeout:g} seconds); try again later, or give it longer: "
                'driver="remote(timeout=SECONDS)"'
            )
            return RemoteError(errno.ETIMEDOUT, text, self.url), False
        number = next((one.errno for one in chain if isinstance(one, OSError) and (one.errno or 0) > 0), errno.EIO)
        why = re.sub(r"\[Errno -?\d+\] ", "", str(last))
        text = f"the server cannot be reached, or broke off ({type(last).__name__}: {why})"
        return RemoteError(number, text, self.url), True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or getattr(found, "os_error", None)


def _of_network(error: BaseException) -> bool:
    """Return whether the way to the server failed, and not its answer about the file."""
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return False
    return isinstance(error, (OSError, TimeoutError)) or type(error).__module__.startswith("aiohttp")


def _version(info: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what distinguishes two versions of a file."""
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
