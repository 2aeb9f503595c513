"""``ranks_map_files.py PATH``: rank 0 reads a map file, and each rank gets what the serial reader deals to it."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

import pnc_vol
from pnc_vol.convert.map_files import read_maps

WORLD = MPI.COMM_WORLD
PATH = sys.argv[1]

maps = read_maps(PATH)
for compat in (False, True):
    mine = pnc_vol.read_decompositions(PATH, WORLD, compat=compat)
    assert len(mine) == len(maps)
    for got, one in zip(mine, maps, strict=True):
        start, length = one.of_rank(WORLD.rank, WORLD.size, compat=compat)
        np.testing.assert_array_equal(got.starts.ravel(), start)
        np.testing.assert_array_equal(got.counts.ravel(), length)
        assert got.shape == one.dims
sys.stdout.write("as dealt\n")
try:
    pnc_vol.read_decompositions(PATH + ".missing", WORLD)
except OSError as error:
    sys.stdout.write(f"no such file: {type(error).__name__}\n")
