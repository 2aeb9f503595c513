"""The files of E3SM-IO's cases: which variables, of which type, on which dimensions, under which map.

From the lists that describe the C program's own files (names, attributes and order are theirs), or, where those are not
at hand, from their counts: as many variables of each kind, with names of their own. Credit for the cases: Northwestern
University and Argonne National Laboratory, E3SM-IO.

Knows: variables. Does not know: cells, processes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_whole

__all__ = ["CaseFile", "Variable", "counted", "files_of", "listed"]

FILES = {"F": ("f_h0", "f_h1"), "G": ("g_hist",), "I": ("i_h0", "i_h1")}
ONE_RECORD = ("f_h0", "i_h1")
TYPES = {"double": "f8", "float": "f4", "int": "i4", "char": "S1"}


@dataclass(frozen=True)
class Variable:
    """One variable: dims by name, `number` of its map from 1 on or 0."""

    name: str
    dtype: Any
    dims: tuple[str, ...]
    number: int
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseFile:
    """One file: lengths of dimensions by name (None: records), attributes, variables in order."""

    name: str
    dims: Mapping[str, int | None]
    attrs: Mapping[str, Any]
    variables: list[Variable]
    map_dims: list[tuple[str, ...]]

    @property
    def one_record(self) -> bool:
        return self.name in ONE_RECORD

    def shape(self, variable: Variable, records: int, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Of a variable in a file of `records` records."""
        return tuple(lengths.get(dim, self.dims[dim] or records) for dim in variable.dims)

    def is_record(self, variable: Variable) -> bool:
        return bool(variable.dims) and self.dims[variable.dims[0]] is None


def files_of(case: str, which: int) -> list[str]:
    """Names of the files of a case: h0, h1 or both (-1)."""
    names = FILES[case]
    return list(names) if which < 0 or len(names) == 1 else [names[which]]


def _value(stored: Any) -> Any:
    if isinstance(stored, dict):
        values = np.array(stored["v"], TYPES[stored["t"]])
        return values[0] if values.size == 1 else values
    return stored


def _attributes(stored: Any, kind: str) -> dict[str, Any]:
    found = {key: _value(value) for key, value in stored}
    if "_FillValue" in found and kind in TYPES:
        # always of the variable's type, which other attributes of that value are not
        found["_FillValue"] = np.dtype(TYPES[kind]).type(found["_FillValue"])
    return found


def listed(path: str, *, floats: bool) -> CaseFile:
    """A file from its list.

    Parameters
    ----------
    floats : bool
        Whether what the C program makes float under ``-j`` is float.
    """
    listing = json.loads(read_whole(REAL, path))
    narrow = set(listing["float_with_j"]) if floats else set()
    variables = [
        Variable(
            name,
            TYPES["float" if name in narrow else kind],
            tuple(dims),
            number,
            _attributes(attrs, "float" if name in narrow else kind),
        )
        for name, kind, dims, number, attrs in listing["vars"]
    ]
    name = path.rpartition("/")[2].removesuffix(".json")
    attrs = {key: _value(value) for key, value in listing["attrs"]}
    return CaseFile(name, dict(listing["dims"]), attrs, variables, [tuple(dims) for dims in listing["maps"]])


# --------------------------------------------------------------------------------------------------- from counts

Kinds = list[tuple[int, str, tuple[str, ...], int]]

_F_FIXED: Kinds = [
    (5, "int", (), 0), (2, "double", ("ncol",), 2), (1, "double", ("ncol",), 1), (3, "double", ("lev",), 0),
    (3, "double", ("ilev",), 0), (1, "double", (), 0),
]  # fmt: skip
_F_SMALL: Kinds = [
    (2, "char", ("time", "chars"), 0), (5, "int", ("time",), 0), (7, "double", ("time",), 0),
    (1, "double", ("time", "nbnd"), 0),
]  # fmt: skip
_I_FIXED: Kinds = [
    (3, "double", ("lat", "lon"), 1), (2, "int", ("lat", "lon"), 1), (2, "double", ("levgrnd",), 0),
    (1, "double", ("levlak",), 0), (1, "double", ("lon",), 0), (1, "double", ("lat",), 0),
]  # fmt: skip
_I_RECORDS: Kinds = [
    (2, "char", ("time", "string_length"), 0), (5, "int", ("time",), 0), (1, "double", ("time",), 0),
    (1, "double", ("time", "hist_interval"), 0), (460, "double", ("time", "lat", "lon"), 1),
    (56, "double", ("time", "levdcmp", "lat", "lon"), 2), (13, "double", ("time", "levgrnd", "lat", "lon"), 2),
    (2, "double", ("time", "levlak", "lat", "lon"), 3), (1, "double", ("time", "ltype", "lat", "lon"), 4),
    (1, "double", ("time", "natpft", "lat", "lon"), 5),
]  # fmt: skip
_CELLS, _EDGES, _VERTICES = (("nCells", "nVertLevels"), ("nEdges", "nVertLevels"), ("nVertices", "nVertLevels"))

COUNTS: dict[str, Kinds] = {
    "f_h0": [*_F_FIXED, *_F_SMALL, (321, "double", ("time", "ncol"), 2), (63, "double", ("time", "lev", "ncol"), 3)],
    "f_h1": [*_F_FIXED, *_F_SMALL, (20, "double", ("time", "ncol"), 2), (1, "double", ("time", "lev", "ncol"), 3)],
    "g_hist": [
        (2, "int", ("nEdges",), 2), (1, "int", ("nCells",), 1), (1, "double", ("nCells",), 1), (1, "int", _CELLS, 3),
        (1, "int", _EDGES, 4), (1, "int", _VERTICES, 5), (4, "double", ("nVertLevels",), 0),
        (1, "char", ("time", "string_length"), 0), (6, "double", ("time",), 0), (4, "double", ("time", "nCells"), 1),
        (24, "double", ("time", *_CELLS), 3), (1, "double", ("time", *_EDGES), 4),
        (1, "double", ("time", *_VERTICES), 5), (4, "double", ("time", "nCells", "nVertLevelsP1"), 6),
    ],
    "i_h0": [
        *_I_FIXED, (6, "double", ("levgrnd", "lat", "lon"), 2), (2, "double", ("levlak", "lat", "lon"), 3), *_I_RECORDS,
    ],
    "i_h1": [*_I_FIXED, *_I_RECORDS],
}  # fmt: skip

_MAP_DIMS: dict[str, list[tuple[str, ...]]] = {
    "F": [("ncol",), ("ncol",), ("lev", "ncol")],
    "G": [("nCells",), ("nEdges",), _CELLS, _EDGES, _VERTICES, ("nCells", "nVertLevelsP1")],
    "I": [("lat", "lon"), *((depth, "lat", "lon") for depth in ("levgrnd", "levlak", "ltype", "natpft"))],
}
_SMALL_DIMS = {"time": None, "nbnd": 2, "chars": 8, "string_length": 64, "hist_interval": 2}


def counted(name: str, lengths: Mapping[str, int], *, floats: bool) -> CaseFile:
    """A file with as many variables of each kind as the C program's, on dimensions of these lengths."""
    case = name[0].upper()
    variables: list[Variable] = []
    for count, kind, dims, number in COUNTS[name]:
        narrow = floats and kind == "double" and case != "G"
        for _ in range(count):
            at = len(variables)
            attrs = {"long_name": f"variable {at} of {name}", "units": "1"}
            variables.append(Variable(f"v{at:03d}", TYPES["float" if narrow else kind], dims, number, attrs))
    used = {dim for variable in variables for dim in variable.dims}
    known: dict[str, int | None] = {dim: n for dim, n in {**_SMALL_DIMS, **lengths}.items() if dim in used}
    return CaseFile(name, known, {"title": f"like E3SM-IO's {name}"}, variables, _MAP_DIMS[case])
