"""Files of single days joined by a virtual dataset, and raw values of an instrument shown as a dataset.

Run:  python 14_data_elsewhere.py days
"""

from __future__ import annotations

import os
import sys

import numpy as np

import pnc_vol as h5py

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "days"
DAYS = 4


def main() -> None:
    os.makedirs(FOLDER, exist_ok=True)
    for day in range(DAYS):
        with h5py.File(os.path.join(FOLDER, f"day-{day}.nc"), "w") as f:
            f["temperature"] = 15 + np.sin(np.arange(24) * np.pi / 12) + day
    # What an instrument wrote: a header of 16 bytes, and numbers of 16 bits behind it.
    with open(os.path.join(FOLDER, "counts.bin"), "wb") as raw:
        raw.write(b"\0" * 16 + np.arange(24, dtype="<i2").tobytes())

    # One block for each file that is there, however many there will be.
    layout = h5py.VirtualLayout((DAYS, 24), "f8", maxshape=(None, 24))
    layout[: h5py.UNLIMITED] = h5py.VirtualSource("day-%b.nc", "temperature", (24,))
    path = os.path.join(FOLDER, "all.nc")
    with h5py.File(path, "w") as f:
        f.create_virtual_dataset("temperature", layout)
        f.create_dataset("counts", (24,), "<i2", external=[("counts.bin", 16, 48)])

    with h5py.File(path) as f:
        temperature, counts = f["temperature"], f["counts"]
        print("days", temperature.shape[0], "means", temperature[()].mean(axis=1).round(1).tolist())
        print("noon", temperature[:, 12].round(1).tolist(), "counts", counts[12:15].tolist())

    # Other NetCDF programs see the values in a file that has them.
    done = h5py.repack(path, os.path.join(FOLDER, "whole.nc"), materialize=True, overwrite=True)
    print("whole", done.after > done.before)


if __name__ == "__main__":
    main()
