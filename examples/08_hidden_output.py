"""Output that is hidden behind the computation, by a node-local write cache.

    python 08_hidden_output.py results

Each step computes and writes a file. The data go to a cache on fast storage, and threads carry them to the file system
while the next step computes. A hint file switches this on; the loop is that of any program. To show the effect
on any machine, the file system of `results` is made slow: 40 MB/s for writing.
"""

import json
import os
import sys
import tempfile
import time

import numpy as np

import pnc_vol as h5py
from pnc_vol.testing.faults import ThrottledSystem

STEPS, SIZE = 4, 500_000


def compute(field: np.ndarray, seconds: float) -> None:
    """Smooth the field until the time is up."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        field[1:-1] += 0.25 * (field[:-2] - 2 * field[1:-1] + field[2:])


def run(folder: str, hints: str, system: ThrottledSystem) -> tuple[float, float]:
    """All steps; seconds of the run, and those that the program spent in output."""
    field = np.random.default_rng(1).random(SIZE)
    start, writing = time.perf_counter(), 0.0
    for step in range(STEPS):
        compute(field, 0.15)
        began = time.perf_counter()
        with h5py.File(f"{folder}/step{step}.nc", "w", hints_file=hints, system=system) as f:
            f["field"] = field
        writing += time.perf_counter() - began
    began = time.perf_counter()
    h5py.finalize()  # closes the last file; the interpreter's exit would do so, too
    writing += time.perf_counter() - began
    return time.perf_counter() - start, writing


folder = sys.argv[1] if len(sys.argv) > 1 else "results"
os.makedirs(folder, exist_ok=True)
system = ThrottledSystem(folder, bandwidth=40e6)

with tempfile.TemporaryDirectory() as nvm:  # a job uses the node-local storage, such as /scratch
    rules = {"e10_cache": "enable", "e10_cache_path": nvm, "pnc_driver": "cache | posix"}
    for name, content in {
        "cached": {"Guardnames": "step", "Directory": [{"Path": folder, "Type": "MPI", **rules}]},
        "direct": {},
    }.items():
        with open(f"{nvm}/{name}.json", "w") as file:
            json.dump(content, file)
    direct, spent = run(folder, f"{nvm}/direct.json", system)
    print(f"without the cache: {direct:.2f} s, of which the program spent {spent:.2f} s in output")
    cached, left = run(folder, f"{nvm}/cached.json", system)
    print(f"with the cache:    {cached:.2f} s, of which the program spent {left:.2f} s in output")
    print(f"hidden behind the computation: {max(0.0, 1 - left / spent):.0%} of the output")

with h5py.File(f"{folder}/step{STEPS - 1}.nc") as f:
    print("the last file has", f["field"].size, "values")
