"""This module knows what each version of the format can hold.

Knows: the limits of CDF-1, CDF-2 and CDF-5 as writers must keep them, and how to say which version would do. Does not
know: bytes. Readers are more tolerant: their limits are in `model`.

Source: NetCDF classic format specification; the limits that PnetCDF enforces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import itemgetter

from pnc_vol.errors import DefinitionError, NameExistsError
from pnc_vol.format.model import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_OFFSET,
    MAX_VAR_DIMS,
    TYPES,
    WIDTHS,
    Attr,
    Header,
    inner_sizes,
    pad4,
    record_dim,
    record_stride,
    record_vars,
)

__all__ = [
    "MAX_HEADER_BYTES",
    "MAX_NAME",
    "check_begins",
    "check_decoded",
    "check_length",
    "check_limits",
    "check_name",
    "check_names",
    "check_type",
    "is_legal_name",
    "normalise",
]


_DIM_MAX = {1: 2**31 - 1, 2: 2**31 - 1, 5: MAX_OFFSET}


_NARROWER = {7: "'i2'", 8: "'i4'", 9: "'f8'", 10: "'i4' or 'f8'", 11: "'i4' or 'f8'"}
"""For each type of CDF-5 alone, a dtype that CDF-1 and CDF-2 have."""


def check_type(what: str, code: int, version: int) -> None:
    """Refuse a type that a version does not have.

    Raises
    ------
    DefinitionError
        It names `what`, and what can be done.

    Examples
    --------
    >>> check_type("Variable 'a'", 10, 5)
    """
    if code in WIDTHS[version].sizes:
        return
    use = f"; use format='CDF-5', or dtype={_NARROWER[code]}" if code in _NARROWER else ""
    name = TYPES[code].name if code in TYPES else str(code)
    raise DefinitionError(f"{what}: CDF-{version} has no type {name}{use}.")


def check_length(what: str, size: int, version: int) -> None:
    """Refuse a dimension that is longer than a version allows.

    Raises
    ------
    DefinitionError
        It names `what`, and the version that would do.
    """
    limit = _DIM_MAX[version]
    if not 0 <= size <= limit:
        hint = " Use format='CDF-5'." if version != 5 else ""
        raise DefinitionError(f"{what} has {size} elements; CDF-{version} holds at most {limit}.{hint}")


def check_names(header: Header) -> None:
    """Refuse names that a writer may not store, and names that are taken.

    Raises
    ------
    DefinitionError
        With the name and the rule it breaks.
    NameExistsError
        Two dimensions, two variables, or two attributes of one variable have the same name.
    """
    names: set[str] = set()

    def distinct(kind: str, entries: Iterable[tuple[str, ...]]) -> None:
        own = [entry[0] for entry in entries]
        if len(set(own)) != len(own):
            seen: set[str] = set()
            twice = next(name for name in own if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise NameExistsError(f"Two {kind} are called {twice!r}; names must differ.")
        names.update(own)

    distinct("dimensions", header.dims)  # type: ignore[arg-type]
    distinct("variables", header.vars)  # type: ignore[arg-type]
    distinct("global attributes", header.attrs)  # type: ignore[arg-type]
    for var in header.vars:
        if len(var.attrs) == 1:
            names.add(var.attrs[0][0])
        elif var.attrs:
            distinct(f"attributes of variable {var.name!r}", var.attrs)  # type: ignore[arg-type]
    for name in names:
        check_name(name)


def check_limits(header: Header) -> None:
    """Refuse what the header's version cannot hold; names are left to `check_names`.

    Raises
    ------
    DefinitionError
        Naming the dimension, variable or attribute, and the version that could hold it.

    Examples
    --------
    >>> from pnc_vol.format.model import Var
    >>> check_limits(Header(5, vars=(Var("a", (), (), 11),)))
    """
    version = header.version
    if version not in WIDTHS:
        raise DefinitionError(f"There is no CDF-{version}; versions 1, 2 and 5 exist.")
    if not 0 <= header.numrecs <= _DIM_MAX[version]:
        raise DefinitionError(
            f"{header.numrecs} records: CDF-{version} holds at most {_DIM_MAX[version]}.{_hint(version)}"
        )
    if header.facts.within_limits:
        # Who gives places to definitions that were checked looks at where they end.
        return
    for kind, entries in (("dimensions", header.dims), ("variables", header.vars)):
        if len(entries) > MAX_COUNT:
            raise DefinitionError(f"{len(entries)} {kind}: a file holds at most {MAX_COUNT}.")
    _check_dims(header)
    check_attrs("The file", header.attrs, version)
    codes = WIDTHS[version].sizes
    # Variables often have dimensions and attributes in common, and most with the one before.
    checked: set[tuple[int, ...]] = set()
    seen: set[tuple[Attr, ...]] = set()
    shape: tuple[int, ...] | None = None
    last: tuple[Attr, ...] | None = None
    for name, dims, attrs, code, _ in header.vars:
        if code not in codes:
            check_type(f"Variable {name!r}", code, version)
        if dims is not shape:
            shape = dims
            if dims not in checked:
                _check_shape(header, name, dims)
                checked.add(dims)
        if attrs is not last:
            last = attrs
            if attrs and attrs not in seen:
                check_attrs(f"Variable {name!r}", attrs, version)
                seen.add(attrs)
    _check_sizes(header)
    header.facts.within_limits = True


def check_decoded(header: Header) -> None:
    """Do as `check_limits` does for a decoded header, which has no type nor count that its version does not have.

    Raises
    ------
    DefinitionError
        A length or a size that may be read, and may not be written.
    """
    _check_dims(header)
    _check_sizes(header)
    header.facts.within_limits = True


def _hint(version: int) -> str:
    return " Use format='CDF-5'." if version != 5 else ""


def _check_dims(header: Header) -> None:
    limit = _DIM_MAX[header.version]
    first = record_dim(header)
    for i, (name, size) in enumerate(header.dims):
        if not 0 <= size <= limit:
            check_length(f"Dimension {name!r}", size, header.version)
        if size == 0 and i != first:
            raise DefinitionError(
                f"Dimension {name!r} is unlimited, and so is {header.dims[first or 0].name!r}; a file has one "
                "such dimension. Give it a size."
            )


def check_attrs(owner: str, attrs: tuple[Attr, ...], version: int) -> None:
    """Refuse attributes that the version cannot hold.

    owner : str, whose they are, in the words of the error.
    """
    sizes = WIDTHS[version].sizes
    for name, code, nelems, data in attrs:
        size = sizes.get(code)
        if size is None:
            check_type(f"{owner}, attribute {name!r}", code, version)
            continue
        if nelems * size != len(data):
            raise DefinitionError(
                f"{owner}, attribute {name!r}: {nelems} values of {TYPES[code].name} do not have {len(data)} bytes."
            )
        if nelems > MAX_COUNT:
            raise DefinitionError(f"{owner}, attribute {name!r} has {nelems} values; the limit is {MAX_COUNT}.")


def _check_shape(header: Header, name: str, dims: tuple[int, ...]) -> None:
    if len(dims) > MAX_VAR_DIMS:
        raise DefinitionError(f"Variable {name!r} has {len(dims)} dimensions; the limit is {MAX_VAR_DIMS}.")
    for k, i in enumerate(dims):
        if not 0 <= i < len(header.dims):
            raise DefinitionError(f"Variable {name!r}: there is no dimension {i}; the file has {len(header.dims)}.")
        if k and header.dims[i].size == 0:
            raise DefinitionError(
                f"Variable {name!r}: {header.dims[i].name!r} is the unlimited dimension, which must come first."
            )


def _check_sizes(header: Header) -> None:
    widths, sizes = WIDTHS[header.version], inner_sizes(header)
    records = record_vars(header)
    kinds: list[list[int]] = []
    if max(sizes, default=0) > widths.var_max:
        in_record = set(records)
        kinds = [[i for i in range(len(sizes)) if i not in in_record], records]
    for kind in kinds:
        for i in kind:
            if sizes[i] <= widths.var_max:
                continue
            # One variable may outgrow its vsize where nothing has to begin behind it.
            last = i == kind[-1] and not (kind is kinds[0] and records)
            if sizes[i] > MAX_BYTES or not last:
                _refuse_size(header, i, sizes[i])
    stride = record_stride([sizes[i] for i in records]) if records else 0
    if stride > MAX_BYTES:
        raise DefinitionError(f"A record would have {stride} bytes; the limit is {MAX_BYTES}.")
    check_begins(header, list(map(itemgetter(4), header.vars)), sizes)


def check_begins(header: Header, begins: list[int], sizes: list[int]) -> None:
    """Refuse variables of these sizes that would begin or end where the header's version cannot say it.

    Raises
    ------
    DefinitionError
    """
    version, limit = header.version, WIDTHS[header.version].begin_max
    last = max(begins, default=0)
    if last <= limit and last + pad4(max(sizes, default=0)) <= MAX_OFFSET:
        return
    for var, begin, size in zip(header.vars, begins, sizes, strict=True):
        if begin > limit:
            raise DefinitionError(
                f"Variable {var.name!r} would begin at byte {begin}; CDF-{version} reaches {limit}."
                + (" Use format='CDF-2' or 'CDF-5'." if version == 1 else "")
            )
        if begin + pad4(size) > MAX_OFFSET:
            raise DefinitionError(f"Variable {var.name!r} would end beyond 2**63 - 1 bytes; make it smaller.")


def _refuse_size(header: Header, i: int, size: int) -> None:
    version, limit = header.version, WIDTHS[header.version].var_max
    would = [f"'CDF-{v}'" for v in (2, 5) if v > version and size <= WIDTHS[v].var_max]
    use = f" Use format={' or '.join(would)}, or define it last." if would else " Split it."
    raise DefinitionError(
        f"Variable {header.vars[i].name!r} has {size} bytes; CDF-{version} holds at most {limit}.{use}"
    )


# --------------------------------------------------------------------------------------------------------------- names
# Which names a NetCDF classic file may hold.
#
# Knows: the rules that PnetCDF and netCDF-C enforce when a name is defined. Does not know: HDF5 paths, headers.
#
# Rules
# -----
# 1. 1 to 256 bytes of UTF-8, in normalisation form C (NFC).
# 2. First a letter, digit or underscore of ASCII, or any character beyond ASCII.
# 3. Then anything but control characters, DEL and ``/``; not ending in a space.
# 4. The rules bind writers. Readers meet names that break them, and must show them all the same.
#
# Source: NetCDF classic format specification, "Note on names"; behaviour of PnetCDF 1.14 and netCDF-C 4.9.


MAX_NAME = 256
"""Bytes of the longest name (NC_MAX_NAME)."""
MAX_HEADER_BYTES = 1 << 30
"""Longest header that is written, and that is decoded unless asked otherwise, in bytes."""

_FIRST = r"[A-Za-z0-9_]|[^\x00-\x7f]"
_FORBIDDEN = r"[\x00-\x1f\x7f/]"


def normalise(name: str) -> str:
    """Return `name` as a file stores it (NFC), so that equal-looking names are equal.

    Examples
    --------
    >>> normalise("A\\u030a") == "\\u00c5"
    True
    """
    import unicodedata

    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _fault(name: str) -> str:
    """Return what is wrong with `name`, or an empty string."""
    if not name:
        return "it is empty"
    try:
        nbytes = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if nbytes > MAX_NAME:
        return f"it takes {nbytes} bytes of UTF-8, and {MAX_NAME} is the limit"
    if not re.match(_FIRST, name):
        return f"it begins with {name[0]!r}; begin with a letter, a digit or an underscore"
    bad = re.search(_FORBIDDEN, name)
    if bad:
        return f"it holds {bad.group()!r}"
    if name.endswith(" "):
        return "it ends with a space"
    import unicodedata

    if not name.isascii() and not unicodedata.is_normalized("NFC", name):
        return "it is not in Unicode normalisation form C; pass it through names.normalise"
    return ""


def is_legal_name(name: str) -> bool:
    """Return whether a writer may store `name`.

    Examples
    --------
    >>> is_legal_name("air_temperature"), is_legal_name("a/b")
    (True, False)
    """
    return (name.isascii() and name.isidentifier() and len(name) <= MAX_NAME) or not _fault(name)


def check_name(name: str) -> None:
    """Refuse a name that the format does not allow.

    Raises
    ------
    DefinitionError
        With the rule that `name` breaks.

    Examples
    --------
    >>> check_name("temperature")
    """
    if not is_legal_name(name):
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise DefinitionError(f"{shown!r} cannot be a name in a NetCDF file: {_fault(name)}.")
