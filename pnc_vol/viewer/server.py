"""The HTTP server of the viewer answers the user who started it and nobody else.

Knows: addresses, tokens, routes, the page's files. Does not know: objects of files; h5grove's content answers.

Rules
-----
1. It listens on 127.0.0.1 alone. Every address contains a random token, compared in constant time; without it there is
   nothing but a refusal. Other users of a login node can reach the port, and see no file.
2. The header ``Host`` must name the loopback interface: a page of another site that has its name lead here is refused.
3. It answers GET, at a few routes, for which the standard library's server will do. The files are those that it was
   started with: a request names one of them, never a path.
4. A failure is an answer of JSON with ``message``, as h5grove's servers give it, and the page shows it.
"""

from __future__ import annotations

import hmac
import math
import os
import re
import secrets
import socketserver
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import orjson
from h5grove.content import DatasetContent, ResolvedEntityContent
from h5grove.encoders import encode
from h5grove.utils import NotFoundError

from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_whole
from pnc_vol.viewer.objects import content_of, json_value, paths_below, shape_of_selection
from pnc_vol.viewer.served import Served

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
        self.files: dict[str, Served] = {}
        try:
            self.files = {path: Served(path) for path in dict.fromkeys(paths)}
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
