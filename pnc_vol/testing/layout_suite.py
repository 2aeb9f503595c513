"""Every layout must pass these tests, which its author runs.

    from pnc_vol.testing.layout_suite import LayoutSuite

    class TestMine(LayoutSuite):
        layout = MyLayout

Knows: the layout protocol (`pnc_vol.layout.base`), files, numpy. Does not know: any layout.

Rules
-----
1. Every expectation comes from numpy arrays that are written and read as the file is.
2. A test asks for what the protocol says, never for how a layout does it; what a layout does not declare is not asked
   of it, but that it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import DefinitionError
from pnc_vol.extents.model import Extents, Runs
from pnc_vol.layout import registry
from pnc_vol.layout.base import Layout, Place
from pnc_vol.mapping.tree import Tree
from pnc_vol.plugins import restored

__all__ = ["LayoutSuite"]

_SHAPES: dict[str, tuple[tuple[int, ...], str, int | None]] = {
    "scalar": ((), "f8", None),
    "bytes": ((7,), "i1", None),
    "table": ((5, 3), "i2", None),
    "series": ((4,), "f4", 0),
    "odd": ((4, 3), "i1", 0),
    "block": ((4, 2, 3), "f8", 0),
}
"""Name, shape, type and growing axis of what the tests define."""


def _layout_of(file: pnc_vol.File) -> tuple[Layout, Tree]:
    """Return the layout in force of a file that is open, and its definitions."""
    session: Any = file.id.handle.session
    return session.disk.layout, session.defs.tree


def _bytes_of(extents: Extents) -> dict[int, int]:
    """Return the address of each byte of the elements, by its number."""
    found: dict[int, int] = {}
    for offset, length, place in zip(*(column.tolist() for column in extents), strict=True):
        for i in range(length):
            assert place + i not in found, "two extents have the same byte of the elements"
            found[place + i] = offset + i
    return found


class LayoutSuite:
    """Derive from it and name the class."""

    layout: ClassVar[type[Layout]]
    options: ClassVar[dict[str, Any]] = {}
    """More options of `File` that the layout needs."""

    @pytest.fixture(autouse=True)
    def _known(self, tmp_path: os.PathLike[str]) -> Iterator[None]:
        with restored():
            registry.register(self.layout.name, self.layout)
            self._path = os.path.join(tmp_path, "suite.nc")
            yield

    def open(self, mode: str = "r", **options: Any) -> pnc_vol.File:
        """Return the file of a test."""
        return pnc_vol.File(self._path, mode, layout=self.layout.name, **{**self.options, **options})

    def define(self, file: pnc_vol.File) -> None:
        """Define the variables that most tests use."""
        for name, (shape, dtype, axis) in _SHAPES.items():
            maxshape = None if axis is None else (None, *shape[1:])
            file.create_dataset(name, shape, dtype, maxshape=maxshape)

    @pytest.fixture
    def defined(self, _known: None) -> Iterator[tuple[Layout, Tree]]:
        """Yield a layout in force, with the variables of `define`."""
        with self.open("w") as f:
            self.define(f)
            f.flush()
            yield _layout_of(f)

    # ------------------------------------------------------------------------------- where elements lie

    def test_it_is_found_by_its_name(self) -> None:
        assert registry.layout_class(self.layout.name) is self.layout
        assert self.layout.name in registry.registered()

    def test_what_is_affine_has_places(self, defined: tuple[Layout, Tree]) -> None:
        layout, tree = defined
        assert layout.maps.keys() == tree.datasets.keys() == set(layout.uids)
        if layout.affine:
            assert layout.places == layout.maps
            assert all(isinstance(at, Place) for at in layout.places.values())
        else:
            assert not layout.places

    def test_maps_know_widths_and_records(self, defined: tuple[Layout, Tree]) -> None:
        layout, tree = defined
        for uid, node in tree.datasets.items():
            at = layout.maps[uid]
            assert at.itemsize == node.element.itemsize
            assert at.inner == (int(np.prod((node.shape or ())[1:])) if node.is_record else 0)

    def test_each_element_has_bytes_of_its_own(self, defined: tuple[Layout, Tree]) -> None:
        layout, tree = defined
        seen: set[int] = set()
        for uid, node in tree.datasets.items():
            for element in range(int(np.prod(node.shape or ()))):
                found = layout.extents(uid, Runs(np.array([element]), np.array([1])))
                addresses = set(_bytes_of(found).values())
                assert len(addresses) == found.nbytes == node.element.itemsize
                assert min(addresses) >= 0
                assert not addresses & seen
                seen |= addresses

    @pytest.mark.parametrize("seed", range(4))
    def test_runs_lie_where_their_elements_lie(self, defined: tuple[Layout, Tree], seed: int) -> None:
        layout, tree = defined
        random = np.random.default_rng(seed)
        for uid, node in tree.datasets.items():
            size = int(np.prod(node.shape or ()))
            inner = layout.maps[uid].inner or size
            start = np.sort(random.choice(size, max(1, size // 3), replace=False))
            # No run goes from one record into the next, nor into the run after it.
            end = np.minimum(np.append(start[1:], size), (start // inner + 1) * inner)
            length = random.integers(1, end - start + 1)
            found = layout.extents(uid, Runs(start, length))
            assert found.nbytes == int(length.sum()) * node.element.itemsize
            wanted: list[int] = []
            for first, n in zip(start.tolist(), length.tolist(), strict=True):
                for element in range(first, first + n):
                    one = _bytes_of(layout.extents(uid, Runs(np.array([element]), np.array([1]))))
                    wanted += [one[i] for i in range(node.element.itemsize)]
            places = _bytes_of(found)
            assert [places[i] for i in range(len(wanted))] == wanted
            ends = np.cumsum(length) * node.element.itemsize
            run = np.searchsorted(ends, found.place, side="right")
            assert (found.place + found.length <= ends[run]).all(), "an extent holds bytes of two runs"

    # -------------------------------------------------------------------------------- written and read

    @pytest.mark.parametrize("buffer_size", [1 << 20, 64])
    @pytest.mark.parametrize("seed", range(3))
    def test_what_is_written_is_read(self, seed: int, buffer_size: int) -> None:
        random = np.random.default_rng(seed)
        arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype, _) in _SHAPES.items()}
        f = self.open("w", buffer_size=buffer_size)
        self.define(f)
        for _ in range(40):
            name = str(random.choice(list(arrays)))
            array, act = arrays[name], int(random.integers(10))
            if act == 0:
                f.flush()
            elif act == 1:
                f.close()
                f = self.open("r+", buffer_size=buffer_size)
            elif act == 2 and _SHAPES[name][2] is not None:
                n = len(array) + int(random.integers(1, 4))
                f[name].resize(n, axis=0)
                arrays[name] = np.concatenate((array, np.zeros((n - len(array), *array.shape[1:]), array.dtype)))
            else:
                index = tuple(_slice(random, n) for n in array.shape)
                if act < 7:
                    values = random.integers(1, 100, array[index].shape).astype(array.dtype)
                    array[index] = values
                    f[name][index] = values
                np.testing.assert_array_equal(f[name][index], array[index])
        f.close()
        with self.open() as f:
            for name, array in arrays.items():
                np.testing.assert_array_equal(f[name][()], array)

    def test_what_was_not_written_is_the_fill_value(self) -> None:
        with self.open("w") as f:
            f.create_dataset("zeros", (3, 4), "i4")
            f.create_dataset("filled", (3, 4), "i4", fillvalue=7)[1, 2] = 1
            f.create_dataset("records", (3,), "f8", maxshape=(None,), fillvalue=-1)
            f.flush()
            f["records"].resize(5, axis=0)
            f["records"][4] = 2
        with self.open() as f:
            assert not f["zeros"][:].any()
            assert f["filled"][:].ravel().tolist() == [7] * 6 + [1] + [7] * 5
            assert f["records"][:].tolist() == [-1, -1, -1, -1, 2]

    def test_a_deleted_variable_leaves_nothing_to_the_next_one(self) -> None:
        with self.open("w") as f:
            f["a"], f["b"] = np.arange(1, 9), np.arange(5)
            f.flush()
            del f["a"]
            f.flush()
            f.create_dataset("a", (9,), "i8")
        with self.open("r+") as f:
            assert not f["a"][:].any()
            assert f["b"][:].tolist() == list(range(5))

    def test_another_shape_keeps_what_both_have(self) -> None:
        with self.open("w") as f:
            f.create_dataset("a", data=np.arange(6).reshape(2, 3), maxshape=(2, None))
            f.flush()
            f["a"].resize((2, 5))
            f["a"][0, 4] = 9
        with self.open() as f:
            assert f["a"][:].tolist() == [[0, 1, 2, 0, 9], [3, 4, 5, 0, 0]]

    def test_strings_grow_or_are_refused(self) -> None:
        with self.open("w") as f:
            s = f.create_dataset("s", (2,), pnc_vol.string_dtype())
            s[0] = "short"
            f.flush()
            s[1] = "a much longer one"
            if not self.layout.relocates:
                with pytest.raises(DefinitionError):
                    f.flush()
                f.cancel()
                with pytest.raises(DefinitionError):
                    f.close()
                return
        with self.open() as f:
            assert f["s"].asstr()[:].tolist() == ["short", "a much longer one"]

    def test_many_attributes_move_no_values(self) -> None:
        with self.open("w") as f:
            f["a"] = np.arange(100)
            f.flush()
            for i in range(20):
                f.attrs[f"attribute{i}"] = np.arange(300)
            f["b"] = np.arange(7)
        with self.open() as f:
            np.testing.assert_array_equal(f["a"][:], np.arange(100))
            np.testing.assert_array_equal(f["b"][:], np.arange(7))

    def test_a_plan_is_what_a_flush_does(self) -> None:
        with self.open("w") as f:
            self.define(f)
            f["table"][1:4, 1] = 5
            f["block"][:, 0] = 1
            plan = f.plan()
            f.flush()
            done = f.statistics()["last_flush"]
            assert (plan.runs, plan.extents, plan.nbytes) == (done["runs"], done["extents"], done["nbytes"])

    def test_an_empty_file_opens(self) -> None:
        self.open("w").close()
        with self.open() as f:
            assert list(f) == []


def _slice(random: np.random.Generator, n: int) -> Any:
    """Return an index of an axis of n elements: a number, a slice with a step, or a list."""
    kind = int(random.integers(3))
    if kind == 0:
        return int(random.integers(n))
    start = int(random.integers(n))
    return slice(start, int(random.integers(start + 1, n + 1)), int(random.integers(1, 3)))
