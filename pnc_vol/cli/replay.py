"""``pnc-vol replay``: what a killed job had posted goes to its file, and what subfiles hold to one file.

Knows: exit codes, options. Does not know: logs (`log`), subfiles.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Annotated, Any

import typer

from pnc_vol.blob.replay import BlobReport
from pnc_vol.cli.convert import WRITING, bar
from pnc_vol.cli.log import DAMAGED, LEFT
from pnc_vol.cli.shared_options import Quiet
from pnc_vol.cli.show import counted, expected, fail, human, refuse_address, safe
from pnc_vol.drivers.mpi_library import world
from pnc_vol.errors import LogRefusedError
from pnc_vol.file.leftovers import ReplayReport
from pnc_vol.recovery import replay

__all__ = ["REFUSED", "command"]

SHOWN = 8
"""Variables with holes that are named."""

REFUSED = 3
"""Exit code: the logs may be good, and are not for this file, or not now."""


def command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The NetCDF file of the job; with -o the name of a set of subfiles, or of one of them.",
            show_default=False,
        ),
    ],
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
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Write what the subfiles of FILE hold to one file.",
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option("--vars", metavar="NAME,...", help="With -o: these datasets and groups only.", show_default=False),
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="With -o: CDF-1, CDF-2 or CDF-5 (default).", show_default=False)
    ] = None,
    header_reserve: Annotated[
        int | None,
        typer.Option("--header-reserve", min=0, help="With -o: bytes to keep free behind the header."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With -o: replace OUT if it exists.")] = False,
    allow_holes: Annotated[
        bool,
        typer.Option("--allow-holes", help="With -o: exit with 0 although elements are in no subfile."),
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="With -o: remove the subfiles when OUT is whole and on the disk.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write the contents of burst-buffer logs into a file, or with -o those of a set of subfiles to one file.

    Started by mpiexec, its processes do one replay together.

    Exit code: 0 all of it is in the file (or there was nothing), 1 something was dropped and reported, or elements are
    in no subfile, 2 a log or a subfile is damaged or cannot be read, 3 refused.
    """

    refuse_address(file)
    comm = world()
    if output is not None:
        if logs or partial or salvage or any_file or uncounted:
            fail(file, "-o is for sets of subfiles: it takes no logs, and no options of logs")
        options: dict[str, Any] = {"format": format, "header_reserve": header_reserve}
        with _rank_0_prints(comm), expected(file):
            whole = _blobs(
                file, output, comm, names, options, overwrite=overwrite, remove=remove, allow=allow_holes, quiet=quiet
            )
        raise typer.Exit(0 if whole or allow_holes else LEFT)
    if names or format or header_reserve is not None or overwrite or allow_holes or remove:
        fail(file, "give the file to be written with -o; without it only logs are replayed")
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


def _blobs(
    file: str,
    output: str,
    comm: Any,
    names: str | None,
    options: dict[str, Any],
    *,
    overwrite: bool,
    remove: bool,
    allow: bool,
    quiet: bool,
) -> bool:
    """Replay a set of subfiles; whether nothing was missing."""
    given = {name: value for name, value in options.items() if value is not None}
    chosen = None if names is None else [name for name in names.split(",") if name]
    try:
        with bar(quiet=quiet or (comm is not None and comm.rank > 0)) as progress:
            report = replay(
                file,
                output=output,
                comm=comm,
                variables=chosen,
                overwrite=overwrite,
                remove=remove,
                progress=progress,
                **given,
            )
    except OSError as error:
        # A disk that is full, and a name that is taken, are the target's.
        with expected(output if error.errno in (*WRITING, errno.EEXIST) else file):
            raise
    except (TypeError, ValueError) as error:
        fail(file, error)
    if not quiet or not (report.whole or allow):
        for line in blob_lines(report):
            print(line)
    return bool(report.whole)


def blob_lines(report: BlobReport) -> Iterator[str]:
    """What a replay of subfiles did, for people."""
    subfiles = counted(report.subfiles, "subfile")
    yield (
        f"{safe(report.target)}: {counted(report.variables, 'variable')}, {human(report.nbytes)} of {subfiles} "
        f"(written by {counted(report.nprocs, 'rank')}), {report.seconds:.2f} s"
    )
    for one in report.maps:
        shape = " x ".join(map(str, one.dims))
        counts = f"{one.covered} of {one.nelems} elements in blobs, {one.none} in none, {one.several} in several"
        yield f"  {one.name} ({shape}): {counts}"
        if one.open:
            shown = ", ".join(map(safe, one.open[:SHOWN])) + (", ..." if len(one.open) > SHOWN else "")
            yield f"    hole: {counted(one.none, 'element')} of {shown} in no subfile, filled with the fill value"
    if report.lost_records:
        yield f"  {counted(report.lost_records, 'record')} left out, which some subfiles have and others lack"
    if report.removed:
        yield f"  {counted(report.removed, 'subfile')} removed"


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
