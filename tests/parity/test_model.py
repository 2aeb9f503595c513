"""The same random calls to h5py and to pnc_vol: values, types, shapes, orders, links and exceptions must agree.

A few hundred steps in each run; ``PNC_VOL_MODEL_EXAMPLES=2000`` makes it a night's run.

Rules
-----
1. What h5py raises, a caller of pnc_vol can catch: our exception is an instance of the same builtin class. `ALSO` has
   the pairs that differ, each with a reason.
2. What h5py refuses and pnc_vol does (`modelling.beyond_h5py`) is compared with numpy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import Any, ClassVar

import h5py
import modelling as m
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import pnc_vol

EXAMPLES = int(os.environ.get("PNC_VOL_MODEL_EXAMPLES", "50"))
STEPS = int(os.environ.get("PNC_VOL_MODEL_STEPS", "30"))

ALSO: dict[tuple[str, type, type], str] = {
    ("create_dataset", KeyError, ValueError): "a file on the way that cannot be opened is a blocked path",
    ("require_dataset", KeyError, ValueError): "the same",
    ("named type", KeyError, ValueError): "a name that is taken, or a blocked path, as for any other object",
    ("copy", RuntimeError, KeyError): "a source that is a link into a missing file is a name that is not there",
    ("ds[] =", ValueError, TypeError): "several indices into an empty dataset, which takes no values at all",
}
"""What is called, what h5py raises, what ours is as well; and why."""


class Files(RuleBasedStateMachine):
    """Two files that are told the same."""

    options: ClassVar[dict[str, Any]] = {}
    """Of a new file of pnc_vol."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.modules = (h5py, pnc_vol)
        self.files = []
        for module in self.modules:
            folder = self.folder / module.__name__
            folder.mkdir()
            with module.File(folder / "other.h5", "w") as other:
                other["x"], other["g/y"] = np.arange(4.0), "text"
                other["x"].attrs["of"] = "the other file"
            self.files.append(module.File(folder / "main.h5", "w", **(self.options if module is pnc_vol else {})))

    def teardown(self) -> None:
        for file in getattr(self, "files", ()):
            file.close()
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    def both(self, what: str, call: Any) -> None:
        """Call with each module and file; what is given back or raised must agree.

        If h5py's exception has one of `m.OTHERWISE`, pnc_vol is not called: there it is known to be otherwise.
        """
        told: list[Any] = []
        for module, file in zip(self.modules, self.files, strict=True):
            if told and told[0][0] == "raises" and any(text in str(told[0][1]) for text in m.OTHERWISE):
                return
            try:
                told.append(("gives", m.plain(module, call(module, file))))
            except Exception as error:
                # what its frames hold would keep other files open
                traceback.clear_frames(error.__traceback__)
                told.append(("raises", error))
        theirs, ours = told
        if theirs[0] == "raises":
            assert ours[0] == "raises", f"{what}: h5py raises {theirs[1]!r}, pnc_vol gives {ours[1]!r}"
            same = isinstance(ours[1], type(theirs[1]))
            if not same and not any((what, type(theirs[1]), cls) in ALSO for cls in type(ours[1]).__mro__):
                raise AssertionError(f"{what}: h5py raises {theirs[1]!r}") from ours[1]
        elif ours[0] == "raises":
            raise AssertionError(f"{what}: h5py gives {theirs[1]!r}") from ours[1]
        else:
            assert ours[1] == theirs[1], f"{what}: {m.difference(theirs[1], ours[1])}"

    # ------------------------------------------------------------------------------------------ definitions

    @rule(name=m.NAMES)
    def create_group(self, name: str) -> None:
        # not with track_order: of groups made on the way HDF5 orders the members as above, the attributes as below
        self.both("create_group", lambda module, file: len(file.create_group(name)))

    @rule(name=m.NAMES)
    def require_group(self, name: str) -> None:
        self.both("require_group", lambda module, file: list(file.require_group(name)))

    @rule(name=m.NAMES, dtype=m.DTYPES, shape=m.SHAPES, limits=st.integers(0, 3), fill=st.booleans())
    def create_dataset(self, name: str, dtype: str, shape: Any, limits: int, fill: bool) -> None:
        if dtype == "U3":
            # HDF5 makes the groups on the way before it refuses the type
            name = "a"
        more: dict[str, Any] = {"fillvalue": 7} if fill and dtype in m.FILLED else {}
        # unless it is told to, HDF5 does not fill a new dataset, which has then what lay there in the file
        more["fill_time"] = "alloc"
        if limits and shape:
            more["maxshape"] = {1: (None,) * len(shape), 2: (None, *shape[1:]), 3: tuple(n + 2 for n in shape)}[limits]

        def make(module: Any, file: Any) -> Any:
            # a name that ends with a slash is empty to h5py, here and nowhere else
            return m.described(module, file.create_dataset(name.rstrip("/"), shape, m.dtype_of(module, dtype), **more))

        self.both("create_dataset", make)

    @rule(name=m.NAMES, value=m.VALUES)
    def assign(self, name: str, value: Any) -> None:
        self.both("f[name] =", lambda module, file: file.__setitem__(name, m.made(module, value)))

    @rule(name=m.NAMES, shape=m.SHAPES, dtype=st.sampled_from(["i4", "f8", "f4"]), exact=st.booleans())
    def require_dataset(self, name: str, shape: Any, dtype: str, exact: bool) -> None:
        def make(module: Any, file: Any) -> Any:
            return m.described(
                module, file.require_dataset(name.rstrip("/"), shape, dtype, exact=exact, fill_time="alloc")
            )

        self.both("require_dataset", make)

    @rule(name=m.NAMES)
    def delete(self, name: str) -> None:
        self.both("del f[name]", lambda module, file: file.__delitem__(name))

    @rule(source=m.NAMES, place=m.NAMES)
    def move(self, source: str, place: str) -> None:
        # HDF5 makes a group that nothing leads to of one that is moved into itself
        if not self.within(place, source):
            self.both("move", lambda module, file: file.move(source, place))

    @rule(source=m.NAMES, place=m.NAMES, options=m.COPYING)
    def copy(self, source: str, place: str, options: dict[str, bool]) -> None:
        if not self.within(place, source):
            self.both("copy", lambda module, file: file.copy(source, place, **options))

    @rule(source=m.NAMES, place=m.NAMES)
    def copy_object(self, source: str, place: str) -> None:
        if not self.within("z/" + place, source):
            self.both("copy", lambda module, file: file.copy(file[source], file.require_group("z"), name=place))

    # ------------------------------------------------------------------------------------------------ links

    @rule(source=m.NAMES, place=m.NAMES, relative=st.booleans())
    def soft_link(self, source: str, place: str, relative: bool) -> None:
        path = source.strip("/") if relative else "/" + source.strip("/")
        self.both("SoftLink", lambda module, file: file.__setitem__(place, module.SoftLink(path)))

    @rule(path=st.sampled_from(["x", "/g/y", "/none"]), place=m.NAMES, name=st.sampled_from(["other.h5", "no.h5"]))
    def external_link(self, path: str, place: str, name: str) -> None:
        self.both("ExternalLink", lambda module, file: file.__setitem__(place, module.ExternalLink(name, path)))

    @rule(source=m.NAMES, place=m.NAMES)
    def hard_link(self, source: str, place: str) -> None:
        # HDF5 makes the groups on the way before it refuses an object of another file
        # a named type has one name in pnc_vol
        if not (m.inside(place, source) or self.outside(source) or isinstance(self.found(source), h5py.Datatype)):
            self.both("hard link", lambda module, file: file.__setitem__(place, file[source]))

    @rule(name=m.NAMES)
    def ask(self, name: str) -> None:
        def answers(module: Any, file: Any) -> Any:
            found = file.get(name) is not None
            link = file.get(name, getlink=True)
            # of a link that leads nowhere h5py's raises here
            kind = file.get(name, getclass=True) if found else None
            told = [name in file, found, type(link).__name__, getattr(kind, "__name__", kind)]
            return [*told, getattr(link, "path", None), getattr(link, "filename", None)]

        self.both("get", answers)

    # ------------------------------------------------------------------------------------------- attributes

    @rule(name=m.NAMES, attr=m.ATTRS, value=m.VALUES)
    def attribute(self, name: str, attr: str, value: Any) -> None:
        self.both("attrs[] =", lambda module, file: file[name].attrs.__setitem__(attr, m.made(module, value)))

    @rule(name=m.NAMES, attr=m.ATTRS, value=m.VALUES, dtype=st.sampled_from([None, "f4", "i2", "S3"]))
    def create_attribute(self, name: str, attr: str, value: Any, dtype: Any) -> None:
        def make(module: Any, file: Any) -> None:
            file[name].attrs.create(attr, m.made(module, value), dtype=dtype)

        # numpy drops the imaginary part, pnc_vol asks for .real
        if dtype is None or not m.has_complex(value):
            self.both("attrs.create", make)

    @rule(name=m.NAMES, attr=m.ATTRS, value=m.VALUES)
    def modify_attribute(self, name: str, attr: str, value: Any) -> None:
        self.both("attrs.modify", lambda module, file: file[name].attrs.modify(attr, m.made(module, value)))

    @rule(name=m.NAMES, attr=m.ATTRS)
    def delete_attribute(self, name: str, attr: str) -> None:
        self.both("del attrs[]", lambda module, file: file[name].attrs.__delitem__(attr))

    @rule(name=m.NAMES, aim=m.NAMES)
    def reference(self, name: str, aim: str) -> None:
        def refer(module: Any, file: Any) -> Any:
            file[name].attrs["ref"] = file[aim].ref
            return file[file[name].attrs["ref"]] == file[aim]

        # a reference that is copied to another file is null in HDF5, and keeps its path in pnc_vol
        if not self.outside(name) and not self.outside(aim):
            self.both("reference", refer)

    # ------------------------------------------------------------------------------------------------- data

    @rule(name=m.NAMES, data=st.data(), seed=st.integers(0, 9))
    def write(self, name: str, data: Any, seed: int) -> None:
        at = data.draw(m.selection(self.shape(name)))
        if not m.beyond_h5py(at):
            self.both("ds[] =", lambda module, file: m.put(module, file[name], at, seed))

    @rule(name=m.NAMES, data=st.data())
    def read(self, name: str, data: Any) -> None:
        at = data.draw(m.selection(self.shape(name)))
        if not m.beyond_h5py(at):
            self.both("ds[]", lambda module, file: m.got(module, file[name], at))
        elif isinstance(self.found(name), h5py.Dataset) and self.shape(name):
            try:
                ours = self.files[1][name][at]
            except (TypeError, IndexError, ValueError):
                return
            assert m.plain(pnc_vol, ours) == m.plain(h5py, m.outer(self.found(name)[...], at))

    @rule(name=m.NAMES, data=st.data(), seed=st.integers(0, 9))
    def mask(self, name: str, data: Any, seed: int) -> None:
        shape = self.shape(name)
        if not shape:
            return
        flags = data.draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        at = np.array(flags, bool).reshape(shape)
        self.both("ds[mask] =", lambda module, file: m.put(module, file[name], at, seed))
        self.both("ds[mask]", lambda module, file: m.got(module, file[name], at))

    @rule(name=m.NAMES, data=st.data())
    def region(self, name: str, data: Any) -> None:
        at = data.draw(m.selection(self.shape(name)))

        def look(module: Any, file: Any) -> Any:
            found = file[name]
            if not isinstance(found, module.Dataset) or not found.shape:
                return None
            region = found.regionref[at]
            if not found.regionref.selection(region) or 0 in found.regionref.selection(region):
                # HDF5 forgets the shape of a region without elements
                return None
            return found.regionref.shape(region), found.regionref.selection(region), m.got(module, found, region)

        if not m.beyond_h5py(at):
            self.both("regionref", look)

    @rule(name=m.NAMES, size=st.integers(0, 5), axis=st.integers(0, 2))
    def resize(self, name: str, size: int, axis: int) -> None:
        def change(module: Any, file: Any) -> None:
            if isinstance(file[name], module.Dataset):
                file[name].resize(size, axis=axis)

        self.both("resize", change)

    @rule(name=m.NAMES, field=m.FIELDS, at=st.sampled_from([(), 0, slice(1, None), 9]))
    def read_field(self, name: str, field: Any, at: Any) -> None:
        def get(module: Any, file: Any) -> Any:
            found = file[name]
            if not isinstance(found, module.Dataset) or found.dtype.names is None:
                return None
            return found[field] if at == () else found[at][field], found.fields(field)[at]

        self.both("ds[field]", get)

    @rule(name=m.NAMES, field=st.sampled_from(["p", "q"]), seed=st.integers(0, 9))
    def write_field(self, name: str, field: str, seed: int) -> None:
        def put(module: Any, file: Any) -> None:
            found = file[name]
            if isinstance(found, module.Dataset) and found.dtype.names is not None and found.shape is not None:
                found[..., field] = seed

        self.both("ds[field] =", put)

    @rule(name=m.NAMES, source=st.sampled_from([(), slice(1, 3), (0,)]), count=st.integers(0, 4))
    def read_direct(self, name: str, source: Any, count: int) -> None:
        def get(module: Any, file: Any) -> Any:
            found = file[name]
            if not isinstance(found, module.Dataset) or found.dtype.kind not in "if" or found.ndim != 1:
                # with other ranks h5py's broadcasting has rules of its own
                return None
            out = np.zeros(count, "f8")
            found.read_direct(out, source or None)
            return out

        self.both("read_direct", get)

    @rule(name=m.NAMES, label=st.sampled_from(["x", "time", ""]), axis=st.integers(0, 1))
    def label(self, name: str, label: str, axis: int) -> None:
        def put(module: Any, file: Any) -> None:
            if isinstance(file[name], module.Dataset) and axis < file[name].ndim:
                file[name].dims[axis].label = label

        self.both("label", put)

    @rule(name=m.NAMES, dtype=st.sampled_from(["f8", "i2", ">f4"]), data=st.data())
    def views(self, name: str, dtype: str, data: Any) -> None:
        at = data.draw(m.selection(self.shape(name)))

        def look(module: Any, file: Any) -> Any:
            found = file[name]
            if not isinstance(found, module.Dataset) or found.shape is None:
                return type(found).__name__
            if module.check_string_dtype(found.dtype) is not None:
                return found.asstr()[at]
            if found.dtype.kind in "iufb":
                return found.astype(dtype)[at], np.asarray(found), list(found), len(found), found.size, found.nbytes
            return found.ndim

        if not m.beyond_h5py(at):
            self.both("views", look)

    @rule(name=m.NAMES, dtype=st.sampled_from(["f8", "S3", "compound", "enum", "text"]))
    def named_type(self, name: str, dtype: str) -> None:
        self.both("named type", lambda module, file: file.__setitem__(name, np.dtype(m.dtype_of(module, dtype))))

    @rule(name=m.NAMES, scale=m.NAMES, axis=st.integers(0, 2), attach=st.booleans())
    def scale(self, name: str, scale: str, axis: int, attach: bool) -> None:
        def use(module: Any, file: Any) -> Any:
            found, of = file[name], file[scale]
            if not isinstance(found, module.Dataset) or not isinstance(of, module.Dataset) or not of.shape:
                return None
            if found == of or axis >= found.ndim or len(of.shape) != 1 or len(found.dims[0]) or len(of.dims[0]):
                return None
            if not of.is_scale:
                of.make_scale(f"scale {axis}")
            if attach and not found.is_scale:
                found.dims[axis].attach_scale(of)
            return of.is_scale, found.is_scale, len(found.dims[axis]), found.dims[axis].keys()

        if not self.outside(name) and not self.outside(scale):
            self.both("scales", use)

    # -------------------------------------------------------------------------------------------- the file

    @rule()
    def flush(self) -> None:
        self.both("flush", lambda module, file: file.flush())

    @rule(mode=st.sampled_from(["r+", "a"]))
    def reopen(self, mode: str) -> None:
        names = [file.filename for file in self.files]
        for file in self.files:
            file.close()
        self.files = [module.File(name, "r") for module, name in zip(self.modules, names, strict=True)]
        self.both("everything", m.everything)
        self.both("not for reading", lambda module, file: file.create_group("new"))
        self.both("not for reading", lambda module, file: file.__delitem__("a"))
        self.both("not for reading", lambda module, file: file.attrs.__setitem__("x", 1))
        for file in self.files:
            file.close()
        self.files = [module.File(name, mode) for module, name in zip(self.modules, names, strict=True)]

    @invariant()
    def all_is_the_same(self) -> None:
        if hasattr(self, "files"):
            self.both("everything", m.everything)

    def within(self, place: str, source: str) -> bool:
        """Whether a path leads to, or through, what another one leads to."""
        if m.inside(place, source):
            return True
        found, steps = self.found(source), place.split("/")
        return found is not None and any(self.found("/".join(steps[:n])) == found for n in range(1, len(steps) + 1))

    def outside(self, name: str) -> bool:
        """Whether a name leads to another file."""
        found = self.found(name)
        return found is not None and found.file != self.files[0]

    def shape(self, name: str) -> Any:
        """Of h5py's dataset, or None."""
        return getattr(self.found(name), "shape", None)

    def found(self, name: str) -> Any:
        """What h5py has of that name, or None."""
        try:
            return self.files[0][name]
        except (KeyError, ValueError, RuntimeError, OSError):
            return None


Files.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
)
TestFiles = Files.TestCase


class FilesInSubfiles(Files):
    """The same with a set of subfiles."""

    options: ClassVar[dict[str, Any]] = {"layout": "blob"}


FilesInSubfiles.TestCase.settings = Files.TestCase.settings
TestFilesInSubfiles = FilesInSubfiles.TestCase
