"""``ds.astype(...)`` and ``ds.asstr(...)``: a dataset seen through a conversion.

Knows: that a dataset can be read. Does not know: how.

Rules
-----
1. Nothing is read before the view is indexed.
2. A view has the dataset's shape; its dtype is that of what indexing gives.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import ConversionError
from pnc_vol.mapping.special import check_string_dtype

if TYPE_CHECKING:
    from pnc_vol.api.dataset import Dataset

__all__ = ["AsStrView", "AsTypeView", "cast"]


def cast(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """What was read, as another type.

    Raises
    ------
    ConversionError
        Between text and numbers, or from complex to real.
    """
    source = array.dtype
    if source == dtype and dtype.kind != "O":
        return array
    if dtype.names is not None and source.names is not None:
        from pnc_vol.mapping.composite import conform

        return conform(array, dtype)
    if check_string_dtype(source) is not None:
        if dtype.kind in "TU":
            flat = [text.decode("utf-8") for text in array.ravel().tolist()]
            return np.array(flat, dtype=dtype).reshape(array.shape)
        if dtype.kind in "SO":
            return array.astype(dtype)
    elif source.kind in "biufc" and dtype.kind in "biufc" and (source.kind != "c" or dtype.kind == "c"):
        return array.astype(dtype)
    raise ConversionError(f"Unable to read {source!r} as {dtype!r} (no appropriate function for conversion path)")


class AbstractView(abc.ABC):
    """What the views share."""

    def __init__(self, dset: Dataset) -> None:
        self._dset = dset

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of what indexing gives."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._dset.ndim

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The dataset's shape."""
        return self._dset.shape

    @property
    def size(self) -> int | None:
        """Number of elements."""
        return self._dset.size

    def __len__(self) -> int:
        return len(self._dset)

    @abc.abstractmethod
    def __getitem__(self, args: Any) -> Any: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(
                f"{type(self).__name__}.__array__ received copy=False but memory allocation cannot be avoided on read"
            )
        return np.asarray(self[()], dtype=dtype or self.dtype)


class AsTypeView(AbstractView):
    """Reads as another type.

    Parameters
    ----------
    dset : Dataset
    dtype : dtype
    """

    def __init__(self, dset: Dataset, dtype: np.dtype[Any]) -> None:
        super().__init__(dset)
        self._dtype = dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def __getitem__(self, args: Any) -> Any:
        return self._dset._read(args, self._dtype)


class AsStrView(AbstractView):
    """Reads strings as ``str``.

    Parameters
    ----------
    dset : Dataset of strings
    encoding, errors : as in ``bytes.decode``
    """

    def __init__(self, dset: Dataset, encoding: str, errors: str = "strict") -> None:
        super().__init__(dset)
        self.encoding = encoding
        self.errors = errors

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(object)

    def __getitem__(self, args: Any) -> Any:
        coded = self._dset[args]
        if isinstance(coded, bytes):
            return coded.decode(self.encoding, self.errors)
        texts = np.empty(coded.shape, dtype=object)
        texts.ravel()[...] = [text.decode(self.encoding, self.errors) for text in coded.ravel().tolist()]
        return texts
