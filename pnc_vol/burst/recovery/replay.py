"""A replay writes to the file what a killed job had posted and not flushed.

Knows: logs, sessions, ranks. Does not know: how a log was written, which the codec tells; what an entry means in a
file, which `redo` tells.

Rules
-----
1. The file is the one that the caller names; the path in a log is never followed.
2. Entries are applied in the order of their log, logs in the order of ranks; replaying twice changes nothing, because
   a log of ours is marked as flushed once the file holds it, and because entries overwrite.
3. A log that is damaged, and not merely torn at its end as a kill leaves it, is refused unless `salvage` is set; so
   are the logs of some ranks without those of the others unless `partial` is, and logs of another file unless
   `any_file` is.
4. A dataset that the file lacks, because its header was never written, is made as the log describes it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial as bound

from pnc_vol.append_log.private_folders import missing_ranks
from pnc_vol.burst.definition_writer import LoggedFile
from pnc_vol.burst.recovery.ownership import refuse_other_file, refuse_other_header
from pnc_vol.burst.recovery.redo import Redo
from pnc_vol.burst.recovery.sources import LogSource, sources_of
from pnc_vol.disk.identity import identity_of
from pnc_vol.errors import LogError, LogRefusedError, PncVolWarning
from pnc_vol.file.leftovers import ReplayReport
from pnc_vol.file.opening import open_session
from pnc_vol.file.opening_record import Opening
from pnc_vol.ranks.comm import Comm, serial
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists

__all__ = ["replay_into"]

_MOST_MESSAGES = 100


def replay_into(
    path: str,
    logs: Sequence[str],
    *,
    options: Options,
    comm: Comm | None = None,
    salvage: bool = False,
    partial: bool = False,
    uncounted: bool = False,
    any_file: bool = False,
) -> ReplayReport:
    """Replay logs into a file (collective).

    Parameters
    ----------
    path : str
    logs : sequence of str
        Metadata logs; their commit logs, data and definitions lie beside them.
    options : Options
    comm : Comm, optional
        Ranks that share the work; owned by this call.
    salvage : bool
        Replay what is good of a damaged log.
    partial : bool
        Replay the logs of some ranks without those of the others.
    uncounted : bool
        Also entries beyond the count of a log of the C library: flushed before, or never counted.
    any_file : bool
        Also logs that belong to another file, or to another state of this one.

    Raises
    ------
    LogError
        A log is damaged, or says what cannot be; the file is as it was.
    LogRefusedError
        The logs may be good, and are not for this file, or not now.
    OSError
        A log or the file cannot be read or written.
    """
    comm = comm or serial()
    options = options._replace(burst_buf=False, recover=False)
    report = ReplayReport()
    with ExitStack() as stack:
        sources = _open_all(options.system, logs, comm)
        for source in sources:
            stack.callback(source.close)
        report.logs = len(sources)
        error: BaseException | None = None
        jobs: list[list[LogSource]] = []
        try:
            for source in sources:
                source.judge(uncounted=uncounted)
            _refuse_damaged(sources, salvage)
            jobs = _by_job(sources, partial)
            if comm.rank == 0 and not any_file:
                refuse_other_file(options.system, path, _holding(sources, salvage))
            _refuse_no_file(options.system, path)
        except Exception as reason:
            error = reason
        comm.agree("replay", error=error)
        for source in sources:
            _count(report, path, source)
        if any(source.holds for source in sources):
            known = None if any_file else _holding(sources, salvage)
            _replay_jobs(path, jobs, report, options, comm, known)
        for source in sources:
            source.mark_flushed()
    del report.messages[_MOST_MESSAGES:]
    return report


def _replay_jobs(
    path: str,
    jobs: Sequence[Sequence[LogSource]],
    report: ReplayReport,
    options: Options,
    comm: Comm,
    known: Sequence[LogSource] | None,
) -> None:
    """Replay one job after another; one of the logs `known` must know the file's header, if it is not None."""
    with warnings.catch_warnings():
        # That a header stands alone, or that other jobs left logs too, is why this is done.
        warnings.simplefilter("ignore", PncVolWarning)
        session = open_session(Opening(path, "r+", options, comm))
    target = LoggedFile(session.disk)
    target.identity = identity_of(options.system, target.work)
    before = session.disk.header_bytes
    try:
        for sources in jobs:
            error: BaseException | None = None
            redo: Redo | None = None
            try:
                if known is not None:
                    refuse_other_header(path, known, before)
                redo = Redo(session, sources, report)
            except Exception as reason:
                error = reason
            comm.agree("replay check", error=error)
            assert redo is not None
            session.disk.call_before_header(*(bound(source.about_to_write, target) for source in sources))
            redo.replay()
            session.flush(durable=True)
            for source in sources:
                source.mark_flushed()
            session.disk.call_before_header()
    except BaseException as reason:
        # Not a close: that would flush what was posted so far.
        session.abort(f"replay: {reason}")
        raise
    session.close()


def _holding(sources: Sequence[LogSource], salvage: bool) -> list[LogSource]:
    """Return those of which it matters which file they are of: they have something to be replayed.

    With `salvage`, a log of a file that never took its name is not among them.
    """
    return [source for source in sources if source.holds and not (salvage and source.defined.work)]


def _open_all(system: System, logs: Sequence[str], comm: Comm) -> list[LogSource]:
    """Return the logs, on every rank, in the order of ranks; rank 0 keeps others away from them (collective)."""
    sources: list[LogSource] = []
    error: BaseException | None = None
    try:
        for log in logs:
            sources += sources_of(system, log, lock=comm.rank == 0)
    except Exception as reason:
        error = reason
    try:
        comm.agree("replay logs", error=error)
    except BaseException:
        for source in sources:
            source.close()
        raise
    return sources


def _refuse_damaged(sources: Sequence[LogSource], salvage: bool) -> None:
    for source in sources:
        if source.verdict.damaged and not salvage:
            what = "; ".join(finding.message for finding in source.verdict.findings if finding.severity == "error")
            text = f"{source.base}.meta is damaged: {what}. salvage replays its valid parts"
            raise LogError(text, field="log")


def _by_job(sources: Sequence[LogSource], partial: bool) -> list[list[LogSource]]:
    """Return which logs belong together, each job's in the order of ranks, jobs in the order in which they are
    named."""
    jobs: dict[tuple[str, int], list[LogSource]] = {}
    for source in sources:
        # A job's folder has a name of its own, on every node the same.
        folder = os.path.basename(os.path.dirname(os.path.abspath(source.base)))
        jobs.setdefault((folder, source.log.header.num_ranks), []).append(source)
    for (_, ranks), logs_of_job in jobs.items():
        logs_of_job.sort(key=lambda source: (source.log.header.rank_id, source.base))
        there = [source.log.header.rank_id for source in logs_of_job]
        missing, named = missing_ranks(ranks, there)
        # What a kill left of logs that hold nothing needs no others.
        wanted = any(source.commit_log is None or source.holds for source in logs_of_job)
        if named and wanted and not partial:
            raise LogRefusedError(
                f"{logs_of_job[0].base}.meta is one of {ranks} logs, and those of ranks {named} were not given: "
                "name them too, or replay the others alone with partial",
                field="rank",
                value=missing,
            )
        if len(set(there)) < len(there):
            raise LogRefusedError(
                f"several logs are of the same rank of {ranks}: {logs_of_job[0].base}.meta and others; "
                "put the logs of each job into a separate folder",
                field="rank",
            )
    return list(jobs.values())


def _refuse_no_file(system: System, path: str) -> None:
    if not exists(system, path):
        raise LogRefusedError(
            f"{path}: there is no such file; a log holds what was posted since the last flush, not the file",
            field="path",
        )


def _count(report: ReplayReport, path: str, source: LogSource) -> None:
    verdict = source.verdict
    totals = verdict.totals()
    report.replayed += len(verdict.replay)
    report.cancelled += totals.get("cancelled", 0)
    report.flushed += totals.get("flushed", 0)
    report.torn += totals.get("torn", 0)
    report.uncounted += totals.get("uncounted", 0) if len(verdict.replay) < len(verdict.state) else 0
    report.damaged |= verdict.damaged
    report.torn_bytes += source.log.torn_bytes
    name = os.path.basename(source.base)
    logged = source.log.header.path
    if os.path.basename(logged) != os.path.basename(path):
        report.messages.append(f"{name}: written for {logged!r}")
    for finding in (*source.log.findings, *verdict.findings):
        report.messages.append(f"{name}: {finding.message}")
