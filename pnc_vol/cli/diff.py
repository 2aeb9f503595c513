"""``pnc-vol diff`` finds what differs between two files, NetCDF or HDF5.

Knows: h5py's objects, which both formats' files have; exit codes. Does not know: which format a file has.

Rules
-----
1. Memory is bounded: values are compared in blocks of `BLOCK_BYTES`.
2. A NaN equals a NaN. Numbers of different types are compared as numbers, without loss.
3. What one format cannot store is not a difference: chunks, filters, limits of axes, labels across formats. Nor is an
   attribute ``_FillValue`` that repeats the dataset's own fill value, as NetCDF has it.
4. References are equal if they lead to the same object and elements, by whatever name.
5. Values that an HDF5 file keeps in other files are not read, unless that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.copying import refers
from pnc_vol.cli.arguments import Options, Parser, Verb, add_allow_sparse, add_follow_external, add_json
from pnc_vol.cli.errors import expected, fail
from pnc_vol.cli.show import counted, painted, print_json, safe
from pnc_vol.convert import inspect_hdf5
from pnc_vol.convert.declared_size import declared_by, refuse_sparse
from pnc_vol.convert.either import open_either
from pnc_vol.convert.inspect_hdf5 import outside
from pnc_vol.convert.references import Meanings
from pnc_vol.extents.blocks import blocks
from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.dtypes import check_enum_dtype, check_string_dtype, metadata_of

__all__ = ["VERBS"]

BLOCK_BYTES = 4 << 20

Difference = tuple[str, str]


def _arguments(parser: Parser) -> None:
    parser.add_argument("first", metavar="A", help="A NetCDF classic or HDF5 file.")
    parser.add_argument("second", metavar="B", help="The file to compare it with.")
    parser.flag("-h", "--header", help="Compare the headers only, no values.")
    parser.add_argument("-t", "--tolerance", metavar="ABS,REL", help="Allow |a-b| <= ABS, or <= REL*max(|a|,|b|).")
    add_follow_external(parser)
    add_allow_sparse(parser)
    parser.flag("-q", "--quiet", help="Print nothing, only set the exit code.")
    add_json(parser)


def command(options: Options) -> int:
    """Compare objects, attributes, dimensions and values.

    Exit code: 0 if they are the same, 1 if they differ, 2 if one cannot be read.
    """
    first, second, follow = options.first, options.second, options.follow_external
    absolute, relative = _tolerance(options.tolerance)
    count = 0
    found: list[dict[str, str]] = []
    with expected(first), open_either(first) as a, expected(second), open_either(second) as b:
        for path, opened in ((first, a), (second, b)) if not options.header else ():
            refuse_sparse(path, declared_by(opened, follow_external=follow), allowed=options.allow_sparse)
        comparison = Comparison(a, b, not options.header, absolute, relative, follow)
        for path, sentence in comparison:
            count += 1
            if options.quiet:
                break
            if options.as_json:
                found.append({"path": path, "what": sentence})
            else:
                print(f"{painted(safe(path), 'yellow')}: {safe(sentence)}")
    if options.as_json and not options.quiet:
        print_json({"files": [first, second], "same": not count, "differences": found})
    if count and not (options.quiet or options.as_json):
        print(counted(count, "difference"))
    return int(count > 0)


def _tolerance(text: str | None) -> tuple[float, float]:
    """Return ``abs,rel`` as two numbers."""
    if text is None:
        return 0.0, 0.0
    try:
        absolute, relative = (float(part) for part in text.split(","))
    except ValueError:
        absolute = relative = -1.0
    if not (absolute >= 0 and relative >= 0):
        fail("-t", f"{text!r} is not a tolerance; two numbers >= 0 are needed, as in -t 1e-6,1e-9")
    return absolute, relative


@dataclass
class Comparison:
    """Iterates over ``(path, sentence)``, one for each difference of two open files.

    values : bool, compare the values of datasets too.
    absolute, relative : float
        Floats are equal if ``|a-b| <= absolute`` or ``|a-b| <= relative * max(|a|, |b|)``.
    follow_external : bool, compare values that HDF5 files keep in other files, too.
    """

    first: Any
    second: Any
    values: bool
    absolute: float
    relative: float
    follow_external: bool

    def __post_init__(self) -> None:
        self.meanings = Meanings(self.first), Meanings(self.second)
        self.same_kind = inspect_hdf5.is_hdf5(self.first) == inspect_hdf5.is_hdf5(self.second)

    def __iter__(self) -> Iterator[Difference]:
        yield from self._attributes("/", self.first, self.second)
        yield from self._groups("", self.first, self.second, ())

    # ------------------------------------------------------------------------------------------ objects

    def _groups(self, path: str, a: Any, b: Any, above: tuple[Any, ...]) -> Iterator[Difference]:
        left, right = (_members(group, types=self.same_kind) for group in (a, b))
        for name in left.keys() - right.keys():
            yield f"{path}/{name}", "only in the first file"
        for name in right.keys() - left.keys():
            yield f"{path}/{name}", "only in the second file"
        for name in left:
            if name not in right:
                continue
            here = f"{path}/{name}"
            if left[name] != right[name]:
                yield here, f"{left[name]} in the first file, {right[name]} in the second"
            elif left[name] == "group":
                # A hard link may lead back up; what is above is being compared already.
                if a[name] not in above:
                    yield from self._attributes(here, a[name], b[name])
                    yield from self._groups(here, a[name], b[name], (*above, a[name]))
            elif left[name] == "dataset":
                yield from self._datasets(here, a[name], b[name])

    def _datasets(self, path: str, a: Any, b: Any) -> Iterator[Difference]:
        for side, which in ((a, "first"), (b, "second")):
            if not self.follow_external and (there := outside(side)):
                yield path, f"not compared, the {which} file has its values elsewhere: {there}"
                return
        yield from self._attributes(path, a, b)
        yield from self._dimensions(path, a, b)
        if (left := _types(a)) != (right := _types(b)):
            yield path, f"type {left} in the first file, {right} in the second"
        if a.shape != b.shape:
            yield path, f"shape {a.shape} in the first file, {b.shape} in the second"
        elif self.values and a.shape is not None and _comparable(a.dtype, b.dtype):
            yield from self._values(path, a, b)

    def _dimensions(self, path: str, a: Any, b: Any) -> Iterator[Difference]:
        if inspect_hdf5.scale_name(a) != inspect_hdf5.scale_name(b) and (
            self.same_kind or (inspect_hdf5.scale_name(a) is None) != (inspect_hdf5.scale_name(b) is None)
        ):
            yield path, "a dimension scale in one file, or of another name"
        for axis in range(min(len(a.shape or ()), len(b.shape or ()))):
            left, right = (_scales(obj, axis) for obj in (a, b))
            if left != right:
                yield path, f"axis {axis} has the scales {left} in the first file, {right} in the second"
            if self.same_kind:
                label, other_label = (inspect_hdf5.axis_label(obj, axis) for obj in (a, b))
                if label != other_label:
                    yield path, f"axis {axis} is called {label!r} in the first file, {other_label!r} in the second"
        if self.same_kind and a.maxshape != b.maxshape and a.shape == b.shape:
            yield path, f"limits {a.maxshape} in the first file, {b.maxshape} in the second"

    def _attributes(self, path: str, a: Any, b: Any) -> Iterator[Difference]:
        hidden = inspect_hdf5.bookkeeping(a) | inspect_hdf5.bookkeeping(b) | self._implied(a, b)
        left = [name for name in a.attrs if name not in hidden]
        right = [name for name in b.attrs if name not in hidden]
        for name in left:
            where = f"{path}@{name}"
            if name not in right:
                yield where, "only in the first file"
            elif sentence := self._attribute(a, b, name):
                yield where, sentence
        for name in right:
            if name not in left:
                yield f"{path}@{name}", "only in the second file"

    def _implied(self, a: Any, b: Any) -> frozenset[str]:
        """Return ``_FillValue``, if it is in one file only and repeats the fill value that both datasets have."""
        name = "_FillValue"
        if (name in a.attrs) == (name in b.attrs) or not all(map(inspect_hdf5.has_fill, (a, b))):
            return frozenset()
        fills = [_normal(side.fillvalue) for side in (a, b)]
        stored = [_normal(side.attrs[name]) for side in (a, b) if name in side.attrs]
        return frozenset({name}) if all(_same(fills[0], other) for other in (*fills, *stored)) else frozenset()

    def _attribute(self, a: Any, b: Any, name: str) -> str:
        try:
            (left, shape, dtype), (right, other_shape, other_dtype) = (
                inspect_hdf5.attribute(obj, name) for obj in (a, b)
            )
        except (OSError, TypeError, ValueError, NotImplementedError) as error:
            return f"cannot be compared: {error}"
        if _kind(dtype) != _kind(other_dtype):
            return f"type {_kind(dtype)} in the first file, {_kind(other_dtype)} in the second"
        if shape != other_shape:
            return f"shape {shape} in the first file, {other_shape} in the second"
        if shape is None:
            return ""
        wrong = self._unequal(_elements(left, shape, dtype), _elements(right, shape, dtype))
        return f"{_short(left)} in the first file, {_short(right)} in the second" if wrong.any() else ""

    # ------------------------------------------------------------------------------------------- values

    def _values(self, path: str, a: Any, b: Any) -> Iterator[Difference]:
        if 0 in a.shape:
            return
        itemsize = max(inspect_hdf5.bytes_in_memory(side) for side in (a, b))
        chunks = None
        for side in (a, b):
            if inspect_hdf5.is_hdf5(side):
                chunks = chunks or side.chunks
        count, largest, where, pair = 0, 0.0, None, None
        for block in blocks(a.shape, itemsize, BLOCK_BYTES, chunks):
            left, right = (_elements(inspect_hdf5.values(side, block or ()), a.shape, side.dtype) for side in (a, b))
            wrong = _of_elements(self._unequal(left, right), len(block))
            found = int(np.count_nonzero(wrong))
            if not found:
                continue
            count += found
            largest = max(largest, _distance(left[wrong], right[wrong]))
            if where is None:
                at = np.unravel_index(int(wrong.argmax()), wrong.shape)
                where = [int(i) + axis.start for i, axis in zip(at, block, strict=True)]
                pair = left[at], right[at]
        if pair is not None:
            place = f"the first at {where}: " if where else ""
            apart = f", at most {largest:.6g} apart" if largest else ""
            yield path, f"{count} of {a.size} values differ, {place}{_short(pair[0])} and {_short(pair[1])}{apart}"

    def _unequal(self, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return where two arrays of one shape differ."""
        texts = all(x.dtype.kind in "SU" or check_string_dtype(x.dtype) is not None for x in (a, b))
        if texts:
            return np.asarray(_as_bytes(a) != _as_bytes(b), dtype=np.bool_)
        if a.dtype.names is not None and a.dtype.names == b.dtype.names:
            fields = (_of_elements(self._unequal(a[name], b[name]), a.ndim) for name in a.dtype.names)
            return np.asarray(np.logical_or.reduce(list(fields)), np.bool_)
        if a.dtype.kind not in "biufc" or b.dtype.kind not in "biufc":
            if all(refers(x.dtype) or (x.dtype.kind == "O" and not x.dtype.metadata) for x in (a, b)):
                a, b = (meaning.values(side) for meaning, side in zip(self.meanings, (a, b), strict=True))
            pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
            return np.array([self._differ(x, y) for x, y in pairs], dtype=bool).reshape(a.shape)
        unequal: npt.NDArray[np.bool_] = np.asarray(a != b)
        if not unequal.any():
            return unequal
        if "c" in (a.dtype.kind, b.dtype.kind):
            unequal = _unequal_numbers(a.real, b.real) | _unequal_numbers(a.imag, b.imag)
        else:
            unequal = _unequal_numbers(a, b)
        if (self.absolute or self.relative) and "b" not in (a.dtype.kind, b.dtype.kind):
            with np.errstate(all="ignore"):
                wide, other = (x.astype(np.result_type(x.dtype, np.float64)) for x in (a, b))
                apart = np.abs(wide - other)
                near = apart <= self.absolute
                near |= apart <= self.relative * np.maximum(np.abs(wide), np.abs(other))
            # Infinities of different signs, and an infinity and a number, are never near.
            unequal &= ~(near & np.isfinite(apart))
        return unequal

    def _differ(self, a: Any, b: Any) -> bool:
        """Return whether two elements differ that are no numbers: rows of varying length, opaque values, references."""
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a.shape != b.shape or bool(self._unequal(a, b).any())
        return not _same(a, b)


def _members(group: Any, *, types: bool) -> dict[str, str]:
    """Return what each member of a group is; named types only if asked for."""
    found = {}
    for name in group:
        try:
            link = group.get(name, getlink=True)
            if type(link).__name__ != "HardLink":
                found[name] = repr(link)
                continue
            member = group[name]
        except (KeyError, OSError, TypeError):
            found[name] = "something that cannot be opened"
            continue
        kind = inspect_hdf5.kind_of_object(member)
        bare = kind == "dataset" and inspect_hdf5.bare_dimension(member)
        if not bare and (types or kind != "type"):
            found[name] = kind
    return found


def _scales(dataset: Any, axis: int) -> list[str]:
    """Return the paths of an axis' scales; netCDF-4's dimensions without a variable are names only, and do not
    count."""
    paths = inspect_hdf5.axis_scales(dataset, axis)
    return sorted(path for path in paths if not inspect_hdf5.bare_dimension(dataset.file[path]))


def _types(dataset: Any) -> str:
    try:
        return _kind(dataset.dtype)
    except (TypeError, ValueError) as error:
        return f"without a numpy equivalent ({error})"


def _kind(dtype: np.dtype[Any]) -> str:
    """Return the type in words, without byte order and lengths of strings."""
    if check_string_dtype(dtype) is not None:
        return "string"
    if dtype.subdtype is not None:
        return f"array {list(dtype.subdtype[1])} of {_kind(dtype.subdtype[0])}"
    if (row := ragged_base(dtype)) is not None:
        return f"rows of {_kind(row)}"
    if (reference := metadata_of(dtype).get("ref")) is not None:
        return "region reference" if reference.__name__ == "RegionReference" else "object reference"
    if dtype.names is not None:
        return f"compound ({', '.join(f'{name}: {_kind(dtype[name])}' for name in dtype.names)})"
    members = check_enum_dtype(dtype)
    base = dtype.newbyteorder("=").str.lstrip("<=>|")
    return f"enum {base} {dict(sorted(members.items()))}" if members is not None else base


def _comparable(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    """Return whether a comparison of values means anything."""
    if a.subdtype is not None and b.subdtype is not None:
        return a.subdtype[1] == b.subdtype[1] and _comparable(a.subdtype[0], b.subdtype[0])
    if a.names is not None and a.names == b.names:
        return all(_comparable(a[name], b[name]) for name in a.names)
    rows, others = ragged_base(a), ragged_base(b)
    if rows is not None and others is not None:
        return _comparable(rows, others)
    return _kind(a) == _kind(b) or (a.kind in "biufc" and b.kind in "biufc")


def _elements(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values as an array; a scalar of varying length is read as its row."""
    if shape != () or ragged_base(dtype) is None:
        return np.asarray(values)
    made = np.empty(1, dtype)
    made[0] = values
    return made.reshape(())


def _of_elements(wrong: npt.NDArray[np.bool_], axes: int) -> npt.NDArray[np.bool_]:
    """Return which elements differ, of what differs in arrays whose elements may be arrays."""
    return np.asarray(wrong.any(tuple(range(axes, wrong.ndim))))


def _unequal_numbers(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where two arrays of numbers differ; a NaN equals a NaN."""
    unequal = np.asarray(a != b)
    if a.dtype.kind == "f" and b.dtype.kind == "f":
        unequal &= ~(np.isnan(a) & np.isnan(b))
    return unequal


def _as_bytes(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return texts as bytes without NULs at their ends, whatever they were stored as."""
    if values.dtype.kind == "S":
        return values.astype(object)
    texts = np.empty(values.size, object)
    texts[:] = [v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v for v in values.reshape(-1)]
    return texts.reshape(values.shape)


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the largest finite difference of numbers."""
    if a.dtype.kind not in "iufc" or b.dtype.kind not in "iufc":
        return 0.0
    with np.errstate(all="ignore"):
        apart = np.abs(a.astype(np.result_type(a.dtype, np.float64)) - b)
    apart = apart[np.isfinite(apart)]
    return float(apart.max()) if apart.size else 0.0


def _normal(value: Any) -> Any:
    """Return a fill value as plain Python has it: texts as bytes, whatever they are stored as."""
    plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return plain.encode("utf-8", "surrogateescape") if isinstance(plain, str) else plain


def _short(value: Any) -> str:
    """Return a value in a few words."""
    text = repr(value.tolist()) if isinstance(value, (np.ndarray, np.generic)) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _same(a: Any, b: Any) -> bool:
    """Return whether two elements are the same, whatever they are made of; NaN is the same as NaN."""
    if isinstance(a, (tuple, list, np.ndarray)) and isinstance(b, (tuple, list, np.ndarray)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b or (a != a and b != b))


VERBS: dict[str, Verb] = {"diff": (_arguments, command)}
