"""``pnc-vol doctor`` says what is installed and in force, what a file system can do, what would be faster.

Knows: packages, options, a folder to try things in. Does not know: files that are open.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pnc_vol
from pnc_vol.api.hints import read_hint_file
from pnc_vol.cli.arguments import Options, Parser, Verb, add_json
from pnc_vol.cli.errors import expected, fail, refuse_address
from pnc_vol.cli.show import human, painted, print_json, safe
from pnc_vol.settings.options import Options as FileOptions
from pnc_vol.settings.options import hints_file, launched, resolve
from pnc_vol.system import REAL, exists, free_bytes, in_memory, is_folder, scratch_folder, temporary_directory
from pnc_vol.system.full_io import write_all

__all__ = ["VERBS"]

PACKAGES = ("numpy", "h5py", "mpi4py", "netCDF4", "xarray", "dask", "fsspec")
SPEED = 64 << 20
"""Bytes that are written to try how fast a folder is."""
PATIENCE = 60
"""Seconds in which the MPI library must be loaded."""

Found = dict[str, Any]


def _arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="Where files are to be written.")
    add_json(parser)


def command(options: Options) -> int:
    """Say what is installed, which options are in force and what set them, what the file system of FOLDER can do,
    and what would be faster. Writes a temporary file of 64 MiB in FOLDER."""
    folder = options.folder
    if exists(REAL, folder) and not is_folder(REAL, folder):
        fail(folder, "it is a file; name the directory where files are to be written")
    refuse_address(folder)
    if not exists(REAL, folder):
        fail(folder, "there is no such directory; check the name")
    with expected(folder):
        in_force, hints = _options(folder)
        disk = _file_system(folder)
    found: Found = {"versions": _versions(), "mpi": _mpi(), "options": in_force, "hints": hints, "file system": disk}
    found["advice"] = _advice(found)
    if options.as_json:
        print_json(found)
        return 0
    for title, part in found.items():
        print(painted(title, "bold"))
        lines = [f"* {line}" for line in part] if isinstance(part, list) else []
        lines += [f"{name:26} {value}" for name, value in part.items()] if isinstance(part, dict) else []
        for line in lines:
            print(f"  {safe(line)}")
    return 0


def _versions() -> Found:
    """Return the versions of this package, Python, the system, and the optional packages."""
    found = {"pnc_vol": pnc_vol.__version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


_ASK_MPI = """
import json
try:
    import mpi4py
    mpi4py.rc.initialize = False  # a program that was not launched may not be able to start MPI
    from mpi4py import MPI
    version = MPI.Get_library_version().strip("\\0 \\n").splitlines()[0]
    print(json.dumps({"library": version, "standard": ".".join(map(str, MPI.Get_version()))}))
except (ImportError, RuntimeError) as error:
    print(json.dumps({"error": str(error)}))
"""


def _mpi() -> Found:
    """Return the MPI library that mpi4py finds.

    A child asks: to import `mpi4py.MPI` without starting MPI takes a setting that holds for the whole process, and a
    broken MPI library may end the process that loads it.
    """
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK_MPI], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        # the library itself may print, too
        found: Found = json.loads(asked.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        found = {"error": f"loading it took more than {PATIENCE} s"}
    except subprocess.CalledProcessError as error:
        found = {"error": (error.stderr.splitlines() or [f"loading it ended with code {error.returncode}"])[-1]}
    if "error" in found:
        return {"library": f"none ({found['error']}); pip install 'pnc-vol[mpi]', or mpi4py with the machine's MPI"}
    return found | {"launched": launched()}


def _options(folder: str) -> tuple[Found, Found]:
    """Return the options that a file in the folder has without arguments, and those that the environment or a file
    set."""
    path = hints_file(None)
    from_file = read_hint_file(path).match(os.path.join(REAL.realpath(folder), "*")) if path else None
    given = resolve({"hints": None}, from_file=from_file)
    options = {
        name: f"{value!r}" + ("" if value == default else f"  (default {default!r})")
        for name, value, default in zip(FileOptions._fields, given, FileOptions(), strict=True)
        if name not in ("hints", "sources", "system", "deferred_close")
    }
    hints = {name: f"set by {source}" for name, source in given.sources.items()}
    return options, hints | ({"hint file": path} if path else {}) or {"none": "neither the environment nor a hint file"}


def _file_system(folder: str) -> Found:
    """Return what the file system of a folder can do, tried."""
    found: Found = {"folder": REAL.realpath(folder), "free": human(free_bytes(folder))}
    found["in memory"] = in_memory(folder)
    with contextlib.ExitStack() as stack:
        try:
            scratch = stack.enter_context(temporary_directory(folder))
        except PermissionError as error:
            return found | {"locks": "not tried", "making a file": error.strerror}
        path = os.path.join(scratch, "try")
        fd = REAL.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            found["locks"] = _can(lambda: REAL.flock(fd))
            found["reserving space"] = _can(lambda: REAL.fallocate(fd, 0, 1 << 20))
            found["copies in the kernel"] = _can(lambda: _copied(scratch, fd))
            found["extended attributes"] = _can(lambda: REAL.setxattr(path, "user.pnc_vol", b"1"))
            found["hard links"] = _can(lambda: REAL.link(path, path + "2"))
            block = bytes(4 << 20)
            began = time.perf_counter()
            for at in range(0, SPEED, len(block)):
                write_all(REAL, fd, block, at)
            found["writing"] = f"{human(SPEED / (time.perf_counter() - began))}/s"
            began = time.perf_counter()
            REAL.fsync(fd)
            found["fsync of 64 MiB"] = f"{1e3 * (time.perf_counter() - began):.0f} ms"
        finally:
            REAL.close(fd)
    return found


def _copied(scratch: str, fd: int) -> None:
    """Copy a few bytes without reading them."""
    write_all(REAL, fd, b"pnc_vol", 0)
    other = REAL.open(os.path.join(scratch, "copy"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        REAL.copy_range(fd, other, 7, 0, 0)
    finally:
        REAL.close(other)


def _can(act: Callable[[], object]) -> str:
    try:
        act()
    except OSError as error:
        return f"no ({errno.errorcode.get(error.errno or 0, error)})"
    return "yes"


def _advice(found: Found) -> list[str]:
    """Return what would be faster or safer here."""
    disk, advice = found["file system"], []
    if disk["locks"] == "not tried":
        advice.append("no file can be made in this directory: get permission to write there, or use another one")
    elif disk["locks"] != "yes":
        advice.append("the file system has no locks: nothing keeps two programs from writing one file (locking=False)")
    if disk["in memory"]:
        advice.append("files in this folder are in memory, and gone after a restart")
    local = scratch_folder()
    if REAL.stat(local).st_dev != REAL.stat(disk["folder"]).st_dev and not in_memory(local):
        advice.append(f"{local} is another file system: e10_cache_path={local} hides this one behind it, if it is fast")
    if found["mpi"].get("launched") is False and found["versions"]["mpi4py"] != "not installed":
        advice.append("this is one process; under mpiexec, File(..., comm=comm) writes from all ranks together")
    if found["versions"]["h5py"] == "not installed":
        advice.append("h5py is not installed: pip install 'pnc-vol[hdf5]'")
    if sys.flags.dev_mode:
        advice.append("Python runs in development mode, which is slow")
    return advice or ["nothing"]


VERBS: dict[str, Verb] = {"doctor": (_arguments, command)}
