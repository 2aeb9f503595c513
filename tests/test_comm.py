"""The communicator of one process, and how errors travel between ranks; several ranks are tested in ``tests/mpi``."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pnc_vol import errors
from pnc_vol.comm import Comm, serial
from pnc_vol.rank_errors import Ranks, pack_error, ranks_text, unpack_error


def test_one_process_agrees_with_itself() -> None:
    comm = serial()
    assert (comm.rank, comm.size, comm.mpi) == (0, 1, None)
    assert comm.exchange("open", b"abc") == [b"abc"]
    assert comm.from_root("open", b"abc") == b"abc"
    assert comm.exchange("open") == [b""]
    comm.abandon("no reason")
    comm.close()


def test_an_error_is_raised_as_it_is() -> None:
    comm = serial()
    error = KeyError("x")
    for call in (comm.exchange, comm.from_root):
        with pytest.raises(KeyError) as caught:
            call("flush", b"", error=error)
        assert caught.value is error
    assert comm.in_step(error)


ONE_RANK = """
import pytest
from mpi4py import MPI
from pnc_vol.mpi_comm import over

with pytest.raises(TypeError, match="an mpi4py intracommunicator"):
    over(3)
comm = over(MPI.COMM_SELF, timeout=5)
assert (comm.rank, comm.size) == (0, 1)
long = bytes(range(256)) * 50
assert comm.exchange("flush", long) == [long]
assert comm.exchange("flush", b"") == [b""]
with pytest.raises(ZeroDivisionError):
    comm.exchange("flush", error=ZeroDivisionError("why"))
assert comm.exchange("flush", b"again") == [b"again"]
comm.close()
"""


def test_one_rank_of_mpi() -> None:
    """In a process of its own: MPI can be started once in a process."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    done = subprocess.run([sys.executable, "-c", ONE_RANK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([0, 1, 2, 5], "ranks 0-2, 5"), ([1, 3], "ranks 1, 3"), (list(range(0, 40, 2)), None)],
)
def test_ranks_in_words(ranks: list[int], text: str | None) -> None:
    if text is None:
        assert ranks_text(ranks) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, ..."
    else:
        assert ranks_text(ranks) == text


def travelled(error: BaseException, failed: list[int], size: int) -> Exception:
    return unpack_error(pack_error(error), Ranks.of(failed), size)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a"), KeyError("a"), TypeError("a"), MemoryError("a"), errors.NotFoundError("a"),
        errors.RangeError("a"), errors.ConversionError("a"), errors.ReadOnlyError("a"), errors.SelectionIndexError("a"),
        errors.ClosedFileError("a"), errors.BlockedPathError("a"), errors.NotYetError("a"), errors.DefinitionError("a"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_an_error_arrives_as_what_it_was(error: Exception) -> None:
    there = travelled(error, [2], 4)
    assert type(there) is type(error)
    assert "a" in str(there)
    assert "(on rank 2)" in str(there)
    assert "rank" not in str(travelled(error, [0, 1], 2))


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no such file", "/some/path"),
        PermissionError(errno.EACCES, "not for you", "/some/path"),
        OSError(errno.ENOSPC, "disk full"),
        IsADirectoryError(errno.EISDIR, "a directory", "/some/path"),
    ],
)
def test_an_error_of_the_system_keeps_its_number_and_file(error: OSError) -> None:
    there = travelled(error, [1], 2)
    assert type(there) is type(error)
    assert isinstance(there, OSError)
    assert (there.errno, there.filename) == (error.errno, error.filename)
    assert str(error.strerror) in str(there)


def test_an_error_of_the_format_keeps_its_place() -> None:
    there: Any = travelled(errors.CorruptHeaderError("bad", offset=17, field="dim[0].size", value=b"\xff"), [0], 2)
    assert type(there) is errors.CorruptHeaderError
    assert (there.offset, there.field) == (17, "dim[0].size")


def test_a_flush_error_keeps_its_number() -> None:
    failure = errors.RequestFailure(3, 1, "/x", " (2 elements)", errno.EIO, "bad disk")
    there = travelled(errors.FlushError("1 request failed", [failure]), [0, 1], 2)
    assert isinstance(there, errors.FlushError)
    assert there.errno == errno.EIO


def test_errors_of_unknown_classes_arrive_as_what_they_derive_from() -> None:
    class Mine(ValueError):
        pass

    assert type(travelled(Mine("x"), [0], 2)) is ValueError
    assert isinstance(travelled(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), [0], 2), ValueError)
    assert isinstance(travelled(KeyboardInterrupt(), [0], 2), Exception)


def test_an_error_never_disturbs_the_exchange() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            return "\udcff \u20ac" + "x" * 100_000

    assert "x" * 1000 in str(travelled(Odd(), [0], 2))


def test_a_base_class_for_both() -> None:
    assert issubclass(type(serial()), Comm)


@pytest.mark.parametrize("when", ["initialize", "finalize"])
def test_without_mpi_a_communicator_is_an_error_and_no_abort(tmp_path: Path, when: str) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    program = f"""
import mpi4py
mpi4py.rc.initialize = {when == "finalize"}
from mpi4py import MPI
import pnc_vol
if MPI.Is_initialized():
    MPI.Finalize()
try:
    pnc_vol.File({str(tmp_path / "a.nc")!r}, "w", comm=MPI.COMM_WORLD)
except RuntimeError as error:
    print(type(error).__name__, error)
"""
    job = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert job.returncode == 0, job.stderr
    assert job.stdout.startswith("OperationError no file can be opened with comm=: MPI"), job.stdout
