"""Values are encoded by the encoding that a variable of a file has, so that they read back as they were given.

Knows: the conventions of CF and of xarray for values, numpy, cftime. Does not know: files, dask, dimensions.

Rules
-----
1. The encoding in the file counts: units, calendar, scale, offset, fill value, sign, type and width; not the one that
   the dataset would get in a file of its own. xarray's coders do not do this with the file's encoding: they change
   units, round and wrap with a warning at most, in other ways for dask's arrays, and differ between versions.
2. A value that would read back as another one is an error, not a warning. Two roundings are allowed, since they are
   those of the file: of packed numbers to the next step of ``scale_factor``, and of floats to the stored float type.
3. Attributes of a convention that the dataset has itself, equal to those of the file, were not decoded when it was read
   (``mask_and_scale=False``, ``decode_times=False``), and are not encoded.
4. It works on numpy arrays, keeps their shape and can be pickled: dask's blocks are encoded where they are computed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray
from xarray import conventions

from pnc_vol.errors import ConversionError, DefinitionError, RangeError
from pnc_vol.mapping.dtypes import Element

__all__ = ["CODED", "StoredEncoding"]

Values = npt.NDArray[Any]

CODED = (
    "units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "_Encoding", "dtype",
)  # fmt: skip
"""Attributes that give the stored values their meaning."""

_SPANS = {
    "days": 86400 * 10**9, "hours": 3600 * 10**9, "minutes": 60 * 10**9, "seconds": 10**9, "milliseconds": 10**6,
    "microseconds": 1000, "nanoseconds": 1,
}  # fmt: skip
"""Nanoseconds of the units that xarray reads as durations."""
_DAY = _SPANS["days"]
_GREGORIAN = ("standard", "gregorian")
_REFORM = np.datetime64("1582-10-15")
"""The first day on which the standard calendar agrees with numpy's."""
_CALENDARS = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
"""Other names of calendars."""


class StoredEncoding:
    """How one variable of a file is encoded: called with values, it gives what is to be stored.

    Parameters
    ----------
    name : str
    attrs : mapping
        Attributes of the variable in the file.
    element : Element
        How the file stores it.
    dtype : dtype
        The type of its stored values, as xarray has them.
    own : mapping
        Attributes of the variable in the dataset.

    Raises
    ------
    DefinitionError
        The dataset has another value for an attribute that says what the stored values mean.

    Examples
    --------
    >>> from pnc_vol.mapping.dtypes import element_for
    >>> days = StoredEncoding("t", {"units": "days since 2000-01-01"}, element_for("i4"), np.dtype("i4"), {})
    >>> days(np.array(["2000-01-03"], "M8[ns]"))
    array([2], dtype=int32)
    """

    def __init__(
        self, name: str, attrs: Mapping[str, Any], element: Element, dtype: np.dtype[Any], own: Mapping[str, Any]
    ) -> None:
        self.name = name
        there = {key: attrs[key] for key in CODED if key in attrs}
        for key in CODED:
            if key in own and key in there and not _same(own[key], there[key]):
                raise DefinitionError(
                    f"variable {name!r} has the attribute {key}={own[key]!r}, and the file has {there[key]!r}: its "
                    "values would mean something else there. Convert the values and change or remove the attribute"
                )
        self.undecoded = {key for key in there if key in own}
        self.attrs = {key: value for key, value in there.items() if key not in own}
        self.width = element.itemsize if element.is_string else 0
        self.bool = element.kind == "bool"
        self.dtype = np.dtype(f"S{self.width}") if self.width else np.dtype(bool) if self.bool else np.dtype(dtype.str)
        fills = [self.attrs[key] for key in ("_FillValue", "missing_value") if key in self.attrs]
        self.fills = [] if self.width else [one for value in fills for one in np.ravel(value)]
        self.units = str(self.attrs.get("units", ""))
        self.calendar = _calendar(self.attrs.get("calendar", "standard"))
        self.dates = " since " in self.units
        self.spans = self.units in _SPANS and str(self.attrs.get("dtype", "")).startswith("timedelta64")
        self._line = _line_of(self.units, self.calendar) if self.dates else None

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Refuse an ``encoding=`` that contradicts the file's.

        Raises
        ------
        DefinitionError
        """
        for key in CODED:
            asked = given.get(key)
            if asked is None:
                continue
            there: Any = self.dtype if key == "dtype" else self.attrs.get(key)
            if key == "dtype":
                # texts have the width of the file, and truth values are bytes
                same = bool(self.width) or np.dtype(asked) == (np.dtype("i1") if self.bool else there)
            elif key == "units":
                same = asked == there or (there is not None and _alike(asked, there))
            elif key == "calendar":
                same = _calendar(asked) == self.calendar
            else:
                same = _same(asked, there)
            if not same:
                raise DefinitionError(
                    f"encoding= has {key}={asked!r} for {self.name!r}, and the file has {there!r}, which is not "
                    "changed: leave it out, or write the file anew"
                )

    def __call__(self, values: Any) -> Values:
        """Return the stored values.

        Raises
        ------
        RangeError
            A value that the file cannot hold as it is encoded there.
        ConversionError
            Values of another kind: texts for numbers, numbers for times.
        """
        given = np.asarray(values)
        if given.size == 0:
            return np.empty(given.shape, self.dtype)
        if self.width:
            return self._texts(given)
        numbers, missing, exact = self._numbers(given)
        if self.bool:
            if missing.any() or not np.isin(numbers, (0, 1)).all():
                raise self._refused(given, missing | ~np.isin(numbers, (0, 1)), "is neither True nor False")
            return numbers.astype(bool)
        return self._packed(given, numbers, missing, exact=exact)

    # ------------------------------------------------------------------------------------------------- numbers

    def _numbers(self, given: Values) -> tuple[Values, npt.NDArray[np.bool_], bool]:
        """Return the numbers in the units of the file, which of them are missing, and whether they are times."""
        kind = given.dtype.kind
        missing = pd.isnull(given) if kind in "OMmf" else np.zeros(given.shape, bool)
        if kind == "O":
            found = given[~missing]
            first = found.ravel()[0] if found.size else None
            if hasattr(first, "calendar"):
                return *self._calendar_dates(given, missing), True
            if isinstance(first, str | bytes):
                kind = "U"
            else:
                given = np.where(missing, np.nan if missing.any() else 0, given)
                try:
                    given = np.array(given.tolist())
                except (TypeError, ValueError):
                    given = np.array("")
                kind = given.dtype.kind
        if kind == "M":
            return *self._dates(given, missing), True
        if kind == "m":
            return *self._durations(given, missing), True
        if kind not in "biufc":
            raise ConversionError(f"variable {self.name!r} holds {_WHAT.get(kind, 'objects')}, and numbers in the file")
        if self.dates or self.spans:
            what = "times" if self.dates else "durations"
            raise ConversionError(
                f"variable {self.name!r} holds numbers, and in the file {what} in {self.units!r}: give {what}, or give "
                f"the variable the attribute units={self.units!r} if its values are such numbers"
            )
        return (given.astype(np.int8) if kind == "b" else given), missing, False

    def _dates(self, given: Values, missing: npt.NDArray[np.bool_]) -> tuple[Values, npt.NDArray[np.bool_]]:
        self._need("times", self.dates)
        strange = ~missing & (given.astype("M8[D]") < _REFORM) if self.calendar == "standard" else ~missing
        if self.calendar != "proleptic_gregorian" and strange.any():
            raise self._refused(
                given,
                strange,
                f"is a date of numpy's calendar (proleptic_gregorian), and the file has {self.calendar!r}; use "
                f"Dataset.convert_calendar({self.calendar!r}) if that is meant",
            )
        filled = np.where(missing, np.datetime64("2000-01-01").astype(given.dtype), given)
        if self._line is None:
            import cftime  # comes with netCDF4

            small = filled.astype("M8[us]")
            if (small != filled).any():
                raise self._refused(
                    given, small != filled, f"has parts of microseconds, which {self.units!r} cannot hold"
                )
            return np.asarray(cftime.date2num(small.astype(object), self.units, self.calendar)), missing
        begin, step = self._line
        return self._steps(given, *_split(filled), *_split(begin), step=step), missing

    def _durations(self, given: Values, missing: npt.NDArray[np.bool_]) -> tuple[Values, npt.NDArray[np.bool_]]:
        self._need("durations", self.units in _SPANS)
        filled = np.where(missing, np.timedelta64(0, "ns").astype(given.dtype), given)
        days = filled.astype("m8[D]")
        rest = (filled - days).astype("m8[ns]")
        return self._steps(given, days.astype(int), rest.astype(int), 0, 0, step=_SPANS[self.units]), missing

    def _steps(self, given: Values, days: Any, rest: Any, day: Any, begin: Any, *, step: int) -> Values:
        """Return days and nanoseconds since others as numbers of a step: whole ones if all are, else floats."""
        days = days - day
        if np.abs(days).max(initial=0) + 1 > (1 << 63) // max(_DAY // step, 1):
            raise self._refused(given, np.abs(days) == np.abs(days).max(), f"is too far for whole {self.units!r}")
        more, left = np.divmod(rest - begin, step)
        whole = days * (_DAY // step) + more
        return whole if not left.any() else whole + left / step

    def _calendar_dates(self, given: Values, missing: npt.NDArray[np.bool_]) -> tuple[Values, npt.NDArray[np.bool_]]:
        import cftime  # the dates are objects of it

        self._need("times", self.dates)
        other = np.array([not gone and _calendar(date.calendar) != self.calendar for date, gone in
                          zip(given.ravel(), missing.ravel(), strict=True)]).reshape(given.shape)  # fmt: skip
        if other.any():
            calendar = given[other].ravel()[0].calendar
            raise self._refused(
                given,
                other,
                f"is a date of the calendar {calendar!r}, and the file has {self.calendar!r}; use "
                f"Dataset.convert_calendar({self.calendar!r}) if that is meant",
            )
        filled = np.where(missing, given[~missing].ravel()[0], given)
        if self._line is not None and self.units.split()[0].startswith("n"):
            raise ConversionError(f"variable {self.name!r}: dates of cftime cannot be stored in {self.units!r}")
        return np.asarray(cftime.date2num(filled, self.units, self.calendar)), missing

    def _need(self, what: str, there: bool) -> None:
        if not there:
            units = f"{self.units!r}" if self.units else "no units"
            known = " (of which the dataset has the attribute, too)" if "units" in self.undecoded else ""
            raise ConversionError(
                f"variable {self.name!r} holds {what}, and the file has numbers with {units}{known} for it"
            )

    def _packed(self, given: Values, numbers: Values, missing: npt.NDArray[np.bool_], *, exact: bool) -> Values:
        """Return the numbers as they are stored: scaled, in the file's type, with fill values for what is missing."""
        stored = self.dtype
        target = _logical(stored, self.attrs.get("_Unsigned"))
        fill = self.fills[0] if self.fills else None
        if missing.any() and fill is None and (target.kind not in "fc" or exact):
            raise self._refused(
                given, missing, f"is missing, and the file has no _FillValue for it (it stores {stored.name})"
            )
        if numbers.dtype.kind == "c" and target.kind != "c":
            raise ConversionError(
                f"variable {self.name!r} holds complex numbers, and the file {stored.name}; take .real"
            )
        scale, offset = self.attrs.get("scale_factor"), self.attrs.get("add_offset")
        wanted = numbers
        if scale is not None or offset is not None:
            scale, offset = (1 if scale is None else scale), (0 if offset is None else offset)
            wanted = (numbers.astype(np.float64) - np.float64(offset)) / np.float64(scale)
        packed = wanted is not numbers
        if missing.any():
            wanted = np.where(missing, wanted.dtype.type(0), wanted)
        if target.kind in "iu":
            made = self._whole(given, wanted, target, rounded=packed, times=exact)
        else:
            made = self._floats(given, wanted, target)
        if exact and (packed or target.kind == "f"):
            again = made.astype(np.float64) * np.float64(scale or 1) + np.float64(offset or 0)
            off = ~missing & (np.abs(again - numbers) > 4 * np.spacing(np.abs(numbers).astype(np.float64)))
            if off.any():
                raise self._refused(given, off, self._coarse())
        made = made.view(stored) if made.dtype != stored else made
        for one in self.fills:
            hidden = ~missing & (made == np.asarray(one).astype(stored))
            if hidden.any():
                raise self._refused(
                    given, hidden, f"is stored as {one}, which is the file's fill value, and would read as missing"
                )
        if missing.any():
            made = np.where(missing, np.asarray(np.nan if fill is None else fill).astype(stored), made)
        return made

    def _whole(self, given: Values, wanted: Values, target: np.dtype[Any], *, rounded: bool, times: bool) -> Values:
        """Return the numbers as integers of a type."""
        if wanted.dtype.kind == "f":
            nearest = np.rint(wanted)
            if not rounded and (nearest != wanted).any():
                why = self._coarse() if times else f"is no whole number, and the file stores {target.name}"
                raise self._refused(given, nearest != wanted, why)
            wanted = nearest
        limits = np.iinfo(target)
        low, high = wanted.min().item(), wanted.max().item()
        if not (low >= limits.min and high <= limits.max):
            # whether one value is outside is asked in Python's numbers, which are exact
            outside = np.array([not limits.min <= one <= limits.max for one in wanted.ravel().tolist()])
            scaled = " with its scale_factor and add_offset" if rounded else ""
            raise self._refused(
                given,
                outside.reshape(wanted.shape),
                f"is outside of what the file stores{scaled}: {target.name}, from {limits.min} to {limits.max}",
            )
        return wanted.astype(target)

    def _floats(self, given: Values, wanted: Values, target: np.dtype[Any]) -> Values:
        """Return the numbers as floats of a type; integers only if none is rounded."""
        with np.errstate(over="ignore"):
            made = wanted.astype(target)
        lost = np.isinf(made) & ~np.isinf(wanted) if wanted.dtype.kind in "fc" else np.zeros(made.shape, bool)
        if lost.any():
            raise self._refused(given, lost, f"is beyond {target.name}, which the file stores")
        if wanted.dtype.kind in "iu" and target.kind == "f":
            exact = 1 << np.finfo(target).nmant + 1
            if wanted.max().item() > exact or wanted.min().item() < -exact:
                pairs = zip(wanted.ravel().tolist(), made.ravel().tolist(), strict=True)
                lost = np.array([int(one) != other for one, other in pairs]).reshape(made.shape)
                if lost.any():
                    raise self._refused(given, lost, f"is not exact as {target.name}, which the file stores")
        return made

    def _coarse(self) -> str:
        return f"cannot be stored exactly: the file has {self.dtype.name} in {self.units!r}"

    # --------------------------------------------------------------------------------------------------- texts

    def _texts(self, given: Values) -> Values:
        """Return texts as bytes of the file's width."""
        encoding = str(self.attrs.get("_Encoding", "ascii"))
        fill = self.attrs.get("_FillValue")
        kind = given.dtype.kind
        if kind not in "OSUT":
            raise ConversionError(f"variable {self.name!r} holds {_WHAT.get(kind, 'objects')}, and texts in the file")
        coded = []
        for text in given.astype(object).ravel().tolist():
            one = text
            if not isinstance(text, str | bytes):
                if not pd.isnull(text):
                    raise ConversionError(f"variable {self.name!r} holds {type(text).__name__}, and texts in the file")
                if fill is None:
                    raise RangeError(
                        f"variable {self.name!r}: a text is missing, and the file has no _FillValue; give '' instead"
                    )
                one = fill
            try:
                one = one.encode(encoding) if isinstance(one, str) else bytes(one)
            except UnicodeEncodeError:
                raise RangeError(
                    f"variable {self.name!r}: {text!r} is not {encoding}, as the texts of the file are"
                ) from None
            if len(one) > self.width or one.endswith(b"\0"):
                why = f"takes {len(one)} bytes, and the file has {self.width} for each text"
                raise RangeError(
                    f"variable {self.name!r}: {text!r} {'ends with a NUL' if one.endswith(bytes(1)) else why}; "
                    "write the file anew with longer texts, or shorten this one"
                )
            coded.append(one)
        return np.array(coded, self.dtype).reshape(given.shape)

    def _refused(self, given: Values, where: npt.NDArray[np.bool_], why: str) -> RangeError:
        first = given[where].ravel()[0]
        shown = first if isinstance(first, np.datetime64 | np.timedelta64) else getattr(first, "item", lambda: first)()
        return RangeError(
            f"variable {self.name!r}: {shown} {why}. Nothing is converted in silence: change the values, or write the "
            f"file anew with an encoding= of {self.name!r} that holds them"
        )


_WHAT = {"U": "texts", "S": "texts", "T": "texts", "M": "times", "m": "durations", "O": "objects", "b": "truth values",
         "i": "numbers", "u": "numbers", "f": "numbers", "c": "complex numbers"}  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    """Return whether two values of an attribute are equal; NaN equals NaN, and bytes their text."""
    left, right = (np.asarray(value.decode() if isinstance(value, bytes) else value) for value in (one, other))
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind in "fc" and right.dtype.kind in "fc"))


def _logical(stored: np.dtype[Any], unsigned: Any) -> np.dtype[Any]:
    """Return the type that stored integers stand for, with an attribute ``_Unsigned``."""
    if unsigned is not None and stored.kind in "iu":
        return np.dtype(f"{'u' if str(unsigned).lower() == 'true' else 'i'}{stored.itemsize}")
    return stored


def _alike(one: str, other: str) -> bool:
    """Return whether two units of times begin at the same moment and have the same step."""
    lines = [_line_of(str(units), "standard") if " since " in str(units) else None for units in (one, other)]
    return lines[0] is not None and lines[0] == lines[1]


def _calendar(name: Any) -> str:
    found = str(name).lower()
    return _CALENDARS.get(found, found)


def _line_of(units: str, calendar: str) -> tuple[np.datetime64, int] | None:
    """Return the moment at which times begin, and the nanoseconds of a step; None where cftime has to count.

    xarray's own decoder finds it, so that its units and ways to write a date are known here.
    """
    if calendar not in ("standard", "proleptic_gregorian"):
        return None
    numbers = xarray.Variable("n", np.array([0, 1]), {"units": units, "calendar": calendar})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = np.asarray(conventions.decode_cf_variable("t", numbers, decode_times=True).values)
        except ValueError:
            return None
    if found.dtype.kind != "M":
        return None
    step = int((found[1] - found[0]).astype("m8[ns]").astype(int))
    return (found[0], step) if step > 0 and _DAY % step == 0 else None


def _split(times: Any) -> tuple[Any, Any]:
    """Return days since 1970, and nanoseconds of the day."""
    days = times.astype("M8[D]")
    return days.astype(int), (times - days).astype("m8[ns]").astype(int)
