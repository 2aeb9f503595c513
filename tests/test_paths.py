"""Each act has a short path for what is common: whatever is given, it does what the general path does.

The short path is left by something that means the same: a list in place of a slice, `create` in place of
``attrs[name]``, one element after the other, definitions that are flushed one by one.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_header import read_plainly

import pnc_vol
from pnc_vol.queue import stores

SHAPE = (6, 7)
TYPES = ["i1", "u1", "i2", "i4", "u4", "i8", "u8", "f4", "f8", ">i2", ">f8"]

axes = st.one_of(st.slices(6).filter(lambda one: one.step is None or one.step > 0), st.integers(0, 5))
rows = st.lists(st.integers(-6, 5), max_size=5)
picks = st.one_of(
    rows.filter(len),
    rows.filter(len).map(sorted),
    st.lists(st.integers(0, 5), min_size=1, unique=True).map(sorted).map(partial(np.array, dtype="u1")),
    st.lists(st.booleans(), min_size=6, max_size=6).map(np.array),
)
indices = st.one_of(axes, st.just(...), st.tuples(axes, axes), picks, picks.map(lambda pick: (pick, slice(None))))
numbers = st.one_of(
    st.integers(-(2**66), 2**66),
    st.integers(-300, 300),
    st.floats(),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 3.4028235e38, 3.5e38, 1e300]),
)


PLACES = ["a", "b", "a/a", "a/b", "b/a", "a/b/a", "a_a", "a_b", "b_a", "dim_2"]
"""Names of objects, some of which ask for the same variable."""


def listed(index: Any) -> Any:
    """The same selection with a list along the first axis and an ellipsis, for which no short path is."""
    first, *rest = index if isinstance(index, tuple) else (index,)
    if first is ...:
        first = slice(None)
    if isinstance(first, int):
        return (np.array([first]), *rest, ...)
    return (np.arange(SHAPE[0])[first], *rest, ...)


def made(f: Any, dtype: str, grows: bool) -> Any:
    return f.create_dataset("x", SHAPE, dtype, maxshape=(None, SHAPE[1]) if grows else None)


def told(act: Any) -> Any:
    """What an act gives, or the class of what it raises."""
    try:
        return act()
    except pnc_vol.PncVolError as error:
        return type(error)


def alike(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one, other)
    # scalars of numpy have the machine's byte order
    assert np.asarray(one).dtype.newbyteorder("=") == np.asarray(other).dtype.newbyteorder("=")


@st.composite
def values(draw: st.DrawFn, index: Any) -> Any:
    """What may be written to a selection: numbers, arrays of any type and order, lists, what must be broadcast."""
    shape = np.empty(SHAPE)[index].shape
    kind = draw(st.sampled_from(["number", "scalar", "array", "row", "list"]))
    if kind == "number":
        return draw(numbers)
    if kind == "row":
        shape = shape[-1:]
    dtype = draw(st.sampled_from([*TYPES, "<f8", ">i4", "?", "f2"]))
    with np.errstate(all="ignore"):
        count = 1 if kind == "scalar" else int(np.prod(shape))
        some = np.array(draw(st.lists(st.floats(-4e9, 4e9), min_size=count, max_size=count))).astype(dtype)
    if kind == "scalar":
        return some[0]
    some = some.reshape(shape)
    return some.tolist() if kind == "list" else some[::-1] if shape and draw(st.booleans()) else some


@settings(max_examples=200)
@given(st.data(), st.sampled_from(TYPES), st.booleans(), st.booleans())
def test_posting(data: st.DataObject, dtype: str, grows: bool, by_iput: bool) -> None:
    posts = [(index, data.draw(values(index))) for index in data.draw(st.lists(indices, min_size=1, max_size=4))]
    results = []
    for same in (lambda index: index, listed):
        with pnc_vol.File("post.nc", "w", driver="memory") as f:
            x = made(f, dtype, grows)
            post = x.iput if by_iput else x.__setitem__
            refused = [told(partial(post, same(index), value)) for index, value in posts]
            before = x[...]
            f.flush()
            alike(x[...], before)
            results.append(([one if isinstance(one, type) else None for one in refused], before))
    assert results[0][0] == results[1][0]
    alike(results[0][1], results[1][1])


@settings(max_examples=300)
@given(
    st.lists(indices, min_size=1, max_size=4),
    st.sampled_from(TYPES),
    st.booleans(),
    st.sampled_from(["posted", "flushed", "mended", "reopened"]),
    st.booleans(),
    # of the last the reads are longer than those that take one call of the driver
    st.sampled_from([1, 1, 5, 4000]),
)
# rows at equal distances, from the mapped file
@example([np.s_[0:3, 2], np.s_[1:5, 2:4]], ">i2", False, "reopened", False, 4000)
@example([np.s_[0:3, 2], np.s_[1:5, 2:4]], "f8", True, "flushed", False, 4000)
def test_reading_done_and_posted(
    chosen: list[Any], dtype: str, grows: bool, state: str, in_memory: bool, wide: int
) -> None:
    """Of what is posted, of what is in the file, with and without later posts to it, and of a file opened again."""
    wanted = (np.arange(42 * wide) % 127).reshape(*SHAPE, wide).astype(dtype)
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()), "read.nc")
        f = stack.enter_context(pnc_vol.File(path, "w", driver="memory" if in_memory else None))
        x = f.create_dataset("x", wanted.shape, dtype, maxshape=(None, *wanted.shape[1:]) if grows else None)
        # a second variable, so that records do not follow each other at once
        f.create_dataset("y", (2, 3), "i2", maxshape=(None, 3) if grows else None)
        x[...] = wanted
        if state != "posted":
            f.flush()
        if state == "mended":
            x[2:4, 1] = wanted[2:4, 1] = 99
        if state == "reopened":
            image = f.id.get_file_image()
            f.close()
            f = stack.enter_context(pnc_vol.File.in_memory(image) if in_memory else pnc_vol.File(path))
            x = f["x"]
        short, general = ([x.iget(same(index)) for index in chosen] for same in (lambda index: index, listed))
        for index, one, other in zip(chosen, short, general, strict=True):
            by_list = x[listed(index)]
            for found in (x[index], one.wait()):
                alike(found, np.reshape(by_list, np.shape(wanted[index])))
                alike(found, wanted[index])
                assert type(found) is type(wanted[index])
                assert not np.ndim(found) or (found.flags.writeable and found.flags.c_contiguous)
            alike(other.wait(), by_list)


acts = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.one_of(indices, indices.map(listed))),
        st.tuples(st.just("add"), indices),
        st.tuples(st.just("read"), indices),
        st.tuples(st.just("flush"), st.just(...)),
    ),
    max_size=14,
)


@settings(max_examples=200)
@given(acts, st.sampled_from(["f8", ">i2", "u1"]), st.booleans(), st.booleans(), st.booleans())
def test_reading_beside_posts(
    chosen: list[tuple[str, Any]], dtype: str, grows: bool, in_file: bool, sorts: bool
) -> None:
    """A run of which the last post has all, or some, or none, while the rows before are sorted, or are not yet."""
    wanted = np.zeros(SHAPE, dtype)
    with ExitStack() as stack:
        if sorts:
            stack.enter_context(patch.multiple(stores, LEAST_TAIL=1, _LOOKS=0))
        f = stack.enter_context(pnc_vol.File("beside.nc", "w", driver="memory"))
        x = made(f, dtype, grows)
        if in_file:
            f.flush()
        for number, (act, index) in enumerate(chosen, 1):
            if act == "flush":
                f.flush()
            elif act == "read":
                alike(x[index], wanted[index])
                alike(x[listed(index)], wanted[listed(index)])
            else:
                if act == "add":
                    x[index] += 1
                else:
                    x[index] = number
                wanted[index] = wanted[index] + 1 if act == "add" else number
        alike(x[...], wanted)
        f.flush()
        alike(x[...], wanted)


plain = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.booleans(),
    st.sampled_from(
        [np.float32(2.5), np.int16(3), np.uint64(2**63), np.bool_(True), np.float16(1.5), np.bytes_(b"ab")]
    ),
    st.lists(st.floats(-10, 10), min_size=1, max_size=3).map(np.array),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(["a", "units", "b_c"]), plain), min_size=1, max_size=5))
def test_attributes(given: list[tuple[str, Any]]) -> None:
    """Made by ``attrs[name]`` and by `create`; read as they are, and from the file."""
    images = []
    for by_create in (False, True):
        with pnc_vol.File.in_memory() as f:
            x = made(f, "f8", False)
            for name, value in given:
                if by_create:
                    x.attrs.create(name, value)
                else:
                    x.attrs[name] = value
            shown = {name: x.attrs[name] for name in x.attrs}
            images.append(f.id.get_file_image())
        with pnc_vol.File.in_memory(images[-1]) as f:
            again = {name: f["x"].attrs[name] for name in f["x"].attrs}
        assert shown.keys() == again.keys()
        for name, value in shown.items():
            alike(value, again[name])
    assert images[0] == images[1]


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.sampled_from(["group", "dataset", "dataset", "attribute"]), st.sampled_from(PLACES)), max_size=14
    ),
    st.booleans(),
)
@example([("group", "b"), ("group", "a"), ("dataset", "a/a"), ("dataset", "b/a"), ("dataset", "a_a")], False)
@example([("group", "a"), ("group", "b"), ("dataset", "b/a"), ("dataset", "a/a"), ("group", "a_b")], False)
def test_headers_with_groups(acts: list[tuple[str, str]], track: bool) -> None:
    """Made of the header before by what changed, at each of many flushes, and of all objects at once."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for each in (False, True):
            path = Path(folder, f"{each}.nc")
            with pnc_vol.File(path, "w", track_order=track, header_reserve=0) as f:
                for n, (act, name) in enumerate(acts):
                    if act == "attribute":
                        (f.get(name) or f).attrs[f"n{n % 3}"] = n
                    elif name not in f:
                        # a dataset may stand where a group would be
                        with suppress(ValueError):
                            f.create_group(name) if act == "group" else f.create_dataset(name, (1 + n % 2,), "f8")
                    if each:
                        f.flush()
            found.append(read_plainly(path.read_bytes()))
    assert found[0] == found[1]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 40),
            st.sampled_from(["f8", "i4", "i2", "S3", "c8", "?"]),
            st.sampled_from(["", "K", "m"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.sampled_from(["CDF-5", "CDF-5", "CDF-2", "CDF-1"]),
)
# scalars have dimensions and attributes in common with those of any other type
@example([(2, "f8", "", True), (2, "i4", "", True), (1, "i2", "K", True)], False, "CDF-5")
def test_headers(runs: list[tuple[int, str, str, bool]], grows: bool, version: str) -> None:
    """Of many variables that are alike, written and read at once; and one after another.

    Both are what the specification says, by a plain reader of it, byte by byte.
    """
    wanted = [
        (f"v{i}_{k:03d}", np.dtype(dtype), shape, {"units": units} if units else {})
        for i, (count, dtype, units, scalar) in enumerate(runs)
        for shape in [() if scalar else (0, 3) if grows else (3,)]
        for k in range(count)
    ]
    plain, packed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for step in (0, 1, 7):
            path = Path(folder, "x.nc")
            with pnc_vol.File(path, "w", format=version) as f:
                for n, (name, dtype, shape, attrs) in enumerate(wanted):
                    ds = f.create_dataset(name, shape, dtype, maxshape=(None, 3) if len(shape) == 2 else None)
                    for key, value in attrs.items():
                        ds.attrs[key] = value
                    if step and n % step == 0:
                        f.flush()
            plain.append(read_plainly(path.read_bytes()))
            with pnc_vol.File(path, "r+") as f:
                f.attrs["history"] = "made longer " * 200
            assert read_plainly(path.read_bytes())[3] == plain[-1][3]
            with pnc_vol.File(path, "r+", header_reserve=4096) as f:
                for ds in f.values():
                    ds.attrs["more"] = "of each"
                f.flush()
                del f.attrs["history"]
                f.flush()
                assert all("more" in [one[0] for one in own] for _, _, own, _ in read_plainly(path.read_bytes())[3])
                for ds in f.values():
                    del ds.attrs["more"]
            pnc_vol.repack(path, header_reserve=0)
            packed.append(path.read_bytes())
            with pnc_vol.File(path) as f:
                assert [(name, ds.dtype, ds.shape, dict(ds.attrs)) for name, ds in f.items()] == wanted
    assert plain[0] == plain[1] == plain[2] == read_plainly(packed[0])
    assert packed[0] == packed[1] == packed[2]


@settings(max_examples=150)
@given(st.data(), st.sampled_from(TYPES), st.sampled_from([*TYPES, "<f8", ">i8", "?", "f2"]), st.booleans())
def test_encoding_of_values(data: st.DataObject, stored: str, given: str, swapped: bool) -> None:
    """Of a whole array at once, and of each number by itself: the same bytes, or the same error."""
    with np.errstate(all="ignore"):
        array = np.array(data.draw(st.lists(st.floats(-4e9, 4e9) | st.integers(-200, 200), min_size=1, max_size=9)))
        array = array.astype(float).astype(given)
    if swapped:
        array = array.astype(array.dtype.newbyteorder())
    with pnc_vol.File("encode.nc", "w", driver="memory") as f:
        one, other = (f.create_dataset(name, array.shape, stored) for name in ("one", "other"))
        at_once = told(partial(one.__setitem__, slice(None), array))
        each = [told(partial(other.__setitem__, i, number)) for i, number in enumerate(array.tolist())]
        f.flush()
        if at_once is None:
            assert each == [None] * len(array)
            alike(one[:], other[:])
        else:
            assert at_once in each
