"""The report that E3SM-IO prints after a run, with pnc_vol's medians.

Knows: the C program's measures and words. Does not know: how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pnc_vol.bench.e3sm_setup import Setup
from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.ranks import Job

__all__ = ["READ_WHATS", "WHATS", "report"]

WHATS = ("pre", "open", "define", "post", "flush", "close")
READ_WHATS = ("read, pre", "read, open", "read, post", "read, flush", "read, close")
WORDS = {
    "pre": "I/O preparing", "open": "file open/create", "define": "define variables",
    "post": "posting write requests", "flush": "write flushing", "close": "close", "open to close": "end-to-end",
    "read, pre": "read preparing", "read, open": "file open for reading", "read, post": "posting read requests",
    "read, flush": "read flushing", "read, close": "close after reading", "read, open to close": "read end-to-end",
}  # fmt: skip
RULE = "-" * 59


def report(job: Job, setup: Setup, results: Sequence[Result]) -> None:
    """Counts, amounts, the least and the most time of a rank in each step, and bandwidths."""
    o, by = job.options, {result.work: result for result in results}
    files = setup.files
    job.say(f"==== Case {setup.case}, canonical, maps {setup.title}, {', '.join(file.name for file in files)} ====")
    job.say(f"Number of IO processes             = {job.comm.size}")
    job.say(f"Number of decompositions           = {len(setup.parts)}")
    job.say(f"Fill mode                          = {'enabled' if setup.fill else 'disabled'}")
    memory = "yes" if o.apart or o.stride > 1 else "no"
    job.say(f"Using noncontiguous write buffer   = {memory}")
    for file in files:
        numbers = [variable.number for variable in file.variables]
        job.say(f"{file.name}: No. variables use no decomposition = {numbers.count(0):6d}")
        for k in range(1, len(setup.parts) + 1):
            job.say(f"{file.name}: No. variables use decomposition D{k} = {numbers.count(k):6d}")
        attributes = len(file.attrs) + sum(len(variable.attrs) for variable in file.variables)
        records = setup.records_of(file)
        job.say(f"{file.name}: Total no. climate variables        = {len(numbers):6d}")
        job.say(f"{file.name}: Total no. attributes               = {attributes:6d}")
        job.say(f"{file.name}: Write no. records (time dim)       = {records:6d}")
        every = o.flush_every if o.flush_every > 0 else records
        job.say(f"{file.name}: No. I/O flush calls                = {-(-records // every):6d}")
    job.say(f"Total no. noncontiguous requests   = {sum(setup.requests):6d}")
    job.say(f"Max   no. noncontiguous requests   = {max(setup.requests):6d}")
    job.say(f"Min   no. noncontiguous requests   = {min(setup.requests):6d}")
    job.say(RULE)
    amount = sum(setup.nbytes)
    for what, nbytes in (
        ("Indiv write amount MAX ", max(setup.nbytes)),
        ("Indiv write amount MIN ", min(setup.nbytes)),
    ):
        job.say(f"{what}            = {nbytes / (1 << 20):.2f} MiB")
    job.say(f"Total write amount                 = {amount / (1 << 20):.2f} MiB = {amount / (1 << 30):.2f} GiB")
    for prefix, flush, whats in (("", "write-only", WHATS), ("read, ", "read-only", READ_WHATS)):
        whole = by.get(f"{prefix}open to close")
        total = whole.median(US) if whole else None
        if total is None:
            continue
        job.say(RULE)
        for what in (*whats, f"{prefix}open to close"):
            least, most = by[what].least(US) or 0.0, by[what].median(US) or 0.0
            job.say(f"Time of {WORDS[what]:26s} min/max = {least:8.4f} / {most:8.4f}")
        if not prefix:
            job.say(f"Emulate computation time (sleep)   min/max = {o.sleep:8.4f} / {o.sleep:8.4f}")
        for what, spent in ((flush, by[f"{prefix}flush"].median(US)), ("open-to-close", total)):
            for unit, power in (("MiB", 20), ("GiB", 30)):
                job.say(f"I/O bandwidth in {unit}/sec ({what}) = {amount / (1 << power) / (spent or np.inf):.4f}")
