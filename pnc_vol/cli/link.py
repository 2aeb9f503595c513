"""``pnc-vol link`` and ``refs`` let programs that read HDF5 or zarr read a NetCDF file, without a copy.

Knows: exit codes. Does not know: how link files and references are made (`convert.link`, `convert.zarr_refs`).
"""

from __future__ import annotations

from pnc_vol.cli.arguments import Options, Parser, Verb, add_quiet, at_least
from pnc_vol.cli.errors import expected, fail, refuse_address
from pnc_vol.cli.show import counted, safe
from pnc_vol.convert.link import link
from pnc_vol.convert.link_state import state_of
from pnc_vol.convert.zarr_refs import INLINE, write_references

__all__ = ["VERBS"]


def _link_arguments(parser: Parser) -> None:
    parser.add_argument("source", metavar="IN", help="A NetCDF classic file; with --check, a link file.")
    parser.add_argument("target", metavar="OUT", nargs="?", help="The HDF5 file to write.")
    parser.flag("--relative", help="Name IN relative to the folder of OUT, so that both can be moved.")
    parser.flag("--overwrite", help="Replace OUT, even if it is no link file of IN.")
    parser.flag("--check", help="Only print whether a link file is up to date.")
    add_quiet(parser)


def link_command(options: Options) -> int:
    """Make an HDF5 file that shows the values of a NetCDF file, without a copy.

    The same command makes a stale link file again. Exit code of --check: 0 up to date, 1 stale.
    """
    source, target = options.source, options.target
    if options.check:
        if target is not None:
            fail(target, "--check takes the link file alone")
        return _check(source, quiet=options.quiet)
    if target is None:
        fail(source, "name the HDF5 file to write: pnc-vol link IN OUT")
    refuse_address(source)
    with expected(source):
        made = link(source, target, relative=options.relative, overwrite=options.overwrite)
    for path, what, why in made.lost:
        print(f"{safe(path)}: {safe(what)} is not shown: {safe(why)}")
    if options.quiet:
        return 0
    if not made.written:
        print(f"{safe(target)}: up to date")
        return 0
    print(f"{safe(target)}: {counted(made.datasets, 'dataset')}, {counted(made.segments, 'range')} of {safe(source)}")
    if options.relative:
        print("HDF5 programs find it with: export HDF5_EXTFILE_PREFIX='${ORIGIN}'")
    return 0


def _check(path: str, *, quiet: bool) -> int:
    """Print whether a link file is up to date; 1 if it is not."""
    with expected(path):
        state = state_of(path)
    if state is None:
        fail(path, "it is no link file; pnc-vol link IN OUT makes one")
    if not state.stale and quiet:
        return 0
    verdict = f"stale: {state.stale}" if state.stale else f"up to date with {state.source}"
    print(f"{safe(path)}: {safe(verdict)}")
    return 1 if state.stale else 0


def _refs_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A NetCDF classic file, or its address.")
    parser.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="The file to write: .json, or .parquet (a folder)."
    )
    parser.add_argument("--url", help="The address under which readers will find FILE.")
    parser.add_argument(
        "--inline", type=at_least(0), default=INLINE, metavar="BYTES",
        help="Put record variables of up to so many bytes into the references.",
    )  # fmt: skip
    parser.flag("--overwrite", help="Replace the output if it exists.")


def refs_command(options: Options) -> int:
    """Write kerchunk references: zarr, and xarray by its zarr engine, then read FILE as it is."""
    with expected(options.file):
        written = write_references(
            options.file, options.output, url=options.url, inline=options.inline, overwrite=options.overwrite
        )
    print(f"{safe(options.output)}: {counted(written, 'reference')}")
    return 0


VERBS: dict[str, Verb] = {"link": (_link_arguments, link_command), "refs": (_refs_arguments, refs_command)}
