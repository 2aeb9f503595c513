"""``pnc-vol replay``: what a killed job had posted goes to its file.

Knows: exit codes, options. Does not know: logs (`log`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Annotated, Any

import typer

from pnc_vol.api.recovery import replay
from pnc_vol.cli.log import DAMAGED, LEFT
from pnc_vol.cli.show import expected, fail, safe
from pnc_vol.drivers.mpi_library import world
from pnc_vol.errors import LogRefusedError
from pnc_vol.recovery.replay import ReplayReport

__all__ = ["REFUSED", "command"]

REFUSED = 3
"""Exit code: the logs may be good, and are not for this file, or not now."""


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The NetCDF file of the job.", show_default=False)],
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOGS...]",
            help="Metadata logs (NAME.meta) or folders of them, which are kept; by default those that killed jobs left "
            "beside the file or noted there, which are removed afterwards.",
            show_default=False,
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Replay the logs of some ranks if those of others are missing.")
    ] = False,
    salvage: Annotated[bool, typer.Option("--salvage", help="Replay the intact entries of a damaged log.")] = False,
    any_file: Annotated[
        bool,
        typer.Option("--any-file", help="Also replay logs of another file that had this name before."),
    ] = False,
    uncounted: Annotated[
        bool,
        typer.Option("--uncounted", help="Also replay entries beyond the count in a log of the C library."),
    ] = False,
) -> None:
    """Write the contents of burst-buffer logs into a file. Started by mpiexec, its processes do one replay together.

    Exit code: 0 all of it is in the file (or there was nothing), 1 something was dropped and reported, 2 a log is
    damaged or cannot be read, 3 refused.
    """

    comm = world()
    with _rank_0_prints(comm), expected(file):
        try:
            report = replay(
                file, logs or None, comm=comm, partial=partial, salvage=salvage, uncounted=uncounted, any_file=any_file
            )
        except LogRefusedError as error:
            fail(file, error, REFUSED)
        for line in lines(file, report):
            print(line)
    raise typer.Exit(0 if report.whole else DAMAGED if report.damaged else LEFT)


@contextmanager
def _rank_0_prints(comm: Any) -> Iterator[None]:
    """Let rank 0 alone print: all ranks have the same report, or the same error."""
    if comm is None or comm.rank == 0:
        yield
        return
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


def lines(file: str, report: ReplayReport) -> Iterator[str]:
    """What a replay did, for people."""
    logs = "1 log" if report.logs == 1 else f"{report.logs} logs"
    if report.caches:
        yield f"{safe(file)}: {report.carried} bytes and {report.headers} headers carried from {report.caches} caches"
    if not report.logs and report.caches:
        pass
    elif not report.logs:
        yield f"{safe(file)}: no job left a log of this file{' that may be looked into' if report.closed else ''}"
    elif report.uncounted and not report.replayed:
        # What the C library leaves after each flush, so also at the end of every run.
        yield (
            f"{safe(file)}: nothing replayed. Use --uncounted to replay the {report.uncounted} requests of {logs}: "
            "they are beyond its count, as a flush or a regular close leaves them, so the file may hold them already"
        )
    else:
        yield f"{safe(file)}: {report.replayed - report.failed} requests of {logs} replayed"
    for count, what in (
        (report.cancelled, "cancelled by their program, not replayed"),
        (report.flushed, "in the file already"),
        (
            report.uncounted if report.replayed else 0,
            "beyond the count of the log, not replayed (--uncounted does)",
        ),
        (report.torn, "never committed, dropped"),
        (report.failed, "with values that do not fit, not replayed"),
    ):
        if count:
            yield f"  {count} {what}"
    if report.torn_bytes:
        yield f"  {report.torn_bytes} bytes at the end of a log dropped"
    for folder in report.closed:
        yield f"  not looked into: {safe(folder)}"
    for path in report.created:
        yield f"  made {safe(path)}"
    for message in report.messages:
        yield f"  {safe(message)}"
