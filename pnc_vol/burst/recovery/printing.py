"""A log is printed as text for users.

Knows: how to print it in lines of bounded length and number. Does not know: where the bytes come from.

Rules: names that were found in the log are shown with their control characters escaped; no entry is formatted that is
not shown.
"""

from __future__ import annotations

from pnc_vol.append_log.records import RecordLog
from pnc_vol.burst.commit_log import COMMIT_LOG
from pnc_vol.burst.decoding import Log
from pnc_vol.burst.encoding import KINDS, LogEntry
from pnc_vol.burst.entries import Entries
from pnc_vol.burst.recovery.scan import STATES, Verdict, committed_entries
from pnc_vol.extents.model import Int64

__all__ = ["log_text"]

_TYPES = {
    1: "char", 2: "schar", 3: "uchar", 4: "short", 5: "ushort", 6: "int", 7: "uint", 8: "float", 9: "double",
    10: "longlong", 11: "ulonglong", 13: "long",
}  # fmt: skip
_COLUMNS = ("entry", "state", "kind", "var", "type", "start", "count", "stride", "data", "bytes")
_MOST_NUMBERS = 8
_MOST_FINDINGS = 20


def log_text(
    log: Log, commit_log: RecordLog | None = None, verdict: Verdict | None = None, *, limit: int | None = 50
) -> str:
    """Return a log as text: header, layout, entries, totals, findings.

    Parameters
    ----------
    log : Log
    commit_log : RecordLog or None
    verdict : Verdict or None
        What `committed_entries` said; None: it is asked here, without the data.
    limit : int or None
        Entries to show; None for all.

    Raises
    ------
    LogError
        The commit log is that of another log.

    Examples
    --------
    >>> from pnc_vol.burst.encoding import LogHeader, encode_header, encode_vara
    >>> from pnc_vol.burst.decoding import read_log
    >>> header = encode_header(LogHeader("out.nc", "node1", num_entries=1))
    >>> print(log_text(read_log(header + encode_vara(6, 2, (0,), (2,), 8, 8), 16)))
    file        out.nc
    written by  rank 0 of 1 on node1, little-endian, values as in memory
    layout      documented (pnc_vol), magic PnetCDF1, format CDF5
    header      88 bytes, counts 1 entries of at most 0 dimensions
    <BLANKLINE>
    entry  state      kind  var  type  start  count  stride  data  bytes
        0  committed  vara    2  int       0      2       -     8      8
    <BLANKLINE>
    1 entry, 56 bytes, 8 bytes of data: 1 committed
    """
    judged = verdict or committed_entries(log, commit_log)
    shown = len(log.entries) if limit is None else min(max(limit, 0), len(log.entries))
    lines = [*_head(log, commit_log), ""]
    if shown:
        lines += _table(log.entries, judged, shown)
    if shown < len(log.entries):
        lines.append(f"... {len(log.entries) - shown} more entries")
    if len(log.entries):
        lines.append("")
    lines.append(_totals(log, judged))
    lines += _notes(log, judged)
    return "\n".join(lines)


def _visible(text: str) -> str:
    """Return `text` with what a terminal would obey escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _head(log: Log, commit_log: RecordLog | None) -> list[str]:
    h = log.header
    order = "big" if h.big_endian else "little"
    form = "values as in the file" if h.is_external else "values as in memory"
    kind = h.format.rstrip(b"\0").decode("ascii", "backslashreplace")
    processor = f" on {_visible(h.processor)}" if h.processor else ""
    writer = f" ({log.writer})" if log.writer else ""
    lines = [
        f"file        {_visible(h.path)}",
        f"written by  rank {h.rank_id} of {h.num_ranks}{processor}, {order}-endian, {form}",
        f"layout      {log.layout}{writer}, magic PnetCDF{h.version}, format {_visible(kind)}",
        f"header      {h.entry_begin} bytes, counts {h.num_entries} entries of at most {h.max_ndims} dimensions",
    ]
    if commit_log is not None:
        kinds = commit_log.records["kind"].tolist()
        counts = ", ".join(f"{n} {name}" for code, name in COMMIT_LOG.kinds.items() if (n := kinds.count(code)))
        lines.append(f"commits     log {commit_log.header.log_id.hex()}, {len(kinds)} records: {counts or 'none'}")
    return lines


def _table(entries: Entries, verdict: Verdict, shown: int) -> list[str]:
    rows = [_COLUMNS]
    for i in range(shown):
        entry, state = entries[i], STATES[int(verdict.state[i])]
        kind = entry.kind if entry.kind in KINDS.values() else f"varn {len(entry.start)}"
        where = _coords(entry)
        numbers = str(entry.data_off), str(entry.data_len)
        rows.append((str(i), state, kind, str(entry.varid), _TYPES[entry.itype], *where, *numbers))
    widths = [max(len(row[c]) for row in rows) for c in range(len(_COLUMNS))]
    left = {1, 2, 4}
    return [
        "  ".join(
            cell.ljust(width) if c in left else cell.rjust(width)
            for c, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _coords(entry: LogEntry) -> tuple[str, str, str]:
    if not entry.ndims:
        return "-", "-", "-"
    stride = "-" if entry.stride is None else _numbers(entry.stride)
    more = ".." if len(entry.start) > 1 else ""
    count = "all" if (entry.count < 0).any() else _numbers(entry.count[0]) + more
    return _numbers(entry.start[0]) + more, count, stride


def _numbers(values: Int64) -> str:
    text = ",".join(map(str, values[:_MOST_NUMBERS].tolist()))
    return text + (",.." if values.size > _MOST_NUMBERS else "")


def _totals(log: Log, verdict: Verdict) -> str:
    entries = log.entries
    states = ", ".join(f"{n} {name}" for name, n in verdict.totals().items())
    size, data = int(entries.size.sum()), int(entries.data_len.sum(dtype=float))
    return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}, {size} bytes, {data} bytes of data" + (
        f": {states}" if states else ""
    )


def _notes(log: Log, verdict: Verdict) -> list[str]:
    found = [*log.findings, *verdict.findings]
    lines = [f"{finding.severity}: {_visible(finding.message)}" for finding in found[:_MOST_FINDINGS]]
    if len(found) > _MOST_FINDINGS:
        lines.append(f"... {len(found) - _MOST_FINDINGS} more findings")
    if verdict.fills:
        lines.append(f"{len(verdict.fills)} fills wait among the entries")
    if verdict.damaged:
        lines.append("damaged: no crash of its writer explains this")
    return lines
