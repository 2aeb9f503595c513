"""HDF5 files as different libraries write them.

`netcdf4` is written by the netCDF4 library. The others are written by h5py with the structure that the named library
gives its files: the same groups, types, attributes and references, though not the same storage. Files that PyTables,
pandas, anndata and Keras write themselves are converted in ``tests/parity/clients``.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import netCDF4
import numpy as np


def netcdf4(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as data:
        data.createDimension("t", None)
        data.createDimension("x", 3)
        data.createDimension("y", 2)
        data.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        data.createVariable("v", "f4", ("t", "x", "y"), fill_value=-1)[:] = np.arange(12).reshape(2, 3, 2)
        rows = data.createVLType("i4", "rows_t")
        for name, lengths in (("unequal", (1, 0, 3)), ("equal", (2, 2, 2))):
            made = data.createVariable(name, rows, ("x",))
            for i, length in enumerate(lengths):
                made[i] = np.arange(length, dtype="i4")
        data.createVariable("s", str, ("x",))[:] = np.array(["a", "bcd", "ü"], object)
        colour = data.createEnumType("u1", "colour_t", {"RED": 0, "GREEN": 1})
        data.createVariable("e", colour, ("x",), fill_value=0)[:] = [0, 1, 0]
        pair = data.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")]), "pair_t")
        data.createVariable("c", pair, ("x",))[:] = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], pair.dtype)
        group = data.createGroup("g")
        group.createDimension("z", 2)
        group.createVariable("z", "i4", ("z",))[:] = [7, 8]
        group.createVariable("w", "i8", ("x", "z"))[:] = np.arange(6).reshape(3, 2)
        data["v"].units = "m"
        data.title = "netCDF-4"
        data.setncattr("several", np.arange(3.0))
        data["v"].setncattr_string("texts", ["a", "b"])
        data.createVariable("scalar", "i4", ())[...] = 5
        data.createVariable("chars", "S1", ("x",))[:] = np.array([b"a", b"b", b"c"])
        data.createVariable("later", "i4", ("t",))[:] = [1, 2]


def matlab(path: Path) -> None:
    """MATLAB's -v7.3: cells as references into #refs#, structs, sparse matrices, characters, field names."""
    with h5py.File(path, "w", userblock_size=512) as f:
        refs = f.create_group("#refs#")
        for i, name in enumerate("abc"):
            refs[name] = np.arange(i + 1.0).reshape(1, -1)
            refs[name].attrs["MATLAB_class"] = np.bytes_("double")
        refs["d"] = np.array([[104], [105]], "u2")
        refs["d"].attrs["MATLAB_class"] = np.bytes_("char")
        refs["d"].attrs["MATLAB_int_decode"] = np.int32(2)
        cell = f.create_dataset("cell", (2, 2), h5py.ref_dtype)
        for i, name in enumerate("abcd"):
            cell[divmod(i, 2)] = refs[name].ref
        cell.attrs["MATLAB_class"] = np.bytes_("cell")
        f["empty"] = np.zeros(2, "u8")
        f["empty"].attrs["MATLAB_empty"] = np.uint8(1)
        struct = f.create_group("s")
        struct.attrs["MATLAB_class"] = np.bytes_("struct")
        names = np.empty(2, object)
        names[:] = [np.array(list(word), "S1") for word in ("on", "to")]
        struct.attrs.create("MATLAB_fields", names, dtype=h5py.vlen_dtype(np.dtype("S1")))
        struct["on"], struct["to"] = [[1.0]], [[2.0]]
        sparse = f.create_group("sparse")
        sparse.attrs["MATLAB_sparse"] = np.uint64(4)
        sparse["data"], sparse["ir"], sparse["jc"] = [1.0, 2.0], np.array([0, 1], "u8"), np.array([0, 1, 2], "u8")
        f["complex"] = np.zeros((1, 2), [("real", "f8"), ("imag", "f8")])


def nwb(path: Path) -> None:
    """Neurodata Without Borders, and hickle: references in datasets, compounds, rows and attributes; regions."""
    with h5py.File(path, "w") as f:
        f.attrs[".specloc"] = f.create_group("specifications").ref
        data = f.create_dataset("acquisition/ts/data", data=np.arange(40.0).reshape(10, 4))
        series = f["acquisition/ts"]
        table = f.create_group("electrodes")
        table["id"] = [0, 1, 2]
        table["id"].attrs["table"] = table.ref
        table["group"] = np.array([series.ref] * 3, h5py.ref_dtype)
        rows = np.zeros(2, [("idx_start", "i4"), ("count", "i4"), ("timeseries", h5py.ref_dtype)])
        rows["idx_start"], rows["count"], rows["timeseries"] = [0, 1], 2, series.ref
        table.create_dataset("timeseries", data=rows)
        regions = table.create_dataset("regions", (5,), h5py.regionref_dtype)
        regions[0] = data.regionref[2:5, 1]
        regions[1] = data.regionref[::3, ::2]
        regions[2] = data.regionref[[1, 4, 7], :]
        regions[3] = data.regionref[...]
        several = table.create_dataset("several", (3,), h5py.vlen_dtype(h5py.ref_dtype))
        several[0] = np.array([data.ref, table.ref], h5py.ref_dtype)
        several[1] = np.array([data.ref], h5py.ref_dtype)
        f.attrs.create("objects", [data.ref, table.ref], dtype=h5py.ref_dtype)
        f.attrs["region"] = data.regionref[1:3]
        table.create_dataset("null", (2,), h5py.ref_dtype)
        table.create_dataset("triples", (2,), np.dtype((h5py.ref_dtype, (3,))))[...] = np.array(
            [[data.ref] * 3, [series.ref] * 3], h5py.ref_dtype
        )
        f.create_dataset("one", (), h5py.ref_dtype)[()] = data.ref


def tables(path: Path) -> None:
    """PyTables, and pandas' HDFStore: rows of equal length, null-terminated texts, compounds, bit fields."""
    with h5py.File(path, "w") as f:
        f.attrs["CLASS"], f.attrs["PYTABLES_FORMAT_VERSION"] = np.bytes_("GROUP"), np.bytes_("2.1")
        for name, lengths in (("equal", (2, 2)), ("unequal", (1, 3)), ("empty", (0, 0))):
            rows = f.create_dataset(name, (2,), h5py.vlen_dtype("u1"), maxshape=(None,), chunks=(4,))
            for i, length in enumerate(lengths):
                rows[i] = np.arange(length, dtype="u1")
            rows.attrs["PSEUDOATOM"] = np.bytes_("object")
        square = np.empty((2, 2), object)
        for i in range(4):
            square[divmod(i, 2)] = np.arange(3, dtype="f4")
        f.create_dataset("square", (2, 2), h5py.vlen_dtype("f4"))
        f["square"][...] = square
        f.attrs.create("rows", square, dtype=h5py.vlen_dtype("f4"))
        kind = [("index", "i8"), ("values", "f4", (2, 3)), ("name", "S16"), ("sub", [("q", "i1")])]
        f.create_dataset("table", (3,), kind, maxshape=(None,), chunks=(8,), compression="gzip")
        flags = h5py.h5d.create(f.id, b"flags", h5py.h5t.STD_B8LE, h5py.h5s.create_simple((2,)))
        flags.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 0], "u1"), h5py.h5t.STD_B8LE)
        text = h5py.h5t.C_S1.copy()
        text.set_size(4)
        text.set_strpad(h5py.h5t.STR_NULLTERM)
        h5py.h5a.create(f.id, b"TITLE", text, h5py.h5s.create(h5py.h5s.SCALAR)).write(np.array(b"abc", "S4"))


def anndata(path: Path) -> None:
    """anndata, and Keras' weights: categoricals, sparse groups, texts, groups in order."""
    with h5py.File(path, "w") as f:
        f.attrs["encoding-type"] = "anndata"
        obs = f.create_group("obs", track_order=True)
        obs["k/categories"], obs["k/codes"] = ["a", "b"], np.array([0, 0, 1], "i1")
        obs["_index"] = ["c0", "c1", "c2"]
        obs.attrs.create("column-order", ["k"], dtype=h5py.string_dtype())
        obs.attrs["_index"] = "_index"
        x = f.create_group("X")
        x.attrs["shape"] = [3, 4]
        x["data"], x["indices"], x["indptr"] = np.ones(5, "f4"), np.arange(5) % 4, [0, 2, 4, 5]
        f.create_group("layers")
        f["uns/nothing"] = h5py.Empty("f4")
        weights = f.create_group("layers/dense/vars", track_order=True)
        weights["0"], weights["1"] = np.ones((2, 3), "f4"), np.zeros(3, "f2")
        f["flag"] = np.array([True, False])


def nexus(path: Path) -> None:
    """NeXus: classes, soft links, second names, and order of creation."""
    with h5py.File(path, "w", track_order=True) as f:
        entry = f.create_group("entry", track_order=True)
        entry.attrs["NX_class"] = "NXentry"
        for name in ("title", "start", "end", "zeta", "alpha"):
            entry[name] = name
        data = entry.create_group("data", track_order=True)
        data.attrs["NX_class"], data.attrs["signal"], data.attrs["axes"] = "NXdata", "counts", ["y", "x"]
        detector = entry.create_group("instrument/detector", track_order=True)
        detector["counts"] = np.arange(6, dtype="u4").reshape(2, 3)
        detector["counts"].attrs["target"] = "/entry/instrument/detector/counts"
        data["counts"] = detector["counts"]
        data["y"], data["x"] = [1.0, 2.0], [1.0, 2.0, 3.0]
        data["soft"] = h5py.SoftLink("/entry/title")
        data["a"] = 1
        many = entry.create_dataset("many", data=1, track_order=True)
        for name in "qcza":
            many.attrs[name] = name
        plain = f.create_group("plain")
        for name in "cab":
            plain[name] = 1
        plain["0link"] = h5py.SoftLink("/plain/a")
        plain["1group/x"] = 1


def typed(path: Path) -> None:
    """Types and fill values of all kinds."""
    with h5py.File(path, "w") as f:
        for kind in ("i1", ">i2", "<u4", "u8", "f2", ">f4", "f8", "c8", "c16", "?", "S5", "V3"):
            f.create_dataset(f"n_{kind.strip('<>?')}", (2,), kind)
        for name, kind, fill in (
            ("nan", "f8", np.nan),
            ("complex", "c16", complex(np.nan, 1)),
            ("int", "i4", -7),
            ("text", "S3", b"xyz"),
            ("enum", h5py.enum_dtype({"A": 1, "B": 2}, "i2"), 2),
            ("half", "f2", 1.5),
            ("pair", [("a", "i4"), ("b", "f4")], np.array((1, 2.5), [("a", "i4"), ("b", "f4")])[()]),
        ):
            f.create_dataset(f"fill_{name}", (3,), kind, fillvalue=fill)
        f.create_dataset("ascii", data=[b"a"], dtype=h5py.string_dtype("ascii"))
        f["utf8"] = np.array([b"\xc3\xa4"], h5py.string_dtype("utf-8", 4))
        f["type"] = np.dtype([("a", "i4")])
        f.create_dataset("typed", (2,), dtype=f["type"])
        f["label"] = np.zeros((3, 2))
        f["label"].dims[0].label = "station"
        f["lat"] = [1.0, 2.0]
        f["lat"].make_scale("latitude")
        f["label"].dims[1].attach_scale(f["lat"])
        f.attrs["matrix"] = np.arange(4).reshape(2, 2)
        f.attrs["null"] = h5py.Empty("i4")


ORIGINS = {each.__name__: each for each in (netcdf4, matlab, nwb, tables, anndata, nexus, typed)}
