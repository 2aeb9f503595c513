"""``python -m pnc_vol.bench conversion`` converts a netCDF-4 and an HDF5 file of one large variable to CDF-5.

The netCDF-4 file is what ``nccopy -k cdf5`` takes, which writes the same kind of file; h5repack copies the HDF5 file to
another HDF5 file, which is the least that a conversion has to do. Both run as programs, and so does pnc_vol: files of
one number show what it takes to start them, which is part of the other figures.

Knows: the works. Does not know: how a conversion is done.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

from pnc_vol.bench.measure import US, Bench, Stopwatch, Work, check, clear, times
from pnc_vol.bench.peers import Peer, load

__all__ = ["BENCHES"]

_COMMANDS = {
    US: [sys.executable, "-m", "pnc_vol.cli", "convert"],
    "nccopy": ["nccopy", "-k", "cdf5"],
    "h5repack": ["h5repack"],
}


def _programs(folder: str) -> dict[str, Any]:
    """Return pnc_vol, and the programs that are installed; for the others the reason."""
    missing = next((text for text in map(load, ("h5py", "netCDF4")) if isinstance(text, str)), "")
    found: dict[str, Any] = {}
    for name, command in _COMMANDS.items():
        there = missing or ("" if shutil.which(command[0]) else f"{command[0]} is not installed")
        found[name] = there or Peer(name, None, folder)
    return found


def _works(scale: float) -> list[Work]:
    n = times(scale, 1 << 27)
    return [
        _converted(kind, other, count, size)
        for kind, other in (("netCDF-4", "h5repack"), ("HDF5", "nccopy"))
        for count, size in ((n, f"{8 * n / (1 << 30):.3g} GiB"), (1, "one number"))
    ]


def _converted(kind: str, other: str, n: int, size: str) -> Work:
    phase = f"convert {kind}, {size}"
    values = functools.cache(lambda: np.random.default_rng(0).random(n))

    def run(peer: Any, watch: Stopwatch) -> None:
        if peer.name == other:
            return
        source, target = f"{peer.path}.{kind}", f"{peer.path}.nc"
        _make(kind, source, values())
        with watch(phase):
            subprocess.run([*_COMMANDS[peer.name], source, target], check=True, stdout=subprocess.DEVNULL)
        reader = importlib.import_module("h5py" if peer.name == "h5repack" else "pnc_vol")
        with reader.File(target) as f:
            check(f"{phase}, {target}", f["x"][...], values())
        for path in (source, target):
            clear(path)

    return Work({phase: (8 * n, 1)}, run, {phase: {other: f"does not convert {kind}"}})


def _make(kind: str, path: str, values: Any) -> None:
    module = importlib.import_module("netCDF4" if kind == "netCDF-4" else "h5py")
    if kind == "HDF5":
        with module.File(path, "w") as f:
            f["x"] = values
        return
    with module.Dataset(path, "w") as f:
        f.createDimension("n", len(values))
        f.createVariable("x", values.dtype, ("n",))[:] = values


BENCHES = {"conversion": Bench(_programs, _works)}
