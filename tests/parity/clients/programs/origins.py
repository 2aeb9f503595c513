"""``python origins.py ORIGIN PATH [write]``: a library writes an HDF5 file, if it is to, and prints what it reads."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def tables(path: str, write: bool) -> None:
    import tables as library

    class Row(library.IsDescription):  # type: ignore[misc]
        name = library.StringCol(16)
        number = library.Int64Col()
        matrix = library.Float32Col(shape=(2, 3))

    if write:
        with library.open_file(path, "w") as f:
            f.create_array("/", "arr", np.arange(5))
            f.create_earray("/", "grown", library.Float64Atom(), (0, 3)).append(np.ones((4, 3)))
            for name, atom, rows in (
                ("rows", library.Int32Atom(), ([1, 2], [3, 4])),
                ("objects", library.ObjectAtom(), ({"a": 1}, [1, 2])),
            ):
                made = f.create_vlarray("/", name, atom)
                for one in rows:
                    made.append(one)
            row = f.create_table("/", "table", Row).row
            row["name"], row["number"] = "x", 3
            row.append()
            f.create_group("/", "group")._v_attrs.pickled = {"a": [1]}
            f.create_soft_link("/", "soft", "/arr")
            f.create_hard_link("/", "hard", "/arr")
    with library.open_file(path) as f:
        print(f.root.arr[:], f.root.grown[:], f.root.rows[:], f.root.objects[:], f.root.table[:], f.root.hard[:])
        print(f.root.soft.dereference()[:], f.root.group._v_attrs.pickled)


def pandas(path: str, write: bool) -> None:
    import pandas as library

    if write:
        frame = library.DataFrame({"a": [1, 2, 3], "b": [1.0, 2.0, 3.0], "c": ["x", "yy", "zzz"]})
        frame.index = library.date_range("2020", periods=3)
        with library.HDFStore(path, "w") as store:
            store.put("fixed", frame)
            store.put("table", frame, format="table", index=False)
            store["series"] = library.Series([1, 2])
    with library.HDFStore(path, "r") as store:
        print(store["fixed"], store["fixed"].dtypes, store["table"], store["series"])


def anndata(path: str, write: bool) -> None:
    import anndata as library
    import pandas as frames
    import scipy.sparse

    if write:
        kinds = frames.DataFrame({"k": frames.Categorical(list("aabbc"))}, index=[f"c{i}" for i in range(5)])
        made = library.AnnData(scipy.sparse.random(5, 4, 0.5, "csr", dtype="f4", random_state=1), obs=kinds)
        made.uns["m"] = {"x": 1, "s": "text", "l": np.array(["a", "b"])}
        made.layers["d"] = np.ones((5, 4))
        made.write_h5ad(path)
    read = library.read_h5ad(path)
    print(read, read.obs, read.X.toarray(), read.uns, read.layers["d"])


def hickle(path: str, write: bool) -> None:
    import hickle as library

    if write:
        library.dump({"a": np.arange(3), "b": [1, "two", None], "c": {"d": (1.5, True)}}, path, mode="w")
    print(library.load(path))


def matlab(path: str, write: bool) -> None:
    import hdf5storage
    import mat73

    if write:
        cell: Any = np.empty((2, 2), object)
        cell[:] = [[np.arange(3.0), "text"], [np.eye(2), True]]
        values = {"cell": cell, "x": np.arange(4.0), "s": {"f": 1.0}}
        hdf5storage.savemat(path, values, format="7.3", appendmat=False)
    print(mat73.loadmat(path))


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], len(sys.argv) > 3)
