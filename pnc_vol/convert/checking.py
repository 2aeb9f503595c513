"""`check` finds whether a file is valid, whether its markers fit, and which programs can read it.

Knows: files, which keys markers have, and which values they lean on. Does not know: the rules of the
format (`format.check`).

Rules
-----
1. What a file is as NetCDF comes first; a header that is wrong has no markers to look at.
2. Values are looked at where a marker makes others depend on them: lengths of rows, paths of references. They are read
   in blocks.
3. Nothing in a marker is an error: every other program reads the file as before. What `unflatten` ignored is reported,
   and what it has no reason to look at: each attribute is decoded once, unknown keys, keys that are there twice, and
   markers of attributes that are not there.
4. A program that does not read a file is no fault of the file: the finding has the program's name as its field, and
   its text names what to change. The versions that programs read were measured (``tests/interop/test_readers.py``), or
   are those that they document.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pnc_vol.api.file import File
from pnc_vol.api.opening import is_address
from pnc_vol.convert.declared_size import with_bytes
from pnc_vol.disk.naming import check_place
from pnc_vol.drivers.stack import open_stack
from pnc_vol.errors import DefinitionError, PncVolError, PncVolWarning
from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.selection import select
from pnc_vol.file.file_sets import files_of, is_set
from pnc_vol.format import check as rules
from pnc_vol.format.decode import decode
from pnc_vol.format.limits import check_limits, check_type
from pnc_vol.format.model import CHAR, Attr, Finding, Header
from pnc_vol.mapping.composite import is_ragged
from pnc_vol.mapping.dtypes import metadata_of
from pnc_vol.mapping.links import TypeNode, entries
from pnc_vol.mapping.names import MARKER, Findings, shown
from pnc_vol.mapping.tree import DatasetNode, Node, Tree, walk
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at

__all__ = ["READERS", "ReadingProgram", "check", "examine"]

_BLOCK, _REFERENCE = 1 << 20, 128
"""Bytes of references that are looked at together, and of one of them."""


def check(path: str | os.PathLike[str], *, values: bool = True, readers: Sequence[str] = ()) -> list[Finding]:
    """List what is wrong with a file: as NetCDF, and in its markers.

    Parameters
    ----------
    path : path-like, or an address such as ``https://host/file.nc``
    values : bool
        Look at lengths of rows and at references too, which means to read them.
    readers : sequence of str
        Programs that will read the file: ``"gdal"``, ``"scipy"``, and others of `READERS`.

    Returns
    -------
    list of Finding
        ``severity`` is ``"error"`` for what makes readers refuse the file or read wrong values, else ``"warning"``.
        A finding about a marker has the field `mapping.names.MARKER`, no offset (-1), and is a warning: it was ignored.
        What keeps a program of `readers` from reading a valid file is an error whose field is the program's name.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        A program that is not known.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("good.nc", "w") as f:
    ...     f["a/b"] = 1
    >>> pnc_vol.check("good.nc")
    []
    """
    if is_set(REAL, os.fspath(path)):
        return _of_set(os.fspath(path))
    findings, header = _of_file(os.fspath(path))
    if header is None:
        return findings
    for name in readers:
        findings += _problems(header, name)
    findings += examine(header)
    if values:
        findings += map(_warning, _of_values(os.fspath(path)))
    return findings


@contextmanager
def _header_bytes(path: str) -> Iterator[tuple[Callable[[bytearray, int], int], int]]:
    """Yield what reads a file, or what is under an address, into a buffer from an offset on; and how long it is."""
    if is_address(path):
        with closing(open_stack("remote", path, writable=False)) as driver:
            yield lambda buffer, offset: driver.read_one(np.frombuffer(buffer, np.uint8), offset), driver.size()
        return
    check_place(REAL.stat(path), path, exclusive=False)
    fd = REAL.open(path, os.O_RDONLY)
    try:
        yield partial(read_at, REAL, fd), REAL.fstat(fd).st_size
    finally:
        REAL.close(fd)


def _of_file(path: str) -> tuple[list[Finding], Header | None]:
    """Return what is wrong with a file as NetCDF, and its header if it has no error."""
    with _header_bytes(path) as (read, nbytes):
        findings = with_bytes(read, nbytes, rules.check)
        if any(finding.severity == "error" for finding in findings):
            return findings, None
        return findings, with_bytes(read, nbytes, decode).header


def _of_set(path: str) -> list[Finding]:
    """Return what is wrong with a set of subfiles: with each of them, and with all together."""
    findings: list[Finding] = []
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", PncVolWarning)
        try:
            with File(path, "r") as f:
                known: Any = f.id.handle.session.file_set
                tree = f.id.node.tree
                if f.id.handle.session.disk.layout.name == "blob":
                    for name in files_of(REAL, path)[: known.count]:
                        # the markers in a subfile are of the variables of the set, not of its own
                        found, _ = _of_file(name)
                        findings += [one._replace(message=f"{name}: {one.message}") for one in found]
                for k, dims in enumerate(known.files.dims, 1):
                    none = known.files.lookup(k).index.uncovered()
                    left = [uid for uid, of in known.files.assigned.items() if of == k]
                    names = [tree.datasets[uid].path for uid in left if uid not in known.files.supplements]
                    if none and names:
                        shape = " x ".join(map(str, dims))
                        text = f"{none} elements of {names[0]!r} ({shape}) and {len(names) - 1} more are in no blob"
                        findings.append(Finding("warning", -1, f"D{k}", none, text))
        except PncVolError as error:
            offset, field = getattr(error, "offset", None), str(getattr(error, "field", ""))
            findings.append(Finding("error", -1 if offset is None else offset, field or "set", None, str(error)))
    return findings + [Finding("warning", -1, "set", None, str(one.message)) for one in raised]


def _of_values(path: str) -> Findings:
    """Return rows that take more values than there are, and references to what is not there."""

    found = Findings()
    with warnings.catch_warnings():
        # these warnings are findings already
        warnings.simplefilter("ignore", PncVolWarning)
        with File(path, "r") as f:
            tree = f.id.node.tree
            for node in [node for node in tree.datasets.values() if node.parts]:
                try:
                    for sentence in _of_dataset(f, node):
                        found.append(f"dataset {shown(node.path)}: {sentence}")
                except PncVolError as error:
                    found.append(str(error))
    return found


def _of_dataset(f: Any, node: DatasetNode) -> Iterator[str]:
    dtype, shape, session = node.element.dtype, node.shape or (), f.id.handle.session
    if is_ragged(dtype):
        if 0 not in shape:
            # the last row asks for the lengths of all
            session.read(node, select(shape, tuple(n - 1 for n in shape)))
        return
    kind = metadata_of(dtype).get("ref")
    for block in blocks(shape, _REFERENCE, _BLOCK) if kind is not None else ():
        for reference in session.read(node, select(shape, block)).ravel().tolist():
            if reference and reference.path not in f:
                yield f"a reference leads to {shown(reference.path)}, which is not there"
            elif reference and kind is not None and kind.__name__ == "RegionReference":
                try:
                    f[reference.path].regionref.selection(reference)
                except (PncVolError, AttributeError) as error:
                    yield f"a reference does not fit {shown(reference.path)}: {error}"


# -------------------------------------------------------------------------------------- programs that read files


@dataclass(frozen=True, slots=True)
class ReadingProgram:
    """A program that reads NetCDF files.

    title : str, as its users know it.
    versions : tuple of int, of the classic format that it reads; none if it reads HDF5 alone.
    """

    title: str
    versions: tuple[int, ...]


READERS = {
    "netcdf4": ReadingProgram(
        "the netCDF library (netCDF4-python, ncdump, xarray by default, NCO, CDO, ncview)", (1, 2, 5)
    ),
    "pnetcdf": ReadingProgram("PnetCDF (C, and pnetcdf-python)", (1, 2, 5)),
    "scipy": ReadingProgram('scipy (`scipy.io.netcdf_file`, xarray\'s engine "scipy")', (1, 2)),
    "gdal": ReadingProgram("GDAL (gdalinfo, rasterio, QGIS)", (1, 2)),
    "netcdf-java": ReadingProgram("netCDF-Java (Panoply, THREDDS) without the C library", (1, 2)),
    "h5py": ReadingProgram("h5py", ()),
    "h5netcdf": ReadingProgram('h5netcdf (xarray\'s engine "h5netcdf")', ()),
}
"""By the name that ``pnc-vol check --for`` takes. They stand apart from the rules of the format: a file
that a program does not read is valid."""


def _problems(header: Header, name: str) -> list[Finding]:
    """Return what keeps a program from reading a valid file; nothing if it reads it.

    Parameters
    ----------
    header : Header
    name : str, of `READERS`

    Raises
    ------
    ValueError
        No program of that name is known.

    Examples
    --------
    >>> _problems(Header(2, 0, (), (), ()), "scipy")
    []
    >>> print(_problems(Header(5, 0, (), (), ()), "scipy")[0].message.partition(":")[0])
    scipy reads CDF-1 and CDF-2, and this file is CDF-5
    """
    if name not in READERS:
        raise ValueError(f"unknown program {name!r}; known are {', '.join(READERS)}")
    versions = READERS[name].versions
    if header.version in versions:
        return []
    if not versions:
        there = f"{name} reads HDF5 alone, and this file is CDF-{header.version}"
        return [_finding(name, f"{there}: 'pnc-vol convert FILE NEW.h5' makes an HDF5 file of it")]
    asked = f"CDF-{max(versions)}"
    readable = " and ".join(f"CDF-{version}" for version in versions)
    beyond = list(_beyond(header, max(versions)))
    text = f"{name} reads {readable}, and this file is CDF-{header.version}"
    text += f": write it with File(path, 'w', format={asked!r})"
    text += ", and without what follows" if beyond else f", or use 'pnc-vol repack --format {asked} FILE NEW'"
    return [_finding(name, sentence) for sentence in (text, *beyond)]


def _finding(name: str, text: str) -> Finding:
    return Finding("error", -1, name, None, text)


def _beyond(header: Header, version: int) -> Iterator[str]:
    """Yield what a version of the format cannot hold: types, and the first of lengths and sizes."""
    typed = [(f"global attribute {attr.name!r}", attr.type) for attr in header.attrs]
    for var in header.vars:
        typed.append((f"variable {var.name!r}", var.type))
        typed += [(f"attribute {attr.name!r} of variable {var.name!r}", attr.type) for attr in var.attrs]
    found = False
    for what, code in typed:
        try:
            check_type(what, code, version)
        except DefinitionError as error:
            found = True
            yield str(error).replace("use format='CDF-5', or ", "use ")
    if not found:
        try:
            check_limits(header.replaced(version=version))
        except DefinitionError as error:
            yield str(error)


# ------------------------------------------------------------------------------- whether markers fit the header

VARIABLE_KEYS = frozenset((
    "path", "type", "dtype", "parts", "track", "loose", "part", "max", "encoding", "order", "enum", "own", "shape",
    "record", "null", "len", "scale", "labels", "scales", "fill", "attrs", "elsewhere",
))  # fmt: skip
FILE_KEYS = frozenset(("version", "groups", "attrs", "links", "listed", "layout"))
ATTRIBUTE_KEYS = frozenset(
    ("name", "owner", "shape", "null", "type", "encoding", "enum", "order", "lengths", "width", "dtype")
)


def _warning(sentence: str) -> Finding:
    """Return a sentence about markers as a finding; it has no one place in the file."""
    return Finding("warning", -1, MARKER, None, sentence)


def examine(header: Header) -> list[Finding]:
    """List what is wrong with the markers of a header.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim, Var
    >>> marker = Attr(MARKER, 2, 11, b'{"len": 30}')
    >>> [found.message for found in examine(Header(5, 0, (), (), (Var("v", (), (marker,), 5),)))]
    ["variable 'v': len 30 of its marker does not fit; it is ignored"]
    """
    tree = from_header(header)
    for node in _nodes(tree):
        for name in node.attrs:
            # looking at it is what finds out
            node.attrs[name]
    findings = Findings()
    for sentence in (*tree.findings, *_odd_keys(header)):
        findings.append(sentence)
    return [_warning(sentence) for sentence in findings]


def _nodes(tree: Tree) -> Iterator[Node]:
    yield from walk(tree.root)
    yield from (tree.datasets[uid] for uid in sorted(tree.loose))
    yield from (entry for _, _, entry in entries(tree) if isinstance(entry, TypeNode))


def _odd_keys(header: Header) -> Iterator[str]:
    """Yield unknown keys, keys that are there twice, or that name attributes that are not there."""
    owners = [("the file", header.attrs, FILE_KEYS)]
    owners += [(f"variable {shown(var.name)}", var.attrs, VARIABLE_KEYS) for var in header.vars]
    for where, attrs, known in owners:
        for attr in attrs:
            if attr.name == MARKER:
                twice: list[str] = []
                marker = _loaded(attr, twice)
                for key in twice:
                    yield f"{where}: key {shown(key)} of its marker occurs twice; the last one is used"
                yield from _of_marker(where, marker, attrs, known)


def _loaded(attr: Attr, twice: list[str]) -> Mapping[str, Any]:
    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice.extend(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        return made

    try:
        found = json.loads(attr.data.decode("utf-8"), object_pairs_hook=noted) if attr.type == CHAR else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _of_marker(where: str, marker: Mapping[str, Any], attrs: tuple[Attr, ...], known: frozenset[str]) -> Iterator[str]:
    for key in marker.keys() - known:
        yield f"{where}: key {shown(key)} of its marker is unknown; it is ignored"
    about = marker.get("attrs")
    names = {attr.name for attr in attrs}
    for name, value in about.items() if isinstance(about, dict) else ():
        if name not in names:
            yield f"{where}: attrs of its marker names {shown(name)}, which is not one of its attributes; it is ignored"
        for key in value.keys() - ATTRIBUTE_KEYS if isinstance(value, dict) else ():
            yield f"{where}: key {shown(key)} of its marker for attribute {shown(name)} is not known; it is ignored"
