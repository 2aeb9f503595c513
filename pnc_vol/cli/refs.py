"""``pnc-vol refs``: zarr programs read a NetCDF file, without a copy and without this package.

Knows: exit codes. Does not know: what references are (`interop.zarr_refs`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from pnc_vol.cli.show import counted, expected, safe
from pnc_vol.convert.zarr_refs import INLINE, write_references

__all__ = ["command"]


def command(
    file: Annotated[str, typer.Argument(help="A NetCDF classic file, or its address.", show_default=False)],
    output: Annotated[
        str,
        typer.Option("-o", "--output", help="The file to write: .json, or .parquet (a folder).", show_default=False),
    ],
    url: Annotated[
        str | None, typer.Option("--url", help="The address under which readers will find FILE.", show_default=False)
    ] = None,
    inline: Annotated[
        int, typer.Option("--inline", min=0, help="Put record variables of up to so many bytes into the references.")
    ] = INLINE,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")] = False,
) -> None:
    """Write kerchunk references: zarr, and xarray by its zarr engine, then read FILE as it is."""
    with expected(file):
        written = write_references(file, output, url=url, inline=inline, overwrite=overwrite)
    print(f"{safe(output)}: {counted(written, 'reference')}")
