"""``pnc-vol plan``: what the flushes of an h5py script do, one line each.

Knows: how `run` starts a script, reports of flushes. Does not know: what the script does.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pnc_vol.cli import run
from pnc_vol.cli.show import safe

__all__ = ["command"]

_COLUMNS = ("requests", "runs", "extents", "rounds", "bytes", "transport")
_PHASES = ("agree", "layout", "fill", "data", "header")


def command(
    script: Annotated[str, typer.Argument(help="A Python script that imports h5py.", show_default=False)],
    args: Annotated[
        list[str] | None, typer.Argument(help="Its arguments, options included.", show_default=False)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Keep the files that it writes in memory: nothing is stored.")
    ] = False,
) -> None:
    """Run a script with pnc_vol in the place of h5py, and say of every flush what became of what was posted.

    Runs are what was posted, extents what was written, joined where they adjoin. The times are in milliseconds.
    """
    from pnc_vol.options import hint_all
    from pnc_vol.pending.report import FlushReport, watchers

    lines: list[tuple[str, ...]] = []

    def note(flush: FlushReport) -> None:
        counts = (flush.requests, flush.runs, flush.extents, flush.rounds, flush.nbytes)
        times = (f"{1e3 * flush.seconds.get(phase, 0.0):.2f}" for phase in _PHASES)
        lines.append((*map(str, counts), flush.transport or "-", *times, safe(os.path.basename(flush.path))))

    if dry_run:
        hint_all("pnc_driver=memory")
    watchers.append(note)
    try:
        run.command(script, args)
    finally:
        watchers.remove(note)
        _print([(*_COLUMNS, *_PHASES, "file"), *lines])


def _print(lines: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        *numbers, file = line
        typer.echo("  ".join([*(text.rjust(width) for text, width in zip(numbers, widths, strict=False)), file]))
