"""What a file should hold: a model in numpy, and how it is compared with what is read.

Knows: kinds of elements, selections as numpy has them, names and links. Does not know: how an act changes it (`acts`),
options, crashes (`events`).

The model is the same for every configuration: that is the promise. Values are drawn as `Values`, few numbers from
which an array follows, so that a program can be printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import h5py
import numpy as np
from modelling import COMPOUND, outer
from options import OTHER

import pnc_vol

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Impossible(Exception):
    """An act means nothing in this state: what it needs is not there, or was taken out of the program."""


EMPTY = "an attribute without elements"


def need(there: Any) -> None:
    """Raise `Impossible` without what an act needs."""
    if not there:
        raise Impossible


NUMBERS = ("i1", "i2", "i4", "f4", "f8", "u1", "u2", "u4", "i8", "u8")
"""Types of CDF-5; CDF-1 and CDF-2 have the first five."""
KINDS = (*NUMBERS, ">i4", "<f8", "f2", "c16", "?", "S5", "text", "compound", "rows", "enum", "pair", "V3")
REFERENCES = {"ref": "ref_dtype", "region": "regionref_dtype"}
"""Kinds of references, with their dtypes; an act of their own makes them."""
INNER = {"pair": (2,)}
"""Axes of one element."""


def dtype_of(h: Any, kind: str) -> Any:
    """The dtype of a kind, made by `h`: pnc_vol, h5py, or a script that is being written."""
    if kind == "text":
        return h.string_dtype()
    if kind == "rows":
        return h.vlen_dtype("i4")
    if kind in REFERENCES:
        return getattr(h, REFERENCES[kind])
    if kind == "enum":
        return h.enum_dtype({"RED": 0, "BLUE": 2, "GREEN": 1}, "i2")
    return {"compound": COMPOUND, "pair": "(2,)i4", "elsewhere": "i4"}.get(kind, kind)


class Values(NamedTuple):
    """An array whose elements count from `start`; the same three fields always give the same array."""

    start: int
    shape: Shape
    kind: str

    @property
    def array(self) -> Array:
        numbers = np.arange(self.start, self.start + math.prod(self.shape)) % 97 + 1
        if self.kind == "text":
            return _objects([b"t%d" % n * (n % 3) for n in numbers], self.shape)
        if self.kind == "rows":
            return _objects([np.arange(n, n + n % 4, dtype="i4") for n in numbers.tolist()], self.shape)
        if self.kind == "compound":
            made = np.zeros(len(numbers), COMPOUND)
            made["p"], made["q"], made["s"] = numbers, numbers / 2, [b"%d" % n for n in numbers]
            made["t"] = numbers[:, None] + [0, 1]
            return made.reshape(self.shape)
        if self.kind == "pair":
            return (numbers[:, None] * [1, -1]).astype("i4").reshape(*self.shape, 2)
        if self.kind == "S5":
            return np.array([b"s%d" % n for n in numbers], "S5").reshape(self.shape)
        if self.kind == "V3":
            return np.array([bytes([n, 7, n]) for n in numbers], "V3").reshape(self.shape)
        if self.kind in ("?", "enum"):
            return (
                (numbers % (2 if self.kind == "?" else 3)).astype("?" if self.kind == "?" else "i2").reshape(self.shape)
            )
        return numbers.astype(self.kind).reshape(self.shape)


HELPER = """def values(start, shape, dtype):
    return (np.arange(start, start + np.prod(shape, dtype=int)) % 97 + 1).astype(dtype).reshape(shape)
"""


def literal(array: Array) -> str:
    """An array as a line of a script has it."""
    if array.dtype == object:
        flat = [item.tolist() if isinstance(item, np.ndarray) else item for item in array.ravel()]
        if flat and isinstance(flat[0], list):
            rows = ", ".join(f"np.array({item}, 'i4')" for item in flat)
            return f"np.array([{rows}, None], object)[:-1].reshape({array.shape})"
        return f"np.array({flat}, object).reshape({array.shape})"
    dtype = repr(array.dtype.descr if array.dtype.names else array.dtype.str)
    if array.dtype.kind == "V" and not array.dtype.names:
        return f"np.frombuffer({array.tobytes()!r}, {dtype}).reshape({array.shape})"
    if array.size and array.dtype.kind in "iuf" and np.array_equal(array, np.broadcast_to(array.flat[0], array.shape)):
        return f"np.full({array.shape}, {array.flat[0].item()!r}, {dtype})"
    if array.size == 0:
        return f"np.zeros({array.shape}, {dtype})"
    if array.size > 12 and array.dtype.kind in "iufc":
        first = int(array.flat[0].real) - 1
        if np.array_equal(Values(first, array.shape, array.dtype.str).array, array):
            return f"values({first}, {array.shape}, {array.dtype.str!r})"
    if array.dtype.names:
        # elements with arrays in them
        flat = [
            tuple(one.tolist() if isinstance(one, np.ndarray) else one for one in row) for row in array.ravel().tolist()
        ]
        return f"np.array({flat!r}, {dtype}).reshape({array.shape})"
    return f"np.array({array.tolist()!r}, {dtype})"


def _objects(items: list[Any], shape: Shape) -> Array:
    made = np.empty(len(items), object)
    for i, item in enumerate(items):
        made[i] = item
    return made.reshape(shape)


class Blocks(pnc_vol.MultiBlockSlice, h5py.MultiBlockSlice):
    """Blocks of elements as an index of both libraries."""

    def __repr__(self) -> str:
        return f"h5py.{super().__repr__()}"


def cells(shape: Shape, at: Any) -> Array:
    """Flat numbers of the elements that an index selects, in the shape of the selection.

    Raises
    ------
    Impossible
        There are none such.
    """
    try:
        if isinstance(at, np.ndarray) and at.dtype == bool and at.shape == shape:
            return np.flatnonzero(at)
        if isinstance(at, tuple):
            at = tuple(_listed(part, shape[i]) if isinstance(part, Blocks) else part for i, part in enumerate(at))
        return np.asarray(outer(np.arange(math.prod(shape)).reshape(shape), at))
    except (IndexError, ValueError, TypeError) as error:
        raise Impossible(str(error)) from None


def _listed(blocks: Blocks, n: int) -> list[int]:
    """The elements of an axis that blocks select."""
    start, stride, count, block = blocks.indices(n)
    return [start + stride * i + j for i in range(count) for j in range(block)]


class Part(NamedTuple):
    """Elements that a dataset shows: where it has them, the file ("" is this one) and path of the source, and which."""

    to: tuple[slice | int, ...]
    file: str
    name: str
    of: tuple[slice | int, ...]


@dataclass
class Data:
    """A dataset.

    values : array, of objects for texts and rows; with the axes of one element behind.
    posted : bool[shape], elements that were posted since the last flush.
    cost : int, bytes that these posts take at most, with what describes them.
    attached : bool, scales are attached to it, so that it cannot become one.
    tracked : bool, attributes are listed in the order of their creation.
    labels : dict, of axes.
    scales : list of Data, attached to the first axis.
    targets : list, of each reference the names that the object had to which it leads, and the object.
    parts : list of Part, where the elements are that are elsewhere.
    smaller : bool, a source has become too small, so that nothing can be read.
    """

    kind: str
    values: Array
    maxshape: tuple[int | None, ...]
    fill: Any = None
    attrs: dict[str, Any] = field(default_factory=dict)
    posted: Array = field(default_factory=lambda: np.zeros(0, bool))
    scale: bool = False
    attached: bool = False
    cost: int = 0
    tracked: bool = False
    labels: dict[int, str] = field(default_factory=dict)
    scales: list[Data] = field(default_factory=list)
    targets: list[tuple[list[str], Any]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    smaller: bool = False

    @property
    def shape(self) -> Shape:
        inner = len(INNER.get(self.kind, ()))
        return self.values.shape[: self.values.ndim - inner]

    def empty(self, shape: Shape) -> Array:
        """Elements that were never written."""
        if self.kind in ("text", *REFERENCES):
            return _objects([b""] * math.prod(shape), shape)
        if self.kind == "rows":
            return _objects([np.zeros(0, "i4") for _ in range(math.prod(shape))], shape)
        whole = (*shape, *INNER.get(self.kind, ()))
        if self.fill is not None:
            return np.full(whole, self.fill, self.values.dtype)
        return np.zeros(whole, self.values.dtype)

    def at(self, at: Any) -> Array:
        """The values of a selection, a copy."""
        chosen = cells(self.shape, at)
        flat = self.values.reshape(-1, *INNER.get(self.kind, ()))
        found = np.empty((*chosen.shape, *INNER.get(self.kind, ())), self.values.dtype)
        if chosen.ndim:
            found[...] = flat[chosen]
        else:
            found.reshape(1, *found.shape)[0] = flat[chosen]
        return found

    def put(self, at: Any, given: Any) -> None:
        """Values for a selection, broadcast as numpy does it."""
        chosen = cells(self.shape, at)
        inner = INNER.get(self.kind, ())
        new = np.empty((*chosen.shape, *inner), self.values.dtype)
        try:
            new[...] = given
        except (ValueError, TypeError) as error:
            raise Impossible(str(error)) from None
        if not self.values.flags.c_contiguous:
            self.values = self.values.copy()
        self.values.reshape(-1, *inner)[chosen] = new[()] if new.ndim == 0 else new
        self.posted = self.posted.copy()
        self.posted.reshape(-1)[chosen] = True
        # a list of elements has a row for each, of the memory and of the log
        self.cost += 200 + chosen.size * (self.values.itemsize + max(160, 16 * len(self.shape)))

    def resize(self, shape: Shape) -> None:
        """Keep what is in both shapes."""
        common = tuple(slice(0, min(a, b)) for a, b in zip(shape, self.shape, strict=True))
        new, posted = self.empty(shape), np.zeros(shape, bool)
        new[common] = self.values[common]
        posted[common] = self.posted[common]
        self.values, self.posted = new, posted

    def copy(self) -> Data:
        """A dataset of its own, with the same content."""
        return Data(
            self.kind,
            self.values.copy(),
            self.maxshape,
            self.fill,
            dict(self.attrs),
            np.ones(self.shape, bool),
            self.scale,
            self.attached,
            tracked=self.tracked,
            labels=dict(self.labels),
            targets=list(self.targets),
            scales=list(self.scales),
            parts=self.parts,
        )


class Tracked(dict[str, Any]):
    """The attributes of a group whose members and attributes are listed in the order of their creation."""

    def copy(self) -> Tracked:
        return Tracked(self)


class Named(dict[str, Any]):
    """A named type: its attributes, as those of a group, and its kind."""

    def __init__(self, kind: str, attrs: Any = ()) -> None:
        super().__init__(attrs)
        self.kind = kind

    def __reduce__(self) -> Any:
        return Named, (self.kind, dict(self))

    def copy(self) -> Named:
        return Named(self.kind, self)


def new_data(kind: str, shape: Shape, maxshape: Any, fill: Any, *, tracked: bool = False) -> Data:
    """A dataset that nobody has written to."""
    made = Data(kind, Values(0, shape, kind).array, maxshape or shape, fill, tracked=tracked)
    made.values, made.posted = made.empty(shape), np.zeros(shape, bool)
    return made


@dataclass
class Model:
    """A file.

    objects : by path, a `Data`, a group as a dictionary of its attributes, or the path of a soft link as a text. Hard
        links are two paths of one object. The root is "".
    waiting : expected values of posted reads, by their number.
    swmr : bool, this session has the flag.
    atomic : bool, this session is in MPI's atomic mode.
    tracked : bool, names and attributes of the root are listed in the order of their creation.
    others : by name, the elements of the other files.
    """

    objects: dict[str, Any] = field(default_factory=lambda: {"": {}})
    waiting: dict[int, Array] = field(default_factory=dict)
    swmr: bool = False
    atomic: bool = False
    tracked: bool = False
    others: dict[str, Array] = field(default_factory=lambda: {name: array.copy() for name, array in OTHER.items()})

    def data(self, path: str) -> Data:
        found = self.objects.get(path)
        if not isinstance(found, Data):
            raise Impossible(path)
        return found

    def attrs(self, path: str) -> dict[str, Any]:
        found = self.objects.get(path)
        if found is None or isinstance(found, str):
            raise Impossible(path)
        return found.attrs if isinstance(found, Data) else found  # type: ignore[no-any-return]

    def paths(self, kind: type | None = None) -> list[str]:
        """Of all objects, or of datasets (`Data`), groups (`dict`), soft links (`str`)."""
        return [path for path, found in self.objects.items() if kind is None or isinstance(found, kind)]

    def below(self, path: str) -> list[str]:
        """A path and all that are in it."""
        return [one for one in self.objects if one == path or one.startswith(path + "/")]

    def add(self, path: str, found: Any) -> None:
        """Put an object at a path, making groups on the way."""
        steps = path.split("/")
        if path in self.objects or not path:
            raise Impossible(path)
        need(path not in self.shown() or (isinstance(found, Data) and found.kind in NUMBERS))
        for n in range(1, len(steps)):
            if not isinstance(self.objects.get("/".join(steps[:n]), {}), dict):
                raise Impossible(path)
        for n in range(1, len(steps)):
            self.objects.setdefault("/".join(steps[:n]), {})
        self.objects[path] = found

    def shown(self) -> list[str]:
        """Paths of the sources of virtual datasets; some may lead to nothing."""
        return [part.name for path in self.paths(Data) for part in self.objects[path].parts if not part.file]

    def source(self, part: Part) -> Array | None:
        """The elements of the dataset of which some are shown; None if there is none."""
        found = self.objects.get(part.name)
        return self.others[part.file] if part.file else found.values if isinstance(found, Data) else None

    def follow(self) -> None:
        """What is shown is what the sources have now, or the fill value; nothing, if one has become too small."""
        for data in [self.objects[path] for path in self.paths(Data) if self.objects[path].parts]:
            data.values, data.smaller = data.empty(data.shape), False
            for part in data.parts:
                if (source := self.source(part)) is not None:
                    try:
                        assert cells(source.shape, part.of).shape == data.values[part.to].shape
                    except (Impossible, AssertionError):
                        data.smaller = True
                    else:
                        data.values[part.to] = np.clip(source[part.of], -(1 << 31), (1 << 31) - 1)
            if data.smaller:
                data.values = data.empty(data.shape)

    def flushed(self) -> None:
        """Nothing is posted any more."""
        for path in self.paths(Data):
            data = self.objects[path]
            data.posted, data.cost = np.zeros(data.shape, bool), 0

    def closed(self) -> None:
        """The session has ended."""
        self.waiting.clear()
        self.swmr = self.atomic = False


# ---------------------------------------------------------------------------------------------- comparing


def difference(got: Any, wanted: Any) -> str:
    """Where values that were read are not those of the model; "" if they are."""
    if isinstance(wanted, str) and wanted == EMPTY:
        return "" if got.shape is None and got.dtype == "f4" else f"{got!r} is not empty"
    got, wanted = np.asarray(got), np.asarray(wanted)
    if wanted.dtype == object and not wanted.shape and isinstance(wanted[()], np.ndarray):
        wanted = wanted[()]  # one row is an array itself
    if got.shape != wanted.shape:
        return f"its shape is {got.shape}, not {wanted.shape}"
    if wanted.dtype == object:
        for i, (one, other) in enumerate(zip(got.ravel(), wanted.ravel(), strict=True)):
            if isinstance(other, np.ndarray):
                if not np.array_equal(one, other):
                    return f"row {i} is {one!r}, not {other!r}"
            elif (one.encode() if isinstance(one, str) else one) != other:
                return f"element {i} is {one!r}, not {other!r}"
        return ""
    if wanted.dtype.kind == "V":
        same = np.asarray(got == wanted) if wanted.dtype.names else got.tobytes() == wanted.tobytes()
    else:
        same = np.asarray(got == wanted)
        if wanted.dtype.kind in "fc" and got.dtype.kind in "fc":
            same |= (got != got) & (wanted != wanted)
    if np.all(same):
        return ""
    if not isinstance(same, np.ndarray) or same.shape != wanted.shape:
        return f"{got.tolist()!r} is not {wanted.tolist()!r}"
    place = tuple(np.argwhere(~same)[0].tolist())
    wrong = f"{int((~same).sum())} of {same.size} elements are wrong"
    return f"{wrong}: {list(place)} is {got[place]!r}, not {wanted[place]!r}"


def objects_of(h: Any, group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All objects in a group by their paths, and soft links as such."""
    for name in group:
        where = f"{path}/{name}" if path else name
        link = group.get(name, getlink=True)
        found = link if isinstance(link, (h.SoftLink, h.ExternalLink)) else group[name]
        yield where, found
        if isinstance(found, h.Group):
            yield from objects_of(h, found, where)


def leads_to(link: Any) -> str | None:
    """Where a link leads, as the model has it."""
    return f"{link.filename}:{link.path}" if hasattr(link, "filename") else getattr(link, "path", None)


def references_difference(f: Any, got: Any, found: Data, model: Model) -> str:
    """Where references do not lead to what they led to, if this has all its names still: it is known by one of them."""
    for one, (names, target) in zip(got.ravel(), found.targets, strict=True):
        if not one:
            return f"{one!r} leads to nothing, not to {names[0]}"
        if all(model.objects.get(name) is target for name in names) and f[one] != f[names[0] or "/"]:
            return f"{one!r} does not lead to {names[0]}"
    return ""


def order_difference(h: Any, there: Any, path: str, model: Model) -> str:
    """Where names of members or of attributes are not in their order; "" if they are."""
    found = model.objects[path]
    tracked = found.tracked if isinstance(found, Data) else isinstance(found, Tracked) or (not path and model.tracked)
    if isinstance(found, Named) or not (tracked or h is pnc_vol):
        return ""  # of groups on the way to something HDF5 orders members as their parent, and attributes by name
    members = [one.rpartition("/")[2] for one in model.objects if one and one.rpartition("/")[0] == path]
    for got, wanted in (list(there) if members else [], members), (list(there.attrs), list(model.attrs(path))):
        shown = [name for name in got if name in wanted]
        if shown != (wanted if tracked else sorted(wanted)):
            return f"{path or '/'} lists {shown}, not {wanted} ({tracked=})"
    return ""


def whole_difference(h: Any, f: Any, model: Model) -> str:
    """Where a file is not the model: names, kinds, shapes, values, attributes."""
    names = [path for path, _ in objects_of(h, f)]
    wanted = [path for path in model.objects if path]
    if sorted(names) != sorted(wanted):
        return f"it has {sorted(set(names) - set(wanted))} and lacks {sorted(set(wanted) - set(names))}"
    for path, found in model.objects.items():
        if isinstance(found, str):
            link = f.get(path, getlink=True)
            if leads_to(link) != found:
                return f"{path} is {link!r}, not a link to {found}"
            continue
        there = f[path or "/"]
        if wrong := order_difference(h, there, path, model):
            return wrong
        known = h.Dataset if isinstance(found, Data) else h.Datatype if isinstance(found, Named) else h.Group
        if not isinstance(there, known):
            return f"{path} is {there!r}"
        if isinstance(found, Named) and there.dtype != np.dtype(found.kind):
            return f"{path} is the type {there.dtype}, not {found.kind}"
        for key, value in model.attrs(path).items():
            if key not in there.attrs:
                return f"attribute {key} of {path or '/'} is not there"
            if wrong := difference(there.attrs[key], value):
                return f"attribute {key} of {path or '/'}: {wrong}"
        if isinstance(found, Data):
            if (there.shape, there.maxshape) != (found.shape, found.maxshape):
                return f"{path} has {there.shape} of {there.maxshape}, not {found.shape} of {found.maxshape}"
            if np.dtype(there.dtype).base.newbyteorder("=") != (
                np.dtype(dtype_of(h, found.kind)).base.newbyteorder("=")
            ):
                return f"{path} has the type {there.dtype}, not {found.kind}"
            if found.fill is not None and there.fillvalue != found.fill:
                return f"{path} has the fill value {there.fillvalue}, not {found.fill}"
            if found.parts and h is not pnc_vol:
                continue
            try:
                got = there[()] if found.shape == () else there[...]
            except pnc_vol.SourceError:
                if not found.smaller:
                    raise
                continue
            if found.smaller:
                return f"{path} is read, though a source is too small"
            wrong = (
                references_difference(f, got, found, model)
                if found.kind in REFERENCES
                else difference(got, found.values)
            )
            if wrong:
                return f"{path}: {wrong}"
            if {i: axis.label for i, axis in enumerate(there.dims) if axis.label} != found.labels:
                return f"{path} has the labels {[axis.label for axis in there.dims]}, not {found.labels}"
            if there.is_scale != found.scale:
                return f"{path} is {'a' if there.is_scale else 'no'} scale"
    return ""
