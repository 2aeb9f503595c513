"""``pnc-vol log`` prints logs; ``replay`` writes what a killed job had posted, or a set of subfiles, into one file.

Knows: exit codes, options. Does not know: the bytes of logs (`burst`, `cache`), subfiles (`blob`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from pnc_vol.blob.replay import BlobReport
from pnc_vol.burst.recovery.printing import log_text
from pnc_vol.burst.recovery.scan import Verdict
from pnc_vol.burst.recovery.sources import LogSource, named_logs, sources_of
from pnc_vol.cache.folders import cache_text, is_cache_folder
from pnc_vol.cli.arguments import Options, Parser, Verb, add_json, add_quiet, at_least
from pnc_vol.cli.errors import WRITING, each, expected, fail, refuse_address
from pnc_vol.cli.show import bar, counted, human, print_json, safe
from pnc_vol.drivers.mpi_library import world
from pnc_vol.errors import LogRefusedError
from pnc_vol.file.leftovers import ReplayReport
from pnc_vol.recovery import replay
from pnc_vol.system import REAL

__all__ = ["VERBS"]

LEFT, DAMAGED, REFUSED = 1, 2, 3
"""Exit codes: something is not in the file, or was dropped; a log is damaged; the logs may be good, and are not for
this file, or not now."""

SHOWN = 8
"""Variables with holes that are named."""


def _log_arguments(parser: Parser) -> None:
    parser.files("logs", metavar="LOGS", help="Metadata logs (NAME.meta), or folders with them.")
    parser.add_argument(
        "--limit", type=at_least(0), default=50, help="Entries to print of each log; 0 for all, 50 by default."
    )
    add_json(parser)


def log_command(options: Options) -> int:
    """Print burst-buffer logs: header, entries, sizes, states.

    Exit code: 0 all could be read and are intact, 2 one is damaged or cannot be read.
    """
    answers: list[dict[str, Any]] | None = [] if options.as_json else None

    def one(name: str) -> int:
        with expected(name):
            return _print_log(name, options.limit or None, answers, first=name is options.logs[0])

    code = each(options.logs, one)
    if answers is not None:
        print_json(answers)
    return code


def _print_log(name: str, limit: int | None, answers: list[dict[str, Any]] | None, *, first: bool) -> int:
    """Print what is under one name, or add it to `answers`; the exit code."""
    code = 0
    if is_cache_folder(REAL, name):
        if answers is not None:
            answers.append({"cache": name, "lines": list(cache_text(REAL, name))})
            return code
        for line in cache_text(REAL, name):
            print(safe(line))
        return code
    for path in named_logs(REAL, [name]):
        sources = sources_of(REAL, path, lock=False)
        if not sources and answers is not None:
            answers.append({"log": path, "entries": 0, "empty": True})
        elif not sources:
            print(f"{safe(path)}: empty, its job was stopped before it wrote to it")
        for source in sources:
            try:
                verdict = source.judge()
                code = max(code, DAMAGED if verdict.damaged else 0)
                if answers is not None:
                    answers.append(_as_json(source, verdict))
                    continue
                if not first:
                    print()
                first = False
                print(f"log         {safe(source.base)}")
                # A dataset is defined again whenever it changes.
                for varid, path in dict.fromkeys((found.varid, found.path) for found in source.defined.found):
                    print(f"variable    {varid} is {safe(path)}")
                print(log_text(source.log, source.commit_log, verdict, limit=limit))
            finally:
                source.close()
    return code


def _as_json(source: LogSource, verdict: Verdict) -> dict[str, Any]:
    """Return the header and the totals of one log, for JSON."""
    log = source.log
    return {
        "log": source.base,
        "file": log.header.path,
        "node": log.header.processor,
        "rank": log.header.rank_id,
        "ranks": log.header.num_ranks,
        "layout": log.layout,
        "entries": len(log.entries),
        "counted": log.counted,
        "to_replay": len(verdict.replay),
        "torn_bytes": log.torn_bytes,
        "damaged": bool(verdict.damaged),
        "variables": {found.varid: found.path for found in source.defined.found},
        "findings": [finding.message for finding in log.findings],
    }


def _replay_arguments(parser: Parser) -> None:
    parser.add_argument(
        "file", metavar="FILE",
        help="The NetCDF file of the job; with -o the name of a set of subfiles, or of one of them.",
    )  # fmt: skip
    parser.add_argument(
        "logs", metavar="LOGS", nargs="*", default=[],
        help="Metadata logs (NAME.meta) or folders of them, which are kept; by default those that killed jobs left "
        "beside the file or noted there, which are removed afterwards.",
    )  # fmt: skip
    parser.flag("--partial", help="Replay the logs of some ranks if those of others are missing.")
    parser.flag("--salvage", help="Replay the intact entries of a damaged log.")
    parser.flag("--any-file", help="Also replay logs of another file that had this name before.")
    parser.flag("--uncounted", help="Also replay entries beyond the count in a log of the C library.")
    parser.add_argument("-o", "--output", metavar="OUT", help="Write what the subfiles of FILE hold to one file.")
    parser.add_argument("--vars", metavar="NAMES", help="With -o: these datasets and groups only.")
    parser.add_argument("--format", help="With -o: CDF-1, CDF-2 or CDF-5 (default).")
    parser.add_argument(
        "--header-reserve", type=at_least(0), metavar="BYTES", help="With -o: bytes to keep free behind the header."
    )
    parser.flag("--overwrite", help="With -o: replace OUT if it exists.")
    parser.flag("--allow-holes", help="With -o: exit with 0 although elements are in no subfile.")
    parser.flag("--remove", help="With -o: remove the subfiles when OUT is whole and on the disk.")
    add_quiet(parser)


_OF_LOGS = ("logs", "partial", "salvage", "any_file", "uncounted")
_OF_SETS = ("vars", "format", "overwrite", "allow_holes", "remove")


def replay_command(options: Options) -> int:
    """Write the contents of burst-buffer logs into a file, or with -o those of a set of subfiles to one file.

    Started by mpiexec, its processes do one replay together.

    Exit code: 0 all of it is in the file (or there was nothing), 1 something was dropped and reported, or elements are
    in no subfile, 2 a log or a subfile is damaged or cannot be read, 3 refused.
    """
    file = options.file
    refuse_address(file)
    comm = world()
    if options.output is not None:
        if any(getattr(options, name) for name in _OF_LOGS):
            fail(file, "-o is for sets of subfiles: it takes no logs, and no options of logs")
        with _rank_0_prints(comm), expected(file):
            whole = _replay_set(options, comm)
        return 0 if whole or options.allow_holes else LEFT
    if options.header_reserve is not None or any(getattr(options, name) for name in _OF_SETS):
        fail(file, "give the file to be written with -o; without it only logs are replayed")
    chosen = {name: getattr(options, name) for name in _OF_LOGS[1:]}
    with _rank_0_prints(comm), expected(file):
        try:
            report = replay(file, options.logs or None, comm=comm, **chosen)
        except LogRefusedError as error:
            fail(file, error, REFUSED)
        for line in _log_lines(file, report):
            print(line)
    return 0 if report.whole else DAMAGED if report.damaged else LEFT


@contextmanager
def _rank_0_prints(comm: Any) -> Iterator[None]:
    """Let rank 0 alone print: all ranks have the same report, or the same error."""
    if comm is None or comm.rank == 0:
        yield
        return
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


def _replay_set(options: Options, comm: Any) -> bool:
    """Replay a set of subfiles; whether nothing was missing."""
    file, output = options.file, options.output
    given = {name: getattr(options, name) for name in ("format", "header_reserve")}
    given = {name: value for name, value in given.items() if value is not None}
    chosen = None if options.vars is None else [name for name in options.vars.split(",") if name]
    try:
        with bar(quiet=options.quiet or (comm is not None and comm.rank > 0)) as progress:
            report = replay(
                file,
                output=output,
                comm=comm,
                variables=chosen,
                overwrite=options.overwrite,
                remove=options.remove,
                progress=progress,
                **given,
            )
    except OSError as error:
        # A disk that is full, and a name that is taken, are the target's.
        with expected(output if error.errno in (*WRITING, errno.EEXIST) else file):
            raise
    except (TypeError, ValueError) as error:
        fail(file, error)
    if not options.quiet or not (report.whole or options.allow_holes):
        for line in _set_lines(report):
            print(line)
    return bool(report.whole)


def _set_lines(report: BlobReport) -> Iterator[str]:
    """Yield what a replay of subfiles did, for people."""
    subfiles = counted(report.subfiles, "subfile")
    yield (
        f"{safe(report.target)}: {counted(report.variables, 'variable')}, {human(report.nbytes)} of {subfiles} "
        f"(written by {counted(report.nprocs, 'rank')}), {report.seconds:.2f} s"
    )
    for one in report.maps:
        shape = " x ".join(map(str, one.dims))
        counts = f"{one.covered} of {one.nelems} elements in blobs, {one.none} in none, {one.several} in several"
        yield f"  {one.name} ({shape}): {counts}"
        if one.open:
            shown = ", ".join(map(safe, one.open[:SHOWN])) + (", ..." if len(one.open) > SHOWN else "")
            yield f"    hole: {counted(one.none, 'element')} of {shown} in no subfile, filled with the fill value"
    if report.lost_records:
        yield f"  {counted(report.lost_records, 'record')} left out, which some subfiles have and others lack"
    if report.removed:
        yield f"  {counted(report.removed, 'subfile')} removed"


def _log_lines(file: str, report: ReplayReport) -> Iterator[str]:
    """Yield what a replay did, for people."""
    logs = "1 log" if report.logs == 1 else f"{report.logs} logs"
    if report.caches:
        yield f"{safe(file)}: {report.carried} bytes and {report.headers} headers carried from {report.caches} caches"
    if not report.logs and report.caches:
        pass
    elif not report.logs:
        yield f"{safe(file)}: no job left a log of this file{' that may be looked into' if report.closed else ''}"
    elif report.uncounted and not report.replayed:
        # What the C library leaves after each flush, so also at the end of every run.
        yield (
            f"{safe(file)}: nothing replayed. Use --uncounted to replay the {report.uncounted} requests of {logs}: "
            "they are beyond its count, as a flush or a regular close leaves them, so the file may hold them already"
        )
    else:
        yield f"{safe(file)}: {report.replayed - report.failed} requests of {logs} replayed"
    for count, what in (
        (report.cancelled, "cancelled by their program, not replayed"),
        (report.flushed, "in the file already"),
        (
            report.uncounted if report.replayed else 0,
            "beyond the count of the log, not replayed (--uncounted does)",
        ),
        (report.torn, "never committed, dropped"),
        (report.failed, "with values that do not fit, not replayed"),
    ):
        if count:
            yield f"  {count} {what}"
    if report.torn_bytes:
        yield f"  {report.torn_bytes} bytes at the end of a log dropped"
    for folder in report.closed:
        yield f"  not looked into: {safe(folder)}"
    for path in report.created:
        yield f"  made {safe(path)}"
    for message in report.messages:
        yield f"  {safe(message)}"


VERBS: dict[str, Verb] = {"log": (_log_arguments, log_command), "replay": (_replay_arguments, replay_command)}
