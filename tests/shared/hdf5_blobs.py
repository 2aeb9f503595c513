"""Subfiles of HDF5 blobs, as bytes, made without the package's own walk: for tests of what reads and writes them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import h5py
import numpy as np
from hypothesis import strategies as st

from pnc_vol.extents.model import Runs
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.types import TYPES
from pnc_vol.layout.blob.described import Described
from pnc_vol.layout.blob.header import physical_header
from pnc_vol.layout.blob.maps import SubfileMap
from pnc_vol.layout.hdf5blob.header_blob import NATIVE, encode
from pnc_vol.layout.hdf5blob.parts import Parts


class BlobSet(NamedTuple):
    """What is in all subfiles.

    canonical : Header
    maps : for each subfile what it holds of each map.
    assigned : for each variable the number of its map, from 1, or 0.
    supplements : for the number of a variable the elements of its supplement.
    values : for each variable its elements, all records one after another, as in the file.
    """

    canonical: Header
    maps: list[list[SubfileMap]]
    assigned: list[int]
    supplements: dict[int, int]
    values: list[np.ndarray[Any, Any]]

    def physical(self, subfile: int) -> Header:
        nblobs = [len(of[0].blobs) if of else 1 for of in self.maps]
        return physical_header(
            self.canonical,
            self.maps[subfile],
            self.assigned,
            nblobs=nblobs[subfile],
            nprocs=sum(nblobs),
            subfiles=len(self.maps),
            supplements=self.supplements if subfile == 0 else {},
        )

    def elements(self, subfile: int, k: int, blob: int) -> list[int]:
        runs = self.maps[subfile][k].blobs[blob]
        return [e for start, n in zip(*(c.tolist() for c in runs), strict=True) for e in range(start, start + n)]

    def open_elements(self, k: int, subfiles: int) -> list[int]:
        """The elements that are in no blob."""
        nelems = int(np.prod(self.maps[0][k].dims))
        blobs = [(s, b) for s in range(subfiles) for b in range(len(self.maps[s][k].blobs))]
        return sorted(set(range(nelems)) - {e for s, b in blobs for e in self.elements(s, k, b)})

    def records(self, i: int) -> int:
        var = self.canonical.vars[i]
        return self.canonical.numrecs if var.dims and self.canonical.dims[var.dims[0]].size == 0 else 1

    def rows(self, i: int) -> np.ndarray[Any, Any]:
        """The elements of a variable by records."""
        inner = int(np.prod([self.canonical.dims[j].size or 1 for j in self.canonical.vars[i].dims]))
        return self.values[i].reshape(self.records(i), inner)

    def data(self, subfile: int, order: str = NATIVE) -> bytes:
        """The content of ``/data_blob``, written down blob by blob."""
        made = b""
        nblobs = len(self.maps[subfile][0].blobs) if self.maps[subfile] else 1
        for blob in range(nblobs):
            for one in self.maps[subfile]:
                runs, wide = one.blobs[blob], "i8" if np.prod(one.dims) > 2**31 - 1 else "i4"
                numbers = [(runs.start.size, "i4"), (one.starts[blob], "i8"), (one.counts[blob], "i8")]
                for value, code in [*numbers, (runs.start, wide), (runs.length, wide)]:
                    made += np.asarray(value).astype(np.dtype(code).newbyteorder(order)).tobytes()
            for i, k in enumerate(self.assigned):
                values = self.rows(i)
                part = values[:, self.elements(subfile, k - 1, blob)] if k else values if blob == 0 else values[:, :0]
                made += part.astype(part.dtype.newbyteorder(order)).tobytes()
            if subfile == 0 and blob == 0:
                for i in sorted(self.supplements):
                    values = self.rows(i)
                    part = values[:, self.open_elements(self.assigned[i] - 1, len(self.maps))]
                    made += part.astype(part.dtype.newbyteorder(order)).tobytes()
        return made

    def container(self, subfile: int, order: Any = NATIVE) -> bytes:
        """The HDF5 file, made by h5py alone."""
        made = io.BytesIO()
        with h5py.File(made, "w", libver="latest") as f:
            for name, content in (
                ("header_blob", encode(self.physical(subfile), order)),
                ("data_blob", self.data(subfile, order)),
            ):
                f.create_dataset(name, data=np.frombuffer(content, np.uint8))
        return made.getvalue()


def planned(header: Header, says: Described, maps: Sequence[SubfileMap], where: str) -> Parts:
    """The parts of a subfile, by its maps."""
    shape = (len(maps), says.nblobs)
    columns = [one.counts for one in maps], [one.nreqs for one in maps]
    counts, nreqs = (np.array(column, np.int64).reshape(shape) for column in columns)
    return Parts(header, says, counts, nreqs, where)


def _share(elements: Sequence[int], homes: Sequence[int], home: int, row: int) -> Runs:
    """The runs of one home: sorted, none across a row."""
    mine = [e for e, at in zip(elements, homes, strict=True) if at == home]
    start: list[int] = []
    length: list[int] = []
    for e in mine:
        if start and start[-1] + length[-1] == e and e % row:
            length[-1] += 1
        else:
            start.append(e)
            length.append(1)
    return Runs(np.array(start, np.int64), np.array(length, np.int64))


@st.composite
def blob_sets(draw: st.DrawFn) -> BlobSet:
    """Any set of subfiles: empty blobs, elements in no blob, every type, with records and without."""
    subfiles = draw(st.integers(1, 3))
    nblobs = [draw(st.integers(1, 3)) for _ in range(subfiles)]
    dims = (Dim("time", 0), Dim("x", 6), Dim("y", 4), Dim("z", 5))
    shapes = draw(st.lists(st.sampled_from([(1,), (2, 3), (3,)]), max_size=3))
    maps: list[list[SubfileMap]] = [[] for _ in range(subfiles)]
    for ids in shapes:
        lengths = tuple(dims[i].size for i in ids)
        nelems = int(np.prod(lengths))
        homes = draw(st.lists(st.integers(-1, sum(nblobs) - 1), min_size=nelems, max_size=nelems))
        home = 0
        for s in range(subfiles):
            blobs = tuple(_share(range(nelems), homes, home + b, lengths[-1]) for b in range(nblobs[s]))
            maps[s].append(SubfileMap(lengths, ids, blobs))
            home += nblobs[s]
    variables, assigned = [], []
    for i in range(draw(st.integers(0, 6))):
        k = draw(st.integers(0, len(shapes)))
        ids = shapes[k - 1] if k else draw(st.sampled_from([(), (1,), (2,)]))
        record = draw(st.booleans())
        unit = (Attr("units", 2, 1, b"K"),) if draw(st.booleans()) else ()
        variables.append(Var(f"v{i}", ((0,) if record else ()) + ids, unit, draw(st.sampled_from(sorted(TYPES)))))
        assigned.append(k)
    canonical = Header(5, draw(st.integers(0, 3)), dims, (Attr("n", 4, 1, b"\0\0\0\7"),), tuple(variables))
    made = BlobSet(canonical, maps, assigned, {}, [])
    for i, k in enumerate(assigned):
        left = len(made.open_elements(k - 1, subfiles)) if k else 0
        if left and draw(st.booleans()):
            made.supplements[i] = left
    random = np.random.default_rng(len(variables) + sum(nblobs))
    for i, var in enumerate(variables):
        n = made.records(i) * int(np.prod([dims[j].size or 1 for j in var.dims]))
        dtype = TYPES[var.type].dtype
        made.values.append(np.frombuffer(random.bytes(n * dtype.itemsize), dtype))
    return made
