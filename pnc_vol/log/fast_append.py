"""A post to a log in few steps: one run of numbers of the variable's own type, as most posts are.

Knows: what `LogQueue.put` does for such a post when nothing is in its way. Does not know: any other post.

Rules
-----
1. What does not fit, is new, or fails, is left to `put`, with the ends of the files where they were.
2. The order is that of `put`: values, entry, commit.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pnc_vol.log.commit_log import COMMIT, RECORD_BODY, RECORD_BYTES
from pnc_vol.log.encoding import VARA
from pnc_vol.log.files import LARGE
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.queue import ROW_COST, Queue

if TYPE_CHECKING:
    from pnc_vol.log.store import LogQueue

__all__ = ["post_run"]

_body = RECORD_BODY.pack
_crc = Struct("<I").pack


def post_run(queue: LogQueue, node: DatasetNode, request: int, values: Any, start: int) -> bool:
    """As `Queue.put_run`, which it is while posts wait in memory; False also for what `put` alone can do."""
    if not queue.logging:
        return Queue.put_run(queue, node, request, values, start)
    uid = node.uid
    known = queue.known.get(uid)
    if known is None or not known.quick or (known.version != node.tree.version and not known.holds(node)):
        return False
    count, inner = values.size, known.inner
    first, within = divmod(start, inner)
    number, more = (1, 0) if count == inner else divmod(count, inner)
    if within or more or not queue.quick or (queue.rows + 1) * ROW_COST > queue.budget:
        return False
    files = queue.files
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
    rest, sequence = known.rest, queue.sequence + 1
    entry = known.pack(size, VARA, known.itype, uid, len(rest) + 1, at, nbytes, first, *known.origin, number, *rest)
    meta.window[meta_at - meta.begin : meta_end - meta.begin] = entry
    queue.entries = queue.counters[1] = queue.entries + 1
    body = _body(RECORD_BYTES, COMMIT, crc32(entry), sequence, request, queue.epoch, meta_end, data_end, 1, crc)
    commit.window[commit_at - commit.begin : commit_end - commit.begin] = body + _crc(crc32(body, queue.seed))
    queue.sequence, data.end, meta.end, commit.end = sequence, data_end, meta_end, commit_end
    queue.entry_requests.append(request)
    queue.entry_ends.append(meta_end)
    table = queue.tables.get(uid)
    if table is None:
        queue.post(uid, request, start, count, at, known.itemsize)
    else:
        table.extend((request, start, count, at, known.itemsize))
        queue.rows += 1
    return True
