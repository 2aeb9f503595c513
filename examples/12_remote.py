"""Read a file from a web server, in ranges, with several threads. The server is started here, on this machine."""

import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

import pnc_vol as h5py

folder = Path(tempfile.mkdtemp())
with h5py.File(folder / "run.nc", "w") as f:
    f["t"] = np.arange(40 * 200 * 300, dtype="f4").reshape(40, 200, 300)
    f["t"].attrs["units"] = "K"

sent = []  # bytes of each answer


class RangeHandler(SimpleHTTPRequestHandler):
    """Python's own web server sends whole files only; nginx, Apache and S3 send ranges as this one does."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(b"", 200, (folder / "run.nc").stat().st_size)

    def do_GET(self):
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        whole = (folder / "run.nc").read_bytes()
        part = whole[first : last + 1]
        self.answer(part, 206, len(part), {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(whole)}"})

    def answer(self, body, status, length, fields=()):
        sent.append(len(body))
        self.send_response(status)
        for field in {"Content-Length": length, **dict(fields)}.items():
            self.send_header(*map(str, field))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *text):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), RangeHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()

# Any address that fsspec opens will do: https://..., s3://... with storage_options={...}
url = f"http://127.0.0.1:{server.server_port}/run.nc"
with h5py.File(url) as f, ThreadPoolExecutor(4) as threads:
    t = f["t"]
    print(f"{t.name}: {t.shape}, {t.attrs['units']}; opened with {len(sent)} requests")
    corner = t[7, :2, :3]
    print(f"t[7, :2, :3] = {corner.tolist()}; {len(sent)} requests")
    means = list(threads.map(lambda i: float(t[i].mean(dtype="f8")), range(0, 40, 10)))
    print(f"means of four records: {means}")
    print(f"{sum(sent) / os.path.getsize(folder / 'run.nc'):.0%} of the file was sent")
server.shutdown()
