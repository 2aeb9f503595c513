"""Files in an object store: moto's server on the loopback address, read through s3fs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import RemoteError
from pnc_vol.remote import driver

pytestmark = [
    pytest.mark.services,
    # of botocore and moto
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, Any]]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    client = {"endpoint_url": f"http://{host}:{port}"}
    yield {"key": "any", "secret": "any", "client_kwargs": client}
    server.stop()


@pytest.fixture
def store(storage: dict[str, Any]) -> Any:
    import s3fs

    made = s3fs.S3FileSystem(**storage)
    if not made.exists("bucket"):
        made.mkdir("bucket")
    return made


def test_a_file_in_a_bucket(store: Any, storage: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    values = np.random.default_rng(0).random((20, 300, 100))
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["x"] = values
        f["x"].attrs["units"] = "m"
    store.put(str(tmp_path / "a.nc"), "bucket/run/a.nc")
    with pnc_vol.File("s3://bucket/run/a.nc", storage_options=storage) as f:
        assert f.driver == "remote"
        assert (f["x"][7] == values[7]).all()
        assert (f["x"][:, ::50, 3] == values[:, ::50, 3]).all()
        assert f["x"].attrs["units"] == "m"
        assert f.statistics()["driver"]["remote.requests"] <= 4
        again = pickle.loads(pickle.dumps(f["x"]))
    assert (again[19] == values[19]).all()
    again.file.close()
    for gone in ("s3://bucket/none.nc", "s3://nobucket/a.nc"):
        with pytest.raises(FileNotFoundError, match="no such file"):
            pnc_vol.File(gone, storage_options=storage)
    monkeypatch.setattr(driver, "_LOOK_AGAIN", 0.0)
    with pnc_vol.File("s3://bucket/run/a.nc", storage_options=storage) as f:
        store.pipe("bucket/run/a.nc", (tmp_path / "a.nc").read_bytes()[::-1])
        with pytest.raises(RemoteError, match="changed since"):
            f["x"][19]


def test_a_store_that_is_down(storage: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_PAUSES", (0.0,) * 4)
    down = {**storage, "client_kwargs": {**storage["client_kwargs"], "endpoint_url": "http://127.0.0.1:9"}}
    with pytest.raises(RemoteError, match="cannot be reached"):
        pnc_vol.File(
            "s3://bucket/run/a.nc", storage_options={**down, "config_kwargs": {"retries": {"max_attempts": 0}}}
        )
