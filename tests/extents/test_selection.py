"""Selections against h5py and numpy: what is accepted, what is refused, which elements are read and written.

Each shape is a dataset of h5py and two of ours, a fixed and a record variable, all with the values 0, 1, 2, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.errors import PncVolError

T, F = True, False


class Twins:
    def __init__(self, theirs: h5py.File, ours: pnc_vol.File) -> None:
        self.files = theirs, ours
        self.made: dict[tuple[int, ...], tuple[Any, Any, Any]] = {}

    def __call__(self, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
        if shape not in self.made:
            name = "x".join(map(str, shape)) or "scalar"
            values = numbers(shape)
            for file in self.files:
                file[name] = values
            limits = (None, *shape[1:]) if shape else None
            record = self.files[1].create_dataset(f"record {name}", data=values, maxshape=limits)
            self.files[1].flush()
            self.made[shape] = (*(file[name] for file in self.files), record)
        return self.made[shape]


@pytest.fixture(scope="module")
def twins() -> Iterator[Twins]:
    with (
        h5py.File("selections", "w", driver="core", backing_store=False) as theirs,
        pnc_vol.File("selections.nc", "w", driver="memory") as ours,
    ):
        yield Twins(theirs, ours)


def numbers(shape: tuple[int, ...]) -> Any:
    return np.arange(int(np.prod(shape)), dtype="i8").reshape(shape)


def outcome(call: Any) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


def lifted(refused: Any) -> bool:
    """Whether h5py refuses what is taken here."""
    return any(text in str(refused) for text in ("increasing order", "Only one indexing vector", "Step must be >= 1"))


def crossed(shape: tuple[int, ...], args: Any) -> Any:
    """By numpy, an axis at a time: the outer product of what each index names."""
    found = numbers(shape)
    index = list(args) if isinstance(args, tuple) else [args]
    at = next((i for i, each in enumerate(index) if each is Ellipsis), len(index))
    index[at : at + 1] = [slice(None)] * (len(shape) - len(index) + (at < len(index)))
    axis = 0
    for each in index:
        if isinstance(each, (list, range)):
            each = np.array(each, None if len(each) else int)
        found = found[(slice(None),) * axis + (each,)]
        axis += np.ndim(each) or isinstance(each, slice)
    return found


def compare(twins: Twins, shape: tuple[int, ...], args: Any) -> None:
    """The same elements and shape as h5py reads, at once and posted, or the same builtin exception."""
    theirs, *ours = twins(shape)
    wanted, refused = outcome(lambda: theirs[args])
    for ds in ours:
        found, error = outcome(lambda ds=ds: ds[args])
        if error is None:
            posted = ds.iget(args).wait()
            assert (posted == found).all()
            assert np.shape(posted) == np.shape(found)
        if "Fancy indexing out of range" in str(error) and not isinstance(refused, IndexError):
            # A fancy index equal to the length gets past h5py's own check.
            lists = [a for a in (args if isinstance(args, tuple) else (args,)) if isinstance(a, (list, np.ndarray))]
            assert any(entry in shape for entry in lists[0])
        elif refused is None:
            assert error is None, f"{args}: {error!r}"
            assert np.shape(found) == np.shape(wanted)
            np.testing.assert_array_equal(found, wanted)
        elif lifted(refused) and error is None:
            np.testing.assert_array_equal(found, crossed(shape, args))
        elif lifted(refused) or "Use other code" in str(refused):
            # something else is wrong as well; or h5py's accident with masks on one axis in disguise
            assert error is None or isinstance(error, PncVolError)
        else:
            assert isinstance(error, PncVolError), f"{args}: {found} instead of {refused!r}"
            # of a scalar every index is refused in one way
            kinds = (type(refused), ValueError) if shape == () else type(refused)
            assert isinstance(error, kinds), f"{args}: {error!r} instead of {refused!r}"


# fmt: off
CASES: list[tuple[tuple[int, ...], list[Any]]] = [
    ((5,), [
        0, -1, -5, 5, -6, 2**70, -(2**70), np.int8(3), np.uint64(3), True, np.True_, np.array(2), np.array([2]),
        np.array([[2]]), 1.0, np.float64(1), None, [], [0, 2], [2, 0], [0, 0], [-1], [-1, 0], [-2, -1], [5], [6], [-6],
        (0, 2), [T, F], np.array([T, F, T, F, T]), np.array([T, F, T]), np.zeros(5, bool), np.array([1.0]),
        np.array([], int), np.array([]), range(3), range(4, 0, -1), slice(None, None, -1), slice(0, 5, 0), slice(3, 1),
        slice(1, 1), slice(4, 2, 3), slice(100, 200), slice(2, 2, 5), slice(1.0, 2), slice(None, None, 2), ...,
        slice(2**70), slice(-(2**70), None), slice(0, 5, 2**40), (..., ...), (0, ...), (..., 0), (0, 0), (0, 0, ...),
        (), (..., 0, 0), b"x", {}, np.array(True), np.array([1, 3], "u1"), np.array([-1], "i1"), [[0, 1]],
        np.array([0, 3], ">i4"), [1, None], ["a"], [0.5], np.array([1, 2], object), np.zeros((0, 0)), [2**70],
        np.array([3, 2**64 - 1], "u8"), np.array([], bool), np.array([[T, F]]), slice(np.int64(1), np.int64(4)),
    ]),
    ((3, 4), [
        0, (0, 1), ([0, 2], [0, 1]), ([0, 2], 0), (0, [0, 2]), ([0, 2], slice(0, 2)), (slice(0, 2), [0, 2]), (0, 0, 0),
        (np.array([T, F, T]), 0), (np.array([T, F, T]),), np.array([T, F, T]), np.array([T, F, T, F]), ([T, F, T],),
        (0, np.array([T, F, T, F])), (0, np.array([T, F, T])), np.ones((3, 4), bool), np.zeros((3, 4), bool),
        np.ones((3, 3), bool), (np.eye(3, 4, dtype=bool),), (np.ones((3, 4), bool), 0), (0, np.ones((3, 4), bool)),
        (None, 0), (0, None), (..., ...), (0, ..., 1), (0, ..., 1, 2), (0, 1, 2, ...), (slice(1, 2), slice(3, 3)),
        ([], 0), ([], []), (0, []), ([1], [1]), (np.zeros(3, bool), slice(None)), [[0, 1], [1, 2]], (-4, 0), (0, 9),
        (9, 0, 0), (slice(None, None, 0), 9), ([T, F, T], 0), (True, 0), ((0, 2), slice(None)), (..., [0, 3]),
        ([0, 1, 3], 0), (slice(None), [1, 2, 3]), (slice(None), [0, 3]), (slice(None), slice(0, 4, 3)),
        np.array([], bool),
    ]),
    ((), [(), ..., (...,), 0, slice(None), None, (..., ...), np.array(True), [], np.array([T]), (..., 0), 1.0]),
    ((0, 4), [
        (), ..., 0, -1, slice(None), slice(0, 2), [], [0], [-1], (slice(None), 1), (slice(None), [1, 2]),
        np.zeros((0, 4), bool), np.zeros(0, bool), np.array([T]), (..., 7),
    ]),
    ((2, 0, 3), [(), (1,), (1, 0), (slice(None), slice(None), 2), (0, ..., [0, 2]), np.zeros((2, 0, 3), bool)]),
    ((1, 5, 1), [
        (0,), (..., 0), (slice(None), 2), (slice(None), slice(1, 5, 2)), (0, [0, 3], 0), np.ones((1, 5, 1), bool),
    ]),
]
# fmt: on


@pytest.mark.parametrize(("shape", "args"), [(shape, args) for shape, several in CASES for args in several], ids=repr)
def test_each_form_is_taken_or_refused_as_h5py_does(twins, shape, args):
    compare(twins, shape, args)


@st.composite
def shape_and_index(draw):
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    if shape and draw(st.integers(0, 9)) == 0:
        return shape, np.array(
            draw(st.lists(st.booleans(), min_size=(n := int(np.prod(shape))), max_size=n)), bool
        ).reshape(shape)
    index: list[Any] = []
    fancy = draw(st.integers(-1, max(len(shape) - 1, 0)))
    for axis, dim in enumerate(shape[: draw(st.integers(0, len(shape)))]):
        edge = st.none() | st.integers(-dim - 2, dim + 2)
        if axis == fancy:
            index.append(
                draw(
                    st.lists(st.integers(-dim - 1, dim), max_size=3)
                    | st.sets(st.integers(0, max(dim - 1, 0)), max_size=dim).map(sorted)
                    | st.lists(st.booleans(), min_size=dim, max_size=dim).map(lambda x: np.array(x, bool))
                )
            )
        else:
            index.append(
                draw(st.integers(-dim - 1, dim) | st.builds(slice, edge, edge, st.none() | st.integers(-1, 3)))
            )
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), ...)
    if draw(st.integers(0, 15)) == 0:
        index.append(draw(st.sampled_from([0, slice(None), None, 1.5, ...])))
    return shape, index[0] if len(index) == 1 and draw(st.booleans()) else tuple(index)


@settings(max_examples=160, deadline=None)
@given(shape_and_index())
def test_any_index_selects_what_h5py_selects(twins, case):
    compare(twins, *case)


def test_every_kind_of_block(twins):
    """Rows, columns, blocks and single elements, whole axes and parts of them, in each place of an index."""
    shape = (4, 5, 6)
    every = numbers(shape)
    for number in range(4):
        for args in itertools.product((2, -1, slice(None), slice(1, 3), slice(1, 2), slice(0, 4)), repeat=number):
            for ds in twins(shape)[1:]:
                np.testing.assert_array_equal(ds[args], every[args])


@settings(max_examples=80, deadline=None)
@given(shape_and_index(), st.data())
def test_arrays_are_broadcast_as_h5py_does(twins, case, data):
    shape, args = case
    theirs, *ours = twins(shape)
    before = theirs[()]
    selected, error = outcome(lambda: ours[0][args])
    if error is not None:
        return
    source = list(np.shape(selected))
    for axis in range(len(source)):
        source[axis] = data.draw(st.sampled_from([source[axis], source[axis], 1, 2]))
    source = tuple(data.draw(st.sampled_from([source, source[1:], [1, *source], [1, 1, *source], [*source, 1]])))
    values = np.arange(1000, 1000 + int(np.prod(source))).reshape(source)
    _, refused = outcome(lambda: theirs.__setitem__(args, values))
    after, _ = theirs[()], theirs.__setitem__((), before)
    for ds in ours:
        _, error = outcome(lambda ds=ds: ds.__setitem__(args, values))
        found, _ = ds[()], ds.__setitem__((), before)
        # h5py drops leading axes of length 0 as it does those of length 1, and then writes memory it was not given.
        # Index arrays broadcast as slices do.
        if values.size == 0 or lifted(refused) or "complex" in str(refused) or "Use other code" in str(refused):
            assert error is None or isinstance(error, TypeError)
        elif refused is None:
            np.testing.assert_array_equal(found, after)
        else:
            assert isinstance(error, TypeError), f"{source} -> {np.shape(selected)}: {refused!r}"
        if error is not None:
            np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize(
    ("args", "source", "fits"),
    [
        ((), (3, 4), True), ((), (1, 3, 4), True), ((), (1, 3, 1), True), ((), (), True), (0, (1, 4), True),
        (slice(0, 0), (0, 4), True), (slice(0, 0), (4,), True), ((0, 0), (1, 1), True), ([0, 2], (4,), True),
        (np.eye(3, 4, dtype=bool), (3, 1), True), (np.eye(3, 4, dtype=bool), (), True), ((), (3,), False),
        ((), (12,), False), (0, (4, 1), False), (0, (0, 4), False), (np.eye(3, 4, dtype=bool), (1,), False),
    ],
)  # fmt: skip
def test_what_is_broadcast_and_what_is_a_type_error_that_names_both_shapes(twins, args, source, fits):
    values = np.full(source, -1)
    for ds in twins((3, 4))[1:]:
        if fits:
            ds[args] = values
            assert (ds[args] == -1).all()
            assert (ds[...] == -1).sum() == np.size(ds[args])
        else:
            with pytest.raises(TypeError, match=r"Can't broadcast \(.*\) -> \(.*\)"):
                ds[args] = values
        ds[...] = numbers((3, 4))


@pytest.mark.parametrize(
    ("shape", "args", "error", "text"),
    [
        ((5,), 9, IndexError, r"Index \(9\) out of range for \(0-4\)"),
        ((2, 0), (0, -9), IndexError, r"Index \(-9\) out of range for empty dimension"),
        ((5,), [5], IndexError, r"Fancy indexing out of range for \(0-4\)"),
        ((5,), [[0], [1, 2]], TypeError, "Only 1D arrays"),
    ],
)
def test_the_wording_of_errors_is_that_of_h5py(twins, shape, args, error, text):
    for ds in twins(shape)[1:]:
        with pytest.raises(error, match=text):
            ds[args]


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (np.array([3, 1, 3], "u8"), [[12, 13, 14, 15], [4, 5, 6, 7], [12, 13, 14, 15]]),
        (([2, 0], [3, 3, 1]), [[11, 11, 9], [3, 3, 1]]),
        ((1, slice(None, None, -2)), [7, 5]),
        (([T, F, F, T], slice(2, 0, -1)), [[2, 1], [14, 13]]),
        ((slice(None, None, -3), []), np.empty((2, 0))),
        (([3, 0], slice(1, 3)), [[13, 14], [1, 2]]),
        ([T, F, F, T], [[0, 1, 2, 3], [12, 13, 14, 15]]),
    ],
)
def test_lists_in_any_order_and_several_and_steps_below_zero(twins, args, wanted):
    """Also of arrays in memory, which `read_direct` fills and `write_direct` takes."""
    for ds in twins((4, 4))[1:]:
        np.testing.assert_array_equal(ds[args], wanted)
        out = np.full((4, 4), -1, order="F")
        ds.read_direct(out, args, args)
        np.testing.assert_array_equal(out, np.where(np.isin(numbers((4, 4)), wanted), numbers((4, 4)), -1))


def test_rows_in_any_order_are_a_run_each():
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (5, 1000), "i1")
        for rows, runs in (([4, 0, 2], 3), ([3, 0, 1], 2)):
            x[rows] = 1
            assert f.plan().runs == runs
            f.flush()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_many_blocks_come_one_after_another(twins, shape, data):
    shape = tuple(shape)
    blocks = []
    for _ in range(data.draw(st.integers(0, 5))):
        start = [data.draw(st.integers(0, n)) for n in shape]
        blocks.append((start, [data.draw(st.integers(0, n - s)) for n, s in zip(shape, start, strict=True)]))
    starts, counts = (np.array([b[i] for b in blocks], int).reshape(len(blocks), len(shape)) for i in (0, 1))
    array = numbers(shape)
    expected = [array[tuple(slice(s, s + c) for s, c in zip(*b, strict=True))].ravel() for b in blocks]
    for ds in twins(shape)[1:]:
        assert ds.iget_many(starts, counts).wait().tolist() == np.concatenate([np.empty(0, int), *expected]).tolist()


def test_many_without_counts_are_single_elements(twins):
    for ds in twins((3, 4))[1:]:
        assert ds.iget_many([[0, 1], [2, 3], [0, 0]], None).wait().tolist() == [1, 11, 0]
        assert ds.iget_many([], None).wait().size == 0


@pytest.mark.parametrize(
    ("starts", "counts", "error", "match"),
    [
        ([[0, 0], [3, 0]], [[1, 1], [1, 1]], IndexError, r"starts\[1\] = \(3, 0\).*shape \(3, 4\)"),
        ([[0, 0], [-1, 0]], None, IndexError, r"starts\[1\] = \(-1, 0\)"),
        ([[0, 0], [0, 2]], [[1, 1], [1, 3]], IndexError, r"counts\[1\] = \(1, 3\)"),
        ([[0, 2**63 - 1]], [[1, 2**63 - 1]], IndexError, "out of range"),
        (np.array([[0, 2**63]], "u8"), None, IndexError, "out of range"),
        ([[0, 0]], [[1, -1]], ValueError, r"counts\[0\]"),
        ([[0, 0]], [[1, 1], [1, 1]], ValueError, "1 starts were given with 2 counts"),
        ([[0]], None, ValueError, r"must be \(n, 2\)"),
        ([0, 0], None, ValueError, r"must be \(n, 2\)"),
        ([[0.0, 0.0]], None, TypeError, "must be integers"),
    ],
)
def test_many_names_the_first_bad_row(twins, starts, counts, error, match):
    for ds in twins((3, 4))[1:]:
        with pytest.raises(error, match=match):
            ds.iget_many(starts, counts)
