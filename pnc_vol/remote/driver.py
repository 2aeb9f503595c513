"""The root for files under addresses reads only, in blocks, through fsspec.

fsspec moves the bytes, since it knows every store. Its file objects and their caches are not used: they serve one
reader, one block after another.

Knows: extents, blocks, fsspec, HTTP's status codes. Does not know: headers.

Rules
-----
1. To open asks for the size; the first read brings the first block, in which most headers are whole.
2. Small reads bring whole blocks, and blocks that are near each other come by one range: a request takes as long as
   many bytes (`call_cost`). Ranges of one read are under way at the same time.
3. A read of several pieces that lie far apart, such as rows of an array, brings these alone: most of their blocks would
   be of no use.
4. What was read is the file that was opened: one that changed since is an error.
"""

from __future__ import annotations

import asyncio
import errno
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Capabilities, Memory, OpenContext
from pnc_vol.drivers.root import Root
from pnc_vol.drivers.vectored_io import check, copy_pieces, in_order, within
from pnc_vol.errors import DefinitionError, MissingPackageError, ReadOnlyError, RemoteError
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents, spread

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Address", "BlockCache", "Range", "RemoteDriver", "joined_blocks"]

Range = tuple[int, int]
"""First byte and the one behind the last."""

CALL_COST = 1 << 20
"""Bytes that arrive in the time that a request takes besides: 50 MB/s and 20 ms."""
LONGEST = 8 << 20
"""Bytes of a range; longer ones are asked for in parts, which come at the same time."""
AT_ONCE = 64 << 20
"""Bytes of a read whose blocks are in memory at the same time."""
SPARSE = 4
"""Blocks that hold so many times the bytes that are wanted are not worth their way."""
GAP = CALL_COST // 16
"""Bytes between two ranges of such a read that come with them: requests at the same time cost less than alone."""
MOST_RANGES = 1024
"""Requests of such a read: of more of them a server may want a rest."""


class RemoteDriver(Root):
    """A file that fsspec reads.

    Parameters
    ----------
    address : Address
    block_bytes : int, bytes of a block.
    cache_bytes : int, bytes of blocks that are kept.
    """

    name = "remote"
    capabilities = Capabilities(
        concurrent=True, call_cost=CALL_COST, joins_pieces=True, keeps_file=False, own_paths=True
    )

    def __init__(self, address: Address, *, block_bytes: int = 512 << 10, cache_bytes: int = 256 << 20) -> None:
        super().__init__(address.url, writable=False)
        if block_bytes < 1:
            raise ValueError(f"remote(block_bytes={block_bytes}): at least 1 is needed")
        self._address = address
        self._blocks = BlockCache(
            address.fetch, address.nbytes, block=block_bytes, limit=cache_bytes, gap=CALL_COST, longest=LONGEST
        )

    @classmethod
    def open(
        cls, path: str | None, context: OpenContext, *, retries: int = 3, timeout: float = 300, **options: Any
    ) -> Self:
        """Ask for the file.

        Parameters
        ----------
        path, context
            As for every root; the path is an address.
        retries : int, how often a request is tried again that failed on the way.
        timeout : float, seconds that the requests of one read may take, at most 64 MiB of it at a time.
        **options
            Of the class.

        Raises
        ------
        ReadOnlyError
            It is to be written.
        OSError, ImportError, ValueError
            As `Address`.
        """
        if path is None:
            raise ValueError("the remote driver needs an address, such as https://host/file.nc")
        _check_reads(path, context)
        return cls(Address(path, context.storage_options, retries=retries, timeout=timeout), **options)

    @classmethod
    def exists(cls, path: str, context: OpenContext) -> bool:
        """Return True: `open` finds out, by the one request that it makes anyway.

        Raises
        ------
        ReadOnlyError
            The file is to be written.
        """
        _check_reads(path, context)
        return True

    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        check(extents, memory)
        block, before = self._blocks.block, self._address.requests
        # few bytes may be in many blocks
        most = max(1, AT_ONCE // block)
        wanted = in_order(within(extents, self._address.nbytes))
        for part in rounds(wanted, AT_ONCE):
            offset, end = part.offset, part.offset + part.length
            if self._read_ranges(part, end, memory):
                continue
            first = offset // block
            owner, step = spread((end - 1) // block - first + 1)
            number = first[owner] + step
            low = np.maximum(offset[owner], number * block)
            pieces = np.stack((number, low, np.minimum(end[owner], (number + 1) * block), owner))
            if bool((number[1:] < number[:-1]).any()):
                pieces = pieces[:, np.argsort(number, kind="stable")]
            number, low, high, owner = pieces
            place = part.place[owner] + low - offset[owner]
            numbers, at = np.unique(number, return_index=True)
            steps = list(zip(numbers.tolist(), at.tolist(), [*at[1:].tolist(), len(number)], strict=True))
            for i in range(0, len(steps), most):
                found = self._blocks.get([n for n, _, _ in steps[i : i + most]])
                for n, a, b in steps[i : i + most]:
                    copy_pieces(memory, place[a:b], found[n], low[a:b] - n * block, high[a:b] - low[a:b])
        return wanted.nbytes, self._address.requests - before

    def _read_ranges(self, part: Extents, end: npt.NDArray[np.int64], memory: Memory) -> bool:
        """Read pieces that lie far apart by ranges of their own, which are not kept; whether it was done.

        Whole blocks would be more than `SPARSE` times as many bytes.
        """
        offset = part.offset
        if len(offset) < 2:
            return False
        begins = np.append(True, offset[1:] - np.maximum.accumulate(end)[:-1] > GAP)
        first = np.flatnonzero(begins)
        low, high = offset[first], np.maximum.reduceat(end, first)
        nbytes, block = int((high - low).sum()), self._blocks.block
        if not 1 < len(first) <= MOST_RANGES or nbytes > AT_ONCE:
            return False
        numbers = np.unique(np.concatenate((low // block, (high - 1) // block)))
        if self._blocks.missing(numbers.tolist()) * block < SPARSE * nbytes:
            return False
        got = self._address.fetch(list(zip(low.tolist(), high.tolist(), strict=True)))
        for data, start, a, b in zip(got, low.tolist(), first, [*first[1:], len(offset)], strict=True):
            copy_pieces(memory, part.place[a:b], np.frombuffer(data, np.uint8), offset[a:b] - start, part.length[a:b])
        return True

    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        raise AssertionError("a remote file is open for reading")

    def _size(self) -> int:
        return self._address.nbytes

    def _resize(self, nbytes: int) -> None:
        raise AssertionError("a remote file is open for reading")

    def _sync(self) -> None:
        """There is nothing to write."""

    def _close(self) -> None:
        self._blocks.clear()

    def statistics(self) -> dict[str, Any]:
        counts = {"remote.requests": self._address.requests, "remote.held_bytes": self._blocks.held_bytes}
        return super().statistics() | counts


def _check_reads(path: str, context: OpenContext) -> None:
    if context.writable:
        text = (
            "files under addresses are open for reading only; open it with mode 'r', or write a local file and copy it"
        )
        error = ReadOnlyError(f"{path}: {text}")
        error.errno = errno.EROFS
        raise error


# -------------------------------------------------------------------------------------------------------------- blocks
# Blocks of a file that is far away are held, on their way, or to be asked for.
#
# Rules
# -----
# 1. Two threads that need the same block ask once; the second one waits for the first, and asks itself if that failed.
# 2. At most `limit` bytes stay. What goes is chosen at random: a program that goes again and again through a file that
#    is longer than the limit would find nothing of it if the oldest went.
# 3. Ranges whose gap is shorter than a call is worth are one range; what lies in the gap is kept, too.


def joined_blocks(numbers: Sequence[int], gap: int, most: int) -> list[Range]:
    """Return runs of blocks, as the first and the one behind the last.

    Parameters
    ----------
    numbers : sequence of int, sorted, each once.
    gap : int, blocks between two that are taken along.
    most : int, blocks of a run.

    Examples
    --------
    >>> joined_blocks([0, 1, 4, 9], gap=2, most=4)
    [(0, 2), (4, 5), (9, 10)]
    >>> joined_blocks([0, 1, 4, 9], gap=2, most=5)
    [(0, 5), (9, 10)]
    """
    found: list[Range] = []
    for number in numbers:
        if found and number - found[-1][1] <= gap and number + 1 - found[-1][0] <= most:
            found[-1] = found[-1][0], number + 1
        else:
            found.append((number, number + 1))
    return found


class BlockCache:
    """Blocks of one file.

    Parameters
    ----------
    fetch : callable
        Gives the bytes of some ranges: ``fetch([(0, 100), (300, 400)])``.
    nbytes : int, of the file.
    block : int, bytes of a block; the last one may be shorter.
    limit : int, bytes that are kept.
    gap : int, bytes between two ranges that are fetched rather than asked around.
    longest : int, bytes of a range.
    """

    def __init__(
        self,
        fetch: Callable[[list[Range]], Sequence[Any]],
        nbytes: int,
        *,
        block: int,
        limit: int,
        gap: int,
        longest: int,
    ) -> None:
        self._fetch = fetch
        self._nbytes, self.block = nbytes, block
        self._most, self._gap, self._run = limit // block, gap // block, max(1, longest // block)
        self._lock = threading.Lock()
        self._held: dict[int, Memory] = {}
        self._numbers: list[int] = []
        self._coming: dict[int, threading.Event] = {}
        self._choose = random.Random(0)

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept now."""
        with self._lock:
            return sum(block.nbytes for block in self._held.values())

    def get(self, numbers: Sequence[int]) -> dict[int, Memory]:
        """Return blocks, by number (sorted, each once).

        Raises
        ------
        OSError
            What `fetch` raises.
        """
        found: dict[int, Memory] = {}
        while len(found) < len(numbers):
            claimed: list[int] = []
            others: list[threading.Event] = []
            ready = threading.Event()
            with self._lock:
                for number in numbers:
                    if number in found:
                        continue
                    if number in self._held:
                        found[number] = self._held[number]
                    elif number in self._coming:
                        others.append(self._coming[number])
                    else:
                        self._coming[number] = ready
                        claimed.append(number)
            if claimed:
                try:
                    got = self._fetched(claimed)
                    found.update(got)
                    self._keep(got)
                finally:
                    with self._lock:
                        for number in claimed:
                            del self._coming[number]
                    ready.set()
            for other in others:
                other.wait()
        return found

    def missing(self, numbers: Sequence[int]) -> int:
        """Return how many of these blocks are not held."""
        with self._lock:
            return sum(number not in self._held for number in numbers)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._held.clear()
            self._numbers.clear()

    def _fetched(self, numbers: list[int]) -> dict[int, Memory]:
        runs = joined_blocks(numbers, self._gap, self._run)
        ranges = [(first * self.block, min(last * self.block, self._nbytes)) for first, last in runs]
        got: dict[int, Memory] = {}
        for (first, last), data in zip(runs, self._fetch(ranges), strict=True):
            whole = np.frombuffer(data, np.uint8)
            for number in range(first, last):
                low = (number - first) * self.block
                # A copy: a view would keep the whole range as long as one block of it.
                got[number] = whole[low : low + self.block].copy()
        return got

    def _keep(self, got: dict[int, Memory]) -> None:
        if 4 * len(got) > self._most:
            # A long range is read once, and would leave nothing of what is used again.
            return
        with self._lock:
            for number, block in got.items():
                if number not in self._held:
                    self._numbers.append(number)
                self._held[number] = block
            while len(self._numbers) > self._most:
                at = self._choose.randrange(len(self._numbers))
                self._numbers[at], self._numbers[-1] = self._numbers[-1], self._numbers[at]
                del self._held[self._numbers.pop()]


# --------------------------------------------------------------------------------------------------------- addresses
#
# Rules
# -----
# 1. Every error names the address and is one of: `FileNotFoundError`, `PermissionError`, `MissingPackageError`,
#    `RemoteError`. fsspec raises the same error for a host that is down, a refusal, and a file that is not there; the
#    error that it wraps is looked at.
# 2. What may be better the next time is tried again, after pauses: a connection that broke, a server that is busy (429)
#    or failed (5xx). What the server decided is not: 401, 403, 404.
# 3. The file is the one that was opened. HTTP is asked for it by its ETag (``If-Match``), and each answer must have the
#    version and the range that were asked for, because servers and proxies ignore such headers; other stores, to which
#    fsspec passes no conditions, are asked what stands there if the last look is some seconds old. Bytes of two
#    versions are never mixed unnoticed there.
# 4. A server that ignores ranges sends the whole file for each of them; no more is read of it than was asked for.
# 5. What takes longer than `timeout` is an error, also if the server sends a byte now and then. Only file systems that
#    fsspec calls asynchronously can be stopped.

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
