"""The slot of the commit log holds small posts of the open group until all of them go to the two logs at once.

Knows: entries, the bytes of posts in the slot, rows. Does not know: commit records, datasets, which posts are small.

Rules
-----
1. A post is its entry and then its values, up to a multiple of 8 bytes. Posts stand one behind another; each is one
   store, followed by one of the CRC of all of them. So a kill leaves those of which the CRC is. (A count in its place
   would take an eighth less, and would be believed when a crash of the node has lost posts.)
2. An entry says where in the data log its values will be: behind those of the post before.
3. There is room for the posts in both logs before the first of them is taken.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache, partial
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.burst.encoding import LEAST_ENTRY, NATIVE
from pnc_vol.extents.model import Int64, before

__all__ = [
    "LEAST_POST", "MOST_POST", "MOST_VALUES", "POSTS_BYTES", "Packers", "RecentPosts", "SplitPosts", "posts_with_crc",
    "split",
]  # fmt: skip

Bytes = npt.NDArray[np.uint8]

LEAST_POST = LEAST_ENTRY + 8
POSTS_BYTES = 1024 * LEAST_POST
"""What posts may take: about as much as stays in a processor's cache, and no more than a group has."""

MOST_POST = 1024
MOST_VALUES = 512
"""Bytes of values of a small post: those of larger ones are better stored once than twice."""

_VARID, _DATA_OFF, _DATA_LEN, _START = 2, 3, 4, 5
"""Where an entry has its fields, in words."""

_COUNT = Struct(f"{NATIVE}q")

Packer = tuple[Callable[..., bytes] | None, bytes]


@cache
def _post(row: int, nbytes: int) -> Callable[..., bytes]:
    return Struct(f"{NATIVE}24s3q{row}s{nbytes}s{-nbytes % 8}x").pack


class Packers(dict[int, Packer]):
    """The encoders of small posts of one variable, by the bytes of their values; made when first asked for.

    An item is a callable of data_off, data_len, the first index, `row` and the values; and `row`, which is what follows
    the first index in the entry. The callable is None if such posts are not small, or no row.

    Parameters
    ----------
    head, row : bytes, see `encoding.row_packer`; of a variable with one dimension `row` is empty.
    inner : int, elements of a row; 0 if the variable has one dimension.
    itemsize : int

    Examples
    --------
    >>> from pnc_vol.burst.encoding import encode_vara, row_packer
    >>> head, _, row = row_packer(9, 0, (6,))
    >>> pack, row = Packers(head, row, 6, 8)[48]
    >>> pack(8, 48, 3, row, bytes(48)) == encode_vara(9, 0, (3, 0), (1, 6), 8, 48) + bytes(48)
    True
    """

    def __init__(self, head: bytes, row: bytes, inner: int, itemsize: int) -> None:
        super().__init__()
        self.head, self.row, self.inner, self.itemsize = head, row, inner, itemsize

    def __missing__(self, nbytes: int) -> Packer:
        count = nbytes // self.itemsize
        row = self.row or _COUNT.pack(count)
        if nbytes > MOST_VALUES or LEAST_POST + len(row) + nbytes > MOST_POST or (self.inner and count != self.inner):
            return None, b""
        made = self[nbytes] = partial(_post(len(row), nbytes), self.head), row
        return made


class SplitPosts(NamedTuple):
    """Posts, split into the bytes of the two logs.

    entries, values : uint8[...]
    fields : int64[n, 4], of each entry: variable, first index, and offset and bytes of the values in the data log.
    """

    entries: Bytes
    values: Bytes
    fields: Int64


def split(posts: Bytes, ends: Int64) -> SplitPosts:
    """Separate entries and values of posts that end at some places."""
    n, each, words = len(ends), int(ends[0]), posts.view(np.int64)
    size, nbytes = int(words[0]), int(words[_DATA_LEN])
    if len(posts) == n * each:
        # The common case: all posts have one size, so they are the rows of one array.
        table = words.reshape(n, -1)
        if bool((table[:, 0] == size).all()) and bool((table[:, _DATA_LEN] == nbytes).all()):
            whole = posts.reshape(n, each)
            entries = np.ascontiguousarray(table[:, : size >> 3]).view(np.uint8).reshape(-1)
            values = np.ascontiguousarray(whole[:, size : size + nbytes]).reshape(-1)
            return SplitPosts(entries, values, _fields(table.T))
    begins = before(np.diff(ends, prepend=0))
    sizes, lengths = words[begins >> 3], words[(begins >> 3) + _DATA_LEN]
    entries, values = _pieces(words, begins, sizes), _pieces(words, begins + sizes, lengths)
    heads = words[(begins >> 3) + np.arange(_START + 1)[:, None]]
    return SplitPosts(entries, values, _fields(heads))


def _pieces(words: Int64, begin: Int64, nbytes: Int64) -> Bytes:
    """Gather bytes from places that are multiples of 8."""
    bits = int(np.bitwise_or.reduce(nbytes)) | 8
    unit = bits & -bits
    count = nbytes // unit
    places = np.repeat(begin // unit - before(count), count)
    places += np.arange(len(places))
    return words.view(f"u{unit}")[places].view(np.uint8)


def _fields(heads: Int64) -> Int64:
    """Return int64[n, 4], see `SplitPosts`, from the first words of entries, one column each."""
    found = np.empty((heads.shape[1], 4), np.int64)
    # The variable is the first half of a word.
    found[:, 0] = heads[_VARID] >> 32 if NATIVE == ">" else heads[_VARID] & 0xFFFFFFFF
    found[:, 1], found[:, 2], found[:, 3] = heads[_START], heads[_DATA_OFF], heads[_DATA_LEN]
    return found


def posts_with_crc(posts: memoryview, wanted: int, data_begin: int) -> Int64:
    """Find the ends of the posts up to the one where the CRC is the wanted one; none if it is nowhere.

    posts : memoryview of bytes, which nobody has looked at.
    data_begin : int, where in the data log the values of the first one belong.
    """
    ends: list[int] = []
    at, crc, room = 0, 0, len(posts)
    fields = Struct(f"{NATIVE}q16xqq")
    while room - at >= LEAST_POST:
        size, data_off, nbytes = fields.unpack_from(posts, at)
        if size < LEAST_ENTRY or size & 7 or data_off != data_begin or nbytes < 0 or nbytes > room - at - size:
            break
        last = at + size + -(-nbytes // 8) * 8
        crc, at, data_begin = crc32(posts[at:last], crc), last, data_begin + nbytes
        ends.append(at)
        if crc == wanted:
            return np.array(ends, np.int64)
    return np.empty(0, np.int64)


class RecentPosts:
    """The part of a slot that holds small posts.

    Attributes
    ----------
    slot : memoryview of uint64, what tells of the open group.
    room : memoryview of bytes, what is behind it.
    provided : bool, whether the file has the space for it.
    end : int, bytes of the posts that are there.
    crc : int, of them.
    limit : int, up to where posts may go without a further look; 0 while the open group is in the logs.
    data_end : int, where the values of the next one will be in the data log.
    count : int, how many there are.
    ends : array of int, where each ends; as long as it may become.
    """

    __slots__ = ("count", "crc", "data_end", "end", "ends", "limit", "provided", "room", "slot")

    def __init__(self) -> None:
        self.room: Any = memoryview(b"")
        self.slot: Any = None
        self.count = self.end = self.crc = self.limit = self.data_end = 0
        self.provided = False
        self.ends = array("q", bytes(POSTS_BYTES // LEAST_ENTRY * 8))

    def forget(self) -> None:
        """Empty the slot, after its posts went to the logs or were dropped."""
        self.count = self.end = self.crc = self.limit = 0

    def split(self) -> SplitPosts:
        """Split the posts into the bytes of the two logs."""
        return split(np.frombuffer(self.room, np.uint8, self.end), np.frombuffer(self.ends, np.int64, self.count))
