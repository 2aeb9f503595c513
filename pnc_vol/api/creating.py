"""`Creating` makes groups and datasets by name: it is the creating half of h5py's `Group`.

Knows: paths, what creating needs (`dataset_plan.plan`). Does not know: listing, moving, copying.

Rules
-----
1. All is checked before anything is made.
2. A dataset whose data cannot be posted is taken out again.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from pnc_vol.api import dataset_plan, paths
from pnc_vol.api.dataset import Dataset, dataset_of
from pnc_vol.api.filters import CopiedChunks, given_options, warn_of_storage
from pnc_vol.api.ids import GroupID
from pnc_vol.api.mappings import MutableMappingHDF5
from pnc_vol.api.module import get_config
from pnc_vol.api.objects import Datatype, HLObject, wrap
from pnc_vol.api.posting import source
from pnc_vol.errors import NotYetError
from pnc_vol.late import late
from pnc_vol.mapping.dimensions import name_axes
from pnc_vol.mapping.tree import DatasetNode, GroupNode

if TYPE_CHECKING:
    from pnc_vol.api import virtual
    from pnc_vol.api.group import Group
    from pnc_vol.file.open_file import OpenFile
else:
    # few programs have data in other files
    virtual = late("pnc_vol.api.virtual")

__all__ = ["Creating", "also_outside"]

F = TypeVar("F", bound=Callable[..., Any])

_CONFIG = get_config()
_PLAIN = frozenset(("maxshape", "dims"))
"""Options of ``create_dataset`` that most datasets have, if any."""
_USER_DEFINED = 2
"""HDF5's number for a fill value that was given."""


def also_outside(method: F) -> F:
    """Let a method that makes or deletes something by its path do so in another file, if an external link leads
    there."""

    @functools.wraps(method)
    def making(group: Any, name: Any, *args: Any, **keywords: Any) -> Any:
        try:
            return method(group, name, *args, **keywords)
        except paths.LeadsOutside as link:
            # without its traceback, whose frames would keep the other file open
            problem = link.with_traceback(None)
        from pnc_vol.api.linking import group_outside

        there = group_outside(group.id, problem)
        return getattr(there, method.__name__)(problem.rest, *args, **keywords)

    return making  # type: ignore[return-value]


class Creating(HLObject, MutableMappingHDF5):
    """The part of `Group` that creates groups and datasets."""

    _id: GroupID

    @property
    def _node(self) -> GroupNode:
        return self._id.node  # type: ignore[no-any-return]

    @also_outside
    def create_group(
        self, name: str | bytes | None, track_order: bool | None = None, *, track_times: bool | None = False
    ) -> Group:
        """Make a group, and the groups on the way to it.

        Parameters
        ----------
        name : str or None
            Path, relative to this group or absolute. A group without a name is deleted with its last reference.
        track_order : bool, optional
            List members and attributes in the order of their creation, not by name.
        track_times : bool, optional
            Accepted; times are not stored.

        Raises
        ------
        ValueError
            The name is taken, empty, or below a dataset; or the file is open for reading.

        Examples
        --------
        >>> with pnc_vol.File("groups.nc", "w") as f:
        ...     f.create_group("ocean/surface").name
        '/ocean/surface'
        """
        if track_times not in (True, False, None):
            raise TypeError("track_times must be either True, False, or None")
        session = self._id.check()
        tracked = get_config().track_order if track_order is None else track_order
        with session.lock:
            session.check_open()
            if name is None:
                self._id.handle.check_writable("create group")
                loose = GroupNode(session.defs.tree, "", None, order={} if tracked else None)
                return wrap(self._id.handle, loose)  # type: ignore[no-any-return]
            slot = paths.slot(self._node, name, "create group")
            slot.check_free("create group")
            self._id.handle.check_writable("create group")
            tree = session.defs.tree
            with tree.adding(slot.group):
                made = tree.add_group(slot.open(), slot.leaf)
                if tracked:
                    # Not those that are made on the way: of these, h5py orders members and attributes by two rules.
                    made.order = {}
            return self._named(wrap(self._id.handle, made), name)  # type: ignore[no-any-return]

    def require_group(self, name: str | bytes) -> Group:
        """Return the group of that name; made if it is missing.

        Parameters
        ----------
        name : str

        Raises
        ------
        TypeError
            A dataset or a named type has the name.

        Examples
        --------
        >>> with pnc_vol.File("required.nc", "w") as f:
        ...     f.require_group("ocean") == f.require_group("ocean")
        True
        """
        session = self._id.check()
        with session.lock:
            session.check_open()
            if name not in self:
                return self.create_group(name)
            found = self._got(name)
            if isinstance(found, (Dataset, Datatype)):
                raise TypeError(f"Incompatible object ({type(found).__name__}) already exists")
            return found  # type: ignore[no-any-return]

    def _got(self, name: Any) -> Any:
        return self[name]

    def create_dataset(
        self,
        name: str | bytes | None,
        shape: Any = None,
        dtype: npt.DTypeLike | None = None,
        data: Any = None,
        **kwds: Any,
    ) -> Dataset:
        """Make a dataset, and the groups on the way to it.

        Parameters
        ----------
        name : str or None
            Path, relative to this group or absolute. Without a name the dataset is gone when the file is closed,
            unless it is given one (``f[name] = ds``).
        shape : int or tuple of int, optional
            By default the data's; without data and shape the dataset is empty.
        dtype : dtype-like, optional
            By default the data's; without data ``"f4"``.
        data : array-like or Empty, optional
            Written at once (posted).
        maxshape : tuple of int or None, optional
            ``None`` on the first axis makes it unlimited (the record dimension).
        fillvalue : scalar, optional
            What unwritten elements read as; 0 by default.
        track_order : bool, optional
            List attributes in the order of their creation, not by name; by default ``get_config().track_order``.
        decomposition : Decomposition, optional
            The elements that this process owns, of a record if the dataset has records: with ``layout="blob"`` they lie
            in one piece, in the order of the file. Other layouts have no use for it.
        dims : sequence of str, optional
            Names of the NetCDF dimensions, one for each axis, and one more if the length of fixed strings is to have a
            name, too. A dataset of one axis that has the name of its dimension is a coordinate variable: a scale that
            is attached to all axes of this name. See `File.create_dimension`.
        external : str, path-like, or iterable of (name, offset, size), optional
            Raw files that hold the data instead of this file, one part after another; ``h5f.UNLIMITED`` is the size of
            a file that may grow. Writes go to them at once.
        efile_prefix : str, optional
            Where these files are looked for first; ``${ORIGIN}`` is the folder of this file.
        chunks, compression, compression_opts, shuffle, fletcher32, scaleoffset, track_times, ... : optional
            Checked as h5py does, remembered while the file is open, not stored.

        Raises
        ------
        TypeError
            Neither shape, data nor dtype; a type without an equivalent; an unknown keyword.
        ValueError
            The name is taken, shapes do not fit, a dimension has another length, the decomposition has elements outside
            or twice, or the file is open for reading.
        NotYetError
            A type or storage that this version does not have.

        Examples
        --------
        >>> with pnc_vol.File("create.nc", "w") as f:
        ...     t = f.create_dataset("ocean/t", (0, 4), "f4", maxshape=(None, 4), fillvalue=-1)
        ...     x = f.create_dataset("x", data=[0.5, 1.5])
        ...     t.resize(2, axis=0)
        ...     t[0] = 7
        ...     t[:, 0].tolist(), x.dtype.name
        ([7.0, -1.0], 'float64')
        """
        oid = self._id
        session = oid.check()
        if _CONFIG.track_order or not kwds.keys() <= _PLAIN:
            kwds = given_options(kwds, tracked=_CONFIG.track_order)
        with session.lock:
            if session.closed:
                raise session.closed_error()
            if not kwds or kwds.keys() <= _PLAIN:
                node = self._made_plainly(session, name, shape, dtype, data, **kwds)
                if node is not None:
                    made = dataset_of(oid.handle, node)
                    # asked here, because a call would be a tenth of all that this takes
                    return self._named(made, name) if oid.reached or session.defs.tree.links else made
        return self._create_dataset(name, shape, dtype, data, kwds)

    @also_outside
    def _create_dataset(self, name: Any, shape: Any, dtype: Any, data: Any, kwds: dict[str, Any]) -> Dataset:
        """Make any dataset: in another file, with any options."""
        session = self._id.check()
        with session.lock:
            session.check_open()
            if "external" in kwds:
                return self._external(name, shape, dtype, data, **kwds)
            if kwds and not kwds.keys().isdisjoint(dataset_plan.OURS):
                return self._with_ours(name, shape, dtype, data, **kwds)
            return self._named(self._made(session, name, shape, dtype, data, kwds), name)  # type: ignore[no-any-return]

    def _with_ours(self, name: Any, shape: Any, dtype: Any, data: Any, **kwds: Any) -> Dataset:
        """Make a dataset with what h5py's `create_dataset` does not know (`dataset_plan.OURS`)."""
        decomposition, dims = kwds.pop("decomposition", None), kwds.pop("dims", None)
        if decomposition is not None and not hasattr(decomposition, "owned"):
            raise TypeError(f"decomposition={decomposition!r}: a pnc_vol.Decomposition is needed")
        made = self.create_dataset(name, shape, dtype, data, **kwds)
        session, node = self._id.check(), made._node
        try:
            if dims is not None:
                name_axes(node, dims)
            if decomposition is not None:
                session.defs.decompose(node, decomposition)
        except Exception:
            session.defs.tree.remove(node)
            raise
        return made

    def _made_plainly(
        self, session: OpenFile, name: Any, shape: Any, dtype: Any, data: Any, maxshape: Any = None, dims: Any = None
    ) -> DatasetNode | None:
        """Return what most datasets are, in few steps: numbers, with a new name in this group; None for all others."""
        group = self._id.node
        if (
            type(name) is not str
            or not name.isidentifier()
            or not name.isascii()
            or name in group.children
            or name in group.links
            or not self._id.handle.writable
            or session.defs.version != 5
            or _CONFIG.track_order
            or (group.parent is None and group is not session.defs.tree.root)
        ):
            return None
        found, data = dataset_plan.plain(shape, dtype, data, maxshape)
        if found is None:
            return None
        element, full, limits, _, ignored, _ = found
        first = session.defs.tree.next_uid
        try:
            node = session.defs.tree.add_plain(group, name, element, full or (), limits)
            if ignored:
                node.ignored = ignored
            if dims is not None:
                name_axes(node, dims)
            if data is not None and data.size and not session.write_short(node, (), data):
                session.write(node, source(full or (), ()), data)
        except BaseException:
            session.defs.tree.take_back(first, group, (name,))
            raise
        return node

    def require_dataset(
        self, name: str | bytes, shape: Any, dtype: npt.DTypeLike, exact: bool = False, **kwds: Any
    ) -> Dataset:
        """Return the dataset of that name; made if it is missing.

        Parameters
        ----------
        name, shape, dtype, kwds
            As in `create_dataset`.
        exact : bool
            The types must be the same; by default it is enough that `dtype` can be cast safely.

        Raises
        ------
        TypeError
            A group has the name, or shape, maxshape or type do not agree.

        Examples
        --------
        >>> with pnc_vol.File("require.nc", "w") as f:
        ...     f.require_dataset("x", (3,), "f8") == f.require_dataset("x", (3,), "f4")
        True
        """
        session = self._id.check()
        with session.lock:
            session.check_open()
            if name not in self:
                return self.create_dataset(name, shape, dtype, **kwds)
            found = self._got(name)
            if not isinstance(found, Dataset):
                raise TypeError(f"Incompatible object ({type(found).__name__}) already exists")
            if not kwds.keys().isdisjoint(("efile_prefix", "virtual_prefix")) and found._node.away is not None:
                virtual.look_first_in(found, kwds)
            wanted = (shape,) if isinstance(shape, int) else shape
            if wanted != found.shape:
                if "maxshape" not in kwds:
                    raise TypeError(f"Shapes do not match (existing {found.shape} vs new {wanted})")
                if kwds["maxshape"] != found.maxshape:
                    raise TypeError(f"Max shapes do not match (existing {found.maxshape} vs new {kwds['maxshape']})")
            if exact:
                if dtype != found.dtype:
                    raise TypeError(f"Datatypes do not exactly match (existing {found.dtype} vs new {dtype})")
            elif not np.can_cast(dtype, found.dtype):
                raise TypeError(f"Datatypes cannot be safely cast (existing {found.dtype} vs new {dtype})")
            return found

    def create_dataset_like(self, name: str | bytes, other: Any, **kwupdate: Any) -> Dataset:
        """Make a dataset of the shape, type and storage of another one, without its data and attributes.

        Parameters
        ----------
        name : str
        other : Dataset
            Also one of h5py.
        kwupdate
            Keywords of `create_dataset` that differ.

        Raises
        ------
        TypeError, ValueError
            As `create_dataset`.
        """
        shown = ("shape", "dtype", "chunks", "compression", "compression_opts", "scaleoffset", "shuffle", "fletcher32")
        copied = {key: getattr(other, key) for key in shown} | _properties(other)
        if other.chunks is not None:
            copied["chunks"] = CopiedChunks(other.chunks)
        kwupdate = copied | kwupdate
        if other.maxshape != other.shape:
            kwupdate.setdefault("maxshape", other.maxshape)
        return self.create_dataset(name, **kwupdate)

    def _external(self, name: Any, shape: Any, dtype: Any, data: Any, *, external: Any, **kwds: Any) -> Dataset:
        """Make a dataset whose data lie in raw files."""
        if not isinstance(external, (str, bytes, os.PathLike)):
            external = list(external)
        if external == []:
            return self.create_dataset(name, shape, dtype, data, **kwds)
        if not kwds.keys().isdisjoint(dataset_plan.OURS):
            raise NotYetError(f"{', '.join(dataset_plan.OURS)} have no meaning for data in raw files; leave them out")
        plan = dataset_plan.plan(shape, dtype, data, kwds)
        return virtual.make_external(self, name, plan, external, kwds)  # type: ignore[arg-type]

    def create_virtual_dataset(self, name: Any, layout: Any, fillvalue: Any = None) -> Dataset:
        """Make a dataset that shows elements of other datasets.

        Parameters
        ----------
        name : str or None
        layout : VirtualLayout
            Which elements of which datasets, in this file or others, are shown where. A source is not looked at before
            it is read: it may come into being later. Reads and writes of the dataset go to the sources.
        fillvalue : scalar, optional
            What elements read as that no source has; 0 by default.

        Raises
        ------
        ValueError
            The name is taken, or the file is open for reading.
        NotYetError
            The file is a set of subfiles (``layout="blob"``).

        Examples
        --------
        >>> with pnc_vol.File("virtual.nc", "w") as f:
        ...     f["a"], f["b"] = [1, 2, 3], [4, 5, 6]
        ...     layout = pnc_vol.VirtualLayout((2, 3), "i8")
        ...     layout[0], layout[1] = pnc_vol.VirtualSource(f["a"]), pnc_vol.VirtualSource(f["b"])
        ...     f.create_virtual_dataset("both", layout)[:, 1].tolist()
        [2, 5]
        """
        return virtual.make_virtual(self, name, layout, fillvalue)  # type: ignore[arg-type]

    def build_virtual_dataset(
        self, name: Any, shape: Any, dtype: Any, maxshape: Any = None, fillvalue: Any = None
    ) -> AbstractContextManager[virtual.VirtualLayout]:
        """Do as `create_virtual_dataset` does, with a layout that is filled in a ``with`` block.

        Parameters
        ----------
        name : str
        shape, dtype, maxshape
            As of `VirtualLayout`.
        fillvalue : scalar, optional

        Raises
        ------
        ValueError, NotYetError
            As `create_virtual_dataset`, at the end of the block.

        Examples
        --------
        >>> with pnc_vol.File("built.nc", "w") as f:
        ...     f["a"] = [1, 2, 3]
        ...     with f.build_virtual_dataset("twice", (6,), "i8") as layout:
        ...         layout[:3] = layout[3:] = pnc_vol.VirtualSource(f["a"])
        ...     f["twice"][2:4].tolist()
        [3, 1]
        """
        return virtual.building(self, name, shape, dtype, maxshape, fillvalue)  # type: ignore[arg-type]

    def _made(
        self,
        session: OpenFile,
        name: Any,
        shape: Any,
        dtype: Any,
        data: Any,
        kwds: dict[str, Any],
        *,
        as_link: bool = False,
    ) -> Dataset:
        """Return a new dataset; `as_link` if it is assigned to its name."""
        what = "create link" if as_link else "create dataset"
        slot = None if name is None else paths.slot(self._node, name, what)
        plan = dataset_plan.plan(shape, dtype, data, kwds, session.options.on_overflow)
        if plan.ignored and session.comm.rank == 0:
            # of the ranks of a file the first one warns
            warn_of_storage(plan.ignored, kwds)
        asked = "without a name" if slot is None else slot.asked
        dataset_plan.check_version(asked, plan.element, plan.shape, session.defs.version)
        if slot is not None:
            if not as_link:
                slot.check_ends_in_name(what)
            slot.check_free(what, as_link=as_link)
        self._id.handle.check_writable("create dataset")
        tree = session.defs.tree
        # As if it had never been asked for if it fails, the groups made on the way included.
        with tree.adding(None if slot is None else slot.group):
            node = tree.add_dataset(
                None if slot is None else slot.open(),
                "" if slot is None else slot.leaf,
                element=plan.element,
                shape=plan.shape,
                maxshape=plan.maxshape,
                fillvalue=plan.fillvalue if plan.element.kind != "composite" else None,
            )
            if node.parts and plan.fillvalue is not None:
                dataset_plan.fill_parts(node, plan.fillvalue)
            if plan.ignored:
                node.ignored = dict(plan.ignored)
            session.defs.check_room(node, session.disk)
            if plan.data is not None and plan.data.size and not session.write_short(node, (), plan.data):
                session.write(node, source(plan.shape or (), ()), plan.data)
        return dataset_of(self._id.handle, node)


def _properties(other: Any) -> dict[str, Any]:
    """Return what was chosen for a dataset, ours or h5py's, that its attributes do not show.

    A default fill value is left out: it would become `_FillValue`, with which other programs mask zeros.
    """
    node = getattr(other.id, "node", None)
    if node is not None:
        given = node.fillvalue is not None or any(part.fillvalue is not None for part in node.parts.values())
        tracked, times = "track_order" in node.ignored, "track_times" in node.ignored
    else:
        chosen = other.id.get_create_plist()
        given = chosen.fill_value_defined() == _USER_DEFINED
        tracked, times = chosen.get_attr_creation_order() > 0, chosen.get_obj_track_times()
    found = {"track_order": tracked, "track_times": bool(times)}
    return {**found, "fillvalue": other.fillvalue} if given else found
