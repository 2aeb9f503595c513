"""``pnc-vol plan``: what the flushes of an h5py script do, one line each.

Knows: how `run` starts a script, reports of flushes. Does not know: what the script does.
"""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from pnc_vol.cli import run
from pnc_vol.cli.dry_run import Aside
from pnc_vol.cli.shared_options import AsJson, Script, ScriptArguments
from pnc_vol.cli.show import fail, print_json, safe
from pnc_vol.file.report import FlushReport, watchers
from pnc_vol.settings.options import hint_all, launched, system_for_all
from pnc_vol.system import temporary_directory

__all__ = ["command"]

_COLUMNS = ("requests", "runs", "extents", "rounds", "bytes", "transport")
_PHASES = ("agree", "layout", "fill", "data", "header")


def command(
    script: Script,
    args: ScriptArguments = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write to copies, which are removed at the end, so that no file changes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a script with pnc_vol instead of h5py, and print what each flush does with the requests.

    Runs are what was posted, extents what was written, joined where they adjoin. The times are in milliseconds.
    """

    lines: list[tuple[str, ...]] = []
    flushes: list[dict[str, Any]] = []

    def note(flush: FlushReport) -> None:
        if as_json:
            flushes.append(flush._asdict())
            return
        counts = (flush.requests, flush.runs, flush.extents, flush.rounds, flush.nbytes)
        times = (f"{1e3 * flush.seconds.get(phase, 0.0):.2f}" for phase in _PHASES)
        lines.append((*map(str, counts), flush.transport or "-", *times, safe(os.path.basename(flush.path))))

    run.check_script(script)
    if dry_run:
        _write_nothing()
    watchers.append(note)
    try:
        run.command(script, args)
    finally:
        watchers.remove(note)
        if as_json:
            print_json(flushes)
        else:
            _print([(*_COLUMNS, *_PHASES, "file"), *lines])


def _write_nothing() -> None:
    """Let all files be written in a folder that goes when this process ends."""

    if launched():
        fail("--dry-run", "it runs in one process: start it without mpiexec")
    folder = ExitStack()
    system_for_all(Aside(folder.enter_context(temporary_directory())))
    # MPI-IO opens files by itself
    hint_all("pnc_driver=posix")
    # files that are still open are closed by functions that are registered later, and so run before
    atexit.register(folder.close)


def _print(lines: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        *numbers, file = line
        typer.echo("  ".join([*(text.rjust(width) for text, width in zip(numbers, widths, strict=False)), file]))
