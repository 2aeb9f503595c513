"""All acts of a program, through the public API only, each with its effect on the model.

Knows: `pnc_vol.File` and its objects, the model. Does not know: options but for what they refuse, events.

An act is a class with three functions:

draw(chance, model, config)   arguments that make sense now, as a dictionary, or None
effect(model, **args)         changes the model; what it returns is what `do` expects to read. It raises `Impossible`,
                              before it changes anything, if the act means nothing in this state
do(run, expected, **args)     does it. `run.f` is the file, `run.h` the module. With a file that only writes down what
                              it is told, the same function prints the act as lines of a script (`shrink`)

A new act is a new class with ``@act(weight)``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from model import KINDS, NUMBERS, Data, Impossible, Model, Values, cells, dtype_of, new_data
from options import Config, in_file, on_ranks

Args = dict[str, Any]


class Act(NamedTuple):
    """One line of the table."""

    name: str
    weight: float
    draw: Callable[[random.Random, Model, Config], Args | None]
    effect: Callable[..., Any]
    do: Callable[..., None]


ACTS: dict[str, Act] = {}


class Step(NamedTuple):
    """An act with its arguments: a program is a list of these."""

    act: str
    args: Args


def act(weight: float) -> Callable[[type], type]:
    """Put a class into the table."""

    def put(cls: Any) -> Any:
        ACTS[cls.__name__] = Act(cls.__name__, weight, cls.draw, cls.effect, cls.do)
        return cls

    return put


# ------------------------------------------------------------------------------------------- what is drawn

FOLDERS = ("", "", "", "g", "g/h", "k")
LENGTHS = (1, 2, 3, 5, 9, 40)


def new_name(chance: random.Random, model: Model) -> str:
    """A path that is free, in a group that may have to be made."""
    while True:
        folder, name = chance.choice(FOLDERS), f"{chance.choice('abcxyz')}{chance.randrange(30)}"
        path = f"{folder}/{name}" if folder else name
        if path not in model.objects and not isinstance(model.objects.get(folder, {}), (Data, str)):
            return path


def some_data(chance: random.Random, model: Model, wanted: Callable[[Data], bool] = lambda data: True) -> str | None:
    """The path of a dataset."""
    names = [path for path in model.paths(Data) if wanted(model.objects[path])]
    return chance.choice(names) if names else None


def may_scale(data: Data) -> bool:
    """Whether a dataset may become a scale."""
    return not (data.scale or data.attached)


def some_kind(chance: random.Random, config: Config) -> str:
    if config["layout"] == "rawfiles":
        # strings and rows would need variables that grow
        return chance.choice(NUMBERS if config["format"] == "CDF-5" else NUMBERS[:5])
    if config["format"] != "CDF-5":
        return chance.choice(NUMBERS[:5] if chance.random() < 0.8 else ("S5", "text"))
    found = chance.choice(NUMBERS if chance.random() < 0.7 else KINDS)
    return "i4" if found == "rows" and on_ranks(config) else found  # several ranks cannot write rows


def some_shape(chance: random.Random) -> tuple[int, ...]:
    ndim = chance.choice((0, 1, 1, 2, 2, 3))
    shape = tuple(chance.choice(LENGTHS) for _ in range(ndim))
    if chance.random() < 0.05:
        return (chance.choice((3000, 20000)),)
    return (0, *shape[1:]) if ndim and chance.random() < 0.1 else shape


def some_index(chance: random.Random, shape: tuple[int, ...]) -> Any:
    """An index that both h5py and numpy take."""
    if not shape:
        return ()
    if chance.random() < 0.25:
        return (Ellipsis,)
    parts: list[Any] = []
    listed = False
    for n in shape:
        way = chance.randrange(6)
        low = chance.randint(0, n)
        high = chance.randint(low, n)
        if way == 0 and n:
            parts.append(chance.randrange(n))
        elif way == 1:
            parts.append(slice(low, high, chance.choice((None, 1, 2, 3))))
        elif way == 2 and n and not listed and n < 50:
            listed = True
            parts.append(sorted(chance.sample(range(n), chance.randint(1, min(n, 4)))))
        elif way == 3:
            parts.append(slice(None))
        else:
            parts.append(slice(low, high))
    return tuple(parts)


def index_shape(shape: tuple[int, ...], at: Any) -> tuple[int, ...]:
    return cells(shape, at).shape


def numeric(data: Data) -> bool:
    return data.kind in (*NUMBERS, ">i4", "<f8")


CASTS = ("i4", "i8", "f8", ">f8", "<i8", "f4")


# --------------------------------------------------------------------------------------------- several ranks


def share(ds: Any, cells: Any, values: Any, way: str, rank: int, size: int) -> None:
    """Post those of the elements `cells` (numbers in C order, ascending) that are this rank's: always the same ones."""
    mine = cells // 3 % size == rank
    if not mine.any():
        return
    if way == "iput" and len(ds.shape):
        from pnc_vol import Decomposition

        ones = np.ones(int(mine.sum()), int)
        ds.iput(Decomposition.from_runs(cells[mine], ones, ds.shape), np.ascontiguousarray(values[mine]))
    elif len(ds.shape):
        mask = np.zeros(ds.shape, bool)
        mask.reshape(-1)[cells[mine]] = True
        ds[mask] = values[mine]
    else:
        ds[()] = values[0]


def put(run: Any, path: str, at: Any, values: Values, way: str) -> None:
    """Post a selection: on several ranks each posts a part of it, or one posts elements that are no numbers."""
    data = run.model.data(path)
    if run.size == 1:
        given = run.given(values)
        if run.twin and values.shape == ():
            # h5py does not broadcast to lists
            given = np.broadcast_to(values.array, index_shape(data.shape, at))
        if way == "assign" or run.twin:
            run.f[path][at] = given
        elif way == "iput":
            run.f[path].iput(at, given)
        else:
            run.f[path].iput(at, given).wait()
        return
    if not numeric(data):
        run.first(lambda: run.f[path].__setitem__(at, run.given(values)))
        return
    chosen = cells(data.shape, at)
    whole = np.broadcast_to(values.array, chosen.shape).ravel()
    run.call(share)(run.f[path], chosen.ravel(), whole, "assign" if way == "assign" else "iput", run.rank, run.size)


# ----------------------------------------------------------------------------------------------- definitions


@act(2)
class group:
    """`create_group`."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        return {"path": new_name(chance, model)}

    @staticmethod
    def effect(model: Model, path: str) -> None:
        model.add(path, {})

    @staticmethod
    def do(run: Any, expected: Any, path: str) -> None:
        run.f.create_group(path)


@act(9)
class create:
    """`create_dataset`, of every type and kind of shape."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        if len(model.paths(Data)) >= 8:
            return None
        kind, shape = some_kind(chance, config), some_shape(chance)
        maxshape: Any = None
        if shape and chance.random() < 0.6:
            grown = tuple(n + chance.choice((0, 2, 5)) for n in shape)
            maxshape = chance.choice(((None, *shape[1:]), (None, *shape[1:]), (None,) * len(shape), grown))
        elif 0 in shape:
            maxshape = (None, *shape[1:])
        if kind == "rows" and not shape:
            shape = (3,)  # of a scalar with a row, both libraries give the row itself
        fill = 7 if kind in NUMBERS and chance.random() < 0.4 else None
        values = Values(chance.randrange(97), shape, kind) if chance.random() < 0.4 else None
        return {"path": new_name(chance, model), "kind": kind, "shape": shape, "maxshape": maxshape, "fill": fill,
                "values": values}  # fmt: skip

    @staticmethod
    def effect(model: Model, path: str, kind: str, shape: Any, maxshape: Any, fill: Any, values: Any) -> None:
        made = new_data(kind, shape, maxshape, fill)
        if values is not None:
            made.put(..., values.array)
        model.add(path, made)

    @staticmethod
    def do(run: Any, expected: Any, path: str, kind: str, shape: Any, maxshape: Any, fill: Any, values: Any) -> None:
        more: Args = {} if maxshape is None else {"maxshape": maxshape}
        more |= {} if fill is None else {"fillvalue": fill}
        more |= {} if values is None else {"data": run.given(values)}
        more |= {"fill_time": "alloc"} if run.twin else {}
        run.f.create_dataset(path, shape, dtype_of(run.h, kind), **more)
        if values is not None:
            run.settle()


@act(2)
class store:
    """``f[path] = values``."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        kind = chance.choice(NUMBERS[:5] if config["format"] != "CDF-5" else (*NUMBERS, "S5"))
        values = Values(chance.randrange(97), some_shape(chance), kind)
        if kind == "S5" and not values.shape:
            return None  # of one text numpy knows its own length alone
        return {"path": new_name(chance, model), "values": values}

    @staticmethod
    def effect(model: Model, path: str, values: Values) -> None:
        if 0 in values.shape:
            raise Impossible
        made = new_data(values.kind, values.shape, None, None)
        made.put(..., values.array)
        model.add(path, made)

    @staticmethod
    def do(run: Any, expected: Any, path: str, values: Values) -> None:
        run.f[path] = run.given(values)
        run.settle()


@act(4)
class resize:
    """`Dataset.resize` along one axis."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model, lambda data: data.maxshape != data.shape or None in data.maxshape)
        if path is None:
            return None
        data = model.data(path)
        axis = chance.choice([i for i, n in enumerate(data.maxshape) if n is None or n != data.shape[i]] or [0])
        most = data.maxshape[axis]
        old = data.shape[axis]
        size = chance.choice((old + 1, old + 3, max(old - 1, 0), max(old - 3, 1), old))
        return {"path": path, "axis": axis, "size": size if most is None else min(size, most)}

    @staticmethod
    def effect(model: Model, path: str, axis: int, size: int) -> bool:
        data = model.data(path)
        if axis >= len(data.shape):
            raise Impossible
        most, shorter = data.maxshape[axis], size < data.shape[axis]
        if most is not None and size > most:
            raise Impossible
        data.resize((*data.shape[:axis], size, *data.shape[axis + 1 :]))
        return shorter

    @staticmethod
    def do(run: Any, expected: Any, path: str, axis: int, size: int) -> None:
        run.f[path].resize(size, axis=axis)
        if expected and not run.twin and run.config["layout"] == "rawfiles":
            # records that are cut off and come again before a flush would need a copy of the raw file
            run.f.flush()


@act(2)
class delete:
    """``del f[path]``, of a dataset, a group with all in it, or a link."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        paths = [path for path in model.paths() if path]
        return {"path": chance.choice(paths)} if paths else None

    @staticmethod
    def effect(model: Model, path: str) -> None:
        if path not in model.objects or not path:
            raise Impossible
        for one in model.below(path):
            del model.objects[one]

    @staticmethod
    def do(run: Any, expected: Any, path: str) -> None:
        del run.f[path]


@act(1)
class move:
    """`Group.move`."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        if config["layout"] == "rawfiles":
            return None  # the name of a raw file is that of its variable
        paths = [path for path in model.paths() if path]
        return {"source": chance.choice(paths), "to": new_name(chance, model)} if paths else None

    @staticmethod
    def effect(model: Model, source: str, to: str) -> None:
        below = model.below(source)
        if not below or not source or to == source or to.startswith(source + "/"):
            raise Impossible
        moved = {to + one[len(source) :]: model.objects[one] for one in below}
        model.add(to, moved[to])
        for one in below:
            del model.objects[one]
        model.objects |= moved

    @staticmethod
    def do(run: Any, expected: Any, source: str, to: str) -> None:
        run.f.move(source, to)


@act(1)
class copy:
    """`Group.copy` within the file."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        paths = [path for path in (*model.paths(Data), *model.paths(dict)) if path]
        if not paths or len(model.paths(Data)) >= 8:
            return None
        return {"source": chance.choice(paths), "to": new_name(chance, model)}

    @staticmethod
    def effect(model: Model, source: str, to: str) -> None:
        found = model.objects.get(source)
        if found is None or isinstance(found, str) or not source or to.startswith(source + "/"):
            raise Impossible
        below = {to + one[len(source) :]: model.objects[one] for one in model.below(source)}
        made: dict[int, Any] = {}
        for found in below.values():
            # hard links within a copy stay links
            made.setdefault(id(found), found if isinstance(found, str) else found.copy())
        below = {path: made[id(found)] for path, found in below.items()}
        model.add(to, below[to])
        model.objects |= below

    @staticmethod
    def do(run: Any, expected: Any, source: str, to: str) -> None:
        run.settle()
        run.f.copy(source, to)
        run.settle()


@act(0.7)
class link:
    """A hard or a soft link to a dataset."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model)
        # without the first of its hard links a variable has another name, which that of a raw file is
        soft = chance.random() < 0.5 or config["layout"] == "rawfiles"
        return path and {"to": path, "path": new_name(chance, model), "soft": soft}

    @staticmethod
    def effect(model: Model, path: str, to: str, soft: bool) -> None:
        data = model.data(to)
        model.add(path, f"/{to}" if soft else data)

    @staticmethod
    def do(run: Any, expected: Any, path: str, to: str, soft: bool) -> None:
        run.f[path] = run.h.SoftLink(f"/{to}") if soft else run.f[to]


@act(3)
class attribute:
    """An attribute of a dataset, a group or the file; a long one makes the header grow."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = chance.choice(model.paths(Data) + model.paths(dict))
        text = "note " * chance.choice((1, 3, 3, 500, 5000))
        kinds = NUMBERS[:5] if config["format"] != "CDF-5" else (*NUMBERS, "S5", "text", "compound")
        array = Values(chance.randrange(97), chance.choice(((), (1,), (3,), (2, 2))), chance.choice(kinds))
        return {"path": path, "key": chance.choice("pqr"), "value": chance.choice((text, array))}

    @staticmethod
    def effect(model: Model, path: str, key: str, value: Any) -> None:
        model.attrs(path)[key] = value.array if isinstance(value, Values) else value

    @staticmethod
    def do(run: Any, expected: Any, path: str, key: str, value: Any) -> None:
        if isinstance(value, Values) and value.kind == "text":
            run.f[path or "/"].attrs.create(key, run.given(value), dtype=run.h.string_dtype())
        else:
            run.f[path or "/"].attrs[key] = run.given(value) if isinstance(value, Values) else value


@act(0.7)
class forget_attribute:
    """``del attrs[key]``."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        there = [(path, key) for path in model.paths(Data) + model.paths(dict) for key in model.attrs(path)]
        return dict(zip(("path", "key"), chance.choice(there), strict=True)) if there else None

    @staticmethod
    def effect(model: Model, path: str, key: str) -> None:
        if key not in model.attrs(path):
            raise Impossible
        del model.attrs(path)[key]

    @staticmethod
    def do(run: Any, expected: Any, path: str, key: str) -> None:
        del run.f[path or "/"].attrs[key]


@act(0.7)
class scale:
    """A dimension scale, attached to the first axis of as many elements that is there."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model, lambda data: len(data.shape) == 1 and numeric(data) and may_scale(data))
        if path is None:
            return None
        of = model.data(path)
        fits = [one for one in model.paths(Data) if one != path and model.data(one) is not of and
                not model.data(one).scale and model.data(one).shape[:1] == of.shape]  # fmt: skip
        return {"path": path, "to": chance.choice(fits) if fits else None}

    @staticmethod
    def effect(model: Model, path: str, to: str | None) -> None:
        data = model.data(path)
        if not may_scale(data) or len(data.shape) != 1:
            raise Impossible
        if to is not None and (model.data(to).scale or model.data(to).shape[:1] != data.shape):
            raise Impossible
        if to is not None:
            model.data(to).attached = True
        data.scale = True

    @staticmethod
    def do(run: Any, expected: Any, path: str, to: str | None) -> None:
        run.f[path].make_scale()
        if to is not None:
            run.f[to].dims[0].attach_scale(run.f[path])


# ---------------------------------------------------------------------------------------------------- writes


@act(12)
class write:
    """One selection: assigned or posted, from an array or a single value, of the dataset's type or another one."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model)
        if path is None:
            return None
        data = model.data(path)
        at = some_index(chance, data.shape)
        kind = chance.choice(CASTS) if numeric(data) and chance.random() < 0.3 else data.kind
        if kind == "u8":
            kind = "i8"
        single = data.kind not in ("rows", "pair") and chance.random() < 0.2
        values = Values(chance.randrange(97), () if single else index_shape(data.shape, at), kind)
        way = chance.choice(("assign", "assign", "iput", "iput and wait"))
        if data.kind in ("compound", "rows", "text"):
            way = "assign"  # stored in several variables, which one request cannot write
        return {"path": path, "at": at, "values": values, "way": way}

    @staticmethod
    def effect(model: Model, path: str, at: Any, values: Values, way: str) -> None:
        data = model.data(path)
        if values.kind != data.kind and not numeric(data):
            raise Impossible
        if values.shape not in ((), index_shape(data.shape, at)):
            raise Impossible
        data.put(at, values.array)

    @staticmethod
    def do(run: Any, expected: Any, path: str, at: Any, values: Values, way: str) -> None:
        put(run, path, at, values, way)


@act(2)
class mask:
    """``ds[mask] = values`` and its reading."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model, lambda data: 0 < math.prod(data.shape) < 400 and numeric(data))
        if path is None:
            return None
        data = model.data(path)
        flags = np.array([chance.random() < 0.4 for _ in range(math.prod(data.shape))]).reshape(data.shape)
        return {"path": path, "flags": flags, "values": Values(chance.randrange(97), (int(flags.sum()),), data.kind)}

    @staticmethod
    def effect(model: Model, path: str, flags: Any, values: Values) -> Any:
        data = model.data(path)
        if data.shape != flags.shape or data.kind != values.kind or not data.shape:
            raise Impossible
        data.put(flags, values.array)
        return data.at(flags)

    @staticmethod
    def do(run: Any, expected: Any, path: str, flags: Any, values: Values) -> None:
        if run.twin and not flags.any():
            return  # h5py refuses a mask without elements
        put(run, path, flags, values, "assign")
        run.settle()
        run.same(run.f[path][flags], expected)


def boxes(chance: random.Random, shape: tuple[int, ...]) -> tuple[list[list[int]], list[list[int]]]:
    """Starts and counts of some boxes; they may overlap."""
    starts = [[chance.randrange(n) for n in shape] for _ in range(chance.randint(1, 4))]
    counts = [[chance.randint(1, n - a) for a, n in zip(start, shape, strict=True)] for start in starts]
    return starts, counts


@act(2)
class write_many:
    """`iput_many`, of boxes."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model, lambda data: bool(data.shape) and 0 not in data.shape and numeric(data))
        if path is None:
            return None
        data = model.data(path)
        starts, counts = boxes(chance, data.shape)
        total = sum(math.prod(count) for count in counts)
        values = Values(chance.randrange(97), (total,), data.kind)
        return {"path": path, "starts": starts, "counts": counts, "values": values}

    @staticmethod
    def effect(model: Model, path: str, starts: Any, counts: Any, values: Values) -> None:
        data = model.data(path)
        if len(starts[0]) != len(data.shape) or data.kind != values.kind:
            raise Impossible
        if any(a + n > m for box in zip(starts, counts, strict=True) for a, n, m in zip(*box, data.shape, strict=True)):
            raise Impossible
        done = 0
        for at, part, size in parts_of(starts, counts):
            data.put(at, values.array[done : done + size].reshape(part))
            done += size

    @staticmethod
    def do(run: Any, expected: Any, path: str, starts: Any, counts: Any, values: Values) -> None:
        if not run.twin and run.size == 1:
            run.f[path].iput_many(starts, counts, run.given(values))
            return
        done = 0
        for at, part, size in parts_of(starts, counts):
            put(run, path, at, values._replace(start=values.start + done, shape=part), "iput")
            done += size


def parts_of(starts: Any, counts: Any) -> list[tuple[Any, tuple[int, ...], int]]:
    """Each box as an index, with its shape and size."""
    return [
        (tuple(slice(a, a + n) for a, n in zip(*box, strict=True)), tuple(box[1]), math.prod(box[1]))
        for box in zip(starts, counts, strict=True)
    ]


@act(1)
class decomposed:
    """`iput` of a decomposition: runs of elements of the flattened dataset."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model, lambda data: bool(data.shape) and 0 not in data.shape and numeric(data))
        if path is None:
            return None
        data = model.data(path)
        size = math.prod(data.shape)
        cuts = sorted(chance.sample(range(size + 1), min(size + 1, 2 * chance.randint(1, 3)) // 2 * 2))
        starts, ends = cuts[::2], cuts[1::2]
        lengths = [b - a for a, b in zip(starts, ends, strict=True)]
        values = Values(chance.randrange(97), (sum(lengths),), data.kind)
        return {"path": path, "starts": starts, "lengths": lengths, "values": values} if starts else None

    @staticmethod
    def effect(model: Model, path: str, starts: Any, lengths: Any, values: Values) -> None:
        data = model.data(path)
        if data.kind != values.kind or not data.shape or starts[-1] + lengths[-1] > math.prod(data.shape):
            raise Impossible
        data.put(_flags(data.shape, starts, lengths), values.array)

    @staticmethod
    def do(run: Any, expected: Any, path: str, starts: Any, lengths: Any, values: Values) -> None:
        shape = run.model.data(path).shape
        if run.twin or run.size > 1:
            put(run, path, _flags(shape, starts, lengths), values, "iput")
        else:
            run.f[path].iput(run.h.Decomposition.from_runs(starts, lengths, shape), run.given(values))


def _flags(shape: tuple[int, ...], starts: Any, lengths: Any) -> Any:
    flags = np.zeros(math.prod(shape), bool)
    for start, length in zip(starts, lengths, strict=True):
        flags[start : start + length] = True
    return flags.reshape(shape)


@act(1)
class field:
    """One field of a compound dataset."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model, lambda data: data.kind == "compound" and bool(data.shape))
        if path is None:
            return None
        return {"path": path, "name": chance.choice("pq"), "value": chance.randrange(1, 90)}

    @staticmethod
    def effect(model: Model, path: str, name: str, value: int) -> Any:
        data = model.data(path)
        if data.kind != "compound":
            raise Impossible
        data.values = data.values.copy()
        data.values[name] = value
        data.posted = np.ones(data.shape, bool)
        return data.values[name].copy()

    @staticmethod
    def do(run: Any, expected: Any, path: str, name: str, value: int) -> None:
        run.settle()
        run.f[path][..., name] = value
        run.settle()
        run.same(run.f[path][name], expected)


# ----------------------------------------------------------------------------------------------------- reads


@act(6)
class read:
    """A selection, in one of the ways to read it."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model)
        if path is None:
            return None
        way = chance.choice(("index", "index", "iget", "collective", "astype", "direct"))
        return {"path": path, "at": some_index(chance, model.data(path).shape), "way": way}

    @staticmethod
    def effect(model: Model, path: str, at: Any, way: str) -> Any:
        found = model.data(path).at(at)
        return found.astype("f8") if way in ("astype", "direct") and numeric(model.data(path)) else found

    @staticmethod
    def do(run: Any, expected: Any, path: str, at: Any, way: str) -> None:
        run.settle()
        ds = run.f[path]
        if way == "iget" and not run.twin:
            # an array also of one element, which may be an array itself
            run.same(ds.iget(at).wait()[()], expected)
        elif way == "collective" and not run.twin:
            with ds.collective:
                run.same(ds[at], expected)
        elif way in ("astype", "direct") and numeric(run.model.data(path)):
            run.same(ds.astype("f8")[at], expected)
        else:
            run.same(ds[at], expected)


@act(3)
class post_read:
    """`iget`: it gives the values of this moment, whenever it is waited for."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model)
        if path is None or len(model.waiting) > 3 or on_ranks(config):
            return None  # what another rank has posted in between may be there or not
        key = max(model.waiting, default=0) + 1
        return {"path": path, "at": some_index(chance, model.data(path).shape), "key": key}

    @staticmethod
    def effect(model: Model, path: str, at: Any, key: int) -> None:
        model.waiting[key] = model.data(path).at(at)

    @staticmethod
    def do(run: Any, expected: Any, path: str, at: Any, key: int) -> None:
        run.kept[key] = run.f[path][at] if run.twin else run.f[path].iget(at)


@act(3)
class wait:
    """Of one posted read."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        return {"key": chance.choice(list(model.waiting))} if model.waiting else None

    @staticmethod
    def effect(model: Model, key: int) -> Any:
        if key not in model.waiting:
            raise Impossible
        return model.waiting.pop(key)

    @staticmethod
    def do(run: Any, expected: Any, key: int) -> None:
        request = run.kept.pop(key)
        run.same(request if run.twin else request.wait()[()], expected)


@act(2)
class look:
    """Everything, in the session that wrote it."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        return {}

    @staticmethod
    def effect(model: Model) -> None:
        return None

    @staticmethod
    def do(run: Any, expected: Any) -> None:
        run.settle()
        run.whole()


@act(1)
class cancel:
    """Posts that are taken back: one by its request, or all since a flush."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        if config["buffer_size"] < 1 << 20 or config["burst_buf_capacity"]:
            return None  # what a full queue has written stays
        path = some_data(chance, model, lambda data: bool(data.shape) and numeric(data))
        if path is None:
            return None
        at = some_index(chance, model.data(path).shape)
        values = Values(chance.randrange(97), index_shape(model.data(path).shape, at), model.data(path).kind)
        if 0 in values.shape:
            return None  # a request without elements is done when it is posted
        return {"path": path, "at": at, "values": values, "whole": chance.random() < 0.4}

    @staticmethod
    def effect(model: Model, path: str, at: Any, values: Values, whole: bool) -> Any:
        data = model.data(path)
        if index_shape(data.shape, at) != values.shape or data.kind != values.kind:
            raise Impossible
        if whole:
            model.flushed()
            model.waiting.clear()
        return data.at(at)

    @staticmethod
    def do(run: Any, expected: Any, path: str, at: Any, values: Values, whole: bool) -> None:
        if run.twin:
            return
        run.settle()
        if whole:
            run.f.flush()
            run.kept.clear()
            run.f[path][at] = run.given(values)
            run.f.cancel()
        else:
            run.f[path].iput(at, run.given(values)).cancel()
        run.same(run.f[path][at], expected)


# -------------------------------------------------------------------------------------------------- the file


@act(5)
class flush:
    """`flush`, plain or durable, or `sync`."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        ways = ("plain", "plain", "durable", "sync") if config["layout"] != "hdf5blob" else ("plain", "sync")
        return {"how": chance.choice(ways)}

    @staticmethod
    def effect(model: Model, how: str) -> None:
        model.flushed()

    @staticmethod
    def do(run: Any, expected: Any, how: str) -> None:
        if how == "sync" and not run.twin:
            run.f.sync()
        elif how == "durable" and not run.twin:
            run.f.flush(durable=True)
        else:
            run.f.flush()


def ends(config: Config) -> bool:
    """Whether a file can be opened again for writing once it was closed."""
    return config["stack"] != "memory" and config["layout"] != "hdf5blob"


@act(3)
class reopen:
    """The end of a session in one of four ways, and the next one; read by another opening in between, or not."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        if not ends(config):
            return None
        ways = ("close", "close", "raise", "forget") if not on_ranks(config) else ("close",)
        return {"how": chance.choice(ways), "mode": chance.choice(("r+", "a")), "look": chance.random() < 0.4}

    @staticmethod
    def effect(model: Model, how: str, mode: str, look: bool) -> None:
        model.flushed()
        model.closed()

    @staticmethod
    def do(run: Any, expected: Any, how: str, mode: str, look: bool) -> None:
        run.end(how)
        if look:
            run.f = run.open("r")
            run.whole()
            run.f.close()
        run.f = run.open(mode)


@act(0.4)
class again:
    """The file is created anew over itself."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        return {} if ends(config) or config["layout"] == "hdf5blob" else None

    @staticmethod
    def effect(model: Model) -> None:
        model.objects = {"": {}}
        model.closed()

    @staticmethod
    def do(run: Any, expected: Any) -> None:
        run.end("close")
        run.f = run.open("w")


@act(1)
class twice:
    """Another handle of the open file, which sees what was posted, and writes."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        path = some_data(chance, model, numeric)
        if path is None or config["stack"] in ("memory", "object"):
            return None
        data = model.data(path)
        return {"path": path, "values": Values(chance.randrange(97), data.shape, data.kind)}

    @staticmethod
    def effect(model: Model, path: str, values: Values) -> Any:
        data = model.data(path)
        if data.shape != values.shape or data.kind != values.kind:
            raise Impossible
        before = data.values.copy()
        data.put(() if data.shape == () else ..., values.array)
        return before

    @staticmethod
    def do(run: Any, expected: Any, path: str, values: Values) -> None:
        if run.twin:
            run.f[path][...] = run.given(values)
            return
        run.settle()
        other = run.open("r+")
        run.same(other[path][...], expected)
        run.barrier()  # what a rank posts may be in the file before its flush: its memory is bounded
        other[path][...] = run.given(values)
        other.close()
        run.settle()


@act(3)
class reader:
    """Another process, which keeps its handle from one look to the next, reads everything after a flush."""

    @staticmethod
    def draw(chance: random.Random, model: Model, config: Config) -> Args | None:
        named = config["layout"] in ("canonical", "blob") and config["publish"] == "create"
        return {} if in_file(config) and named else None

    @staticmethod
    def effect(model: Model) -> None:
        model.flushed()

    @staticmethod
    def do(run: Any, expected: Any) -> None:
        if not run.twin:
            run.f.sync()
            run.first(run.read_elsewhere)


HIDDEN = {"read", "look", "mask", "cancel", "field", "twice", "resize", "copy"}
"""Acts that read what other ranks wrote."""


def draw(chance: random.Random, model: Model, config: Config) -> Step:
    """The next act of a program; its effect on the model is not applied yet."""
    table = list(ACTS.values())
    if on_ranks(config) and config["layout"] == "hdf5blob":
        # until the close each rank keeps what it wrote, and nobody else reads it
        table = [one for one in table if one.name not in HIDDEN]
    while True:
        found = chance.choices(table, [one.weight for one in table])[0]
        args = found.draw(chance, model, config)
        if args is not None:
            return Step(found.name, args)
