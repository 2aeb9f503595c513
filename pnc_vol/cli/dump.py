"""``pnc-vol dump``: the text form of a classic file, as ncdump prints it.

Knows: standard output. Does not know: CDL (`cdl`), the file's bytes (`stored`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from pnc_vol.cli import cdl
from pnc_vol.cli.classic_file import FileReader, StoredFile, open_stored
from pnc_vol.cli.shared_options import AllowSparse
from pnc_vol.cli.show import FAILED, expected, fail, on_disk
from pnc_vol.convert.space import declared_by_header, refuse_sparse
from pnc_vol.format import sizes
from pnc_vol.format.types import CHAR

__all__ = ["command"]


def _for_terminal(part: bytes) -> bytes:
    """Text with each byte of what is not printable as an escape: ncdump prints it as it is, and a terminal obeys it."""
    text = part.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return part
    shown = (c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)
    return "".join(shown).encode("utf-8")


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def command(
    file: Annotated[
        str,
        typer.Argument(help="A NetCDF classic file (CDF-1, CDF-2, CDF-5); - is standard input.", show_default=False),
    ],
    header: Annotated[bool, typer.Option("-h", "--header", help="Print the header only, no data.")] = False,
    variables: Annotated[
        str | None,
        typer.Option("-v", "--variables", metavar="NAME,...", help="Print data of these variables only."),
    ] = None,
    allow_sparse: AllowSparse = False,
) -> None:
    """Print a file as CDL, the text that ncgen reads, just as ncdump does."""

    with expected(file, code=FAILED), on_disk(file) as path, open_stored(path) as stored:
        wanted = variables.split(",") if variables is not None else None
        known = {var.name for var in stored.header.vars}
        for name in wanted or ():
            if name not in known:
                fail(file, f"there is no variable {name!r}; see pnc-vol dump -h", FAILED)
        if not header:
            refuse_sparse(file, declared_by_header(stored.header, stored.nbytes), allowed=allow_sparse)
        name = re.split(r"/", path)[-1]
        stem = name.rpartition(".")[0] if "." in name else name
        sections = None if header else _sections(stored, wanted)
        terminal = sys.stdout.isatty()
        out = sys.stdout.buffer
        for part in cdl.document(stem, stored.header, sections):
            out.write(_for_terminal(part) if terminal else part)
        out.flush()


def _sections(stored: StoredFile | FileReader, wanted: list[str] | None) -> Iterator[bytes]:
    """The data of each variable that has any."""

    for var in stored.header.vars:
        shape = sizes.shape(stored.header, var)
        if (wanted is not None and var.name not in wanted) or 0 in shape:
            continue
        rows = cdl.TextRows(var, shape) if var.type == CHAR else cdl.Rows(var, shape)
        for values in stored.values(var):
            yield from rows.feed(values)
