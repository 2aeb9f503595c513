"""nexusformat: a NeXus file is written, read, changed and shown as a tree."""

import numpy as np
from nexusformat.nexus import NXdata, NXentry, NXfield, NXinstrument, NXlink, NXroot, nxload

root = NXroot(NXentry())
root["entry/title"] = "a scan"
root["entry/instrument"] = NXinstrument(kind=NXfield("spectrometer"), wavelength=NXfield(1.54, units="angstrom"))
x = NXfield(np.linspace(0, 1, 5), name="x", units="mm")
counts = NXfield(np.arange(20, dtype="i4").reshape(4, 5), name="counts", units="counts")
root["entry/data"] = NXdata(counts, [NXfield(np.arange(4), name="frame"), x], title="counts of a scan")
root["entry/flags"] = NXfield(np.array([True, False]))
root["entry/names"] = NXfield(["copper", "zinc"])
root["entry/link"] = NXlink("/entry/data/counts")
root.save("scan.nxs", "w")

with nxload("scan.nxs", "r") as found:
    for path in (
        "title",
        "instrument/kind",
        "instrument/wavelength",
        "data/counts",
        "data/x",
        "flags",
        "names",
        "link",
    ):
        field = found["entry"][path]
        attributes = {name: str(value) for name, value in sorted(field.attrs.items())}
        print(path, field.nxvalue, field.dtype, field.shape, attributes)
    data = found["entry/data"]
    print(data.nxsignal.nxname, [axis.nxname for axis in data.nxaxes], data.nxsignal.sum())
    print(found["entry/data/counts"][1:3, ::2])

with nxload("scan.nxs", "rw") as found:
    found["entry/data/counts"][2, 2] = -7
    found["entry/sample"] = NXfield("a crystal")
    found["entry/data"].attrs["note"] = "changed"
    print(found["entry/data/counts"].nxdata.tolist())
with nxload("scan.nxs") as found:
    print(sorted(found["entry"]), found["entry/sample"], found["entry/data"].attrs["note"])
    print(
        "\n".join(
            line
            for line in found.tree.splitlines()
            if "file_" not in line and "HDF5" not in line and "h5py" not in line
        )
    )
