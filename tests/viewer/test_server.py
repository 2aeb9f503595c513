"""The viewer's answers: what h5grove says of the same data in HDF5, and refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import h5py
import numpy as np
import pytest
from h5grove.content import create_content
from h5grove.encoders import encode

import pnc_vol


@pytest.fixture
def twins(tmp_path: Path) -> tuple[Path, Path]:
    """The same objects in both formats."""
    paths = tmp_path / "x.nc", tmp_path / "x.h5"
    rng = np.random.default_rng(5)
    for path, library in zip(paths, (pnc_vol, h5py), strict=True):
        with library.File(path, "w") as f:
            for word in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
                f[f"numbers/{word}"] = (np.arange(60).reshape(3, 4, 5) * 2.5).astype(word)
            f["c"] = np.arange(4) * (1 + 2j)
            f["flags"] = np.array([True, False])
            f["one"] = 7.25
            f["texts"] = np.array(["ä", "b c"], dtype=object)
            f["short"] = np.array([b"abc", b"d"])
            f["gone"] = np.array([1.0, np.nan, np.inf])
            f["rows"] = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
            f["soft"] = library.SoftLink("/numbers/i4")
            f["broken"] = library.SoftLink("/nothing")
            f["outside"] = library.ExternalLink("other.h5", "/x")
            f["numbers"].attrs["note"], f["numbers"].attrs["list"] = "ü", [1, 2]
            f["one"].attrs["bytes"] = np.bytes_(b"q")
        rng.random()
    return paths


def test_compounds_are_tables_also_where_a_field_is_an_array_or_a_compound(tmp_path: Path, ask: Any) -> None:
    star = np.dtype([("mass", "f8"), ("name", "S3"), ("flag", "?")])
    kind = np.dtype([("id", "i4"), ("place", "f4", (2,)), ("star", star), ("pairs", star, (1, 2))])
    rows = np.zeros(3, kind)
    rows["id"], rows["place"], rows["star"]["name"] = [1, 2, 3], [[0, 1], [2, 3], [4, 5]], [b"a", b"bc", b""]
    rows["pairs"]["mass"] = np.arange(6).reshape(3, 1, 2)
    names = ["id", "place[0]", "place[1]", "star.mass", "star.name", "star.flag"]
    names += [f"pairs[0,{i}].{field}" for i in (0, 1) for field in ("mass", "name", "flag")]
    for library, path in ((pnc_vol, tmp_path / "a.nc"), (h5py, tmp_path / "a.h5")):
        with library.File(path, "w") as f:
            f["rows"], f["one"] = rows, rows[1]
            f["many"], f["plain"] = np.zeros(2, [("x", "f4", (300,))]), np.zeros((2, 3))
        asked = ask(path)
        for name in ("/rows", "/one"):
            assert [one["name"] for one in asked.json("meta", path=name)["type"]["members"]] == names
        told = asked.json("data", path="/rows", selection="1:")
        assert told[0] == [2, 2.0, 3.0, 0.0, "bc", False, 2.0, "", False, 3.0, "", False]
        assert [row[0] for row in told] == [2, 3]
        assert asked.json("data", path="/one") == told[0]
        assert asked.json("data", path="/rows", selection="1", flatten="true") == told[0]
        # the axis of a dimension without a name is called as on the buttons
        assert asked.json("attr", path="//line/plain/axis1")["long_name"] == "D1"
        # of very many columns a table would be of no use
        assert [one["name"] for one in asked.json("meta", path="/many")["type"]["members"]] == ["x"]


def test_bytes_and_metadata_are_those_of_h5grove(twins: tuple[Path, Path], ask: Any) -> None:
    ours, theirs = twins
    asked, linked = ask(ours), ask(theirs)
    with h5py.File(theirs, "r", locking=False) as f:
        for path in ("/numbers", *(f"/numbers/{name}" for name in f["numbers"]), "/c", "/flags", "/one", "/texts",
                     "/short", "/gone", "/rows", "/soft", "/broken", "/outside"):  # fmt: skip
            content = create_content(f, path)
            told = json.loads(encode(content.metadata(), "json").content)
            shown = asked.json("meta", path=path)
            for each in (told, *told.get("children", ())), (shown, *shown.get("children", ())):
                for one in each:
                    one.pop("chunks", None)
            assert shown == told, path
            assert linked.json("meta", path=path).keys() == {*told, *(["chunks"] if "shape" in told else [])}
            if not hasattr(content, "attributes"):
                continue
            assert asked("attr", path=path) == linked("attr", path=path)
            assert asked.json("attr", path=path) == json.loads(encode(content.attributes(), "json").content)
            if "shape" not in told:
                continue
            for selection in (None, *(("1,:,2:4", "0,::2,3", ":") if told["shape"] == [3, 4, 5] else ())):
                query = {} if selection is None else {"selection": selection}
                values = content.data(selection, True, None)
                assert asked("data", path=path, flatten="true", **query) == encode(values, "json").content
                if path not in ("/texts", "/short", "/rows", "/c"):
                    values = content.data(selection, False, "safe")
                    expected = encode(values, "bin").content
                    assert asked("data", path=path, format="bin", dtype="safe", **query) == expected
                    assert linked("data", path=path, format="bin", dtype="safe", **query) == expected
    assert "/numbers/i4" in asked.json("paths", path="/")
    assert "/broken" in asked.json("paths", path="/")
    assert asked.json("paths", path="/") == linked.json("paths", path="/")


@pytest.mark.parametrize(
    ("route", "query", "code", "told"),
    [
        ("meta", {"path": "/none"}, 404, "not a valid path"),
        ("meta", {"path": "/outside/x"}, 404, "not a valid path"),
        ("attr", {"path": "/outside"}, 422, "leads nowhere"),
        ("data", {"path": "/numbers"}, 422, "not a dataset"),
        ("data", {"path": "/one", "selection": "1,2"}, 422, "too many"),
        ("data", {"path": "/numbers/i4", "selection": "9"}, 422, "out of bounds"),
        ("data", {"path": "/numbers/i4", "selection": "import os"}, 422, "invalid literal"),
        ("data", {"path": "/numbers/i4", "format": "pickle"}, 422, "encoding"),
        ("data", {"path": "//map/numbers/i4/other"}, 404, "no 'other'"),
        ("meta", {"path": "//map/numbers"}, 404, "no such dataset"),
        ("state", {"file": "/etc/passwd"}, 404, "File not found"),
        ("meta", {"file": "../x.h5", "path": "/"}, 404, "File not found"),
        ("other", {}, 404, "nothing at"),
    ],
)
def test_what_is_wrong_is_said(
    twins: tuple[Path, Path], ask: Any, route: str, query: dict[str, str], code: int, told: str
) -> None:
    for path in twins:
        assert told in json.loads(ask(path)(route, code=code, **query))["message"]


def test_only_who_knows_the_token_is_answered(air: Path, ask: Any) -> None:
    asked = ask(air)
    port, token = asked.viewer.port, asked.viewer.token
    assert asked.viewer.server_address[0] == "127.0.0.1"
    assert len(token) >= 32
    for path in ("", "app.js", "files", f"meta?file={air}&path=/"):
        assert asked.raw(f"/{token}/{path}").status == 200
        for wrong in ("", token[:-1], token + "x", "x" * len(token), "%ff", token.upper()):
            reply = asked.raw(f"/{wrong}/{path}")
            assert (reply.status, b"token" in reply.content) == (403, True)
        assert asked.raw(f"/{path}").status == 403
    for host in ("127.0.0.1", f"localhost:{port}", "127.0.0.1:9999"):
        assert asked.raw(f"/{token}/files", host=host).status == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", f"localhost.:{port}", "",
                 "127.0.0.1:evil.com", f"localhost:{port}@evil.com", "127.0.0.1:"):  # fmt: skip
        assert asked.raw(f"/{token}/files", host=host).status == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert asked.raw(f"/{token}/files", method=method).status == 501
    for path in ("../server.py", "%2e%2e/server.py", "static/app.js", "..%2fserver.py"):
        assert asked.raw(f"/{token}/{path}").status == 404
    reply = asked.raw(f"/{token}/")
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]


def test_the_address_without_its_last_slash_leads_to_the_page(air: Path, ask: Any) -> None:
    asked = ask(air)
    reply = asked.raw(f"/{asked.viewer.token}")
    assert (reply.status, reply.headers["Location"]) == (301, f"/{asked.viewer.token}/")
    assert asked.raw("/wrong").status == 403


def test_a_file_that_grew_is_shown_with_its_new_records(tmp_path: Path, ask: Any) -> None:
    path = tmp_path / "run.nc"
    with pnc_vol.File(path, "w") as f:
        x = f.create_dataset("x", data=[1.0, 2.0], maxshape=(None,))
        x.flush()
        asked = ask(path)
        before = asked.json("state")
        assert asked.json("state") == before
        assert asked.json("meta", path="/x")["shape"] == [2]
        x.resize((3,))
        x[2] = 3.0
        f.flush()
        assert asked.json("state")["version"] != before["version"]
        assert asked.json("meta", path="/x")["shape"] == [3]
        assert asked.json("data", path="/x") == [1, 2, 3]
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["y"] = 1
    os.replace(tmp_path / "other.h5", path)
    assert asked.json("paths", path="/") == ["/", "/y"]
    path.unlink()
    assert "cannot be read" in json.loads(asked("meta", code=503, path="/"))["message"]


def test_sets_of_subfiles_and_link_files(tmp_path: Path, air: Path, ask: Any) -> None:
    blobs = tmp_path / "blob.nc"
    with pnc_vol.File(blobs, "w", layout="blob") as f:
        f["x"] = np.arange(12.0).reshape(3, 4)
    assert not blobs.exists()
    asked = ask(blobs, air)
    assert asked.json("files") == [str(blobs), str(air)]
    assert asked.json("state")["first"] == "/x"
    assert asked.json("data", path="/x") == np.arange(12.0).reshape(3, 4).tolist()
    target = tmp_path / "air.h5"
    pnc_vol.link(air, target)
    linked, plain = ask(target), ask(air)
    for path in ("/T", "//map/T/values", "//line/T/axis0"):
        query = {"path": path, "format": "bin", "dtype": "safe"}
        assert linked("data", **query) == plain("data", **query)
        # a link file has the byte order of NetCDF
        assert linked.json("data", path=path) == plain.json("data", path=path)
    assert linked.json("attr", path="//map/T/axis2") == plain.json("attr", path="//map/T/axis2")
    assert not linked.json("state")["notice"]
    for each in (*asked.viewer.files.values(), *plain.viewer.files.values()):
        each.close()
    with pnc_vol.File(air, "r+") as f:
        f["time"].resize((3,))
        f["time"][2] = 60.0
    assert "stale" in linked.json("state")["notice"]


def test_numbers_as_csv(tmp_path: Path, ask: Any) -> None:
    """Each value reads back as itself, and integers are integers."""
    path, rng = tmp_path / "n.nc", np.random.default_rng(1)
    with pnc_vol.File(path, "w") as f:
        f["wide"] = rng.random((300, 400))
        f["i"] = np.arange(6, dtype="u8").reshape(2, 3) + 2**63
        f["odd"] = np.array([[1.5, np.nan], [-np.inf, np.inf], [0.1, -0.0]])
        f["single"] = np.array([0.1, 1e30, np.nan], "f4")
        f["yes"] = np.array([True, False])
        f["none"] = np.zeros((0, 3))
    asked = ask(path)

    def lines(name: str, **query: Any) -> list[str]:
        return asked("data", path=name, format="csv", **query).decode().splitlines()

    rows = [[float(value) for value in line.split(",")] for line in lines("/wide")]
    with pnc_vol.File(path) as f:
        assert (np.array(rows) == f["wide"][...]).all()
    assert lines("/i") == [f"{2**63},{2**63 + 1},{2**63 + 2}", f"{2**63 + 3},{2**63 + 4},{2**63 + 5}"]
    assert lines("/odd") == ["1.5,nan", "-inf,inf", "0.1,-0.0"]
    assert np.array(lines("/single"), "f4")[:2].tolist() == np.array([0.1, 1e30], "f4").tolist()
    assert lines("/single")[2] == "nan"
    assert lines("/yes") == ["1", "0"]
    assert lines("/none") == []
    assert lines("/odd", selection="0,:") == ["1.5", "nan"]


def test_an_answer_has_a_limit(tmp_path: Path, ask: Any) -> None:
    with pnc_vol.File(tmp_path / "sparse.nc", "w") as f:
        f.create_dataset("x", (1 << 20, 256), "f8")[7] = 1
    asked = ask(tmp_path / "sparse.nc")
    assert f"{1 << 31} bytes" in json.loads(asked("data", code=422, path="/x"))["message"]
    assert len(asked("data", path="/x", selection="7", format="bin")) == 8 * 256


def test_the_verb_prints_the_way_in_and_ends_with_ctrl_c(air: Path) -> None:
    """A link file with a relative name is read from any working directory."""
    target = air.with_suffix(".h5")
    pnc_vol.link(air, target, relative=True)
    start = [sys.executable, "-m", "pnc_vol.cli", "view", str(target), "--no-browser"]
    # Who runs the tests in the background ignores Ctrl-C, and what he starts does so, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with running:
        assert running.stdout is not None
        told = [running.stdout.readline() for _ in range(4)]
        port = told[0].split("/")[2].rpartition(":")[2]
        assert f"-L {port}:127.0.0.1:{port}" in told[2]
        address = f"{told[0].strip()}data?file={quote(str(target))}&path=/T&selection=0,0,0,0"
        with urlopen(address, timeout=30) as reply:
            assert 200 < float(reply.read()) < 300
        again = subprocess.run([*start, "--port", port], capture_output=True, text=True, check=False)
        assert again.returncode == 2
        assert f"port {port}: it is in use" in again.stderr
        assert again.stderr.count("\n") == 1
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
        assert (running.returncode, err) == (0, "")
        assert "has ended" in out


def test_names_of_dimensions_are_told_where_somebody_gave_them(tmp_path: Path, air: Path, ask: Any) -> None:
    asked = ask(air)
    assert asked.json("meta", path="/T")["dimensions"] == ["time", "lev", "lat", "lon"]
    assert asked.json("meta", path="/lat")["dimensions"] == ["lat"]
    members = {each["name"]: each for each in asked.json("meta", path="/")["children"]}
    assert members["rain"]["dimensions"] == ["obs"]
    for library, path in ((pnc_vol, tmp_path / "a.nc"), (h5py, tmp_path / "a.h5")):
        with library.File(path, "w") as f:
            f["g/depth"] = [1.0, 2.0, 3.0]
            f["g/depth"].make_scale("depth")
            f["g/x"] = np.zeros((2, 3, 4))
            f["g/x"].dims[0].label = "cell"
            f["g/x"].dims[1].attach_scale(f["g/depth"])
            f.create_dataset("r", (2, 3), "f4", maxshape=(None, 3))
            f["text"] = "no axes"
        shown = ask(path)
        assert shown.json("meta", path="/g/x")["dimensions"] == ["cell", "depth", ""]
        assert shown.json("meta", path="/g/depth")["dimensions"] == ["depth"]
        assert not any("dimensions" in shown.json("meta", path=each) for each in ("/r", "/text", "/g"))
