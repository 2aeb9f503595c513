"""Read a file from a web server, in ranges, with several threads. The server is started here, on this machine."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import pnc_vol as h5py
from pnc_vol.bench.range_server import serving

folder = tempfile.mkdtemp()
with h5py.File(os.path.join(folder, "run.nc"), "w") as f:
    f["t"] = np.arange(40 * 200 * 300, dtype="f4").reshape(40, 200, 300)
    f["t"].attrs["units"] = "K"

# Any address that fsspec opens will do: https://..., s3://... with storage_options={...}
with serving(folder) as server, h5py.File(f"{server.url}/run.nc") as f, ThreadPoolExecutor(4) as threads:
    t = f["t"]
    print(f"{t.name}: {t.shape}, {t.attrs['units']}; opened with {len(server.requests)} requests")
    corner = t[7, :2, :3]
    print(f"t[7, :2, :3] = {corner.tolist()}; {len(server.requests)} requests")
    means = list(threads.map(lambda i: float(t[i].mean(dtype="f8")), range(0, 40, 10)))
    print(f"means of four records: {means}")
    print(f"{server.sent / os.path.getsize(os.path.join(folder, 'run.nc')):.0%} of the file was sent")
