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

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers import vectored_io
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import RankError
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.merge import intersect, last_wins
from pnc_vol.extents.model import Extents, Int64, Runs, before, distinct, one_extent
from pnc_vol.extents.place import place_many
from pnc_vol.layout.base import ElementMap, Place, extents_of_rows
from pnc_vol.queue.batches import NO_ROWS, NO_TABLE, Batch, Rows, Table
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
    table : Table, what it writes.
    """

    extents: Extents
    requests: int
    variables: int
    nbytes: int
    way: Literal["shared", "widened", "streamed"] = "shared"
    table: Table = NO_TABLE

    @classmethod
    def of(
        cls, maps: Mapping[int, ElementMap], table: Table, known: Relative | None = None, *, affine: bool = True
    ) -> Plan:
        """Plan what was posted for some variables, whose elements are as wide as the file has them.

        Parameters
        ----------
        maps : mapping of uid to ElementMap, of these variables and perhaps of others.
        table : Table
        known : Relative, optional
            Plans of lists that were made before; those made now are added.
        affine : bool, `maps` is a `Places`, so that all rows are placed in one operation.
        """
        rows = table.rows
        n = rows.shape[0]
        if n == 1 and affine:
            _, first, count, memory, uid = rows[0].tolist()
            at: Any = maps[uid]
            begins = at.offset_of_run(first, count)
            if first >= 0 and count and begins >= 0:
                # one post, as programs flush after each: by plain integers, in a fraction of the time
                nbytes = count * at.itemsize
                return cls(one_extent(begins, nbytes, memory), 1, 1, nbytes, table=table)
        listed = (rows[:, 1] < 0).nonzero()[0] if table.lists else _NOTHING.offset
        if not listed.size:
            extents, _ = unmerged(maps, table, affine=affine)
            return cls(last_wins(extents), n, len(table.uids), extents.nbytes, table=table)
        chunks = _chunks(maps, table, listed, Relative() if known is None else known, affine=affine)
        nbytes = sum(chunk.nbytes for chunk in chunks)
        extents = Extents(*map(np.concatenate, zip(*_in_order(chunks), strict=True)))
        return cls(last_wins(extents), table.runs, len(table.uids), nbytes, table=table)

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


def unmerged(maps: Mapping[int, ElementMap], table: Table, *, affine: bool = True) -> tuple[Extents, Int64 | slice]:
    """Return the extents of rows that are of no lists, as they were posted, and the number of the row of each, or the
    slice of all if each row has one."""
    rows, uids = table.rows, table.uids
    if affine:
        places: Any = maps
        where = places.table(uids)
        if where.shape[0] != rows.shape[0]:
            where = np.repeat(where, np.diff(table.begins, append=len(rows)), axis=0)
        begin, itemsize, inner, record_size = where.T
        offset, nbytes = place_many(begin, itemsize, inner, record_size, rows[:, 1], rows[:, 2])
        return Extents(offset, nbytes, np.ascontiguousarray(rows[:, 3])), slice(None)
    parts: list[Extents] = [_NOTHING]
    numbers = [_NOTHING.offset]
    for uid, first in zip(uids, table.begins.tolist(), strict=True):
        own = table.of(uid).rows
        extents, run = extents_of_rows(maps[uid], own[:, 1], own[:, 2], own[:, 3])
        parts.append(extents)
        numbers.append(run + first)
    return Extents(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(numbers)


def _chunks(
    maps: Mapping[int, ElementMap], table: Table, listed: Int64, known: Relative, *, affine: bool
) -> list[Extents]:
    """Return the extents of each list, and of the rows before, between and behind these; sorted and disjoint."""
    plain = table.rows[:, 1] >= 0
    extents, number = unmerged(maps, table.where(plain), affine=affine)
    ends = np.cumsum(plain)[listed]
    cuts = (ends if isinstance(number, slice) else np.searchsorted(number, ends)).tolist()
    chunks: list[Extents] = []
    for first, last, row in zip([0, *cuts], [*cuts, len(extents.offset)], [*listed.tolist(), -1], strict=True):
        if first < last:
            chunks.append(last_wins(Extents(*(column[first:last] for column in extents))))
        if row >= 0:
            _, of, _, address, uid = table.rows[row].tolist()
            chunks.append(_extents_of_list(maps[uid], table.lists[-1 - of], address, known, affine=affine))
    return chunks


def _extents_of_list(at: ElementMap, runs: Runs, address: int, known: Relative, *, affine: bool) -> Extents:
    """Return the extents of a request, sorted and disjoint; planned once for all requests of the same runs."""
    if not affine:
        # fewer extents, where the map can tell
        extents = getattr(at, "joined", at.extents)(runs)
        offset, length, where = extents if len(extents.offset) == 1 else last_wins(extents)
        return Extents(offset, length, where + address)
    begin = cast(Place, at).begin
    from_zero = cast(Place, at)._replace(begin=0)
    key = (id(runs), from_zero)
    found = known.get(key)
    if found is None:
        extents = from_zero.extents(runs)
        if known.held > _MOST_KNOWN:
            known.clear()
            known.held = 0
        # The runs are kept with it, so that their identity stays theirs.
        found = known[key] = runs, last_wins(extents)
        known.held += len(found[1].offset)
    offset, length, where = found[1]
    return Extents(offset + begin, length, where + address)


def _in_order(chunks: list[Extents]) -> list[Extents]:
    """Return lists of extents by offset, if none reaches into another; else as they are."""
    full = [chunk for chunk in chunks if len(chunk.offset)]
    if len(full) < 2:
        return full or chunks
    first = np.array([int(chunk.offset[0]) for chunk in full])
    last = np.array([int(chunk.offset[-1] + chunk.length[-1]) for chunk in full])
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
    return sum(batch.rounds for batch in batches if not batch.streamed)


_width_of = attrgetter("itemsize")


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
        maps, table, affine = self.maps, batch.table, self.affine
        if not maps.keys() >= set(table.uids):
            table = table.where(np.isin(table.rows[:, 4], [uid for uid in table.uids if uid in maps]))
        if batch.streamed:
            for uid in table.uids:
                yield Plan.of(maps, table.of(uid), affine=affine)._replace(way="streamed")
            return
        # The strings that grew come first, each variable by itself.
        uids = table.uids
        posted, wanted = [*map(table.widths.__getitem__, uids)], [*map(_width_of, map(maps.__getitem__, uids))]
        grown: list[int] = []
        if posted != wanted:
            grown = [uid for uid, one, other in zip(uids, posted, wanted, strict=True) if one != other]
        for uid in grown:
            own, width = table.of(uid), maps[uid].itemsize
            # As `same_width` will lay their bytes out when they are written.
            wide = own.expanded().copy()
            wide[:, 3] = before(wide[:, 2]) * width
            yield Plan.of(maps, Table(wide, {uid: width}), affine=affine)._replace(way="widened", table=own)
        if grown:
            table = table.where(~np.isin(table.rows[:, 4], grown))
        for part in table.groups():
            if len(part.rows):
                yield Plan.of(maps, part, self._known, affine=affine)


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
        (uid,) = plan.table.uids
        if plan.way == "streamed":
            write_streamed(batch, uid, plan.extents, self.driver)
        else:
            _, padded = same_width(batch, uid, plan.table.expanded(), self.planner.maps[uid].itemsize)
            self.driver.write(plan.extents, padded.load(self.room))

    def one_by_one(self, batch: Batch, plan: Plan, error: OSError) -> Failed:
        """Write each request of a plan alone; the errors of those that fail."""
        failed: Failed = {}
        tables = [(uid, plan.table.of(uid)) for uid in plan.table.uids]
        if plan.way == "streamed":
            # Such an array is one request.
            return {(int(own.rows[0, 0]), uid): error for uid, own in tables}
        try:
            memory = batch.load(self.room)
        # The spill file, or the log, that holds the bytes cannot be read, so no request of the batch can be written.
        except OSError as unreadable:
            return {(int(r), uid): unreadable for uid, own in tables for r in distinct(own.rows[:, 0])}
        maps = self.planner.maps
        for uid, own in tables:
            width = maps[uid].itemsize
            wide, source = same_width(batch, uid, own.expanded(), width)
            bytes_of = memory if source is batch else source.load(self.room)
            extents, number = unmerged(maps, Table(wide, {uid: width}), affine=self.planner.affine)
            requests = wide[number, 0]
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
