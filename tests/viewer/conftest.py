"""Files as other programs write them, and the viewer over them."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

import netCDF4
import numpy as np
import pytest

from pnc_vol.viewer.server import Viewer


@pytest.fixture
def air(tmp_path: Path) -> Path:
    """Temperatures over time, level, latitude and longitude, with a gap; packed pressures; stations."""
    path = tmp_path / "air.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as f:
        for name, size in (("time", None), ("lev", 3), ("lat", 19), ("lon", 36), ("obs", 4)):
            f.createDimension(name, size)
        for name, unit, values in (
            ("time", "days since 2000-01-01", [0.0, 30.0]),
            ("lev", "hPa", [1000.0, 850.0, 100.0]),
            ("lat", "degrees_north", np.linspace(90, -90, 19)),
            ("lon", "degrees_east", np.arange(0, 360, 10.0)),
        ):
            f.createVariable(name, "f8", (name,))[:] = values
            f[name].units = unit
        t = f.createVariable("T", "f4", ("time", "lev", "lat", "lon"), fill_value=-999.0)
        t.long_name, t.units = "air temperature", "K"
        north = np.cos(np.radians(np.linspace(90, -90, 19)))[:, None]
        t[:] = 250 + 50 * north + 10 * np.sin(np.radians(np.arange(0, 360, 10))) - 9 * np.arange(6).reshape(2, 3, 1, 1)
        t[:, :, 2:5, 4:12] = -999.0
        p = f.createVariable("p", "i2", ("lat", "lon"), fill_value=-32767)
        p.scale_factor, p.add_offset, p.valid_max = 10.0, 100_000.0, np.int16(500)
        p.set_auto_maskandscale(False)
        p[:] = (np.arange(19 * 36) - 100).reshape(19, 36)
        p[0, 0] = -32767
        for name, unit, values in (
            ("obs_lat", "degrees_north", [50.0, 51, 52, 49]),
            ("obs_lon", "degrees_east", [8.0, 9, 7, 8]),
            ("rain", "mm", [1.0, 2, 3, 4]),
        ):
            f.createVariable(name, "f8", ("obs",))[:] = values
            f[name].units = unit
        f["rain"].coordinates = "obs_lat obs_lon"
    return path


class Asked:
    """A viewer that runs in a thread, and what it answers."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.file = next(iter(viewer.files))

    def raw(self, target: str, *, method: str = "GET", host: str | None = None) -> SimpleNamespace:
        """The answer to ``GET target``: status, headers, content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.viewer.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, target, headers={} if host is None else {"Host": host})
            reply = connection.getresponse()
            return SimpleNamespace(status=reply.status, headers=reply.headers, content=reply.read())

    def __call__(self, route: str, *, code: int = 200, **query: Any) -> bytes:
        """The bytes that a route gives for the first file."""
        asked = urlencode({"file": self.file, **query}, quote_via=quote)
        reply = self.raw(f"/{self.viewer.token}/{route}?{asked}")
        assert reply.status == code, reply.content
        return bytes(reply.content)

    def json(self, route: str, **query: Any) -> Any:
        """The same, where it is JSON."""
        return json.loads(self(route, **query))


@pytest.fixture
def ask() -> Iterator[Callable[..., Asked]]:
    """Show files; ends with the test."""
    running = []

    def run(*paths: Path | str) -> Asked:
        viewer = Viewer([str(path) for path in paths])
        thread = threading.Thread(target=viewer.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((viewer, thread))
        return Asked(viewer)

    yield run
    for viewer, thread in running:
        viewer.shutdown()
        thread.join()
        viewer.server_close()


def until(holds: Callable[[], Any], seconds: float = 20) -> Any:
    """What `holds` gives as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found
