"""The HTTP server of the viewer answers the user who started it and nobody else.

Knows: addresses, tokens, routes, the page's files; how either kind of file is opened, and how to find out that it
changed. Does not know: objects of files; h5grove's content answers.

Rules
-----
1. It listens on 127.0.0.1 alone. Every address contains a random token, compared in constant time; without it there is
   nothing but a refusal. Other users of a login node can reach the port, and see no file.
2. The header ``Host`` must name the loopback interface: a page of another site that has its name lead here is refused.
3. It answers GET, at a few routes, for which the standard library's server will do. The files are those that it was
   started with: a request names one of them, never a path.
4. A failure is an answer of JSON with ``message``, as h5grove's servers give it, and the page shows it.

Of files:

5. A file is open from the first question to the last, and opened again if the system says that it is another one, or
   has been written to. So records that a running program adds are there with the next question. It is opened anew, not
   refreshed: that is one way for both formats, and for a file that was replaced.
6. Questions about one file are answered one after another: none meets a file that is being opened again.
7. No writer is held up: HDF5's lock is not taken.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import os
import re
import secrets
import socketserver
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import orjson
from h5grove.content import DatasetContent, ResolvedEntityContent
from h5grove.encoders import encode
from h5grove.utils import NotFoundError

from pnc_vol.api.file import File
from pnc_vol.api.hdf5_files import open_hdf5
from pnc_vol.convert.either import kind_of
from pnc_vol.convert.link_state import state_of
from pnc_vol.file.file_sets import files_of
from pnc_vol.system import REAL, exists
from pnc_vol.system.full_io import read_whole
from pnc_vol.viewer.objects import content_of, first_of, json_value, paths_below, shape_of_selection

__all__ = ["MOST_BYTES", "Viewer"]

LOOPBACK = "127.0.0.1"

MOST_BYTES = 1 << 30
"""Bytes of one answer; a browser draws no more."""

_STATIC = os.path.join(os.path.dirname(__file__), "static")
_PAGE = {
    "": ("index.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "app.css": ("app.css", "text/css; charset=utf-8"),
    "LICENSES.txt": ("LICENSES.txt", "text/plain; charset=utf-8"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    # h5web's array library compiles its loops in the browser, hence unsafe-eval
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' blob: data:; "
        "connect-src 'self' blob: data:; font-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_PATIENCE = 2.0
"""Seconds that the end waits for an answer that is being made."""

_CSV = {"Content-Type": "text/csv", "Content-Disposition": 'attachment; filename="data.csv"'}

Answer = tuple[bytes, dict[str, str]]


class RefusedRequest(Exception):
    """A request that is answered by an error.

    status : HTTPStatus
    headers : dict of str to str, of the answer.
    """

    def __init__(self, status: HTTPStatus, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


class Viewer(socketserver.ThreadingTCPServer):
    """Shows files in a browser until it is interrupted.

    Parameters
    ----------
    paths : list of str, the files.
    port : int
        0 stands for a free one.

    Raises
    ------
    NotCDFError, OSError
        A file cannot be opened, or the port is in use.
    """

    allow_reuse_address = True
    daemon_threads = True
    # an answer that nobody waits for any more does not hold up the end
    block_on_close = False

    def __init__(self, paths: list[str], *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), _Handler)
        self.files: dict[str, _Served] = {}
        try:
            self.files = {path: _Served(path) for path in dict.fromkeys(paths)}
        except BaseException:
            self.server_close()
            raise

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def serve(self) -> None:
        """Answer until Ctrl-C."""
        try:
            self.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            pass
        finally:
            self.server_close()

    def server_close(self) -> None:
        """Stop listening, and close the files."""
        super().server_close()
        for file in self.files.values() if hasattr(self, "files") else ():
            file.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line what went wrong; a browser that hangs up is nothing of the kind."""
        error = sys.exception() if sys.version_info >= (3, 11) else sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):
            print(f"pnc-vol view: a request failed: {type(error).__name__}: {error}", file=sys.stderr)

    # ------------------------------------------------------------------------------------------------- answers

    def answer(self, target: str, host: str) -> Answer:
        """Return the answer to a request.

        Parameters
        ----------
        target : str, path and query.
        host : str, the header of this name.

        Raises
        ------
        RefusedRequest
        """
        if not re.fullmatch(rf"({re.escape(LOOPBACK)}|localhost)(:[0-9]{{1,5}})?", host, re.IGNORECASE):
            raise RefusedRequest(HTTPStatus.FORBIDDEN, f"open it as http://{LOOPBACK}, not as http://{host}")
        split = urlsplit(target)
        token, slash, route = unquote(split.path)[1:].partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise RefusedRequest(HTTPStatus.FORBIDDEN, "the token is wrong: open the address that pnc-vol view printed")
        if not slash:
            # the page names its files relative to its own address
            raise RefusedRequest(HTTPStatus.MOVED_PERMANENTLY, "the address ends in /", {"Location": f"/{self.token}/"})
        route = route.rstrip("/")
        if route in _PAGE:
            name, kind = _PAGE[route]
            return read_whole(REAL, os.path.join(_STATIC, name)), {"Content-Type": kind}
        if route == "files":
            return _json(list(self.files))
        return self._about_a_file(route, parse_qs(split.query))

    def _about_a_file(self, route: str, query: dict[str, list[str]]) -> Answer:
        def asked(name: str, default: str | None = None) -> Any:
            return query.get(name, [default])[0]

        served = self.files.get(asked("file", ""))
        if route not in ("state", "meta", "attr", "data", "paths"):
            raise RefusedRequest(HTTPStatus.NOT_FOUND, f"there is nothing at {route!r}")
        if served is None:
            raise RefusedRequest(HTTPStatus.NOT_FOUND, "File not found: pnc-vol view was started with others")
        try:
            if route == "state":
                return _json(served.state())
            with served.opened() as file:
                path = asked("path", "/")
                if route == "paths":
                    return _json(paths_below(file, path))
                content = content_of(file, path)
                if route == "meta":
                    return _json(content.metadata())
                if not isinstance(content, ResolvedEntityContent):
                    raise RefusedRequest(
                        HTTPStatus.UNPROCESSABLE_ENTITY, f"{path} is a link that leads nowhere in this file"
                    )
                if route == "attr":
                    return _json(content.attributes(query.get("attr_keys")))
                return _data(content, asked("selection"), asked("format", "json"), asked("dtype"), asked("flatten"))
        except NotFoundError as error:
            raise RefusedRequest(HTTPStatus.NOT_FOUND, str(error)) from error
        except (IndexError, TypeError, ValueError) as error:
            raise RefusedRequest(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except (OSError, RuntimeError, KeyError, MemoryError) as error:
            raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, f"{served.path} cannot be read: {error}") from error


def _data(content: Any, selection: str | None, form: str, dtype: str | None, flatten: str | None) -> Answer:
    """Return the values of a dataset, encoded by h5grove."""
    if not isinstance(content, DatasetContent):
        raise ValueError(f"{content.path} is not a dataset")
    about = content.metadata()
    if about["shape"]:
        nbytes = math.prod(shape_of_selection(about["shape"], selection)) * about["type"]["size"]
        if nbytes > MOST_BYTES:
            raise ValueError(f"{content.path}: {nbytes} bytes are more than one picture takes; choose a part of them")
    values = content.data(selection, flatten is not None and flatten.lower() != "false", dtype)
    if form == "csv" and values.dtype.kind in "biuf" and 1 <= values.ndim <= 2:
        return _csv_of(values), _CSV
    encoded = encode(json_value(values) if form == "json" else values, form)
    return encoded.content, encoded.headers


def _json(value: Any) -> Answer:
    encoded = encode(value, "json")
    return encoded.content, encoded.headers


class _Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server_version = "pnc-vol"
    sys_version = ""
    timeout = 60
    server: Viewer

    def do_GET(self) -> None:
        """Answer."""
        status = HTTPStatus.OK
        try:
            content, headers = self.server.answer(self.path, self.headers.get("Host", ""))
        except RefusedRequest as refused:
            status = refused.status
            content, headers = _json({"message": str(refused)})
            headers = headers | refused.headers
        self.send_response(status)
        for name, value in {**_HEADERS, **headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: the address, with the token, must not reach a log."""


def _csv_of(values: np.ndarray[Any, Any]) -> bytes:
    """Return the lines of an array of real numbers, each with as few digits as tell it from all others.

    The array has one axis, with a line for each value, or two.

    numpy's own writer takes a call of Python for each row and 25 characters for each value.
    """
    if values.dtype.kind in "bf" and values.dtype.itemsize < 4:
        values = values.astype("i4" if values.dtype.kind == "b" else "f4")
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    if not values.size:
        return b""
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    text = text[1:-1].replace(b",", b"\n") if values.ndim == 1 else text[2:-2].replace(b"],[", b"\n")
    if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        # JSON has no word for these
        words = [str(value).encode() for value in values[~finite].tolist()]
        pieces = text.split(b"null")
        text = b"".join(part for pair in zip(pieces, [*words, b""], strict=True) for part in pair)
    return text + b"\n"


# ------------------------------------------------------------------------------------------------------- files


class _Served:
    """A file that is shown.

    Parameters
    ----------
    path : str

    Raises
    ------
    NotCDFError, OSError
        It cannot be opened, or is neither NetCDF nor HDF5.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file: Any = None
        self._version = ""
        self._first = "/"
        self._notice = ""
        # of a link file, where its values are
        self._source = ""
        with self.opened():
            pass

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield the file, as it is now; h5py's or ours.

        Raises
        ------
        OSError
            It is gone, or cannot be read.
        """
        with self._lock:
            if self._file is None or self._seen() != self._version:
                self._close()
                self._open()
            yield self._file

    def state(self) -> dict[str, str]:
        """Return what is there now: the version, where to begin, and what a reader should know.

        Raises
        ------
        OSError
            As `opened`.
        """
        with self.opened():
            return {"version": self._version, "first": self._first, "notice": self._notice}

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        free = self._lock.acquire(timeout=_PATIENCE)
        try:
            self._close()
        finally:
            if free:
                self._lock.release()

    def _open(self) -> None:
        self._source = self._notice = ""
        hdf5 = kind_of(self.path) == "hdf5"
        # before it is open: HDF5 opens no file twice that is locked once
        link = state_of(self.path) if hdf5 else None
        if link is not None:
            self._source = link.source if exists(REAL, link.source) else ""
            if link.stale:
                self._notice = f"This link file is stale: {link.stale}; make it again with pnc-vol link."
        # before it is open: what is written meanwhile makes another version
        self._version = self._seen()
        self._file = open_hdf5(self.path, locking=False) if hdf5 else File(self.path, "r")
        self._first = first_of(self._file)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _seen(self) -> str:
        """Return what differs when the file, or a subfile of a set, is another one or has been written to."""
        paths = files_of(REAL, self.path)
        if self._source and exists(REAL, self._source):
            paths.append(self._source)
        found = [REAL.stat(path) for path in paths]
        return " ".join(f"{one.st_ino}:{one.st_size}:{one.st_mtime_ns}" for one in found)
