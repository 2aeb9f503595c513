"""``pnc-vol repack``: a file without the space that nothing in it uses.

Knows: exit codes, what to say. Does not know: how files are repacked (`interop.repack`).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from pnc_vol.cli.convert import WRITING, bar
from pnc_vol.cli.shared_options import Quiet
from pnc_vol.cli.show import expected, fail, human, refuse_address, safe
from pnc_vol.convert.repack import Repacked, repack

__all__ = ["command"]


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A NetCDF classic file.", show_default=False)],
    target: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="The file to write.", show_default=False)
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", "-i", help="Replace FILE by the new file when that is complete.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only print how much space would be freed.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace TARGET if it exists.")] = False,
    format: Annotated[
        str | None, typer.Option("--format", help="CDF-1, CDF-2 or CDF-5; default: that of FILE.")
    ] = None,
    header_reserve: Annotated[
        int | None, typer.Option("--header-reserve", min=0, help="Bytes to keep free behind the header.")
    ] = None,
    var_align: Annotated[
        int | None, typer.Option("--var-align", min=1, help="Align the data to multiples of so many bytes.")
    ] = None,
    record_align: Annotated[
        int | None,
        typer.Option("--record-align", min=1, help="Align the records to multiples of so many bytes."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Free the space of deleted and moved datasets, dropped records and headers, and print how much it was."""
    refuse_address(file)
    if (target is not None) + in_place > 1:
        fail(file, "give a TARGET or --in-place, not both")
    if target is None and not in_place and not dry_run:
        fail(file, "give a TARGET, or --in-place to replace it, or --dry-run to see what would be gained")
    options: dict[str, Any] = {
        "format": format,
        "header_reserve": header_reserve,
        "var_align": var_align,
        "record_align": record_align,
    }
    with expected(file), _ended_tidily():
        try:
            with bar(quiet=quiet or dry_run) as progress:
                done = repack(file, target, overwrite=overwrite, dry_run=dry_run, progress=progress, **options)
        except OSError as error:
            # A disk that is full is the target's.
            with expected(target if target is not None and error.errno in WRITING else file):
                raise
        except (TypeError, ValueError) as error:
            fail(file, error)
    if not quiet:
        for line in _lines(done, dry_run=dry_run):
            print(line)


@contextmanager
def _ended_tidily() -> Iterator[None]:
    """Let a job scheduler's SIGTERM end the program as an exception does: what is half made goes."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _lines(done: Repacked, *, dry_run: bool) -> Iterator[str]:
    """What was gained, for people."""
    sizes = f"{human(done.before)} -> {human(done.after)}"
    if not done.written and (not dry_run or not done.gained):
        yield f"{safe(done.source)}: {human(done.before)}, nothing to gain"
    elif done.gained < 0:
        yield f"{safe(done.target)}: {sizes}, {human(-done.gained)} more{' needed' if dry_run else ''}"
    else:
        yield f"{safe(done.target)}: {sizes}, {human(done.gained)} {'to gain' if dry_run else 'gained'}"
    if done.records > 0:
        yield f"  {human(done.records)} of it were records that no dataset has"
    if done.missing:
        yield f"  {human(done.missing)} of data are missing at the end of {safe(done.source)}, and of the new file"
