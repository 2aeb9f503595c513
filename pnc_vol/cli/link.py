"""``pnc-vol link``: HDF5 programs read a NetCDF file, without a copy.

Knows: exit codes. Does not know: how a link file is made (`interop.link`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from pnc_vol.cli.shared_options import Quiet
from pnc_vol.cli.show import counted, expected, fail, safe
from pnc_vol.convert.link import link
from pnc_vol.convert.link_state import state_of

__all__ = ["command"]


def command(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help="A NetCDF classic file; with --check, a link file.", show_default=False),
    ],
    target: Annotated[
        str | None, typer.Argument(metavar="OUT", help="The HDF5 file to write.", show_default=False)
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="Name IN relative to the folder of OUT, so that both can be moved.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT, even if it is no link file of IN.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say whether a link file is up to date.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make an HDF5 file that shows the values of a NetCDF file, without a copy.

    The same command makes a stale link file again. Exit code of --check: 0 up to date, 1 stale.
    """
    if check:
        if target is not None:
            fail(target, "--check takes the link file alone")
        raise typer.Exit(_check(source, quiet=quiet))
    if target is None:
        fail(source, "name the HDF5 file to write: pnc-vol link IN OUT")
    with expected(source):
        made = link(source, target, relative=relative, overwrite=overwrite)
    for path, what, why in made.lost:
        print(f"{safe(path)}: {safe(what)} is not shown: {safe(why)}")
    if quiet:
        return
    if not made.written:
        print(f"{safe(target)}: up to date")
        return
    print(f"{safe(target)}: {counted(made.datasets, 'dataset')}, {counted(made.segments, 'range')} of {safe(source)}")
    if relative:
        print("HDF5 programs find it with: export HDF5_EXTFILE_PREFIX='${ORIGIN}'")


def _check(path: str, *, quiet: bool) -> int:
    """Say whether a link file is up to date; 1 if it is not."""
    with expected(path):
        state = state_of(path)
    if state is None:
        fail(path, "it is no link file; pnc-vol link IN OUT makes one")
    if not state.stale and quiet:
        return 0
    said = f"stale: {state.stale}" if state.stale else f"up to date with {state.source}"
    print(f"{safe(path)}: {safe(said)}")
    return 1 if state.stale else 0
