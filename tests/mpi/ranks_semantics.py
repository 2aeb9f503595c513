"""What a rank may do by itself, what it sees and when; one program, any number of ranks from 2 up.

``ranks_semantics.py DIR`` runs every case with the drivers mpio and posix. Ranks are kept out of step on purpose:
`Turn` lets one rank go on while the others wait outside the library.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py
from pnc_vol.errors import AlreadyDoneError, RequestPendingError

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
LAST = SIZE - 1
Open = Callable[..., h5py.File]


@contextlib.contextmanager
def only(rank: int) -> Iterator[bool]:
    """The body is for one rank; the others wait until it has left it, and answer nobody meanwhile."""
    WORLD.Barrier()
    yield rank == RANK
    WORLD.Barrier()


def raises(kind: type[BaseException], call: Callable[[], Any]) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


# ------------------------------------------------------------------------------------------------ alone


def one_rank_writes(open_file: Open) -> None:
    """Writes of one rank, and nothing of the others."""
    with open_file("w") as f:
        x = f.create_dataset("x", (10,), "f8")
        if RANK == 1:
            x[2:5] = [1.0, 2.0, 3.0]
        f.flush()
        assert x[...].tolist() == [0, 0, 1, 2, 3, 0, 0, 0, 0, 0]
        if LAST == RANK:
            x[9] = 9.0
    with open_file("r") as f:
        assert f["x"][8:].tolist() == [0, 9]


def reads_alone(open_file: Open) -> None:
    """A rank reads, before and after a flush, while no other rank answers."""
    with open_file("w", collective_timeout=8) as f:
        x = f.create_dataset("x", (SIZE, 4), "f8", fillvalue=-1)
        t = f.create_dataset("t", (2, 3), "i4", maxshape=(None, 3))
        s = f.create_dataset("s", (2,), h5py.string_dtype())
        x[RANK] = RANK + 10
        with only(0) as me:
            if me:
                assert x[0].tolist() == [10] * 4
                assert x[1:].tolist() == [[-1] * 4] * (SIZE - 1)
                t[1] = 5
                s[1] = "own"
                assert t[...].tolist() == [[0] * 3, [5] * 3]
                assert list(s[...]) == [b"", b"own"]
        f.flush()
        with only(LAST) as me:
            if me:
                assert x[:, 0].tolist() == [r + 10 for r in range(SIZE)]
                assert t[1].tolist() == [5, 5, 5]
                assert s[1] == b"own"
                assert f["x"].shape == (SIZE, 4)
                got = x.iget(np.s_[0])
                assert got.wait().tolist() == [10] * 4


def reads_own_writes(open_file: Open) -> None:
    """A rank sees what it posted, in its order; another rank's posts only after the flush."""
    with open_file("w") as f:
        x = f.create_dataset("x", (4,), "i4")
        x[...] = 1
        f.flush()
        if RANK == 0:
            x[1] = 2
            x[1:3] = 3
            before = x.iget(np.s_[:])
            x[2] = 4
            assert x[...].tolist() == [1, 3, 4, 1]
            assert before.wait().tolist() == [1, 3, 3, 1]
        else:
            assert x[...].tolist() == [1, 1, 1, 1]
        WORLD.Barrier()
        assert x[...].tolist() == ([1, 3, 4, 1] if RANK == 0 else [1, 1, 1, 1])
        f.flush()
        assert x[...].tolist() == [1, 3, 4, 1]


def drains_alone(open_file: Open) -> None:
    """One rank goes through its budget many times while no other rank answers."""
    with open_file("w", buffer_size=64 << 10, collective_timeout=8) as f:
        x = f.create_dataset("x", (SIZE, 200, 400), "f4")
        t = f.create_dataset("t", (30, 4000), "f4", maxshape=(None, 4000))
        with only(LAST) as me:
            if me:
                for i in range(200):
                    x[LAST, i] = i
                for i in range(30):
                    t[i] = i
                # A log has room enough.
                logged = f.hints["nc_burst_buf"] == "enable"
                assert logged or f.statistics()["bytes_spilled"] > 64 << 10
                assert logged or f.statistics()["drains"]
                assert x[LAST, 199, 0] == 199
                assert t[29, 7] == 29
        f.flush()
        assert x[LAST, :, 3].tolist() == list(range(200))
        assert t[:, 0].tolist() == list(range(30))


# ------------------------------------------------------------------------------------------- collectively


def collective_reads(open_file: Open) -> None:
    """Every rank another part, some nothing, some the whole; records, strings and own posts included."""
    with open_file("w") as f:
        x = f.create_dataset("x", (8, SIZE, 5), "i4")
        x[:, RANK] = np.arange(40).reshape(8, 5) * (RANK + 1)
        s = f.create_dataset("s", (3,), h5py.string_dtype())
        if RANK == LAST:
            s[...] = ["a", "bb", "ccc"]
        f.flush()
        whole = np.arange(40).reshape(8, 1, 5) * (1 + np.arange(SIZE)).reshape(SIZE, 1)
        with x.collective:
            assert np.array_equal(x[...], whole)
            assert np.array_equal(x[RANK : RANK + 2], whole[RANK : RANK + 2])
            assert np.array_equal(x[:0] if RANK == 0 else x[::3], whole[:0] if RANK == 0 else whole[::3])
            if RANK == 1:
                x[0] = -1
            assert x[0, 0, 0] == (-1 if RANK == 1 else 0)
        with s.collective:
            assert s[RANK % 3] == [b"a", b"bb", b"ccc"][RANK % 3]
        f.flush()
        with x.collective:
            assert (x[0] == -1).all()


def posted_reads_of_small_pieces(open_file: Open) -> None:
    """Few ranks read them for all, at the flush and the close of a file that is only read, too; nobody's posts show."""
    with open_file("w") as f:
        x = f.create_dataset("x", (700, SIZE), "i4", maxshape=(None, SIZE))
        x[:, RANK] = np.arange(700) * (RANK + 1)
        f.flush()
        before = x.iget(np.s_[:, LAST])
        x[:, RANK] = -1
        after = x.iget(np.s_[:, RANK])
        f.flush()
        assert (before.array == np.arange(700) * SIZE).all()
        assert (after.array == -1).all()
        f.flush()
        with x.collective:
            assert (x[...] == -1).all()
    with open_file("r") as f:
        x = f["x"]
        mine = x.iget(np.s_[::2, RANK])
        f.flush()
        assert mine.status == "done"
        assert (mine.array == -1).all()
        nothing = x.iget(np.s_[:0, :]) if RANK == 0 else x.iget(np.s_[:, :])
    assert nothing.status == "done"
    assert nothing.array.shape == ((0, SIZE) if RANK == 0 else (700, SIZE))


def collective_reads_before_a_place(open_file: Open) -> None:
    """Of variables that the file does not hold yet."""
    with open_file("w") as f:
        x = f.create_dataset("x", (4,), "f4", fillvalue=2.5)
        with x.collective:
            assert x[...].tolist() == [2.5] * 4
        x[RANK % 4] = 1.0
        with x.collective:
            assert x[RANK % 4] == 1.0


# --------------------------------------------------------------------------------------------- requests


def requests(open_file: Open) -> None:
    """iput and iget: what a rank can complete alone, and what only a flush completes."""
    with open_file("w") as f:
        x = f.create_dataset("x", (SIZE, 6), "f8")
        t = f.create_dataset("t", (SIZE,), "i4", maxshape=(None,))
        with only(0) as me:
            if me:
                # A fixed-size variable has its place from its definition on; a record variable has it from a flush on.
                one = x.iput(np.s_[0, :3], [1.0, 2.0, 3.0])
                assert one.status == "pending"
                assert one.id in f.requests
                f.wait_all([one])
                assert one.status == "done"
                raises(AlreadyDoneError, one.cancel)
                two = t.iput(np.s_[0], 7)
                told = raises(RequestPendingError, two.wait)
                assert "flush" in told
                assert two.status == "pending"
                three = x.iput(np.s_[0, 3], 9.0)
                three.cancel()
                assert three.status == "cancelled"
        f.flush()
        assert RANK != 0 or two.status == "done"
        assert x[0].tolist() == [1, 2, 3, 0, 0, 0]
        assert t[0] == 7
        if RANK == 0:
            # all that is posted goes, also what has no handle, and no other rank is asked
            x[0, 4], gone = 8.0, x.iput(np.s_[0, 5], 9.0)
            f.cancel()
            assert gone.status == "cancelled"
            assert x[0].tolist() == [1, 2, 3, 0, 0, 0]
        mine = t.iput(np.s_[RANK], RANK + 1)
        with only(LAST) as me:
            if me:
                mine.wait()
                assert mine.status == "done"
        out = np.zeros(6)
        if RANK == 0:
            got = x.iget(np.s_[0], out)
            got.wait()
            assert out.tolist() == [1, 2, 3, 0, 0, 0]
        late = x.iget(np.s_[0])
        f.flush()
        assert mine.status == late.status == "done"
        assert late.array.tolist() == [1, 2, 3, 0, 0, 0]
        assert t[...].tolist() == [r + 1 for r in range(SIZE)]
        assert f.requests == {}


def lent_arrays(open_file: Open) -> None:
    """Arrays of more than a megabyte are not copied; each transport, one rank lending, the others copying."""
    n = 200_000
    for transport in ("auto", "collective", "independent"):
        with open_file("w", transport=transport) as f:
            x = f.create_dataset("x", (SIZE, n), "f8")
            y = f.create_dataset("y", (SIZE, 5), "f8")
            mine = np.arange(n, dtype="f8") + RANK
            if RANK == 0:
                request = x.iput(np.s_[0], mine)
            else:
                x[RANK] = mine
            y[RANK] = RANK
            f.flush()
            assert RANK != 0 or request.status == "done"
            for r in range(SIZE):
                assert x[r, -1] == n - 1 + r
            assert y[:, 0].tolist() == list(range(SIZE))


# --------------------------------------------------------------------------------------------- overlaps


def ordered(open_file: Open) -> None:
    """ordered=True: of overlapping writes of one epoch the highest rank's wins; a later epoch wins over all."""
    n = 64
    with open_file("w", ordered=True, buffer_size=96 << 10) as f:
        x = f.create_dataset("x", (n,), "i4")
        t = f.create_dataset("t", (3, n), "i4", maxshape=(None, n))
        big = f.create_dataset("big", (200, 200), "f8")
        model = np.zeros(n, "i4")
        for epoch in range(3):
            shares = [np.random.default_rng([epoch, r]).permutation(n)[: n // 2] for r in range(SIZE)]
            x[np.sort(shares[RANK])] = 100 * epoch + RANK + 1
            t[epoch, :] = RANK + 1
            for r in range(SIZE):
                model[shares[r]] = 100 * epoch + r + 1
            big[...] = RANK + epoch
            f.flush()
            assert np.array_equal(x[...], model), (epoch, x[...], model)
            assert (big[...] == LAST + epoch).all()
        assert (t[...] == SIZE).all()
        # A lower rank's write of a later epoch stands.
        if RANK == 0:
            x[...] = -1
        f.flush()
        assert (x[...] == -1).all()


def unordered(open_file: Open) -> None:
    """Otherwise each element is some rank's, whole."""
    with open_file("w") as f:
        x = f.create_dataset("x", (1000,), "f8")
        x[...] = float(RANK + 1) + 0.25
        f.flush()
        assert set(x[...].tolist()) <= {r + 1.25 for r in range(SIZE)}


# ---------------------------------------------------------------------------------------------- records


def records_of_some(open_file: Open) -> None:
    """All ranks define the length, some write records; what nobody wrote is the fill value."""
    with open_file("w") as f:
        t = f.create_dataset("t", (0, 2), "f4", maxshape=(None, 2), fillvalue=9)
        for epoch in range(1, 4):
            t.resize(2 * epoch, axis=0)
            if epoch % SIZE == RANK:
                t[2 * epoch - 1] = epoch
            f.flush()
            assert t.shape == (2 * epoch, 2)
            assert t[:, 0].tolist() == [v for e in range(1, epoch + 1) for v in (9, e)]
    with open_file("r") as f:
        assert f.numrecs == 6


def file_that_moves(open_file: Open) -> None:
    """Collective calls reach the file after it was laid out anew, twice, and after it took its name."""
    for driver in ("mpio", "trace | mpio", "posix"):
        for publish in ("create", "close"):
            options = {"driver": driver, "publish": publish, "transport": "collective"}
            with open_file("w", name="moves", **options) as f:
                x = f.create_dataset("x", (SIZE, 4), "i4")
                x[RANK] = RANK
                f.flush()
                for turn in range(1, 3):
                    f.attrs[f"long{turn}"] = "x" * (20000 * turn)
                    f.flush()
                    x[RANK] = RANK + 10 * turn
                    f.flush()
                    assert f.statistics()["moves"] == turn
                    # Not by calls of one rank's own, as after a collective call that failed.
                    assert f.statistics()["transport"] == ("independent" if driver == "posix" else "collective")
                    with x.collective:
                        assert x[:, 0].tolist() == [rank + 10 * turn for rank in range(SIZE)]
            with open_file("r", name="moves", driver=driver) as f:
                assert f["x"][:, 0].tolist() == [rank + 20 for rank in range(SIZE)]
            WORLD.Barrier()


def very_many_runs(open_file: Open) -> None:
    """A post of more runs than are planned at once goes together with the other ranks', in few calls."""
    n = 250_000
    with open_file("w") as f:
        x = f.create_dataset("x", (n * SIZE,), "i4")
        f.flush()
        before = {key: value for key, value in f.statistics()["driver"].items() if key.endswith("write_calls")}
        x[RANK::SIZE] = np.full(n, RANK, "i4")
        told = f.statistics()
        assert "drains" not in told
        assert "bytes_drained" not in told
        f.flush()
        assert f.statistics()["transport"] == "aggregate"
        after = f.statistics()["driver"]
        assert sum(after[key] - value for key, value in before.items()) <= 10, (before, after)
        assert np.array_equal(x[...], np.tile(np.arange(SIZE), n))


def name_of_another_file(open_file: Open) -> None:
    """Somebody puts another file under the name of one that is open: collective calls stay with the open one."""
    with open_file("w") as f:
        f.create_dataset("x", (SIZE,), "i4")[RANK] = 7
        path = f.filename
    with open_file("r") as f:
        with only(0) as me:
            if me:
                os.rename(path, path + ".old")
                with h5py.File(path, "w", driver="posix") as other:
                    other["x"] = np.full(SIZE, 8, "i4")
        with f["x"].collective:
            assert f["x"][...].tolist() == [7] * SIZE
        assert f["x"][...].tolist() == [7] * SIZE


def two_files(open_file: Open) -> None:
    """Two files at once do not disturb one another, nor the program's own messages."""
    with open_file("w") as f, open_file("w", name="second") as g:
        x, y = f.create_dataset("x", (SIZE,), "i4"), g.create_dataset("y", (SIZE,), "i4")
        x[RANK] = RANK
        request = WORLD.isend(b"mine", (RANK + 1) % SIZE, tag=4001)
        g.flush()
        assert WORLD.recv(source=(RANK - 1) % SIZE, tag=4001) == b"mine"
        request.wait()
        y[RANK] = -RANK
        f.flush()
        g.flush()
        assert x[...].tolist() == [-v for v in y[...].tolist()] == list(range(SIZE))


def part_of_the_ranks(open_file: Open) -> None:
    """A communicator of some ranks; the others have a file of their own, or none."""
    comm = WORLD.Split(RANK % 2)
    with open_file("w", comm=comm, name=f"half{RANK % 2}") as f:
        f.create_dataset("x", (comm.size,), "i4")[comm.rank] = RANK
        f.flush()
        assert f["x"][...].tolist() == [r for r in range(SIZE) if r % 2 == RANK % 2]
    comm.Free()


def compound_references_and_rows(open_file: Open) -> None:
    """What takes several variables, an axis that grows before a flush, references; rows are for one rank alone."""
    kind = np.dtype([("a", "i4"), ("s", "S3"), ("v", "f4", (2,)), ("t", h5py.string_dtype())])
    records = [(rank, b"r%d" % rank, [rank, -rank], b"x" * (rank + 1)) for rank in range(SIZE)]
    with open_file("w", track_order=True) as f:
        c, e = f.create_dataset("c", (SIZE,), kind), f.create_dataset("e", (SIZE, 2), "i4", maxshape=(SIZE, None))
        c[RANK], e[RANK] = np.array(records[RANK], kind), RANK + 1
        # nobody flushes before: what each rank posted must be carried over
        e.resize((SIZE, 3))
        e[RANK, 2] = 10 + RANK
        f["soft"], f["hard"], f["type"] = h5py.SoftLink("/c"), e, np.dtype("f8")
        f.create_dataset("references", (SIZE,), h5py.ref_dtype)[RANK] = c.ref
        f.create_dataset(None, (SIZE,), "i4")[RANK] = 1
        rows = f.create_dataset("rows", (SIZE,), h5py.vlen_dtype("i4"))
        raises(h5py.NotYetError, lambda: rows.__setitem__(RANK, [1]))
    with open_file("r") as f:
        assert [tuple(one)[0::3] for one in f["soft"][()]] == [one[0::3] for one in records]
        assert f["c"]["v"].tolist() == [one[2] for one in records]
        assert f["hard"][()].tolist() == [[rank + 1] * 2 + [10 + rank] for rank in range(SIZE)]
        assert [f[each].name for each in f["references"][()]] == ["/c"] * SIZE
        assert [row.tolist() for row in f["rows"][()]] == [[]] * SIZE
        assert list(f) == ["c", "e", "soft", "hard", "type", "references", "rows"]


def work_follows_what_changed(open_file: Open) -> None:
    """After a change of an attribute a flush calls the same functions, as often, with 10 and with 200 datasets."""
    counted = tuple(os.path.join(os.path.dirname(h5py.__file__), name) for name in ("mapping", "format"))

    def calls_of(f: h5py.File) -> Counter[str]:
        found: Counter[str] = Counter()

        def note(frame: FrameType, event: str, _: object) -> None:
            code = frame.f_code
            # every step of a generator expression is told as a call
            if event == "call" and code.co_filename.startswith(counted) and not code.co_name.startswith("<"):
                found[f"{os.path.basename(code.co_filename)}:{code.co_name}"] += 1

        sys.setprofile(note)
        try:
            f.flush()
        finally:
            sys.setprofile(None)
        return found

    for owner in ("x3", "g/x5", "/"):
        found = []
        for n in (10, 200):
            with open_file("w") as f:
                for i in range(n):
                    f.create_dataset(f"x{i}" if i % 5 else f"g/x{i}", (4,), "f8").attrs["number"] = i
                f.flush()
                # the space for attributes is in the header's region from here on
                f[owner].attrs["number"] = 7
                f.flush()
                f[owner].attrs["number"] = 8
                found.append(calls_of(f))
        assert found[0], "nothing was counted"
        assert found[0] == found[1], (owner, found[0] - found[1], found[1] - found[0])


CASES = [
    one_rank_writes,
    reads_alone,
    reads_own_writes,
    drains_alone,
    collective_reads,
    posted_reads_of_small_pieces,
    collective_reads_before_a_place,
    requests,
    lent_arrays,
    ordered,
    unordered,
    records_of_some,
    two_files,
    file_that_moves,
    name_of_another_file,
    very_many_runs,
    part_of_the_ranks,
    compound_references_and_rows,
    work_follows_what_changed,
]


def run(case: Callable[[Open], None], folder: str, driver: str) -> None:
    def open_file(mode: str, *, name: str = case.__name__, **options: Any) -> h5py.File:
        chosen: dict[str, Any] = {"driver": driver, "comm": WORLD, "collective_timeout": 15}
        return h5py.File(os.path.join(folder, f"{name}-{driver}.nc"), mode, **(chosen | options))

    faulthandler.dump_traceback_later(40, exit=True)
    case(open_file)
    faulthandler.cancel_dump_traceback_later()
    WORLD.Barrier()


def main() -> None:
    folder, wanted = sys.argv[1], sys.argv[2:]
    for driver in ("mpio", "posix"):
        for case in CASES:
            if not wanted or case.__name__ in wanted:
                run(case, folder, driver)
    print("all cases", flush=True)


if __name__ == "__main__":
    main()
