"""A plan is executed; if a write fails, the request that failed is found.

Knows: batches, plans, a driver. Does not know: headers, names, ranks.

Rules
-----
1. A batch is one write, or several if planning all of it at once took too much memory. If one fails, its requests are
   written one by one, in order: each failure belongs to a request, and what can be written is written.
2. A failed request stays, and so does every later one that overlaps it: written now, they are written again after
   it, so that the order of posting holds when the failed one succeeds at last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers import vectored_io
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import RankError
from pnc_vol.extents.blocks import groups, rounds
from pnc_vol.extents.merge import intersect, last_wins
from pnc_vol.extents.model import Extents, Int64, Runs, before, distinct, one_extent
from pnc_vol.extents.place import place_many
from pnc_vol.layout.base import ElementMap, Place, Places, extents_of_rows, table_of
from pnc_vol.queue.batches import COLUMNS, MOST_RUNS, NO_ROWS, Batch, Item, Listed, Rows, Tables
from pnc_vol.queue.stores import same_width
from pnc_vol.ranks.comm import Comm

__all__ = [
    "BLOCK",
    "Executed",
    "Plan",
    "Planner",
    "Relative",
    "Write",
    "block_of",
    "equal_rounds",
    "execute",
    "in_parallel",
    "rounds_of",
    "unmerged",
    "write_sieved",
]


# ---------------------------------------------------------------------------------------------------------------- plan
# Posted runs of many variables as merged byte extents.
#
# Knows: runs, places of variables, `extents`. Does not know: data, files, drivers, ranks. A plan never touches data: a
# flush executes it, and ``File.plan()`` prints it before anything is done.


class Relative(dict[tuple[int, Place], tuple[Runs, Extents]]):
    """Plans of lists of runs of a variable that begins at byte 0, by the list and that place.

    held : int, extents of all of them.
    """

    held = 0


_MOST_KNOWN = 1 << 19
"""Extents of lists from which on their plans are not kept any more for other posts: they take 24 bytes each."""


_NOTHING = Extents(*np.empty((3, 0), np.int64))


class Plan(NamedTuple):
    """What one write of a flush will do.

    extents : Extents, sorted by offset, disjoint, joined where file and memory both adjoin.
    requests : int, posted runs that it carries out.
    variables : int, variables that they belong to.
    nbytes : int, bytes before overlaps were taken out.
    way : {"shared", "widened", "streamed"}
        A write that may be made together with other ranks; one of strings that are made wider for it; one of an array
        of the user's, which goes to the file block by block.
    items : list of (uid, Rows or Listed), what it writes; empty: all that the batch holds.
    """

    extents: Extents
    requests: int
    variables: int
    nbytes: int
    way: Literal["shared", "widened", "streamed"] = "shared"
    items: Sequence[tuple[int, Item]] = ()

    @classmethod
    def of(
        cls, maps: Sequence[ElementMap], items: Sequence[Item], known: Relative | None = None, *, affine: bool = True
    ) -> Plan:
        """Plan what was posted for some variables.

        Parameters
        ----------
        maps : sequence of ElementMap
        items : sequence of Rows or Listed
            What was posted for the variable of the same position in `maps`. A variable may come more than once; then
            all its items are rows, or all are lists, in the order of posting.
        known : Relative, optional
            Plans of lists that were made before; those made now are added.
        affine : bool, all of `maps` are `Place`, so that all rows are placed in one operation.
        """
        tables = [item for item in items if not isinstance(item, Listed)]
        if len(tables) == len(items):
            extents, _ = unmerged(maps, tables, affine=affine)
            return cls(last_wins(extents), sum(map(len, tables)), len(maps), extents.nbytes)
        known = Relative() if known is None else known
        chunks = [
            _extents_of_list(at, item, known, affine=affine)
            for at, item in zip(maps, items, strict=True)
            if isinstance(item, Listed)
        ]
        requests = sum(len(item.runs.start) for item in items if isinstance(item, Listed))
        if tables:
            others = [at for at, item in zip(maps, items, strict=True) if not isinstance(item, Listed)]
            extents, _ = unmerged(others, tables, affine=affine)
            requests += sum(map(len, tables))
            # A variable has rows or lists, not both, and variables do not overlap: their order does not matter.
            chunks.insert(0, extents)
        nbytes = sum(chunk.nbytes for chunk in chunks)
        columns = zip(*_in_order(chunks), strict=True)
        return cls(last_wins(Extents(*map(np.concatenate, columns))), requests, len(maps), nbytes)

    @classmethod
    def at_once(cls, where: Int64, tables: Tables) -> Plan | None:
        """Do as `of` does, for all rows of some variables; None if an element is not as wide as the file has it.

        Parameters
        ----------
        where : int64[variables, 4], the `Place` of each.
        """
        rows = tables.rows
        if len(rows) == 1:
            _, first, count, memory, size = rows[0].tolist()
            at = Place(*where[0].tolist())
            begins = at.offset_of_run(first, count)
            if size == at.itemsize and count and begins >= 0:
                # one post, as programs flush after each: by plain integers, in a fraction of the time
                return cls(one_extent(begins, count * size, memory), 1, 1, count * size)
        if tables.counts is not None:
            where = np.repeat(where, tables.counts, axis=0)
        begin, itemsize, inner, record_size = where.T
        _, start, length, address, width = rows.T
        # Strings grew since they were posted: their bytes have to be laid out anew.
        if np.count_nonzero(width != itemsize):
            return None
        offset, nbytes = place_many(begin, itemsize, inner, record_size, start, length)
        posted = Extents(offset, nbytes, np.ascontiguousarray(address))
        return cls(last_wins(posted), len(rows), len(tables.uids), posted.nbytes)

    def __str__(self) -> str:
        count = len(self.extents.offset)
        lines = [
            f"{self.requests} runs of {self.variables} variables, {self.nbytes} bytes"
            f" -> {count} extents, {self.extents.nbytes} bytes, {self.way}"
        ]
        shown = zip(*(column[:16].tolist() for column in self.extents), strict=True)
        lines += [f"  file {offset:>12} .. {offset + n:<12} from memory {place}" for offset, n, place in shown]
        if count > 16:
            lines.append(f"  ... {count - 16} more")
        return "\n".join(lines)


def unmerged(maps: Sequence[ElementMap], tables: Sequence[Rows], *, affine: bool = True) -> tuple[Extents, Int64]:
    """Return the extents of all rows, as they were posted, and the request of each."""
    if len(tables) == 1:
        rows, counts = tables[0], None
    else:
        rows = np.concatenate(tables) if tables else np.empty((0, COLUMNS), np.int64)
        counts = np.fromiter(map(len, tables), np.int64, len(tables))
    if affine:
        spread = np.repeat(table_of(cast("Sequence[Place]", maps)), counts if counts is not None else len(rows), axis=0)
        begin, itemsize, inner, record_size = spread.T
        offset, nbytes = place_many(begin, itemsize, inner, record_size, rows[:, 1], rows[:, 2])
        return Extents(offset, nbytes, np.ascontiguousarray(rows[:, 3])), rows[:, 0]
    parts: list[Extents] = [_NOTHING]
    requests = [_NOTHING.offset]
    for of, table in zip(maps, tables, strict=True):
        extents, run = extents_of_rows(of, table[:, 1], table[:, 2], table[:, 3])
        parts.append(extents)
        requests.append(table[run, 0])
    return Extents(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(requests)


def _extents_of_list(at: ElementMap, item: Listed, known: Relative, *, affine: bool) -> Extents:
    """Return the extents of a request, sorted and disjoint; planned once for all requests of the same runs."""
    if not affine:
        # fewer extents, where the map can tell
        extents = getattr(at, "joined", at.extents)(item.runs)
        offset, length, where = extents if len(extents.offset) == 1 else last_wins(extents)
        return Extents(offset, length, where + item.address)
    begin = cast(Place, at).begin
    from_zero = cast(Place, at)._replace(begin=0)
    key = (id(item.runs), from_zero)
    found = known.get(key)
    if found is None:
        extents = from_zero.extents(item.runs)
        if known.held > _MOST_KNOWN:
            known.clear()
            known.held = 0
        # The runs are kept with it, so that their identity stays theirs.
        found = known[key] = item.runs, last_wins(extents)
        known.held += len(found[1].offset)
    offset, length, where = found[1]
    return Extents(offset + begin, length, where + item.address)


def _in_order(chunks: list[Extents]) -> list[Extents]:
    """Return lists of extents by offset, if none reaches into another; else as they are."""
    full = [chunk for chunk in chunks if len(chunk.offset)]
    if len(full) < 2:
        return full or chunks
    # The first may be rows, which come as they were posted.
    if bool((full[0].offset[1:] < full[0].offset[:-1]).any()):
        return full
    first = np.array([int(chunk.offset[0]) for chunk in full])
    last = np.array([int(chunk.offset[-1] + chunk.length[-1]) for chunk in full])
    last[0] = int((full[0].offset + full[0].length).max())
    order = np.argsort(first, kind="stable")
    if bool((last[order[:-1]] > first[order[1:]]).any()):
        return full
    return [full[i] for i in order.tolist()]


Bytes = npt.NDArray[np.uint8]
Write = Callable[[Extents, Bytes], None]
Failed = dict[tuple[int, int], OSError]


_NO_BYTES = np.empty(0, np.uint8)
_NO_PLAN = Plan(Extents(*np.empty((3, 0), np.int64)), 0, 0, 0)


class Executed:
    """What became of some batches.

    failed : dict of (request, uid) to the error.
    left : list of Batch, what stays in the queue.
    requests, extents, nbytes : int, posted runs that were written, extents that they became, and bytes of these.
    rounds : int, writes that ranks made together.
    """

    __slots__ = ("extents", "failed", "left", "nbytes", "requests", "rounds")

    def __init__(self) -> None:
        self.failed: dict[tuple[int, int], OSError] = {}
        self.left: list[Batch] = []
        self.requests = self.extents = self.nbytes = self.rounds = 0


class _FailedOnAll(Exception):
    """All ranks raised `error` out of a write: none makes another one."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextmanager
def equal_rounds(comm: Comm, write: Write, rounds: int) -> Iterator[Write]:
    """Make `rounds` collective writes in the block: a rank that makes fewer, as it has less or fails, makes empty ones.

    An error that all ranks raise out of a write ends it on all of them; no request is blamed for it.

    Examples
    --------
    ::

        with equal_rounds(comm, together, agreed.rounds) as write:
            execute(batches, maps, driver, write)
    """
    made = 0

    def once(extents: Extents, memory: Bytes) -> None:
        nonlocal made
        made += 1
        try:
            write(extents, memory)
        except Exception as error:
            if comm.size > 1 and (comm.in_step(error) or isinstance(error, RankError)):
                raise _FailedOnAll(error) from error
            raise

    failure: BaseException | None = None
    try:
        try:
            yield once
        except _FailedOnAll:
            raise
        except BaseException as error:
            failure = error
        # The other ranks wait in these writes, whatever failed here.
        while made < rounds:
            try:
                once(_NO_PLAN.extents, _NO_BYTES)
            except _FailedOnAll:
                raise
            except Exception as error:
                failure = failure or error
    except _FailedOnAll as failed:
        failure = failed.error
    if failure is not None:
        raise failure


def rounds_of(batches: list[Batch]) -> int:
    """Writes that `execute` makes at most, if all variables have a place."""
    counted = [batch for batch in batches if not batch.streamed]
    return sum(1 if _in_one(batch) is not None else len(_groups(batch, batch.uids())) for batch in counted)


def _in_one(batch: Batch) -> Tables | None:
    """Return what a batch in memory holds, if it is planned and written at once; see `_groups`."""
    found = batch.whole
    return found if found is not None and 0 < len(found.rows) <= MOST_RUNS else None


def _groups(batch: Batch, uids: list[int]) -> list[list[tuple[int, int]]]:
    """Return what is planned and written at once: variables, and the numbers of their items."""
    items = [(uid, i, size) for uid in uids for i, size in enumerate(batch.sizes(uid))]
    sizes = np.fromiter((size for _, _, size in items), np.int64, len(items))
    end = np.cumsum(sizes)
    return [[item[:2] for item in items[first:last]] for first, last in groups(end - sizes, end, MOST_RUNS)]


class Planner:
    """Makes the plans of batches, which a flush executes one after another, and ``File.plan()`` shows.

    maps : mapping of uid to ElementMap, of the variables to write.
    affine : bool, `maps` is a `Places`.
    """

    __slots__ = ("_known", "affine", "maps")

    def __init__(self, maps: Mapping[int, ElementMap], affine: bool = True) -> None:
        self.maps = maps
        self.affine = affine
        self._known = Relative()

    def plans(self, batch: Batch) -> Iterator[Plan]:
        """Yield what becomes of a batch, as far as its variables have a place; made one at a time, as they take
        memory."""
        # For a flush, which executes each at once, and for `File.plan`, which keeps them: what is told is what is done.
        tables = _in_one(batch)
        if tables is not None and self.affine:
            assert isinstance(self.maps, Places)
            where = self.maps.table(tables.uids)
            plan = None if where is None else Plan.at_once(where, tables)
            if plan is not None:
                yield plan
                return
        uids = [uid for uid in batch.uids() if uid in self.maps]
        if batch.streamed:
            yield from (self._streamed(uid, batch.rows(uid)) for uid in uids)
            return
        for group in _groups(batch, uids):
            yield from self._group([(uid, batch.items(uid)[i]) for uid, i in group])

    def _streamed(self, uid: int, rows: Rows) -> Plan:
        plan = Plan.of([self.maps[uid]], [rows], affine=self.affine)
        return plan._replace(way="streamed", items=[(uid, rows)])

    def _group(self, items: list[tuple[int, Item]]) -> Iterator[Plan]:
        """Yield the first the strings that grew, each by itself, then all else in one plan."""
        even: list[tuple[int, Item]] = []
        for uid, item in items:
            at = self.maps[uid]
            if isinstance(item, Listed) and item.itemsize == at.itemsize:
                even.append((uid, item))
                continue
            rows = item.rows() if isinstance(item, Listed) else item
            if bool((rows[:, 4] == at.itemsize).all()):
                even.append((uid, rows))
                continue
            # As `same_width` will lay their bytes out when they are written.
            wide = rows.copy()
            wide[:, 3], wide[:, 4] = before(rows[:, 2]) * at.itemsize, at.itemsize
            yield Plan.of([at], [wide], affine=self.affine)._replace(way="widened", items=[(uid, rows)])
        if even:
            maps, posted = [self.maps[uid] for uid, _ in even], [item for _, item in even]
            yield Plan.of(maps, posted, self._known, affine=self.affine)._replace(items=even)


def execute(
    batches: list[Batch], maps: Mapping[int, ElementMap], driver: Driver, write: Write, *, affine: bool = True
) -> Executed:
    """Write the rows of all variables that have a place; the others stay.

    Parameters
    ----------
    batches : list of Batch, in the order of posting.
    maps : mapping of uid to ElementMap, of the variables to write.
    driver : Driver
    write : function of extents and memory
        Writes what may be written together with other ranks; called `rounds_of` times at most.
    affine : bool, `maps` is a `Places`.

    Returns
    -------
    Executed
    """
    result = Executed()
    # for batches that are not in memory
    room = np.empty(max([batch.size for batch in batches], default=0), np.uint8)
    work = _Work(Planner(maps, affine), driver, write, room, result)
    # The rows of each variable that stay: what overlaps them in later batches stays as well, to be written after them.
    held: dict[int, Rows] = {}
    for batch in batches:
        failed = work.done(batch)
        result.failed.update(failed)
        uids = batch.uids()
        if not (failed or held) and maps.keys() >= set(uids):
            continue
        changed: dict[int, Rows] = {}
        for uid in uids:
            if uid not in maps:
                continue
            before = held.get(uid)
            changed[uid] = NO_ROWS
            if not failed and before is None:
                continue
            rows = batch.rows(uid)
            before = NO_ROWS if before is None else before
            again = _again(rows, [request for request, of in failed if of == uid], before)
            if len(again):
                changed[uid] = again
                held[uid] = np.concatenate((before, again))
        result.left.append(batch.change(changed))
    return result


def _again(rows: Rows, failed: list[int], held: Rows) -> Rows:
    """Return the rows of failed requests, and of later ones that overlap what will be written again.

    Parameters
    ----------
    rows : int64[n, 5], of one variable in one batch.
    failed : list of int, those of its requests that failed.
    held : int64[m, 5], rows of earlier batches that will be written again.
    """
    chosen = np.isin(rows[:, 0], failed)
    # Requests are numbered in the order of posting. All of them come after those of earlier batches.
    later = rows[:, 0] >= (min(failed, default=0) if not len(held) else 0)
    # A request that is written again may overlap a later one, and this one another: until none is added.
    found = -1
    while found != (found := int(np.count_nonzero(chosen))):
        start, count = np.concatenate((held, rows[chosen]))[:, 1:3].T
        union = last_wins(Extents(start, count, np.zeros_like(start)))
        overlapping = intersect(rows[:, 1], rows[:, 2], union.offset, union.length)[0]
        chosen |= later & np.isin(rows[:, 0], rows[overlapping, 0])
    return rows[chosen]


class _Work:
    """What is the same for all batches."""

    __slots__ = ("driver", "planner", "result", "room", "write")

    def __init__(self, planner: Planner, driver: Driver, write: Write, room: Bytes, result: Executed) -> None:
        self.planner = planner
        self.driver = driver
        self.write = write
        self.room = room
        self.result = result

    def done(self, batch: Batch) -> Failed:
        """Write a batch, one plan after the other; the errors of requests that failed, by (request, uid)."""
        failed: Failed = {}
        memory: Bytes | None = None
        for plan in self.planner.plans(batch):
            if not plan.requests:
                continue
            try:
                if plan.way == "shared":
                    # Loaded once for all plans of a batch, and not for one that needs none of it.
                    memory = batch.load(self.room) if memory is None else memory
                    self.write(plan.extents, memory)
                else:
                    self.by_itself(batch, plan)
            except OSError as error:
                failed.update(self.one_by_one(batch, plan, error))
            else:
                self.result.requests += plan.requests
                self.result.extents += len(plan.extents.offset)
                self.result.nbytes += plan.extents.nbytes
        return failed

    def by_itself(self, batch: Batch, plan: Plan) -> None:
        """Carry out a plan that is not joined with other ranks' data."""
        ((uid, item),) = plan.items
        if plan.way == "streamed":
            write_streamed(batch, uid, plan.extents, self.driver)
        else:
            rows = item.rows() if isinstance(item, Listed) else item
            _, padded = same_width(batch, uid, rows, self.planner.maps[uid].itemsize)
            self.driver.write(plan.extents, padded.load(self.room))

    def one_by_one(self, batch: Batch, plan: Plan, error: OSError) -> Failed:
        """Write each request of a plan alone; the errors of those that fail."""
        failed: Failed = {}
        items = plan.items or [(uid, item) for uid in batch.uids() for item in batch.items(uid)]
        tables = [(uid, item.rows() if isinstance(item, Listed) else item) for uid, item in items]
        if plan.way == "streamed":
            # Such an array is one request.
            return {(int(rows[0, 0]), uid): error for uid, rows in tables}
        try:
            memory = batch.load(self.room)
        # The spill file, or the log, that holds the bytes cannot be read, so no request of the batch can be written.
        except OSError as unreadable:
            return {(int(r), uid): unreadable for uid, rows in tables for r in distinct(rows[:, 0])}
        for uid, rows in tables:
            at = self.planner.maps[uid]
            wide, source = same_width(batch, uid, rows, at.itemsize)
            bytes_of = memory if source is batch else source.load(self.room)
            extents, requests = unmerged([at], [wide], affine=self.planner.affine)
            for request in distinct(requests).tolist():
                chosen = requests == request
                part = Extents(extents.offset[chosen], extents.length[chosen], extents.place[chosen])
                try:
                    self.driver.write(last_wins(part), bytes_of)
                except OSError as reason:
                    failed[request, uid] = reason
        return failed


# ------------------------------------------------------------------------------------------------------------- blocks
# Large writes and reads go in blocks that fit a cache; conversion and system call overlap where a driver allows it.
#
# The kernel's copy of one block and the byte swap of the next one keep two cores busy; that is how a big-endian file
# is written as fast as a native one. Only drivers that say `concurrent` are called from threads: none that uses MPI.


BLOCK = 1 << 20
"""Bytes of a block: it stays in a core's second-level cache, and a call's cost is small against its copy."""

_LEAST_CALLS = 16
"""Costs of a call that a block is worth at least, on drivers with dear calls."""


def block_of(driver: Driver) -> int:
    """Return the number of bytes of a block that is read or written by one call of a driver; see
    `Capabilities.call_cost`."""
    return max(BLOCK, _LEAST_CALLS * driver.capabilities.call_cost)


def in_parallel(
    driver: Driver, tasks: Iterable[Callable[[Bytes], Any]], room: int = BLOCK, *, alone: bool = False
) -> None:
    """Run the tasks, in two threads if `driver` may be called so, and it is not to be `alone`; see `in_two_threads`."""
    from pnc_vol.system import two_threads

    two_threads.in_two_threads(tasks, room, alone=alone or not driver.capabilities.concurrent)


def write_streamed(batch: Batch, uid: int, extents: Extents, driver: Driver) -> None:
    """Write extents whose ``place`` is an address in a batch, by copies of a block each: a batch that is not loaded."""

    def task(block: Extents) -> Callable[[Bytes], None]:
        def run(room: Bytes) -> None:
            ends = np.cumsum(block.length)
            packed = room[: int(ends[-1])]
            batch.copy(uid, packed, ends - block.length, block.place, block.length)
            driver.write(Extents(block.offset, block.length, ends - block.length), packed)

        return run

    in_parallel(driver, (task(block) for block in rounds(last_wins(extents), BLOCK)))


_PIECES = 256
"""Pieces of a block from which on it may be written as a whole; for a file in the page cache it has 1 MiB then."""
_LARGEST = 16 << 20


def write_sieved(extents: Extents, memory: Bytes, driver: Driver) -> None:
    """Write extents, those of dense blocks together with what lies between them.

    What lies between is rewritten with what it was, so this is done only where no other rank has the file.

    Parameters
    ----------
    extents : Extents, sorted by offset and disjoint, as `Plan.of` makes them.
    memory : uint8[...]
    driver : Driver, on a file that nobody else writes to at the moment.

    Raises
    ------
    OSError
        Something could not be read or written; which extents were written is not known.
    """
    offset, length, place = extents
    if len(offset) == 1:
        # what a program that flushes in each step writes
        n, begin = length.item(), place.item()
        data = memory.data[begin : begin + n]
        if begin >= 0 and 0 < n == data.nbytes:
            driver.write_one(data, offset.item())
            return
    sparse = driver.capabilities.call_cost
    block = min(_PIECES * sparse, _LARGEST)
    if not sparse or len(offset) <= block // sparse:
        driver.write(extents, memory)
        return
    # Blocks are at fixed places of the file; a piece belongs to the one in which it begins.
    number = offset // block
    first = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
    count = np.diff(first, append=len(offset))
    # Pieces that touch are one call anyway, long ones are not worth a detour.
    apart = np.concatenate((offset[1:] != offset[:-1] + length[:-1], [True])) & (length < sparse)
    longest = np.maximum.reduceat(length, first)
    dense = (np.add.reduceat(apart, first) > block // sparse) & (longest < sparse)
    if not dense.any():
        driver.write(extents, memory)
        return

    def task(part: slice) -> Callable[[Bytes], None]:
        def run(room: Bytes) -> None:
            offset, length, place = (column[part] for column in extents)
            base = int(offset[0])
            part_of_file = room[: int(offset[-1] + length[-1]) - base]
            # What lies beyond the end of the file reads as nothing, and is zeros.
            part_of_file[:] = 0
            whole = one_extent(base, part_of_file.nbytes)
            driver.read(whole, part_of_file)
            vectored_io.copy_pieces(part_of_file, offset - base, memory, place, length)
            driver.write(whole, part_of_file)

        return run

    # The last piece of a block may reach behind it, by less than `sparse` bytes.
    chosen = zip(first[dense].tolist(), count[dense].tolist(), strict=True)
    in_parallel(driver, (task(slice(f, f + n)) for f, n in chosen), block + sparse)
    alone = np.repeat(~dense, count)
    if alone.any():
        driver.write(Extents(*(column[alone] for column in extents)), memory)
