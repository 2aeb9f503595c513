"""`few_runs` against `select`, where it finds one run: the same run, or it leaves it to `select`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.errors import SelectionError
from pnc_vol.extents.one_run import few_runs
from pnc_vol.extents.selection import select

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
BOUNDS = st.none() | st.integers(-6, 6)
INDICES = st.integers(-6, 6) | st.builds(slice, BOUNDS, BOUNDS, st.sampled_from([None, 1, 2])) | st.just(Ellipsis)


def one_run(shape, args):
    found = few_runs(shape, args)
    return found[:3] if found is not None and found[3] == 1 else None


@given(SHAPES, INDICES | st.lists(INDICES, max_size=4).map(tuple))
def test_as_select(shape, args):
    found = one_run(shape, args)
    try:
        selection = select(shape, args)
    except SelectionError:
        assert found is None
        return
    one = selection.single_run()
    if found is not None:
        start, length, result = found
        assert result == selection.result_shape
        assert one == ((start, length) if length else (0, 0))
    elif one is not None and one[1] and shape:
        # What is left to `select` though it is one run: indices that take more than integers and plain slices.
        parts = args if isinstance(args, tuple) else (args,)
        assert any(part is Ellipsis or (isinstance(part, slice) and part.step not in (None, 1)) for part in parts)


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (1, (6, 6, (6,))),
        (-1, (18, 6, (6,))),
        (slice(1, 3), (6, 12, (2, 6))),
        ((2, slice(1, 4)), (13, 3, (3,))),
        ((3, 5), (23, 1, ())),
        (..., (0, 24, (4, 6))),
        ((), (0, 24, (4, 6))),
        ((slice(None), 1), None),
        (True, None),
        ([0, 1], None),
        (4, None),
        ("field", None),
    ],
)
def test_examples(args, found):
    assert one_run((4, 6), args) == found
