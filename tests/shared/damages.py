"""A good set of two subfiles, in either blob layout, and damages of it: for tests of what reads sets.

Every field that describes blobs is changed in several ways. What cannot be found is not here: a change that makes
another valid set, such as a run that moves to elements of no blob.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from file_format import (
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    INT64,
    SHORT,
    TYPES,
    Attr,
    Dim,
    Header,
    Var,
    data_end,
    encode,
    inner_bytes,
    is_record,
    place,
    record_size,
)

import pnc_vol
from pnc_vol.blob.hdf5.subfile import NATIVE, Order, encode_header
from pnc_vol.blob.header import physical_header
from pnc_vol.blob.maps import MAP_VARIABLES, SubfileMap, content
from pnc_vol.errors import FormatError, PncVolError, PncVolWarning
from pnc_vol.extents.model import Runs

RECORDS, Y, X = 3, 4, 6
CANONICAL = Header(
    5,
    RECORDS,
    (Dim("t", 0), Dim("y", Y), Dim("x", X)),
    (Attr("title", CHAR, 6, b"damage"),),
    (
        Var("a", (1, 2), (Attr("units", CHAR, 1, b"m"),), DOUBLE),
        Var("r", (0, 1, 2), (), INT),
        Var("b", (2,), (), SHORT),
        Var("s", (), (), INT),
    ),
)
ASSIGNED = (1, 1, 2, 0)


def runs(*pairs: tuple[int, int]) -> Runs:
    return Runs(*np.array(pairs, np.int64).reshape(-1, 2).T)


# Element 23 of the first map, and element 5 of the second, are in no blob.
MAPS = (
    (
        SubfileMap((Y, X), (1, 2), (runs((0, 3), (6, 3)), runs((3, 3), (9, 3)))),
        SubfileMap((X,), (2,), (runs((0, 1)), runs((1, 1)))),
    ),
    (
        SubfileMap((Y, X), (1, 2), (runs((12, 3), (18, 3)), runs((15, 3), (21, 2)))),
        SubfileMap((X,), (2,), (runs((2, 2)), runs((4, 1)))),
    ),
)
VALUES = {
    "a": np.arange(1.0, 25.0),
    "r": np.arange(1, 73).reshape(3, 24),
    "b": np.arange(1, 7),
    "s": np.array([77]),
}
WANT = {
    "a": np.array([*range(1, 24), 0.0]).reshape(Y, X),
    "r": np.where(np.arange(72).reshape(3, 24) % 24 < 23, np.arange(1, 73).reshape(3, 24), 0).reshape(3, Y, X),
    "b": np.array([1, 2, 3, 4, 5, 0]),
    "s": np.array(77),
}


@dataclass
class Subfile:
    """One subfile: its header, not placed, and the bytes of its variables, by records."""

    number: int
    header: Header
    data: list[list[bytes]]

    def encoded(self) -> bytes:
        """The file of the layout "blob"."""
        placed = place(self.header)
        made = bytearray(encode(placed, check=False).ljust(data_end(placed), b"\0"))
        for var, records in zip(placed.vars, self.data, strict=True):
            for i, one in enumerate(records):
                at = var.begin + i * record_size(placed)
                made[at : at + len(one)] = one
        return bytes(made[: max(data_end(placed), 0)])

    def blobs(self, order: Order = NATIVE) -> tuple[bytes, bytes]:
        """The content of ``/header_blob`` and ``/data_blob``, whose blobs are where those of the good set are."""
        made = b""
        known = dict(zip((var.name for var in CANONICAL.vars), ASSIGNED, strict=True))
        for blob in (0, 1):
            for var, rows in zip(self.header.vars, self.data, strict=True):
                size = TYPES[var.type].size
                k, _, part = var.name.removeprefix("D").partition(".")
                if part in MAP_VARIABLES:
                    one = MAPS[self.number][int(k) - 1]
                    first, n = blob, 1
                    if part in MAP_VARIABLES[3:]:
                        first, n = blob * one.max_nreqs, int(one.nreqs[blob])
                    pieces = [rows[0][first * size : (first + n) * size]]
                elif known.get(var.name):
                    one = MAPS[self.number][known[var.name] - 1]
                    first, n = int(one.starts[blob]), int(one.counts[blob])
                    pieces = [row[first * size : (first + n) * size] for row in rows]
                else:
                    pieces = rows if blob == 0 else []
                made += b"".join(_in_order(piece, size, order) for piece in pieces)
        return encode_header(self.header, order), made

    def container(self, order: Order = NATIVE) -> bytes:
        """The file of the layout "hdf5blob", made by h5py alone."""
        return hdf5_file(*self.blobs(order))

    def var(self, name: str) -> int:
        return [var.name for var in self.header.vars].index(name)


def _in_order(piece: bytes, size: int, order: Order) -> bytes:
    whole = piece[: len(piece) // size * size]
    return np.frombuffer(whole, f">u{size}").astype(f"{'<' if order == 'little' else '>'}u{size}").tobytes()


def hdf5_file(header: bytes, data: bytes) -> bytes:
    """An HDF5 file with the two datasets."""
    made = io.BytesIO()
    with h5py.File(made, "w", libver="latest") as f:
        for name, raw in (("header_blob", header), ("data_blob", data)):
            f.create_dataset(name, data=np.frombuffer(raw, np.uint8))
    return made.getvalue()


def good() -> list[Subfile]:
    made = []
    for number, maps in enumerate(MAPS):
        header = physical_header(CANONICAL, maps, ASSIGNED, nblobs=2, nprocs=4, subfiles=2)
        data = [[raw.tobytes()] for raw in content(maps)]
        for var, k in zip(CANONICAL.vars, ASSIGNED, strict=True):
            code = {DOUBLE: ">f8", INT: ">i4", SHORT: ">i2"}[var.type]
            rows = VALUES[var.name].astype(code).reshape(RECORDS if is_record(CANONICAL, var) else 1, -1)
            if k:
                at = np.concatenate(
                    [np.arange(s, s + n) for one in maps[k - 1].blobs for s, n in zip(*one, strict=True)]
                )
                rows = rows[:, at]
            data.append([row.tobytes() for row in rows])
        made.append(Subfile(number, header, data))
    return made


def write(path: Path, subfiles: list[Subfile], layout: str = "blob") -> None:
    for one in subfiles:
        content = one.encoded() if layout == "blob" else one.container()
        Path(f"{path}.{one.number:04d}").write_bytes(content)


# ----------------------------------------------------------------------------------------------- damages

Change = Callable[[list[Subfile]], None]
"""What a damage does to a good set; then it is written."""


def of_attribute(number: int, variable: str, name: str, new: Attr | None) -> Change:
    """Another attribute of the file (`variable` is "") or of a variable, or none."""

    def change(subfiles: list[Subfile]) -> None:
        one = subfiles[number]
        at = one.var(variable) if variable else -1
        attrs = one.header.vars[at].attrs if variable else one.header.attrs
        made = tuple(x for x in ((new if attr.name == name else attr) for attr in attrs) if x is not None)
        assert made != attrs
        if variable:
            variables = list(one.header.vars)
            variables[at] = variables[at]._replace(attrs=made)
            one.header = one.header.replaced(vars=tuple(variables))
        else:
            one.header = one.header.replaced(attrs=made)

    return change


def ints(name: str, *values: int) -> Attr:
    return Attr(name, INT, len(values), np.array(values, ">i4").tobytes())


def attributes() -> Iterator[tuple[str, Change]]:
    for number in (0, 1):
        for name, good_value in (("num_subfiles", 2), ("num_decompositions", 2), ("global_nprocs", 4)):
            for value in (-1, 0, good_value - 1, good_value + 1, 2**31 - 1):
                yield f"{number}: {name} = {value}", of_attribute(number, "", name, ints(name, value))
            for what, new in (
                ("missing", None),
                ("two values", ints(name, good_value, good_value)),
                ("a text", Attr(name, CHAR, 1, b"2")),
                ("a float", Attr(name, FLOAT, 1, np.array([good_value], ">f4").tobytes())),
            ):
                yield f"{number}: {name} is {what}", of_attribute(number, "", name, new)
        for variable, name, values in (
            ("D1.nreqs", "global_dimids", ((), (1,), (2, 1), (1, 2, 2), (0, 1), (-1, 2), (1, 3), (1, 99))),
            ("D2.nreqs", "global_dimids", ((1,), (0,), (7,))),
            ("a", "global_dimids", ((), (1,), (2, 1), (0, 1, 2), (1, 4), (-2, 2))),
            ("r", "global_dimids", ((1, 2), (0, 2, 1), (0, 0, 1, 2), (0,), (0, 1, 3))),
            ("a", "decomposition_ID", ((0,), (2,), (3,), (-1,), (1, 1), ())),
            ("b", "decomposition_ID", ((0,), (1,), (3,), (2**31 - 1,))),
        ):
            for value in values:
                yield f"{number}: {variable}:{name} = {value}", of_attribute(number, variable, name, ints(name, *value))
            yield f"{number}: {variable}:{name} is missing", of_attribute(number, variable, name, None)
            wrong = Attr(name, DOUBLE, 2, np.array([1.0, 2.0], ">f8").tobytes())
            yield f"{number}: {variable}:{name} is of doubles", of_attribute(number, variable, name, wrong)


def of_number(number: int, variable: str, index: int, value: int) -> Change:
    """Another number in a map variable."""

    def change(subfiles: list[Subfile]) -> None:
        one = subfiles[number]
        at = one.var(variable)
        code = {INT: ">i4", INT64: ">i8"}[one.header.vars[at].type]
        values = np.frombuffer(one.data[at][0], code).copy()
        assert values[index] != value
        values[index] = value
        one.data[at][0] = values.tobytes()

    return change


def numbers() -> Iterator[tuple[str, Change]]:
    for number, maps in enumerate(MAPS):
        for k, one in enumerate(maps, 1):
            for blob in (0, 1):
                start, length = one.blobs[blob]
                for name, right, wrong in (
                    ("nreqs", start.size, (-1, start.size - 1, one.max_nreqs + 1, 2**31 - 1)),
                    ("blob_start", one.starts[blob], (-1, one.starts[blob] + 1, 2**40)),
                    ("blob_count", one.counts[blob], (-1, one.counts[blob] + 1, one.counts[blob] - 1, 2**60)),
                ):
                    for value in {int(v) for v in wrong} - {int(right)}:
                        damage = of_number(number, f"D{k}.{name}", blob, value)
                        yield f"{number}: D{k}.{name}[{blob}] = {value}", damage
                for i in range(start.size):
                    at = blob * one.max_nreqs + i
                    # an element of another blob, before the first, behind the last, far away
                    taken = 0 if int(start[i]) >= 3 else 3 if k == 1 else 4
                    for value in (taken, -1, int(np.prod(one.dims)), 2**31 - 1):
                        damage = of_number(number, f"D{k}.offsets", at, value)
                        yield f"{number}: D{k}.offsets[{blob}, {i}] = {value}", damage
                    for value in (-1, 0, int(length[i]) + 1, 2**31 - 1):
                        damage = of_number(number, f"D{k}.lengths", at, value)
                        yield f"{number}: D{k}.lengths[{blob}, {i}] = {value}", damage


def of_header(number: int, change: Callable[[Header], Header]) -> Change:
    """Another header, with data of the lengths that it says."""

    def damage(subfiles: list[Subfile]) -> None:
        one = subfiles[number]
        header = change(one.header)
        before = {var.name: data for var, data in zip(one.header.vars, one.data, strict=True)}
        renamed = dict(zip((v.name for v in header.vars), before, strict=False))
        data = []
        for var in header.vars:
            nbytes = inner_bytes(header, var)
            rows = header.numrecs if is_record(header, var) else 1
            rest = before.get(var.name) or before[renamed.get(var.name, "s")]
            made = [row[:nbytes].ljust(nbytes, b"\0") for row in rest[:rows]]
            data.append(made + [b""] * (rows - len(made)))
        one.header, one.data = header, data

    return damage


def with_dim(name: str, size: int) -> Callable[[Header], Header]:
    return lambda h: h.replaced(dims=tuple(Dim(d.name, size) if d.name == name else d for d in h.dims))


def with_var(called: str, **what: Any) -> Callable[[Header], Header]:
    return lambda h: h.replaced(vars=tuple(v._replace(**what) if v.name == called else v for v in h.vars))


def headers() -> Iterator[tuple[str, Change]]:
    for number in (0, 1):
        for dim, right in (("nblobs", 2), ("D1.nelems", 12), ("D2.nelems", 2), ("D1.max_nreqs", 2), ("x", X), ("y", Y)):
            for size in (right - 1, right + 1, 1 << 20):
                yield f"{number}: {dim} = {size}", of_header(number, with_dim(dim, size))
            yield f"{number}: {dim} is called otherwise", of_header(number, with_name(dim))
        for name in [f"D{k}.{part}" for k in (1, 2) for part in MAP_VARIABLES] + ["a", "r", "b", "s"]:
            for code in (FLOAT, CHAR) if name.startswith("D") else (INT64, FLOAT):
                yield f"{number}: {name} of type {code}", of_header(number, with_var(name, type=code))
            yield f"{number}: {name} of other dimensions", of_header(number, with_var(name, dims=(2,)))
            yield f"{number}: {name} has another name", of_header(number, with_var(name, name="other"))
            yield f"{number}: {name} is missing", of_header(number, without(name))
        yield (
            f"{number}: more variables",
            of_header(number, lambda h: h.replaced(vars=(*h.vars, Var("new", (), (), INT)))),
        )
        yield f"{number}: fewer records", of_header(number, lambda h: h.replaced(numrecs=RECORDS - 1))
        yield f"{number}: other title", of_attribute(number, "", "title", Attr("title", CHAR, 5, b"other"))


def with_name(name: str) -> Callable[[Header], Header]:
    return lambda h: h.replaced(dims=tuple(Dim("other", d.size) if d.name == name else d for d in h.dims))


def without(name: str) -> Callable[[Header], Header]:
    return lambda h: h.replaced(vars=tuple(v for v in h.vars if v.name != name))


def of_the_content() -> Iterator[tuple[str, Change]]:
    """All damages of what is in the files, whatever their layout."""
    yield from attributes()
    yield from numbers()
    yield from headers()


# ------------------------------------------------------------------------------------------------- what is demanded


def values(path: Path) -> dict[str, Any]:
    with pnc_vol.File(path) as f:
        return {name: f[name][...] for name in f}


def check_damaged(path: Path, name: str) -> None:
    """Reading and replaying a set is one clear error, or finds what was there before the damage `name`."""
    target = path.with_name("one.nc")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = values(path)
    except (PncVolError, OSError) as error:
        check_error(error, path)
        with pytest.raises((PncVolError, OSError)) as again:
            pnc_vol.replay(path, output=target)
        check_error(again.value, path)
        assert not target.exists()
    else:
        told = [str(one.message) for one in caught]
        if any("bytes of data are missing" in text for text in told):
            check_missing(found, told)
            with warnings.catch_warnings(), pytest.raises(FormatError, match="ends before its data"):
                warnings.simplefilter("ignore", PncVolWarning)
                pnc_vol.replay(path, output=target)
            assert not target.exists()
            return
        check_values(found, told, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            pnc_vol.replay(path, output=target)
        check_values(values(target), told, name)
    assert not [file for file in os.listdir(path.parent) if "pnctmp" in file]


def check_values(found: dict[str, Any], told: list[str], name: str) -> None:
    """What is there is right; what subfiles do not agree in is told."""
    want = {key: value[:2] if key == "r" and "fewer records" in name else value for key, value in WANT.items()}
    if any("of them are there whole" in text for text in told):
        want["r"] = want["r"][: len(found["r"])]
    if found.keys() != want.keys() or "fewer records" in name:
        assert any("other definitions" in text or "numbers of records" in text for text in told), told
    if name == "0: s of other dimensions":
        # subfile 0 says what there is, and the other one says that it is otherwise
        assert any("other definitions" in text for text in told), told
        del want["s"]
    for key in want.keys() & found.keys():
        np.testing.assert_array_equal(found[key], want[key])


def check_missing(found: dict[str, Any], told: list[str]) -> None:
    """What a warning names reads as it was or as the fill value, and all else as it was."""
    (text,) = [one for one in told if "bytes of data are missing" in one]
    for key, want in WANT.items():
        got = found[key]
        want = np.asarray(want)[: len(got)] if got.ndim else want
        np.testing.assert_array_equal(got, np.where(got == 0, 0, want) if f" {key} (" in text else want)


def check_error(error: BaseException, path: Path) -> None:
    """One sentence with the file, and for what is in it the field."""
    text = str(error)
    assert str(path) in text or str(path) in str(getattr(error, "filename", "")), repr(error)
    # The folder of the tests may have a long name.
    assert len(text.replace(str(path.parent), "")) < 300, text
    if isinstance(error, FormatError):
        assert error.field, repr(error)
        # a number of a map, in one of its five variables
        assert "[" not in str(error.field) or error.offset, repr(error)
