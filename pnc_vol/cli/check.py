"""``pnc-vol check``: whether files keep to the format, and their markers to what is in them.

Knows: exit codes. Does not know: the rules (`interop.checking`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from pnc_vol.cli.show import TROUBLE, counted, expected, fail, safe
from pnc_vol.interop.checking import check
from pnc_vol.interop.readers import READERS

__all__ = ["command"]

#: Findings of one file that are printed.
SHOWN = 100


def command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="NetCDF classic files.", show_default=False)],
    readers: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="PROGRAM", help="Report whether a program can read the files: gdal, scipy..."),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing about files that are valid.")] = False,
) -> None:
    """Check files against the format, and whether other programs can read them.

    Exit code: 0 all are valid and readable, 1 some are not, 2 some cannot be read.
    """

    wanted = readers or []
    for name in wanted:
        if name not in READERS:
            fail(name, f"--for: unknown program; known are {', '.join(READERS)}")
    code = 0
    for file in files:
        # One file that cannot be read is said and counted; the others are checked all the same.
        try:
            with expected(file):
                code = max(code, _one(file, wanted, quiet=quiet))
        except SystemExit:
            code = TROUBLE
    raise typer.Exit(code)


def _one(file: str, readers: list[str], *, quiet: bool) -> int:
    """Print what is to be said of one file; 1 if it breaks the format, or one of the programs does not read it."""

    found = check(file, readers=readers)
    findings = [finding for finding in found if finding.field not in readers]
    errors = sum(finding.severity == "error" for finding in findings)
    for finding in findings[:SHOWN]:
        place = "" if finding.offset < 0 else f"byte {finding.offset}: "
        print(f"{safe(file)}: {finding.severity}: {place}{safe(finding.field)}: {safe(finding.message)}")
    if len(findings) > SHOWN:
        print(f"{safe(file)}: {len(findings) - SHOWN} findings more")
    if errors or not quiet:
        verdict = "not valid" if errors else "valid"
        print(f"{safe(file)}: {verdict}, {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
    refused = False
    for name in readers if not errors else ():
        reasons = [finding.message for finding in found if finding.field == name]
        refused = refused or bool(reasons)
        for reason in reasons[:SHOWN]:
            print(f"{safe(file)}: for {name}: {safe(reason)}")
        if not reasons and not quiet:
            print(f"{safe(file)}: for {name}: readable")
    return 1 if errors or refused else 0
