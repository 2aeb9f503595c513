"""``pnc-vol convert`` and ``repack`` write a file anew, in the other format or without unused space.

Knows: tables, exit codes. Does not know: how files are converted (`convert.hdf5`) and repacked (`convert.repack`).
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pnc_vol.cli.arguments import Options, Parser, Verb, add_allow_sparse, add_follow_external, add_quiet, at_least
from pnc_vol.cli.errors import WRITING, at_the_terminal, expected, fail, refuse_address
from pnc_vol.cli.show import bar, counted, human, safe
from pnc_vol.convert.hdf5 import convert
from pnc_vol.convert.repack import Repacked, repack
from pnc_vol.convert.report import LossError, Report

__all__ = ["VERBS"]

#: Lines of one kind that are printed before the rest is only counted.
SHOWN = 20


def _convert_arguments(parser: Parser) -> None:
    parser.add_argument("source", metavar="IN", help="An HDF5 or NetCDF classic file.")
    parser.add_argument("target", metavar="OUT", help="The file to write, of the other kind.")
    parser.flag("--strict", help="Write nothing and exit 1 if anything would be lost.")
    add_quiet(parser)
    parser.flag("--overwrite", help="Replace OUT if it exists.")
    parser.add_argument("--format", help="For a NetCDF file: CDF-1, CDF-2 or CDF-5 (default).")
    parser.add_argument("--compression", help="For an HDF5 file: gzip, lzf, or 0 to 9, a level of gzip.")
    add_follow_external(parser)
    add_allow_sparse(parser)
    parser.add_argument("--block-mib", type=at_least(1), default=16, help="Memory for values, in MiB.")


def convert_command(options: Options) -> int:
    """Copy an HDF5 file to NetCDF, or a NetCDF file to HDF5, and report what was kept."""
    source, target, compression = options.source, options.target, options.compression
    chosen: dict[str, Any] = {} if options.format is None else {"format": options.format}
    with expected(source), _failures_of_target(source, target):
        try:
            with bar(quiet=options.quiet) as progress:
                report = convert(
                    source,
                    target,
                    progress=progress,
                    block_bytes=options.block_mib << 20,
                    strict=options.strict,
                    overwrite=options.overwrite,
                    compression=int(compression) if compression and compression.isdecimal() else compression,
                    follow_external=options.follow_external,
                    allow_sparse=options.allow_sparse,
                    **chosen,
                )
        except LossError as loss:
            if not options.quiet:
                _summary(loss.report, written=False)
            lost = counted(len(loss.report.lost), "thing")
            fail(source, f"{lost} cannot be kept; {target} was not written (see --strict)", 1)
        if not options.quiet:
            _summary(report, written=True)
    return 0


def _repack_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A NetCDF classic file.")
    parser.add_argument("target", metavar="TARGET", nargs="?", help="The file to write.")
    parser.flag("-i", "--in-place", help="Replace FILE by the new file when that is complete.")
    parser.flag("-n", "--dry-run", help="Only print how much space would be freed.")
    parser.flag("--overwrite", help="Replace TARGET if it exists.")
    parser.flag(
        "--materialize", help="Copy the values of virtual datasets and raw files into the file, as ordinary datasets."
    )
    parser.add_argument(
        "--external-links", choices=("below", "any"), default="below",
        help="With --materialize: where these files may be, below the folder of FILE or anywhere; default: below.",
    )  # fmt: skip
    parser.add_argument("--format", help="CDF-1, CDF-2 or CDF-5; default: that of FILE.")
    for name, least, about in (
        ("--header-reserve", 0, "Bytes to keep free behind the header."),
        ("--var-align", 1, "Align the data to multiples of so many bytes."),
        ("--record-align", 1, "Align the records to multiples of so many bytes."),
    ):
        parser.add_argument(name, type=at_least(least), metavar="BYTES", help=about)
    add_quiet(parser)


def repack_command(options: Options) -> int:
    """Free the space of deleted and moved datasets, dropped records and headers, and print how much it was."""
    file, target, dry_run = options.file, options.target, options.dry_run
    refuse_address(file)
    if (target is not None) + options.in_place > 1:
        fail(file, "give a TARGET or --in-place, not both")
    if target is None and not options.in_place and not dry_run:
        fail(file, "give a TARGET, or --in-place to replace it, or --dry-run to see what would be gained")
    placing = {name: getattr(options, name) for name in ("format", "header_reserve", "var_align", "record_align")}
    with (
        expected(file),
        _ended_tidily(),
        _failures_of_target(file, file if target is None else target),
        bar(quiet=options.quiet or dry_run) as progress,
    ):
        done = repack(
            file, target, overwrite=options.overwrite, materialize=options.materialize,
            external_links=options.external_links, dry_run=dry_run, progress=progress, **placing,
        )  # fmt: skip
    if not options.quiet:
        for line in _repacked_lines(done, dry_run=dry_run):
            print(line)
    return 0


@contextmanager
def _failures_of_target(source: str, target: str) -> Iterator[None]:
    """Name the target if the disk is full, and the source if an argument is wrong for it."""
    try:
        yield
    except OSError as error:
        with expected(target if error.errno in WRITING else source):
            raise
    except (TypeError, ValueError) as error:
        fail(source, error)


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
    _list("lost", [(path, f"{what}: {at_the_terminal(why)}") for path, what, why in report.lost])


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
        first = next(path for path, text in entries if text.startswith(what))
        more = f" and {count - 1} more" if count > 1 else ""
        print(f"  {safe(first)}{more}: {safe(what)}")
    if len(kinds) > SHOWN:
        print(f"  and {len(kinds) - SHOWN} more kinds")


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


def _repacked_lines(done: Repacked, *, dry_run: bool) -> Iterator[str]:
    """Yield what was gained, for people."""
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


VERBS: dict[str, Verb] = {
    "convert": (_convert_arguments, convert_command),
    "repack": (_repack_arguments, repack_command),
}
