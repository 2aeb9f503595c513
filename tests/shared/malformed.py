"""Malformed headers, by the numbers of the project's catalogue of hostile files.

An encoder of its own: a header is a list of tokens, each one field, so that any field can be forged without touching
the rest. It shares no code with the package.

Run it to write the files: ``python malformed.py DIRECTORY``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

ALL, WIDE, SMALL = (1, 2, 5), (5,), (1, 2)
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}


@dataclass(frozen=True)
class Case:
    """One file and what a reader should do with it.

    outcome : "NotCDF", "Truncated", "Corrupt", "Limit", alternatives joined by "/", or "accept", "warn".
    field : how the name of the reported field begins; empty if any will do.
    offset : where that field is, or -1 if any will do.
    make : gives `data` and `file_size`, when they are asked for: the largest files take seconds, and all workers
        list the cases.
    """

    number: str
    version: int
    outcome: str
    field: str
    offset: int
    make: Callable[[], tuple[bytes, int]]

    @cached_property
    def made(self) -> tuple[bytes, int]:
        return self.make()

    @property
    def data(self) -> bytes:
        return self.made[0]

    @property
    def file_size(self) -> int:
        """Bytes that the file claims to have; more than `data` for sparse files."""
        return self.made[1]


def ready(number: str, version: int, outcome: str, field: str, at: int, data: bytes, file_size: int) -> Case:
    """A case whose bytes are there."""
    return Case(number, version, outcome, field, at, lambda: (data, file_size))


class Token:
    """One field: its name in the words of the specification, and its bytes."""

    def __init__(self, label: str, raw: bytes) -> None:
        self.label = label
        self.raw = raw


class Spec:
    """What a file shall say, before anything is forged."""

    def __init__(self, version: int, **changes: Any) -> None:
        self.version = version
        self.numrecs = 2
        self.dims: list[tuple[bytes, int]] = [(b"time", 0), (b"xxxx", 4), (b"yy", 3)]
        self.gatts: list[tuple[bytes, int, int, bytes]] = [(b"title", 2, 5, b"hello"), (b"n", 4, 3, bytes(range(12)))]
        units = [(b"units", 2, 1, b"m")]
        self.vars: list[tuple[bytes, tuple[int, ...], list[Any], int]] = [
            (b"fixed", (1, 2), units, 5),
            (b"rec1", (0, 1), [], 3),
            (b"rec2", (0, 2), [], 4),
        ]
        self.data = True
        for name, value in changes.items():
            setattr(self, name, value)

    @property
    def width(self) -> int:
        return 8 if self.version == 5 else 4

    @property
    def begin_width(self) -> int:
        return 4 if self.version == 1 else 8

    def inner(self, dims: tuple[int, ...], kind: int) -> int:
        total = SIZES.get(kind, 4)
        for i in dims:
            total *= self.dims[i][1] or 1
        return total

    def is_record(self, dims: tuple[int, ...]) -> bool:
        return bool(dims) and self.dims[dims[0]][1] == 0

    def num(self, label: str, value: int) -> Token:
        return Token(label, wrap(value, self.width))

    def name(self, label: str, name: bytes) -> list[Token]:
        pad = bytes(-len(name) % 4)
        return [self.num(label + ".namelen", len(name)), Token(label + ".name", name), Token(label + ".namepad", pad)]

    def listing(self, label: str, tag: int, n: int) -> list[Token]:
        return [Token(label + ".tag", wrap(tag if n else 0, 4)), self.num(label + ".nelems", n)]

    def atts(self, label: str, atts: list[Any], each: str) -> list[Token]:
        out = self.listing(label, 12, len(atts))
        for i, (name, kind, n, values) in enumerate(atts):
            own = each.format(i)
            out += self.name(own, name)
            out += [Token(own + ".type", wrap(kind, 4)), self.num(own + ".nelems", n)]
            out += [Token(own + ".values", values), Token(own + ".valuepad", bytes(-len(values) % 4))]
        return out

    def tokens(self) -> list[Token]:
        out = [Token("magic", b"CDF" + bytes([self.version])), self.num("numrecs", self.numrecs)]
        out += self.listing("dim", 10, len(self.dims))
        for i, (name, size) in enumerate(self.dims):
            out += [*self.name(f"dim[{i}]", name), self.num(f"dim[{i}].size", size)]
        out += self.atts("gatt", self.gatts, "gatt[{}]")
        out += self.listing("var", 11, len(self.vars))
        for i, (name, dims, atts, kind) in enumerate(self.vars):
            out += [*self.name(f"var[{i}]", name), self.num(f"var[{i}].ndims", len(dims))]
            out += [self.num(f"var[{i}].dimid[{k}]", d) for k, d in enumerate(dims)]
            out += self.atts(f"var[{i}].att", atts, f"var[{i}].att[{{}}]")
            vsize = -(-self.inner(dims, kind) // 4) * 4
            if self.width == 4 and vsize > 2**32 - 4:
                vsize = 2**32 - 1
            out += [Token(f"var[{i}].type", wrap(kind, 4)), self.num(f"var[{i}].vsize", vsize)]
            out += [Token(f"var[{i}].begin", bytes(self.begin_width))]
        self.lay_out(out)
        return out

    def lay_out(self, tokens: list[Token]) -> None:
        """Fill in the begins; find where the data end."""
        at = sum(len(token.raw) for token in tokens)
        by_label = {token.label: token for token in tokens}
        sizes = []
        for record in (False, True):
            start = at
            for i, (_, dims, _, kind) in enumerate(self.vars):
                if self.is_record(dims) is record:
                    by_label[f"var[{i}].begin"].raw = wrap(at, self.begin_width)
                    inner = self.inner(dims, kind)
                    at += -(-inner // 4) * 4
                    sizes += [inner] * record
            if record and sizes:
                at = start + (sizes[0] if len(sizes) == 1 else at - start) * self.numrecs
        self.end = -(-at // 4) * 4


def wrap(value: int, width: int) -> bytes:
    return (value % 2 ** (8 * width)).to_bytes(width, "big")


def build(spec: Spec, tokens: list[Token], *, sparse: bool = False) -> tuple[bytes, int]:
    header = b"".join(token.raw for token in tokens)
    if not spec.data:
        return header, len(header)
    if sparse or spec.end > 1 << 24:
        return header, max(spec.end, len(header))
    return header.ljust(spec.end, b"\0"), max(spec.end, len(header))


def offset(tokens: list[Token], label: str) -> int:
    at = 0
    for token in tokens:
        if token.label == label:
            return at
        at += len(token.raw)
    raise KeyError(label)


# ------------------------------------------------------- one field forged in the base file: the most cases

FORGED: list[tuple[str, tuple[int, ...], str, int, str]] = [
    ("020", WIDE, "numrecs", -1, "warn"),
    ("021", ALL, "numrecs", -2, "Corrupt"),
    ("022", WIDE, "numrecs", 2**63 - 1, "Corrupt"),
    ("023", WIDE, "numrecs", 10**12, "warn:file_size"),
    ("025", SMALL, "numrecs", 0xFFFFFFFF, "warn"),
    ("026", (1,), "numrecs", 0x80000000, "Corrupt"),
    ("030", ALL, "dim.tag", 0, "Corrupt:dim.nelems"),
    ("031", ALL, "dim.tag", 11, "Corrupt"),
    ("032", ALL, "dim.tag", -1, "Corrupt"),
    ("033", ALL, "dim.nelems", -1, "Corrupt"),
    ("034", WIDE, "dim.nelems", 2**63 - 1, "Limit"),
    ("035", ALL, "dim.nelems", 2**31 - 1, "Truncated/Limit"),
    ("036", WIDE, "dim.nelems", 2**61, "Limit"),
    ("037", ALL, "dim.nelems", 0, "Corrupt:gatt"),
    ("038", ALL, "dim.nelems", 2, "Corrupt:gatt"),
    ("039", ALL, "dim.nelems", 4, "Corrupt:dim[3].name"),
    ("041", ALL, "dim[0].namelen", -1, "Corrupt"),
    ("042", ALL, "dim[0].namelen", 0, "Corrupt"),
    ("043", WIDE, "dim[0].namelen", 2**32, "Truncated/Limit"),
    ("044", WIDE, "dim[0].namelen", 2**63 - 1, "Limit"),
    ("045", WIDE, "dim[0].namelen", 2**40, "Limit"),
    ("057", ALL, "dim[1].size", -1, "Corrupt"),
    ("058", WIDE, "dim[1].size", 2**63 - 1, "Corrupt:var[0]"),
    ("059", WIDE, "dim[1].size", -(2**63), "Corrupt"),
    ("060", ALL, "dim[1].size", 0, "Corrupt"),
    ("064", (1,), "dim[1].size", 0x80000000, "Corrupt"),
    ("065", SMALL, "dim[1].size", 2**31 - 1, "Corrupt:var[0]"),
    ("070", ALL, "gatt.tag", 10, "Corrupt"),
    ("071", ALL, "gatt.nelems", -1, "Corrupt"),
    ("072", ALL, "gatt.nelems", 2**31 - 1, "Truncated/Limit"),
    ("073", WIDE, "gatt.nelems", 2**61, "Limit"),
    ("074", ALL, "gatt[0].namelen", -1, "Corrupt"),
    ("075", (2,), "gatt[0].namelen", 0xFFFFFFFF, "Corrupt"),
    ("078", ALL, "gatt[0].type", 0, "Corrupt"),
    ("079", ALL, "gatt[0].type", 12, "Corrupt"),
    ("080", ALL, "gatt[0].type", -1, "Corrupt"),
    ("081", SMALL, "gatt[0].type", 7, "Corrupt"),
    ("082", ALL, "gatt[1].nelems", -1, "Corrupt"),
    ("083", WIDE, "gatt[1].nelems", 2**63 - 1, "Limit"),
    ("084", WIDE, "gatt[1].nelems", 2**62, "Limit"),
    ("085", ALL, "gatt[1].nelems", 2**30, "Truncated"),
    ("086", ALL, "gatt[1].nelems", 1000, "Truncated"),
    ("090", ALL, "var.tag", 12, "Corrupt"),
    ("091", ALL, "var.nelems", -1, "Corrupt"),
    ("092", ALL, "var.nelems", 2**31 - 1, "Truncated/Limit"),
    ("093", ALL, "var.nelems", 4, "Truncated/Corrupt:var"),
    ("094", ALL, "var[0].namelen", -1, "Corrupt"),
    ("098", ALL, "var[0].ndims", -1, "Corrupt"),
    ("099", ALL, "var[0].ndims", 2**31 - 1, "Truncated/Limit"),
    ("100", WIDE, "var[0].ndims", 2**61, "Limit"),
    ("101", ALL, "var[0].ndims", 1025, "Truncated"),
    ("104", ALL, "var[0].dimid[0]", -1, "Corrupt"),
    ("105", ALL, "var[0].dimid[0]", 3, "Corrupt"),
    ("106", WIDE, "var[0].dimid[0]", 2**32, "Corrupt"),
    ("107", ALL, "var[0].dimid[0]", 2**31, "Corrupt"),
    ("108", ALL, "var[0].dimid[1]", 0, "Corrupt"),
    ("109", ALL, "var[0].att.tag", 11, "Corrupt"),
    ("110", ALL, "var[0].att.nelems", 2**31 - 1, "Truncated/Limit"),
    ("111", ALL, "var[0].type", 0, "Corrupt"),
    ("112", ALL, "var[0].type", 12, "Corrupt"),
    ("113", ALL, "var[0].type", 0x7FFFFFFF, "Corrupt"),
    ("114", SMALL, "var[0].type", 9, "Corrupt"),
    ("115", ALL, "var[0].vsize", 4, "warn"),
    ("116", ALL, "var[0].vsize", -1, "warn"),
    ("117", WIDE, "var[0].vsize", 2**63 - 1, "warn"),
    ("118", ALL, "var[0].begin", 0, "Corrupt"),
    ("119", ALL, "var[0].begin", 8, "Corrupt"),
    ("120", ALL, "var[0].begin", -1, "Corrupt"),
    ("121", (2, 5), "var[0].begin", 2**63 - 1, "Corrupt"),
    ("121", (1,), "var[0].begin", 2**31 - 1, "Corrupt:var[1].begin"),
    ("122", ALL, "var[0].begin", 10**9, "warn/Corrupt:var[1].begin"),
    ("190", WIDE, "dim.nelems", 2**32 + 3, "Limit"),
    ("191", WIDE, "gatt.nelems", 2**32 + 2, "Limit"),
    ("192", WIDE, "var.nelems", 2**32 + 3, "Limit"),
    ("193", WIDE, "var[0].ndims", 2**32 + 2, "Limit"),
    ("194", WIDE, "var[0].dimid[0]", 2**32 + 1, "Corrupt"),
    ("195", WIDE, "dim[0].namelen", 2**32 + 4, "Truncated/Limit"),
    ("196", WIDE, "gatt[1].nelems", 2**32 + 3, "Truncated/Limit"),
    ("197", WIDE, "dim.nelems", 2**63 + 3, "Corrupt"),
    ("198", WIDE, "gatt.nelems", 2**63 + 2, "Corrupt"),
    ("199", WIDE, "var.nelems", 2**63 + 3, "Corrupt"),
    ("200", WIDE, "var[0].att.nelems", 2**63 + 1, "Corrupt"),
    ("201", WIDE, "var[0].ndims", 2**63 + 2, "Corrupt"),
    ("202", WIDE, "var[0].dimid[0]", 2**63 + 1, "Corrupt"),
    ("203", WIDE, "gatt[1].nelems", 2**63 + 3, "Corrupt"),
    ("205", (2,), "numrecs", 0x80000000, "Corrupt"),
]

TRUNCATED = [
    "numrecs",
    "dim.nelems",
    "dim[0].name",
    "dim[0].size",
    "gatt.nelems",
    "gatt[1].type",
    "gatt[1].values",
    "var.nelems",
    "var[0].ndims",
    "var[0].dimid[1]",
    "var[0].att.nelems",
    "var[0].type",
    "var[0].vsize",
    "var[0].begin",
    "var[2].begin",
]


def forged() -> Iterator[Case]:
    for number, versions, label, value, outcome in FORGED:
        for version in versions:
            spec = Spec(version)
            tokens = spec.tokens()
            at = offset(tokens, label)
            for token in tokens:
                if token.label == label:
                    token.raw = wrap(value, len(token.raw))
            outcome_, _, field = outcome.partition(":")
            yield ready(number, version, outcome_, field or label, -1 if field else at, *build(spec, tokens))
    for k, label in enumerate(TRUNCATED):
        for version in ALL:
            spec = Spec(version)
            tokens = spec.tokens()
            raw = b"".join(token.raw for token in tokens)
            token = next(token for token in tokens if token.label == label)
            cut = raw[: offset(tokens, label) + len(token.raw) // 2]
            yield ready(str(1300 + k), version, "Truncated", "", -1, cut, len(cut))


# --------------------------------------------------------------------- well-formed files of odd content


def changed(spec: Spec, i: int, which: str, **parts: Any) -> None:
    """Change parts of one dimension, global attribute or variable."""
    names = {
        "dims": ("name", "size"),
        "gatts": ("name", "type", "n", "values"),
        "vars": ("name", "dims", "atts", "type"),
    }
    entries = list(getattr(spec, which))
    entries[i] = tuple(parts.get(part, old) for part, old in zip(names[which], entries[i], strict=True))
    setattr(spec, which, entries)


def _name(which: str, i: int, name: bytes) -> Callable[[Spec], None]:
    return lambda spec: changed(spec, i, which, name=name)


def _two_sizes(x: int, y: int) -> Callable[[Spec], None]:
    def change(spec: Spec) -> None:
        changed(spec, 1, "dims", size=x)
        changed(spec, 2, "dims", size=y)

    return change


def _set(**values: Any) -> Callable[[Spec], None]:
    return lambda spec: vars(spec).update(values)


def _dims(n: int) -> Callable[[Spec], None]:
    def change(spec: Spec) -> None:
        spec.dims.append((b"one", 1))
        changed(spec, 0, "vars", dims=(3,) * n)

    return change


def _no_unlimited(spec: Spec) -> None:
    changed(spec, 0, "dims", size=2)
    spec.numrecs = 0
    spec.tokens()


def _attr(value: bytes) -> Callable[[Spec], None]:
    return lambda spec: changed(spec, 0, "gatts", name=b"units", n=len(value), values=value)


MANY_DIMS = [(b"time", 0), *((b"d%d" % i, 2) for i in range(20000))]
MANY_ATTS = [(b"a%d" % i, 4, 1, b"\0\0\0\1") for i in range(20000)]
MANY_VARS = [(b"v%d" % i, (1,), [(b"units", 2, 1, b"m")], 5) for i in range(10000)]
X = b"x"

ODD: list[tuple[str, tuple[int, ...], Callable[[Spec], None], str, str]] = [
    ("000", ALL, lambda spec: None, "accept", ""),
    ("046", ALL, _name("dims", 0, b""), "Corrupt", "dim[0].name"),
    ("047", ALL, _name("dims", 0, X * 256), "accept", ""),
    ("048", ALL, _name("dims", 0, X * 257), "Limit", "dim[0].namelen"),
    ("049", ALL, _name("dims", 0, X * 5000), "Limit", "dim[0].namelen"),
    ("050", ALL, _name("dims", 0, b"a/b"), "warn", "dim[0].name"),
    ("051", ALL, _name("dims", 0, b"a\0b"), "Corrupt", "dim[0].name"),
    ("052", ALL, _name("dims", 0, b"a\xff\xfe"), "warn", "dim[0].name"),
    ("053", ALL, _name("dims", 0, b"../../etc"), "warn", "dim[0].name"),
    ("054", ALL, _name("dims", 0, b"a\x1b[2J\n"), "warn", "dim[0].name"),
    ("055", ALL, _name("dims", 1, b"time"), "Corrupt", "dim[1].name"),
    ("061", WIDE, _two_sizes(2**32, 2**32), "Corrupt", "var[0]"),
    ("062", WIDE, _two_sizes(2**62 + 1, 4), "Corrupt", "var[0]"),
    ("063", WIDE, _two_sizes(2**40, 4), "warn", "file_size"),
    ("076", ALL, _name("gatts", 0, X * 257), "Limit", "gatt[0].namelen"),
    ("077", ALL, _name("gatts", 0, X * 5000), "Limit", "gatt[0].namelen"),
    ("088", ALL, _name("gatts", 1, b"title"), "Corrupt", "gatt[1].name"),
    ("089", ALL, lambda spec: changed(spec, 0, "gatts", n=0, values=b""), "accept", ""),
    ("095", ALL, _name("vars", 0, X * 257), "Limit", "var[0].namelen"),
    ("096", ALL, _name("vars", 0, X * 1500), "Limit", "var[0].namelen"),
    ("097", ALL, _name("vars", 0, X * 5000), "Limit", "var[0].namelen"),
    ("102", ALL, _dims(1100), "Limit", "var[0].ndims"),
    ("103", ALL, _dims(65), "accept", ""),
    ("127", ALL, _name("vars", 1, b"fixed"), "Corrupt", "var[1].name"),
    ("160", ALL, lambda spec: (_set(numrecs=5)(spec), spec.vars.__delitem__(slice(1, 3))), "accept", ""),
    ("161", WIDE, lambda spec: (_two_sizes(2**42, 3)(spec), _set(numrecs=2**30)(spec)), "Corrupt", "numrecs"),
    ("170", ALL, _attr(b"days since " + b"9" * 400), "accept", ""),
    ("171", ALL, _attr(b"u" * 3000), "accept", ""),
    ("180", ALL, _set(dims=MANY_DIMS), "accept", ""),
    ("181", ALL, _set(gatts=MANY_ATTS), "accept", ""),
    ("182", ALL, _set(vars=MANY_VARS), "accept", ""),
    ("183", ALL, _name("vars", 0, b"grp/var"), "warn", "var[0].name"),
    ("184", ALL, _name("vars", 0, b"__class__"), "accept", ""),
    ("185", ALL, _attr(b"../../../etc/passwd"), "accept", ""),
]


def odd() -> Iterator[Case]:
    def make(version: int, change: Callable[[Spec], None], sparse: bool) -> tuple[bytes, int]:
        spec = Spec(version)
        change(spec)
        data, size = build(spec, spec.tokens())
        return data, len(data) if sparse else size

    for number, versions, change, outcome, field in ODD:
        for version in versions:
            yield Case(number, version, outcome, field, -1, partial(make, version, change, number == "063"))


# -------------------------------------------------------------------------------------------- the others


def whole() -> Iterator[Case]:
    """Files whose start, end or body as a whole is not what it says."""
    for number, raw in (
        ("001", b""),
        ("002", b"CDF"),
        ("005", b"CDF\x03" + bytes(60)),
        ("006", b"CDF\x04" + bytes(60)),
        ("007", b"CDF\x00" + bytes(60)),
        ("008", b"cdf\x01" + bytes(60)),
        ("009", b"\x89HDF\r\n\x1a\n" + bytes(60)),
    ):
        yield ready(number, 0, "NotCDF", "magic", 0, raw, len(raw))
    for version in ALL:
        raw = b"CDF" + bytes([version])
        yield ready("003", version, "Truncated", "numrecs", 4, raw, 4)
        yield ready("040", version, "warn", "dim.tag", 4 + (8 if version == 5 else 4), *_empty(version, 10, 0))
    yield ready("004", 1, "Truncated", "dim", -1, b"CDF\x01" + bytes(9), 13)
    yield ready("204", 2, "Truncated", "dim.nelems", 12, *(_empty(2, 10, 2**28, 80)))
    for number, body, claimed in (("010", 5, 1), ("011", 1, 5)):
        spec = Spec(body)
        data, size = build(spec, spec.tokens())
        yield ready(number, claimed, "Corrupt", "dim.tag", -1, data[:3] + bytes([claimed]) + data[4:], size)
    for version in ALL:
        spec = Spec(version)
        tokens = spec.tokens()
        header = b"".join(token.raw for token in tokens)
        data, size = build(spec, tokens)
        yield ready("150", version, "warn", "file_size", -1, header, len(header))
        yield ready("151", version, "warn", "file_size", -1, data[:-6], size - 6)
        yield ready("152", version, "warn", "file_size", -1, data + b"junk" * 16, size + 64)
        for number, label in (("056", "dim[2].namepad"), ("087", "gatt[0].valuepad")):
            at = offset(tokens, label)
            yield ready(number, version, "warn", label, at, data[:at] + b"\1" + data[at + 1 :], size)


def _empty(version: int, tag: int, n: int, size: int = 0) -> tuple[bytes, int]:
    width = 8 if version == 5 else 4
    start = b"CDF" + bytes([version]) + wrap(0, width) + wrap(tag, 4) + wrap(n, width)
    raw = start + bytes(2 * (4 + width))
    raw = raw.ljust(size, b"\0")
    return raw, len(raw)


Begins = Callable[[dict[str, int]], dict[str, int]]


def places() -> Iterator[Case]:
    """Begins that contradict each other."""
    two_fixed = [(b"a", (1,), [], 5), (b"b", (1,), [], 5)]

    def moved(
        number: str, outcome: str, label: str, find: Callable[[dict[str, int]], dict[str, int]], **spec: Any
    ) -> Iterator[Case]:
        for version in ALL:
            made = Spec(version, **spec)
            tokens = made.tokens()
            begins = {t.label: int.from_bytes(t.raw, "big") for t in tokens if t.label.endswith(".begin")}
            for token in tokens:
                new = find(begins).get(token.label)
                if new is not None:
                    token.raw = wrap(new, len(token.raw))
            yield ready(number, version, outcome, label, offset(tokens, label), *build(made, tokens))

    v0, v1, v2 = (f"var[{i}].begin" for i in range(3))
    yield from moved("123", "warn", v0, lambda b: {v0: b[v0] + 2})
    yield from moved("124", "Corrupt", v1, lambda b: {v0: b[v1]})
    yield from moved("125", "Corrupt", v2, lambda b: {v2: b[v1]})
    yield from moved("126", "Corrupt", v1, lambda b: {v0: b[v1], v1: b[v0]}, vars=two_fixed)
    yield from moved("128", "Corrupt", v1, lambda b: {v1: b[v0], v2: b[v0] + 8})


def limits() -> Iterator[Case]:
    """Sizes at the limits of the versions."""
    for version in ALL:
        spec = Spec(version)
        changed(spec, 0, "dims", size=2)
        spec.vars = spec.vars[:1]
        tokens = spec.tokens()
        spec.numrecs = 7
        tokens[1].raw = wrap(7, spec.width)
        yield ready("024", version, "warn", "numrecs", 4, *build(spec, tokens))
    records = [(b"a", (0, 1), [], 1), (b"b", (0, 1), [], 1)]
    spec = Spec(5, vars=records, dims=[(b"time", 0), (b"x", 2**62 + 2**61)])
    yield ready("162", 5, "Corrupt", "var[1]", -1, *build(spec, spec.tokens(), sparse=True))
    large, half = [(b"t", 0), (b"x", 2**31 - 1), (b"y", 3)], 5
    for number, variables, outcome in (
        ("large-fixed-first", [(b"a", (1, 2), [], half), (b"b", (2,), [], half)], "Corrupt"),
        ("large-fixed-last", [(b"b", (2,), [], half), (b"a", (1, 2), [], half)], "accept"),
        ("large-fixed-before-records", [(b"a", (1, 2), [], half), (b"b", (0,), [], half)], "Corrupt"),
        ("large-record-first", [(b"a", (0, 1, 2), [], half), (b"b", (0, 2), [], half)], "Corrupt"),
        ("large-record-last", [(b"b", (0, 2), [], half), (b"a", (0, 1, 2), [], half)], "accept"),
        ("large-two-records", [(b"a", (0, 1, 2), [], half), (b"b", (0, 1, 2), [], half)], "Corrupt"),
    ):
        spec = Spec(2, vars=variables, dims=large, numrecs=1)
        yield ready(
            number,
            2,
            outcome,
            "var[0].vsize" if outcome == "Corrupt" else "",
            -1,
            *build(spec, spec.tokens(), sparse=True),
        )


def cases() -> list[Case]:
    """Every case of the catalogue, in every version in which it makes sense."""
    found = [*whole(), *forged(), *odd(), *places(), *limits()]
    return sorted(found, key=lambda case: (len(case.number), case.number, case.version))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for case in cases():
        name = f"{case.number}_cdf{case.version}_{case.outcome.replace('/', '-')}.nc"
        with open(target / name, "wb") as file:
            file.write(case.data)
            file.truncate(case.file_size)
