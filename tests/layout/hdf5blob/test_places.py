"""From canonical elements to addresses in HDF5 blobs: every element of any set of maps, by any runs."""

from __future__ import annotations

import numpy as np
from hdf5_blobs import BlobSet, blob_sets, planned
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.extents.model import Runs
from pnc_vol.layout.blob.described import described
from pnc_vol.layout.blob.index import ElementIndex
from pnc_vol.layout.blob.places import MapLookup
from pnc_vol.layout.hdf5blob.places import Hdf5BlobPlace, blob_starts
from pnc_vol.layout.places import Place
from pnc_vol.layout.subfiles import SHIFT

FILL = 0xA5


def place_of(made: BlobSet, i: int, *, own: tuple[int, int] | None = None) -> Hdf5BlobPlace:
    """The map of variable `i`; with its own blob known, `own` being its subfile and number there."""
    says = [described(made.physical(s), "x") for s in range(len(made.maps))]
    parts = [planned(made.physical(s), says[s], made.maps[s], "x") for s in range(len(made.maps))]
    k = made.assigned[i] - 1
    nelems = int(np.prod(made.maps[0][k].dims))
    mine = None
    if own is not None:
        s, b = own
        mine = (made.maps[s][k].blobs[b], s, int(made.maps[s][k].starts[b]))
    lookup = MapLookup(nelems, lambda: ElementIndex(nelems, [(s, of[k]) for s, of in enumerate(made.maps)]), mine)

    def addresses() -> tuple[np.ndarray, np.ndarray]:
        begins = [one.begins(says[s].variables[i]) + (s << SHIFT) for s, one in enumerate(parts)]
        steps = [one.record_sizes(says[s].variables[i]) for s, one in enumerate(parts)]
        return np.concatenate(begins), np.concatenate(steps)

    supplement = None
    itemsize = made.values[i].dtype.itemsize
    if i in made.supplements:
        at = says[0].supplements[i]
        step = int(parts[0].record_sizes(at)[0])
        inner = made.supplements[i] if step else 0
        supplement = Place(int(parts[0].begins(at)[0]), itemsize, inner, step)
    record = made.canonical.vars[i].dims[0] == 0
    starts = blob_starts(parts, k)
    return Hdf5BlobPlace(lookup, starts, itemsize, record=record, addresses=addresses, supplement=supplement)


def read(made: BlobSet, place: Hdf5BlobPlace, runs: Runs, itemsize: int) -> bytes:
    """What lies at the extents of these runs."""
    content = [made.data(s, "big") for s in range(len(made.maps))]
    memory = bytearray([FILL]) * (int(runs.length.sum()) * itemsize)
    found = place.extents(runs)
    ends = np.cumsum(runs.length * itemsize)
    for address, nbytes, at in zip(*(c.tolist() for c in found), strict=True):
        offset = address & ((1 << SHIFT) - 1)
        piece = content[address >> SHIFT][offset : offset + nbytes]
        assert len(piece) == nbytes > 0
        memory[at : at + nbytes] = piece
        # no extent holds bytes of two runs
        assert np.searchsorted(ends, at, side="right") == np.searchsorted(ends, at + nbytes - 1, side="right")
    return bytes(memory)


@given(blob_sets(), st.data())
def test_any_runs_find_their_elements(made: BlobSet, data: st.DataObject) -> None:
    for i, k in enumerate(made.assigned):
        if not k:
            continue
        values = made.values[i].copy()
        itemsize = values.dtype.itemsize
        nelems, records = int(np.prod(made.maps[0][k - 1].dims)), made.records(i)
        if i not in made.supplements:
            view = values.view(np.uint8).reshape(records, nelems, itemsize) if records else None
            if view is not None:
                view[:, made.open_elements(k - 1, len(made.maps))] = FILL
        own = None
        if data.draw(st.booleans()):
            s = data.draw(st.integers(0, len(made.maps) - 1))
            own = s, data.draw(st.integers(0, len(made.maps[s][0].blobs) - 1))
        place = place_of(made, i, own=own)
        assert place.itemsize == itemsize
        assert place.inner == (nelems if made.canonical.vars[i].dims[0] == 0 else 0)
        chosen = []
        for _ in range(data.draw(st.integers(0, 5)) if records else 0):
            start = data.draw(st.integers(0, records * nelems - 1))
            within = start % nelems
            chosen.append((start, data.draw(st.integers(1, nelems - within))))
        runs = Runs(*np.array(chosen, np.int64).reshape(-1, 2).T)
        expected = b"".join(values[start : start + n].tobytes() for start, n in chosen)
        assert read(made, place, runs, itemsize) == expected
        whole = Runs(np.arange(records, dtype=np.int64) * nelems, np.full(records, nelems, np.int64))
        assert read(made, place, whole, itemsize) == values.tobytes()


@given(blob_sets(), st.data())
def test_what_a_rank_always_writes_needs_no_index(made: BlobSet, data: st.DataObject) -> None:
    for i, k in enumerate(made.assigned):
        s = data.draw(st.integers(0, len(made.maps) - 1))
        blob = data.draw(st.integers(0, len(made.maps[s][0].blobs) - 1)) if made.maps[s] else 0
        if not k or not made.maps[s][k - 1].blobs[blob].start.size:
            continue
        place = place_of(made, i, own=(s, blob))
        runs = made.maps[s][k - 1].blobs[blob]
        nelems, itemsize = place.lookup.nelems, place.itemsize
        place.lookup._make = None  # type: ignore[assignment]
        for record in range(made.records(i)):
            found = read(made, place, Runs(runs.start + record * nelems, runs.length), itemsize)
            values = made.rows(i)
            assert found == values[record, made.elements(s, k - 1, blob)].tobytes()
