"""A simulation is killed between two flushes; everything that it had posted is recovered from its log.

python examples/06_recover_killed_run.py [run.nc]
"""

import os
import subprocess
import sys
import time
import warnings

import numpy as np

import pnc_vol as h5py


def simulate(path):
    """Write one record per step, without end."""
    # The log is beside the file here; burst_buf_dirname= puts it on fast storage of the node.
    with h5py.File(path, "w", burst_buf=True) as f:
        u = f.create_dataset("u", (0, 1000), "f8", maxshape=(None, 1000))
        u.attrs["units"] = "K"
        step = 0
        while True:
            u.resize(step + 1, axis=0)
            u[step] = step
            # The assignment has returned, so a kill does not lose this record any more: report it.
            print(step, flush=True)
            step += 1
            if step % 40 == 0:
                f.flush()
            time.sleep(0.02)  # what a real program computes


path = sys.argv[1] if len(sys.argv) > 1 else "run.nc"
if len(sys.argv) > 2:
    simulate(path)

posted = 0
with subprocess.Popen([sys.executable, __file__, path, "simulate"], stdout=subprocess.PIPE, text=True) as run:
    for line in run.stdout:
        posted = int(line) + 1
        if posted == 100:
            run.kill()
print("killed with signal", -run.returncode, "after", posted, "records")

# The file is valid at any moment, and holds what was flushed. A warning says that there is more.
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with h5py.File(path) as f:
        print("in the file:", len(f["u"]), "records")
for warning in told:
    print("told:", str(warning.message).partition(", in ")[0])

with h5py.File(path, "r+", recover=True) as f:
    found = f["u"][:]
print("recovered:", len(found), "records")

expected = np.arange(float(posted))[:, np.newaxis]
assert np.array_equal(found[:posted], np.broadcast_to(expected, (posted, 1000)))
# There is at most one record more, of the step that was under way, complete or empty; and no log is left.
assert len(found) - posted in (0, 1)
assert not [name for name in os.listdir(os.path.dirname(path) or ".") if "pncbb" in name]
