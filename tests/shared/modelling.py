"""What the model test draws from, and how what it gets is made comparable.

Knows: h5py's words, which both libraries have. Does not know: which of the two it talks to.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "g", "g/a", "g/h", "g/h/b", "z", "/z/a", "g/", "./b", "z//a"])
ATTRS = st.sampled_from(["x", "y", "z", "é"])
FIELDS = st.sampled_from(["p", "q", "s", "t", ["p", "q"], ["q"], ["p", "none"]])
COMPOUND = [("p", "i4"), ("q", "f8"), ("s", "S3"), ("t", "f4", (2,))]
DTYPES = st.sampled_from(
    ["i4", "f8", "u1", ">i2", "f2", "c8", "?", "S4", "V3", "text", "ascii", "compound", "(2,)f4", "rows", "enum", "U3"]
)
FILLED = ("i4", "f8", ">i2", "f2")
SHAPES = st.sampled_from([(), (3,), (2, 3), (0, 2), (4, 1), (2, 2, 3), (5,)])
VALUES = st.sampled_from(
    [
        1, 2.5, True, 1j, "text", "", "é", b"raw", [1, 2], [1.5], [], [["a", "b"]], ["one", "three"], [True, False],
        ("array", "f4", (2, 2)), ("array", "i8", (0, 3)), ("array", "S3", (2,)), ("array", "compound", (2,)),
        ("array", "u2", ()), ("array", "c16", (1,)), ("empty", "f4"), ("empty", "S5"), ("U",), None, {"no": "way"},
    ]
)  # fmt: skip
COPYING = st.sampled_from(
    [{}, {"shallow": True}, {"without_attrs": True}, {"expand_soft": True}, {"expand_external": True}]
)
OTHERWISE = ("roadcasting is not supported", "too many links", "component not found", "address undefined")
"""What h5py says of one value for some kinds of selections; of soft links in a circle, or on the way to something,
which to pnc_vol are links that lead nowhere; and when HDF5 cannot copy what was never written."""
HIDDEN = {"_FillValue", "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"}
"""Attributes that one of the two libraries keeps for itself."""


def inside(place: str, source: str) -> bool:
    """Whether a path is that of an object, or of something in it."""
    steps = [[step for step in path.split("/") if step not in ("", ".")] for path in (place, source)]
    return steps[0][: len(steps[1])] == steps[1]


def dtype_of(module: Any, name: str) -> Any:
    special = {
        "text": module.string_dtype(),
        "ascii": module.string_dtype("ascii", 5),
        "compound": np.dtype(COMPOUND),
        "rows": module.vlen_dtype("i4"),
        "enum": module.enum_dtype({"RED": 0, "BLUE": 2}, "i2"),
    }
    return special.get(name, name)


def has_complex(value: Any) -> bool:
    return isinstance(value, complex) or (isinstance(value, tuple) and value[1:2] == ("c16",))


def made(module: Any, value: Any) -> Any:
    """A value that was drawn, for one of the libraries."""
    if isinstance(value, tuple):
        if value[0] == "empty":
            return module.Empty(value[1])
        if value[0] == "U":
            return np.array(["a", "bc"])
        dtype = np.dtype(dtype_of(module, value[1]))
        numbers = np.arange(np.prod(value[2])) if dtype.names is None else np.zeros(value[2])
        return numbers.astype(dtype).reshape(value[2])
    return value


# ------------------------------------------------------------------------------------------ selections


def selection(shape: Any) -> Any:
    """Indices for a shape, most of them good."""
    if not shape:
        return st.sampled_from([(), ..., 0, slice(None), (0, 0), "p", (..., ...)])
    axes = [_along(n) for n in shape]
    full = st.tuples(*axes)
    wrong = st.sampled_from(
        [(0,) * (len(shape) + 1), (..., ...), None, (None, 0), "p", 2.5, slice(None, None, 0), [0.5], [[0, 1], [1, 0]],
         -9, 9, [9], [-9], (), ..., object],
    )  # fmt: skip
    some = st.integers(0, len(shape)).flatmap(lambda n: st.tuples(*axes[:n], *([st.just(...)] if n % 2 else [])))
    last = st.tuples(st.just(...), axes[-1])
    first = axes[0]
    return st.one_of(full, some, last, first, full, wrong)


def _along(n: int) -> Any:
    edge = st.integers(-n - 1, n + 1)
    return st.one_of(
        st.integers(-n, n - 1) if n else st.just(0),
        st.builds(slice, st.none() | edge, st.none() | edge, st.none() | st.integers(1, 3)),
        st.lists(st.integers(0, max(n - 1, 0)), max_size=n, unique=True).map(sorted),
        st.lists(st.booleans(), min_size=n, max_size=n).map(lambda flags: np.array(flags, bool)),
        st.lists(st.integers(-n, n - 1), max_size=3) if n else st.just([]),
        st.just(slice(None)),
    )


def beyond_h5py(at: Any) -> bool:
    """Whether h5py refuses a selection that pnc_vol takes: lists out of order, several of them, backwards."""
    parts = at if isinstance(at, tuple) else (at,)
    lists = [part for part in parts if isinstance(part, (list, np.ndarray))]
    if any(isinstance(part, np.ndarray) for part in lists) and any(part is Ellipsis for part in parts):
        return True
    return len(lists) > 1 or any(_unordered(part) for part in lists)


def _unordered(part: Any) -> bool:
    if isinstance(part, np.ndarray) or not all(isinstance(i, int) for i in part):
        return False
    return any(a < 0 for a in part) or any(b <= a for a, b in itertools.pairwise(part))


def outer(array: Any, at: Any) -> Any:
    """What an index selects, each axis for itself, as in h5py."""
    parts = list(at) if isinstance(at, tuple) else [at]
    if Ellipsis in [part for part in parts if not isinstance(part, np.ndarray)]:
        where = next(i for i, part in enumerate(parts) if part is Ellipsis)
        parts[where : where + 1] = [slice(None)] * (array.ndim - len(parts) + 1)
    axis = 0
    for part in parts:
        array = array[(slice(None),) * axis + (part,)]
        axis += not isinstance(part, int)
    return array


def put(module: Any, found: Any, at: Any, seed: int) -> None:
    """Write a value of the dataset's type."""
    if isinstance(found, module.Group):
        return
    kind = found.dtype
    if module.check_vlen_dtype(kind) not in (None, str, bytes):
        if found.ndim == 1:
            found[0] = np.arange(seed)
        return
    if module.check_string_dtype(kind) is not None:
        found[at] = f"t{seed}"
    elif kind.names:
        found[at] = np.array((seed, seed / 2, b"s", [1, seed]), COMPOUND)
    elif kind.subdtype:
        found[at] = np.full(2, seed)
    elif kind.kind == "V":
        found[at] = np.void(bytes([seed] * kind.itemsize))
    else:
        found[at] = seed % 2 if kind.kind == "b" else seed


def got(module: Any, found: Any, at: Any) -> Any:
    return None if isinstance(found, module.Group) else found[at]


# ------------------------------------------------------------------------------------------ comparisons


def plain(module: Any, value: Any) -> Any:
    """A value that can be compared across the two libraries."""
    if isinstance(value, module.Empty):
        return "Empty", typed(module, value.dtype)
    if isinstance(value, module.Reference):
        # in a copy it is null for HDF5, and keeps its path in pnc_vol
        return "reference"
    if isinstance(value, np.ndarray):
        return typed(module, value.dtype), value.shape, [plain(module, item) for item in listed(value)]
    if isinstance(value, np.generic):
        return typed(module, value.dtype), plain(module, value.item())
    if isinstance(value, (tuple, list)):
        return [plain(module, item) for item in value]
    return "nan" if isinstance(value, float) and value != value else value


def difference(theirs: Any, ours: Any, at: str = "") -> str:
    """Where two plain values begin to differ."""
    if type(theirs) is type(ours) and isinstance(theirs, (list, tuple)):
        for i, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            if one != other:
                return difference(one, other, f"{at}[{i}]")
    return f"at {at or 'all'} h5py has {theirs!r}, pnc_vol {ours!r}"


def listed(array: Any) -> list[Any]:
    return list(array.ravel()) if array.dtype.kind == "O" else array.ravel().tolist()


def typed(module: Any, dtype: Any) -> Any:
    """A type, with h5py's metadata in words."""
    if dtype.names:
        return [(name, typed(module, dtype[name])) for name in dtype.names]
    info = module.check_string_dtype(dtype)
    rows, enum = module.check_vlen_dtype(dtype), module.check_enum_dtype(dtype)
    return (
        dtype.str,
        dtype.shape,
        info and tuple(info),
        None if rows is None else str(rows if rows in (str, bytes) else np.dtype(rows)),
        enum,
        module.check_ref_dtype(dtype) is not None,
    )


def described(module: Any, found: Any) -> Any:
    """What a dataset is, without its values."""
    fill = found.fillvalue if found.dtype.kind in "iuf" and found.shape is not None else None
    return found.shape, found.maxshape, typed(module, found.dtype), plain(module, fill), len(found.attrs) and 1


def everything(module: Any, file: Any) -> Any:
    """All that a file says, in the order in which it says it."""
    told: list[Any] = []

    def visit(name: str, found: Any) -> None:
        attrs = [(key, plain(module, value)) for key, value in found.attrs.items() if key not in HIDDEN]
        told.append((name, type(found).__name__, attrs))
        if isinstance(found, module.Dataset):
            told.append(described(module, found)[:4])
            if found.shape is not None:
                told.append([dim.label for dim in found.dims])
            told.append(plain(module, found[()]))

    file.visititems(visit)
    links: list[Any] = []
    file.visititems_links(lambda name, link: links.append((name, type(link).__name__, getattr(link, "path", None))))
    listing = [(name, list(found), list(reversed(found)), len(found)) for name, found in groups(module, file)]
    return told, links, listing, [(key, plain(module, file.attrs[key])) for key in file.attrs if key not in HIDDEN]


def groups(module: Any, file: Any) -> list[tuple[str, Any]]:
    found = [("/", file)]
    file.visititems(lambda name, item: found.append((name, item)) if isinstance(item, module.Group) else None)
    return found
