"""The path of most posts to a log: one row of numbers, or a run of a dataset with one axis.

Knows: the ends of the logs, the open group, the slot, rows. Does not know: how other posts are logged, flushes.

Rules
-----
1. A post here is what `LogStore.put` would make of it; what is new, does not fit, or fails, is left to that, with the
   ends of the files where they were.
2. Small posts of which several come in a row go to the slot, from where all that are there go to the logs together
   (`recent_posts`): one store and one CRC each. Rows are made of them when they leave it.
3. All others go to the logs, one by one, while the windows have room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import numpy as np

from pnc_vol.burst.commit_log import GROUP_BYTES, CommitLog
from pnc_vol.burst.definition_writer import DefinitionWriter
from pnc_vol.burst.encoding import LEAST_ENTRY
from pnc_vol.burst.files import SMALL, LogFiles
from pnc_vol.burst.logged_variables import LoggedVariable
from pnc_vol.burst.recent_posts import LEAST_POST, MOST_POST, MOST_VALUES, SplitPosts
from pnc_vol.extents.model import Int64
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.backlog import ROW_COST, Backlog
from pnc_vol.queue.rows import COLUMNS, Rows, pack_row

__all__ = ["ShortPosts"]

STRETCH = 16
"""Small posts in a row from which on they go to the slot: to take them out of it costs as much as some of them."""


class ShortPosts:
    """Posts of one row each.

    Parameters
    ----------
    backlog : Backlog
    files : LogFiles
    commits : CommitLog
    definitions : DefinitionWriter

    Attributes
    ----------
    recent : dict of int to LoggedVariable
        Datasets with posts in the slot, or such whose posts may go there: they have rows in the open batch.
    in_a_row : int, small posts since another one.
    """

    def __init__(self, backlog: Backlog, files: LogFiles, commits: CommitLog, definitions: DefinitionWriter) -> None:
        self.backlog, self.files, self.commits, self.known = backlog, files, commits, definitions.known
        self.data, self.meta, self.posts = files.data, files.meta, commits.group.posts
        self.recent: dict[int, LoggedVariable] = {}
        self.in_a_row = 0
        commits.post_rows = self._post_rows

    def put_run(self, node: DatasetNode, request: int, values: Any, start: int, number: int = 1, step: int = 0) -> bool:
        """See `Store.put_run`."""
        if number > 1:
            return False
        known = self.recent.get(node.uid)
        if known is None or (known.version != node.tree.version and not known.holds(node)):
            return self._put_in_logs(node, request, values, start)
        posts, nbytes = self.posts, values.nbytes
        if not posts.limit:
            self.in_a_row += 1
            if nbytes > MOST_VALUES or self.in_a_row < STRETCH:
                return self._put_in_logs(node, request, values, start)
        pack, row = known.posts[nbytes]
        first, within = divmod(start, known.row_size)
        if pack is None or within:
            return self._put_in_logs(node, request, values, start)
        post = pack(posts.data_end, nbytes, first, row, values.tobytes())
        begin = posts.end
        end = begin + len(post)
        if end > posts.limit:
            return self._begin(node, request, values, start)
        posts.room[begin:end] = post
        posts.crc = posts.slot[0] = crc32(post, posts.crc)
        # No call between the store of the CRC and the last line: an interrupt comes before all of them or behind.
        posts.end = posts.ends[posts.count] = end
        posts.data_end += nbytes
        posts.count += 1
        self.commits.requests.append(request)
        return True

    def _begin(self, node: DatasetNode, request: int, values: Any, start: int) -> bool:
        """As `put_run`, where the slot is full, or the open group is in the logs."""
        backlog, posts = self.backlog, self.posts
        try:
            self.commits.close_group()
            limit = min(len(posts.room), (backlog.budget // ROW_COST - backlog.rows) * LEAST_POST)
            if limit < MOST_POST:
                return False
            self.commits.open_posts(request, limit)
        except OSError:
            # There is no room; `put` tells.
            return False
        return self.put_run(node, request, values, start)

    def _put_in_logs(self, node: DatasetNode, request: int, values: Any, start: int) -> bool:
        backlog = self.backlog
        known, table = self.known.get(node.uid), backlog.tables.get(node.uid)
        if known is None or table is None or (known.version != node.tree.version and not known.holds(node)):
            return False
        data, meta, commits, group = self.data, self.meta, self.commits, self.commits.group
        at, meta_at, count, nbytes = data.end, meta.end, values.size, values.nbytes
        data_end, meta_end = at + nbytes, meta_at + known.entry_size
        if data_end > group.quick_data or meta_end > group.quick_meta or nbytes >= SMALL or not known.plain:
            return False
        if inner := known.inner:
            first, within = divmod(start, inner)
            if within or count != inner:
                return False
            entry = known.pack(at, nbytes, first, known.posts.row)
        else:
            entry = known.pack(at, nbytes, start, count)
        # What is large is copied once only.
        raw = values if nbytes > MOST_VALUES and values.flags.c_contiguous else values.tobytes()
        data.window[at - data.begin : data_end - data.begin] = raw
        meta.window[meta_at - meta.begin : meta_end - meta.begin] = entry
        crc, data_crc = crc32(entry, group.meta_crc), crc32(raw, group.data_crc)
        # No call from here to the number of entries, see `put_run`.
        group.meta_crc, group.data_crc = crc, data_crc
        group.slot[0] = crc ^ data_crc
        data.end, meta.end = data_end, meta_end
        commits.requests.append(request)
        self.files.counters[1] = len(commits.requests)
        table.frombytes(pack_row(request, start, count, at, known.itemsize))
        backlog.rows += 1
        if nbytes <= MOST_VALUES:
            self.recent[node.uid] = known
        else:
            self.in_a_row = 0
        return True

    def allow(self, entries: int) -> None:
        """Let posts fill the open group in the logs, up to so many, as far as there are windows and memory."""
        backlog, group = self.backlog, self.commits.group
        entries = min(entries, backlog.budget // ROW_COST - backlog.rows)
        group.quick_meta = min(self.meta.limit, self.meta.end + entries * LEAST_ENTRY) if entries > 0 else 0
        group.quick_data = min(self.data.limit, group.data_begin + GROUP_BYTES)

    # ------------------------------------------------------------------------- leaving the slot

    def _post_rows(self, posts: SplitPosts, requests: Int64) -> Callable[[], None]:
        """Posts are about to move from the slot to the logs; returns what takes their rows back."""
        backlog = self.backlog
        facts = {uid: (known.row_size, known.itemsize) for uid, known in self.recent.items()}
        found = _rows_of(posts, requests, facts)
        ends, number = {uid: len(backlog.tables[uid]) for uid in found}, backlog.rows

        def undo() -> None:
            for uid, end in ends.items():
                del backlog.tables[uid][end:]
            backlog.rows = number

        try:
            for uid, rows in found.items():
                backlog.post_packed(uid, rows.tobytes(), len(rows))
        except BaseException:
            undo()
            raise
        return undo

    def interrupt(self) -> bool:
        """Another post comes: empty the slot; False if that cannot be done now."""
        self.in_a_row = 0
        if self.posts.limit:
            self.commits.close_group_if_possible()
        return not self.posts.limit

    def make_rows(self) -> None:
        """Empty the slot, since somebody looks at the rows; later posts go to the logs first.

        Raises
        ------
        OSError
            What is in the slot could not be moved to the logs.
        """
        if self.posts.limit:
            self.commits.close_group()
        self.recent.clear()


def _rows_of(posts: SplitPosts, requests: Int64, facts: Mapping[int, tuple[int, int]]) -> dict[int, Rows]:
    """Posts as rows, by variable.

    Parameters
    ----------
    posts : SplitPosts
    requests : int64[n]
    facts : by variable, elements of a row of it (1 if it has one axis), and bytes of an element.
    """
    owner, first, data_off, nbytes = posts.fields.T
    rows = np.empty((len(owner), COLUMNS), np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = requests, first, nbytes, data_off
    heads = np.flatnonzero(owner[1:] != owner[:-1])
    if len(heads):
        order = np.argsort(owner, kind="stable")
        rows, owner = rows[order], owner[order]
        heads = np.flatnonzero(owner[1:] != owner[:-1])
    found = {}
    for begin, end in zip([0, *(heads + 1).tolist()], [*(heads + 1).tolist(), len(rows)], strict=True):
        uid = int(owner[begin])
        inner, itemsize = facts[uid]
        found[uid] = mine = rows[begin:end]
        mine[:, 1] *= inner
        mine[:, 2] //= itemsize
        mine[:, 4] = itemsize
    return found
