"""A file that is opened while other processes replace it and overwrite its header: what is read is of one version."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from torn_headers import torn

import pnc_vol
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.testing.driver_suite import register
from pnc_vol.testing.faults import HookedSystem, TraceSystem


def written(path: pathlib.Path, version: int) -> pathlib.Path:
    """A file in which everything says which version it is, and that has another layout in each."""
    with pnc_vol.File(path, "w") as f:
        fill(f, version)
    return path


def fill(f: Any, version: int) -> None:
    for i in range(version % 5):
        f[f"a{i}"] = np.full(50, float(version))
    f["t"] = np.full(100, float(version))
    f["u"] = np.full(100, -float(version))
    f.attrs["version"] = version


def version_of(f: Any) -> int:
    """The version, if all of the file is of one."""
    version = int(f.attrs["version"])
    assert set(f["t"][:].tolist()) == {version}
    assert set(f["u"][:].tolist()) == {-version}
    return version


class Meddled(HookedSystem):
    """Before the n-th call something else happens."""

    def __init__(self, nth: int, meddle: Any) -> None:
        super().__init__()
        self.left, self.meddle = nth, meddle

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.left -= 1
        if self.left == 0:
            self.meddle()
        return super().call(name, args, kwargs)


@pytest.mark.parametrize("driver", [None, "trace | posix", "test_by_name"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_file_replaced_between_any_two_calls(tmp_path: pathlib.Path, mode: str, driver: str | None) -> None:
    if driver == "test_by_name":
        register_by_name()
    path, old, new = tmp_path / "x.nc", written(tmp_path / "old", 1), written(tmp_path / "new", 3)
    seen = set()
    for nth in range(1, 60):
        shutil.copy(old, path)
        spare = shutil.copy(new, tmp_path / "spare")
        system = Meddled(nth, lambda spare=spare: os.replace(spare, path))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pnc_vol.File(path, mode, driver=driver, system=system) as f:
                seen.add(version_of(f))
        if system.left > 0:
            break
    else:
        raise AssertionError("opening takes more than 60 calls")
    assert seen == {1, 3}


def register_by_name() -> None:
    """A root that knows nothing of descriptors, as other packages may have."""

    class ByName(PosixDriver):
        name = "test_by_name"
        capabilities = PosixDriver.capabilities._replace(takes_descriptor=False)

        @classmethod
        def open(cls, path: Any, context: Any) -> Any:
            assert context.fd < 0
            return super().open(path, context)

    register("test_by_name", ByName)


def test_a_refresh_during_which_the_file_is_replaced(tmp_path: pathlib.Path) -> None:
    path, old, new = tmp_path / "x.nc", written(tmp_path / "old", 1), written(tmp_path / "new", 3)
    newest = written(tmp_path / "newest", 4)
    for nth in range(1, 60):
        shutil.copy(old, path)
        system = Meddled(0, None)
        with pnc_vol.File(path, system=system) as f:
            os.replace(shutil.copy(new, tmp_path / "spare"), path)
            spare = shutil.copy(newest, tmp_path / "spare")
            system.left, system.meddle = nth, lambda spare=spare: os.replace(spare, path)
            f["t"].refresh()
            assert version_of(f) in (3, 4)
            if system.left > 0:
                break
    else:
        raise AssertionError("a refresh takes more than 60 calls")


def test_a_header_half_overwritten_while_it_is_read(tmp_path: pathlib.Path) -> None:
    """The journal comes after the reader looked for one, or goes before it does: it sees the old or the new header."""
    path = written(tmp_path / "x.nc", 2)
    with pnc_vol.File(path, "r+") as f:
        f.attrs["more"] = np.arange(400)
    cut, old, new = torn(path, "header", None, turn)
    journal_bytes = cut.read_bytes()
    cut.unlink()
    assert path.read_bytes() == old
    assert len(old) == len(new)
    changed = [i for i in range(len(old)) if old[i] != new[i]]
    middle = changed[len(changed) // 2]
    size = changed[-1] + 1
    journal = cut
    steps = [
        lambda: journal.write_bytes(journal_bytes),
        lambda: put(path, new[:middle]),
        lambda: put(path, new[:size]),
        lambda: journal.unlink(),
    ]
    starts = [(first, gap) for first in range(1, 14) for gap in (0, 1, 2, 5)]
    for first, gap in starts:
        path.write_bytes(old)
        when = {first + i * (gap + 1): step for i, step in enumerate(steps)}

        class Overwritten(HookedSystem):
            count = 0

            def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], when: Any = when) -> Any:
                self.count += 1
                when.pop(self.count, lambda: None)()
                return super().call(name, args, kwargs)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pnc_vol.File(path, system=Overwritten()) as f:
                assert f.attrs["more"].tolist() in (list(range(400)), list(range(399, -1, -1)))
                assert version_of(f) == 2
        journal.unlink(missing_ok=True)


def put(path: pathlib.Path, data: bytes) -> None:
    with path.open("r+b") as raw:
        raw.write(data)


def turn(f: Any) -> None:
    f.attrs["more"] = np.arange(400)[::-1]


def test_a_file_that_never_stands_still_is_an_error(tmp_path: pathlib.Path) -> None:
    path, spare = written(tmp_path / "x.nc", 1), tmp_path / "spare"

    class Restless(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = super().call(name, args, kwargs)
            if name == "open" and args[0] == str(path):
                shutil.copy(path, spare)
                os.replace(spare, path)
            return result

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(OSError, match="replaced or changed the file 100 times") as caught:
        pnc_vol.File(path, system=Restless())
    assert caught.value.errno == errno.EBUSY
    assert caught.value.filename == str(path)
    assert not before or len(os.listdir("/proc/self/fd")) == before


def test_opening_for_reading_makes_few_calls(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "x.nc", 1)
    system = TraceSystem()
    with pnc_vol.File(path, system=system):
        pass
    calls = [call.name for call in system.log if call.name not in ("realpath", "lstat")]
    # is it there; the file, its key, its header; is there a journal; is the name still its own; is the header the same
    assert calls == ["stat", "open", "fstat", "pread_into", "open", "stat", "pread_into", "close"]


def test_a_header_as_long_as_a_large_file_is_held_once(tmp_path: pathlib.Path) -> None:
    """And what is made of it: here an attribute, behind which something is wrong."""
    path, size = tmp_path / "a.nc", 16 << 20
    head = b"CDF\x05" + bytes(8) + bytes(12) + (12).to_bytes(4, "big") + (1).to_bytes(8, "big")
    head += (1).to_bytes(8, "big") + b"a\0\0\0" + (2).to_bytes(4, "big") + size.to_bytes(8, "big")
    path.write_bytes(head + b"x" * size + b"wrong" * 4)
    tracemalloc.start()
    try:
        with pytest.raises(pnc_vol.FormatError, match=r"var\.tag at byte"):
            pnc_vol.File(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 3.5 * size


def test_a_header_of_any_length_that_is_written_is_read(tmp_path: pathlib.Path) -> None:
    path, long = tmp_path / "a.nc", np.arange(9 << 20, dtype="f8")
    with pnc_vol.File(path, "w") as f:
        f.attrs["long"], f["x"] = long, [1, 2]
    with pnc_vol.File(path, "r+") as f:
        # its new header goes through the journal
        f["x"].attrs["more"] = 1
        f.flush()
        f["y"] = [3]
    with pnc_vol.File(path) as f:
        assert np.array_equal(f.attrs["long"], long)
        assert (f["x"][1], f["x"].attrs["more"], f["y"][0]) == (2, 1, 3)


def test_a_header_that_would_not_be_read_again_is_not_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pnc_vol.file.definitions.MAX_HEADER_BYTES", 2000)
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["x"] = [1]
        f.attrs["long"] = np.arange(1000)
        with pytest.raises(ValueError, match=r"has 8\d\d\d bytes; at most 2000 are read again"):
            f.flush()
        del f.attrs["long"]
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert f["x"][0] == 1
