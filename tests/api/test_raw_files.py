"""Data in raw files (``external=``), h5py being the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from same_results import same

import pnc_vol
from pnc_vol.errors import NotYetError, SourceError

U = pnc_vol.UNLIMITED


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    """h5py cuts it at the NUL."""
    with pnc_vol.File(tmp_path / "f.nc", "w") as f:
        with pytest.raises(ValueError, match=r"no file can have the name 'a\\x00b'"):
            f.create_dataset("x", (4,), "i4", external=[("a\0b", 0, 16)])
        assert list(f) == []


def programs(module: Any, folder: Path) -> list[Any]:
    """What a program that uses raw files sees."""
    told: list[Any] = []
    raw = [(str(folder / "one"), 4, 24), (str(folder / "two"), 0, 16), (str(folder / "three"), 2, U)]
    with module.File(folder / "f", "w") as f:
        x = f.create_dataset("x", (6, 4), "i4", external=raw)
        told += [[(Path(name).name, at, n) for name, at, n in x.external], x.chunks, x.shape, raised(lambda: x[()])]
        x[...] = np.arange(24).reshape(6, 4)
        told += [(folder / name).read_bytes() for name in ("one", "two", "three")]
        x[1::2, 2] = [100, 101, 102]
        x[:, 3] = -1
        told += [x[()], x[::2, 1:3], x[[0, 4]], x[x[()] > 5], x[2, 2]]
        y = f.create_dataset(
            "y", data=np.array([(1, 2.5), (3, 4.5)], [("n", ">i2"), ("x", "f8")]), external=[raw_of(folder, "y")]
        )
        told += [y[()], y["n"], (folder / "y").read_bytes()]
        told += [
            f.create_dataset("s", data=np.array([b"ab", b"c"]), external=str(folder / "s"))[()],
            (folder / "s").read_bytes(),
        ]
        grows = f.create_dataset("g", (2, 3), "f4", maxshape=(None, 3), external=folder / "g")
        told += [grows.maxshape, grows.chunks, raised(lambda: grows.resize((4, 3)))]
        f.copy("x", "copy")
    with module.File(folder / "f") as f:
        told += [f["x"][()], f["copy"][5], f["x"].is_virtual, len(f["copy"].external), f["y"].dtype.names]
    (folder / "three").write_bytes(b"\1\0\2")
    with module.File(folder / "f") as f:
        told.append(f["x"][4:])
    return told


def raw_of(folder: Path, name: str) -> Any:
    return (str(folder / name), 0, U)


def raised(act: Callable[[], Any]) -> Any:
    with pytest.raises((OSError, TypeError, ValueError)) as caught:
        act()
    return next(kind.__name__ for kind in type(caught.value).__mro__ if kind.__module__ == "builtins")


def test_it_is_as_in_h5py(tmp_path: Path) -> None:
    told = []
    for module in (h5py, pnc_vol):
        (tmp_path / module.__name__).mkdir()
        told.append(programs(module, tmp_path / module.__name__))
    same(*told)


WRONG: list[Any] = [
    ["r"], ["r", 0], [("r",)], [("r", 0)], [("r", 0, 99, 0)], [("r", 0, "9")], [("r", -1, 99)], [("r", 0, 8)],
    [("r", 0, U), ("q", 0, 8)], [("", 0, 99)],
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_refused_as_in_h5py(wrong: Any, tmp_path: Path) -> None:
    told = []
    for module in (h5py, pnc_vol):
        with module.File(tmp_path / module.__name__, "w") as f:
            told.append(raised(lambda f=f: f.create_dataset("x", (4,), "i4", external=wrong)))
            assert list(f) == []
    assert told[0] == told[1]


def test_a_raw_file_elsewhere_is_touched_only_if_the_user_says_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    outside = tmp_path / "raw"
    with pnc_vol.File(tmp_path / "in/f", "w") as f:
        x = f.create_dataset("x", (4,), "i4", external=str(outside))
        with pytest.raises(SourceError, match="external_links='any'"):
            x[...] = 1
        assert not outside.exists()
    with pnc_vol.File(tmp_path / "in/f", "r+", external_links="any") as f:
        f["x"][...] = 1
        assert outside.stat().st_size == 16
    with pnc_vol.File(tmp_path / "in/f") as f, pytest.raises(SourceError, match="leads out"):
        f["x"][()]


def test_names_are_beside_the_file_or_in_the_folder_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pnc_vol.File(tmp_path / "f", "w") as f:
        f.create_dataset("x", data=np.arange(3, dtype="i2"), external="x.raw")
        f.create_dataset("y", data=np.arange(3, dtype="i2"), external="y.raw", efile_prefix="${ORIGIN}/data")
        assert f["y"].id.get_access_plist().get_efile_prefix().decode() == str(tmp_path / "data")
    assert (tmp_path / "x.raw").stat().st_size == (tmp_path / "data/y.raw").stat().st_size == 6
    with pnc_vol.File(tmp_path / "f") as f:
        with pytest.raises(SourceError, match="no raw file"):
            f["y"][()]
        found = f.require_dataset("y", (3,), "i2", efile_prefix=str(tmp_path / "data"))
        assert found[()].tolist() == [0, 1, 2]


def test_a_write_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "f", "w") as f:
        x = f.create_dataset("x", data=np.arange(4, dtype="u1"), external="x.raw")
        with pytest.raises(OverflowError):
            x[1:] = 300
        assert (tmp_path / "x.raw").read_bytes() == b"\0\1\2\3"
        with pytest.raises(TypeError):
            f.create_dataset("o", (2,), pnc_vol.string_dtype(), external="o.raw")
        with pytest.raises(NotYetError, match="raw files"):
            f.create_dataset("d", (2,), "i4", external="d.raw", dims=("x",))
    with pnc_vol.File(tmp_path / "f") as f, pytest.raises(OSError, match="write"):
        f["x"][0] = 1


def test_few_calls_read_many_runs(tmp_path: Path) -> None:
    values = np.arange(2000 * 50).reshape(2000, 50)
    with pnc_vol.File(tmp_path / "f", "w") as f:
        x = f.create_dataset("x", data=values, external="x.raw")
        np.testing.assert_array_equal(x[::7, 3:45:3], values[::7, 3:45:3])
        order = np.random.default_rng(1).permutation(2000)[:300]
        np.testing.assert_array_equal(x[order.tolist()], values[order])
        np.testing.assert_array_equal(x[values % 11 == 0], values[values % 11 == 0])
