"""Where the elements of one variable lie: in general, and in the affine form that the fast paths use.

Knows: runs, extents, arithmetic. Does not know: headers, files, which variable it is.

Rules
-----
1. An `ElementMap` answers for any layout. A `Place` is the affine one: element ``e`` of record ``r`` begins at byte
   ``begin + r * record_size + e * itemsize``. What is computed from begins, element sizes and record sizes is computed
   here and in `extents.place`, and nowhere else: fast reads ask a `Place` for the offset of a run or for its `Grid`.
2. No extent of `ElementMap.extents` holds bytes of two runs: who plans finds the run of an extent by its ``place``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from pnc_vol.extents.model import Extents, Int64, Runs, before
from pnc_vol.extents.place import place

__all__ = ["ElementMap", "Grid", "Place", "Places", "extents_of_rows", "table_of"]


class ElementMap(Protocol):
    """Where the elements of one variable lie.

    itemsize : int, bytes of an element.
    inner : int, elements of one record; 0 for a variable without the record dimension.
    """

    @property
    def itemsize(self) -> int: ...

    @property
    def inner(self) -> int: ...

    def extents(self, runs: Runs) -> Extents:
        """Where runs of the variable lie.

        Parameters
        ----------
        runs : Runs, in any order; of a variable with records, no run goes from one record into the next.

        Returns
        -------
        Extents
            ``offset`` is an address (see `Layout`), ``place`` counts bytes of the elements one after another from 0.
        """
        ...


class Grid(NamedTuple):
    """A variable in the file as numpy has an array in memory.

    origin : int, bytes from the start of the file to the first element.
    strides : tuple of int, bytes from one element to the next along each axis.
    """

    origin: int
    strides: tuple[int, ...]


class Place(NamedTuple):
    """The affine form: a variable that begins somewhere, with its records at equal distances.

    begin : int, bytes from the start of the file.
    itemsize : int, bytes of an element.
    inner : int, elements of one record; 0 for a variable without the record dimension.
    record_size : int, bytes from one record to the next; 0 without records.

    Examples
    --------
    >>> Place(100, 8, 2, 24).extents(Runs(np.array([3]), np.array([1]))).offset.tolist()
    [132]
    >>> Place(100, 8, 2, 24).offset_of_run(3, 1), Place(100, 8, 2, 24).offset_of_run(3, 2)
    (132, -1)
    >>> Place(100, 8, 2, 24).grid((5, 2))
    Grid(origin=100, strides=(24, 8))
    """

    begin: int
    itemsize: int
    inner: int
    record_size: int

    def extents(self, runs: Runs) -> Extents:
        """See `ElementMap.extents`."""
        return place(
            runs, begin=self.begin, itemsize=self.itemsize, inner=self.inner or None, record_size=self.record_size
        )

    def offset_of_run(self, start: int, length: int) -> int:
        """Where a run of elements begins, in bytes; -1 if it goes from one record into the next."""
        begin, itemsize, inner, record_size = self
        if not inner:
            return begin + start * itemsize
        record, within = divmod(start, inner)
        return begin + record * record_size + within * itemsize if within + length <= inner else -1

    def offsets_of_runs(self, start: Int64, length: Int64) -> Int64:
        """The same for many runs."""
        offset = self.extents(Runs(start, length)).offset
        if self.inner:
            offset[start % self.inner + length > self.inner] = -1
        return offset

    def grid(self, shape: tuple[int, ...]) -> Grid:
        """The variable, of this shape, as an array in the file."""
        strides, step = [], self.itemsize
        for n in reversed(shape):
            strides.append(step)
            step *= n
        if self.inner:
            strides[-1] = self.record_size
        return Grid(self.begin, tuple(reversed(strides)))

    def elements_below(self, end: int) -> int:
        """Elements, from the first one on, that may begin before a byte of the file; whole records count."""
        nbytes = max(0, end - self.begin)
        if not self.inner:
            return -(-nbytes // self.itemsize)
        return -(-nbytes // max(1, self.record_size)) * self.inner


class Places(dict[int, Place]):
    """The places of many variables, by uid.

    It keeps the table of the variables that were asked for last: programs write the same ones between flushes, and to
    put 1,000 places into an array takes as long as to place their rows. A place that is in it never changes.

    Examples
    --------
    >>> Places({7: Place(100, 8, 0, 0)}).table([7]).tolist()
    [[100, 8, 0, 0]]
    """

    _asked: tuple[list[int], Int64] | None = None

    def table(self, uids: list[int]) -> Int64 | None:
        """`table_of` the places of some variables, not to be changed; None if one of them has no place."""
        asked = self._asked
        if asked is not None and asked[0] == uids:
            return asked[1]
        if not self.keys() >= set(uids):
            return None
        made = np.fromiter(chain.from_iterable(map(self.__getitem__, uids)), np.int64, 4 * len(uids)).reshape(-1, 4)
        self._asked = list(uids), made
        return made


def table_of(places: Sequence[Place]) -> Int64:
    """int64[n, 4]: the places of n variables, in the columns that `place_many` takes."""
    return np.array(places, np.int64).reshape(-1, 4)


def extents_of_rows(of: ElementMap, start: Int64, length: Int64, memory: Int64) -> tuple[Extents, Int64]:
    """Where runs of one variable lie, whose values are anywhere in memory.

    Parameters
    ----------
    start, length : int64[n], elements, at least one in each run.
    memory : int64[n], the byte of the memory where the values of each run begin.

    Returns
    -------
    extents : Extents, ``place`` is a byte of the memory.
    run : int64[m], the run of each extent.
    """
    found = of.extents(Runs(start, length))
    first = before(length * of.itemsize)
    run = np.searchsorted(first, found.place, side="right") - 1
    return Extents(found.offset, found.length, found.place - first[run] + memory[run]), run
