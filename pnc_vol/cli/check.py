"""``pnc-vol check``: whether files keep to the format, and their markers to what is in them.

Knows: exit codes. Does not know: the rules (`interop.checking`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from pnc_vol.cli.show import TROUBLE, counted, expected, safe

__all__ = ["command"]

#: Findings of one file that are printed.
SHOWN = 100


def command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="NetCDF classic files.", show_default=False)],
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing of files that are valid.")] = False,
) -> None:
    """Check files against the format. Exit code: 0 all valid, 1 some are not, 2 some cannot be read."""
    code = 0
    for file in files:
        # One file that cannot be read is said and counted; the others are checked all the same.
        try:
            with expected(file):
                code = max(code, _one(file, quiet=quiet))
        except SystemExit:
            code = TROUBLE
    raise typer.Exit(code)


def _one(file: str, *, quiet: bool) -> int:
    """Print what is to be said of one file; 1 if it breaks the format."""
    from pnc_vol.interop.checking import check

    findings = check(file)
    errors = sum(finding.severity == "error" for finding in findings)
    for finding in findings[:SHOWN]:
        place = "" if finding.offset < 0 else f"byte {finding.offset}: "
        print(f"{safe(file)}: {finding.severity}: {place}{safe(finding.field)}: {safe(finding.message)}")
    if len(findings) > SHOWN:
        print(f"{safe(file)}: {len(findings) - SHOWN} findings more")
    if errors or not quiet:
        verdict = "not valid" if errors else "valid"
        print(f"{safe(file)}: {verdict}, {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
    return 1 if errors else 0
