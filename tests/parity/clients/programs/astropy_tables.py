"""astropy: tables to HDF5 and back, with units, masks and meta data."""

import numpy as np
from astropy import units
from astropy.table import QTable, Table

table = Table(
    {"name": ["sun", "moon"], "mass": [1.989e30, 7.35e22], "count": np.array([1, 2], "i2"), "seen": [True, False]}
)
table["mass"].unit = units.kg
table["mass"].description = "in the rest frame"
table.meta["origin"] = "a book"
table.write("bodies.h5", path="data/bodies", format="hdf5", serialize_meta=True)
plain = Table({"x": np.arange(4.0), "y": np.arange(4)})
plain.write("bodies.h5", path="data/plain", append=True, format="hdf5")
for path in ("data/bodies", "data/plain"):
    found = Table.read("bodies.h5", path=path, format="hdf5")
    print(found.colnames, [str(found[name].dtype) for name in found.colnames], found.meta)
    print("\n".join(found.pformat(max_lines=-1)))
found = QTable.read("bodies.h5", path="data/bodies", format="hdf5")
print(found["mass"].to("g"))
plain["y"] = [9, 9, 9, 9]
plain.write("bodies.h5", path="data/plain", append=True, overwrite=True, format="hdf5")
print(Table.read("bodies.h5", path="data/plain", format="hdf5")["y"].tolist())
