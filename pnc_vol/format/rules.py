"""`judge` checks the fields of a header against each other and against the size of the file.

Knows: begins, sizes, order, records. Does not know: the grammar of a header, files. Used by `decode`, which raises the
first error, and by `check`, which lists all.

Rules
-----
1. Variables lie behind the header, fixed ones in definition order, then records in definition order; nothing overlaps.
   A begin that is not a multiple of 4 is read as every reader does, with a warning, and so is an overlap of
   less than 4 bytes that comes from it.
2. No end of anything lies beyond 2**63 - 1.
3. CDF-1 and CDF-2 have at most one variable that is too large for its vsize, the last of its kind.
4. A file shorter or longer than its header says is a warning.

Source: NetCDF classic format specification; the order rules of PnetCDF and netCDF-C (NC_ENOTNC, NC_EVARSIZE).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.format.model import MAX_BYTES, MAX_OFFSET, WIDTHS, Finding, Header, pad4, record_stride, record_vars

__all__ = ["judge"]

Int64 = npt.NDArray[np.int64]


_FEW = 64
"""Variables that are looked at one by one sooner than by numpy."""


class _Facts(NamedTuple):
    """A header as columns: all of int64[n], bytes, by variable."""

    header: Header
    begin: Int64
    inner: Int64
    at: Int64
    fixed: Int64
    records: Int64
    stride: int
    nbytes: int
    file_size: int


def judge(
    header: Header,
    inner: list[int],
    var_at: list[int],
    *,
    nbytes: int,
    file_size: int,
    tolerant_order: bool = False,
) -> tuple[Header, list[Finding]]:
    """Judge a header whose fields are each well-formed.

    Parameters
    ----------
    header : Header
        ``numrecs`` is -1 for STREAMING.
    inner : list of int
        `sizes.inner_bytes` of every variable.
    var_at : list of int
        Where each variable's entry starts in the file; one more for the end of the last.
    nbytes : int
        Bytes of the header.
    file_size : int
    tolerant_order : bool
        Accept fixed and record variables in any order.

    Returns
    -------
    header : Header
        With the number of records that the file holds in the place of STREAMING.
    findings : list of Finding
        Errors first.
    """
    if _plain(header, inner, nbytes, file_size):
        return header, []
    is_rec = np.zeros(len(header.vars), np.bool_)
    is_rec[record_vars(header)] = True
    width, most = WIDTHS[header.version].begin, WIDTHS[header.version].begin_max
    begins = list(map(itemgetter(4), header.vars))
    bad = [i for i, begin in enumerate(begins) if begin > most] if max(begins, default=0) > most else []
    if bad:
        # Beyond int64 there is nothing to compute with.
        i = bad[0]
        value = header.vars[i].begin - 2 ** (8 * width)
        text = f"var[{i}].begin at byte {var_at[i + 1] - width} is negative ({value})."
        return header, [Finding("error", var_at[i + 1] - width, f"var[{i}].begin", value, text)]
    facts = _Facts(
        header,
        np.array(begins, np.int64),
        np.array(inner, np.int64),
        np.array(var_at[1:], np.int64) - width,
        (~is_rec).nonzero()[0],
        is_rec.nonzero()[0],
        record_stride([inner[i] for i in is_rec.nonzero()[0].tolist()]),
        nbytes,
        file_size,
    )
    errors = [*_places(facts), *_large(facts)]
    if errors:
        return header, errors
    warnings: list[Finding] = []
    if header.numrecs < 0:
        facts, finding = _streaming(facts)
        warnings.append(finding)
    found = [*_records(facts), *_order(facts, tolerant_order)]
    warnings += (finding for finding in found if finding.severity == "warning")
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        return facts.header, errors + warnings
    return facts.header, [*warnings, *_alignment(facts), *_file_size(facts)]


def _plain(header: Header, inner: list[int], nbytes: int, file_size: int) -> bool:
    """Return whether a small header is in order at one look, as most are: no records, one variable right behind the
    other."""
    if header.numrecs or len(inner) > _FEW or 0 in [dim[1] for dim in header.dims]:
        return False
    limit, end, needed = WIDTHS[header.version].var_max, nbytes, 0
    for var, size in zip(header.vars, inner, strict=True):
        begin = var[4]
        if begin < end or begin & 3 or size > limit:
            return False
        needed = begin + size
        end = (needed + 3) & -4
    return not inner or (needed <= file_size <= end and file_size <= WIDTHS[header.version].begin_max)


def _begin(facts: _Facts, severity: str, i: int, message: str) -> Finding:
    at, value = int(facts.at[i]), int(facts.begin[i])
    return Finding(severity, at, f"var[{i}].begin", value, f"var[{i}].begin at byte {at} is {value}; {message}.")


def _places(facts: _Facts) -> Iterator[Finding]:
    """Yield the begins inside the header, ends beyond the largest offset."""
    for i in (facts.begin < facts.nbytes).nonzero()[0].tolist():
        yield _begin(facts, "error", i, f"that is inside the header, which has {facts.nbytes} bytes")
    for i in (facts.begin > MAX_OFFSET - 3 - facts.inner).nonzero()[0].tolist():
        yield _begin(facts, "error", i, f"with {int(facts.inner[i])} bytes it would end beyond 2**63 - 1")


def _large(facts: _Facts) -> Iterator[Finding]:
    """Yield variables that are too large for the version (NC_EVARSIZE)."""
    limit = WIDTHS[facts.header.version].var_max
    for kind in (facts.fixed, facts.records):
        large = kind[facts.inner[kind] > limit].tolist()
        if kind is facts.fixed and facts.records.size:
            refused = large
        else:
            refused = [i for i in large if i != int(kind[-1])]
        for i in refused:
            size = int(facts.inner[i])
            text = f"var[{i}] has {size} bytes; in CDF-{facts.header.version} only the last may have over {limit}."
            yield Finding("error", int(facts.at[i]), f"var[{i}].vsize", size, text)


def _streaming(facts: _Facts) -> tuple[_Facts, Finding]:
    """Derive the number of records from the size of the file."""
    n = 0
    if facts.records.size:
        last = int(facts.inner[facts.records[-1]])
        # The last padding may be missing: PnetCDF does not write it.
        missing = 0 if facts.records.size == 1 else pad4(last) - last
        start = int(facts.begin[facts.records].min())
        n = max(0, (facts.file_size + missing - start) // facts.stride)
    text = f"numrecs at byte 4 is STREAMING; the size of the file makes it {n}."
    return facts._replace(header=facts.header.replaced(numrecs=n)), Finding("warning", 4, "numrecs", -1, text)


def _records(facts: _Facts) -> Iterator[Finding]:
    """Yield the record section as a whole."""
    header, numrecs = facts.header, facts.header.numrecs
    if not facts.records.size:
        if numrecs > 0 and all(dim.size for dim in header.dims):
            yield Finding("warning", 4, "numrecs", numrecs, f"numrecs is {numrecs}, but no dimension is unlimited.")
        return
    if facts.stride > MAX_BYTES:
        i = int(facts.records[-1])
        text = f"A record has {facts.stride} bytes; the limit is {MAX_BYTES}."
        yield Finding("error", int(facts.at[i]), f"var[{i}].vsize", facts.stride, text)
    elif int(facts.begin[facts.records].min()) + numrecs * facts.stride > MAX_OFFSET:
        text = f"numrecs at byte 4 is {numrecs}; that many records of {facts.stride} bytes would end beyond 2**63 - 1."
        yield Finding("error", 4, "numrecs", numrecs, text)


def _ends(facts: _Facts, of: Int64) -> tuple[Int64, Int64]:
    """Return starts and ends that must not overlap; a begin that is not aligned counts as the multiple of 4 below
    it."""
    start = facts.begin[of] & -4
    return start, start + ((facts.inner[of] + 3) & -4)


def _order(facts: _Facts, tolerant: bool) -> Iterator[Finding]:
    for of in (facts.fixed, facts.records):
        start, _ = _ends(facts, of)
        if not tolerant:
            for k in ((start[1:] < start[:-1]).nonzero()[0] + 1).tolist():
                yield _begin(facts, "error", int(of[k]), f"var[{int(of[k - 1])}], defined before it, lies behind it")
        by_place = of[np.argsort(start, kind="stable")]
        start, end = _ends(facts, by_place)
        for k in ((end[:-1] > start[1:]).nonzero()[0] + 1).tolist():
            yield _begin(facts, "error", int(by_place[k]), f"that is inside var[{int(by_place[k - 1])}]")
    if facts.fixed.size and facts.records.size:
        yield from _sections(facts, tolerant)
    if facts.records.size:
        packed = int(facts.begin[facts.records].min()) + np.cumsum((facts.inner[facts.records] + 3) & -4)
        gap = facts.begin[facts.records[1:]] - packed[:-1]
        for k in (gap > 3).nonzero()[0].tolist():
            i = int(facts.records[k + 1])
            yield _begin(facts, "warning", i, f"a gap of {int(gap[k])} bytes before it makes records overlap")


def _sections(facts: _Facts, tolerant: bool) -> Iterator[Finding]:
    """Yield fixed variables against the record section."""
    first = int(facts.records[np.argmin(facts.begin[facts.records])])
    start, end = _ends(facts, facts.fixed)
    begin = int(facts.begin[first])
    if tolerant:
        stop = begin + max(facts.stride, facts.header.numrecs * facts.stride)
        behind = facts.fixed[(end > begin) & (start < stop)]
    else:
        behind = facts.fixed[end > begin]
    if behind.size:
        yield _begin(facts, "error", first, f"records begin there, before the end of var[{int(behind[-1])}]")


def _alignment(facts: _Facts) -> Iterator[Finding]:
    for i in (facts.begin & 3).nonzero()[0].tolist():
        yield _begin(facts, "warning", i, "that is not a multiple of 4")


def _file_size(facts: _Facts) -> Iterator[Finding]:
    """Yield a file that ends before its data, or goes on behind them."""
    if not facts.begin.size:
        return
    size, numrecs = facts.file_size, facts.header.numrecs
    end = facts.begin + facts.inner
    needed = int(end[facts.fixed].max()) if facts.fixed.size else 0
    promised = pad4(needed)
    if facts.records.size:
        start = int(facts.begin[facts.records].min())
        promised = max(promised, pad4(start + numrecs * facts.stride))
        if numrecs:
            needed = max(needed, int(end[facts.records].max()) + (numrecs - 1) * facts.stride)
    if size < needed:
        missing = f"{needed - size} bytes are missing"
        text = f"The file has {size} bytes, and its header describes data up to byte {needed}: {missing}."
        yield Finding("warning", size, "file_size", size, text)
    elif size > promised:
        text = f"The file has {size} bytes, and its data end at byte {promised}."
        yield Finding("warning", size, "file_size", size, text)
