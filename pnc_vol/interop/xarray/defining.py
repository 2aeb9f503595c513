"""One call of `to_netcdf` on a file that is open: variables are defined, values are written.

Knows: encoded variables, regions, which rank writes what. Does not know: how a variable becomes a dataset
(`variables`), how blocks are written by offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray
from xarray import conventions
from xarray.backends.file_manager import DummyFileManager

from pnc_vol.api.file import File
from pnc_vol.interop.xarray.encodings import Encoder, encoding_of, encodings_in
from pnc_vol.interop.xarray.jobs import Job, Pending, Target, by_offset, is_dask, shares, store
from pnc_vol.interop.xarray.offsets import commit
from pnc_vol.interop.xarray.progress import Progress
from pnc_vol.interop.xarray.stores import GroupStore
from pnc_vol.interop.xarray.variables import Definer, attribute, check_encoding, check_names, is_chars
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["Part", "Region", "Writing"]

Region = Mapping[str, slice]
NAMELESS = "__values__"
"""What xarray calls the variable of an array without a name."""


class Part(NamedTuple):
    """One dataset, and the group that it goes to."""

    dataset: xarray.Dataset
    group: str
    encoding: Mapping[Any, Any]
    unlimited: Any


class Writing:
    """One call of `to_netcdf` on a file that is open."""

    def __init__(
        self,
        file: File,
        parts: list[Part],
        *,
        fresh: bool = True,
        later: bool = False,
        append_dim: str | None = None,
        region: Region | None = None,
        comm: Any = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> None:
        self.file, self.parts, self.fresh, self.later = file, parts, fresh, later
        self.append_dim, self.region, self.comm = append_dim, dict(region or {}), comm
        self.into = append_dim is not None or (region is not None and not fresh)
        self.progress = Progress(None if later else progress)
        self.now: list[Job] = []
        self.lazy: list[Job] = []
        self.records: dict[str, int] = {}
        self.path = file.id.handle.real

    def write(self) -> None:
        """Define all variables, and write what can be written now; the file is flushed when it is closed."""
        for part in self.parts:
            self._define(part)
        first = self.comm is None or self.comm.rank == 0
        if self.later:
            # places are known, and what follows needs no open file
            self.file.flush()
            self.now, self.lazy = list(map(by_offset, self.now)), list(map(by_offset, self.lazy))
        elif self.comm is not None:
            # what all ranks have alike is written once
            self.now = [job for job in self.now if first or job.apart]
            self.lazy = [one for job in self.lazy for one in ([job] if job.apart else shares(job, self.comm))]
        self.progress.total = sum(job.source.nbytes for job in (*self.now, *self.lazy))
        for job in self.now:
            job.target[job.region] = job.source
        if self.lazy and not self.later:
            store(self.lazy, compute=True)

    def rest(self, *, compute: bool) -> Delayed | None:
        """Store what was left to other processes, then count the records; or the object of dask that does so."""
        import dask  # an extra: datasets without dask's arrays are written without it

        stored = store(self.lazy, compute=False) if self.lazy else None
        done: Delayed = dask.delayed(commit)(self.path, self.records, stored)
        if compute:
            done.compute()
            return None
        return done

    # ------------------------------------------------------------------------------------------ definitions

    def _define(self, part: Part) -> None:
        group = self.file if part.group == "/" else self.file.require_group(part.group)
        dataset = part.dataset
        variables, attrs = conventions.encode_dataset_coordinates(dataset)
        variables = {name: var.copy(deep=False) for name, var in variables.items()}
        self._choose_encodings(part, variables)
        encoded, attrs = Encoder(self.file.id.check().defs.version, self._ranks).encode(variables, attrs)
        for name, variable in encoded.items():
            check_names(name, variable.dims)
        starts, sizes = self._extent(part)
        unlimited = _unlimited(part)
        if self.append_dim is not None and self.append_dim in dataset.dims and not self._appends(part.group):
            unlimited |= {self.append_dim}
        definer = Definer(self.file, group, unlimited, sizes)
        if not self.into or not any(str(name) in group for name in encoded):
            for key, value in attrs.items():
                group.attrs[key] = attribute(value)
        if not self.into or any(str(name) not in group for name in encoded):
            definer.declare(encoded)
        for name, variable in encoded.items():
            self._define_variable(definer, NAMELESS if name is None else str(name), variable, starts, sizes)
        definer.attach()

    @property
    def _ranks(self) -> Any:
        return self.comm if self.region else None

    def _choose_encodings(self, part: Part, variables: dict[Hashable, xarray.Variable]) -> None:
        for name, given in part.encoding.items():
            if name not in variables:
                raise KeyError(f"encoding= names {name!r}, which is no variable of the dataset")
            variables[name].encoding = given
            check_encoding(str(name), given)
        if self.into:
            for name, found in encodings_in(self.file, part.group, variables).items():
                variables[name].encoding = found
        if self._ranks is not None:
            chosen = None
            if self.comm.rank == 0:
                encoded, _ = conventions.cf_encoder(variables, {})
                chosen = {name: encoding_of(var, variables[name]) for name, var in encoded.items()}
            for name, found in self.comm.bcast(chosen).items():
                variables[name].encoding = found

    def _extent(self, part: Part) -> tuple[dict[str, int], dict[str, int]]:
        """Of each dimension where this part begins, and how long it will be in the file."""
        sizes = {str(dim): size for dim, size in part.dataset.sizes.items()}
        starts = dict.fromkeys(sizes, 0)
        for dim, chosen in self.region.items():
            if dim not in sizes:
                raise ValueError(f"region= has {dim!r}, which is no dimension of the dataset: {tuple(sizes)}")
            start, stop = (
                chosen.start or 0,
                chosen.stop if chosen.stop is not None else (chosen.start or 0) + sizes[dim],
            )
            if chosen.step not in (None, 1) or start < 0 or stop - start != sizes[dim]:
                raise ValueError(f"region[{dim!r}]={chosen}: the dataset has {sizes[dim]} along it; give that many")
            starts[dim], sizes[dim] = start, stop
            if self.comm is not None:
                sizes[dim] = max(self.comm.allgather(stop))
        behind = self.append_dim
        if behind is not None:
            if behind not in sizes:
                raise ValueError(f"append_dim={behind!r} is no dimension of the dataset: {tuple(sizes)}")
            starts[behind] = self._appends(part.group)
            sizes[behind] += starts[behind]
        return starts, sizes

    def _appends(self, path: str) -> int:
        """The length of the dimension that is appended to, in the file."""
        found = GroupStore(DummyFileManager(self.file), "", path).get_dimensions()
        return int(found.get(self.append_dim, 0))

    def _define_variable(
        self,
        definer: Definer,
        name: str,
        variable: xarray.Variable,
        starts: Mapping[str, int],
        sizes: Mapping[str, int],
    ) -> None:
        dims = tuple(map(str, variable.dims))
        full = tuple(sizes.get(dim, n) for dim, n in zip(dims, variable.shape, strict=True))
        apart = [dim in self.region for dim in dims]
        chars = is_chars(variable)
        if self.into and name in definer.group:
            moves = [part or dim == self.append_dim for part, dim in zip(apart, dims, strict=True)]
            made, full = definer.found(name, full, moves, chars=chars, resize=not self.later)
        elif self.into and self.region:
            raise ValueError(
                f"region= writes into variables of the file, which has no {name!r}; drop it from the dataset"
            )
        else:
            counted = (0, *full[1:]) if self.later and dims[:1] and dims[0] in definer.unlimited else full
            made = definer.define(name, variable, counted)
            if not any(apart):
                # every element is written: nothing is to be filled before
                self.file.id.check().posted.written_whole.add(made.id.node.uid)
        if made.id.node.is_record:
            self.records[made.id.node.path] = full[0]
        region = tuple(
            slice(starts.get(dim, 0), starts.get(dim, 0) + n) for dim, n in zip(dims, variable.shape, strict=True)
        )
        target = Pending(made, full, chars) if self.later else Target(made, self.progress, chars=chars)
        source = variable.data
        if is_dask(source):
            if chars:
                source = source.rechunk({source.ndim - 1: -1})
            self.lazy.append(Job(source, target, region, any(apart)))
        else:
            self.now.append(Job(np.asarray(source), target, region, any(apart)))


def _unlimited(part: Part) -> set[str]:
    """The dimensions of a dataset that can grow.

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
