"""Datasets are read and written through a conversion: ``astype``, ``asstr``, ``fields``, and arrays of the caller.

Knows: which view a call stands for. Does not know: how the view reads (`views`, which is loaded when it is used).
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.ids import DatasetID
from pnc_vol.api.objects import HLObject
from pnc_vol.mapping.dtypes import check_string_dtype

if TYPE_CHECKING:
    from pnc_vol.api.dataset import Dataset
    from pnc_vol.api.views import AsStrView, AsTypeView, FieldsView

__all__ = ["Converting", "views"]


class Converting(HLObject):
    """The part of `Dataset` that converts what is read, or reads into arrays of the caller."""

    _id: DatasetID

    def read_direct(self, dest: npt.NDArray[Any], source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read into an array that is already there.

        Parameters
        ----------
        dest : ndarray
            Writable; of any strides, and of any type that the values convert to.
        source_sel, dest_sel : index, made by ``numpy.s_[...]``, optional
            What to read and where to put it; everything by default.

        Raises
        ------
        TypeError
            An empty dataset, an array that cannot be written to, or shapes that do not fit.

        Examples
        --------
        >>> with pnc_vol.File("direct.nc", "w") as f:
        ...     f["x"] = [1, 2, 3]
        ...     values = np.zeros(5)
        ...     f["x"].read_direct(values, np.s_[1:], np.s_[:2])
        >>> values.tolist()
        [2.0, 3.0, 0.0, 0.0, 0.0]
        """
        if self._id.check_node().shape is None:
            raise TypeError("Empty datasets have no numpy representation")
        views().read_into(self, dest, source_sel, dest_sel)

    def write_direct(self, source: npt.NDArray[Any], source_sel: Any = None, dest_sel: Any = None) -> None:
        """Post a write of (a part of) an array.

        Parameters
        ----------
        source : ndarray, of any strides
        source_sel, dest_sel : index, made by ``numpy.s_[...]``, optional
            What to take and where it goes; everything by default.

        Raises
        ------
        TypeError
            An empty dataset, no array, or shapes that do not fit.

        Examples
        --------
        >>> with pnc_vol.File("direct.nc", "w") as f:
        ...     x = f.create_dataset("x", (3,), "i4")
        ...     x.write_direct(np.arange(10), np.s_[4:6], np.s_[1:])
        ...     x[:].tolist()
        [0, 4, 5]
        """
        if self._id.check_node().shape is None:
            raise TypeError("Empty datasets cannot be written to")
        here: Any = self
        here[() if dest_sel is None else dest_sel] = views().taken_from(source, source_sel)

    def astype(self, dtype: npt.DTypeLike) -> Dataset | AsTypeView:
        """Return the dataset, read as another type.

        Parameters
        ----------
        dtype : dtype-like

        Raises
        ------
        TypeError
            No type; or numpy's string type for a dataset that holds no strings.

        Examples
        --------
        >>> with pnc_vol.File("astype.nc", "w") as f:
        ...     f["x"] = [1, 2]
        ...     f["x"].astype("f4")[:].dtype.name
        'float32'
        """
        wanted = np.dtype(dtype)
        stored = self._id.dtype
        if wanted == stored:
            return self  # type: ignore[return-value]
        if wanted.kind == "T" and check_string_dtype(stored) is None:
            raise TypeError(f"dset.astype({wanted}) can only be used on datasets with an HDF5 string datatype")
        return views().AsTypeView(self, wanted)  # type: ignore[no-any-return]

    def asstr(self, encoding: str | None = None, errors: str = "strict") -> AsStrView:
        """Return the dataset, read as ``str``.

        Parameters
        ----------
        encoding, errors : as in ``bytes.decode``; the dataset's own encoding by default

        Raises
        ------
        TypeError
            The dataset holds no strings.

        Examples
        --------
        >>> with pnc_vol.File("asstr.nc", "w") as f:
        ...     f["s"] = "Kiel"
        ...     f["s"][()], f["s"].asstr()[()]
        (b'Kiel', 'Kiel')
        """
        info = check_string_dtype(self._id.dtype)
        if info is None:
            raise TypeError("dset.asstr() can only be used on datasets with an HDF5 string datatype")
        return views().AsStrView(self, encoding or info.encoding, errors)  # type: ignore[no-any-return]

    def fields(self, names: Any) -> FieldsView:
        """Return some fields of a compound dataset.

        Parameters
        ----------
        names : str or list of str
            One field, whose values are read, or several.

        Raises
        ------
        ValueError
            No compound, or no such field.

        Examples
        --------
        >>> with pnc_vol.File("fields.nc", "w") as f:
        ...     f["p"] = np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")])
        ...     f["p"].fields("y")[:].tolist()
        [2.0]
        """
        return views().FieldsView(self, names)  # type: ignore[no-any-return]


def views() -> ModuleType:
    """Return the module of the views."""
    # Conversions and fields are rare: what reads through them is not loaded with the package.
    from pnc_vol.api import views as module

    return module
