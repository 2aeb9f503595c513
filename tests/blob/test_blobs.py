"""Replaying blobs: the file that the canonical layout would have written, from any number of subfiles."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import FaultSystem
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).parents[1] / "mpi/ranks_blob_replay.py"
ranks = pytest.mark.skipif(bool(missing()), reason=missing() or "")


@ranks
@pytest.mark.parametrize(("size", "subfiles"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_a_replay_is_what_the_canonical_layout_writes(tmp_path: Path, size: int, subfiles: int) -> None:
    assert run_mpi(size, PROGRAM, tmp_path, subfiles).stdout == ""
    for name, layout in itertools.product(("fields", "others", "holes"), ("blob", "hdf5blob")):
        once = tmp_path / f"{name}.{layout}.once"
        pnc_vol.replay(tmp_path / f"{name}.{layout}", output=once)
        assert once.read_bytes() == (tmp_path / f"{name}.canonical").read_bytes()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A set in which one element of a map is written to no blob."""
    path = tmp_path / "out.nc"
    with pnc_vol.File(path, "w", layout="blob") as f:
        full = f.create_dataset("a/full", (3, 400), "f8")
        full[:, :] = np.arange(1200.0).reshape(3, 400)
        holes = f.create_dataset("holes", (400,), "i2", fillvalue=5)
        holes[1:399] = np.arange(1, 399)
    return path


def read(path: Path, name: str) -> Any:
    with pnc_vol.File(path) as f:
        return f[name][...]


def test_holes_have_the_fill_value_and_are_counted(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.nc"
    report = pnc_vol.replay(base, output=out)
    assert not report.whole
    open_maps = [(one.dims, one.none, one.open) for one in report.maps if one.none]
    assert open_maps == [([400], 2, ["/holes"])]
    np.testing.assert_array_equal(read(out, "holes"), [5, *range(1, 399), 5])
    assert pnc_vol.replay(base, output=tmp_path / "chosen.nc", variables=["a"]).whole


def test_chosen_variables_alone_are_copied(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.nc"
    report = pnc_vol.replay(f"{base}.0000", output=out, variables=["a/full"], format="CDF-2")
    assert (report.variables, report.nbytes) == (1, 9600)
    with pnc_vol.File(out) as f:
        assert list(f) == ["a"]
        assert f.format == "CDF-2"
        np.testing.assert_array_equal(f["a/full"][...], np.arange(1200.0).reshape(3, 400))
    with pytest.raises(KeyError, match="no dataset or group 'b'"):
        pnc_vol.replay(base, output=tmp_path / "other.nc", variables=["b"])
    with pytest.raises(ValueError, match="CDF-2"), pnc_vol.File(base, "a") as f:
        f.create_dataset("wide", (300,), "i8")[...] = 1
        f.close()
        pnc_vol.replay(base, output=tmp_path / "other.nc", format="CDF-2")
    assert sorted(os.listdir(tmp_path)) == ["one.nc", "out.nc.0000"]


def test_subfiles_are_removed_only_if_asked_and_if_nothing_is_missing(base: Path, tmp_path: Path) -> None:
    assert pnc_vol.replay(base, output=tmp_path / "one.nc", remove=True).removed == 0
    with pytest.raises(ValueError, match="would lose"):
        pnc_vol.replay(base, output=tmp_path / "two.nc", variables=["a"], remove=True)
    with pnc_vol.File(base, "a") as f:
        del f["holes"]
    assert pnc_vol.replay(base, output=tmp_path / "two.nc", remove=True).removed == 1
    assert sorted(os.listdir(tmp_path)) == ["one.nc", "two.nc"]


def test_the_target_is_replaced_only_if_asked_and_is_never_a_subfile(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.nc"
    out.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        pnc_vol.replay(base, output=out)
    assert out.read_bytes() == b"precious"
    with pytest.raises(FileExistsError, match="one of the subfiles"):
        pnc_vol.replay(base, output=f"{base}.0000", overwrite=True)
    pnc_vol.replay(base, output=out, overwrite=True)
    assert read(out, "a/full").sum() == np.arange(1200.0).sum()
    with pytest.raises(OSError, match="no set of subfiles"):
        pnc_vol.replay(out, output=tmp_path / "two.nc")
    with pytest.raises(TypeError, match="takes no logs"):
        pnc_vol.replay(base, "x.meta", output=out)  # type: ignore[call-overload]
    with pnc_vol.File(base, "a"), pytest.raises(OSError, match="has it open already"):
        pnc_vol.replay(base, output=out, overwrite=True)


def test_a_replay_that_fails_leaves_no_file(base: Path, tmp_path: Path) -> None:
    system = FaultSystem(fail_at=1, mode="forever")
    with pytest.raises(OSError, match="No space"):
        pnc_vol.replay(base, output=tmp_path / "one.nc", system=system)
    assert os.listdir(tmp_path) == ["out.nc.0000"]


def test_memory_is_bounded_and_small_buffers_give_the_same(tmp_path: Path) -> None:
    base, values = tmp_path / "out.nc", np.arange(60_000.0).reshape(100, 600)
    own = pnc_vol.Decomposition.from_runs(np.arange(59_999, -1, -3) - 2, np.full(20_000, 2), shape=(100, 600))
    with pnc_vol.File(base, "w", layout="blob") as f:
        for name in ("x", "y"):
            f.create_dataset(name, (100, 600), "f8", fillvalue=-1.0, decomposition=own)
            f[name].iput(own, np.take(values, own_elements(own)))
    outs = [tmp_path / "large.nc", tmp_path / "small.nc"]
    pnc_vol.replay(base, output=outs[0])
    pnc_vol.replay(base, output=outs[1], buffer_size=1 << 16)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    want = np.where(np.arange(60_000) % 3 < 2, np.arange(60_000.0), -1).reshape(100, 600)
    np.testing.assert_array_equal(read(outs[1], "x"), want)
    np.testing.assert_array_equal(read(outs[1], "y"), want)


def own_elements(own: Any) -> Any:
    return np.concatenate([np.arange(s, s + n) for s, n in zip(own.starts.ravel(), own.counts.ravel(), strict=True)])


def test_progress_reaches_the_end(base: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    report = pnc_vol.replay(base, output=tmp_path / "one.nc", progress=lambda *what: told.append(what))
    assert told[-1][:2] == (report.nbytes, report.nbytes)
    assert {name for _, _, name in told} == {"/a/full", "/holes"}


def test_a_set_elsewhere_is_found_by_any_of_its_subfiles(base: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    shutil.copy(f"{base}.0000", tmp_path / "sub" / "copy.nc.0000")
    pnc_vol.replay(tmp_path / "sub" / "copy.nc", output=tmp_path / "one.nc")
    pnc_vol.replay(base, output=tmp_path / "two.nc")
    assert (tmp_path / "one.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()


def test_a_pattern_names_a_set_and_never_two(base: Path, tmp_path: Path) -> None:
    for pattern in (f"{base}.*", f"{base}.????", tmp_path / "out.nc.[0-9]*"):
        assert read(Path(pattern), "a/full").sum() == np.arange(1200.0).sum()
    shutil.copy(f"{base}.0000", tmp_path / "other.nc.0000")
    with pytest.raises(ValueError, match=r"subfiles of 2 sets \('other.nc', 'out.nc'\); name one"):
        pnc_vol.File(tmp_path / "*.nc.*")
    with pytest.raises(FileNotFoundError):
        pnc_vol.File(tmp_path / "none.*")
