"""Adding to an existing file: values, variables, attributes, records. Existing data are not moved.

python examples/04_add_to_a_file.py [log.nc]
"""

import sys

import numpy as np

import pnc_vol as h5py

path = sys.argv[1] if len(sys.argv) > 1 else "log.nc"
moves = {}

with h5py.File(path, "w") as f:
    level = f.create_dataset("level", (48,), "f8", fillvalue=np.nan)
    level.attrs["units"] = "m"
    level[:24] = np.arange(24.0)
    # A flush before the close keeps room behind the header, so that later definitions need not move any data.
    f.flush()

# The next day: the other half of the values.
with h5py.File(path, "a") as f:
    f["level"][24:] = np.arange(24.0)[::-1]

# Later still: something derived, next to the raw values, and a history that says so.
with h5py.File(path, "r+") as f:
    f["daily_mean"] = f["level"][:].reshape(2, 24).mean(axis=1)
    f["daily_mean"].attrs["source"] = "level"
    f.attrs["history"] = "daily means added"
    f.flush()
    moves["a variable, two attributes"] = f.statistics().get("moves", 0)

# A logbook that grows: the first dataset with an unlimited axis, then a record more each time.
for visit in range(3):
    with h5py.File(path, "r+") as f:
        visits = f.require_dataset("visits", (0,), "i4", maxshape=(None,))
        visits.resize(len(visits) + 1, axis=0)
        visits[-1] = 20261120 + visit
        f.flush()
        moves[f"visit {visit}"] = f.statistics().get("moves", 0)

with h5py.File(path) as f:
    print("level:", f["level"].shape, "daily means:", f["daily_mean"][:], "visits:", f["visits"][:])
print("times that data had to be moved:", moves)
