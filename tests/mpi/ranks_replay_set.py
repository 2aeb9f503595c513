"""``ranks_replay_set.py SET OUT``: all ranks replay a set of subfiles, whoever wrote it."""

from __future__ import annotations

import sys

from mpi4py import MPI

import pnc_vol

assert pnc_vol.replay(sys.argv[1], output=sys.argv[2], comm=MPI.COMM_WORLD).whole
