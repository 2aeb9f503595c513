"""HDF5 files that other libraries write, converted to NetCDF and back: the libraries read the same from both.

The libraries run in a process of their own, on h5py. `tests/interop/deep.py` compares the files; what differs must be
in the reports.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from deep import differences

from pnc_vol.convert.hdf5 import convert

PYTABLES = """
import sys, numpy as np, tables
class Row(tables.IsDescription):
    name = tables.StringCol(16)
    number = tables.Int64Col()
    matrix = tables.Float32Col(shape=(2, 3))
if len(sys.argv) > 2:
    with tables.open_file(sys.argv[1], "w") as f:
        f.create_array("/", "arr", np.arange(5))
        grown = f.create_earray("/", "grown", tables.Float64Atom(), (0, 3))
        grown.append(np.ones((4, 3)))
        rows = f.create_vlarray("/", "rows", tables.Int32Atom())
        rows.append([1, 2]), rows.append([3, 4])
        objects = f.create_vlarray("/", "objects", tables.ObjectAtom())
        objects.append({"a": 1}), objects.append([1, 2])
        table = f.create_table("/", "table", Row)
        row = table.row
        row["name"], row["number"] = "x", 3
        row.append()
        f.create_group("/", "group")._v_attrs.pickled = {"a": [1]}
        f.create_soft_link("/", "soft", "/arr")
        f.create_hard_link("/", "hard", "/arr")
with tables.open_file(sys.argv[1]) as f:
    print(f.root.arr[:], f.root.grown[:], f.root.rows[:], f.root.objects[:], f.root.table[:], f.root.hard[:])
    print(f.root.soft.dereference()[:], f.root.group._v_attrs.pickled)
"""

PANDAS = """
import sys, pandas
if len(sys.argv) > 2:
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": [1.0, 2.0, 3.0], "c": ["x", "yy", "zzz"]})
    frame.index = pandas.date_range("2020", periods=3)
    with pandas.HDFStore(sys.argv[1], "w") as store:
        store.put("fixed", frame)
        store.put("table", frame, format="table", index=False)
        store["series"] = pandas.Series([1, 2])
with pandas.HDFStore(sys.argv[1], "r") as store:
    print(store["fixed"], store["fixed"].dtypes, store["table"], store["series"])
"""

ANNDATA = """
import sys, anndata, numpy as np, pandas, scipy.sparse
if len(sys.argv) > 2:
    kinds = pandas.DataFrame({"k": pandas.Categorical(list("aabbc"))}, index=[f"c{i}" for i in range(5)])
    made = anndata.AnnData(scipy.sparse.random(5, 4, 0.5, "csr", dtype="f4", random_state=1), obs=kinds)
    made.uns["m"] = {"x": 1, "s": "text", "l": np.array(["a", "b"])}
    made.layers["d"] = np.ones((5, 4))
    made.write_h5ad(sys.argv[1])
read = anndata.read_h5ad(sys.argv[1])
print(read, read.obs, read.X.toarray(), read.uns, read.layers["d"])
"""

HICKLE = """
import sys, hickle, numpy as np
if len(sys.argv) > 2:
    hickle.dump({"a": np.arange(3), "b": [1, "two", None], "c": {"d": (1.5, True)}}, sys.argv[1], mode="w")
print(hickle.load(sys.argv[1]))
"""

MAT73 = """
import sys, hdf5storage, mat73, numpy as np
if len(sys.argv) > 2:
    cell = np.empty((2, 2), object)
    cell[:] = [[np.arange(3.0), "text"], [np.eye(2), True]]
    values = {"cell": cell, "x": np.arange(4.0), "s": {"f": 1.0}}
    hdf5storage.savemat(sys.argv[1], values, format="7.3", appendmat=False)
print(mat73.loadmat(sys.argv[1]))
"""

ORIGINS = {
    "tables": (PYTABLES, ("tables",)),
    "pandas": (PANDAS, ("pandas", "tables")),
    "anndata": (ANNDATA, ("anndata", "scipy")),
    "hickle": (HICKLE, ("hickle",)),
    "matlab": (MAT73, ("hdf5storage", "mat73")),
}


def told_by(code: str, path: Path, *more: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code, str(path), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_file_there_and_back(origin: str, tmp_path: Path) -> None:
    code, needed = ORIGINS[origin]
    for name in needed:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (pip install pnc-vol[clients])")
    source, there, back = (tmp_path / name for name in ("a.h5", "a.nc", "b.h5"))
    before = told_by(code, source, "write")
    reports = [convert(source, there), convert(there, back)]
    assert [loss for report in reports for loss in report.lost] == []
    assert told_by(code, back) == before
    told = {entry[0] for report in reports for entry in (*report.dropped, *report.by_convention)}
    with h5py.File(source) as first, h5py.File(back) as second:
        assert [(path, what) for path, what in differences(first, second) if path not in told] == []
