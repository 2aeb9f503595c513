"""Jobs of ``mpiexec`` whose ranks are forked: a process that has loaded all modules waits for them.

Knows: the launcher, descriptors. Does not know: what the ranks do.

What ``mpiexec`` starts for each rank is `stand_in`, which loads a few modules of Python alone. It sends its environment
and its descriptors to the waiting process, which forks: the child is the rank, with the launcher's own connection. If
the child ends by a signal, so does what ``mpiexec`` started, and if the launcher ends that, the child is killed. So
the launcher does to a rank what it always does, and a job takes a fraction of a second.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import stand_in
from segments import remove_segments
from stand_in import MESSAGE

import pnc_vol
from pnc_vol.testing.mpi import find_mpiexec

LIMIT = 60
"""Seconds of a job."""


class Jobs:
    """Runs one function in jobs of any number of ranks; made before threads are started, in a process without MPI.

    work : callable, is given a text on each rank.
    """

    def __init__(self, work: Callable[[str], object]) -> None:
        self.folder = tempfile.mkdtemp(prefix="jobs")
        self._place = os.path.join(self.folder, "ranks")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self._place)
        listening.listen(64)
        theirs, self._mine = os.pipe()
        if not os.fork():
            os.close(self._mine)
            _serve(listening, theirs, work)
        os.close(theirs)
        listening.close()
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def run(self, ranks: int, given: str, *, nodes: int = 1) -> tuple[int, str]:
        """Run a job; how the launcher ended, and what the ranks said.

        Raises
        ------
        AssertionError
            It hangs.
        """
        command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-I", "-S", stand_in.__file__, self._place, given]
        env = os.environ | {"MPIR_CVAR_NUM_CLIQUES": str(nodes), "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
        job = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            told = job.communicate(timeout=LIMIT)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            job.kill()
            raise AssertionError(f"a job of {ranks} ranks hangs: {job.communicate()[0][-6000:]!r}") from None
        if job.returncode:
            remove_segments()
        return job.returncode, told


def _serve(listening: socket.socket, end: int, work: Callable[[str], object]) -> None:
    """Fork ranks until the process that wants them has ended. Never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    for one in pkgutil.walk_packages(pnc_vol.__path__, "pnc_vol."):
        if not one.name.startswith(("pnc_vol.cli", "pnc_vol.viewer", "pnc_vol.xarray")):
            with suppress(ImportError):  # what is not installed
                importlib.import_module(one.name)
    while end not in select.select([listening, end], [], [])[0]:
        pipe, _ = listening.accept()
        if not os.fork():
            listening.close()
            os.close(end)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _look_after(pipe, MPI, work)
        pipe.close()
    os._exit(0)


def _look_after(pipe: socket.socket, MPI: Any, work: Callable[[str], object]) -> None:
    """Fork one rank, and tell its stand-in how it ended. Never returns."""
    message, (out, err, pmi), _, _ = socket.recv_fds(pipe, MESSAGE, 3)
    env, given = json.loads(message)
    rank = os.fork()
    if not rank:
        pipe.close()
        _rank(MPI, work, given, env | {"PMI_FD": str(pmi)}, out, err)
    os.close(pmi)
    os.close(out)
    os.close(err)
    if pipe in select.select([pipe, os.pidfd_open(rank)], [], [])[0]:
        os.kill(rank, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])
    try:
        pipe.sendall(b"%d" % code)
    finally:
        os._exit(0)


def _rank(MPI: Any, work: Callable[[str], object], given: str, env: dict[str, str], out: int, err: int) -> None:
    """Be a rank. Never returns."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.environ.update(env)
    # where a rank hangs
    faulthandler.dump_traceback_later(LIMIT * 0.8)
    try:
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        work(given)
        MPI.Finalize()
        sys.stdout.flush()
        # what the MPI library does at the end of a process; Python's own end belongs to the process that was forked
        ctypes.CDLL(None).exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        # as `python -m mpi4py` does it
        MPI.COMM_WORLD.Abort(1)
