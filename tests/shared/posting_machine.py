"""Whatever is posted, drained, spilled, flushed, moved or read: the file behaves as numpy arrays do.

A state machine drives a file with the smallest budget there is beside a dictionary of arrays.
"""

from __future__ import annotations

import errno
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pnc_vol
from pnc_vol.file import post
from pnc_vol.system import REAL
from pnc_vol.testing.faults import FaultSystem

BUDGET = 64 << 10
FAILING = {"open", "pwrite", "pwritev", "ftruncate", "rename", "link", "fchmod"}
NUMBERS = ("i1", "u1", "i2", "i4", "f4", "f8", "i8", "u8")
FIXED_SHAPES = ((), (7,), (5000,), (60, 90), (3, 50, 41), (1, 1), (20000,))
RECORD_SHAPES = ((), (3,), (1,), (700,), (40, 11))


class Model:
    """What a dataset should hold.

    values : array, of objects for strings.
    """

    def __init__(self, values: np.ndarray, fill: Any, record: bool) -> None:
        self.values, self.fill, self.record = values, fill, record

    @property
    def text(self) -> bool:
        return self.values.dtype == object

    def resize(self, records: int) -> None:
        old = self.values
        self.values = np.full((records, *old.shape[1:]), self.fill, old.dtype)
        n = min(records, len(old))
        self.values[:n] = old[:n]


def same(got: Any, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(got), wanted)


class Machine(RuleBasedStateMachine):
    """Rules draw few numbers; what they write comes from a generator, so that every value is new."""

    lent = 4096

    def __init__(self) -> None:
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pnc_vol_test"))
        self.path = self.folder / "x.nc"
        self.models: dict[str, Model] = {}
        self.attrs: dict[str, Any] = {}
        self.waiting: list[tuple[Any, np.ndarray]] = []
        self.writes: list[Any] = []
        self.random = np.random.default_rng(7)
        self.named = 0
        self.kept_lent = post.LEAST_LENT
        post.LEAST_LENT = self.lent
        self.options: dict[str, Any] = {}

    @initialize(
        reserve=st.sampled_from([None, 0, 64, 20000]),
        version=st.sampled_from(["CDF-5", "CDF-5", "CDF-5", "CDF-2", "CDF-1"]),
        publish=st.sampled_from(["create", "create", "close"]),
    )
    def open(self, reserve: int | None, version: str, publish: str) -> None:
        self.system = FaultSystem(REAL, fail_at=0, calls=FAILING)
        self.options = {"header_reserve": reserve, "publish": publish, "system": self.system}
        self.version = version
        self.f = pnc_vol.File(self.path, "w", format=version, buffer_size=BUDGET, **self.options)

    def teardown(self) -> None:
        post.LEAST_LENT = self.kept_lent
        if hasattr(self, "f"):
            if self.f:
                self.check_all()
                self.f.close()
                self.finished()
                with pnc_vol.File(self.path) as self.f:
                    self.check_all()
            assert [p.name for p in self.folder.iterdir()] == ["x.nc"]
        shutil.rmtree(self.folder)

    # ------------------------------------------------------------------------------------ defining

    def new_values(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        if dtype.hasobject:
            made = np.empty(shape, object)
            flat = made.reshape(-1)
            for i in range(flat.size):
                flat[i] = b"abcdefghijklmnop"[: self.random.integers(0, 12)] + b"%d" % self.random.integers(0, 999)
            return made
        return self.random.integers(1, 120, shape).astype(dtype)

    def part(self, model: Model, index: Any) -> np.ndarray:
        """A copy of a selection, an array even of one element."""
        made = np.empty(np.empty(model.values.shape, "i1")[index].shape, model.values.dtype)
        made[...] = model.values[index]
        return made

    def add(self, shape: tuple[int, ...], kind: str, fill: int | None, record: bool, data: bool) -> None:
        if len(self.models) >= 12 or (self.version != "CDF-5" and kind in ("u1", "i8", "u8")):
            return
        name = f"v{self.named}"
        self.named += 1
        keywords: dict[str, Any] = {"maxshape": (None, *shape[1:])} if record else {}
        if kind == "text":
            dtype = np.dtype(object)
            model_fill: Any = b"" if fill is None else b"fill%d" % fill
            keywords["dtype"] = pnc_vol.string_dtype()
            if fill is not None:
                keywords["fillvalue"] = model_fill.decode()
        else:
            keywords["dtype"] = dtype = np.dtype(kind)
            model_fill = dtype.type(fill or 0)
            if fill is not None:
                keywords["fillvalue"] = fill
        model = Model(np.full(shape, model_fill, dtype), model_fill, record)
        if data:
            model.values = self.new_values(shape, dtype)
            keywords["data"] = model.values
        ds = self.f.create_dataset(name, shape, **keywords)
        assert ds.shape == shape
        self.models[name] = model

    kinds = st.sampled_from([*NUMBERS, "text"])
    fills = st.sampled_from([None, None, 0, 9])

    @rule(shape=st.sampled_from(FIXED_SHAPES), kind=kinds, fill=fills, data=st.booleans())
    def add_fixed(self, shape: tuple[int, ...], kind: str, fill: int | None, data: bool) -> None:
        if kind == "text":
            shape = shape if np.prod(shape, dtype=int) < 1000 else (9,)
        self.add(shape, kind, fill, False, data)

    @rule(
        inner=st.sampled_from(RECORD_SHAPES),
        records=st.sampled_from([0, 1, 2, 5, 30]),
        kind=kinds,
        fill=fills,
        data=st.booleans(),
    )
    def add_record(self, inner: tuple[int, ...], records: int, kind: str, fill: int | None, data: bool) -> None:
        if kind == "text":
            inner = inner if np.prod(inner, dtype=int) < 10 else (2,)
        self.add((records, *inner), kind, fill, True, data)

    def pick(self, which: int) -> tuple[str, Model]:
        name = sorted(self.models)[which % len(self.models)]
        return name, self.models[name]

    some = precondition(lambda self: self.models)
    which = st.integers(0, 11)

    @some
    @rule(which=which, records=st.sampled_from([0, 1, 3, 8, 31, 45]))
    def resize(self, which: int, records: int) -> None:
        name, model = self.pick(which)
        if model.record:
            self.f[name].resize(records, axis=0)
            model.resize(records)

    @some
    @rule(which=which, chance=st.integers(0, 3))
    def delete(self, which: int, chance: int) -> None:
        if not chance:
            name, _ = self.pick(which)
            del self.f[name], self.models[name]

    @rule(nbytes=st.sampled_from([1, 10, 100, 3000]), slot=st.integers(0, 9))
    def set_attribute(self, nbytes: int, slot: int) -> None:
        name = f"a{slot}"
        self.attrs[name] = self.random.integers(0, 99, nbytes).astype("i2")
        self.f.attrs[name] = self.attrs[name]

    # ------------------------------------------------------------------------------------- posting

    def selection(self, shape: tuple[int, ...], kind: str) -> Any:
        """An index that numpy and h5py understand alike; it selects something."""
        draw = self.random.integers
        if not shape or kind == "whole" or 0 in shape:
            return Ellipsis
        parts: list[Any] = []
        for n in shape:
            start = int(draw(0, n))
            parts.append(slice(start, int(draw(start, n)) + 1, int(draw(1, 4)) if kind == "strided" else None))
        if kind == "row":
            parts = [int(draw(0, shape[0]))]
        elif kind == "list":
            axis = int(draw(0, len(shape)))
            chosen = np.flatnonzero(self.random.random(shape[axis]) < 0.3)
            if not len(chosen):
                chosen = np.array([int(draw(0, shape[axis]))])
            parts[axis] = chosen.tolist()
        elif kind == "mask":
            mask = self.random.random(shape) < 0.3
            mask.flat[int(draw(0, mask.size))] = True
            return mask
        return tuple(parts)

    selections = st.sampled_from(["whole", "slab", "slab", "strided", "row", "list", "mask"])

    @some
    @rule(which=which, kind=selections, way=st.sampled_from(["set", "set", "iput", "scalar", "foreign"]))
    def write(self, which: int, kind: str, way: str) -> None:
        name, model = self.pick(which)
        index = self.selection(model.values.shape, kind)
        new = self.new_values(self.part(model, index).shape, model.values.dtype)
        if way == "scalar" and not model.text:
            new = np.asarray(new.dtype.type(5))
        if way == "foreign" and not model.text:
            # Another byte order, and no contiguous memory.
            new = np.repeat(new.astype(new.dtype.newbyteorder(">"))[..., None], 2, axis=-1)[..., 0]
        if way == "iput":
            request = self.f[name].iput(index, new)
            self.writes.append((request, new))
        else:
            self.f[name][index] = new
        if model.values.size:
            model.values[index] = new[()] if new.shape == () else new

    def boxes(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        n = int(self.random.integers(1, 6))
        starts = np.array([[int(self.random.integers(0, s)) for s in shape] for _ in range(n)])
        counts = np.array(
            [[int(self.random.integers(1, s - a + 1)) for s, a in zip(shape, one, strict=True)] for one in starts]
        )
        return starts, counts

    @some
    @rule(which=which)
    def write_many(self, which: int) -> None:
        name, model = self.pick(which)
        shape = model.values.shape
        if model.text or not shape or 0 in shape:
            return
        starts, counts = self.boxes(shape)
        parts = [self.new_values(tuple(count), model.values.dtype) for count in counts]
        values = np.concatenate([part.ravel() for part in parts])
        self.writes.append((self.f[name].iput_many(starts, counts, values), values))
        for start, count, part in zip(starts, counts, parts, strict=True):
            model.values[tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))] = part

    # ------------------------------------------------------------------------------------- reading

    @some
    @rule(which=which, kind=selections)
    def read(self, which: int, kind: str) -> None:
        name, model = self.pick(which)
        index = self.selection(model.values.shape, kind)
        same(self.f[name][index], self.part(model, index))

    @some
    @rule(which=which, kind=selections)
    def post_read(self, which: int, kind: str) -> None:
        name, model = self.pick(which)
        index = self.selection(model.values.shape, kind)
        self.waiting.append((self.f[name].iget(index), self.part(model, index)))

    @some
    @rule(which=which)
    def post_read_many(self, which: int) -> None:
        name, model = self.pick(which)
        shape = model.values.shape
        if model.text or not shape or 0 in shape:
            return
        starts, counts = self.boxes(shape)
        parts = [
            model.values[tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))].ravel()
            for start, count in zip(starts, counts, strict=True)
        ]
        self.waiting.append((self.f[name].iget_many(starts, counts), np.concatenate(parts)))

    @precondition(lambda self: self.waiting)
    @rule(which=which)
    def wait_for_one(self, which: int) -> None:
        request, wanted = self.waiting.pop(which % len(self.waiting))
        same(request.wait(), wanted)
        assert request.status == "done"

    @precondition(lambda self: self.writes)
    @rule(which=which)
    def wait_for_a_write(self, which: int) -> None:
        request, _ = self.writes.pop(which % len(self.writes))
        request.wait()
        assert request.status == "done"

    @rule()
    def check_all(self) -> None:
        assert sorted(self.f) == sorted(self.models)
        for name, model in self.models.items():
            assert self.f[name].shape == model.values.shape
            same(self.f[name][...], model.values)
        assert {name: self.f.attrs[name].tolist() for name in self.f.attrs} == {
            name: value.tolist() for name, value in self.attrs.items()
        }

    # -------------------------------------------------------------------------------- carrying out

    def finished(self) -> None:
        for request, wanted in self.waiting:
            assert request.status == "done"
            same(request.array, wanted)
        assert all(request.status == "done" for request, _ in self.writes)
        self.waiting, self.writes = [], []

    @rule()
    def flush(self) -> None:
        self.f.flush()
        self.finished()
        assert not self.f.requests

    @rule(after=st.integers(1, 12), mode=st.sampled_from(["once", "short", "forever", "short-forever"]))
    def fail_to_flush(self, after: int, mode: str) -> None:
        """A call fails, or all calls from one on; whatever was carried out by then, nothing is lost."""
        self.system.mode, self.system.fail_at = mode, self.system.count + after
        try:
            self.f.flush()
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EIO)  # noqa: PT017
        self.system.heal()
        self.check_all()

    @rule()
    def reopen(self) -> None:
        self.f.close()
        self.finished()
        self.f = pnc_vol.File(self.path, "r+", buffer_size=BUDGET, **self.options)
        self.check_all()

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "f") and self.f:
            assert self.f.id.handle.session.posted.queue.used <= BUDGET
