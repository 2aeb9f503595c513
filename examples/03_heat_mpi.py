"""The 2-D heat equation on any number of ranks, written as it runs.

    python examples/03_heat_mpi.py heat.nc
    mpiexec -n 4 python examples/03_heat_mpi.py heat.nc
    python examples/03_plot.py heat.nc heat.png

The plate is divided into blocks, one per rank. At every step neighbours exchange their edges; every few steps each rank
posts its block as part of one record, and every few records all ranks flush together. The file is the same, byte for
byte, for every number of ranks. Without mpi4py the program runs on its own.
"""

import argparse

import numpy as np

import pnc_vol as h5py

try:
    from mpi4py import MPI
except ImportError:
    MPI = None


class Plate:
    """This rank's block of a square plate, with one row and column of neighbours' cells (ghosts) on each side."""

    def __init__(self, n):
        self.n = n
        ranks = MPI.COMM_WORLD.Get_size() if MPI else 1
        self.cart = MPI.COMM_WORLD.Create_cart(MPI.Compute_dims(ranks, 2)) if ranks > 1 else None
        dims, _, at = self.cart.Get_topo() if self.cart else ((1, 1), None, (0, 0))
        (y0, y1), (x0, x1) = ((n * i // parts, n * (i + 1) // parts) for i, parts in zip(at, dims, strict=True))
        self.block = np.s_[y0:y1, x0:x1]
        self.u = np.zeros((y1 - y0 + 2, x1 - x0 + 2))
        y, x = np.ogrid[y0 - 1 : y1 + 1, x0 - 1 : x1 + 1]
        y, x = (y + 0.5) / n, (x + 0.5) / n
        # Two hot discs on a cold plate, and a warm lower edge.
        self.u[(y - 0.65) ** 2 + (x - 0.3) ** 2 < 0.02] = 100
        self.u[(y - 0.4) ** 2 + (x - 0.7) ** 2 < 0.01] = 80
        self.warm_edge = y0 == 0

    @property
    def inner(self):
        return self.u[1:-1, 1:-1]

    def exchange_edges(self):
        u = self.u
        if self.cart:
            for axis, (first, last) in enumerate(((np.s_[1, :], np.s_[-2, :]), (np.s_[:, 1], np.s_[:, -2]))):
                low, high = self.cart.Shift(axis, 1)
                for send, to, ghost, source in (
                    (last, high, (0, first), low),
                    (first, low, (-1, last), high),
                ):
                    got = np.zeros_like(u[send])
                    self.cart.Sendrecv(np.ascontiguousarray(u[send]), to, recvbuf=got, source=source)
                    where = np.s_[ghost[0], :] if axis == 0 else np.s_[:, ghost[0]]
                    u[where] = got
        if self.warm_edge:
            u[0, :] = 40

    def step(self, k):
        """One explicit step; `k` is diffusivity times the time step over the square of the cell's width."""
        self.exchange_edges()
        u = self.u
        self.inner[...] += k * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * self.inner)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", default="heat.nc")
    parser.add_argument("--n", type=int, default=96, help="cells along each side")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=100, help="steps from one record to the next")
    parser.add_argument("--flush", type=int, default=5, help="records from one flush to the next")
    args = parser.parse_args()

    plate = Plate(args.n)
    rank = plate.cart.Get_rank() if plate.cart else 0
    shared = {"driver": "mpio", "comm": plate.cart} if plate.cart else {}

    with h5py.File(args.path, "w", **shared) as f:
        # Definitions: every rank makes the same ones, and no rank waits for another.
        f.attrs.update(Conventions="CF-1.8", title="2-D heat equation")
        u = f.create_dataset("u", (0, args.n, args.n), "f8", maxshape=(None, args.n, args.n))
        time = f.create_dataset("time", (0,), "f8", maxshape=(None,))
        y, x = (f.create_dataset(name, (args.n,), "f8") for name in "yx")
        u.attrs.update(units="degree_Celsius", long_name="temperature")
        # CF's time: programs that know the convention show dates.
        time.attrs.update(units="seconds since 2000-01-01", standard_name="time", calendar="standard", axis="T")
        for axis, (name, scale) in enumerate((("time", time), ("y", y), ("x", x))):
            if name != "time":
                scale.attrs.update(units="m", long_name=f"distance along {name}")
            scale.make_scale(name)
            u.dims[axis].attach_scale(scale)
        if rank == 0:
            x[:] = y[:] = (np.arange(args.n) + 0.5) / args.n

        k = 0.2
        dt = k / args.n**2
        for step in range(args.steps + 1):
            if step % args.every == 0:
                record = step // args.every
                u.resize(record + 1, axis=0)
                time.resize(record + 1, axis=0)
                # Data: each rank posts its own part. Nothing is written yet, and `plate` may go on at once.
                u[(record, *plate.block)] = plate.inner
                if rank == 0:
                    time[record] = step * dt
                if (record + 1) % args.flush == 0:
                    f.flush()
            plate.step(k)

        # What other ranks posted is seen after a flush, which all ranks call.
        f.flush()
        with u.collective:
            mean = u[-1].mean()
        if rank == 0:
            units = u.attrs["units"]
            print(f"{args.path}: {u.shape[0]} records of {args.n} x {args.n} cells, last mean {mean:.3f} {units}")


if __name__ == "__main__":
    main()
