"""A measuring campaign, kept by h5py: the same script stands before and after the port."""

import sys

import h5py
import numpy as np

path = sys.argv[1]
rng = np.random.default_rng(7)

with h5py.File(path, "w") as f:
    f.attrs["campaign"] = "autumn"
    run = f.create_group("runs/0001")
    run.attrs["operator"] = "N. N."
    run.attrs["calibration"] = np.array([[1.0, 0.02], [0.98, -0.01]])
    signal = run.create_dataset(
        "signal", (0, 256), "i2", maxshape=(None, 256), chunks=(64, 256), compression="gzip", fillvalue=-1
    )
    clock = run.create_dataset("clock", (0,), "f8", maxshape=(None,))
    for shot in range(100):
        for growing in (signal, clock):
            growing.resize(shot + 1, axis=0)
        signal[shot] = rng.normal(0, 300, 256).astype("i2")
        clock[shot] = shot * 0.25
    run["good"] = rng.random(100) > 0.1
    notes = run.create_dataset("notes", (2,), h5py.string_dtype())
    notes[:] = ["warm-up", "lamp replaced (Ø 8 mm)"]

with h5py.File(path, "r+") as f:
    run = f["runs/0001"]
    good = run["signal"][run["good"][:]]
    run.create_dataset("mean", data=good.mean(axis=0))
    run.attrs["shots"] = len(good)

with h5py.File(path, "r") as f:
    run = f["runs/0001"]
    print("runs:", list(f["runs"]), "shots:", run.attrs["shots"], "of", run["signal"].shape[0])
    print("mean signal:", round(float(run["mean"][:].mean()), 3), "calibration:", run.attrs["calibration"].shape)
    print("last note:", run["notes"].asstr()[-1])
