"""`find_damage` checks before each flush that the files of a log still have the bytes that were written.

Knows: sizes, commit records, CRCs. Does not know: what is done about a log that is not whole.

Rules
-----
1. No file may be shorter than what was written to it, and no record may be missing. That is looked at before the group
   is closed, which makes the file of records longer.
2. Of the values, so many groups of posts are read back and compared with their CRC as make up 4 MiB, at most 4096 of
   them, spread over the log: all of a small log, a spot check of a large one. A log that was cut, and grew again, holds
   zeros over a range, which this check finds; a single changed byte in a large log is found by a replay, which compares
   everything. To compare all here as well would read a large log twice from its device.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from pnc_vol.append_log.bulk_crc import first_wrong
from pnc_vol.append_log.records import RECORD_BYTES, decode_header
from pnc_vol.burst.commit_log import COMMIT, COMMIT_LOG, CommitLog
from pnc_vol.burst.encoding import FIRST_DATA
from pnc_vol.burst.files import LogFiles
from pnc_vol.errors import LogError, PncVolError

__all__ = ["find_damage"]

_MOST_BYTES = 4 << 20
_MOST_POSTS = 4096


def find_damage(files: LogFiles, commits: CommitLog) -> str:
    """Return the reason why a log cannot be flushed; "" if it can.

    Parameters
    ----------
    files : LogFiles
    commits : CommitLog
        Its open group is closed.

    Raises
    ------
    OSError
        A file cannot be read.
    """
    for path, written, there in files.sizes():
        if there < written:
            return f"{path} has {there} bytes, and {written} were written to it"
    commits.close_group_if_possible()
    begin = commits.begin
    count = (files.commit.end - begin) // RECORD_BYTES
    raw = np.empty(begin + count * RECORD_BYTES, np.uint8)
    try:
        files.read(".commit", raw, 0)
        decode_header(COMMIT_LOG, raw.data)
        records = raw[begin:].view(COMMIT_LOG.dtype)
        if (records["sequence"] != np.arange(1, count + 1, dtype=np.uint64)).any():
            return f"the records in {files.path('.commit')} are not those that were written"
        groups = records[records["kind"] == COMMIT]
        end = groups["data_end"].astype(np.int64)
        start = np.concatenate(([FIRST_DATA], end[:-1]))
        some = _some(end - start)
        if len(some) == len(groups) and some:
            # A small log is read whole: one pass of CRCs over the buffer is faster than one read for each post.
            values = np.empty(int(end[-1]) - FIRST_DATA, np.uint8)
            files.read(".data", values, FIRST_DATA)
            wrong = first_wrong(values.data, np.append(FIRST_DATA, end) - FIRST_DATA, groups["data_crc"])
            some = [wrong] if wrong < len(groups) else []
        for i in some:
            values = np.empty(int(end[i] - start[i]), np.uint8)
            files.read(".data", values, int(start[i]))
            if crc32(values.data) != int(groups["data_crc"][i]):
                return f"bytes {start[i]} to {end[i]} of {files.path('.data')} are not those that were written"
    except LogError as error:
        return f"{files.path('.commit')}: {error}"
    except PncVolError as error:
        return str(error)
    return ""


def _some(nbytes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """Return the indices of the posts that are read back."""
    step = max(1, -(-int(nbytes.sum()) // _MOST_BYTES), -(-len(nbytes) // _MOST_POSTS))
    found = np.arange(len(nbytes))[::-step]
    return [int(i) for i in found[nbytes[found] <= _MOST_BYTES]]
