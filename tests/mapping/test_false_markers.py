"""What markers say is never trusted: a generated catalogue of lies, and lies that nobody thought of.

``PNC_VOL_LIES=1 pytest`` goes through all of the catalogue, which takes some minutes; else each 37th or 89th is taken,
prime to the number of lies about a value, so that each kind of lie is met, and each marker.
"""

from __future__ import annotations

import json
import os
import resource
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import everything
import false_markers
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.errors import PncVolWarning
from pnc_vol.format.check import check
from pnc_vol.format.decode import decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.mapping.composite import is_ragged
from pnc_vol.mapping.flatten import to_header
from pnc_vol.mapping.marker_check import ATTRIBUTE_KEYS, FILE_KEYS, VARIABLE_KEYS, examine
from pnc_vol.mapping.names import MARKER
from pnc_vol.mapping.special import metadata_of
from pnc_vol.mapping.tree import DatasetNode, Tree, walk
from pnc_vol.mapping.unflatten import from_header

ALL = bool(os.environ.get("PNC_VOL_LIES"))
SLOWEST = 20.0
"""Seconds of processor time that no case may take, on any machine."""
MEMORY = 300 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lies")


@cache
def original(folder: Path, section: str) -> tuple[bytes, Header, dict[str, Any]]:
    """The file of a section, its header, and by name of a variable its values without any marker."""
    path = folder / f"{section}.nc"
    everything.write(path, section)
    pnc_vol.repack(path, header_reserve=false_markers.ROOM)
    raw = path.read_bytes()
    header = decode(raw, file_size=len(raw)).header
    return raw, header, plain_values(path, raw, header)


def plain_values(path: Path, raw: bytes, header: Header) -> dict[str, Any]:
    for name, _ in list(false_markers.markers(header)):
        header = false_markers.with_marker(header, name, None)
    plain = path.with_suffix(".plain.nc")
    plain.write_bytes(false_markers.content(false_markers.Case("", header), raw))
    with pnc_vol.File(plain) as f:
        return {node.cdf_name: f[node.path][()] for node in f.id.node.tree.datasets.values()}


# ------------------------------------------------------------------------------------------------- one file


def said(tree: Tree) -> dict[str, Any]:
    """What a tree says, for comparison."""
    found: dict[str, Any] = {}
    for node in walk(tree.root):
        # a fill value is shown as an attribute once it is in a file, and the lengths of rows name their dimension
        made = ("_FillValue", "sample_dimension")
        told: list[Any] = [{name: repr(node.attrs[name]) for name in node.attrs if name not in made}]
        if isinstance(node, DatasetNode):
            axes = [(axis.label, [scale.path for scale in axis.scales]) for axis in node.axes]
            limits = None if node.maxshape == node.shape else node.maxshape
            dtype = node.element.dtype
            told += [
                dtype,
                repr(metadata_of(dtype)),
                node.element.kind,
                node.shape,
                limits,
                node.fillvalue,
                node.scale,
                axes,
            ]
        else:
            told += [list(node.order or ()), sorted(map(str, node.links))]
        found[node.path] = told
    return found


def assert_harmless(path: Path, header: Header, plain: dict[str, Any]) -> bool:
    """Look at all of a file; True if something was found to be wrong."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pnc_vol.File(path) as f:
            opened = [warning for warning in caught if warning.category is PncVolWarning]
            assert len(opened) <= 1
            tree = f.id.node.tree
            assert bool(opened) == bool(tree.findings)
            dict(everything.seen(f))
            for node in list(tree.datasets.values()):
                if node.element.kind == "number" and not node.is_placeholder and node.owner is None and node.parent:
                    # numbers are those of the file, as many of them as there are
                    found, there = np.ravel(f[node.path][()]), np.ravel(plain.get(node.cdf_name, ()))
                    if node.cdf_name in plain and found.dtype.kind == there.dtype.kind:
                        np.testing.assert_array_equal(found, there[: found.size])
    for warning in caught:
        assert issubclass(warning.category, PncVolWarning), warning
    findings = pnc_vol.check(path)
    assert all(finding.severity == "warning" for finding in findings)
    assert len(findings) >= bool(caught)
    if findings:
        return True
    # nothing is wrong with what is said: it is what the library itself would write of what is shown
    tree = from_header(header)
    before = said(tree)
    again = from_header(replace(to_header(tree).header, numrecs=header.numrecs))
    assert again.findings == []
    assert said(again) == before
    return False


def run(folder: Path, section: str, chosen: Iterator[Any] | list[Any]) -> tuple[int, int]:
    """Cases, and those of them that something was found in."""
    raw, truth, plain = original(folder, section)
    count = found = 0
    path = folder / "lie.nc"
    for case in chosen:
        content = false_markers.content(case, raw)
        if content is None or any(one.severity == "error" for one in check(content, file_size=len(content))):
            # too long for the room, or no NetCDF file: a name twice, records that overlap
            continue
        path.write_bytes(content)
        started = time.process_time()
        try:
            header = decode(content, file_size=len(content)).header
            found += assert_harmless(path, header, plain if _alike(header, truth) else {})
        except Exception as error:
            raise AssertionError(f"{section}: {case.what}: {type(error).__name__}: {error}") from error
        assert time.process_time() - started < SLOWEST, case.what
        count += 1
    return count, found


def _alike(one: Header, other: Header) -> bool:
    """Whether data lie in the same places: records move when one of their variables goes."""
    return [(var.dims, var.type) for var in one.vars] == [(var.dims, var.type) for var in other.vars]


@pytest.mark.parametrize("section", list(everything.SECTIONS))
def test_the_catalogue(folder: Path, section: str) -> None:
    _, header, _ = original(folder, section)
    cases = list(false_markers.cases(header))
    share = 1 if ALL else 37 if len(cases) < 3000 else 89
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, found = run(folder, section, cases[7 % share :: share])
    assert count > 30
    assert found > count / 3
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY


@pytest.mark.parametrize("section", list(everything.SECTIONS))
def test_the_truth_has_no_findings(folder: Path, section: str) -> None:
    raw, header, plain = original(folder, section)
    path = folder / "truth.nc"
    path.write_bytes(raw)
    assert not assert_harmless(path, header, plain)
    assert pnc_vol.check(path) == []


TEXTS = st.text(max_size=4) | st.sampled_from(false_markers.NAMES)
KEYS = TEXTS | st.sampled_from(sorted(VARIABLE_KEYS))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_lies_that_nobody_thought_of(folder: Path, data: st.DataObject) -> None:
    section = data.draw(st.sampled_from(list(everything.SECTIONS)))
    _, header, _ = original(folder, section)
    for _ in range(data.draw(st.integers(1, 3))):
        name, content = data.draw(st.sampled_from(list(false_markers.markers(header))))
        ways = list(false_markers.places(content))
        if ways:
            content = false_markers.changed(content, data.draw(st.sampled_from(ways)), data.draw(ANYTHING))
            header = false_markers.with_marker(header, name, content)
    run(folder, section, [false_markers.Case("random", header)])


# -------------------------------------------------------------------------------------- what check says of it


def marked(content: Any, *attrs: Attr) -> Header:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Header(5, 0, (Dim("n", 3),), (), (Var("v", (0,), (*attrs, Attr(MARKER, 2, len(text), text)), 5),))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"unknown": 1}, "variable 'v': key 'unknown'"),
        (b'{"labels":["a"],"labels":["b"]}', "variable 'v': key 'labels' of its marker occurs twice"),
        ({"attrs": {"gone": {"shape": [1]}}}, "variable 'v': attrs of its marker names 'gone'"),
        ({"attrs": {"a": {"odd": 1}}}, "variable 'v': key 'odd' of its marker for attribute 'a'"),
        ({"attrs": {"a": {"shape": [9]}}}, "variable 'v': attribute 'a'"),
        ({"attrs": {"a": {"name": 3}}}, "variable 'v': attribute 'a' cannot have the name 3"),
        ({"attrs": {"a": 3}}, "variable 'v': the marker of attribute 'a'"),
        ({"len": 2}, "variable 'v': len 2"),
        ({"scale": 3}, "variable 'v': scale 3"),
        # half a surrogate pair is a text in JSON, and in no file
        ({"scale": "\ud800"}, "variable 'v': scale '\\ud800'"),
        ({"labels": ["\ud800"]}, "variable 'v': labels ['\\ud800']"),
        ({"own": 3}, "variable 'v': own 3"),
        ({"path": "/a" * 1001}, "variable 'v': cannot be at '/a/a"),
        ({"type": "composite", "dtype": {"enum": [], "base": "<i4"}}, "variable 'v': type 'composite'"),
        (b"{", "variable 'v': pnc_vol_hdf5 is not a JSON object"),
    ],
)
def test_a_finding_names_the_object_and_the_key(content: Any, words: str) -> None:
    (finding,) = examine(marked(content, Attr("a", 4, 2, bytes(8))))
    assert words in finding.message
    assert (finding.severity, finding.field, finding.offset) == ("warning", MARKER, -1)


def test_an_attribute_that_lies_is_a_warning_when_it_is_read(tmp_path: Path) -> None:
    """Its marker is not looked at before, so that opening a file decodes no attribute."""
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.attrs["a"] = np.arange(4).reshape(2, 2)
    raw = (tmp_path / "x.nc").read_bytes()
    assert raw.count(b"[2,2]") == 1
    (tmp_path / "x.nc").write_bytes(raw.replace(b"[2,2]", b"[2,3]"))
    with pnc_vol.File(tmp_path / "x.nc") as f:
        with pytest.warns(PncVolWarning, match=r"x\.nc: group '/': attribute 'a': its marker does not fit"):
            assert f.attrs["a"].tolist() == [0, 1, 2, 3]
        # said once
        assert f.attrs["a"].tolist() == [0, 1, 2, 3]


def test_rows_that_are_not_there_are_found(tmp_path: Path) -> None:
    for lie, words in (([2, -1], "rows take more"), ([2, 9], "rows take more"), ([1 << 62, 1 << 62], "rows take more")):
        with pnc_vol.File(tmp_path / "x.nc", "w") as f:
            f.create_dataset("d", (2,), pnc_vol.vlen_dtype("i4"))[0] = [1, 2, 3]
            f.create_dataset("nested", (1,), [("a", pnc_vol.vlen_dtype("i4"))])
        with pnc_vol.File(tmp_path / "x.nc", "r+") as f:
            node = f.id.node.tree.root.children["d"]
            f.id.handle.session.write(node.parts["count"], everything_of(2), np.array(lie))
        (finding,) = pnc_vol.check(tmp_path / "x.nc")
        assert words in finding.message
        assert pnc_vol.check(tmp_path / "x.nc", values=False) == []
        with pnc_vol.File(tmp_path / "x.nc") as f, pytest.raises(pnc_vol.FormatError, match=words):
            f["d"][1]


def everything_of(n: int) -> Any:
    from pnc_vol.extents.selection import whole

    return whole((n,))


def test_references_to_nothing_are_found(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["t"], f["gone"] = np.arange(5), 1
        f.create_dataset("refs", (2,), pnc_vol.ref_dtype)[:] = [f["gone"].ref, f["t"].ref]
        f.create_dataset("regions", (3,), pnc_vol.regionref_dtype)[:2] = [
            f["t"].regionref[1:4],
            f["t"].regionref[[0, 4]],
        ]
    assert pnc_vol.check(tmp_path / "x.nc") == []
    with pnc_vol.File(tmp_path / "x.nc", "r+") as f:
        del f["gone"], f["t"]
        f["t"] = np.arange(4)
    messages = [finding.message for finding in pnc_vol.check(tmp_path / "x.nc")]
    assert len(messages) == 2
    assert messages[0] == "dataset '/refs': a reference leads to '/gone', which is not there"
    assert messages[1].startswith("dataset '/regions': a reference does not fit '/t'")


@pytest.mark.parametrize(
    "region",
    [
        '{"select":[[0,9,1]]}', '{"select":[[-1,2,1]]}', '{"select":[[0,2,0]]}', '{"points":[99]}',
        '{"points":[1e400]}', '{"points":[100000000000000000000000]}', '{"select":[[0,1e9,1]]}', '{"select":3}',
        '{"select":[{}]}', "3", "", "[" * 3000,
    ],
)  # fmt: skip
def test_a_region_that_does_not_fit_is_one_clear_error(region: str) -> None:
    with pnc_vol.File("x", "w", driver="memory") as f:
        f["t"] = np.arange(4)
        with pytest.raises(ValueError, match="does not fit"):
            f["t"][pnc_vol.RegionReference("/t", None, region)]


def test_types_that_are_mostly_padding_are_packed(tmp_path: Path) -> None:
    """A file cannot make a reader take memory for padding; what is written is therefore packed beyond a measure."""
    sparse = np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [0], "itemsize": 1 << 20})
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.create_dataset("d", (2,), sparse)["a"] = [1, 2]
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["d"].dtype == np.dtype([("a", "i4")])
        assert f["d"]["a"].tolist() == [1, 2]
    assert pnc_vol.check(tmp_path / "x.nc") == []


def test_parts_of_another_type_are_not_taken(tmp_path: Path) -> None:
    """numpy calls two types of objects equal, whatever the objects are."""
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.create_dataset("d", (1,), [("a", pnc_vol.vlen_dtype("i4"))])[0] = (np.array([1, 2], "i4"),)
    raw = (tmp_path / "x.nc").read_bytes()
    lie = rb"{\"vlen\":\"<i4\"},0]".replace(b"\\", b"")
    assert raw.count(lie) == 1
    (tmp_path / "x.nc").write_bytes(raw.replace(lie, lie.replace(b"<i4", b"<f8")))
    with pytest.warns(PncVolWarning, match="its parts do not fit its type"):
        f = pnc_vol.File(tmp_path / "x.nc")
    with f:
        assert f["d"].dtype == np.dtype("i1")
        assert is_ragged(f["d_a"].dtype)
        assert f["d_a"][0].tolist() == [1, 2]


def test_a_long_chain_of_parts_takes_linear_time() -> None:
    def var(i: int) -> Var:
        text = json.dumps(
            {"type": "composite", "part": "/x", "shape": [], "dtype": {"fields": [["a", "<i4", 0]], "size": 4}}
            | {"parts": {"a": f"v{i + 1}"}}
        ).encode()
        return Var(f"v{i}", (), (Attr(MARKER, 2, len(text), text),), 1)

    started = time.process_time()
    tree = from_header(Header(5, 0, (), (), tuple(map(var, range(5000)))))
    assert time.process_time() - started < SLOWEST
    assert len(tree.root.children) == 5000


def test_names_that_are_no_utf8_are_found_again(tmp_path: Path) -> None:
    """Of other programs' files; we and h5py give no such names."""
    text = json.dumps({"path": "/g\udcff/d"}).encode()
    marker = Attr(MARKER, 2, len(text), text)
    header = Header(5, 0, (), (Attr("\udcfe", 4, 1, bytes(4)),), (Var("v", (), (marker,), 4, 400),))
    (tmp_path / "x.nc").write_bytes(encode(header, check=False).ljust(400, b"\0") + b"\0\0\0\7")
    with pytest.warns(pnc_vol.FormatWarning, match="legal name"):
        f = pnc_vol.File(tmp_path / "x.nc", "r+")
    with f:
        (name,), (attr,) = f, f.attrs
        assert f[name]["d"][()] == f["/g\udcff/d"][()] == 7
        assert name in f
        assert attr in f.attrs
        assert f.attrs[attr] == 0
        for give in (lambda: f.create_group("h\udcff"), lambda: f.attrs.create("h\udcff", 1)):
            with pytest.raises(UnicodeEncodeError):
                give()


def test_the_keys_are_those_of_the_specification() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/file-format.md").read_text()

    def keys(heading: str) -> set[str]:
        rows = text.partition(heading)[2].partition("\n\n")[2].partition("\n\n")[0].splitlines()[2:]
        return {name.strip(" `") for row in rows for name in row.split("|")[1].split(",")}

    assert keys("Keys of a variable's marker") == VARIABLE_KEYS
    assert keys("Keys of the file's marker") == FILE_KEYS
    assert keys("The marker of an attribute, under `attrs`") | {"dtype"} == ATTRIBUTE_KEYS
