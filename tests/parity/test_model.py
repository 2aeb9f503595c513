"""The same random calls to h5py and to pnc_vol: values, types, shapes, orders, and whether something raises must agree.

Which builtin is raised is compared call by call in ``tests/api``; here HDF5 has too many ways to meet the same mistake.
A few hundred steps in each run; ``PNC_VOL_MODEL_EXAMPLES=2000`` makes it a night's run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

import h5py
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import pnc_vol

EXAMPLES = int(os.environ.get("PNC_VOL_MODEL_EXAMPLES", "12"))
NAMES = st.sampled_from(["a", "b", "g", "g/a", "g/h", "g/h/b", "z"])
COMPOUND = [("p", "i4"), ("q", "f8"), ("s", "S3")]
VALUES = st.sampled_from([1, 2.5, "text", [1, 2], b"raw", [["a", "b"]]])
PLACES = st.sampled_from([(), ..., 0, -1, slice(1, None), slice(None, None, 2), 5])
DTYPES = st.sampled_from(["i4", "f8", "u1", ">i2", "c8", "?", "S4", "text", "compound", "(2,)f4", "rows"])
SHAPES = st.sampled_from([(), (3,), (2, 3), (0, 2), (4, 1)])


def dtype_of(module: Any, name: str) -> Any:
    special = {"text": module.string_dtype(), "compound": np.dtype(COMPOUND), "rows": module.vlen_dtype("i4")}
    return special.get(name, name)


def plain(value: Any) -> Any:
    """A value that can be compared across the two libraries."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, [plain(item) for item in value.ravel().tolist()])
    if isinstance(value, np.generic):
        return (value.dtype.str, plain(value.item()))
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return "nan" if isinstance(value, float) and value != value else value


class Files(RuleBasedStateMachine):
    """Two files that are told the same."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.modules = (h5py, pnc_vol)
        self.paths = [f"{self.folder}/{module.__name__}" for module in self.modules]
        self.files = [module.File(path, "w") for module, path in zip(self.modules, self.paths, strict=True)]

    def teardown(self) -> None:
        for file in getattr(self, "files", ()):
            file.close()
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    def both(self, call: Any) -> None:
        """Call with each module and file; what is given back or raised must agree."""
        told = []
        for module, file in zip(self.modules, self.files, strict=True):
            try:
                told.append(("gives", plain(call(module, file))))
            except Exception as error:
                told.append(("raises", error))
        theirs, ours = told
        if theirs[0] == "raises":
            assert ours[0] == "raises", f"h5py raises {theirs[1]!r}, pnc_vol gives {ours[1]!r}"
        else:
            if ours[0] == "raises":
                raise AssertionError(f"h5py gives {theirs[1]!r}") from ours[1]
            assert ours[1] == theirs[1]

    # ------------------------------------------------------------------------------------------ definitions

    @rule(name=NAMES)
    def create_group(self, name: str) -> None:
        self.both(lambda module, file: file.create_group(name).name)

    @rule(name=NAMES, dtype=DTYPES, shape=SHAPES, grows=st.booleans(), fill=st.booleans())
    def create_dataset(self, name: str, dtype: str, shape: Any, grows: bool, fill: bool) -> None:
        limits = {"maxshape": (None,) * len(shape)} if grows and shape else {}
        filled = {"fillvalue": 7} if fill and dtype in ("i4", "f8", ">i2") else {}

        def make(module: Any, file: Any) -> Any:
            made = file.create_dataset(name, shape, dtype_of(module, dtype), **limits, **filled)
            return made.shape, made.maxshape, made.dtype.str

        self.both(make)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.both(lambda module, file: file.__delitem__(name))

    @rule(source=NAMES, place=NAMES)
    def move(self, source: str, place: str) -> None:
        # HDF5 makes a group that nothing leads to of one that is moved into itself
        if not place.startswith(source + "/"):
            self.both(lambda module, file: file.move(source, place))

    @rule(source=NAMES, place=NAMES)
    def copy(self, source: str, place: str) -> None:
        if not place.startswith(source + "/"):
            self.both(lambda module, file: file.copy(source, place))

    @rule(source=NAMES, place=NAMES)
    def soft_link(self, source: str, place: str) -> None:
        self.both(lambda module, file: file.__setitem__(place, module.SoftLink("/" + source)))

    @rule(source=NAMES, place=NAMES)
    def hard_link(self, source: str, place: str) -> None:
        if not place.startswith(source):
            self.both(lambda module, file: file.__setitem__(place, file[source]))

    @rule(
        name=NAMES, attr=st.sampled_from("xyz"), value=st.sampled_from([1, 2.5, "text", [1, 2], b"raw", [["a", "b"]]])
    )
    def attribute(self, name: str, attr: str, value: Any) -> None:
        self.both(lambda module, file: file[name].attrs.__setitem__(attr, value))

    # ------------------------------------------------------------------------------------------------- data

    @rule(
        name=NAMES,
        at=st.sampled_from([(), ..., 0, -1, slice(1, None), slice(None, None, 2), 5]),
        seed=st.integers(0, 9),
    )
    def write(self, name: str, at: Any, seed: int) -> None:
        def put(module: Any, file: Any) -> None:
            found = file[name]
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
                found[at] = np.array((seed, seed / 2, b"s"), kind)
            elif kind.subdtype:
                found[at] = np.full(2, seed)
            else:
                found[at] = seed % 2 if kind.kind == "b" else seed

        self.both(put)

    @rule(name=NAMES, seed=st.integers(0, 5), axis=st.integers(0, 1))
    def resize(self, name: str, seed: int, axis: int) -> None:
        self.both(lambda module, file: file[name].resize(seed, axis=axis))

    @rule(name=NAMES, field=st.sampled_from(["p", "q", "s", "t"]))
    def read_field(self, name: str, field: str) -> None:
        def get(module: Any, file: Any) -> Any:
            found = file[name]
            return found[field] if isinstance(found, module.Dataset) and found.dtype.names else None

        self.both(get)

    @rule()
    def flush(self) -> None:
        self.both(lambda module, file: file.flush())

    @rule()
    def reopen(self) -> None:
        for file in self.files:
            file.close()
        self.files = [module.File(path, "r+") for module, path in zip(self.modules, self.paths, strict=True)]

    @invariant()
    def all_is_the_same(self) -> None:
        if hasattr(self, "files"):
            self.both(look)


def look(module: Any, file: Any) -> Any:
    """Everything that a file says."""
    told: list[Any] = []

    def visit(name: str, found: Any) -> None:
        attrs = {key: plain(value) for key, value in found.attrs.items() if key != "_FillValue"}
        told.append((name, type(found).__name__, list(attrs.items())))
        if isinstance(found, module.Dataset):
            rows = module.check_vlen_dtype(found.dtype) not in (None, str, bytes)
            values = found[()] if found.shape is not None else None
            if rows and isinstance(values, np.ndarray):
                values = [list(map(int, row)) for row in values.ravel().tolist() if isinstance(row, np.ndarray)]
            told.append((found.shape, found.maxshape, found.dtype.str, plain(values)))

    file.visititems(visit)
    links: list[str] = []
    file.visit_links(links.append)
    return told, links, list(file), [file.get(name, getlink=True, getclass=True).__name__ for name in links]


Files.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestFiles = Files.TestCase
