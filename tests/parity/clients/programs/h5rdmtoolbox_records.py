"""h5rdmtoolbox: File, Group and Dataset derived from h5py's classes."""

import h5rdmtoolbox as h5tbx
import numpy as np

h5tbx.use(None)
with h5tbx.File("records.hdf", "w") as f:
    f.attrs["title"] = "a record"
    f.create_dataset("x", data=np.linspace(0, 1, 4), make_scale=True, attrs={"units": "m"})
    f.create_dataset("run/u", data=np.arange(4.0), attach_scale="x", attrs={"units": "m/s", "long_name": "velocity"})
    f.create_group("run/empty", attrs={"a": 1, "b": [1, 2], "c": "text"})
    f.create_string_dataset("note", data="hello")
with h5tbx.File("records.hdf", "r+") as f:
    print(f.attrs["title"], sorted(f), sorted(f["run"]), f["note"].values[()])
    u = f["run/u"]
    print(u[()].values.tolist(), u.attrs["units"], u.attrs["long_name"], u[1:3].values.tolist(), u.dims[0][0].name)
    print({name: str(value) for name, value in sorted(f["run/empty"].attrs.items())})
    u[2] = -1
    print(u.values[:].tolist(), [found.name for found in f.find({"units": {"$exists": True}}, recursive=True)] != [])
with h5tbx.File("records.hdf") as f:
    print(f["run/u"].values[:].tolist(), len(f["run"]))
    for name in ("x", "run/u", "note"):
        print(name, f[name].shape, f[name].dtype, sorted(key for key in f[name].attrs if key.islower()))
