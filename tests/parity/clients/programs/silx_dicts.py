"""silx: dictionaries to HDF5 and back, NXdata, names of members, comparison of types."""

import numpy as np
from silx.io import dictdump, nxdata
from silx.io import open as silx_open
from silx.io.utils import h5py_read_attributes, is_dataset, is_file, is_group

tree = {
    "city": {"name": "Grenoble", "area": 18.4, "population": np.array([158, 160], "i4")},
    "flags": np.array([True, False]),
    "names": ["one", "two"],
    "matrix": np.arange(12.0).reshape(3, 4),
    "nothing": np.empty((0, 3)),
}
dictdump.dicttoh5(tree, "tree.h5", h5path="/here", create_dataset_args={"compression": "gzip"})
found = dictdump.h5todict("tree.h5", path="/here", asarray=False)


def show(value, indent=0):
    for name in sorted(value):
        part = value[name]
        if isinstance(part, dict):
            print(" " * indent + name)
            show(part, indent + 2)
        else:
            print(" " * indent + name, type(part).__name__, getattr(part, "dtype", ""), np.asarray(part).tolist())


show(found)
dictdump.dicttoh5({"more": 5, "city": {"area": 19.0}}, "tree.h5", h5path="/here", mode="a", update_mode="modify")
show(dictdump.h5todict("tree.h5", asarray=False))

nx = {
    "@default": "entry", "entry": {"@NX_class": "NXentry", "@default": "plot",
        "plot": {"@NX_class": "NXdata", "@signal": "y", "@axes": ["x"], "x": np.arange(5.0), "y": np.arange(5.0) ** 2,
                 "y@units": "m"}},
}  # fmt: skip
dictdump.dicttonx(nx, "plot.h5")
show(dictdump.nxtodict("plot.h5", include_attributes=True, asarray=False)["entry"]["plot"])
with silx_open("plot.h5") as f:
    print(is_file(f), is_group(f["entry"]), is_dataset(f["entry/plot/x"]))
    plot = nxdata.get_default(f)
    print(plot.signal_name, plot.axes_names, plot.is_curve, plot.signal[()].tolist(), plot.axes[0][()].tolist())
    print({name: str(value) for name, value in sorted(h5py_read_attributes(f["entry/plot"].attrs).items())})
