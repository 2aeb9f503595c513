"""All acts of a program, through the public API only, each with its effect on the model.

Knows: `pnc_vol.File` and its objects, the model. Does not know: options but for what they refuse, events.

An act is a class with three functions, which is never an object:

draw(chance, model, config)   arguments that make sense now, as a dictionary; it raises `Impossible` if there are none
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
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from model import (
    EMPTY,
    KINDS,
    NUMBERS,
    REFERENCES,
    Blocks,
    Data,
    Impossible,
    Model,
    Named,
    Part,
    Tracked,
    Values,
    cells,
    dtype_of,
    need,
    new_data,
)
from options import Config, in_file, on_ranks

Args = dict[str, Any]


class Act(NamedTuple):
    """One line of the table."""

    name: str
    weight: float
    draw: Callable[[random.Random, Model, Config], Args]
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
        def effect(model: Model, **args: Any) -> Any:
            found = cls.effect(model, **args)
            model.follow()
            return found

        ACTS[cls.__name__] = Act(cls.__name__, weight, cls.draw, effect, cls.do)
        return cls

    return put


# ------------------------------------------------------------------------------------------- what is drawn

FOLDERS = ("", "", "", "g", "g/h", "k")
LENGTHS = (1, 2, 3, 5, 9, 40)


def new_name(chance: random.Random, model: Model) -> str:
    """A path that is free, in a group that may have to be made."""
    gone = [path for path in model.shown() if path not in model.objects]
    while True:
        folder, name = chance.choice(FOLDERS), f"{chance.choice('abcxyz')}{chance.randrange(30)}"
        path = f"{folder}/{name}" if folder else name
        path = chance.choice(gone) if gone and chance.random() < 0.3 else path
        if path not in model.objects and not isinstance(model.objects.get(folder, {}), (Data, str)):
            return path


def some_data(
    chance: random.Random, model: Model, wanted: Callable[[Data], bool] = lambda data: True
) -> tuple[str, Data]:
    """A dataset, with its path."""
    names = [path for path in model.paths(Data) if model.data(path).kind not in REFERENCES and wanted(model.data(path))]
    need(names)
    path = chance.choice(names)
    return path, model.objects[path]


def written(data: Data) -> bool:
    """Whether a dataset's elements are written as those of any other: what is elsewhere belongs to others."""
    return data.kind not in ("elsewhere", *REFERENCES)


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
    """An index that h5py takes."""
    if not shape:
        return ()
    if chance.random() < 0.25:
        return (Ellipsis,)
    parts: list[Any] = []
    listed = False
    for n in shape:
        way = chance.randrange(7)
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
        elif way == 4 and n and not listed:
            listed = True
            start, block = chance.randrange(n), chance.randint(1, 3)
            stride, count = block + chance.randrange(3), chance.choice((None, 1, 2, 3))
            parts.append(Blocks(start, stride, count, min(block, n - start)))
            need((count or 1) <= (n - start - parts[-1].block) // stride + 1)
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

        own, ones = cells[mine], np.ones(int(mine.sum()), int)
        row = own[0] // (width := int(np.prod(ds.shape[1:])))
        if len(ds.shape) > 1 and own[-1] // width == row:
            at = row, Decomposition.from_runs(own - row * width, ones, ds.shape[1:])
        else:
            at = Decomposition.from_runs(own, ones, ds.shape)
        ds.iput(at, np.ascontiguousarray(values[mine]))
    elif len(ds.shape):
        mask = np.zeros(ds.shape, bool)
        mask.reshape(-1)[cells[mine]] = True
        ds[mask] = values[mine]
    else:
        ds[()] = values[0]


def put(run: Any, path: str, at: Any, values: Values, way: str) -> None:
    """Post a selection: on several ranks each posts a part of it, or one posts elements that are no numbers."""
    data = run.model.data(path)
    if not run.shared:
        given = run.given(values)
        if run.twin and values.shape == ():
            # h5py does not broadcast to lists
            given = np.broadcast_to(values.array, index_shape(data.shape, at))
        if way == "assign" or run.twin or () in (data.shape, values.shape):
            run.f[path][at] = given
        elif way == "from":
            run.f[path].write_direct(given, dest_sel=at)
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
    run.call(share)(
        run.f[path], chosen.ravel(), whole, "assign" if way in ("assign", "from") else "iput", run.rank, run.size
    )


# ----------------------------------------------------------------------------------------------- definitions


@act(2)
class group:
    """`create_group`."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        return {"path": new_name(chance, model), "tracked": chance.random() < 0.4}

    def effect(model: Model, path: str, tracked: bool) -> None:
        model.add(path, Tracked() if tracked else {})

    def do(run: Any, expected: Any, path: str, tracked: bool) -> None:
        run.f.create_group(path, track_order=tracked)


@act(9)
class create:
    """`create_dataset`, of every type and kind of shape."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(len(model.paths(Data)) < 8)
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
                "values": values, "tracked": chance.random() < 0.3}  # fmt: skip

    def effect(
        model: Model, path: str, kind: str, shape: Any, maxshape: Any, fill: Any, values: Any, tracked: bool
    ) -> None:
        made = new_data(kind, shape, maxshape, fill, tracked=tracked)
        if values is not None:
            made.put(..., values.array)
        model.add(path, made)

    def do(
        run: Any, expected: Any, path: str, kind: str, shape: Any, maxshape: Any, fill: Any, values: Any, tracked: bool
    ) -> None:
        more: Args = {} if maxshape is None else {"maxshape": maxshape}
        more |= {} if fill is None else {"fillvalue": fill}
        more |= {} if values is None else {"data": run.given(values)}
        more |= {"fill_time": "alloc"} if run.twin else {}
        more |= {"track_order": True} if tracked else {}
        run.f.create_dataset(path, shape, dtype_of(run.h, kind), **more)
        if values is not None:
            run.settle()


@act(2)
class store:
    """``f[path] = values``."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        kind = chance.choice(NUMBERS[:5] if config["format"] != "CDF-5" else (*NUMBERS, "S5"))
        values = Values(chance.randrange(97), some_shape(chance), kind)
        need(kind != "S5" or values.shape)  # of one text numpy knows its own length alone
        return {"path": new_name(chance, model), "values": values}

    def effect(model: Model, path: str, values: Values) -> None:
        need(0 not in values.shape)
        made = new_data(values.kind, values.shape, None, None)
        made.put(..., values.array)
        model.add(path, made)

    def do(run: Any, expected: Any, path: str, values: Values) -> None:
        run.f[path] = run.given(values)
        run.settle()


@act(4)
class resize:
    """`Dataset.resize` along one axis."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, lambda data: data.maxshape != data.shape or None in data.maxshape)
        axis = chance.choice([i for i, n in enumerate(data.maxshape) if n is None or n != data.shape[i]] or [0])
        most = data.maxshape[axis]
        old = data.shape[axis]
        size = chance.choice((old + 1, old + 3, max(old - 1, 0), max(old - 3, 1), old))
        return {"path": path, "axis": axis, "size": size if most is None else min(size, most)}

    def effect(model: Model, path: str, axis: int, size: int) -> tuple[bool, bool]:
        data = model.data(path)
        need(axis < len(data.shape))
        most, shorter = data.maxshape[axis], size < data.shape[axis]
        anew = size != data.shape[axis] and (axis > 0 or most is not None)
        need(most is None or size <= most)
        data.resize((*data.shape[:axis], size, *data.shape[axis + 1 :]))
        return shorter, anew

    def do(run: Any, expected: Any, path: str, axis: int, size: int) -> None:
        shorter, anew = expected
        if anew and run.apart:
            run.f.flush()
        run.f[path].resize(size, axis=axis)
        if anew and run.apart:
            run.f.flush()
        if shorter and not run.twin and run.config["layout"] == "rawfiles":
            # records that are cut off and come again before a flush would need a copy of the raw file
            run.f.flush()


@act(2)
class delete:
    """``del f[path]``, of a dataset, a group with all in it, or a link."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        paths = [path for path in model.paths() if path]
        need(paths)
        return {"path": chance.choice(paths)}

    def effect(model: Model, path: str) -> None:
        need(path and path in model.objects)
        for one in model.below(path):
            del model.objects[one]

    def do(run: Any, expected: Any, path: str) -> None:
        del run.f[path]


@act(1)
class move:
    """`Group.move`."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(config["layout"] != "rawfiles")  # the name of a raw file is that of its variable
        paths = [path for path in model.paths() if path]
        need(paths)
        return {"source": chance.choice(paths), "to": new_name(chance, model)}

    def effect(model: Model, source: str, to: str) -> None:
        below = model.below(source)
        need(below and source and to != source and not to.startswith(source + "/"))
        moved = {to + one[len(source) :]: model.objects[one] for one in below}
        model.add(to, moved[to])
        for one in below:
            del model.objects[one]
        model.objects |= moved

    def do(run: Any, expected: Any, source: str, to: str) -> None:
        run.f.move(source, to)


@act(1)
class copy:
    """`Group.copy` within the file."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        paths = [path for path in (*model.paths(Data), *model.paths(dict)) if path]
        need(paths and len(model.paths(Data)) < 8)
        return {"source": chance.choice(paths), "to": new_name(chance, model)}

    def effect(model: Model, source: str, to: str) -> None:
        found = model.objects.get(source)
        need(isinstance(found, (Data, dict)) and source and not to.startswith(source + "/"))
        below = {to + one[len(source) :]: model.objects[one] for one in model.below(source)}
        made: dict[int, Any] = {}
        for found in below.values():
            # hard links within a copy stay links
            made.setdefault(id(found), found if isinstance(found, str) else found.copy())
        below = {path: made[id(found)] for path, found in below.items()}
        model.add(to, below[to])
        model.objects |= below

    def do(run: Any, expected: Any, source: str, to: str) -> None:
        run.settle()
        run.f.copy(source, to)
        run.settle()


@act(0.7)
class link:
    """A hard or a soft link to a dataset."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        names = model.paths(Data)
        path = chance.choice(names) if names else ""
        # without the first of its hard links a variable has another name, which that of a raw file is
        soft = chance.random() < 0.5 or config["layout"] == "rawfiles"
        need(names)
        return {"to": path, "path": new_name(chance, model), "soft": soft}

    def effect(model: Model, path: str, to: str, soft: bool) -> None:
        data = model.data(to)
        model.add(path, f"/{to}" if soft else data)

    def do(run: Any, expected: Any, path: str, to: str, soft: bool) -> None:
        run.f[path] = run.h.SoftLink(f"/{to}") if soft else run.f[to]


@act(3)
class attribute:
    """An attribute of a dataset, a group or the file; a long one makes the header grow."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path = chance.choice(model.paths(Data) + model.paths(dict))
        text = "note " * chance.choice((1, 3, 3, 500, 5000))
        kinds = NUMBERS[:5] if config["format"] != "CDF-5" else (*NUMBERS, "S5", "text", "compound")
        array = Values(chance.randrange(97), chance.choice(((), (1,), (3,), (2, 2))), chance.choice(kinds))
        return {"path": path, "key": chance.choice("pqr"), "value": chance.choice((text, text, array, array, EMPTY)),
                "way": chance.choice(("set", "set", "create", "modify"))}  # fmt: skip

    def effect(model: Model, path: str, key: str, value: Any, way: str) -> None:
        attrs = model.attrs(path)
        array = value.array if isinstance(value, Values) else value
        numbers = isinstance(value, Values) and value.kind in NUMBERS
        if way == "create" and numbers:
            array = array.astype("f8").reshape(-1, 1)
        elif way == "modify" and key in attrs:
            old = attrs[key]
            need(numbers and isinstance(old, np.ndarray) and old.dtype.str[1:] in NUMBERS and old.shape == array.shape)
            array = array.astype(old.dtype)
        else:
            attrs.pop(key, None)  # what is written over is the last one
        attrs[key] = array

    def do(run: Any, expected: Any, path: str, key: str, value: Any, way: str) -> None:
        attrs = run.f[path or "/"].attrs
        given = run.given(value) if isinstance(value, Values) else run.h.Empty("f4") if value == EMPTY else value
        if isinstance(value, Values) and value.kind == "text":
            attrs.create(key, given, dtype=run.h.string_dtype())
        elif way == "create" and isinstance(value, Values) and value.kind in NUMBERS:
            attrs.create(key, given, (math.prod(value.shape), 1), "f8")
        elif way == "modify" and value != EMPTY:
            attrs.modify(key, given)
        else:
            attrs[key] = given


@act(0.7)
class forget_attribute:
    """``del attrs[key]``."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        there = [(path, key) for path in model.paths(Data) + model.paths(dict) for key in model.attrs(path)]
        need(there)
        return dict(zip(("path", "key"), chance.choice(there), strict=True))

    def effect(model: Model, path: str, key: str) -> None:
        need(key in model.attrs(path))
        del model.attrs(path)[key]

    def do(run: Any, expected: Any, path: str, key: str) -> None:
        del run.f[path or "/"].attrs[key]


@act(0.7)
class scale:
    """A dimension scale, attached to the first axis of as many elements that is there."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, of = some_data(chance, model, lambda data: len(data.shape) == 1 and numeric(data) and may_scale(data))
        fits = [one for one in model.paths(Data) if one != path and model.data(one) is not of and
                not model.data(one).scale and model.data(one).shape[:1] == of.shape]  # fmt: skip
        return {"path": path, "to": chance.choice(fits) if fits else None}

    def effect(model: Model, path: str, to: str | None) -> None:
        data = model.data(path)
        need(may_scale(data) and len(data.shape) == 1)
        need(to is None or (not model.data(to).scale and model.data(to).shape[:1] == data.shape))
        if to is not None:
            model.data(to).attached = True
            model.data(to).scales = [*model.data(to).scales, data]
        data.scale = True

    def do(run: Any, expected: Any, path: str, to: str | None) -> None:
        run.f[path].make_scale()
        if to is not None:
            run.f[to].dims[0].attach_scale(run.f[path])


@act(0.7)
class detach:
    """A scale is taken from the axis to which `scale` attached it."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        there = [path for path in model.paths(Data) if model.data(path).scales]
        need(there)
        return {"path": chance.choice(there)}

    def effect(model: Model, path: str) -> str:
        data = model.data(path)
        need(data.scales)
        scale = data.scales[0]
        found = [one for one in model.paths(Data) if model.data(one) is scale]
        need(found)
        data.scales = data.scales[1:]
        return found[0]

    def do(run: Any, expected: Any, path: str) -> None:
        run.f[path].dims[0].detach_scale(run.f[expected])


@act(0.7)
class label:
    """The label of an axis."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, lambda data: bool(data.shape))
        return {"path": path, "axis": chance.randrange(len(data.shape)), "text": chance.choice(("", "lat", "t" * 40))}

    def effect(model: Model, path: str, axis: int, text: str) -> None:
        data = model.data(path)
        need(axis < len(data.shape))
        data.labels = {**data.labels, axis: text} if text else {i: t for i, t in data.labels.items() if i != axis}

    def do(run: Any, expected: Any, path: str, axis: int, text: str) -> None:
        run.f[path].dims[axis].label = text


@act(1)
class require:
    """`require_dataset` of what is there, or of something new, or `require_group`."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        groups = [path for path in model.paths(dict) if path and not isinstance(model.objects[path], Named)]
        if chance.random() < 0.3:
            return {"path": chance.choice([new_name(chance, model), *groups]), "kind": "", "shape": ()}
        if chance.random() < 0.5:
            path, data = some_data(chance, model, numeric)
            return {"path": path, "kind": data.kind, "shape": data.shape}
        need(len(model.paths(Data)) < 8)
        return {"path": new_name(chance, model), "kind": chance.choice(NUMBERS[:5]), "shape": some_shape(chance)}

    def effect(model: Model, path: str, kind: str, shape: Any) -> None:
        found = model.objects.get(path)
        if found is None:
            need(0 not in shape)
            model.add(path, new_data(kind, shape, None, None) if kind else {})
        elif kind:
            data = model.data(path)
            # what may grow is required with its maxshape
            need(data.kind == kind and data.shape == shape and data.maxshape == shape)
        else:
            need(isinstance(found, dict) and not isinstance(found, Named))

    def do(run: Any, expected: Any, path: str, kind: str, shape: Any) -> None:
        if kind:
            more: Args = {"fill_time": "alloc"} if run.twin else {}
            run.f.require_dataset(path, shape, dtype_of(run.h, kind), **more)
        else:
            run.f.require_group(path)


@act(0.5)
class like:
    """`create_dataset_like`."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(len(model.paths(Data)) < 8)
        path, _ = some_data(chance, model, numeric)
        return {"path": new_name(chance, model), "other": path}

    def effect(model: Model, path: str, other: str) -> None:
        data = model.data(other)
        # of an empty dataset with a limit, both libraries find the chunks too long
        need(numeric(data) and 0 not in data.shape)
        model.add(path, new_data(data.kind, data.shape, data.maxshape, data.fill, tracked=data.tracked))

    def do(run: Any, expected: Any, path: str, other: str) -> None:
        more: Args = {"fill_time": "alloc"} if run.twin else {}
        run.f.create_dataset_like(path, run.f[other], **more)


@act(0.3)
class dimension:
    """`create_dimension`: a dimension of NetCDF, which h5py does not have."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        return {"size": chance.choice(LENGTHS)}

    def effect(model: Model, size: int) -> None:
        return None

    def do(run: Any, expected: Any, size: int) -> None:
        if not run.twin:
            run.f.create_dimension(f"of {size}", size)


@act(0.5)
class named:
    """A named type."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        return {"path": new_name(chance, model), "kind": chance.choice(NUMBERS)}

    def effect(model: Model, path: str, kind: str) -> None:
        model.add(path, Named(kind))

    def do(run: Any, expected: Any, path: str, kind: str) -> None:
        run.f[path] = np.dtype(kind)


@act(0.5)
class external:
    """A link into another file; where none is followed, its use is refused."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        # a layout in the environment is that of all files, and the other file has no raw files
        need(in_file(config) and (config["layout"], config["said"]) != ("rawfiles", "environment"))
        return {"path": new_name(chance, model), "followed": config["external_links"] != "none"}

    def effect(model: Model, path: str, followed: bool) -> Any:
        model.add(path, "else.nc:/e")
        return model.others["else.nc"].copy()

    def do(run: Any, expected: Any, path: str, followed: bool) -> None:
        run.f[path] = run.h.ExternalLink("else.nc", "/e")
        if run.twin:
            return
        if followed:
            run.same(run.f[path][...], expected)
        else:
            run.refuses("NotFoundError", lambda: run.f[path])


def show(f: Any, h: Any, path: str, source: str, n: int) -> None:
    """Make a virtual dataset, which shows one of another file, and one of this file or of the other."""
    layout = h.VirtualLayout((3, 6), "i4")
    layout[0] = h.VirtualSource("else.nc", "e", (6,))
    layout[1, 2:5] = h.VirtualSource(f[source])[:3] if source else h.VirtualSource("else.nc", "e", (6,))[:3]
    layout[1:3, 5] = h.VirtualSource(f[source])[n - 2 :] if source else h.VirtualSource("else.nc", "e", (6,))[4:]
    f.create_virtual_dataset(path, layout, fillvalue=-1)


@act(1)
class elsewhere:
    """A dataset whose elements are elsewhere: a virtual one, or one of a raw file."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(in_file(config) and config["layout"] == "canonical" and config["external_links"] != "none")
        need(len(model.paths(Data)) < 8)
        own = [path for path in model.paths(Data) if model.data(path).kind in NUMBERS
               and len(model.data(path).shape) == 1 and model.data(path).shape[0] > 2]  # fmt: skip
        own = own if chance.random() < 0.7 else []
        return {"path": new_name(chance, model), "raw": chance.random() < 0.4, "of": chance.choice(own) if own else ""}

    def effect(model: Model, path: str, raw: bool, of: str) -> int:
        n = 6
        if of and not raw:
            source = model.data(of)
            need(source.kind in NUMBERS and len(source.shape) == 1 and source.shape[0] > 2 and path != of)
            n = source.shape[0]
        whole, at = (slice(0, 6),), (of and ("", of)) or ("else.nc", "e")
        parts = [Part(whole, "else.bin", "", whole)] if raw else [
            Part((0, *whole), "else.nc", "e", whole),
            Part((1, slice(2, 5)), *at, (slice(0, 3),)),
            Part((slice(1, 3), 5), *at, (slice(n - 2, n),)),
        ]  # fmt: skip
        values = np.zeros(6 if raw else (3, 6), "i4")
        made = Data("elsewhere", values, values.shape, None if raw else -1, parts=parts)
        made.posted = np.zeros(values.shape, bool)
        model.add(path, made)
        return n

    def do(run: Any, expected: int, path: str, raw: bool, of: str) -> None:
        if run.twin:
            data = run.model.data(path)
            run.f.create_dataset(path, data=data.values, fillvalue=data.fill)
        elif raw:
            run.f.create_dataset(path, (6,), "i4", external=[("else.bin", 0, 24)])
        else:
            run.call(show)(run.f, run.h, path, of, expected)


@act(2)
class through:
    """A write to where the elements are, or to none of them, if some are nowhere; none can be posted."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        # hints of the environment would be those of the other file
        paths = [path for path in model.paths(Data) if model.data(path).parts]
        need(paths and config["said"] != "environment")
        path = chance.choice(paths)
        data = model.data(path)
        at: Any = chance.choice([part.to for part in data.parts])
        at = at if chance.random() < 0.6 else some_index(chance, data.shape)
        values = Values(chance.randrange(97), index_shape(data.shape, at), "i4")
        way = chance.choice(("assign", "assign", "assign", "iput", "iget"))
        return {"path": path, "at": at, "values": values, "way": way, "ranks": on_ranks(config)}

    def effect(model: Model, path: str, at: Any, values: Values, way: str, ranks: bool) -> str:
        data = model.data(path)
        need(data.parts and not data.smaller and index_shape(data.shape, at) == values.shape and values.kind == "i4")
        wanted, new = cells(data.shape, at).ravel(), np.zeros(data.shape, "i4")
        new.reshape(-1)[wanted] = values.array.ravel()
        asked = np.zeros(data.shape, bool)
        asked.reshape(-1)[wanted] = True
        parts = [part for part in data.parts if asked[part.to].any() and model.source(part) is not None]
        covered = np.zeros(data.shape, bool)
        for part in parts:
            covered[part.to] = True
        if way != "assign" or (ranks and any(part.file == "else.nc" for part in parts)):
            return "NotYetError"
        if (asked & ~covered).any():
            return "SourceError"
        for part in parts:
            source: Any = model.source(part)
            put, places = new[part.to][asked[part.to]], cells(source.shape, part.of)[asked[part.to]]
            if part.file:
                source[places] = put
            else:
                flags = np.zeros(source.shape, bool)
                flags[places] = True
                model.data(part.name).put(flags, put)
        return ""

    def do(run: Any, expected: str, path: str, at: Any, values: Values, way: str, ranks: bool) -> None:
        if run.twin:
            return
        run.settle()
        if expected == "NotYetError" and way == "assign" and run.size == 1:
            return  # what only several ranks are refused, the plain program that is like theirs leaves out
        ds = run.f[path]
        if way == "iget":
            run.refuses(expected, lambda: ds.iget(at))
        elif way == "iput":
            run.refuses(expected, lambda: ds.iput(at, run.given(values)))
        elif expected:
            run.first(lambda: run.refuses(expected, lambda: ds.__setitem__(at, run.given(values))))
        else:
            run.first(lambda: ds.__setitem__(at, run.given(values)))
        run.settle()


@act(1)
class reference:
    """A dataset of references, to objects or to regions of a dataset."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(config["layout"] != "rawfiles" and len(model.paths(Data)) < 8)
        kind = chance.choice(list(REFERENCES))
        paths = [path for path in model.paths(Data) if numeric(model.data(path)) and 0 not in model.data(path).shape]
        paths = [path for path in paths if model.data(path).shape] if kind == "region" else model.paths(dict) + paths
        need(paths)
        return {"path": new_name(chance, model), "kind": kind, "to": [chance.choice(paths) for _ in range(2)]}

    def effect(model: Model, path: str, kind: str, to: Any) -> Any:
        # the name of an object with several names is one of them
        found = [model.objects.get(one) for one in to]
        need(all(isinstance(one, Data if kind == "region" else (Data, dict)) for one in found))
        need(kind == "ref" or all(one.shape and 0 not in one.shape and numeric(one) for one in found))
        values = np.full(len(to), b"there", object)
        names = [[name for name, there in model.objects.items() if there is one] for one in found]
        made = Data(kind, values, values.shape, targets=list(zip(names, found, strict=True)))
        made.posted = np.zeros(values.shape, bool)
        model.add(path, made)
        return [one.values[:1] for one in found] if kind == "region" else None

    def do(run: Any, expected: Any, path: str, kind: str, to: Any) -> None:
        run.settle()
        run.f.create_dataset(path, (len(to),), dtype_of(run.h, kind))
        for i, one in enumerate(to):
            there = run.f[one or "/"]
            made = there.regionref[:1] if kind == "region" else there.ref
            run.first(lambda i=i, made=made: run.f[path].__setitem__(i, made))
        run.settle()
        for i, one in enumerate(to if kind == "region" else []):
            run.same(run.f[one][run.f[path][i]], expected[i])


# ---------------------------------------------------------------------------------------------------- writes


@act(12)
class write:
    """One selection: assigned or posted, from an array or a single value, of the dataset's type or another one."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, written)
        at = some_index(chance, data.shape)
        kind = chance.choice(CASTS) if numeric(data) and chance.random() < 0.3 else data.kind
        if kind == "u8":
            kind = "i8"
        single = data.kind not in ("rows", "pair") and chance.random() < 0.2
        values = Values(chance.randrange(97), () if single else index_shape(data.shape, at), kind)
        way = chance.choice(("assign", "assign", "iput", "iput and wait", "from"))
        way = "assign" if way == "from" and single else way
        if data.kind in ("compound", "rows", "text"):
            way = "assign"  # stored in several variables, which one request cannot write
        return {"path": path, "at": at, "values": values, "way": way}

    def effect(model: Model, path: str, at: Any, values: Values, way: str) -> None:
        data = model.data(path)
        need(values.kind == data.kind or numeric(data))
        need(values.shape in ((), index_shape(data.shape, at)))
        data.put(at, values.array)

    def do(run: Any, expected: Any, path: str, at: Any, values: Values, way: str) -> None:
        put(run, path, at, values, way)


@act(2)
class mask:
    """``ds[mask] = values`` and its reading."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, lambda data: 0 < math.prod(data.shape) < 400 and numeric(data))
        flags = np.array([chance.random() < 0.4 for _ in range(math.prod(data.shape))]).reshape(data.shape)
        return {"path": path, "flags": flags, "values": Values(chance.randrange(97), (int(flags.sum()),), data.kind)}

    def effect(model: Model, path: str, flags: Any, values: Values) -> Any:
        data = model.data(path)
        need(data.shape and data.shape == flags.shape and data.kind == values.kind)
        data.put(flags, values.array)
        return data.at(flags)

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


def fit(data: Data, starts: Any, counts: Any) -> bool:
    """Whether boxes are within a dataset."""
    return len(starts[0]) == len(data.shape) and bool((np.add(starts, counts) <= data.shape).all())


@act(2)
class write_many:
    """`iput_many`, of boxes."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, lambda data: bool(data.shape) and 0 not in data.shape and numeric(data))
        starts, counts = boxes(chance, data.shape)
        total = sum(math.prod(count) for count in counts)
        values = Values(chance.randrange(97), (total,), data.kind)
        return {"path": path, "starts": starts, "counts": counts, "values": values}

    def effect(model: Model, path: str, starts: Any, counts: Any, values: Values) -> None:
        data = model.data(path)
        need(data.kind == values.kind and fit(data, starts, counts))
        done = 0
        for at, part, size in parts_of(starts, counts):
            data.put(at, values.array[done : done + size].reshape(part))
            done += size

    def do(run: Any, expected: Any, path: str, starts: Any, counts: Any, values: Values) -> None:
        if not (run.twin or run.shared):
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

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, lambda data: bool(data.shape) and 0 not in data.shape and numeric(data))
        size = math.prod(data.shape)
        cuts = sorted(chance.sample(range(size + 1), min(size + 1, 2 * chance.randint(1, 3)) // 2 * 2))
        starts, ends = cuts[::2], cuts[1::2]
        lengths = [b - a for a, b in zip(starts, ends, strict=True)]
        values = Values(chance.randrange(97), (sum(lengths),), data.kind)
        need(starts)
        return {"path": path, "starts": starts, "lengths": lengths, "values": values}

    def effect(model: Model, path: str, starts: Any, lengths: Any, values: Values) -> None:
        data = model.data(path)
        need(data.shape and data.kind == values.kind and starts[-1] + lengths[-1] <= math.prod(data.shape))
        data.put(_flags(data.shape, starts, lengths), values.array)

    def do(run: Any, expected: Any, path: str, starts: Any, lengths: Any, values: Values) -> None:
        shape = run.model.data(path).shape
        if run.twin or run.shared:
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

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, _ = some_data(chance, model, lambda data: data.kind == "compound" and bool(data.shape))
        return {"path": path, "name": chance.choice("pq"), "value": chance.randrange(1, 90)}

    def effect(model: Model, path: str, name: str, value: int) -> Any:
        data = model.data(path)
        need(data.kind == "compound")
        data.values = data.values.copy()
        data.values[name] = value
        data.posted = np.ones(data.shape, bool)
        return data.values[name].copy()

    def do(run: Any, expected: Any, path: str, name: str, value: int) -> None:
        run.settle()
        run.f[path][..., name] = value
        run.settle()
        run.same(run.f[path][name], expected)
        run.same(run.f[path].fields(name)[...], expected)


LEAST_BITS = {"i1": 8, "i2": 16, "i4": 32, "u1": 8, "u2": 16, "u4": 32}


@act(1)
class overflow:
    """A number that the type does not have: refused, or as near as it can be."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, lambda data: data.kind in LEAST_BITS)
        return {"path": path, "at": some_index(chance, data.shape), "clip": config["on_overflow"] == "clip"}

    def effect(model: Model, path: str, at: Any, clip: bool) -> Any:
        data = model.data(path)
        need(data.kind in LEAST_BITS and cells(data.shape, at).size)
        if clip:
            data.put(at, np.iinfo(data.kind).max)
        return data.at(at)

    def do(run: Any, expected: Any, path: str, at: Any, clip: bool) -> None:
        large = 1 << LEAST_BITS[run.model.data(path).kind]
        if run.twin:
            run.f[path][at] = expected
            return
        run.settle()
        if clip:
            run.f[path][at] = large
        else:
            run.refuses("RangeError", lambda: run.f[path].__setitem__(at, large))
        run.settle()
        run.same(run.f[path][at], expected)


# ----------------------------------------------------------------------------------------------------- reads


def read_into(ds: Any, at: Any, shape: Any, dtype: str) -> Any:
    """What `read_direct` puts into every other element of an array."""
    found = np.zeros((2 * shape[0], *shape[1:]), dtype)[::2]
    ds.read_direct(found, at)
    return found


@act(6)
class read:
    """A selection, in one of the ways to read it."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model)
        way = chance.choice(("index", "index", "iget", "collective", "astype", "into", "asstr"))
        return {"path": path, "at": some_index(chance, data.shape), "way": way}

    def effect(model: Model, path: str, at: Any, way: str) -> Any:
        need(not model.data(path).smaller)
        found = model.data(path).at(at)
        return found.astype("f8") if way == "astype" and numeric(model.data(path)) else found

    def do(run: Any, expected: Any, path: str, at: Any, way: str) -> None:
        run.settle()
        ds = run.f[path]
        if run.twin and run.model.data(path).parts:
            return
        if way == "iget" and not run.twin and written(run.model.data(path)):
            # an array also of one element, which may be an array itself
            run.same(ds.iget(at).wait()[()], expected)
        elif way == "collective" and not run.twin:
            with ds.collective:
                run.same(ds[at], expected)
        elif way == "astype" and numeric(run.model.data(path)):
            run.same(ds.astype("f8")[at], expected)
        elif way == "asstr" and run.model.data(path).kind == "text":
            run.same(ds.asstr()[at], expected)
        elif way == "into" and not run.twin and numeric(run.model.data(path)) and expected.shape:
            run.same(run.call(read_into)(ds, at, expected.shape, expected.dtype.str), expected)
        else:
            run.same(ds[at], expected)


@act(1)
class read_many:
    """`iget_many`, of boxes."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, lambda data: bool(data.shape) and 0 not in data.shape and numeric(data))
        return dict(zip(("path", "starts", "counts"), (path, *boxes(chance, data.shape)), strict=True))

    def effect(model: Model, path: str, starts: Any, counts: Any) -> Any:
        data = model.data(path)
        need(fit(data, starts, counts))
        return np.concatenate([data.at(at).ravel() for at, _, _ in parts_of(starts, counts)])

    def do(run: Any, expected: Any, path: str, starts: Any, counts: Any) -> None:
        run.settle()
        if not run.twin:
            run.same(run.f[path].iget_many(starts, counts).wait(), expected)


@act(3)
class post_read:
    """`iget`: it gives the values of this moment, whenever it is waited for."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, written)
        # what another rank has posted in between may be there or not
        need(len(model.waiting) < 4 and not on_ranks(config))
        key = max(model.waiting, default=0) + 1
        return {"path": path, "at": some_index(chance, data.shape), "key": key}

    def effect(model: Model, path: str, at: Any, key: int) -> None:
        model.waiting[key] = model.data(path).at(at)

    def do(run: Any, expected: Any, path: str, at: Any, key: int) -> None:
        run.kept[key] = run.f[path][at] if run.twin else run.f[path].iget(at)


@act(3)
class wait:
    """For one posted read, by itself or by `wait_all`."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(model.waiting)
        return {"key": chance.choice(list(model.waiting)), "way": chance.choice(("one", "all"))}

    def effect(model: Model, key: int, way: str) -> Any:
        need(key in model.waiting)
        return model.waiting.pop(key)

    def do(run: Any, expected: Any, key: int, way: str) -> None:
        request = run.kept.pop(key)
        if way == "all" and not run.twin:
            run.f.wait_all([request])
        run.same(request if run.twin else request.wait()[()], expected)


@act(2)
class look:
    """Everything, in the session that wrote it."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        return {}

    def effect(model: Model) -> None:
        return None

    def do(run: Any, expected: Any) -> None:
        run.settle()
        run.whole()


@act(1)
class cancel:
    """Posts that are taken back: one by its request, or all since a flush."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        # what a full queue has written stays, and what is written at once
        need(not model.atomic and config["buffer_size"] >= 1 << 20 and not config["burst_buf_capacity"])
        path, data = some_data(chance, model, lambda data: bool(data.shape) and numeric(data))
        at = some_index(chance, data.shape)
        values = Values(chance.randrange(97), index_shape(data.shape, at), data.kind)
        need(0 not in values.shape)  # a request without elements is done when it is posted
        return {"path": path, "at": at, "values": values, "whole": chance.random() < 0.4}

    def effect(model: Model, path: str, at: Any, values: Values, whole: bool) -> Any:
        data = model.data(path)
        need(not model.atomic and index_shape(data.shape, at) == values.shape and data.kind == values.kind)
        if whole:
            model.flushed()
            model.waiting.clear()
        return data.at(at)

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

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        return {"how": chance.choice(("plain", "plain", "durable", "sync", "dataset"))}

    def effect(model: Model, how: str) -> None:
        model.flushed()

    def do(run: Any, expected: Any, how: str) -> None:
        if how == "sync" and not run.twin:
            run.f.sync()
        elif how == "durable" and not run.twin:
            run.f.flush(durable=True)
        elif how == "dataset" and (paths := run.model.paths(Data)):
            run.f[paths[0]].flush()
        else:
            run.f.flush()


@act(0.5)
class refresh:
    """`Dataset.refresh` in the session that writes, which sees everything already."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, _ = some_data(chance, model)
        return {"path": path}

    def effect(model: Model, path: str) -> None:
        model.data(path)

    def do(run: Any, expected: Any, path: str) -> None:
        run.f[path].refresh()


@act(0.5)
class swmr:
    """The flag of SWMR, which changes nothing."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(config["libver"] == "latest" and not model.swmr)
        return {}

    def effect(model: Model) -> None:
        need(not model.swmr)
        model.swmr = True

    def do(run: Any, expected: Any) -> None:
        if not run.twin:
            run.f.swmr_mode = True


@act(0.7)
class atomic:
    """MPI's atomic mode, on or off: a write is in the file when it returns."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        return {}

    def effect(model: Model) -> bool:
        model.flushed()
        model.atomic = not model.atomic
        return model.atomic

    def do(run: Any, expected: bool) -> None:
        if not run.twin:
            run.f.id.set_mpi_atomicity(expected)


def ends(config: Config) -> bool:
    """Whether a file can be opened again for writing once it was closed."""
    return config["stack"] != "memory" and config["layout"] != "hdf5blob"


@act(3)
class reopen:
    """The end of a session in one of four ways, and the next one; read by another opening in between, or not."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(ends(config))
        ways = ("close", "close", "raise", "forget") if not on_ranks(config) else ("close",)
        return {"how": chance.choice(ways), "mode": chance.choice(("r+", "a")), "look": chance.random() < 0.4}

    def effect(model: Model, how: str, mode: str, look: bool) -> None:
        model.flushed()
        model.closed()

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

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        need(config["stack"] != "memory")
        return {}

    def effect(model: Model) -> None:
        model.objects = {"": {}}
        model.closed()

    def do(run: Any, expected: Any) -> None:
        run.end("close")
        run.f = run.open("w")


@act(1)
class twice:
    """Another handle of the open file, which sees what was posted, and writes."""

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        path, data = some_data(chance, model, numeric)
        need(in_file(config))
        return {"path": path, "values": Values(chance.randrange(97), data.shape, data.kind)}

    def effect(model: Model, path: str, values: Values) -> Any:
        data = model.data(path)
        need(data.shape == values.shape and data.kind == values.kind)
        before = data.values.copy()
        data.put(() if data.shape == () else ..., values.array)
        return before

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

    def draw(chance: random.Random, model: Model, config: Config) -> Args:
        named = config["layout"] in ("canonical", "blob") and config["publish"] == "create"
        need(in_file(config) and named)
        return {}

    def effect(model: Model) -> None:
        model.flushed()

    def do(run: Any, expected: Any) -> None:
        if not run.twin:
            run.f.sync()
            run.first(run.read_elsewhere)


HELPERS = (share, show, read_into)
"""Functions of scripts."""


def draw(chance: random.Random, model: Model, config: Config) -> Step:
    """The next act of a program; its effect on the model is not applied yet."""
    table = list(ACTS.values())
    while True:
        found = chance.choices(table, [one.weight for one in table])[0]
        with suppress(Impossible):
            return Step(found.name, found.draw(chance, model, config))
