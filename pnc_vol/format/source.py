"""`Source` has the primitives of decoding: bounds, errors, counts, names, the starts of lists.

Knows: where the bytes end (in memory, in the file, by the caller's limit) and what to say when they do. Does not know:
the order of a header's parts; `decode` does. Its rules hold here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from pnc_vol.errors import CorruptHeaderError, LimitError, NeedBytes, NotCDFError, TruncatedHeaderError
from pnc_vol.format.limits import MAX_NAME, is_legal_name
from pnc_vol.format.model import (
    ABSENT,
    ATTRIBUTE,
    DIMENSION,
    MAX_BYTES,
    MAX_COUNT,
    VARIABLE,
    WIDTHS,
    Attr,
    Finding,
    Var,
    Widths,
)

__all__ = ["NUL", "DecodingHints", "Guess", "Source", "Where", "text_of"]

Where = tuple[Any, ...]
"""A place in a header, spelled only when it is needed: see `text_of`."""

NUL = (b"", b"\0", b"\0\0", b"\0\0\0")
"""Padding by its length."""

_TAGS = {DIMENSION: "NC_DIMENSION (10)", VARIABLE: "NC_VARIABLE (11)", ATTRIBUTE: "NC_ATTRIBUTE (12)"}


class DecodingHints(NamedTuple):
    """What makes decoding faster, and changes nothing of what is found.

    like : sequence of (bytes, tuple of Attr)
        Of each variable the bytes of its attributes, and what these say, in a header that probably has the same ones.
    part : bool, the bytes may end inside the header; then that is told as soon as it can be estimated.
    """

    like: Sequence[tuple[bytes, tuple[Attr, ...]]] = ()
    part: bool = False


class Guess(NamedTuple):
    """What the next variable's attribute at the same place may look like: all of it, or its name and type."""

    whole: bytes
    attr: Attr
    head: bytes
    name: str
    code: int
    size: int


class Source:
    """The bytes, how far they may be read, and what was found so far.

    Attributes
    ----------
    data : bytes
    end : int, bytes that may be read.
    file_size, limit : int, bytes.
    max_name : int, bytes.
    findings : list of Finding
    hints : DecodingHints
    w : Widths, of the version that the bytes begin with, unless others are given.
    """

    def __init__(self, data: bytes, file_size: int, limit: int, max_name: int, widths: Widths | None = None) -> None:
        self.data = data
        self.file_size = file_size
        self.limit = limit
        self.end = min(len(data), file_size, limit)
        self.max_name = max_name
        self.findings: list[Finding] = []
        self.hints = DecodingHints()
        version = _version(data, file_size)
        self.w: Widths = widths or WIDTHS[version]

    def short(self, needed: int, at: int, where: Where) -> NoReturn:
        """The bytes end before `needed`: the file does, or the caller has more."""
        if needed > self.file_size:
            raise TruncatedHeaderError(
                f"The file ends at byte {self.file_size}, inside its header: {text_of(where)} at byte {at} would end "
                f"at byte {needed}. The file was cut, or not written to its end; use another copy.",
                offset=at,
                field=text_of(where),
                value=max(0, self.file_size - at),
            )
        if needed > self.limit:
            raise LimitError(
                f"The header is longer than {self.limit} bytes ({text_of(where)} at byte {at}); increase "
                "max_header_bytes if you trust the file.",
                offset=at,
                field=text_of(where),
                value=needed,
            )
        more = max(needed, 2 * len(self.data), 4096)
        raise NeedBytes(min(more, self.file_size, self.limit))

    def corrupt(self, at: int, where: Where, value: object, message: str) -> NoReturn:
        field = text_of(where)
        raise CorruptHeaderError(f"{field} at byte {at} {message}.", offset=at, field=field, value=value)

    def too_much(self, at: int, where: Where, value: int, message: str) -> NoReturn:
        field = text_of(where)
        raise LimitError(f"{field} at byte {at} {message}.", offset=at, field=field, value=value)

    def warn(self, at: int, where: Where, value: object, message: str) -> None:
        field = text_of(where)
        self.findings.append(Finding("warning", at, field, value, f"{field} at byte {at} {message}."))

    def attribute_head(self, p: int, where: Where) -> Guess:
        """Read the name and the type of an attribute."""
        w, data = self.w, self.data
        name, q = self.name(p, where)
        if q + 4 > self.end:
            self.short(q + 4, q, (*where, "type"))
        code = int.from_bytes(data[q : q + 4], w.order)
        size = w.sizes.get(code)
        if size is None:
            self.bad_type(code, q, (*where, "type"))
        return Guess(b"", Attr(name, code, 0, b""), data[p : q + 4], name, code, size)

    def too_large(self, p: int, var: int, size: int) -> NoReturn:
        self.corrupt(p, ("var", var, "vsize"), size, f"should be {size}; no variable has more than {MAX_BYTES} bytes")

    def count(self, n: int, at: int, start: int, smallest: int, where: Where) -> None:
        """Check a count of entries of at least `smallest` bytes each that lie from `start` on."""
        if n >= self.w.sign:
            self.corrupt(at, where, n - 2 * self.w.sign, f"is negative ({n - 2 * self.w.sign})")
        if n > MAX_COUNT:
            self.too_much(at, where, n, f"is {n}, more than {MAX_COUNT}, the limit of every NetCDF library")
        if n * smallest > self.file_size - start:
            field = text_of(where)
            raise TruncatedHeaderError(
                f"The file ends at byte {self.file_size}, inside its header: {field} at byte {at} is {n}, which takes "
                f"at least {n * smallest} bytes, and {max(0, self.file_size - start)} are left. The file was cut, or "
                "the number is damaged; use another copy.",
                offset=at,
                field=field,
                value=n,
            )

    def listing(self, p: int, tag: int, smallest: int, where: Where) -> tuple[int, int]:
        """Read the tag and the count of a list."""
        w = self.w
        start = p + 4 + w.width
        if start > self.end:
            self.short(start, p, (*where, "tag") if p + 4 > self.file_size else (*where, "nelems"))
        found, n = w.listing.unpack_from(self.data, p)
        if found == tag:
            self.count(n, p + 4, start, smallest, (*where, "nelems"))
            if n == 0:
                self.warn(p, (*where, "tag"), found, "is the tag of an empty list; it should be 0")
        elif found != ABSENT:
            self.corrupt(p, (*where, "tag"), found, f"is {found:#x}; {_TAGS[tag]} or 0 is expected here")
        elif n:
            self.corrupt(p + 4, (*where, "nelems"), n, f"is {n}, although the tag of the list says that it is empty")
        return n, start

    def name(self, p: int, where: Where) -> tuple[str, int]:
        w, data = self.w, self.data
        q = p + w.width
        if q > self.end:
            self.short(q, p, (*where, "namelen"))
        (n,) = w.number.unpack_from(data, p)
        if not 0 < n <= self.max_name:
            self.name_length(n, p, where)
        stop = q + n
        after = q + ((n + 3) & -4)
        if after > self.end:
            self.short(after, q, (*where, "name"))
        raw = data[q:stop]
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            name = raw.decode("utf-8", "surrogateescape")
        if not (name.isascii() and name.isidentifier()):
            if "\0" in name:
                self.corrupt(q, (*where, "name"), name, f"is {name!r}, which contains a NUL")
            if n <= MAX_NAME and not is_legal_name(name):
                self.warn(q, (*where, "name"), name, f"is {name!r}, which is not a legal name")
        if data[stop:after] != NUL[after - stop]:
            self.warn(stop, (*where, "namepad"), data[stop:after], f"is {data[stop:after]!r}, not NUL")
        return name, after

    def name_length(self, n: int, p: int, where: Where) -> None:
        """Say what is wrong with a name's length."""
        where = (*where, "namelen")
        if n == 0:
            self.corrupt(p, where, n, "is 0; every name has at least one byte")
        if n >= self.w.sign:
            self.corrupt(p, where, n - 2 * self.w.sign, f"is negative ({n - 2 * self.w.sign})")
        if self.w.width == 8 and n >> 32 in _TAGS:
            self.corrupt(p, where, n, f"holds the tag {_TAGS[n >> 32]}: the list before it is shorter than its nelems")
        self.count(n, p, p + self.w.width, 1, where)
        self.too_much(p, where, n, f"is {n}; names have at most {self.max_name} bytes")

    def tail_part(self, p: int) -> str:
        """Name the first field of a variable's end, at `p`, that the file does not hold whole."""
        left = self.file_size - p
        return "type" if left < 4 else "vsize" if left < 4 + self.w.width else "begin"

    def bad_type(self, code: int, at: int, where: Where) -> NoReturn:
        self.corrupt(at, where, code, f"is {code}; CDF-{self.data[3]} has no such type")

    def same_name(self, entries: Sequence[Attr | Var], at: int, owner: Where) -> NoReturn:
        seen: dict[str, int] = {}
        for i, entry in enumerate(entries):
            if seen.setdefault(entry.name, i) != i:
                field = text_of((*owner, i, "name"))
                raise CorruptHeaderError(
                    f"{field} before byte {at} is {entry.name!r}, like {text_of((*owner, seen[entry.name], 'name'))}.",
                    offset=at,
                    field=field,
                    value=entry.name,
                )
        raise AssertionError("no duplicate")


def text_of(where: Where) -> str:
    """Spell a place in a header: ``("var", 3, "att", 0, "type")`` is ``var[3].att[0].type``."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _is_hdf5(data: bytes) -> bool:
    """Return whether an HDF5 superblock is at byte 0, 512, 1024, 2048 and so on."""
    at = 0
    while at < len(data):
        if data[at : at + 8] == b"\x89HDF\r\n\x1a\n":
            return True
        at = 2 * at or 512
    return False


def _version(data: bytes, file_size: int) -> int:
    """Return the version of the format, or say what the file is instead."""
    magic = data[:4]
    if magic[:3] == b"CDF" and len(magic) == 4 and magic[3] in WIDTHS:
        return magic[3]
    if len(magic) < 4 <= file_size:
        raise NeedBytes(min(file_size, 4096))
    if magic[:3] == b"CDF" and len(magic) == 4:
        problem = f"has version byte {magic[3]}; versions 1, 2 and 5 exist"
    elif _is_hdf5(data):
        problem = "is an HDF5 file; open it with h5py, or convert it with 'pnc-vol convert'"
    elif not magic:
        problem = "is empty"
    else:
        problem = f"begins with {magic!r}, not with 'CDF'"
    raise NotCDFError(f"Not a NetCDF classic file: it {problem}.", offset=0, field="magic", value=magic)
