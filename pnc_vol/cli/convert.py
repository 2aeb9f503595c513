"""``pnc-vol convert``: HDF5 to NetCDF and back.

Knows: progress bars, tables, exit codes. Does not know: how files are converted (`interop.hdf5`).
"""

from __future__ import annotations

import errno
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from pnc_vol.cli.shared_options import AllowSparse, FollowExternal, Quiet
from pnc_vol.cli.show import counted, expected, fail, human, safe
from pnc_vol.convert.hdf5 import LossError, convert
from pnc_vol.convert.report import Report

__all__ = ["WRITING", "bar", "command"]

WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What goes wrong with a target, and not with a source."""

#: Lines of one kind that are printed before the rest is only counted.
SHOWN = 20


def command(
    source: Annotated[str, typer.Argument(metavar="IN", help="An HDF5 or NetCDF classic file.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="OUT", help="The file to write, of the other kind.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing and exit 1 if anything would be lost.")
    ] = False,
    quiet: Quiet = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    format: Annotated[
        str | None, typer.Option("--format", help="For a NetCDF file: CDF-1, CDF-2 or CDF-5 (default).")
    ] = None,
    compression: Annotated[
        str | None, typer.Option("--compression", help="For an HDF5 file: gzip, lzf, or 0 to 9, a level of gzip.")
    ] = None,
    follow_external: FollowExternal = False,
    allow_sparse: AllowSparse = False,
    block: Annotated[int, typer.Option("--block-mib", min=1, help="Memory for values, in MiB.")] = 16,
) -> None:
    """Copy an HDF5 file to NetCDF, or a NetCDF file to HDF5, and report what was kept."""
    options: dict[str, Any] = {} if format is None else {"format": format}
    with expected(source):
        try:
            with bar(quiet=quiet) as progress:
                report = convert(
                    source,
                    target,
                    progress=progress,
                    block_bytes=block << 20,
                    strict=strict,
                    overwrite=overwrite,
                    compression=int(compression) if compression and compression.isdecimal() else compression,
                    follow_external=follow_external,
                    allow_sparse=allow_sparse,
                    **options,
                )
        except LossError as loss:
            if not quiet:
                _summary(loss.report, written=False)
            fail(
                source,
                f"{counted(len(loss.report.lost), 'thing')} cannot be kept; {target} was not written (see --strict)",
                1,
            )
        except OSError as error:
            # A disk that is full is the target's.
            with expected(target if error.errno in WRITING else source):
                raise
        except (TypeError, ValueError) as error:
            fail(source, error)
        if not quiet:
            _summary(report, written=True)


@contextmanager
def bar(*, quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """A progress bar on a terminal; else nothing, and nothing is loaded for it: rich takes 10 MiB."""
    if quiet or not sys.stdout.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    console = Console(highlight=False, markup=False)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def update(done: int, total: int, path: str) -> None:
            progress.update(task, completed=done, total=total, description=safe(path)[-40:])

        yield update


def _summary(report: Report, *, written: bool) -> None:
    rows = (
        ("direction", report.direction),
        ("written" if written else "not written", safe(report.target)),
        ("groups", str(report.groups)),
        ("datasets", str(report.datasets)),
        ("attributes", str(report.attributes)),
        ("values", human(report.bytes)),
        ("time", f"{report.seconds:.2f} s, {human(report.bytes / max(report.seconds, 1e-9))}/s"),
        ("peak memory", human(report.peak_bytes)),
        ("by convention", str(len(report.by_convention))),
        ("storage dropped", str(len(report.dropped))),
        ("lost", str(len(report.lost))),
    )
    for name, value in rows:
        print(f"{name:<15}  {value}")
    _list("by convention", [(path, what) for path, what in report.by_convention])
    _list("storage dropped", [(path, what) for path, what in report.dropped])
    _list("lost", [(path, f"{what}: {why}") for path, what, why in report.lost])


def _list(title: str, entries: list[tuple[str, str]]) -> None:
    """Print entries; many that say the same are counted instead."""
    if not entries:
        return
    print(f"\n{title}:")
    if len(entries) <= SHOWN:
        for path, what in entries:
            print(f"  {safe(path)}: {safe(what)}")
        return
    # "path -> variable name X" differs in the name alone.
    kinds = Counter(what.rpartition(" name ")[0] or what for _, what in entries)
    for what, count in kinds.most_common(SHOWN):
        first = next(path for path, said in entries if said.startswith(what))
        more = f" and {count - 1} more" if count > 1 else ""
        print(f"  {safe(first)}{more}: {safe(what)}")
    if len(kinds) > SHOWN:
        print(f"  and {len(kinds) - SHOWN} more kinds")
