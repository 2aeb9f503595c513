"""A header as the specification of the format has it, read field by field; all else is an `AssertionError`."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

SIZES = dict(zip(range(1, 12), (1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8), strict=True))


class Reader:
    """Fields of a header, one after another."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0
        assert self.taken(3) == b"CDF"
        self.version = self.taken(1)[0]
        self.width = 8 if self.version == 5 else 4

    def taken(self, n: int) -> bytes:
        self.at += n
        assert self.at <= len(self.raw)
        return self.raw[self.at - n : self.at]

    def number(self, width: int = 0) -> int:
        return int.from_bytes(self.taken(width or self.width), "big")

    def padded(self, n: int) -> bytes:
        found = self.taken(n)
        assert not any(self.taken(-n % 4))
        return found

    def items(self, tag: int) -> range:
        found, count = self.number(4), self.number()
        assert found == (tag if count else 0)
        return range(count)

    def name(self) -> str:
        return self.padded(self.number()).decode()

    def attributes(self) -> list[Any]:
        found = []
        for _ in self.items(12):
            name, code, count = self.name(), self.number(4), self.number()
            found.append((name, code, count, self.padded(count * SIZES[code])))
        return found


def read_plainly(raw: bytes) -> tuple[Any, ...]:
    """Records, dimensions, attributes and variables; these lie behind the header, and none begins in another one."""
    r = Reader(raw)
    records = r.number()
    dims = [(r.name(), r.number()) for _ in r.items(10)]
    attrs, variables, places = r.attributes(), [], []
    for _ in r.items(11):
        name, axes = r.name(), [r.number() for _ in range(r.number())]
        own, code, claimed, begin = r.attributes(), r.number(4), r.number(), r.number(4 if r.version == 1 else 8)
        grows = bool(axes) and not dims[axes[0]][1]
        size = prod(dims[axis][1] for axis in axes[grows:]) * SIZES[code]
        assert claimed == size + -size % 4
        variables.append((name, axes, own, code))
        places.append((grows, begin, begin + size))
    places.sort()
    assert all(begin >= r.at for _, begin, _ in places)
    assert all(one[2] <= other[1] for one, other in pairwise(places))
    return records, dims, attrs, variables
