"""``pnc-vol diff``: what differs between two files, NetCDF or HDF5.

Knows: what to print, exit codes. Does not know: how values are compared (`comparing`), which format a file is.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pnc_vol.cli.comparing import Comparison
from pnc_vol.cli.shared_options import AllowSparse, AsJson, FollowExternal
from pnc_vol.cli.show import expected, fail, painted, print_json, safe
from pnc_vol.convert.hdf5 import open_either
from pnc_vol.convert.space import declared_by, refuse_sparse

__all__ = ["command"]


def command(
    first: Annotated[str, typer.Argument(metavar="A", help="A NetCDF classic or HDF5 file.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B", help="The file to compare it with.", show_default=False)],
    header: Annotated[bool, typer.Option("-h", "--header", help="Compare the headers only, no values.")] = False,
    tolerance: Annotated[
        str | None,
        typer.Option("-t", "--tolerance", metavar="ABS,REL", help="Allow |a-b| <= ABS, or <= REL*max(|a|,|b|)."),
    ] = None,
    follow_external: FollowExternal = False,
    allow_sparse: AllowSparse = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing, only set the exit code.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare objects, attributes, dimensions and values.

    Exit code: 0 if they are the same, 1 if they differ, 2 if one cannot be read.
    """

    absolute, relative = _tolerance(tolerance)
    count = 0
    found: list[dict[str, str]] = []
    with expected(first), open_either(first) as a, expected(second), open_either(second) as b:
        for path, opened in ((first, a), (second, b)) if not header else ():
            refuse_sparse(path, declared_by(opened, follow_external=follow_external), allowed=allow_sparse)
        comparison = Comparison(
            a, b, values=not header, absolute=absolute, relative=relative, follow_external=follow_external
        )
        for path, sentence in comparison:
            count += 1
            if quiet:
                break
            if as_json:
                found.append({"path": path, "what": sentence})
            else:
                print(f"{painted(safe(path), 'yellow')}: {safe(sentence)}")
    if as_json and not quiet:
        print_json({"files": [first, second], "same": not count, "differences": found})
    if count:
        if not (quiet or as_json):
            print(f"{count} difference{'s' if count > 1 else ''}")
        raise typer.Exit(1)


def _tolerance(text: str | None) -> tuple[float, float]:
    """``abs,rel`` as two numbers."""
    if text is None:
        return 0.0, 0.0
    try:
        absolute, relative = (float(part) for part in text.split(","))
    except ValueError:
        absolute = relative = -1.0
    if not (absolute >= 0 and relative >= 0):
        fail("-t", f"{text!r} is not a tolerance; two numbers >= 0 are needed, as in -t 1e-6,1e-9")
    return absolute, relative
