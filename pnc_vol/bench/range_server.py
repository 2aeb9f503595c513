"""A web server on the loopback address sends ranges of files, with ETags, and misbehaves on request.

Knows: HTTP. Does not know: what is in the files, nor who asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at

__all__ = ["Server", "main", "serving"]


class Server(http.server.ThreadingHTTPServer):
    """The files of a folder.

    Attributes
    ----------
    url : str
    requests : list of (method, range or None), in the order of arrival.
    latency : float, seconds before each answer.
    ranges : bool, obey ``Range``.
    fail : list of int, status codes of the next answers to GET, before any is good.
    sent : int, bytes of bodies.
    forged : dict, headers to send instead of the right ones; None leaves one out. ``If-Match`` is ignored then.
    drip : float, seconds before each byte of a body, if not 0.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: str) -> None:
        super().__init__(("127.0.0.1", 0), _RangeHandler)
        self.folder = folder
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[tuple[str, str | None]] = []
        self.latency, self.ranges, self.sent = 0.0, True, 0
        self.fail: list[int] = []
        self.forged: dict[str, str | None] = {}
        self.drip = 0.0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing when a client goes away."""


class _RangeHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        server = self.server
        wanted = self.headers.get("Range")
        server.requests.append((self.command, wanted))
        if server.latency:
            time.sleep(server.latency)
        path = os.path.join(server.folder, self.path.lstrip("/"))
        if server.fail and body:
            return self._refuse(server.fail.pop(0))
        if "secret" in self.path:
            return self._refuse(403)
        try:
            there = REAL.stat(path)
        except OSError:
            return self._refuse(404)
        if not stat.S_ISREG(there.st_mode):
            return self._refuse(404)
        size = there.st_size
        version = f"{there.st_mtime_ns} {size} {there.st_ino}"
        etag = f'"{hashlib.sha256(version.encode()).hexdigest()[:16]}"'
        if self.headers.get("If-Match", etag) != etag and not server.forged:
            return self._refuse(412)
        first, end = 0, size
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "") if server.ranges else None
        if part:
            first, end = int(part[1]), min(size, int(part[2]) + 1 if part[2] else size)
            if first >= size:
                return self._refuse(416)
        self.send_response(206 if part else 200)
        fields: dict[str, str | None] = {"ETag": etag, "Content-Length": str(end - first)}
        if part:
            fields["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        for key, value in (fields | server.forged).items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        if body:
            self._send(path, first, end)
        return None

    def _send(self, path: str, first: int, end: int) -> None:
        fd = REAL.open(path, os.O_RDONLY)
        step = 1 if self.server.drip else 1 << 20
        try:
            for at in range(first, end, step):
                time.sleep(self.server.drip)
                data = bytearray(min(step, end - at))
                # counted first: who has read them may ask for the number at once
                self.server.sent += len(data)
                self.wfile.write(data[: read_at(REAL, fd, data, at)])
        finally:
            REAL.close(fd)

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def serving(folder: str | os.PathLike[str]) -> Iterator[Server]:
    """Yield a server of the files of a folder, as long as the block runs."""
    server = Server(os.fspath(folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve the folder ``sys.argv[1]`` with a latency of ``sys.argv[2]`` seconds, until standard input ends."""
    with serving(sys.argv[1]) as server:
        server.latency = float(sys.argv[2])
        print(server.url, flush=True)
        sys.stdin.read()
