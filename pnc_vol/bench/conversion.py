"""``python -m pnc_vol.bench conversion`` converts a netCDF-4 and an HDF5 file of one large variable to CDF-5.

The netCDF-4 file is what ``nccopy -k cdf5`` takes, which writes the same kind of file; h5repack copies the HDF5 file to
another HDF5 file, which is the least that a conversion has to do. Both run as programs, and so does pnc_vol: files of
one number show what it takes to start them, which is part of the other figures.

Knows: the three commands.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

from pnc_vol.bench.measure import US, Job, Stopwatch, check, times
from pnc_vol.bench.peers import Peer, load

COMMANDS = {
    US: [sys.executable, "-m", "pnc_vol.cli", "convert"],
    "nccopy": ["nccopy", "-k", "cdf5"],
    "h5repack": ["h5repack"],
}


def main(job: Job) -> None:
    """Convert files of many numbers and of one."""
    missing = next((text for text in map(load, ("h5py", "netCDF4")) if isinstance(text, str)), "")
    peers: dict[str, Any] = {
        name: missing or (Peer(name, None) if shutil.which(command[0]) else f"{command[0]} is not installed")
        for name, command in COMMANDS.items()
    }
    n = times(job.options.scale, 1 << 27)
    for kind, other in (("netCDF-4", "h5repack"), ("HDF5", "nccopy")):
        for count, size in ((n, f"{8 * n / (1 << 30):.3g} GiB"), (1, "one number")):
            phase = f"convert {kind}, {size}"
            run = functools.partial(_convert, kind, phase, np.random.default_rng(0).random(count))
            job.turns({phase: (8 * count, 1)}, {**peers, other: f"does not convert {kind}"}, run)


def _convert(kind: str, phase: str, values: Any, peer: Any, watch: Stopwatch) -> None:
    source, target = f"{peer.path}.{kind}", f"{peer.path}.nc"
    if kind == "HDF5":
        with importlib.import_module("h5py").File(source, "w") as f:
            f["x"] = values
    else:
        with importlib.import_module("netCDF4").Dataset(source, "w") as f:
            f.createDimension("n", len(values))
            f.createVariable("x", values.dtype, ("n",))[:] = values
    with watch(phase):
        subprocess.run([*COMMANDS[peer.name], source, target], check=True, stdout=subprocess.DEVNULL)
    with importlib.import_module("h5py" if peer.name == "h5repack" else "pnc_vol").File(target) as f:
        check(f"{phase}, {target}", f["x"][...], values)
