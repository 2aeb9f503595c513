"""h5py's plans for virtual datasets: which part of which dataset goes where. They can be made, not stored.

Knows: shapes and selections. Does not know: files; it is `Group.create_virtual_dataset` that refuses.

Rules
-----
1. What h5py refuses while a plan is made is refused here, so that a program fails where it would fail with h5py.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.dataset import Dataset
from pnc_vol.api.module import UNLIMITED
from pnc_vol.errors import ConversionError, OperationError, SelectionValueError
from pnc_vol.extents.selection import Selection, select

__all__ = ["VirtualLayout", "VirtualSource"]

Shape = tuple[int, ...]
Limits = tuple[int | None, ...]


def _limits(value: int | Limits) -> Shape:
    wanted = (value,) if isinstance(value, int) else tuple(value)
    return tuple(UNLIMITED if limit is None else limit for limit in wanted)


class VirtualSource:
    """A dataset, or a part of one, that a virtual dataset would show.

    Parameters
    ----------
    path_or_dataset : str, path-like or Dataset
        Of a dataset all else is known; of a path, `name` and `shape` are needed.
    name : str, optional
        The dataset's path in its file.
    shape : int or tuple of int, optional
    dtype : dtype-like, optional
    maxshape : int or tuple of int or None, optional

    Raises
    ------
    TypeError
        Too much is said of a dataset, or too little of a path.

    Examples
    --------
    >>> VirtualSource("a.nc", "x", (20, 30))[5:10, ::3].shape
    (5, 10)
    """

    def __init__(
        self,
        path_or_dataset: Any,
        name: str | None = None,
        shape: int | Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        maxshape: int | Limits | None = None,
    ) -> None:
        said = {"name": name, "shape": shape, "dtype": dtype, "maxshape": maxshape}
        if isinstance(path_or_dataset, Dataset):
            extra = [key for key, value in said.items() if value is not None]
            if extra:
                raise TypeError(f"If a Dataset object is passed, these must not be given as well: {', '.join(extra)}")
            found = path_or_dataset
            if found.shape is None:
                raise ConversionError("an empty dataset cannot be the source of a virtual dataset")
            self.path, self.name = found.file.filename, found.name
            self.dtype: np.dtype[Any] | None = found.dtype
            self._whole: Shape = found.shape
            self.maxshape = _limits(found.maxshape or found.shape)
        else:
            missing = [key for key in ("name", "shape") if said[key] is None]
            if missing:
                raise TypeError(f"with a path, these must be given as well: {', '.join(missing)}")
            self.path, self.name = path_or_dataset, name
            self.dtype = None if dtype is None else np.dtype(dtype)
            self._whole = (shape,) if isinstance(shape, int) else tuple(shape or ())
            self.maxshape = self._whole if maxshape is None else _limits(maxshape)
        self.selection: Selection | None = None

    @property
    def shape(self) -> Shape:
        """Of what is selected."""
        return self._whole if self.selection is None else self.selection.result_shape

    def __getitem__(self, key: Any) -> VirtualSource:
        """A part of the source, by the indices of a dataset.

        Raises
        ------
        RuntimeError
            This is a part already.
        """
        if self.selection is not None:
            raise OperationError("VirtualSource objects can only be sliced once")
        part = copy.copy(self)
        part.selection = select(self._whole, key)
        return part


class VirtualLayout:
    """Which sources a virtual dataset would be made of.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype-like
    maxshape : int or tuple of int or None, optional
    filename : str, optional

    Examples
    --------
    >>> layout = VirtualLayout((4, 10), "f8")
    >>> layout[0] = VirtualSource("a.nc", "x", (10,))
    >>> len(layout.sources)
    1
    """

    def __init__(
        self,
        shape: int | Shape,
        dtype: npt.DTypeLike,
        maxshape: int | Limits | None = None,
        filename: str | None = None,
    ) -> None:
        self.shape: Shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.maxshape = (maxshape,) if isinstance(maxshape, int) else maxshape
        self.sources: list[tuple[Selection, VirtualSource]] = []
        self._filename = filename

    def __setitem__(self, key: Any, source: VirtualSource) -> None:
        """Say what is shown where.

        Raises
        ------
        ValueError
            The shapes differ.
        """
        where = select(self.shape, key)
        if int(np.prod(where.result_shape, dtype=object)) != int(np.prod(source.shape, dtype=object)):
            raise SelectionValueError(
                f"a source of shape {source.shape} does not fit a selection of shape {where.result_shape}"
            )
        self.sources.append((where, source))
