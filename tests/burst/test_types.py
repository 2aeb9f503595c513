"""Every type goes through a log: the same file as without one, and all of it back after a kill."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest
from kills import killed_job

import pnc_vol

POINT = np.dtype({"names": ["x", "id"], "formats": ["f8", "i2"], "offsets": [8, 2], "itemsize": 24})
COMPOUND = np.dtype(
    [
        ("a", "<i4"),
        ("text", pnc_vol.string_dtype()),
        ("label", "S5"),
        ("box", ">f4", (2, 3)),
        ("point", POINT),
        ("points", POINT, (2,)),
        ("when", "c16"),
        ("odd/name", "?"),
    ]
)
OPAQUE = pnc_vol.opaque_dtype(np.dtype("<M8[us]"))


def random_values(dtype: np.dtype[Any], n: int, seed: int) -> np.ndarray[Any, Any]:
    """Values of a type, different for each seed."""
    random = np.random.default_rng(seed)
    if dtype.names is not None:
        made = np.zeros(n, dtype)
        for name in dtype.names:
            made[name] = random_values(dtype[name], n, seed + len(name))
        return made
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return random_values(base, n * int(np.prod(shape)), seed).reshape(n, *shape)
    if pnc_vol.check_string_dtype(dtype) is not None:
        return np.array([f"{seed} {i} ä"[: 5 if dtype.kind == "S" else None].encode()[:5] for i in range(n)], object)
    if dtype.kind == "V":
        return np.frombuffer(random.bytes(n * dtype.itemsize), dtype)
    if dtype.kind == "M":
        return random.integers(0, 10**15, n).astype("i8").view(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, n).astype(bool)
    made = random.integers(-100, 100, n).astype(dtype)
    if dtype.char == "g" and np.finfo(dtype).nmant == 63:
        # the last six of its 16 bytes are no part of the number, and are left as the memory had them by newer numpys
        made.view("u1").reshape(n, -1)[:, 10:] = 0
    return made


KINDS: dict[str, Any] = {
    "compound": COMPOUND,
    "array": np.dtype((">i4", (3, 2))),
    "small array": np.dtype(("u1", (3,))),
    "array of compounds": np.dtype((POINT, (2,))),
    "opaque": np.dtype("V7"),
    "date": OPAQUE,
    "long double": np.dtype("g"),
    "complex": np.dtype("c8"),
    "half": np.dtype("f2"),
    "big-endian": np.dtype(">i8"),
    "unsigned": np.dtype("u8"),
    "bytes": np.dtype("S5"),
    "bool": np.dtype("?"),
    "enum": pnc_vol.enum_dtype({"LOW": -100, "HIGH": 99}, "i2"),
    "text": pnc_vol.string_dtype(),
    "fixed text": pnc_vol.string_dtype("utf-8", 5),
}


def same(found: Any, wanted: Any) -> bool:
    if found.dtype.names is not None:
        return all(same(found[name], wanted[name]) for name in found.dtype.names)
    return found.dtype == wanted.dtype and found.tolist() == wanted.tolist()


def options_of(logs: pathlib.Path) -> dict[str, Any]:
    return {"burst_buf": True, "burst_buf_dirname": str(logs)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flushed", [False, True])
def test_every_type_outlives_a_kill(kind: str, flushed: bool, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    dtype = KINDS[kind]

    def work(f: Any) -> None:
        f.create_dataset("g/fixed", (6,), dtype)
        f.create_dataset("grown", (0,), dtype, maxshape=(None,))
        f.create_dataset("moved", (4,), dtype)[:] = random_values(dtype, 4, 5)
        if flushed:
            f.flush()
        f["g/fixed"][:4] = random_values(dtype, 4, 1)
        f["g/fixed"][3:5] = random_values(dtype, 2, 2)
        f["g/fixed"][np.array([0, 5])] = random_values(dtype, 2, 3)
        f["grown"].resize((5,))
        f["grown"][:] = random_values(dtype, 5, 4)
        f["grown"].resize((2,))
        f["grown"].resize((3,))
        f["grown"][2:] = random_values(dtype, 1, 6)
        f.move("moved", "h/elsewhere")
        last = random_values(dtype, 1, 7)
        # a scalar of numpy does not keep those six bytes
        f["h/elsewhere"][1] = last.reshape(()) if dtype.char == "g" else last[0]

    files = []
    for name, options in (("plain", {}), ("log", options_of(logs))):
        files.append(tmp_path / f"{name}.nc")
        with pnc_vol.File(files[-1], "w", **options) as f:
            work(f)
    assert files[0].read_bytes() == files[1].read_bytes()

    killed_job(tmp_path / "killed.nc", work, "w", **options_of(logs))
    assert len(list(logs.glob("*/*.meta"))) == 1
    with (
        pnc_vol.File(tmp_path / "killed.nc", "r+", recover=True, burst_buf_dirname=str(logs)) as again,
        pnc_vol.File(files[0]) as wanted,
    ):
        for path in ("g/fixed", "grown", "h/elsewhere"):
            assert again[path].dtype == wanted[path].dtype
            assert same(again[path][()], wanted[path][()]), path
        assert ("moved" in again) is False
    assert not list(logs.iterdir())


def test_references_outlive_a_kill(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    def work(f: Any) -> None:
        f.create_dataset("x", (4,), "i4")[0] = 5
        f.create_dataset("to", (2,), pnc_vol.ref_dtype)[0] = f["x"].ref
        f.create_dataset("part", (1,), pnc_vol.regionref_dtype)[0] = f["x"].regionref[1:3]

    killed_job(tmp_path / "f.nc", work, "w", **options_of(logs))
    with pnc_vol.File(tmp_path / "f.nc", "r+", recover=True, burst_buf_dirname=str(logs)) as f:
        f["x"][1:] = range(1, 4)
        assert f[f["to"][0]].name == "/x"
        assert not f["to"][1]
        assert f["x"][f["part"][0]].tolist() == [1, 2]


def test_a_compound_that_took_the_place_of_another_one(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    first, second = np.dtype("i4,f8"), np.dtype("f8,S3,i2")
    with pnc_vol.File(tmp_path / "f.nc", "w") as f:
        f["a"] = random_values(first, 3, 1)
        f["b"] = random_values(first, 3, 2)

    def work(f: Any) -> None:
        f["a"][1:] = random_values(first, 2, 3)
        del f["a"]
        f["a"] = random_values(second, 4, 4)
        f.move("b", "c")
        f["c"][0] = random_values(first, 1, 5)[0]

    killed_job(tmp_path / "f.nc", work, "r+", **options_of(logs))
    with pnc_vol.File(tmp_path / "f.nc", "r+", recover=True, burst_buf_dirname=str(logs)) as f:
        assert sorted(f) == ["a", "c"]
        assert same(f["a"][()], random_values(second, 4, 4))
        assert same(f["c"][:1], random_values(first, 1, 5))
        assert same(f["c"][1:], random_values(first, 3, 2)[1:])


def test_rows_of_varying_length_wait_in_memory_and_say_so(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [[1, 2], [], [3]]

    def work(f: Any) -> None:
        made = f.create_dataset("rows", (3,), pnc_vol.vlen_dtype("i4"))
        f["before"] = np.arange(3)
        for i, row in enumerate(rows):
            made[i] = np.array(row, "i4")
        f["before"][1] = 7

    files = []
    for name, options in (("plain", {}), ("log", options_of(logs))):
        monkeypatch.setattr(pnc_vol.warn, "_warned", set())
        files.append(tmp_path / f"{name}.nc")
        with pnc_vol.File(files[-1], "w", **options) as f:
            if options:
                with pytest.warns(pnc_vol.PncVolWarning, match="they are not written to the log") as caught:
                    work(f)
                assert caught[0].filename == __file__
            else:
                work(f)
            f.flush()
            f["before"][2] = 8
    assert files[0].read_bytes() == files[1].read_bytes()
    with pnc_vol.File(files[1]) as f:
        assert [row.tolist() for row in f["rows"][()]] == rows

    monkeypatch.setattr(pnc_vol.warn, "_warned", {"arrays of varying length are kept in memory until the flush"})
    killed_job(tmp_path / "killed.nc", work, "w", **options_of(logs))
    with pnc_vol.File(tmp_path / "killed.nc", "r+", recover=True, burst_buf_dirname=str(logs)) as f:
        assert f["before"][()].tolist() == [0, 7, 2]
        assert "rows" not in f


@pytest.mark.filterwarnings("ignore:arrays of varying length:pnc_vol.PncVolWarning")
def test_rows_that_were_posted_are_there_in_another_shape(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """They have new variables since the flush with which a resize begins."""
    with pnc_vol.File(tmp_path / "a.nc", "w", ordered=True, **options_of(logs)) as f:
        rows = f.create_dataset("rows", (1, 2), pnc_vol.vlen_dtype("i4"), maxshape=(1, 4))
        f.create_dataset("x", (5,), "i4").iput(slice(None), np.arange(5)).wait()
        rows[0, 1] = [1, 2]
        rows.resize(3, axis=1)
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert sorted(f) == ["rows", "x"]
        assert [row.tolist() for row in f["rows"][0]] == [[], [1, 2], []]


def test_the_log_of_a_compound_is_of_another_file(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    for name, dtype in (("f.nc", "i4,f4"), ("other.nc", "i4,f8")):
        with pnc_vol.File(tmp_path / name, "w") as f:
            f["a"] = random_values(np.dtype(dtype), 3, 1)

    def work(f: Any) -> None:
        f["a"]["f1", 1] = 3

    killed_job(tmp_path / "f.nc", work, "r+", **options_of(logs))
    os.replace(tmp_path / "other.nc", tmp_path / "f.nc")
    (folder,) = logs.iterdir()
    with pytest.raises(pnc_vol.errors.LogRefusedError, match="another file"):
        pnc_vol.replay(tmp_path / "f.nc", [folder])
