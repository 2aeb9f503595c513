"""The first file: groups, datasets, attributes, a dataset that grows; then read it back.

    python examples/01_first_file.py [first.nc]

Look at the result with ``pnc-vol ls first.nc`` or ``ncdump first.nc``.
"""

import sys

import numpy as np

import pnc_vol as h5py

path = sys.argv[1] if len(sys.argv) > 1 else "first.nc"

with h5py.File(path, "w") as f:
    f.attrs["title"] = "A first file"

    # A dataset with its data, and one that is filled piece by piece.
    depth = f.create_dataset("ocean/depth", data=np.linspace(0, 500, 6))
    depth.attrs["units"] = "m"
    stations = f.create_dataset("ocean/station", data=["Kiel", "Tromsø", "Nuuk"], dtype=h5py.string_dtype())

    # The first axis may grow: it becomes NetCDF's unlimited dimension.
    temperature = f.create_dataset("ocean/temperature", (0, 3, 6), "f4", maxshape=(None, 3, 6), fillvalue=np.nan)
    temperature.attrs["units"] = "degree_Celsius"
    profile = np.exp(-depth[:] / 200)
    for day in range(10):
        temperature.resize(day + 1, axis=0)
        for i in range(len(stations)):
            # Posted: copied to memory, not yet in the file. Reading it back works at once all the same.
            temperature[day, i] = (15 + i + np.sin(day)) * profile

    # One flush carries everything out, in few large calls; closing the file would do it, too.
    f.flush()

with h5py.File(path) as f:
    f.visititems(lambda name, found: print(f"{name:20} {getattr(found, 'shape', 'group')}"))
    temperature = f["ocean/temperature"]
    names = f["ocean/station"].asstr()[:]
    for name, mean in zip(names, temperature[:, :, 0].mean(axis=0), strict=True):
        print(f"{name:8} {mean:6.2f} {temperature.attrs['units']} at the surface")
