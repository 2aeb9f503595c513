"""Much more than memory is allowed to hold: ``ranks_memory.py budget|large DIR``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
MIB = 1 << 20


def peak() -> int:
    """Bytes of memory that this process held at most, since `forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def forget_peak() -> int:
    with open("/proc/self/clear_refs", "w") as out:
        out.write("5")
    return peak()


def budget(folder: str) -> None:
    """Every rank writes 20 times its budget, in every way that data can go; its memory grows by little more than it."""
    size = 4 * MIB
    rows, columns = 20 * size // 8 // 4096, 4096
    mine = np.arange(columns, dtype="f8")
    for driver in ("mpio", "posix"):
        for kind in ("fixed", "records", "spilled", "large", "strings"):
            path = os.path.join(folder, f"{driver}.nc")
            with h5py.File(path, "w", driver=driver, comm=WORLD, buffer_size=size) as f:
                unlimited = (None, SIZE, columns) if kind in ("records", "spilled") else None
                dtype = "S8" if kind == "strings" else "f8"
                x = f.create_dataset("x", (rows, SIZE, columns), dtype, maxshape=unlimited)
                if kind == "records":
                    f.flush()
                source = mine.astype("S8") if kind == "strings" else mine
                WORLD.Barrier()
                before = forget_peak()
                if kind == "large":
                    x[:, RANK] = np.broadcast_to(mine, (rows, columns))
                else:
                    for i in range(rows):
                        x[i, RANK] = source
                f.flush()
                grown = peak() - before
                assert grown <= size + 64 * MIB, f"{driver}, {kind}: {grown / MIB:.0f} MiB on rank {RANK}"
                if RANK == 0:
                    print(f"{driver} {kind}: {grown / MIB:.1f} MiB of {20 * size / MIB:.0f} written", flush=True)
                for i in (0, rows // 2, rows - 1):
                    assert np.array_equal(x[i, (RANK + 1) % SIZE], source)
            WORLD.Barrier()
            if RANK == 0:
                os.unlink(path)


def large(folder: str) -> None:
    """2.2 GiB of each rank in one assignment, beyond what one call of MPI-IO may carry; read back in samples."""
    n = 2200 * MIB
    path = os.path.join(folder, "large.nc")
    with h5py.File(path, "w", driver="mpio", comm=WORLD) as f:
        x = f.create_dataset("x", (SIZE, n), "u1")
        tile = np.random.default_rng(RANK).integers(0, 256, MIB, dtype="u1")
        x[RANK] = np.tile(tile, n // MIB)
        f.flush()
        other = np.random.default_rng((RANK + 1) % SIZE).integers(0, 256, MIB, dtype="u1")
        for at in (0, 1, 1023, 2047, 2048, n // MIB - 1):
            assert np.array_equal(x[(RANK + 1) % SIZE, at * MIB : (at + 1) * MIB], other), at
        with x.collective:
            whole = x[RANK]
        assert whole.nbytes == n
        assert np.array_equal(whole[-MIB:], tile)
        assert np.array_equal(whole[2047 * MIB : 2048 * MIB], tile)
    if RANK == 0:
        assert os.path.getsize(path) > SIZE * n


if __name__ == "__main__":
    {"budget": budget, "large": large}[sys.argv[1]](sys.argv[2])
