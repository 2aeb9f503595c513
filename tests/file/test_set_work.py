"""What a flush of a set of subfiles does: headers that are made, bytes and calls that are written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

COLUMNS, VARIABLES = 60, 20
RUNS = pnc_vol.Decomposition.from_runs(np.arange(0, COLUMNS, 3), np.full(COLUMNS // 3, 2), (COLUMNS,))
OWNED = 2 * COLUMNS // 3
MAKERS = {
    "physical_header": "layout/blob/header.py",
    "to_header": "mapping/flatten.py",
    "variables_of": "file/set_headers.py",
    "content": "layout/blob/maps.py",
    "places": "layout/blob/layout.py",
    "encode": "format/encode.py",
    "frame": "format/encode.py",
}


class Counts(dict[str, int]):
    """How often the functions that make headers were called inside."""

    def __enter__(self) -> Counts:
        self.update(dict.fromkeys(MAKERS, 0))

        def count(frame: Any, event: str, arg: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.endswith(MAKERS.get(code.co_name, "nowhere")):
                self[code.co_name] += 1

        sys.setprofile(count)
        return self

    def __exit__(self, *args: object) -> None:
        sys.setprofile(None)


def file(path: Path, system: TraceSystem, **options: Any) -> pnc_vol.File:
    f = pnc_vol.File(path, "w", layout="blob", system=system, **options)
    f.attrs["title"] = "of the set"
    for i in range(VARIABLES):
        x = f.create_dataset(f"v{i}", (0, COLUMNS), "f8", maxshape=(None, COLUMNS), decomposition=RUNS)
        x.attrs["units"] = "K"
    return f


def post(f: pnc_vol.File, record: int) -> None:
    for i in range(VARIABLES):
        x = f[f"v{i}"]
        x.resize(record + 1, axis=0)
        x.iput((record, RUNS), np.full(OWNED, float(i)))


def written(system: TraceSystem) -> list[tuple[int, int]]:
    """Offset and bytes of each write."""
    return [(call.offset, call.nbytes) for call in system.log if call.name in ("pwrite", "pwritev")]


def test_a_flush_that_adds_records_writes_its_data_and_eight_bytes(tmp_path: Path) -> None:
    system = TraceSystem()
    with file(tmp_path / "set.nc", system) as f:
        post(f, 0)
        f.flush()
        for record in (1, 2):
            post(f, record)
            del system.log[:]
            with Counts() as counts:
                f.flush()
            writes = written(system)
            # blobs of variables that follow each other are one write, though each has 20 runs
            nbytes = VARIABLES * OWNED * 8
            assert sorted(n for _, n in writes) == [8, nbytes]
            assert (4, 8) in writes
            # records change no definition of a subfile
            assert (counts["physical_header"], counts["variables_of"], counts["encode"]) == (0, 0, 0)
            assert counts["content"] == 0
            # that of the canonical header, when the next one is made from it for the first time
            assert counts["frame"] <= (record == 1)
            assert counts["to_header"] <= 1
            assert counts["places"] <= 2


def test_new_definitions_make_each_header_once(tmp_path: Path) -> None:
    system = TraceSystem()
    with file(tmp_path / "set.nc", system) as f:
        post(f, 0)
        with Counts() as counts:
            f.flush()
        assert (counts["to_header"], counts["physical_header"], counts["variables_of"]) == (1, 1, 1)
        # of the subfile alone
        assert (counts["encode"], counts["frame"]) == (1, 1)
        assert counts["content"] == 1
    with pnc_vol.File(tmp_path / "set.nc") as f:
        found = f["v3"][0]
        assert found[::3].tolist() == found[1::3].tolist() == [3.0] * (COLUMNS // 3)


@pytest.mark.parametrize("again", [False, True])
def test_a_flush_without_anything_new_writes_nothing(tmp_path: Path, again: bool) -> None:
    system = TraceSystem()
    with file(tmp_path / "set.nc", system) as f:
        post(f, 0)
        f.flush()
        del system.log[:]
        if again:
            f["v0"].iput((0, RUNS), np.full(OWNED, 9.0))
        f.flush()
        assert [n for _, n in written(system)] == [OWNED * 8] * again


def test_an_attribute_that_changes_is_in_the_subfile(tmp_path: Path) -> None:
    with file(tmp_path / "set.nc", TraceSystem()) as f:
        post(f, 0)
        f.flush()
        f["v1"].attrs["units"] = "mK"
        f.flush()
        post(f, 1)
        f.flush()
        f["v1"].attrs["units"] = "uK"
    with pnc_vol.File(tmp_path / "set.nc") as f:
        assert [f[f"v{i}"].attrs["units"] for i in range(3)] == ["K", "uK", "K"]
        assert f["v1"].shape == (2, COLUMNS)
