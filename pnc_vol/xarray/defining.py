"""One call of `to_netcdf` on an open file encodes values, defines variables and writes.

Knows: encoded variables, regions, which rank writes what. Does not know: how a variable becomes a dataset
(`variables`), how values are encoded (`variables`, `stored`), how blocks are written by offsets.

Rules
-----
1. All that can be refused is refused before anything is changed: first every part is planned, which encodes what is in
   memory, then variables are defined, then values are written.
2. A variable that the file has keeps its encoding there, and values are encoded by it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray
from xarray import conventions
from xarray.backends.file_manager import DummyFileManager

from pnc_vol.api.file import File
from pnc_vol.errors import DefinitionError
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.system import REAL
from pnc_vol.warn import warn_outside
from pnc_vol.xarray.jobs import (
    PendingTarget,
    PlacedFile,
    Progress,
    StoreJob,
    Target,
    by_offset,
    check_ordinary,
    commit,
    is_dask,
    shares,
    store,
)
from pnc_vol.xarray.stored import CODED, StoredEncoding
from pnc_vol.xarray.stores import GroupStore, datasets_of
from pnc_vol.xarray.variables import (
    Definer,
    Encoder,
    attribute,
    check_encoding,
    check_names,
    encoding_of,
    is_chars,
)

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["GroupPart", "Region", "Writing", "sliced"]

NAMELESS = "__values__"
"""What xarray calls the variable of an array without a name."""


class GroupPart(NamedTuple):
    """One dataset, and the group that it goes to."""

    dataset: xarray.Dataset
    group: str
    encoding: Mapping[Any, Any]
    unlimited: Any


class GroupPlan(NamedTuple):
    """A part, encoded: what is to be defined and written, and where.

    group : str
    attrs : dict, of the group
    variables : dict, encoded variables by name.
    there : GroupStore or None, the group as the file has it.
    region : dict, slices by dimension.
    starts, sizes : dict, by dimension where the part begins, and how long it will be in the file.
    unlimited : set of str
    """

    group: str
    attrs: dict[str, Any]
    variables: dict[str, xarray.Variable]
    there: GroupStore | None
    region: dict[str, slice]
    starts: dict[str, int]
    sizes: dict[str, int]
    unlimited: set[str]

    def has(self, name: str) -> bool:
        """Return whether the file has a variable."""
        return self.there is not None and name in self.there.get_variables()


class Writing:
    """One call of `to_netcdf` on a file that is open."""

    def __init__(
        self,
        file: File,
        parts: list[GroupPart],
        *,
        fresh: bool = True,
        placed: PlacedFile | None = None,
        append_dim: str | None = None,
        region: Region | None = None,
        fill_missing: bool = False,
        comm: Any = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> None:
        self.file, self.parts, self.fresh, self.placed = file, parts, fresh, placed
        self.append_dim, self.region, self.comm = append_dim, region, comm
        self.fill_missing = fill_missing
        self.into = append_dim is not None or (region is not None and not fresh)
        self.progress = Progress(None if placed else progress)
        self.now: list[StoreJob] = []
        self.lazy: list[StoreJob] = []
        self.records: dict[str, int] = {}

    def write(self) -> None:
        """Define all variables, and write what can be written now; the file is flushed when it is closed."""
        if self.placed is not None:
            check_ordinary(self.file)
        plans: list[GroupPlan] = []
        with self.file.id.check().comm.errors_shared():
            plans += map(self._plan, self.parts)
        for plan in plans:
            self._define(plan)
        first = self.comm is None or self.comm.rank == 0
        if self.placed is not None:
            # places are known, and what follows needs no open file
            self.file.flush()
            file = self.placed = replace(self.placed, inode=REAL.stat(self.placed.work).st_ino)
            self.now, self.lazy = ([by_offset(job, file) for job in jobs] for jobs in (self.now, self.lazy))
        elif self.comm is not None:
            # what all ranks have alike is written once
            self.now = [job for job in self.now if first or job.apart]
            self.lazy = [one for job in self.lazy for one in ([job] if job.apart else shares(job, self.comm))]
        self.progress.total = sum(job.source.nbytes for job in (*self.now, *self.lazy))
        for job in self.now:
            job.target[job.region] = job.source
        if self.lazy and self.placed is None:
            store(self.lazy, compute=True)

    def rest(self, *, compute: bool) -> Delayed | None:
        """Store what was left to other processes, then count the records; or the object of dask that does so."""
        import dask  # an extra: datasets without dask's arrays are written without it

        assert self.placed is not None
        stored = store(self.lazy, compute=False) if self.lazy else None
        done: Delayed = dask.delayed(commit)(self.placed, self.records, stored)
        if not compute:
            return done
        try:
            done.compute()
        except BaseException:
            self.placed.discard()
            raise
        return None

    # ----------------------------------------------------------------------------------------------- planning

    def _plan(self, part: GroupPart) -> GroupPlan:
        there = None
        if not self.fresh and part.group in self.file:
            there = GroupStore(DummyFileManager(self.file), "", part.group)
        stored = {} if there is None else there.get_variables()
        dataset, region = sliced(part.dataset, self.region, stored, fresh=self.fresh)
        starts, sizes = self._extent(dataset, region, there)
        found, attrs = conventions.encode_dataset_coordinates(dataset)
        variables = dict(found)
        for name, given in part.encoding.items():
            if name not in part.dataset.variables:
                raise KeyError(f"encoding= names {name!r}, which is no variable of the dataset")
            if name in variables:
                variables[name] = variables[name].copy(deep=False)
                variables[name].encoding = given
            check_encoding(str(name), given)
        named = {NAMELESS if name is None else str(name): var.copy(deep=False) for name, var in variables.items()}
        new = {name: var for name, var in named.items() if name not in stored}
        if new and region and not self.fresh:
            raise ValueError(
                f"region= writes into variables of the file, which has no {next(iter(new))!r}; drop it from the dataset"
            )
        unlimited = _unlimited(part)
        if self.append_dim is not None and not starts[self.append_dim]:
            unlimited |= {self.append_dim}
        known = set()
        if there is not None:
            self._check_fit(new, set(named), there, sizes)
            known = {str(dim) for dim in there.get_encoding()["unlimited_dims"]}
        if new:
            _check_unlimited(unlimited, known)
        unlimited |= known & set(sizes)
        encoded = {}
        for name, variable in named.items():
            if there is not None and name in stored:
                moves = {*region, self.append_dim}
                encoded[name] = self._as_stored(there, name, variable, part.encoding.get(name, {}), moves)
        made, attrs = self._encoded(new, attrs, apart=bool(region))
        encoded.update(made)
        ordered = {name: encoded[name] for name in named}
        return GroupPlan(part.group, attrs, ordered, there, region, starts, sizes, unlimited)

    def _encoded(
        self, new: dict[str, xarray.Variable], attrs: dict[str, Any], *, apart: bool
    ) -> tuple[dict[Any, xarray.Variable], dict[str, Any]]:
        """Return variables that the file does not have, encoded as xarray chooses, on all ranks alike."""
        ranks = self.comm if apart else None
        if ranks is not None:
            chosen = None
            if ranks.rank == 0:
                found, _ = conventions.cf_encoder(new, {})
                chosen = {name: encoding_of(var, new[name]) for name, var in found.items()}
            for name, one in ranks.bcast(chosen).items():
                new[name].encoding = one
        encoded, attrs = Encoder(self.file.id.check().defs.version, ranks).encode(new, attrs)
        for name, variable in encoded.items():
            check_names(name, variable.dims)
        return encoded, attrs

    def _as_stored(
        self, there: GroupStore, name: str, variable: xarray.Variable, given: Mapping[str, Any], moves: set[str | None]
    ) -> xarray.Variable:
        """Return a variable of the dataset as the one of the file is encoded, with the axes in its order.

        moves : set of str, dimensions along which it is a part of the one in the file.
        """
        stored, node = there.get_variables()[name], self._node(there.path, name)
        if node.owner is not None:
            raise DefinitionError(
                f"variable {name!r} of the file is a part of a compound; write that with pnc_vol.File"
            )
        element = node.element
        plain = variable.dtype == np.dtype("S1") and variable.dims == stored.dims
        axes = stored.dims if plain or not element.is_string else stored.dims[:-1]
        if set(variable.dims) != set(axes) or len(variable.dims) != len(axes):
            raise ValueError(
                f"variable {name!r} has the dimensions {variable.dims}, and in the file {axes}; rename them, or write "
                "it under another name"
            )
        variable = variable.transpose(*axes)
        limits = node.maxshape or node.shape or ()
        for axis, dim in enumerate(axes):
            if dim not in moves and stored.sizes[dim] != variable.sizes[dim]:
                raise ValueError(
                    f"variable {name!r} has length {stored.sizes[dim]} along axis {axis} in the file, not "
                    f"{variable.sizes[dim]}"
                )
            if dim == self.append_dim and limits[axis] is not None:
                raise ValueError(
                    f"append_dim={dim!r}: variable {name!r} of the file cannot grow along it; it is not unlimited"
                )
        encoding = StoredEncoding(name, stored.attrs, element, stored.dtype, variable.attrs)
        encoding.check_given(given)
        attrs = {key: value for key, value in variable.attrs.items() if key not in CODED}
        data: Any = variable._data if is_dask(variable._data) else np.asarray(variable.data)
        if plain:
            return xarray.Variable(axes, data, attrs)
        if is_dask(data):
            data = data.map_blocks(encoding, dtype=encoding.dtype, meta=np.empty((0,) * data.ndim, encoding.dtype))
        else:
            data = encoding(data)
        return xarray.Variable(axes, data, attrs)

    def _node(self, group: str, name: str) -> DatasetNode:
        """Return what the file has for a variable of a group."""
        return next(one.node for one in datasets_of(self.file[group].id.node) if one.name == name)

    def _extent(
        self, dataset: xarray.Dataset, region: Mapping[str, slice], there: GroupStore | None
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return, for each dimension, where this part begins, and how long it will be in the file."""
        sizes = {str(dim): size for dim, size in dataset.sizes.items()}
        starts = dict.fromkeys(sizes, 0)
        lengths = {} if there is None else there.get_dimensions()
        for dim, chosen in region.items():
            starts[dim], sizes[dim] = chosen.start, chosen.stop
            if dim in lengths and chosen.stop > lengths[dim]:
                raise ValueError(
                    f"region[{dim!r}]={chosen}: the file has length {lengths[dim]} along it, which a region does not "
                    "change; use append_dim= to write behind that"
                )
        behind = self.append_dim
        if behind is not None:
            if behind not in sizes:
                raise ValueError(f"append_dim={behind!r} is no dimension of the dataset: {tuple(sizes)}")
            if behind in region:
                raise ValueError(f"append_dim={behind!r} is also in region=; give one of them")
            starts[behind] = lengths.get(behind, 0)
            sizes[behind] += starts[behind]
        if self.comm is not None:
            for dim in region:
                sizes[dim] = max(self.comm.allgather(sizes[dim]))
        return starts, sizes

    def _check_fit(
        self,
        new: Mapping[str, xarray.Variable],
        names: set[str],
        there: GroupStore,
        sizes: Mapping[str, int],
    ) -> None:
        """Check that new variables fit the dimensions of the file, and that no record would be filled without being
        asked for.

        Raises
        ------
        ValueError
        """
        lengths, behind = there.get_dimensions(), self.append_dim
        grows = there.get_encoding()["unlimited_dims"] if there.path == "/" else set()
        for name, variable in new.items():
            for axis, dim in enumerate(map(str, variable.dims)):
                if dim in lengths and dim != behind and lengths[dim] != sizes[dim]:
                    raise ValueError(
                        f"Unable to update size for existing dimension {dim!r} ({sizes[dim]} != {lengths[dim]}); write "
                        "to another file or group, or use append_dim= or region="
                    )
                if axis and dim in grows:
                    raise ValueError(
                        f"variable {name!r}: {dim!r} is unlimited in the file, so it has to be the first dimension; "
                        f"use transpose({dim!r}, ...)"
                    )
        if self.fill_missing or behind is None:
            return
        left = [
            name for name, variable in there.get_variables().items() if behind in variable.dims and name not in names
        ]
        begun = [name for name, variable in new.items() if behind in variable.dims and lengths.get(behind)]
        for which, what in (
            (left, "are in the file, but not in the dataset, so that their new elements"),
            (begun, "are not in the file, so that their elements in its existing records"),
        ):
            if which:
                raise ValueError(
                    f"variables with the dimension {behind!r} {what} would be fill values: {which}. Give all variables "
                    "in one call; or pass fill_missing=True, and write these elements later by region="
                )

    # ------------------------------------------------------------------------------------------ definitions

    def _define(self, plan: GroupPlan) -> None:
        group = self.file if plan.group == "/" else self.file.require_group(plan.group)
        new = {name: var for name, var in plan.variables.items() if not plan.has(name)}
        definer = Definer(self.file, group, plan.unlimited, plan.sizes)
        if not self.into or len(new) == len(plan.variables):
            for key, value in plan.attrs.items():
                group.attrs[key] = attribute(value)
        if new:
            definer.declare(new)
        for name, variable in plan.variables.items():
            self._define_variable(definer, plan, name, variable)
        definer.attach()

    def _define_variable(self, definer: Definer, plan: GroupPlan, name: str, variable: xarray.Variable) -> None:
        later, dims = self.placed is not None, tuple(map(str, variable.dims))
        full = tuple(plan.sizes.get(dim, n) for dim, n in zip(dims, variable.shape, strict=True))
        apart = any(dim in plan.region for dim in dims)
        chars = is_chars(variable)
        if plan.has(name):
            assert plan.there is not None
            shown = plan.there.get_variables()[name].shape
            # texts of one byte look like characters, but have no axis for them
            chars = chars and len(shown) == variable.ndim and self._node(plan.group, name).element.is_string
            full = tuple(map(max, shown, full))
            made = definer.found(name, full[: len(full) - chars], resize=not later)
            if not self.into:
                for key, value in variable.attrs.items():
                    made.attrs[key] = attribute(value)
        else:
            counted = (0, *full[1:]) if later and dims[:1] and dims[0] in definer.unlimited else full
            made = definer.define(name, variable, counted)
            if not apart:
                # every element is written: nothing is to be filled before
                self.file.id.check().posted.written_whole.add(made.id.node.uid)
        if made.id.node.is_record:
            self.records[made.id.node.path] = full[0]
        region = tuple(
            slice(begin, begin + n)
            for begin, n in zip((plan.starts.get(dim, 0) for dim in dims), variable.shape, strict=True)
        )
        target = PendingTarget(made, full, chars) if later else Target(made, self.progress, chars=chars)
        source = variable.data
        if is_dask(source):
            if chars:
                source = source.rechunk({source.ndim - 1: -1})
            self.lazy.append(StoreJob(source, target, region, apart))
        else:
            self.now.append(StoreJob(np.asarray(source), target, region, apart))


def _check_unlimited(asked: set[str], known: set[str]) -> None:
    """Refuse a second dimension that can grow: the file would have the dimension under the name of the first one.

    Raises
    ------
    ValueError
    """
    more, both = sorted(asked - known), sorted(asked | known)
    if more and len(both) > 1:
        several = (
            f"the file has the unlimited dimension {min(known)!r}, so {', '.join(map(repr, more))} cannot be unlimited"
            if known
            else f"{', '.join(map(repr, both))} cannot all be unlimited"
        )
        raise ValueError(
            f"{several}: a NetCDF classic file has at most one unlimited dimension. Choose it, e.g. unlimited_dims="
            f"{min(known or both)!r}; the other dimensions are then stored with the lengths that they have now"
        )


def _unlimited(part: GroupPart) -> set[str]:
    """Return the dimensions of a dataset that can grow.

    Raises
    ------
    ValueError
        `unlimited_dims` names one that the dataset does not have.
    """
    given = part.unlimited if part.unlimited is not None else part.dataset.encoding.get("unlimited_dims")
    names = {given} if isinstance(given, str) else set(given or ())
    strange = names - set(part.dataset.dims)
    if strange and part.unlimited is not None:
        raise ValueError(
            f"Unlimited dimension(s) {strange!r} declared in 'unlimited_dims-kwarg', but not part of current dataset "
            f"dimensions {tuple(part.dataset.dims)}"
        )
    if strange:
        warn_outside(
            f"Unlimited dimension(s) {strange!r} declared in 'dataset.encoding', but not part of current dataset "
            f"dimensions. Consider removing {strange!r} from 'dataset.encoding'.", UserWarning
        )  # fmt: skip
    return {str(name) for name in names - strange}


# ---------------------------------------------------------------------------------------------------------- regions

Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"]


def sliced(
    dataset: xarray.Dataset, region: Region | None, stored: Mapping[Any, xarray.Variable], *, fresh: bool
) -> tuple[xarray.Dataset, dict[str, slice]]:
    """Return the slices of a region; and the dataset without the coordinates that the region was looked up by.

    Parameters
    ----------
    dataset : Dataset
    region : mapping, "auto" or None
    stored : mapping
        The variables of the file, as they are stored.
    fresh : bool
        The file is new, so that nothing can be looked up in it.

    Raises
    ------
    ValueError, TypeError, KeyError
        As `xarray.Dataset.to_zarr` raises them.
    """
    if region is None:
        return dataset, {}
    wanted: dict[str, Any] = dict.fromkeys(map(str, dataset.dims), "auto") if region == "auto" else {**region}
    strange = [dim for dim in wanted if dim not in dataset.dims]
    if strange:
        raise ValueError(f"region= has {strange[0]!r}, which is no dimension of the dataset: {tuple(dataset.dims)}")
    looked_up: list[Hashable] = []
    for dim, given in wanted.items():
        size = dataset.sizes[dim]
        if isinstance(given, str) and given == "auto":
            if fresh:
                raise ValueError("region='auto' needs a file that exists: use mode='r+' or 'a'")
            wanted[dim] = _found(dim, dataset, stored)
            looked_up.append(dim)
            continue
        if not isinstance(given, slice):
            raise TypeError(f"region[{dim!r}]={given!r}: give a slice or 'auto'")
        start = given.start or 0
        stop = start + size if given.stop is None else given.stop
        if given.step not in (None, 1) or start < 0 or stop - start != size:
            raise ValueError(f"region[{dim!r}]={given}: the dataset has {size} along it; give that many")
        wanted[dim] = slice(start, stop)
    return dataset.drop_vars([dim for dim in looked_up if dim in dataset.variables]), wanted


def _found(dim: str, dataset: xarray.Dataset, stored: Mapping[Any, xarray.Variable]) -> slice:
    """Return where the values of a coordinate are in the file; from 0 on if the dataset has no such coordinate."""
    size = dataset.sizes[dim]
    if dim not in dataset.variables:
        return slice(0, size)
    if dim not in stored:
        raise KeyError(f"region= looks for the coordinate {dim!r}, which the file does not have; give a slice for it")
    there = pd.Index(conventions.decode_cf_variable(dim, stored[dim]).values)
    try:
        at = there.get_indexer(dataset[dim].values)
    except pd.errors.InvalidIndexError:
        raise ValueError(f"the coordinate {dim!r} of the file has values twice; give a slice for it") from None
    if (at < 0).any():
        raise KeyError(
            f"not all values of the coordinate {dim!r} are in the file, whose length a region does not change; use "
            "append_dim= for new ones"
        )
    if (np.diff(at) != 1).any():
        raise ValueError(f"the values of the coordinate {dim!r} are not side by side in the file, in the same order")
    return slice(int(at[0]), int(at[-1]) + 1) if size else slice(0, 0)
