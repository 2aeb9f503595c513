"""The data of some datasets live elsewhere: in other datasets (virtual datasets) or in raw files (external data).

Knows: the form of their marker, which elements of a region are asked for. Does not know: files, how a source is read.

Rules
-----
1. Such a dataset is a scalar byte in the file, as one that takes several variables; the key ``elsewhere`` of its marker
   says where the data are. What reads and writes variables never sees a part of it.
2. A region is a product: along each axis evenly spaced blocks, or increasing indices. Elements of the region of a
   virtual dataset are, in C order, those of the region of its source, in C order.
3. What is read from a marker is not trusted: one that does not fit makes the variable what the file has, a scalar byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import gcd, lcm, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import PncVolError
from pnc_vol.format.model import BYTE
from pnc_vol.mapping.describe import undescribe
from pnc_vol.mapping.dtypes import Element, element_for
from pnc_vol.mapping.names import is_text
from pnc_vol.mapping.tree import NAMELESS, DatasetNode, GroupNode, Limits, Shape, Tree

__all__ = [
    "Elsewhere",
    "ElsewhereNode",
    "Evenly",
    "Hyperslab",
    "Segment",
    "SourceMapping",
    "add_elsewhere",
    "common",
    "element_of",
    "read_marker",
]

Indices = range | npt.NDArray[np.int64]
MOST_AXES = 32
_LARGEST = 1 << 63


class Evenly(NamedTuple):
    """`count` blocks of `block` elements along an axis, `stride` apart; `count` is None if there is no limit."""

    start: int
    stride: int
    count: int | None  # type: ignore[assignment]
    block: int

    def whole(self, length: int) -> int:
        """Return whole blocks that an axis of that length holds."""
        room = length - self.start - self.block
        return room // self.stride + 1 if room >= 0 else 0

    def end(self, count: int) -> int:
        """Return the length of an axis that holds so many blocks; 0 if there are none."""
        return self.start + (count - 1) * self.stride + self.block if count else 0

    def block_of(self, number: int) -> range:
        """Return the elements of one block."""
        first = self.start + number * self.stride
        return range(first, first + self.block)

    def blocks_of(self, elements: Indices, count: int) -> list[int]:
        """Return the numbers of those of the first blocks that have one of these elements, increasing."""
        offset = np.asarray(elements, np.int64) - self.start
        number = offset // self.stride
        return np.unique(number[(offset >= 0) & (number < count) & (offset % self.stride < self.block)]).tolist()  # type: ignore[no-any-return]

    def indices(self, count: int) -> Indices:
        """Return the elements of the first blocks, increasing."""
        if self.block == 1 or count == 1:
            step = self.stride if self.block == 1 else 1
            return range(self.start, self.start + max(count, 0) * self.block * step, step)
        if self.block == self.stride:
            return range(self.start, self.start + count * self.block)
        starts: npt.NDArray[np.int64] = self.start + self.stride * np.arange(count, dtype=np.int64)
        return (starts[:, None] + np.arange(self.block)).ravel()


Along = Evenly | tuple[int, ...]
"""What a region has along one axis: evenly spaced blocks, or the indices."""


class Hyperslab(NamedTuple):
    """Elements of a dataset.

    shape : tuple of int, of the dataset when the region was made.
    axes : tuple of Along, one an axis.
    """

    shape: Shape
    axes: tuple[Along, ...]

    @property
    def unlimited(self) -> int:
        """The axis along which it has no limit; -1 if there is none."""
        return next((i for i, along in enumerate(self.axes) if isinstance(along, Evenly) and along.count is None), -1)

    def counts(self) -> tuple[int, ...]:
        """Return elements along each axis; of one without limit, those of one block."""
        return tuple(
            len(along) if not isinstance(along, Evenly) else along.block * (1 if along.count is None else along.count)
            for along in self.axes
        )

    def begins(self) -> tuple[int, ...]:
        """Return the first element along each axis."""
        return tuple(along.start if isinstance(along, Evenly) else along[0] if along else 0 for along in self.axes)

    def ends(self) -> tuple[int, ...]:
        """Return how long each axis must be at least; 0 for one without limit."""
        return tuple(
            (along[-1] + 1 if along else 0) if not isinstance(along, Evenly) else along.end(along.count or 0)
            for along in self.axes
        )

    def indices(self, blocks: int = 0) -> list[Indices]:
        """Return the elements along each axis; `blocks`: how many there are along an axis without limit."""
        return [
            along.indices(blocks if along.count is None else along.count)
            if isinstance(along, Evenly)
            else np.array(along, np.int64)
            for along in self.axes
        ]


class SourceMapping(NamedTuple):
    """A part of a virtual dataset, and the elements of another dataset that it shows.

    to : Hyperslab, of the virtual dataset.
    file : str, path of the file; ``"."`` for this one.
    name : str, path of the dataset in that file.
    of : Hyperslab, of the source.
    """

    to: Hyperslab
    file: str
    name: str
    of: Hyperslab

    @property
    def is_numbered(self) -> bool:
        """Whether each block is another source, whose name has the number of the block (``%b``)."""
        return self.to.unlimited >= 0 and self.of.unlimited < 0


class Segment(NamedTuple):
    """A part of a raw file; `nbytes` is None for all that follows."""

    file: str
    offset: int
    nbytes: int | None


class Elsewhere(NamedTuple):
    """Where the data of a dataset are: `sources` of a virtual dataset, or `segments` of raw files; the other is None.

    shape : tuple of int, as it was defined; that of a virtual dataset may follow its sources.
    fill : bytes or None, one element that is read where there is no source, in the byte order of the type.
    """

    shape: Shape
    fill: bytes | None = None
    sources: tuple[SourceMapping, ...] | None = None
    segments: tuple[Segment, ...] | None = None

    def marker(self) -> dict[str, Any]:
        """Return what the marker says of it."""
        described: dict[str, Any] = {}
        if self.fill is not None:
            described["fill"] = self.fill.hex()
        if self.segments is not None:
            described["raw"] = [list(segment) for segment in self.segments]
        if self.sources is not None:
            described["virtual"] = [
                {"to": _description(one.to), "file": one.file, "name": one.name, "of": _description(one.of)}
                for one in self.sources
            ]
        return described


class _Boxes(NamedTuple):
    """The smallest box around the region of each source of a virtual dataset.

    low, high : int64[sources, axes], the first element, and the one behind the last.
    endless : frozenset of int, the axes along which some have no limit.
    """

    sources: tuple[SourceMapping, ...]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    endless: frozenset[int]


class ElsewhereNode(DatasetNode):
    """A dataset whose data live elsewhere.

    away : Elsewhere
    prefixes : dict, the folders that were given to look for files in, in this process: ``efile_prefix``,
        ``virtual_prefix``.
    """

    __slots__ = ("away", "boxes", "prefixes")

    def __init__(self, tree: Tree, name: str, uid: int, element: Element, away: Elsewhere) -> None:
        super().__init__(tree, name, None, (), uid, element, away.shape, names=NAMELESS[: len(away.shape)])
        self.away: Elsewhere = away  # type: ignore[misc]
        self.prefixes: Mapping[str, str] = {}
        self.boxes: _Boxes | None = None

    def _boxes(self) -> _Boxes:
        # kept: a program reads a dataset of thousands of sources row by row
        sources = self.away.sources or ()
        if self.boxes is None or self.boxes.sources is not sources:
            boundless = [source.to.unlimited >= 0 for source in sources]
            shape = (len(sources), len(self.away.shape))
            low = np.array([source.to.begins() for source in sources], np.int64).reshape(shape)
            high = np.array([source.to.ends() for source in sources], np.int64).reshape(shape)
            low[boundless], high[boundless] = 0, np.iinfo(np.int64).max
            self.boxes = _Boxes(sources, low, high, frozenset(one.to.unlimited for one in sources) - {-1})
        return self.boxes

    def endless(self) -> frozenset[int]:
        """Return the axes along which some source of a virtual dataset has no limit."""
        return self._boxes().endless

    def sources_near(self, asked: Sequence[Indices]) -> list[SourceMapping]:
        """Return, in order, the sources of a virtual dataset that may have some of the elements that are asked for.

        asked : sequence of Indices, increasing, along each axis.
        """
        if not all(map(len, asked)):
            return []
        boxes = self._boxes()
        first, last = ([int(along[at]) for along in asked] for at in (0, -1))
        near = np.all((boxes.low <= last) & (boxes.high > first), axis=1)
        return [boxes.sources[i] for i in np.flatnonzero(near).tolist()]

    def describe(self, marker: dict[str, Any]) -> None:
        """Put into a marker what it has in the place of parts."""
        # As it was defined, not as it is now: all ranks write the same.
        marker["shape"] = list(self.away.shape)
        marker["elsewhere"] = self.away.marker()


def element_of(dtype: npt.DTypeLike) -> Element:
    """Return the element of such a dataset: a byte that holds nothing, whatever the type of the data is."""
    return Element(element_for(dtype).dtype, np.dtype("i1"), BYTE, kind="composite")


def add_elsewhere(
    tree: Tree, parent: GroupNode | None, name: str, element: Element, maxshape: Limits, away: Elsewhere
) -> ElsewhereNode:
    """Add such a dataset below `parent`, or to no group; the caller has checked everything."""
    node = ElsewhereNode(tree, name, tree.next_uid, element, away)
    node.maxshape, node.parent = maxshape, parent
    tree.next_uid += 1
    tree.datasets[node.uid] = node
    tree.history.append(node)
    if parent is None:
        tree.loose.add(node.uid)
    else:
        parent.children[name] = node
        parent.note(name)
    tree.touch()
    return node


# ------------------------------------------------------------------------------------------------- markers


def read_marker(tree: Tree, uid: int, name: str, marker: Mapping[str, Any]) -> ElsewhereNode | None:
    """Return the dataset that the marker of a variable says it is; None if it does not fit."""
    try:
        return _read(tree, uid, name, marker)
    except (PncVolError, TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None


def _read(tree: Tree, uid: int, name: str, marker: Mapping[str, Any]) -> ElsewhereNode:
    described, shape = marker["elsewhere"], _shape(marker["shape"])
    dtype = undescribe(marker["dtype"])
    if dtype is None or len([key for key in ("raw", "virtual") if key in described]) != 1:
        raise ValueError("no type, or no place")
    element = element_of(dtype)
    fill = bytes.fromhex(described["fill"]) if "fill" in described else None
    if fill is not None and (len(fill) != element.dtype.itemsize or element.dtype.hasobject):
        raise ValueError("fill")
    away = Elsewhere(shape, fill)
    if "raw" in described:
        away = away._replace(segments=tuple(_segment(*one) for one in described["raw"]))
        if element.dtype.hasobject:
            raise ValueError("objects in raw files")
    else:
        away = away._replace(sources=tuple(_source(one, shape) for one in described["virtual"]))
    node = ElsewhereNode(tree, "", uid, element, away)
    node.cdf_name = name
    if "max" in marker:
        limits = marker["max"]
        if len(limits) != len(shape) or not all(limit is None or _is_size(limit) for limit in limits):
            raise ValueError("max")
        node.maxshape = tuple(limits)
    return node


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _shape(described: Any) -> Shape:
    if not isinstance(described, list) or len(described) > MOST_AXES or not all(map(_is_size, described)):
        raise ValueError("shape")
    if prod(n or 1 for n in described) >= _LARGEST:
        raise ValueError("size")
    return tuple(described)


def _segment(file: Any, offset: Any, nbytes: Any) -> Segment:
    named = is_text(file) and file and "\0" not in file
    if not named or not _is_size(offset) or not (nbytes is None or _is_size(nbytes)):
        raise ValueError("segment")
    return Segment(file, offset, nbytes)


def _source(described: Any, shape: Shape) -> SourceMapping:
    if not is_text(described["file"]) or not is_text(described["name"]) or not described["file"]:
        raise ValueError("source")
    found = SourceMapping(_region(described["to"]), described["file"], described["name"], _region(described["of"]))
    if problem(found, shape):
        raise ValueError("source")
    return found


def problem(source: SourceMapping, shape: Shape) -> str:
    """Return what is wrong with a source of a virtual dataset of this shape; empty if it fits."""
    to, of = source.to, source.of
    if len(to.axes) != len(shape) or any(end > n for end, n in zip(to.ends(), shape, strict=True) if end):
        return f"it is shown at {to.axes}, outside of a dataset of shape {shape}"
    if of.unlimited >= 0 > to.unlimited:
        return "the selection of the source has no limit, and that of the virtual dataset has one"
    has_number = "%b" in source.file.replace("%%", "") + source.name.replace("%%", "")
    if source.is_numbered and not has_number:
        return "an unlimited selection needs a source with an unlimited selection, or a name with %b"
    if has_number and not source.is_numbered:
        return "a name with %b needs an unlimited selection, and a source with a limited one"
    if prod(to.counts()) != prod(of.counts()):
        return f"the selections have a different number of elements: {prod(to.counts())} and {prod(of.counts())}"
    return ""


def _description(region: Hyperslab) -> dict[str, Any]:
    return {"shape": list(region.shape), "axes": [list(along) if isinstance(along, Evenly) else {"list": list(along)}
                                                   for along in region.axes]}  # fmt: skip


def _region(described: Any) -> Hyperslab:
    shape, axes = _shape(described["shape"]), tuple(map(_along, described["axes"]))
    region = Hyperslab(shape, axes)
    if len(axes) != len(shape) or sum(isinstance(a, Evenly) and a.count is None for a in axes) > 1:
        raise ValueError("axes")
    if any(end >= _LARGEST for end in region.ends()) or prod(region.counts()) >= _LARGEST:
        raise ValueError("size")
    return region


def _along(described: Any) -> Along:
    if isinstance(described, dict):
        found = described["list"]
        if not all(map(_is_size, found)) or any(b <= a for a, b in itertools.pairwise(found)):
            raise ValueError("list")
        return tuple(found)
    start, stride, count, block = described
    if not (_is_size(start) and _is_size(stride) and _is_size(block) and (count is None or _is_size(count))):
        raise ValueError("blocks")
    if min(block, stride) < 1 or (block > stride and count != 1):
        raise ValueError("blocks")
    return Evenly(start, stride, count, block)


# ------------------------------------------------------------------------------------------------- indices


def common(wanted: Indices, there: Indices) -> tuple[Indices, Indices]:
    """Return the indices that are in both, as their places in the one and in the other; both are increasing.

    Examples
    --------
    >>> common(range(0, 20, 2), range(3, 20, 3))
    (range(3, 12, 3), range(1, 7, 2))
    """
    if isinstance(wanted, range) and isinstance(there, range):
        return _common_ranges(wanted, there)
    if isinstance(wanted, range):
        return _in_range(wanted, np.asarray(there))
    if isinstance(there, range):
        second, first = _in_range(there, wanted)
        return first, second
    _, one, other = np.intersect1d(wanted, there, assume_unique=True, return_indices=True)
    return one, other


def _in_range(numbers: range, found: npt.NDArray[np.int64]) -> tuple[Indices, Indices]:
    if not len(numbers):
        return range(0), range(0)
    offset = found - numbers.start
    inside = np.flatnonzero((offset >= 0) & (found <= numbers[-1]) & (offset % numbers.step == 0))
    return offset[inside] // numbers.step, inside


def _common_ranges(one: range, other: range) -> tuple[range, range]:
    nothing = range(0), range(0)
    if not len(one) or not len(other):
        return nothing
    a, b = one.step, other.step
    shared, apart = gcd(a, b), other.start - one.start
    if apart % shared:
        return nothing
    step = lcm(a, b)
    # The first common element of the two sequences without ends, by the Chinese remainder theorem.
    first = one.start + a * (apart // shared * pow(a // shared, -1, b // shared) % (b // shared) if b > shared else 0)
    least, most = max(one.start, other.start), min(one[-1], other[-1])
    first += -(-(least - first) // step) * step if first < least else -((first - least) // step) * step
    if first > most:
        return nothing
    count = (most - first) // step + 1
    return tuple(
        range((first - r.start) // r.step, (first - r.start) // r.step + count * (step // r.step), step // r.step)
        for r in (one, other)
    )  # type: ignore[return-value]
