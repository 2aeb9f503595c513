"""`decode` turns the bytes of a header into a `Header`.

Knows: the grammar, and that bytes lie. Does not know: files; it is given bytes and the file's size, and asks for more
with `NeedBytes`. What fields mean to each other (begins, sizes, records) is judged by `rules`.

Rules
-----
1. Fields are read as unsigned numbers, compared, then used. A set sign bit is a `CorruptHeaderError`.
2. A count times the smallest entry must fit the bytes that the file has left, before anything is made for it.
3. A file that ends inside its header is a `TruncatedHeaderError`; bytes are never made up.
4. A count or length beyond what any file could hold is a `LimitError`.
5. What readers accept without harm (padding that is not NUL, a wrong vsize, odd names) is a warning among the findings.
6. One pass. Text for errors is made when an error is found, never before: `where` is a short tuple until then.

Source: NetCDF classic format specification; PnetCDF's CDF-5 specification.
"""

from __future__ import annotations

from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from pnc_vol.errors import CorruptHeaderError, NeedBytes
from pnc_vol.format import rules
from pnc_vol.format.limits import MAX_HEADER_BYTES, MAX_NAME
from pnc_vol.format.model import (
    ATTRIBUTE,
    DIMENSION,
    MAX_BYTES,
    MAX_VAR_DIMS,
    VARIABLE,
    Attr,
    Dim,
    Finding,
    Header,
    Var,
    Widths,
)
from pnc_vol.format.source import NUL, DecodingHints, Guess, Source, Where

__all__ = ["Decoded", "Reader", "decode"]

_SAMPLE = 16
"""Variables from which on the length of all is estimated."""

_MARGIN = 1.1

_ROW = 16
"""Variables alike, one after another, from which on as many more as are alike are read at once."""

_AT_ONCE = 4096


class Decoded(NamedTuple):
    """A decoded header.

    header : Header
    nbytes : int, bytes of the header in the file.
    findings : tuple of Finding, what was accepted though it is not as it should be.
    var_at : tuple of int, where the entry of each variable starts in the file, and where the last one ends.
    """

    header: Header
    nbytes: int
    findings: tuple[Finding, ...]
    var_at: tuple[int, ...]


def decode(
    data: bytes | bytearray | memoryview,
    *,
    file_size: int,
    max_header_bytes: int = MAX_HEADER_BYTES,
    tolerant_order: bool = False,
    max_name: int = MAX_NAME,
    hints: DecodingHints | None = None,
) -> Decoded:
    """Decode the header of a file.

    Parameters
    ----------
    data : bytes-like
        The file from its start; at least its header, or as much as there is at hand.
    file_size : int
        Bytes of the whole file.
    max_header_bytes : int
        A longer header is refused.
    tolerant_order : bool
        Accept variables that lie in another order than they are defined in. They must still not overlap.
    max_name : int
        Bytes of the longest name that is accepted.
    hints : DecodingHints, what makes it faster.

    Raises
    ------
    NeedBytes
        `data` ends inside the header, but the file goes on; ask again with that many bytes.
    NotCDFError, TruncatedHeaderError, CorruptHeaderError, LimitError
        The file is not what it should be; all are `FormatError` with ``offset``, ``field`` and ``value``.

    Examples
    --------
    >>> decode(b"CDF\\x01" + bytes(28), file_size=32).header
    Header(version=1, numrecs=0, dims=(), attrs=(), vars=())
    """
    parsed, found = examine(
        data, file_size=file_size, max_header_bytes=max_header_bytes, tolerant_order=tolerant_order, max_name=max_name,
        hints=hints,
    )  # fmt: skip
    for finding in found:
        if finding.severity == "error":
            raise CorruptHeaderError(finding.message, offset=finding.offset, field=finding.field, value=finding.value)
    return parsed


def examine(
    data: bytes | bytearray | memoryview,
    *,
    file_size: int,
    max_header_bytes: int = MAX_HEADER_BYTES,
    tolerant_order: bool = False,
    max_name: int = MAX_NAME,
    hints: DecodingHints | None = None,
) -> tuple[Decoded, tuple[Finding, ...]]:
    """Decode like `decode`, but return contradictions between fields as findings with severity ``"error"``."""
    # A view may be of a whole file: no more of it is copied than a header may have.
    held = data if isinstance(data, bytes) else bytes(memoryview(data)[:max_header_bytes])
    source = Reader(held, file_size, max_header_bytes, max_name)
    source.hints = hints or source.hints
    header, inner, nbytes, var_at = source.header()
    header, layout = rules.judge(
        header, inner, var_at, nbytes=nbytes, file_size=file_size, tolerant_order=tolerant_order
    )
    header.facts.inner_sizes = inner
    findings = (*source.findings, *layout)
    if not findings:
        header.facts.var_at = var_at
    return Decoded(header, nbytes, findings, tuple(var_at)), findings


class Reader(Source):
    """Reads the parts of a header in their order."""

    def __init__(self, data: bytes, file_size: int, limit: int, max_name: int, widths: Widths | None = None) -> None:
        super().__init__(data, file_size, limit, max_name, widths)
        if len(data) > self.end:
            self.data = data[: self.end]
        # The attributes of the last variable that had some, each at its place, or the first of them.
        self.guesses: list[Guess] = []
        # By the bytes of ndims and dimids: (indices, elements without the record dimension).
        self.shapes: dict[bytes, tuple[tuple[int, ...], int]] = {}
        self.sizes: list[int] = []
        self.absent = bytes(4 + self.w.width)

    def header(self) -> tuple[Header, list[int], int, list[int]]:
        w, p = self.w, 4
        if p + w.width > self.end:
            self.short(p + w.width, p, ("numrecs",))
        (numrecs,) = w.number.unpack_from(self.data, p)
        p += w.width
        if numrecs >= w.sign and numrecs != 2 * w.sign - 1:
            self.corrupt(4, ("numrecs",), numrecs - 2 * w.sign, f"is negative ({numrecs - 2 * w.sign})")
        dims, p = self.dimensions(p)
        attrs, p = self.attributes(p, -1)
        variables, var_at = self.variables(p, dims)
        version = self.data[3]
        # All ones stand for "not known" (STREAMING); `rules` derives the number from the size of the file.
        streaming = -1 if numrecs == 2 * w.sign - 1 else numrecs
        return Header(version, streaming, tuple(dims), attrs, tuple(variables)), self.sizes, var_at[-1], var_at

    def dimensions(self, p: int) -> tuple[list[Dim], int]:
        w = self.w
        n, p = self.listing(p, DIMENSION, w.dim_min, ("dim",))
        dims: list[Dim] = []
        seen: dict[str, int] = {}
        record = -1
        for i in range(n):
            at = p
            name, p = self.name(p, ("dim", i))
            if p + w.width > self.end:
                self.short(p + w.width, p, ("dim", i, "size"))
            (size,) = w.number.unpack_from(self.data, p)
            if size > w.dim_max:
                self.corrupt(p, ("dim", i, "size"), size - 2 * w.sign, f"is {size}, beyond {w.dim_max}")
            if size == 0:
                if record >= 0:
                    self.corrupt(p, ("dim", i, "size"), 0, f"is a second unlimited dimension, besides dim[{record}]")
                record = i
            if seen.setdefault(name, i) != i:
                self.corrupt(at, ("dim", i, "name"), name, f"is {name!r} like dim[{seen[name]}]")
            dims.append(Dim(name, size))
            p += w.width
        return dims, p

    def attributes(self, p: int, var: int) -> tuple[tuple[Attr, ...], int]:
        """Read the attributes of variable `var`, or the global ones for -1."""
        w, data, end = self.w, self.data, self.end
        start = p + 4 + w.width
        if data[p:start] == self.absent and start <= end:
            return (), start
        owner: Where = ("gatt",) if var < 0 else ("var", var, "att")
        n, p = self.listing(p, ATTRIBUTE, w.attr_min, owner)
        width, number, guesses = w.width, w.number.unpack_from, self.guesses
        attrs: list[Attr] = []
        fresh = False
        for i in range(n):
            # Most variables have the attributes of the one before them, and many the same values.
            guess = guesses[i] if i < len(guesses) else None
            if guess is not None and data.startswith(guess.whole, p):
                attrs.append(guess.attr)
                p += len(guess.whole)
                continue
            at, known = p, len(self.findings)
            if guess is None or not data.startswith(guess.head, p):
                fresh = True
                guess = self.attribute_head(p, (*owner, i))
            _, _, head, name, code, size = guess
            p += len(head)
            q = p + width
            if q > end:
                self.short(q, p, (*owner, i, "nelems"))
            nelems = number(data, p)[0]
            stop = q + nelems * size
            p = (stop + 3) & -4
            if p > end:
                self.count(nelems, q - width, q, size, (*owner, i, "nelems"))
                self.short(p, q, (*owner, i, "values"))
            if p != stop and not data.startswith(NUL[p - stop], stop):
                self.warn(stop, (*owner, i, "valuepad"), data[stop:p], f"is {data[stop:p]!r}, not NUL")
            attr = tuple.__new__(Attr, (name, code, nelems, data[q:stop]))
            attrs.append(attr)
            if len(self.findings) == known:
                guesses[i : i + 1 if not fresh else None] = [Guess(data[at:p], attr, head, name, code, size)]
            else:
                # What is worth a warning is read again next time, to be warned of in its own place.
                del guesses[i:]
        if fresh and len({attr[0] for attr in attrs}) != n:
            self.same_name(attrs, p, owner)
        return tuple(attrs), p

    def shape(self, p: int, var: int, dims: list[Dim]) -> tuple[tuple[int, ...], int, int]:
        """Read ndims and the dimids of variable `var`: (indices, elements of one record or of all, next byte)."""
        w = self.w
        q = p + w.width
        if q > self.end:
            self.short(q, p, ("var", var, "ndims"))
        (n,) = w.number.unpack_from(self.data, p)
        self.count(n, p, q, w.width, ("var", var, "ndims"))
        if n > MAX_VAR_DIMS:
            self.too_much(p, ("var", var, "ndims"), n, f"is {n}; variables have at most {MAX_VAR_DIMS} dimensions")
        stop = q + n * w.width
        if stop > self.end:
            whole = max(0, (self.file_size - q) // w.width)
            self.short(stop, q + whole * w.width, ("var", var, f"dimid[{whole}]"))
        indices = []
        elements = 1
        for k in range(n):
            (i,) = w.number.unpack_from(self.data, q)
            where = ("var", var, f"dimid[{k}]")
            if i >= len(dims):
                self.corrupt(q, where, i, f"is {i}; there are {len(dims)} dimensions")
            size = dims[i].size
            if size == 0 and k:
                self.corrupt(q, where, i, "is the unlimited dimension, which must be a variable's first")
            elements *= size or 1
            if elements > MAX_BYTES:
                self.corrupt(q, where, i, f"makes {elements} elements; no variable has more than {MAX_BYTES} bytes")
            indices.append(i)
            q += w.width
        return tuple(indices), elements, stop

    def variables(self, p: int, dims: list[Dim]) -> tuple[list[Var], list[int]]:
        n, p = self.listing(p, VARIABLE, self.w.var_min, ("var",))
        var_at: list[int] = []
        try:
            return self.each_variable(n, p, dims, var_at), var_at
        except NeedBytes as need:
            if len(var_at) < _SAMPLE:
                raise
            # By what the first ones took: decoding begins anew with the next bytes, and should then go through.
            likely = p + int((var_at[-1] - p) / (len(var_at) - 1) * n * _MARGIN)
            raise NeedBytes(min(max(need.nbytes, likely), self.file_size, self.limit)) from None

    def each_variable(self, n: int, p: int, dims: list[Dim], var_at: list[int]) -> list[Var]:
        w, data, end, inner = self.w, self.data, self.end, self.sizes
        number, tail, tail_size, sizes = w.number.unpack_from, w.tail.unpack_from, w.tail.size, w.sizes
        make, small, width, longest = tuple.__new__, w.width == 4, w.width, self.max_name
        found: list[Var] = []
        # Shape and attributes of the last variable, all their bytes: many have the same as the one before them.
        block, elements = b"", 1
        indices: tuple[int, ...] = ()
        attrs: tuple[Attr, ...] = ()
        # Where the bytes at hand are looked at: if they will not do, that is known before most of them are decoded.
        look = _SAMPLE if self.hints.part and end < min(self.file_size, self.limit) else -1
        # Variables in a row that were like the one before them, and how many make it worth to look at many at once.
        row, enough, length = 0, _ROW, 0
        while (i := len(found)) < n:
            if row >= enough:
                after, row = p, 0
                p = self.alike(p, n - i, length, block, found, var_at)
                enough = _ROW if p > after else 2 * enough
                continue
            var_at.append(p)
            if i == look:
                look *= 4
                if var_at[0] + (p - var_at[0]) // i * n > end:
                    self.short(end + 1, p, ("var", i))
            at_first = len(self.findings)
            # As `Source.name`, for what most names are.
            q = p + width
            before, length = length, number(data, p)[0] if q <= end else end
            stop = q + length
            after = (stop + 3) & -4
            plain = stop - q <= longest and after <= end and data[stop:after] == NUL[after - stop]
            name = data[q:stop].decode("ascii", "replace") if plain else ""
            if name.isidentifier() and name.isascii():
                p = after
            else:
                name, p = self.name(p, ("var", i))
            row += 1
            if block and data.startswith(block, p):
                p += len(block)
            else:
                row, start, known = 0, p, len(self.findings)
                indices, elements, attrs, p = self.shape_and_attributes(p, i, dims)
                # What is worth a warning is warned of in each place.
                block = data[start:p] if len(self.findings) == known else b""
            q = p + tail_size
            if q > end:
                self.short(q, p, ("var", i, self.tail_part(p)))
            code, vsize, begin = tail(data, p)
            size = sizes.get(code)
            if size is None:
                self.bad_type(code, p, ("var", i, "type"))
            size *= elements
            if size > MAX_BYTES:
                self.too_large(p, i, size)
            padded = (size + 3) & -4
            # Some writers leave the padding of a lone record variable out: harmless, so not worth a word.
            if vsize not in (padded, size) and not (small and vsize == 0xFFFFFFFF and padded > 0xFFFFFFFC):
                self.warn(p + 4, ("var", i, "vsize"), vsize, f"is {vsize}, and {padded} follows from the dimensions")
            inner.append(size)
            if length != before or len(self.findings) > at_first:
                row = 0
            found.append(make(Var, (name, indices, attrs, code, begin)))
            p = q
        var_at.append(p)
        if len(set(map(itemgetter(0), found))) != n:
            self.same_name(found, p, ("var",))
        return found

    def shape_and_attributes(
        self, p: int, var: int, dims: list[Dim]
    ) -> tuple[tuple[int, ...], int, tuple[Attr, ...], int]:
        """Read what stands between a variable's name and its type; a shape that was read before is looked up."""
        width, data = self.w.width, self.data
        q = p + width
        key = data[p : q + self.w.number.unpack_from(data, p)[0] * width] if q <= self.end else b""
        known = self.shapes.get(key)
        if known is None:
            indices, elements, q = self.shape(p, var, dims)
            self.shapes[data[p:q]] = indices, elements
        else:
            indices, elements = known
            q = p + len(key)
        if var < len(self.hints.like):
            whole, attrs = self.hints.like[var]
            if data.startswith(whole, q):
                return indices, elements, attrs, q + len(whole)
        attrs, p = self.attributes(q, var)
        return indices, elements, attrs, p

    def alike(self, p: int, most: int, length: int, block: bytes, found: list[Var], var_at: list[int]) -> int:
        """Read at once the variables from `p` on that are like the last one; return where the next one begins.

        They have its dimensions, attributes, type and size, and names of as many bytes, which are identifiers; there
        was nothing to say of the last one, so there is nothing to say of them.
        """
        width, begin = self.w.width, self.w.begin
        step = width + ((length + 3) & -4) + len(block) + self.w.tail.size
        count = min(most, (self.end - p) // step, _AT_ONCE)
        if count < _ROW:
            return p
        entries = np.frombuffer(self.data, np.uint8, count * step, p).reshape(count, step)
        same = entries == np.frombuffer(self.data, np.uint8, step, p - step)
        same[:, width : width + length] = True
        same[:, step - begin :] = True
        alike = same.all(axis=1)
        k = count if alike.all() else int(alike.argmin())
        raw = entries[:k, width : width + length].tobytes()
        text = raw.decode("ascii") if raw.isascii() else ""
        names = [text[i : i + length] for i in range(0, len(text), length)]
        plain = text and all(map(str.isidentifier, names))
        k = len(names) if plain else next((i for i, name in enumerate(names) if not name.isidentifier()), len(names))
        begins = entries[:k, step - begin :].copy().view(f"{self.w.mark}u{begin}").ravel().tolist()
        _, indices, attrs, code, _ = found[-1]
        rows = zip(names, repeat(indices), repeat(attrs), repeat(code), begins, strict=False)
        found += map(tuple.__new__, repeat(Var), rows)
        self.sizes += [self.sizes[-1]] * k
        var_at += range(p, p + k * step, step)
        return p + k * step
