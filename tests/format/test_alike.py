"""Variables that are alike are read many at a time: what comes of it is what reading them one by one gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_header import read_plainly

import pnc_vol
from pnc_vol.errors import FormatError, NeedBytes
from pnc_vol.format import decode as module

NAMES = ("v%04d", "variable%03d", "a%d", "é%04d", "with space%02d")


def made(version: int, runs: list[tuple[int, int, int]]) -> bytes:
    """A file with runs of (variables, kind of name, what is odd of them)."""
    with pnc_vol.File("alike.nc", "w", driver="memory", format=f"CDF-{version}") as f:
        for count, name, odd in runs:
            for i in range(count):
                called = NAMES[name] % (len(f) + i)
                if called in f:
                    continue
                size, code = 4 if odd == 2 else 3, "i2" if odd == 3 else "f4"
                ds = f.create_dataset(called, (size,), code, dims=(f"d{size}",))
                ds.attrs["units"] = "K"
                if odd != 1:
                    ds.attrs["limit"] = np.float64([0])
        return f.id.get_file_image()  # type: ignore[no-any-return]


def both(data: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    got: list[Any] = []
    for row in (16, 1 << 30):
        with monkeypatch.context() as patch:
            patch.setattr(module, "_ROW", row)
            try:
                got.append(module.decode(data, file_size=size))
            except (FormatError, NeedBytes) as error:
                got.append((type(error), str(error), vars(error)))
    return got


RUNS = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(version=st.sampled_from([1, 2, 5]), runs=RUNS, data=st.data())
def test_as_one_by_one(version: int, runs: list[tuple[int, int, int]], data: Any) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        file = made(version, runs)
        whole, single = both(file, len(file), monkeypatch)
        assert whole == single
        found = [(var.name, list(var.dims), [tuple(attr) for attr in var.attrs], var.type) for var in whole.header.vars]
        assert found == read_plainly(file)[3]
        raw = bytearray(file[: whole.nbytes])
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(4, len(raw)))
        for part, size in ((raw, 1 << 20), (raw[:cut], cut), (raw[:cut], 1 << 20)):
            whole, single = both(bytes(part), size, monkeypatch)
            assert whole == single


def test_many_thousands_and_a_name_that_comes_twice() -> None:
    file = made(5, [(9000, 0, 0)])
    assert len(module.decode(file, file_size=len(file)).header.vars) == 9000
    with pytest.raises(FormatError, match="v0076"):
        module.decode(file.replace(b"v0154", b"v0076"), file_size=len(file))
