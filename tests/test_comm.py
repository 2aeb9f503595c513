"""How errors travel between ranks: each arrives on all as what it was; several ranks are tested in ``tests/mpi``."""

from __future__ import annotations

import contextlib
import errno
from operator import add
from pathlib import Path
from typing import Any

import pytest
import virtual_ranks
from interrupts import Interrupts
from other_process import fresh

import pnc_vol
from pnc_vol import errors
from pnc_vol.ranks.comm import ranks_by_text


def travelled(error: BaseException, failed: list[int], size: int) -> BaseException:
    """The error that rank `size` - 1 raises when some ranks had one in a call of all; the next call works."""

    def program(comm: Any) -> BaseException:
        with pytest.raises(BaseException) as caught:
            comm.agree("flush", error=error if comm.rank in failed else None)
        assert comm.merge("flush", [comm.rank], add) == list(range(size))
        return caught.value

    return virtual_ranks.run(size, program)[-1]


@pytest.mark.parametrize(
    ("ranks", "size", "text"),
    [([0, 1], 2, ""), ([0], 2, " (on rank 0)"), ([0, 1, 2, 5], 7, " (on ranks 0-2, 5)"),
     ([1, 3], 5, " (on ranks 1, 3)"), (list(range(0, 20, 2)), 20, " (on ranks 0, 2, 4, 6, 8, 10, 12, 14, ...)")],
)  # fmt: skip
def test_the_ranks_that_failed_are_named(ranks: list[int], size: int, text: str) -> None:
    assert str(travelled(ValueError("a"), ranks, size)) == f"a{text}"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a"), KeyError("a"), TypeError("a"), MemoryError("a"), errors.NotFoundError("a"),
        errors.RangeError("a"), errors.ConversionError("a"), errors.ReadOnlyError("a"), errors.SelectionIndexError("a"),
        errors.ClosedFileError("a"), errors.BlockedPathError("a"), errors.NotYetError("a"), errors.DefinitionError("a"),
        FileNotFoundError(errno.ENOENT, "no such file", "/some/path"),
        PermissionError(errno.EACCES, "not for you", "/some/path"),
        OSError(errno.ENOSPC, "disk full"),
        IsADirectoryError(errno.EISDIR, "a directory", "/some/path"),
        errors.CorruptHeaderError("bad", offset=17, field="dim[0].size", value=b"\xff"),
        errors.FlushError("1 request failed", [errors.RequestFailure(3, 1, "/x", " (2 elements)", errno.EIO, "bad")]),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_an_error_arrives_as_what_it_was(error: Exception) -> None:
    there = travelled(error, [0], 2)
    assert type(there) is type(error)
    assert "(on rank 0)" in str(there)
    assert str(getattr(error, "strerror", None) or error.args[0]) in str(there)
    for name in ("errno", "filename", "offset", "field"):
        assert getattr(there, name, None) == getattr(error, name, None)


class Mine(ValueError):
    pass


class Odd(Exception):
    def __str__(self) -> str:
        return "\udcff \u20ac" + "x" * 100_000


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Mine("x"), ValueError),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ValueError),
        (KeyboardInterrupt(), Exception),
        (Odd(), Exception),
    ],
    ids=lambda one: str(type(one).__name__),
)
def test_errors_of_unknown_classes_arrive_as_what_they_derive_from(error: BaseException, kind: type) -> None:
    there = travelled(error, [0], 2)
    assert isinstance(there, kind)
    assert type(there) is not type(error)
    assert not isinstance(error, Odd) or "x" * 1000 in str(there)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("nbytes", [0, 1, 300, 100_000])
def test_values_are_merged_and_broadcast_as_they_were(size: int, nbytes: int) -> None:
    """Also bytes in them, of any length; ranks with nothing add nothing."""

    def program(comm: Any) -> tuple[Any, Any, Any]:
        mine = [{"rank": comm.rank, "\u20ac": [None, 0.5, bytes([comm.rank]) * nbytes, ""]}]
        nothing = comm.merge("nothing", None, add)
        return nothing, comm.merge("all", mine if comm.rank % 2 == 0 else None, add), comm.broadcast("one", mine)

    def of(rank: int) -> dict[str, Any]:
        return {"rank": rank, "\u20ac": [None, 0.5, bytes([rank]) * nbytes, ""]}

    expected = None, [of(rank) for rank in range(0, size, 2)], [of(0)]
    assert virtual_ranks.run(size, program) == [expected] * size


@pytest.mark.parametrize("where", ["mine", "joined", "root"])
def test_a_value_that_cannot_be_sent_is_an_error_of_all_ranks(where: str) -> None:
    def program(comm: Any) -> str:
        bad = {1, 2} if comm.rank == 0 else None
        with pytest.raises(TypeError) as caught:
            if where == "root":
                comm.broadcast("one", bad)
            else:
                comm.merge("all", bad if where == "mine" else comm.rank, lambda one, other: {one, other})
        comm.agree("next")
        return str(caught.value)

    texts = set(virtual_ranks.run(5, program))
    assert len(texts) == 1
    assert "set cannot be sent to other ranks" in texts.pop()


def test_ranks_are_named_by_their_text() -> None:
    """With one reduction if all give the same, and one and a tree if not."""

    def program(comm: Any) -> tuple[Any, ...]:
        same = ranks_by_text(comm, "same", "a")
        before = comm.traffic.reductions
        found = ranks_by_text(comm, "differ", "odd" if comm.rank in (2, 3, 6) else "")
        return same["a"].all(), {text: ranks.all() for text, ranks in found.items()}, comm.traffic.reductions - before

    expected = list(range(8)), {"": [0, 1, 4, 5, 7], "odd": [2, 3, 6]}, 1
    assert virtual_ranks.run(8, program) == [expected] * 8


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("number", "TypeError an mpi4py intracommunicator"),
        ("initialize", "OperationError no file can be opened with comm=: MPI"),
        ("finalize", "OperationError no file can be opened with comm=: MPI"),
    ],
)
def test_what_is_no_communicator_is_an_error_and_no_abort(tmp_path: Path, what: str, told: str) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    job = fresh(open_with, what, tmp_path)
    assert job.returncode == 0, job.stderr
    kind, _, text = told.partition(" ")
    assert job.stdout.startswith(f"{kind} ")
    assert text in job.stdout


def open_with(what: str, folder: str) -> None:
    """In a process of its own: MPI can be started once in a process, and ended."""
    import mpi4py

    mpi4py.rc.initialize = what == "finalize"
    from mpi4py import MPI

    if MPI.Is_initialized():
        MPI.Finalize()
    try:
        pnc_vol.File(f"{folder}/a.nc", "w", comm=3 if what == "number" else MPI.COMM_WORLD)
    except (RuntimeError, TypeError) as error:
        print(type(error).__name__, error)


def test_a_rank_whose_call_was_cut_short_leaves() -> None:
    """Its next call must not meet another one of the ranks that went on."""

    def cut(operation: str, start: float) -> None:
        raise KeyboardInterrupt

    def program(comm: Any) -> str:
        comm.limit(5.0)
        if comm.rank == 1:
            comm.observe(cut)
            with pytest.raises(KeyboardInterrupt):
                comm.agree("flush")
            comm.observe(lambda operation, start: None)
        else:
            comm.agree("flush")
        with pytest.raises(errors.RankError) as caught:
            comm.merge("read", [comm.rank], add)
        return str(caught.value)

    told = virtual_ranks.run(3, program)
    assert told[1] == "this rank left the file: its collective call was cut short by KeyboardInterrupt"
    assert told[0] == told[2]
    assert "rank 1 left the file: its collective call was cut short by KeyboardInterrupt" in told[0]


@pytest.mark.parametrize("line", [30, 100, 170])
def test_a_flush_that_is_cut_short_on_one_rank(tmp_path: Path, line: int) -> None:
    def program(comm: Any) -> list[str]:
        f = pnc_vol.File(tmp_path / "a.nc", "w", comm=comm, driver="posix", collective_timeout=5)
        f["x"] = [1, 2]
        told = []
        for trouble in (Interrupts(line, KeyboardInterrupt), contextlib.nullcontext()):
            try:
                with trouble if comm.rank == 1 else contextlib.nullcontext():
                    f.flush()
            except (KeyboardInterrupt, errors.RankError) as error:
                told.append(str(error))
        with contextlib.suppress(errors.RankError):
            f.close()
        return told

    told = virtual_ranks.run(2, program)
    assert told[1][1] == "this rank left the file: its collective call was cut short by KeyboardInterrupt"
    assert "rank 1 left the file: its collective call was cut short" in told[0][-1]
