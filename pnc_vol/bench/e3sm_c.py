"""E3SM-IO's own program as a peer, where it is installed: the same maps, options and number of processes.

Knows: the options and the report of ``e3sm_io``. Does not know: how pnc_vol writes. It is started by the process that
starts the ranks, not by a rank: what waits for it would take the processors from it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from pnc_vol.system import REAL, exists, temporary_directory

__all__ = ["c_program", "seconds"]

PROGRAM = "e3sm_io"
LAYOUTS = ("canonical", "blob")
_TIME = re.compile(r"^end-to-end time +min/max = +([\d.]+) / +([\d.]+)", re.MULTILINE)


def c_program(options: argparse.Namespace, launcher: Sequence[str]) -> Iterator[str]:
    """Run the C program as often as the benchmark ran, and report its time from open to close.

    Parameters
    ----------
    options : of the benchmark
    launcher : sequence of str, the command that starts a program on all ranks, of the MPI that both use.

    Yields
    ------
    str
        A line for each layout; none where the program is not installed, or is given maps that it cannot have.
    """
    program, layouts = shutil.which(PROGRAM), [one for one in LAYOUTS if one in options.layouts]
    maps = options.data / f"map_{options.case.lower()}_case_16p.nc"
    if program is None or options.synthetic or options.io_stride > 1 or not exists(REAL, maps):
        return
    for layout in layouts:
        with temporary_directory(options.dir) as folder:
            found = [_once(options, [*launcher, program], maps, layout, folder, i) for i in range(options.rounds)]
        middle = statistics.median(found)
        yield f"{PROGRAM} -a pnetcdf -x {layout}: open to close {middle:.3f} s ({min(found):.3f}-{max(found):.3f})"


def _once(options: argparse.Namespace, start: list[str], maps: PurePath, layout: str, folder: str, i: int) -> float:
    letters = [letter for letter, given in _letters(options) if given]
    numbers = ["-f", options.file, "-r", options.records, "-y", options.flush_every, "-e", options.expand]
    command = [*start, "-a", "pnetcdf", "-x", layout, *letters, *map(str, numbers), "-o", f"{folder}/{i}", str(maps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-400:]}{done.stderr[-400:]}")
    for name in REAL.listdir(folder):
        REAL.unlink(f"{folder}/{name}")
    return seconds(done.stdout)


def _letters(options: argparse.Namespace) -> list[tuple[str, bool]]:
    return [("-j", options.floats), ("-m", options.apart), ("-q", options.unsorted), ("-u", options.fill)]


def seconds(report: str) -> float:
    """From open to close of all files, by the slowest rank, from a report of the program.

    Examples
    --------
    >>> seconds("end-to-end time                    min/max =   0.50 /   0.75\\n")
    0.75
    """
    found = [float(most) for _, most in _TIME.findall(report)]
    if not found:
        raise ValueError(f"no time from open to close in the report of {PROGRAM}: {report[-200:]!r}")
    return sum(found)
