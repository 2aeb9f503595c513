"""The full_io to the files: full writes, short reads, copies; and that no other module has a full_io of its own."""

from __future__ import annotations

import ast
import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pnc_vol import full_io
from pnc_vol.full_io import copy_all, read_at, read_whole, write_all, write_whole
from pnc_vol.system import CALLS, REAL, System, exists, is_folder, scratch_folder, temporary_directory
from pnc_vol.testing.faults import FaultSystem, HookedSystem, TraceSystem

PACKAGE = Path(__file__).parents[1] / "pnc_vol"


@pytest.fixture
def fd(tmp_path: Path):
    fd = REAL.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    REAL.close(fd)


def content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


class Stingy(HookedSystem):
    """Moves at most `most` bytes a call, and is interrupted before every third."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.count = 0

    def call(self, name, args, kwargs):
        if name not in ("pwrite", "pwritev", "pread_into", "preadv"):
            return super().call(name, args, kwargs)
        self.count += 1
        if self.count % 3 == 0:
            raise InterruptedError(errno.EINTR, "interrupted")
        fd, data, offset = args
        views = [memoryview(b).cast("B") for b in (data if name.endswith("v") else [data])]
        if name.startswith("pwrite"):
            return os.pwrite(fd, b"".join(views)[: self.most], offset)
        return os.preadv(fd, [views[0][: self.most]], offset)


# ------------------------------------------------------------------------------------------------- full moves


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.binary(max_size=30), max_size=12),
    most=st.integers(1, 20),
    offset=st.integers(0, 40),
    short=st.integers(0, 5),
)
def test_write_all_and_read_at_move_everything(
    fd: int, pieces: list[bytes], most: int, offset: int, short: int
) -> None:
    os.ftruncate(fd, 0)
    whole = b"".join(pieces)
    write_all(Stingy(most), fd, pieces, offset)
    assert content(fd) == (bytes(offset) + whole if whole else b"")
    back = [bytearray(len(piece)) for piece in pieces]
    os.ftruncate(fd, max(0, offset + len(whole) - short))
    there = max(0, len(whole) - short)
    assert read_at(Stingy(most), fd, back, offset) == there
    assert b"".join(back) == whole[:there] + bytes(len(whole) - there)
    one = bytearray(len(whole))
    assert read_at(Stingy(most), fd, memoryview(one), offset) == there
    assert one[:there] == whole[:there]


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_write_all_takes_one_buffer_of_any_kind(fd: int, make) -> None:
    assert write_all(REAL, fd, make(b"12345"), 2) == 1
    assert write_all(REAL, fd, make(b""), 100) == 0
    assert content(fd) == b"\0\x0012345"


def test_arrays_of_any_type_and_shape_are_bytes(fd: int) -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    write_all(REAL, fd, memoryview(array.view(np.uint8)), 0)
    write_all(REAL, fd, array.astype("i4"), 24)
    assert content(fd) == array.tobytes() + array.astype("i4").tobytes()


def test_more_buffers_than_a_call_takes(fd: int) -> None:
    pieces = [bytes([i % 251]) * (i % 3) for i in range(3 * full_io.IOV_MAX)]
    system = TraceSystem()
    calls = write_all(system, fd, pieces, 5)
    assert calls == len(system.log) == 2
    assert content(fd)[5:] == b"".join(pieces)


def test_more_bytes_than_a_call_takes(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_io, "CALL_BYTES", 10)
    system = TraceSystem()
    whole = bytes(range(95))
    write_all(system, fd, memoryview(whole), 0)
    write_all(system, fd, [whole[:7], whole[7:20], whole[20:]], 95)
    assert max(call.nbytes for call in system.log) == 10
    assert content(fd) == whole * 2
    back = bytearray(190)
    assert read_at(system, fd, [memoryview(back)[:33], memoryview(back)[33:]], 0) == 190
    assert back == whole * 2
    assert max(call.nbytes for call in system.log) == 10


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EAGAIN])
@pytest.mark.parametrize("buffers", [memoryview(b"abcd"), [b"ab", b"cd"]])
def test_an_error_keeps_its_number(fd: int, number: int, buffers) -> None:
    with pytest.raises(OSError) as caught:
        write_all(FaultSystem(fail_at=1, errno=number), fd, buffers, 0)
    assert caught.value.errno == number


@pytest.mark.parametrize("buffers", [memoryview(b"abcdefgh"), [b"abc", b"defgh"]])
def test_half_a_write_is_written_on_or_raised(fd: int, buffers) -> None:
    write_all(FaultSystem(fail_at=1, mode="short"), fd, buffers, 0)
    assert content(fd) == b"abcdefgh"
    with pytest.raises(OSError) as caught:
        write_all(FaultSystem(fail_at=1, mode="short-forever", errno=errno.EFBIG), fd, buffers, 0)
    assert caught.value.errno == errno.EFBIG


def test_a_write_of_nothing_is_an_error_and_interruptions_end(fd: int) -> None:
    class Nothing(System):
        def pwrite(self, fd, buffer, offset):
            return 0

    with pytest.raises(OSError) as caught:
        write_all(Nothing(), fd, memoryview(b"abc"), 0)
    assert caught.value.errno == errno.EIO
    with pytest.raises(InterruptedError):
        write_all(FaultSystem(fail_at=1, errno=errno.EINTR, mode="forever"), fd, b"abc", 0)


def test_a_file_size_limit_is_an_error(tmp_path: Path) -> None:
    """The system itself: first a short count, then EFBIG."""
    program = (
        "import os, resource, sys\n"
        "from pnc_vol.full_io import write_all\nfrom pnc_vol.system import REAL\n"
        "fd = REAL.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try: write_all(REAL, fd, bytes(16_000), 0)\n"
        "except OSError as error: sys.exit(error.errno)\n"
    )
    assert hasattr(resource, "RLIMIT_FSIZE")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "f")], timeout=60, check=False)
    assert done.returncode == errno.EFBIG
    assert (tmp_path / "f").stat().st_size == 10_000


def test_a_full_device() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    fd = REAL.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError) as caught:
            write_all(REAL, fd, b"abc", 0)
        assert caught.value.errno == errno.ENOSPC
    finally:
        REAL.close(fd)


# --------------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize("fault", [None, errno.ENOSYS, errno.EXDEV, errno.EIO])
def test_copy_all(tmp_path: Path, fd: int, fault: int | None) -> None:
    whole = np.random.default_rng(0).bytes(3_000_000)
    os.pwrite(fd, whole, 0)
    target = REAL.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    try:
        system = FaultSystem(fail_at=1 if fault else 0, errno=fault or 0, mode="forever", calls={"copy_range"})
        if fault == errno.EIO:
            with pytest.raises(OSError) as caught:
                copy_all(system, fd, target, 10)
            assert caught.value.errno == errno.EIO
            return
        assert copy_all(system, fd, target, 2_500_000, 100, 7) == 2_500_000
        assert content(target) == bytes(7) + whole[100:2_500_100]
        assert copy_all(system, fd, target, 100, len(whole) - 30, 0) == 30
        assert content(target)[:30] == whole[-30:]
    finally:
        REAL.close(target)


def test_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    system = TraceSystem()
    assert not exists(system, path)
    write_whole(system, path, b"12345", durable=True)
    system.assert_order({"name": "pwrite"}, {"name": "fsync"}, {"name": "close"})
    write_whole(system, path, b"12")
    assert read_whole(system, path) == b"12"
    with pytest.raises(OSError, match="at most 1") as caught:
        read_whole(system, path, limit=1)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(FileExistsError):
        write_whole(system, path, b"x", exclusive=True)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        write_whole(system, tmp_path / "link", b"x", exclusive=True)
    assert exists(system, tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()
    opened = [call for call in system.matching(name="open") if isinstance(call.result, int)]
    assert len(opened) == len(system.matching(name="close"))


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert is_folder(REAL, tmp_path)
    assert not any(is_folder(REAL, tmp_path / name) for name in ("file", "none", "file/none"))
    assert is_folder(REAL, scratch_folder())
    with temporary_directory(str(tmp_path)) as folder:
        assert os.path.dirname(folder) == str(tmp_path)
        assert os.stat(folder).st_mode & 0o777 == 0o700
        write_whole(REAL, os.path.join(folder, "a"), b"")
    assert not os.path.exists(folder)


def test_the_calls_do_what_they_say(tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    fd = REAL.open(a, os.O_RDWR | os.O_CREAT, 0o600)
    assert not os.get_inheritable(fd)
    REAL.fallocate(fd, 0, 100)
    REAL.ftruncate(fd, 8)
    assert REAL.fstat(fd).st_size == 8
    REAL.fchmod(fd, 0o640)
    assert REAL.stat(a).st_mode & 0o777 == 0o640
    REAL.fsync(fd)
    REAL.fdatasync(fd)
    REAL.fsync_dir(tmp_path)
    other = REAL.open(a, os.O_RDONLY)
    REAL.flock(fd)
    with pytest.raises(BlockingIOError):
        REAL.flock(other)
    REAL.close(fd)
    REAL.flock(other)
    REAL.close(other)
    REAL.link(a, b)
    with pytest.raises(FileExistsError):
        REAL.link(a, b)
    REAL.rename(b, c)
    assert REAL.listdir(str(tmp_path)) == ["a", "c"]
    REAL.unlink(c)
    REAL.mkdir(b, 0o700)
    assert REAL.lstat(b).st_mode & 0o700 == 0o700
    REAL.rmdir(b)
    os.symlink(a, b)
    assert REAL.realpath(b) == os.path.realpath(a)
    assert REAL.getpid() == os.getpid()
    assert len({REAL.token() for _ in range(100)}) == 100
    assert len(REAL.token()) == 16
    folder = os.path.dirname(os.fspath(a))
    for path in (
        b,
        a,
        f"{folder}/absent",
        f"{folder}/absent/too",
        f"{b}/x",
        "/",
        "/..",
        f"{folder}/.",
        f"{folder}/../x/",
    ):
        assert REAL.realpath(os.fspath(path)) == os.path.realpath(path), path
    loop, dangling = f"{folder}/loop", f"{folder}/dangling"
    os.symlink(loop, loop)
    os.symlink(f"{folder}/absent", dangling)
    for path in (loop, dangling, f"{dangling}/x"):
        assert REAL.realpath(path) == os.path.realpath(path), path


def test_all_calls_are_listed() -> None:
    assert {name for name in vars(System) if not name.startswith("_")} == set(CALLS)


# ------------------------------------------------------------------------------------- one full_io, one reader

#: Parts of `os` that touch no file.
PURE_OS = {
    "fspath", "fsencode", "fsdecode", "PathLike", "strerror", "sep", "linesep", "pathsep", "name", "cpu_count",
    "getpid", "geteuid", "uname", "urandom", "getloadavg", "major",
    "fork", "waitpid", "WEXITSTATUS", "_exit",
    "sched_getaffinity", "sched_setaffinity", "register_at_fork", "stat_result", "SEEK_SET", "SEEK_CUR", "SEEK_END",
}  # fmt: skip
PURE_OS_PATH = {
    "join", "basename", "dirname", "split", "splitext", "isabs", "abspath", "normpath", "commonpath", "commonprefix",
    "sep", "relpath", "expanduser",
}  # fmt: skip
#: Modules whose purpose is files, or code from data.
FILE_MODULES = {
    "fcntl", "fileinput", "glob", "io", "mmap", "pathlib", "shutil", "tempfile", "gzip", "bz2", "lzma", "zipfile",
    "pickle", "shelve", "marshal", "dbm",
}  # fmt: skip
#: Names in those modules that touch no file.
PURE_NAMES = {
    ("io", "BytesIO"), ("io", "StringIO"), ("io", "TextIOBase"), ("io", "UnsupportedOperation"),
    ("pathlib", "PurePath"), ("pathlib", "PurePosixPath"),
}  # fmt: skip
PATHLIB_METHODS = {
    "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob", "symlink_to", "hardlink_to",
    "is_file", "is_dir", "tofile", "fromfile", "memmap", "genfromtxt", "loadtxt", "savetxt",
}  # fmt: skip
#: Names of modules in `FILE_MODULES` that may be imported whole, as long as nothing else is taken from them.
PURE_PARTS = {
    "shutil": {"which", "get_terminal_size"},
    "fcntl": {"F_OFD_SETLK", "F_SETLK", "F_SETLKW", "F_RDLCK", "F_WRLCK", "F_UNLCK"},
}
#: What starts other programs passes the environment on, and looks for them on PATH.
STARTS_PROGRAMS = {"testing/mpi.py"}


def offences(tree: ast.AST, room: str) -> list[str]:
    """What a module does that only `system.py` (files) or `options.py` (the environment) may do."""
    found = []
    for node in ast.walk(tree):
        where = f"{room}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "eval", "exec"):
            found.append(f"{where} {node.func.id}()")
        if isinstance(node, ast.Attribute):
            full = ast.unparse(node)
            if full.startswith("os.path."):
                if full.split(".")[2].partition("(")[0] not in PURE_OS_PATH:
                    found.append(f"{where} {full}")
            elif full in ("os.environ", "os.environb", "os.getenv"):
                if room != "options.py" and room not in STARTS_PROGRAMS:
                    found.append(f"{where} {full}")
            elif full.startswith("os.") and full.count(".") == 1 and full != "os.path":
                word = full[3:]
                if word not in PURE_OS and not word.startswith(("O_", "killpg")):
                    found.append(f"{where} {full}")
            elif isinstance(node.value, ast.Name) and node.attr not in PURE_PARTS.get(node.value.id, {node.attr}):
                found.append(f"{where} {full}")
            elif node.attr in PATHLIB_METHODS:
                found.append(f"{where} .{node.attr}")
        if isinstance(node, ast.Import):
            found += [
                f"{where} import {a.name}" for a in node.names if a.name.split(".")[0] in FILE_MODULES - {*PURE_PARTS}
            ]
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            pure = {"os": PURE_OS, "os.path": PURE_OS_PATH}.get(node.module)
            for alias in node.names:
                if pure is not None and alias.name not in pure:
                    found.append(f"{where} from {node.module} import {alias.name}")
                if node.module.split(".")[0] in FILE_MODULES and (node.module, alias.name) not in PURE_NAMES:
                    found.append(f"{where} from {node.module} import {alias.name}")
    return found


def test_files_are_reached_through_the_door_alone() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).as_posix()
        if room != "system.py":
            found += offences(ast.parse(path.read_text()), room)
    assert not found, "use pnc_vol.system.System:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "open('a')", "import os\nos.open('a', 0)", "import os\nos.pwrite(1, b'', 0)", "import os\nos.path.exists('a')",
        "import os\nx = os.environ['A']", "from os import environ", "from pathlib import Path", "import tempfile",
        "p.read_text()", "import pickle", "eval('1')", "import os\nos.replace('a', 'b')", "from os.path import isfile",
        "a.tofile('x')", "import shutil\nshutil.rmtree('a')", "import os\nf = os.stat",
    ],
)  # fmt: skip
def test_the_reader_of_syntax_trees_sees(text: str) -> None:
    assert offences(ast.parse(text), "api/file.py")


@pytest.mark.parametrize(
    "text",
    [
        "system.open('a', os.O_RDONLY)", "import os\nos.fspath(p)", "import os\nos.path.join('a', 'b')",
        "self.system.stat('a')", "from io import BytesIO", "import shutil\nshutil.which('a')", "driver.read(e, m)",
    ],
)  # fmt: skip
def test_the_reader_of_syntax_trees_lets_through(text: str) -> None:
    assert not offences(ast.parse(text), "api/file.py")


def test_only_options_reads_the_environment() -> None:
    assert offences(ast.parse("import os\nos.environ.get('A')"), "comm.py")
    assert not offences(ast.parse("import os\nos.environ.get('A')"), "options.py")
