"""Plans of many variables at once are those of the same rows one table at a time."""

from __future__ import annotations

from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.flush.plan import Plan
from pnc_vol.layout.places import Place
from pnc_vol.queue.rows import COLUMNS, Tables

ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=3)


@given(
    posted=st.dictionaries(st.integers(0, 99), ROWS, max_size=6),
    sizes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=6, max_size=6),
    inner=st.sampled_from([0, 49]),
)
def test_all_rows_at_once_are_planned_as_table_by_table(
    posted: dict[int, list[tuple[int, int]]], sizes: list[int], inner: int
) -> None:
    tables: dict[int, array[int]] = {}
    places, request, address = [], 0, 0
    for (uid, runs), itemsize in zip(posted.items(), sizes, strict=False):
        tables[uid] = array("q")
        places.append(Place(1000 * (len(places) + 1), itemsize, inner, 20_000))
        for start, count in runs:
            address += -address % itemsize
            tables[uid].extend((request, start, count, address, itemsize))
            request += 1
            address += count * itemsize
    joined = Tables(tables)
    assert list(joined) == list(tables)
    assert len(joined) == len(tables)
    for uid, table in tables.items():
        np.testing.assert_array_equal(joined[uid], np.array(table).reshape(-1, COLUMNS))
    where = np.array(places, np.int64).reshape(-1, 4)
    made = Plan.at_once(where, joined)
    assert made is not None
    wanted = Plan.of(places, [joined[uid] for uid in joined])
    assert [column.tolist() for column in made.extents] == [column.tolist() for column in wanted.extents]
    assert (made.requests, made.variables, made.nbytes) == (wanted.requests, wanted.variables, wanted.nbytes)


def test_elements_of_another_width_are_not_planned_at_once() -> None:
    tables = Tables({5: array("q", (0, 0, 3, 0, 2)), 7: array("q", (1, 0, 3, 6, 4))})
    assert Plan.at_once(np.array([[0, 2, 0, 0], [100, 8, 0, 0]]), tables) is None


def test_tables_of_several_rows_and_of_none() -> None:
    tables = Tables({1: array("q", range(10)), 2: array("q"), 3: array("q", range(5))})
    assert [len(tables[uid]) for uid in tables] == [2, 0, 1]
    assert tables[3].tolist() == [[0, 1, 2, 3, 4]]
    assert list(Tables({})) == []
    assert 4 not in tables
