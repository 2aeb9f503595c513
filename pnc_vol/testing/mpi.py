"""Run a program on several MPI processes from a test.

Knows: the two launchers that pip installs (MPICH's and Open MPI's) and their ways. Does not know: mpi4py in this
process; it is loaded only in the processes that are started.

Rules
-----
1. The launcher beside the running Python comes first: it belongs to the MPI library that mpi4py loads there.
2. A rank that raises ends all (``python -m mpi4py``); a job that hangs is killed, by the launcher at the time limit and
   by this process some seconds later. No process outlives the test.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys

__all__ = ["find_mpiexec", "flavour", "missing", "run_mpi"]


@functools.cache
def find_mpiexec() -> str | None:
    """Return the path of the launcher: the one beside this Python, else the first on PATH, else None."""
    beside = os.path.dirname(sys.executable)
    return shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")


@functools.cache
def flavour(mpiexec: str) -> str:
    """Return whose launcher it is: ``"openmpi"`` or ``"mpich"``."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60, check=False)
    text = version.stdout + version.stderr
    return "openmpi" if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text else "mpich"


def missing() -> str:
    """Return why MPI programs cannot be started here, or nothing: for ``pytest.mark.skipif(bool(missing()),
    reason=...)``."""
    if importlib.util.find_spec("mpi4py") is None:
        return 'mpi4py is not installed (pip install "pnc-vol[mpi]")'
    if find_mpiexec() is None:
        return 'mpiexec is not installed (pip install "pnc-vol[mpi]")'
    return ""


def run_mpi(
    nprocs: int,
    program: str | os.PathLike[str],
    *args: object,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a Python program on `nprocs` MPI processes.

    Parameters
    ----------
    nprocs : int
    program : str or path
        A script (ends in ``.py``), else a module's name.
    *args : object
        Its arguments, made text.
    timeout : float
        Seconds until the job is killed.
    env : dict, optional
        More environment variables.
    check : bool
        Raise if the job fails.

    Returns
    -------
    subprocess.CompletedProcess
        With both outputs as text.

    Raises
    ------
    AssertionError
        The job took too long, or (`check`) returned other than 0; with its output.
    RuntimeError
        There is no launcher; `missing` reports that beforehand.
    """
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise RuntimeError(missing())
    program = os.fspath(program)
    command = [mpiexec, "-n", str(nprocs)]
    if flavour(mpiexec) == "openmpi":
        command += ["--oversubscribe", "--timeout", str(int(timeout) + 1)]
    command += [sys.executable, "-m", "mpi4py", *([program] if program.endswith(".py") else ["-m", program])]
    command += [str(arg) for arg in args]
    job = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=_environment(timeout) | (env or {}),
    )
    late = False
    try:
        out, err = job.communicate(timeout=timeout + 5)
    except BaseException as error:
        _kill(job)
        out, err = job.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        late = True
    # A launcher that is told to end may call that a success.
    done = subprocess.CompletedProcess(command, job.returncode or (-signal.SIGKILL if late else 0), out, err)
    # The launchers' own time limits end the job with a number of their own, so the clock's verdict is in the text.
    if check and done.returncode:
        raise AssertionError(
            f"{' '.join(command)} returned {done.returncode} (time limit {timeout:g} s)\n"
            f"--- stdout\n{out[-8000:]}\n--- stderr\n{err[-8000:]}"
        )
    return done


def _environment(timeout: float) -> dict[str, str]:
    return {
        **os.environ,
        "MPIEXEC_TIMEOUT": str(int(timeout) + 1),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # More ranks than cores: give the core away while waiting. With MPICH it takes a third of the processor time of
        # three ranks on two cores that exchange little and often.
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def _kill(job: subprocess.Popen[str]) -> None:
    """End the launcher's whole session, the launcher first so that it ends its processes."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(job.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(timeout=3)
