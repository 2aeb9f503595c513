"""``f.atomic``: writes that are in the file when they return.

Knows: sessions. Does not know: how a write is carried out; requests (`iput` stays a request until somebody waits for
it).

Rules
-----
1. Setting it is collective, as in MPI, and flushes: from then on everything that is defined has a place in the file.
2. A write is carried out by its rank alone; no rank waits for another one. What has no place without a flush waits for
   one as ever: variables defined since, records beyond those of the file, strings that grow.
3. A file that is not atomic pays for one test of a flag (`Posted.at_once`).
"""

from __future__ import annotations

from pnc_vol.api.ids import Handle

__all__ = ["set_atomic"]


def set_atomic(handle: Handle, value: bool) -> None:
    """Let writes be carried out at once, or when the file is flushed (collective)."""
    session = handle.session
    with session.lock:
        # Compared between ranks: one that sets it differently, or flushes instead, is noticed.
        session.flush(what=f"atomic {value}")
        session.posted.write_at_once(value)
