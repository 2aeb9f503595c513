"""The door to the files: full writes, short reads, copies; and that no other module has a door of its own."""

from __future__ import annotations

import ast
import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kills import forked

import pnc_vol
from pnc_vol.system import CALLS, REAL, System, full_io
from pnc_vol.testing.faults import FaultSystem, HookedSystem, TraceSystem

PACKAGE = Path(__file__).parents[1] / "pnc_vol"


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


@pytest.mark.parametrize("most", [50, 300, 4096])
def test_calls_that_move_little_or_are_interrupted_are_gone_on_with(tmp_path: Path, most: int) -> None:
    n = 80 * most
    with pnc_vol.File(tmp_path / "x.nc", "w", system=Stingy(most)) as f:
        f["x"], f["y"] = np.arange(n, dtype="i1"), np.arange(n // 8)
        f["x"][::3] = 7
        f.flush()
        f["y"][5::7] = -1
    x, y = np.arange(n, dtype="i1"), np.arange(n // 8)
    x[::3], y[5::7] = 7, -1
    for system in (Stingy(most), HookedSystem()):
        with pnc_vol.File(tmp_path / "x.nc", system=system) as f:
            assert np.array_equal(f["x"][:], x)
            assert np.array_equal(f["y"][1::2], y[1::2])


def test_more_pieces_and_more_bytes_than_a_call_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_io, "CALL_BYTES", 1000)
    monkeypatch.setattr(full_io, "IOV_MAX", 5)
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", system=system) as f:
        for i in range(40):
            f[f"v{i}"] = np.full(300, i)
    with pnc_vol.File(tmp_path / "x.nc", system=system) as f:
        assert all((f[f"v{i}"][:] == i).all() for i in range(40))
    moved = system.matching(name=("pwrite", "pwritev", "pread_into", "preadv"))
    assert max(call.nbytes for call in moved if call.path.endswith(".nc") and call.name != "pread_into") <= 1000


def posted(path: Path, system: System) -> Any:
    f = pnc_vol.File(path, "w", system=system)
    f.create_dataset("x", (100, 50), "i4")
    f.flush()
    f["x"][...] = np.arange(5000).reshape(100, 50)
    return f


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EAGAIN, errno.EINTR])
@pytest.mark.parametrize("mode", ["forever", "short-forever"])
def test_an_error_keeps_its_number(tmp_path: Path, number: int, mode: Any) -> None:
    system = FaultSystem(fail_at=0, errno=number, mode=mode)
    with posted(tmp_path / "x.nc", system) as f:
        system.fail_at = system.count + 1
        with pytest.raises(OSError) as caught:
            f.flush()
        assert caught.value.errno == number
        system.heal()


def test_half_a_write_is_written_on_or_raised(tmp_path: Path) -> None:
    system = FaultSystem(fail_at=0, mode="short")
    with posted(tmp_path / "x.nc", system) as f:
        system.fail_at = system.count + 1
        f.flush()
        assert system.fired
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert np.array_equal(f["x"][...].ravel(), np.arange(5000))


def test_a_file_size_limit_is_an_error(tmp_path: Path) -> None:
    """The system itself: first a short count, then EFBIG."""

    def job(pipe: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        f = posted(tmp_path / "x.nc", HookedSystem())
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            f.flush()
        except OSError as error:
            os.write(pipe, bytes([error.errno or 0]))

    child, reading = forked(job)
    assert os.read(reading, 1) == bytes([errno.EFBIG])
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(("taken", "number"), [("", errno.ENOSPC), ("nothing, and no error", errno.EIO)])
def test_a_full_device(tmp_path: Path, taken: str, number: int) -> None:
    """What is written to the device that is always full, in the place of a file; or to one that takes nothing."""

    class Full(HookedSystem):
        fd = -1

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self.fd >= 0 and name.startswith("pwrite"):
                if taken:
                    return 0
                args = (self.fd, *args[1:])
            return super().call(name, args, kwargs)

    system = Full()
    with posted(tmp_path / "x.nc", system) as f:
        system.fd = os.open("/dev/full", os.O_WRONLY)
        with pytest.raises(OSError) as caught:
            f.flush()
        assert caught.value.errno == number
        os.close(system.fd)
        system.fd = -1


def test_whole_files(tmp_path: Path) -> None:
    path, system = tmp_path / "a", TraceSystem()
    full_io.write_whole(system, path, b"12345", durable=True)
    system.assert_order({"name": "pwrite"}, {"name": "fsync"}, {"name": "close"})
    full_io.write_whole(system, path, b"12")
    assert full_io.read_whole(system, path) == b"12"
    with pytest.raises(OSError, match="at most 1") as caught:
        full_io.read_whole(system, path, limit=1)
    assert caught.value.errno == errno.EFBIG
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in (path, tmp_path / "link"):
        with pytest.raises(FileExistsError):
            full_io.write_whole(system, taken, b"x", exclusive=True)
    assert not (tmp_path / "nowhere").exists()
    opened = [call for call in system.matching(name="open") if isinstance(call.result, int)]
    assert len(opened) == len(system.matching(name="close"))


# --------------------------------------------------------------------------------------------------- the rest


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
    "getpid", "geteuid", "get_terminal_size", "uname", "urandom", "getloadavg", "major",
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
    "fcntl": {"F_OFD_SETLK", "F_SETLK", "F_SETLKW", "F_RDLCK", "F_WRLCK", "F_UNLCK", "LOCK_UN", "LOCK_SH", "LOCK_NB"},
}
#: What starts other programs passes the environment on, and looks for them on PATH.
STARTS_PROGRAMS = {"testing/mpi.py"}


def offences(tree: ast.AST, room: str) -> list[str]:
    """What a module does that only `system` (files) or `settings/options.py` (the environment) may do."""
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
                if room != "settings/options.py" and room not in STARTS_PROGRAMS:
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
        if room != "system/__init__.py":
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
    assert not offences(ast.parse("import os\nos.environ.get('A')"), "settings/options.py"), (
        "it alone reads the environment"
    )


# --------------------------------------------------------------------------------------- systems that have less

SHARED = Path(__file__).parent / "shared"
TAKEN = {
    "ofd_locks": "fcntl.F_OFD_SETLK", "tmpfile": "os.O_TMPFILE", "copy_file_range": "os.copy_file_range",
    "attributes": "os.setxattr", "fallocate": "os.posix_fallocate", "fdatasync": "os.fdatasync",
    "memory_files": "os.memfd_create",
}  # fmt: skip


def less_system(taken: str) -> dict[str, str]:
    places = (SHARED / "without", SHARED, PACKAGE.parent)
    return {**os.environ, "PNC_VOL_WITHOUT": taken, "PYTHONPATH": os.pathsep.join(map(str, places))}


@pytest.mark.parametrize("taken", ["", *TAKEN])
def test_what_programs_do_on_a_system_that_has_less(taken: str, tmp_path: Path) -> None:
    """All is done as ever; a node-local cache alone is left out, and says so, where space cannot be reserved."""
    command = [sys.executable, str(SHARED / "representative.py"), str(tmp_path)]
    done = subprocess.run(command, env=less_system(taken), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all acts done\n"), done.stderr[-3000:]
    assert ("the cache (e10_cache) is off from here" in done.stderr) == (taken == "fallocate")


@pytest.mark.parametrize("taken", TAKEN)
def test_it_was_really_taken_away(taken: str) -> None:
    module, name = TAKEN[taken].split(".")
    told = subprocess.run(
        [sys.executable, "-c", f"import {module}; print(hasattr({module}, {name!r}))"],
        env=less_system(taken), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == "False\n"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_space_that_cannot_be_reserved_is_written(tmp_path: Path, number: int) -> None:
    """Bytes that are there stay, the file grows, and no hole is left that a full disk could be met in later."""
    path = tmp_path / "a"
    path.write_bytes(bytes(range(200)))
    fd = REAL.open(path, os.O_RDWR)
    system = FaultSystem(REAL, fail_at=1, errno=number, mode="forever", calls={"fallocate"})
    full_io.reserve(system, fd, 100, 3 << 20)
    there = REAL.fstat(fd)
    assert there.st_size == 100 + (3 << 20)
    assert there.st_blocks * 512 >= there.st_size
    REAL.close(fd)
    assert path.read_bytes() == bytes(range(200)) + bytes(there.st_size - 200)
    assert system.fired


class NoNewNames(HookedSystem):
    """Without ``renameat2``, and without some calls more."""

    def __init__(self, *lacks: str) -> None:
        super().__init__()
        self.lacks = lacks

    def call(self, name, args, kwargs):
        if name == "rename" and kwargs.get("replace") is False:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if name in self.lacks:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return super().call(name, args, kwargs)


@pytest.mark.parametrize("lacks", [(), ("link",)], ids=["hard links", "no hard links"])
def test_a_new_name_is_given_without_renameat2(tmp_path: Path, lacks: tuple[str, ...]) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "x", publish="close", system=NoNewNames(*lacks)) as f:
        f["x"] = [1, 2]
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [1, 2]
    g = pnc_vol.File(tmp_path / "late.nc", "x", publish="close", system=NoNewNames(*lacks))
    g["x"] = [3]
    (tmp_path / "late.nc").write_bytes(b"of somebody else")
    with pytest.raises(OSError, match="late"):
        g.close()
    assert (tmp_path / "late.nc").read_bytes() == b"of somebody else"
