"""The axes of a dataset, and its values, are shown as the CF conventions mean them.

Knows: coordinate variables, the attribute ``coordinates``, packed and missing values. Does not know: HTTP, h5grove.

Rules
-----
1. The coordinates of an axis are those of its dimension: the coordinate variable (in HDF5, the scale); else the first
   variable over this dimension alone that the attribute ``coordinates`` names. They are numbers, all of them finite.
2. Where a dimension has no coordinates its axis counts, and bears the name of the dimension.
3. A heat map has cells of one size: coordinates that are off by more than half a cell are not drawn; the axis counts,
   and says so.
4. Of packed values the range and the missing values are given as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.convert import inspect_hdf5
from pnc_vol.mapping.dtypes import check_enum_dtype

__all__ = ["Decoding", "PlotAxis", "axes_of", "is_numeric", "label_of", "name_of", "place_of"]

Array = npt.NDArray[Any]

DEFAULT_FILLS = {4: np.float32(9.969209968386869e36), 8: np.float64(9.969209968386869e36)}
"""What the NetCDF library leaves where nothing was written, by the size of a floating-point type."""

_EAST = frozenset({"degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"})
_NORTH = frozenset({"degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"})


@dataclass(frozen=True, slots=True)
class PlotAxis:
    """An axis to draw over.

    label : str, with the unit.
    values : array of one axis; None if the axis counts.
    units : str; degrees of longitude and of latitude are of one size, and drawn so.
    reversed : bool, the last value comes first: latitudes from north to south, so that a map has north at the top.
    """

    label: str
    values: Array | None
    units: str = ""
    reversed: bool = False

    @classmethod
    def over(cls, dataset: Any, values: Array, *, upwards: bool = False) -> PlotAxis:
        """Return the axis with the values of a coordinate variable; `upwards`: latitudes rise."""
        units = _text(dataset.attrs, "units")
        turned = bool(upwards and units in _NORTH and values[0] > values[-1])
        same = "degrees" if units in _EAST | _NORTH else units
        return cls(label_of(dataset), values[::-1] if turned else values, same, turned)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How stored values become those that are meant.

    dtype : dtype of the result.
    scale, offset : float or None
    missing : tuple of stored values that stand for none.
    low, high : float or None, the range of valid stored values.
    unsigned : bool, integers are to be taken as unsigned.
    """

    dtype: np.dtype[Any]
    scale: float | None
    offset: float | None
    missing: tuple[Any, ...]
    low: float | None
    high: float | None
    unsigned: bool

    @classmethod
    def of(cls, dataset: Any) -> Decoding:
        """Return what the attributes of a numeric dataset ask for."""
        attrs = dataset.attrs
        dtype: np.dtype[Any] = dataset.dtype
        scale, offset = _number(attrs, "scale_factor"), _number(attrs, "add_offset")
        missing = [*_numbers(attrs, "_FillValue"), *_numbers(attrs, "missing_value")]
        if dtype.kind == "f" and dtype.itemsize in DEFAULT_FILLS:
            missing.append(DEFAULT_FILLS[dtype.itemsize])
        low, high = _number(attrs, "valid_min"), _number(attrs, "valid_max")
        if len(valid := _numbers(attrs, "valid_range")) == 2:
            low, high = float(valid[0]), float(valid[1])
        unsigned = dtype.kind == "i" and str(_text(attrs, "_Unsigned")).lower() == "true"
        if (scale, offset, low, high) != (None,) * 4 or missing:
            exact = dtype.kind == "f" and (scale, offset) == (None, None)
            dtype = dtype if exact else np.dtype("f8")
        elif unsigned:
            dtype = np.dtype(f"u{dtype.itemsize}")
        return cls(dtype, scale, offset, tuple(missing), low, high, unsigned)

    def __call__(self, stored: Any) -> Any:
        """Return the values that are meant; what is missing is NaN."""
        raw = np.asarray(stored)
        if self.unsigned:
            raw = raw.view(f"{raw.dtype.byteorder}u{raw.dtype.itemsize}")
        values = raw.astype(self.dtype)
        if self.scale is not None:
            values *= self.scale
        if self.offset is not None:
            values += self.offset
        if self.dtype.kind == "f":
            bad = np.zeros(raw.shape, bool)
            for value in self.missing:
                # an unsigned value may have been written with the sign of its type
                bad |= raw == (np.asarray(value).astype(raw.dtype) if self.unsigned else value)
            if self.low is not None:
                bad |= raw < self.low
            if self.high is not None:
                bad |= raw > self.high
            if bad.any():
                values = np.where(bad, np.asarray(np.nan, self.dtype), values)
        return values[()] if values.ndim == 0 else values


def is_numeric(dataset: Any) -> bool:
    """Return whether an object is a dataset of integers or floating-point numbers, with elements."""
    if not getattr(dataset, "shape", None) or 0 in dataset.shape:
        return False
    try:
        dtype = dataset.dtype
    except TypeError:
        return False
    return dtype.kind in "iuf" and dtype.subdtype is None and check_enum_dtype(dtype) is None


def label_of(dataset: Any) -> str:
    """Return the name for people, with the unit.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("label.nc", "w") as f:
    ...     f["t"] = [1.0]
    ...     f["t"].attrs["units"] = "K"
    ...     label_of(f["t"])
    't (K)'
    """
    name = _text(dataset.attrs, "long_name") or str(dataset.name).rpartition("/")[2]
    units = _text(dataset.attrs, "units")
    return f"{name} ({units})" if units and units != "1" else name


def axes_of(dataset: Any, *, even: bool) -> list[PlotAxis]:
    """Return the axes of a numeric dataset.

    Parameters
    ----------
    dataset : a dataset of h5py, or of ours.
    even : bool
        They are for a heat map, whose cells are of one size.
    """
    named = [each for each in _auxiliary(dataset) if len(each.shape) == 1]
    return [_axis(dataset, number, named, even) for number in range(len(dataset.shape))]


def place_of(dataset: Any) -> list[PlotAxis] | None:
    """Return longitudes and latitudes of a dataset of one axis, if ``coordinates`` names both; to be drawn as
    points."""
    if len(dataset.shape) != 1:
        return None
    found: dict[str, PlotAxis] = {}
    for each in _auxiliary(dataset):
        units = _text(each.attrs, "units")
        which = "x" if units in _EAST else "y" if units in _NORTH else ""
        values = _coordinates(each, dataset.shape[0]) if which else None
        if values is not None and _dimension(each, 0) == _dimension(dataset, 0):
            found.setdefault(which, PlotAxis.over(each, values))
    return [found["x"], found["y"]] if len(found) == 2 else None


def _axis(dataset: Any, number: int, named: list[Any], even: bool) -> PlotAxis:
    size, dimension = dataset.shape[number], _dimension(dataset, number)
    scales = [dataset.file[path] for path in inspect_hdf5.axis_scales(dataset, number)]
    beside = [each for each in named if dimension and _dimension(each, 0) == dimension]
    for each in [*(scale for scale in scales if not inspect_hdf5.bare_dimension(scale)), *beside]:
        if each == dataset:
            continue
        values = _coordinates(each, size)
        if values is None:
            continue
        if even and not _is_even(values):
            return PlotAxis(f"index of {label_of(each)}, which is not evenly spaced", None)
        return PlotAxis.over(each, values, upwards=even)
    return PlotAxis(name_of(dataset, number), None)


def name_of(dataset: Any, number: int) -> str:
    """Return the name of the dimension of an axis: its label, that of its scale, or its own; empty if it has none.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("names.nc", "w") as f:
    ...     f["t"] = [[1.0, 2.0]]
    ...     f["t"].dims[1].label = "depth"
    ...     name_of(f["t"], 0), name_of(f["t"], 1)
    ('', 'depth')
    """
    if label := inspect_hdf5.axis_label(dataset, number):
        return label
    scales = inspect_hdf5.axis_scales(dataset, number)
    own = len(dataset.shape) == 1 and inspect_hdf5.scale_name(dataset) is not None
    path = scales[0] if scales else str(dataset.name) if own else ""
    return path.rpartition("/")[2]


def _coordinates(dataset: Any, size: int) -> Array | None:
    """Return the values of a coordinate variable; None if they cannot be drawn over."""
    if not is_numeric(dataset) or dataset.shape != (size,) or size < 2:
        return None
    values: Array = Decoding.of(dataset)(dataset[()])
    return values if np.isfinite(values).all() else None


def _is_even(values: Array) -> bool:
    """Return whether each value is within half a cell of where it is drawn."""
    first, last = float(values[0]), float(values[-1])
    cell = abs(last - first) / (len(values) - 1)
    return bool(cell > 0 and np.abs(values - np.linspace(first, last, len(values))).max() <= cell / 2)


def _dimension(dataset: Any, number: int) -> str:
    """Return what two axes over the same dimension share; empty if none is known."""
    if not inspect_hdf5.is_hdf5(dataset):
        return dataset.id.node.axes[number].dim_name or ""
    if scales := inspect_hdf5.axis_scales(dataset, number):
        return scales[0]
    return str(dataset.name) if inspect_hdf5.scale_name(dataset) is not None else ""


def _auxiliary(dataset: Any) -> Iterator[Any]:
    """Yield the variables that the attribute ``coordinates`` names, looked for in the dataset's group and those
    above."""
    for name in _text(dataset.attrs, "coordinates").split():
        group = dataset.parent
        while True:
            found = group.get(name)
            if found is not None or group.name == "/":
                break
            group = group.parent
        if found is not None and is_numeric(found) and found != dataset:
            yield found


def _text(attrs: Any, name: str) -> str:
    try:
        value = attrs.get(name, "")
    except (OSError, TypeError, ValueError):
        return ""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def _numbers(attrs: Any, name: str) -> list[Any]:
    try:
        found = np.asarray(attrs.get(name, ()))
    except (OSError, TypeError, ValueError):
        return []
    return list(found.ravel()) if found.dtype.kind in "iuf" else []


def _number(attrs: Any, name: str) -> float | None:
    found = _numbers(attrs, name)
    return float(found[0]) if len(found) == 1 else None
