"""A post to a log in few steps: one run of numbers of the variable's own type, as most posts are.

Knows: what `LogStore.put` does for such a post when nothing is in its way. Does not know: any other post.

Rules
-----
1. What does not fit, is new, or fails, is left to `put`, with the ends of the files where they were.
2. The order is that of `put`: values, entry, commit.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pnc_vol.append_log.records import RECORD_BODY, RECORD_BYTES
from pnc_vol.append_log.tail import LARGE
from pnc_vol.log.commit_log import COMMIT
from pnc_vol.log.encoding import VARA
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.backlog import ROW_COST

if TYPE_CHECKING:
    from pnc_vol.log.store import LogStore

__all__ = ["post_run"]

_body = RECORD_BODY.pack
_crc = Struct("<I").pack


def post_run(store: LogStore, node: DatasetNode, request: int, values: Any, start: int) -> bool:
    """See `Store.put_run`; False also for what `LogStore.put` alone can do."""
    uid = node.uid
    known = store.definitions.known.get(uid)
    if known is None or not known.plain or (known.version != node.tree.version and not known.holds(node)):
        return False
    count, inner, backlog = values.size, known.inner, store.backlog
    first, within = divmod(start, inner)
    number, more = (1, 0) if count == inner else divmod(count, inner)
    if within or more or not store.fast or (backlog.rows + 1) * ROW_COST > backlog.budget:
        return False
    files, commits = store.files, store.commits
    data, meta, commit = files.data, files.meta, files.commit
    at, meta_at, commit_at = data.end, meta.end, commit.end
    nbytes, size = values.nbytes, known.entry_size
    data_end, meta_end, commit_end = at + nbytes, meta_at + size, commit_at + RECORD_BYTES
    if meta_end > meta.limit or commit_end > commit.limit:
        return False
    try:
        if nbytes >= LARGE:
            if data.share is not None or data.system.pwrite(data.fd, values, at) != nbytes:
                return False
        elif data_end > data.limit:
            return False
        else:
            data.window[at - data.begin : data_end - data.begin] = values
        crc = crc32(values)
    except (OSError, ValueError):
        # Values that do not lie one after another among them.
        return False
    rest, sequence = known.rest, commits.sequence + 1
    entry = known.pack(size, VARA, known.itype, uid, len(rest) + 1, at, nbytes, first, *known.origin, number, *rest)
    meta.window[meta_at - meta.begin : meta_end - meta.begin] = entry
    commits.entries = files.counters[1] = commits.entries + 1
    body = _body(RECORD_BYTES, COMMIT, crc32(entry), sequence, request, commits.epoch, meta_end, data_end, 1, crc)
    commit.window[commit_at - commit.begin : commit_end - commit.begin] = body + _crc(crc32(body, commits.seed))
    commits.sequence, data.end, meta.end, commit.end = sequence, data_end, meta_end, commit_end
    commits.requests.append(request)
    commits.ends.append(meta_end)
    backlog.post(uid, request, start, count, at, known.itemsize)
    return True
