"""Hypothesis draws the data of pnc_vol with these strategies: extents, shapes, types, selections.

Knows: hypothesis, numpy, extents. Does not know: files, h5py.

Each strategy draws small things mostly, and the edges on purpose: zero lengths, pieces that touch, no piece at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from pnc_vol.extents.model import Extents

__all__ = ["cdf5_dtypes", "dataset_shapes", "indices", "scattered_extents", "selections"]


@st.composite
def scattered_extents(
    draw: Callable[..., Any], *, most: int = 40, longest: int = 40
) -> tuple[Extents, npt.NDArray[np.uint8]]:
    """Return extents that overlap neither in the file nor in memory, in any order, and a memory that goes with them.

    Parameters
    ----------
    most : int
        Extents at most.
    longest : int
        Bytes of one at most.

    Returns
    -------
    tuple of Extents and uint8[...]
        The memory is random and writable, and larger than the extents need by up to 8 bytes.
    """
    count = draw(st.integers(0, most))
    unit = draw(st.sampled_from([1, 1, 2, 4, 8]))
    equal = draw(st.booleans())
    one = draw(st.integers(0, longest // unit))
    length = np.array([one if equal else draw(st.integers(0, longest // unit)) for _ in range(count)], np.int64) * unit
    gaps = draw(st.sampled_from([(0,), (0, 0, 0, 1), (0, 1, 7), (3, 20)]))
    gap = np.array([draw(st.sampled_from(gaps)) for _ in range(count)], np.int64) * unit
    seed = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offset = np.cumsum(gap + length) - length + draw(st.integers(0, 9))
    order = np.arange(count) if draw(st.booleans()) else seed.permutation(count)
    place = np.empty(count, np.int64)
    place[order] = np.cumsum(length[order]) - length[order] + draw(st.integers(0, 4))
    shuffle = np.arange(count) if draw(st.booleans()) else seed.permutation(count)
    memory = seed.integers(1, 256, int(length.sum()) + 8, dtype=np.uint8)
    return Extents(offset[shuffle], length[shuffle], place[shuffle]), memory


def dataset_shapes(*, dims: int = 4, longest: int = 6, zeros: bool = False) -> st.SearchStrategy[tuple[int, ...]]:
    """Return the shapes of up to `dims` dimensions; with `zeros` a dimension may have none."""
    return st.lists(st.integers(0 if zeros else 1, longest), max_size=dims).map(tuple)


def cdf5_dtypes(*, text: bool = True) -> st.SearchStrategy[np.dtype[Any]]:
    """Return the types that a CDF-5 file has, in either byte order; with `text`, one character too."""
    numbers = [f"{order}{code}" for code in ("i2", "i4", "i8", "u2", "u4", "u8", "f4", "f8") for order in "<>"]
    return st.sampled_from(["i1", "u1", *numbers, *(["S1"] if text else [])]).map(np.dtype)


@st.composite
def indices(draw: Callable[..., Any], size: int) -> int | slice:
    """Return an index of one dimension of `size` elements: a number, or a slice of positive step, as h5py takes
    them."""
    if size and draw(st.booleans()):
        return int(draw(st.integers(-size, size - 1)))
    start = draw(st.none() | st.integers(-size, size))
    stop = draw(st.none() | st.integers(-size - 2, size + 2))
    return slice(start, stop, draw(st.none() | st.integers(1, max(1, size))))


@st.composite
def selections(draw: Callable[..., Any], shape: tuple[int, ...], *, fancy: bool = True, mask: bool = True) -> Any:
    """Return what may stand in ``ds[...]`` for a dataset of this shape, by h5py's rules.

    Parameters
    ----------
    shape : tuple of int
    fancy : bool
        Also a list of increasing numbers in one dimension.
    mask : bool
        Also a boolean array of the whole shape.
    """
    if mask and shape and draw(st.integers(0, 9)) == 0:
        flat = draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        return np.array(flat, bool).reshape(shape)
    chosen: list[Any] = [draw(indices(size)) for size in shape]
    if fancy and shape and draw(st.integers(0, 2)) == 0:
        axis = draw(st.integers(0, len(shape) - 1))
        if shape[axis]:
            chosen[axis] = sorted(draw(st.sets(st.integers(0, shape[axis] - 1), min_size=1)))
    if draw(st.booleans()):
        given = draw(st.integers(0, len(chosen)))
        chosen = [*chosen[:given], Ellipsis] if draw(st.booleans()) else chosen[:given]
    if not chosen:
        return draw(st.sampled_from([Ellipsis, ()]))
    return chosen[0] if len(chosen) == 1 and draw(st.booleans()) else tuple(chosen)
