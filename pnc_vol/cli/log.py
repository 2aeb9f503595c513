"""``pnc-vol log``: burst-buffer logs, and the logs of node-local caches, as text.

Knows: exit codes, options. Does not know: the bytes (`log`).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pnc_vol.burst.recovery.printing import log_text
from pnc_vol.burst.recovery.scan import Verdict
from pnc_vol.burst.recovery.sources import LogSource, named_logs, sources_of
from pnc_vol.cache.folders import cache_text, is_cache_folder
from pnc_vol.cli.shared_options import AsJson
from pnc_vol.cli.show import TROUBLE, expected, print_json, safe
from pnc_vol.system import REAL

__all__ = ["DAMAGED", "LEFT", "command"]

LEFT, DAMAGED = 1, 2
"""Exit codes: something is not in the file, or was dropped; a log is damaged."""


def command(
    logs: Annotated[
        list[str],
        typer.Argument(metavar="LOGS...", help="Metadata logs (NAME.meta), or folders with them.", show_default=False),
    ],
    limit: Annotated[int, typer.Option("--limit", min=0, help="Entries to print of each log; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Print burst-buffer logs: header, entries, sizes, states. Exit code: 0; 2 if one is damaged or cannot be read."""
    code = 0
    told: list[dict[str, Any]] | None = [] if as_json else None
    for number, name in enumerate(logs):
        # One log that cannot be read is said and counted; the others are printed all the same.
        try:
            with expected(name):
                code = max(code, _all_of(name, limit or None, told, first=not number))
        except SystemExit as end:
            code = max(code, end.code if isinstance(end.code, int) else TROUBLE)
    if told is not None:
        print_json(told)
    raise typer.Exit(code)


def _all_of(name: str, limit: int | None, told: list[dict[str, Any]] | None, *, first: bool) -> int:
    """Print what is under one name, or add it to `told`; the exit code."""

    code = 0
    if is_cache_folder(REAL, name):
        if told is not None:
            told.append({"cache": name, "lines": list(cache_text(REAL, name))})
            return code
        for line in cache_text(REAL, name):
            print(safe(line))
        return code
    for path in named_logs(REAL, [name]):
        sources = sources_of(REAL, path, lock=False)
        if not sources and told is not None:
            told.append({"log": path, "entries": 0, "empty": True})
        elif not sources:
            print(f"{safe(path)}: empty, its job was stopped before it wrote to it")
        for source in sources:
            try:
                verdict = source.judge()
                code = max(code, DAMAGED if verdict.damaged else 0)
                if told is not None:
                    told.append(_told(source, verdict))
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


def _told(source: LogSource, verdict: Verdict) -> dict[str, Any]:
    """What is said of one log, as JSON has it."""
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
