"""Variables that are alike are read many at a time: what comes of it is what reading them one by one gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.errors import FormatError, NeedBytes
from pnc_vol.format import decode as module
from pnc_vol.format.decode import decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.placing import place

UNITS = Attr("units", 2, 1, b"K")
LIMIT = Attr("limit", 6, 1, bytes(8))
NAMES = ("v%04d", "variable%03d", "a%d", "é%04d", "with space%02d")


def header(version: int, runs: list[tuple[int, int, int]]) -> Header:
    """Runs of (variables, kind of name, what is odd of them)."""
    found = []
    for count, name, odd in runs:
        attrs = (UNITS,) if odd == 1 else (UNITS, LIMIT)
        dims = (1,) if odd == 2 else (0,)
        code = 5 if odd != 3 else 3
        found += [Var(NAMES[name] % (len(found) + i), dims, attrs, code) for i in range(count)]
    found = list({var.name: var for var in found}.values())
    return place(Header(version, dims=(Dim("x", 3), Dim("y", 4)), vars=tuple(found)))


def both(data: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    got = []
    for row in (16, 1 << 30):
        with monkeypatch.context() as patch:
            patch.setattr(module, "_ROW", row)
            try:
                got.append(decode(data, file_size=size))
            except (FormatError, NeedBytes) as error:
                got.append((type(error), str(error), vars(error)))
    return got


RUNS = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(version=st.sampled_from([1, 2, 5]), runs=RUNS, data=st.data())
def test_as_one_by_one(version, runs, data):
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = header(version, runs)
        raw = bytearray(encode(made, check=False))
        whole, single = both(bytes(raw), 1 << 20, monkeypatch)
        assert whole == single
        assert whole.header.vars == made.vars
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
        whole, single = both(bytes(raw), 1 << 20, monkeypatch)
        assert whole == single
        cut = data.draw(st.integers(4, len(raw)))
        for size in (cut, 1 << 20):
            whole, single = both(bytes(raw[:cut]), size, monkeypatch)
            assert whole == single


def test_many_thousands():
    made = header(5, [(9000, 0, 0)])
    assert decode(encode(made), file_size=1 << 24).header.vars == made.vars


def test_a_name_that_comes_twice_is_found():
    made = header(5, [(100, 0, 0)])
    raw = encode(made).replace(b"v0077", b"v0076")
    with pytest.raises(FormatError, match="v0076"):
        decode(raw, file_size=1 << 20)
