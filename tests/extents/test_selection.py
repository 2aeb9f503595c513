"""Selections against h5py and numpy: what is accepted, what is refused, which elements come out."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.errors import PncVolError
from pnc_vol.extents.numpy_index import elements
from pnc_vol.extents.place import runs
from pnc_vol.extents.selection import Selection, hyperslab, many, select, whole

T, F = True, False


@pytest.fixture(scope="module")
def file():
    with h5py.File("selections", "w", driver="core", backing_store=False) as opened:
        yield opened


def dataset(file, shape):
    name = "x".join(map(str, shape)) or "scalar"
    if name not in file:
        file[name] = np.arange(int(np.prod(shape)), dtype="i8").reshape(shape)
    return file[name]


def taken(selection: Selection, *, record: bool = False) -> np.ndarray:
    """The selection of arange(size), through its runs."""
    start, length = runs(selection, record=record)
    elements = [np.arange(s, s + n) for s, n in zip(start, length, strict=True)]
    return np.concatenate([np.empty(0, "i8"), *elements]).reshape(selection.result_shape)


def outcome(call):
    try:
        return call(), None
    except Exception as error:
        return None, error


def lifted(refused):
    """Whether h5py refuses what is taken here."""
    return any(text in str(refused) for text in ("increasing order", "Only one indexing vector", "Step must be >= 1"))


def crossed(shape, args):
    """By numpy, an axis at a time: the outer product of what each index names."""
    found = np.arange(int(np.prod(shape))).reshape(shape)
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


def compare(file, shape, args):
    """Same elements and shape as h5py, or the same builtin exception."""
    theirs, refused = outcome(lambda: dataset(file, shape)[args])
    ours, error = outcome(lambda: select(shape, args))
    if "Fancy indexing out of range" in str(error) and not isinstance(refused, IndexError):
        # A fancy index equal to the length gets past h5py's own check.
        lists = [a for a in (args if isinstance(args, tuple) else (args,)) if isinstance(a, (list, np.ndarray))]
        assert any(entry in shape for entry in lists[0])
    elif refused is None:
        assert error is None, f"{args}: {error!r}"
        assert ours.result_shape == np.shape(theirs)
        for record in (False, True):
            np.testing.assert_array_equal(taken(ours, record=record and bool(shape)), theirs)
        assert ours.nelems == np.size(theirs)
    elif lifted(refused) and error is not None:
        # something else is wrong as well
        assert isinstance(error, PncVolError)
    elif lifted(refused):
        np.testing.assert_array_equal(taken(ours), crossed(shape, args))
        for record in (False, True):
            np.testing.assert_array_equal(taken(ours, record=record and bool(shape)), taken(ours))
    elif "Use other code" in str(refused):
        # h5py's accident with masks on one axis in disguise; tested below.
        assert error is None or isinstance(error, PncVolError)
    else:
        assert isinstance(error, PncVolError), f"{args}: {ours} instead of {refused!r}"
        assert isinstance(error, type(refused)), f"{args}: {error!r} instead of {refused!r}"


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
def test_each_form_is_taken_or_refused_as_h5py_does(file, shape, args):
    compare(file, shape, args)


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


@settings(max_examples=400, deadline=None)
@given(shape_and_index())
def test_any_index_selects_what_h5py_selects(file, case):
    shape, args = case
    compare(file, shape, args)


@settings(max_examples=200, deadline=None)
@given(shape_and_index())
def test_slices_and_integers_select_what_numpy_selects(case):
    shape, args = case
    if isinstance(args, tuple) and any(isinstance(a, (list, np.ndarray)) for a in args):
        return  # numpy moves the axis of a list to the front when integers stand apart from it
    selection, error = outcome(lambda: select(shape, args))
    if error is None:
        expected = np.arange(int(np.prod(shape))).reshape(shape)[args]
        np.testing.assert_array_equal(taken(selection), expected)
        if selection.listed is not None:
            in_order = np.array_equal(expected.ravel(), np.arange(int(np.prod(shape))))
            assert (selection.single_run() == (0, int(np.prod(shape)))) == in_order


@settings(max_examples=200, deadline=None)
@given(shape_and_index())
def test_a_single_run_is_found_exactly_where_there_is_one(case):
    selection, error = outcome(lambda: select(*case))
    if error is not None:
        return
    elements = taken(selection).ravel()
    contiguous = bool((np.diff(elements) == 1).all())
    if elements.size == 0:
        assert selection.single_run() == (0, 0)
    elif contiguous:
        assert selection.single_run() == (elements[0], elements.size)
    else:
        assert selection.single_run() is None


@settings(max_examples=200, deadline=None)
@given(shape_and_index(), st.data())
def test_arrays_are_broadcast_as_h5py_does(file, case, data):
    shape, args = case
    selection, error = outcome(lambda: select(shape, args))
    if error is not None:
        return
    source = list(selection.result_shape)
    for axis in range(len(source)):
        source[axis] = data.draw(st.sampled_from([source[axis], source[axis], 1, 2]))
    source = tuple(data.draw(st.sampled_from([source, source[1:], [1, *source], [1, 1, *source], [*source, 1]])))
    values = np.arange(1000, 1000 + int(np.prod(source))).reshape(source)
    theirs = dataset(file, shape)
    before = theirs[()]
    _, refused = outcome(lambda: theirs.__setitem__(args, values))
    after, _ = theirs[()], theirs.__setitem__((), before)
    ours, error = outcome(lambda: np.broadcast_to(values.reshape(selection.broadcast(source)), selection.result_shape))
    if values.size == 0:
        # h5py drops leading axes of length 0 as it does those of length 1, and then writes memory it was not given.
        assert error is None or isinstance(error, TypeError)
    elif refused is None:
        expected = np.array(before).ravel()
        expected[taken(selection).ravel()] = ours.ravel()
        np.testing.assert_array_equal(expected.reshape(shape), after)
    elif lifted(refused) or "complex" in str(refused) or "Use other code" in str(refused):
        # Wider than h5py: index arrays broadcast as slices do.
        assert error is None or isinstance(error, TypeError)
    else:
        assert isinstance(error, TypeError), f"{source} -> {selection.result_shape}: {refused!r}"


@pytest.mark.parametrize(
    ("args", "source", "fits"),
    [
        ((), (3, 4), (3, 4)),
        ((), (1, 3, 1), (3, 1)),
        ((), (), ()),
        (slice(0, 0), (0, 4), (0, 4)),
        (slice(0, 0), (4,), (4,)),
        (0, (1, 4), (4,)),
        ((0, 0), (1, 1), ()),
        ([0, 2], (4,), (4,)),
        (np.eye(3, 4, dtype=bool), (3, 1), (3,)),
        (np.eye(3, 4, dtype=bool), (), ()),
    ],
)
def test_broadcast_gives_the_shape_to_bring_an_array_into(args, source, fits):
    assert select((3, 4), args).broadcast(source) == fits


@pytest.mark.parametrize(
    ("args", "source"), [((), (3,)), ((), (12,)), (0, (4, 1)), (0, (0, 4)), (np.eye(3, 4, dtype=bool), (1,))]
)
def test_what_cannot_be_broadcast_is_a_type_error_that_names_both_shapes(args, source):
    with pytest.raises(TypeError, match=r"Can't broadcast \(.*\) -> \(.*\)"):
        select((3, 4), args).broadcast(source)


def test_the_wording_of_range_errors_is_that_of_h5py():
    with pytest.raises(IndexError, match=r"Index \(9\) out of range for \(0-4\)"):
        select((5,), 9)
    with pytest.raises(IndexError, match=r"Index \(-9\) out of range for empty dimension"):
        select((2, 0), (0, -9))
    with pytest.raises(IndexError, match=r"Fancy indexing out of range for \(0-4\)"):
        select((5,), [5])


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (np.array([3, 1, 3], "u8"), [[12, 13, 14, 15], [4, 5, 6, 7], [12, 13, 14, 15]]),
        (([2, 0], [3, 3, 1]), [[11, 11, 9], [3, 3, 1]]),
        ((1, slice(None, None, -2)), [7, 5]),
        (([T, F, F, T], slice(2, 0, -1)), [[2, 1], [14, 13]]),
        ((slice(None, None, -3), []), np.empty((2, 0))),
        (([3, 0], slice(1, 3)), [[13, 14], [1, 2]]),
    ],
)
def test_lists_in_any_order_and_several_and_steps_below_zero(args, wanted):
    selection = select((4, 4), args)
    np.testing.assert_array_equal(taken(selection), wanted)
    array = np.asfortranarray(np.arange(16).reshape(4, 4))
    np.testing.assert_array_equal(array[elements(selection)], wanted)
    assert selection.single_run() != (0, 16)


def test_rows_in_any_order_are_a_run_each():
    assert select((5, 1000), [4, 0, 2]).listed.length.tolist() == [1000, 1000, 1000]
    assert select((5, 1000), [3, 0, 1]).listed.length.tolist() == [1000, 2000]


@settings(max_examples=200, deadline=None)
@given(shape_and_index())
def test_numpy_finds_the_same_elements_in_memory(case):
    shape, args = case
    selection, error = outcome(lambda: select(shape, args))
    if error is None:
        array = np.asfortranarray(np.arange(int(np.prod(shape))).reshape(shape))
        np.testing.assert_array_equal(array[elements(selection)], taken(selection))


def test_a_list_of_booleans_is_a_mask():
    assert taken(select((5,), [T, F, F, T, T])).tolist() == [0, 3, 4]
    assert taken(select((5,), (..., np.array([T, F, F, T, T])))).tolist() == [0, 3, 4]


def test_a_name_is_no_index():
    with pytest.raises(TypeError, match="can't process 'x'"):
        select((5,), "x")


def test_lists_of_unequal_lists_are_refused():
    with pytest.raises(TypeError, match="Only 1D arrays"):
        select((5,), [[0], [1, 2]])


def test_a_selection_is_itself_an_index_of_a_dataset_of_its_shape():
    first = select((3, 4), (1, slice(2)))
    assert select((3, 4), first) is first
    with pytest.raises(TypeError, match="Mismatched selection shape"):
        select((4, 4), first)


def test_a_selection_cannot_be_changed():
    with pytest.raises(AttributeError):
        whole((3,)).shape = (4,)
    with pytest.raises(AttributeError):
        whole((3,)).extra = 1


def test_the_count_keeps_the_axes_of_integers():
    selection = select((3, 4, 5), (1, ..., slice(0, 5, 2)))
    assert selection.count == (1, 4, 3)
    assert selection.result_shape == (4, 3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 5), max_size=3), st.data())
def test_a_hyperslab_is_the_same_slices(shape, data):
    shape = tuple(shape)
    start = [data.draw(st.integers(0, n - 1)) for n in shape]
    stride = [data.draw(st.integers(1, 3)) for _ in shape]
    count = [data.draw(st.integers(0, 1 + (n - 1 - s) // t)) for n, s, t in zip(shape, start, stride, strict=True)]
    selection = hyperslab(shape, start, np.array(count, int), stride)
    index = tuple(slice(s, s + c * t, t) for s, c, t in zip(start, count, stride, strict=True))
    np.testing.assert_array_equal(taken(selection), np.arange(int(np.prod(shape))).reshape(shape)[index])
    assert selection.result_shape == tuple(count)


@pytest.mark.parametrize(
    ("start", "count", "stride", "error"),
    [
        ((0,), (1, 1), None, ValueError),
        ((0, 0), (1, 1), (1,), ValueError),
        ((0, 0), (-1, 1), None, ValueError),
        ((0, 0), (1, 1), (0, 1), ValueError),
        ((0, 5), (1, 0), None, IndexError),
        ((-1, 0), (1, 1), None, IndexError),
        ((0, 3), (1, 2), None, IndexError),
        ((0, 0), (2, 2), (3, 1), IndexError),
        ((0.5, 0), (1, 1), None, TypeError),
    ],
)
def test_a_hyperslab_outside_the_shape_is_refused(start, count, stride, error):
    with pytest.raises(error):
        hyperslab((3, 4), start, count, stride)


def test_a_hyperslab_of_nothing_may_start_at_the_end():
    assert hyperslab((3, 4), (3, 0), (0, 4)).nelems == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_many_blocks_come_one_after_another(shape, data):
    shape = tuple(shape)
    blocks = []
    for _ in range(data.draw(st.integers(0, 5))):
        start = [data.draw(st.integers(0, n)) for n in shape]
        blocks.append((start, [data.draw(st.integers(0, n - s)) for n, s in zip(shape, start, strict=True)]))
    starts = np.array([b[0] for b in blocks], int).reshape(len(blocks), len(shape))
    counts = np.array([b[1] for b in blocks], int).reshape(len(blocks), len(shape))
    array = np.arange(int(np.prod(shape))).reshape(shape)
    expected = [array[tuple(slice(s, s + c) for s, c in zip(*b, strict=True))].ravel() for b in blocks]
    selection = many(shape, starts, counts)
    joined = np.concatenate([np.empty(0, int), *expected])
    np.testing.assert_array_equal(taken(selection), joined)
    np.testing.assert_array_equal(taken(selection, record=bool(shape)), joined)
    assert selection.result_shape == joined.shape


def test_many_without_counts_are_single_elements():
    assert taken(many((3, 4), [[0, 1], [2, 3], [0, 0]])).tolist() == [1, 11, 0]
    assert many((3, 4), []).nelems == 0


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
def test_many_names_the_first_bad_row(starts, counts, error, match):
    with pytest.raises(error, match=match):
        many((3, 4), starts, counts)
