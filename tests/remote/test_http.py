"""Files of a real web server on the loopback address: values, requests, errors."""

from __future__ import annotations

import errno
import os
import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.bench.range_server import Server, serving
from pnc_vol.errors import NotCDFError, RemoteError
from pnc_vol.testing.driver_suite import Extents, open_stack

pytest.importorskip("fsspec")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def values() -> Any:
    return np.random.default_rng(0).random((20, 300, 200))


@pytest.fixture
def url(server: Server, tmp_path: Path, values: Any) -> str:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["x"] = values
        f["g/names"] = ["one", "two"]
        r = f.create_dataset("r", (5, 3), "i4", maxshape=(None, 3))
        r[...] = np.arange(15).reshape(5, 3)
        f.attrs["title"] = "far away"
    return f"{server.url}/a.nc"


def test_a_slice_takes_three_round_trips(server: Server, url: str, values: Any) -> None:
    """Size, header, data: at 50 ms each."""
    server.latency = 0.05
    with pnc_vol.File(url) as f:
        assert (f["x"][7] == values[7]).all()
        assert len(server.requests) <= 3, server.requests
        assert (f["x"][7, 10:20] == values[7, 10:20]).all()
        assert len(server.requests) <= 3, "what came is kept"
        assert (f.mode, f.driver, f.filename, f.attrs["title"]) == ("r", "remote", url, "far away")


def test_every_kind_of_read(url: str, values: Any) -> None:
    with (
        pnc_vol.File(url) as f,
        pnc_vol.File(url, driver="trace | remote(block_bytes=1000, cache_bytes=50000)") as small,
    ):
        for file in (f, small):
            x = file["x"]
            assert (x[:, 17, 5] == values[:, 17, 5]).all()
            assert (x[3:19:4, ::7, [1, 50, 199]] == values[3:19:4, ::7][:, :, [1, 50, 199]]).all()
            assert (x[...] == values).all()
            assert file["r"][...].tolist() == np.arange(15).reshape(5, 3).tolist()
            assert file["g/names"].asstr()[...].tolist() == ["one", "two"]
            many = [x.iget((i, slice(None), i)) for i in range(20)]
            file.wait_all(many)
            assert all((request.array == values[i, :, i]).all() for i, request in enumerate(many))
        assert small.statistics()["driver"]["remote.held_bytes"] <= 50_000


def test_columns_come_in_one_pass_of_long_ranges(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few bytes of many blocks: the blocks are fetched together, some at a time, and once for all columns."""
    values = np.random.default_rng(3).random((3000, 500))
    with pnc_vol.File(tmp_path / "wide.nc", "w") as f:
        f["x"] = values
    monkeypatch.setattr("pnc_vol.remote.driver.AT_ONCE", 4 << 20)
    with pnc_vol.File(f"{server.url}/wide.nc") as f:
        before = len(server.requests)
        for k in (3, 250, 499):
            assert (f["x"][:, k] == values[:, k]).all()
        assert len(server.requests) - before <= 4
        many = [f["x"].iget((slice(None), k)) for k in range(0, 500, 7)]
        f.wait_all(many)
        assert all((request.array == values[:, 7 * i]).all() for i, request in enumerate(many))
        assert len(server.requests) - before <= 4


def test_rows_that_lie_far_apart_bring_little_besides(server: Server, tmp_path: Path) -> None:
    """2 KiB of each MiB: no whole blocks; what comes often is still kept."""
    values = np.random.default_rng(4).random((16, 512), np.float32)
    with pnc_vol.File(tmp_path / "far.nc", "w") as f:
        f.create_dataset("x", (16, 1 << 18), "f4")[:, 100:612] = values
    with pnc_vol.File(f"{server.url}/far.nc") as f:
        f["x"][0, 0]
        before, requests = server.sent, len(server.requests)
        assert (f["x"][:, 100:612] == values).all()
        assert server.sent - before <= 1.25 * values.nbytes
        assert len(server.requests) - requests <= 16
        assert (f["x"][::3, 200:300] == values[::3, 100:200]).all()
        many = [f["x"].iget((i, slice(100, 612))) for i in (15, 3, 9)]
        f.wait_all(many)
        assert all((request.array == values[i]).all() for request, i in zip(many, (15, 3, 9), strict=True))
        requests = len(server.requests)
        for _ in range(2):
            assert (f["x"][7, 100:612] == values[7]).all()
        assert len(server.requests) - requests == 1


def test_a_header_of_ten_megabytes_takes_four_requests(server: Server, tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "wide.nc", "w") as f:
        for i in range(10):
            f.attrs[f"a{i}"] = np.arange(125_000.0)
        f["x"] = [1, 2, 3]
    with pnc_vol.File(f"{server.url}/wide.nc") as f:
        gets = [what for what, _ in server.requests if what == "GET"]
        assert f["x"][1] == 2
    assert len(gets) <= 4, server.requests


def test_threads_and_pickles(server: Server, url: str, values: Any) -> None:
    server.latency = 0.2
    with pnc_vol.File(url, driver="remote(block_bytes=65536)") as f:
        x, got = f["x"], {}

        def work(i: int) -> None:
            got[i] = x[2 * i, 100]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all((got[i] == values[2 * i, 100]).all() for i in range(8))
        server.latency = 0
        again = pickle.loads(pickle.dumps(x))
        assert again.file.filename == url
        assert (again[5, 5] == values[5, 5]).all()


def test_what_servers_refuse(server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnc_vol.remote.driver._PAUSES", (0.0, 0.0, 0.0, 0.0))
    with pytest.raises(FileNotFoundError, match=r"no such file.*/b\.nc"):
        pnc_vol.File(f"{server.url}/b.nc")
    with pytest.raises(PermissionError, match="storage_options"):
        pnc_vol.File(f"{server.url}/secret.nc")
    (tmp_path / "page.html").write_text("<html>not found, but 200</html>")
    with pytest.raises(NotCDFError, match=r"page\.html"):
        pnc_vol.File(f"{server.url}/page.html")
    for mode in ("r+", "w", "a", "x"):
        with pytest.raises(OSError, match="reading only") as told:
            pnc_vol.File(url, mode)
        assert told.value.errno == errno.EROFS
    with pytest.raises(ValueError, match="does not know such addresses"):
        pnc_vol.File("nosuch://host/a.nc")
    with pytest.raises(TypeError, match="storage_options"):
        pnc_vol.File(url, storage_options="key")
    with pytest.raises(pnc_vol.errors.NotYetError, match="driver="):
        pnc_vol.File(url, driver="posix")
    server.fail += [503, 429, 500]
    with pnc_vol.File(url) as f:
        assert f["r"][4, 2] == 14, "tried again"
    server.fail += [500] * 4
    with pytest.raises(RemoteError, match=r"failed \(500\)"):
        pnc_vol.File(url)
    server.server_close()
    with pytest.raises(RemoteError, match="cannot be reached") as down:
        pnc_vol.File("http://127.0.0.1:9/a.nc")
    assert down.value.errno == errno.ECONNREFUSED


def test_a_server_without_ranges_is_noticed_at_once(server: Server, url: str) -> None:
    server.ranges = False
    f = pnc_vol.File(url)
    with pytest.raises(RemoteError, match="whole files only") as told:
        f["x"][15]
    assert told.value.errno == errno.EOPNOTSUPP
    assert server.sent < 20 << 20
    f.close()


def test_a_file_that_changes_is_noticed(server: Server, url: str, tmp_path: Path, values: Any) -> None:
    f = pnc_vol.File(url)
    assert (f["x"][0] == values[0]).all()
    with pnc_vol.File(tmp_path / "new.nc", "w") as new:
        new["x"] = values + 1
    os.replace(tmp_path / "new.nc", tmp_path / "a.nc")
    with pytest.raises(RemoteError, match="changed since it was opened") as told:
        f["x"][15]
    assert told.value.errno == errno.ESTALE
    f.close()
    with pnc_vol.File(url) as f:
        assert (f["x"][15] == values[15] + 1).all()


@pytest.mark.parametrize("told", [{"ETag": '"another"'}, {"Content-Range": "bytes 524288-1048575/7"}])
def test_an_answer_of_another_version_is_refused(
    server: Server, url: str, values: Any, told: dict[str, str | None]
) -> None:
    """A server, or a proxy, that ignores ``If-Match``."""
    with pnc_vol.File(url, driver="remote(block_bytes=524288)") as f:
        assert (f["x"][0] == values[0]).all()
        server.forged = told
        with pytest.raises(RemoteError, match="changed since it was opened") as error:
            f["x"][15]
        assert error.value.errno == errno.ESTALE
        server.forged = {}
        assert (f["x"][15] == values[15]).all(), "nothing of the wrong answer is kept"


def test_without_etags_the_time_of_the_file_is_compared(server: Server, url: str) -> None:
    server.forged = {"ETag": None, "Last-Modified": "Mon, 23 Nov 2026 10:00:00 GMT"}
    with pnc_vol.File(url) as f:
        f["x"][3]
        server.forged = {"ETag": None, "Last-Modified": "Mon, 23 Nov 2026 10:00:01 GMT"}
        with pytest.raises(RemoteError, match="changed since it was opened"):
            f["x"][15]


@pytest.mark.parametrize("sent", ["bytes 0-99/*", "bytes 0-524287/*", "nonsense", None])
def test_other_bytes_than_were_asked_for_are_refused(server: Server, url: str, sent: str | None) -> None:
    with pnc_vol.File(url) as f:
        f["x"][0]
        server.forged = {"Content-Range": sent}
        with pytest.raises(RemoteError, match="sent others") as error:
            f["x"][15]
        assert error.value.errno == errno.EIO


@pytest.mark.parametrize("length", ["1000000000000", None])
def test_a_server_that_stalls_is_given_up(server: Server, url: str, length: str | None) -> None:
    """A byte now and then, of a body whose end is far away, or is not told."""
    with pnc_vol.File(url, driver="remote(timeout=0.7)") as f:
        f["x"][0]
        server.drip, server.forged = 0.1, {"Content-Length": length}
        begin = time.monotonic()
        with pytest.raises(RemoteError, match=r"in time \(0\.7 seconds\).*timeout=SECONDS") as error:
            f["x"][15]
        assert error.value.errno == errno.ETIMEDOUT
        assert time.monotonic() - begin < 10
    server.latency = 3
    with pytest.raises(RemoteError, match="in time"):
        pnc_vol.File(url, driver="remote(timeout=0.7)")
    with pytest.raises(ValueError, match=r"timeout=0\)"):
        pnc_vol.File(url, driver="remote(timeout=0)")


def test_other_stores_are_looked_at_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, values: Any) -> None:
    """A store of fsspec without conditional reads: its files are compared before a read, if the last look is old."""
    import fsspec

    memory = fsspec.filesystem("memory")
    with pnc_vol.File(tmp_path / "m.nc", "w") as f:
        f["x"] = values
    memory.pipe("/m.nc", (tmp_path / "m.nc").read_bytes())
    monkeypatch.setattr("pnc_vol.remote.driver._LOOK_AGAIN", 0.0)
    with pnc_vol.File("memory://m.nc") as f:
        assert (f["x"][3] == values[3]).all()
        memory.pipe("/m.nc", (tmp_path / "m.nc").read_bytes() + b"longer")
        with pytest.raises(RemoteError, match="changed"):
            f["x"][19]
    memory.rm("/m.nc")


@pytest.mark.parametrize("gap", [1 << 16, 50])
def test_extents_in_any_order(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: int) -> None:
    """By whole blocks, and by ranges of their own where the pieces are short and far from each other."""
    monkeypatch.setattr("pnc_vol.remote.driver.GAP", gap)
    content = np.random.default_rng(1).integers(0, 256, 100_000, np.uint8)
    (tmp_path / "bytes").write_bytes(content.tobytes())
    rng = np.random.default_rng(2)
    root = open_stack("remote(block_bytes=777, cache_bytes=20000)", f"{server.url}/bytes", writable=False)
    for n, longest in ((1, 900), (3, 900), (200, 900), (3, 9), (20, 90), (300, 2)):
        length = rng.integers(0, longest, n)
        offset = rng.integers(0, 100_400, n)
        place = np.cumsum(length) - length
        memory = np.full(int(length.sum()), 7, np.uint8)
        wanted = memory.copy()
        for o, size, p in zip(offset, length, place, strict=True):
            there = content[o : o + size]
            wanted[p : p + len(there)] = there
        got = root.read(Extents(offset, length, place), memory)
        assert (memory == wanted).all()
        assert got == int(np.clip(100_000 - offset, 0, length).sum())
    root.close()
    with pytest.raises(ValueError, match="closed"):
        root.size()


def test_a_file_that_was_cut_short_says_what_is_missing(server: Server, url: str, tmp_path: Path) -> None:
    whole = (tmp_path / "a.nc").read_bytes()
    (tmp_path / "short.nc").write_bytes(whole[: len(whole) // 2])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pnc_vol.File(f"{server.url}/short.nc") as f:
            assert not f["x"][19].any()
    assert "missing at the end" in str(told[0].message)


def test_an_hdf5_file_under_an_address_is_read_there(server: Server, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "in.h5", "w") as f:
        f["g/x"] = np.arange(5.0)
    address = f"{server.url}/in.h5"
    with pnc_vol.File(address, hdf5="pass") as f:
        assert type(f) is h5py.File
        assert f["g/x"][2] == 2
    with pytest.raises(NotCDFError, match="HDF5"):
        pnc_vol.File(address)
