"""tables_io: a catalogue that all ranks write, each its rows, piece by piece; on one rank without MPI.

mpiexec -n 4 python tables_io_ranks.py FILE ROWS
"""

import sys

import numpy as np
from mpi4py import MPI
from tables_io import hdf5

path, rows = sys.argv[1], int(sys.argv[2])
comm = MPI.COMM_WORLD
columns = {"id": ((rows,), "i8"), "redshift": ((rows,), "f4"), "pdf": ((rows, 32), "f8")}
groups, file = hdf5.initialize_HDF5_write(path, comm=comm if comm.size > 1 else None, catalogue=columns)
first, end = rows * comm.rank // comm.size, rows * (comm.rank + 1) // comm.size
for start in range(first, end, 5000):
    n = np.arange(start, min(start + 5000, end))
    piece = {"id": n, "redshift": np.sqrt(n).astype("f4"), "pdf": np.sin(n[:, None] + np.arange(32.0))}
    hdf5.write_dict_to_HDF5_chunk(groups, {"catalogue": piece}, start, int(n[-1]) + 1)
hdf5.finalize_HDF5_write(file, "meta", rows=np.array([rows]))
comm.Barrier()
if comm.rank == 0:
    found = hdf5.read_HDF5_to_dict(path, "catalogue")
    for name, column in sorted(found.items()):
        print(name, column.dtype, column.shape, repr(column.sum()))
    print(hdf5.read_HDF5_to_dict(path, "meta")["rows"].tolist())
