"""Records and regions are encoded as the file is: what reads back is what was given, or there is an error."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pnc_vol

xr = pytest.importorskip("xarray", reason="xarray is not installed")
cftime = pytest.importorskip("cftime", reason="cftime is not installed")

ENGINES = ("pnc_vol", "netcdf4")
HOUR = np.timedelta64(1, "h")
START = np.datetime64("2020-01-02", "ns")


def read(path: Any, engine: Any = "netcdf4", **kwargs: Any) -> Any:
    with xr.open_dataset(path, engine=engine, **kwargs) as ds:
        return ds.load()


def series(values: Any, time: Any = None, **attrs: Any) -> Any:
    return xr.Dataset({"a": ("time", values, attrs)}, None if time is None else {"time": time})


def written(path: Path, first: Any, **encoding: Any) -> Path:
    path.unlink(missing_ok=True)
    pnc_vol.to_netcdf(first, path, unlimited_dims="time", encoding=encoding)
    return path


def refused(path: Path, more: Any, error: type[Exception], said: str, **kwargs: Any) -> None:
    """An append is refused, and the file has the bytes that it had."""
    before = path.read_bytes()
    with pytest.raises(error, match=said):
        pnc_vol.to_netcdf(more, path, append_dim="time", **kwargs)
    assert path.read_bytes() == before
    assert [one for one in path.parent.iterdir() if one != path] == []


# ------------------------------------------------------------------------------------------------ random pieces

CALENDARS = ("standard", "proleptic_gregorian", "noleap", "360_day", "julian", "all_leap")


@st.composite
def encodings(draw: Any) -> tuple[dict[str, Any], Any]:
    """An encoding, and what draws values that it can hold from a random generator."""
    kind = draw(st.sampled_from(["date", "cftime", "span", "packed", "unsigned", "integer", "float", "text", "bool"]))
    if kind == "date":
        unit, step = draw(st.sampled_from([("days", 24), ("hours", 1), ("minutes", 1), ("seconds", 1)]))
        since = draw(st.sampled_from(["1850-01-01", "2000-02-29 06:00", "1900-1-1 00:00:00", "0001-01-01"]))
        if since == "0001-01-01" and unit == "seconds":
            since = "1970-01-01"
        # the reference is at 6 o'clock: whole days from there
        begin = np.datetime64("2019-03-01T06" if "06" in since else "2019-03-01", "ns")
        dtype = draw(st.sampled_from(["i8", "f8"]))
        calendar = draw(st.sampled_from(CALENDARS[:2]))
        encoding = {"units": f"{unit} since {since}", "calendar": calendar, "dtype": dtype}
        return encoding, lambda rng, n: begin + rng.integers(0, 10_000, n) * step * HOUR
    if kind == "cftime":
        calendar = draw(st.sampled_from(CALENDARS[2:]))
        unit = draw(st.sampled_from(["days", "hours"]))
        encoding = {
            "units": f"{unit} since 1950-01-01",
            "calendar": calendar,
            "dtype": draw(st.sampled_from(["i4", "f8"])),
        }
        return encoding, lambda rng, n: np.array(
            cftime.num2date(rng.integers(0, 30_000, n), f"{unit} since 1950-01-01", calendar), object
        )
    if kind == "span":
        unit, code = draw(st.sampled_from([("days", "D"), ("hours", "h"), ("seconds", "s"), ("nanoseconds", "ns")]))
        encoding = {"units": unit, "dtype": draw(st.sampled_from(["i8", "f8"]))}
        return encoding, lambda rng, n: rng.integers(-5000, 5000, n) * np.timedelta64(1, code).astype("m8[ns]")
    if kind == "packed":
        encoding = {"dtype": "i2", "scale_factor": draw(st.sampled_from([0.01, 0.5])), "add_offset": 273.15,
                    "_FillValue": np.int16(-32768)}  # fmt: skip
        return encoding, lambda rng, n: np.where(rng.random(n) < 0.2, np.nan, rng.uniform(200, 340, n))
    if kind == "unsigned":
        return {"dtype": "u1", "_FillValue": np.uint8(255)}, lambda rng, n: rng.integers(0, 255, n).astype("f4")
    if kind == "integer":
        dtype = draw(st.sampled_from(["i1", "i2", "i4", "i8", "u2", "u4"]))
        limits = np.iinfo(dtype)
        return {"dtype": dtype}, lambda rng, n: rng.integers(limits.min, limits.max, n, dtype, endpoint=True).astype(
            "i8"
        )
    if kind == "float":
        encoding = {"dtype": "f4", "_FillValue": draw(st.sampled_from([np.float32(-999), np.float32(np.nan)]))}
        return encoding, lambda rng, n: np.where(rng.random(n) < 0.2, np.nan, rng.integers(-99, 99, n) / 8)
    if kind == "bool":
        return {"dtype": "bool"}, lambda rng, n: rng.random(n) < 0.5
    return {"dtype": "S12"}, lambda rng, n: np.array(["äb" * int(k) for k in rng.integers(1, 5, n)], object)


@settings(max_examples=20, deadline=None, phases=[Phase.generate])
@given(st.data())
def test_random_pieces_read_back_as_their_concatenation(tmp_path_factory: Any, data: Any) -> None:
    path = tmp_path_factory.mktemp("pieces") / "a.nc"
    chosen = {f"v{at}": data.draw(encodings()) for at in range(data.draw(st.integers(1, 4)))}
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    lazy = data.draw(st.booleans())

    def piece(records: int, width: int = 3) -> Any:
        return xr.Dataset(
            {
                name: (("time", "x"), draw(rng, records * width).reshape(records, width))
                for name, (_, draw) in chosen.items()
            }
        )

    texts = {name for name, (encoding, _) in chosen.items() if encoding["dtype"] == "S12"}
    # the first piece has the widest text, which gives the width
    first = piece(sizes[0])
    for name in texts:
        first[name][0, 0] = "äbäbäbäb"
    encoding = {name: {} if name in texts or one["dtype"] == "bool" else one for name, (one, _) in chosen.items()}
    pnc_vol.to_netcdf(first, path, unlimited_dims="time", encoding=encoding)
    pieces = [first]
    for records in sizes[1:]:
        pieces.append(piece(records))
        more = (
            pieces[-1].chunk({"time": 2})
            if lazy and not any(v.dtype == object for v in pieces[-1].values())
            else pieces[-1]
        )
        pnc_vol.to_netcdf(more.transpose("x", "time") if data.draw(st.booleans()) else more, path, append_dim="time")
    meant = xr.concat(pieces, "time")
    begin = data.draw(st.integers(0, meant.sizes["time"] - 1))
    low = data.draw(st.integers(0, 2))
    part = piece(data.draw(st.integers(1, meant.sizes["time"] - begin)), data.draw(st.integers(1, 3 - low)))
    at = {"time": slice(begin, begin + part.sizes["time"]), "x": slice(low, low + part.sizes["x"])}
    pnc_vol.to_netcdf(part, path, region=at)
    for name in chosen:
        meant[name][at] = part[name]
    for engine in ENGINES:
        found = read(path, engine, decode_timedelta=True)
        assert found.sizes == meant.sizes
        for name, (one, _) in chosen.items():
            mine, theirs = found[name].values, meant[name].values
            if "scale_factor" in one:
                np.testing.assert_allclose(mine, theirs, atol=one["scale_factor"] * 0.501, rtol=0)
            else:
                np.testing.assert_array_equal(mine, theirs.astype(mine.dtype) if mine.dtype.kind in "mM" else theirs)
    assert not pnc_vol.check(path)


# ------------------------------------------------------------------------------------------------- what is refused


def test_times_that_the_units_of_the_file_cannot_hold(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", series([1.0], [START]))
    for hours in (6, 12, 18):
        refused(path, series([2.0], [START + hours * HOUR]), pnc_vol.RangeError, "cannot be stored exactly.*days since")
    pnc_vol.to_netcdf(series([2.0], [START + 24 * HOUR]), path, append_dim="time")
    # as floats of days, or as hours, they fit
    for encoding in ({"dtype": "f8"}, {"units": "hours since 2000-01-01"}):
        written(path, series([1.0], [START]), time=encoding)
        for hours in (6, 12, 18):
            pnc_vol.to_netcdf(series([2.0], [START + hours * HOUR]), path, append_dim="time")
        for engine in ENGINES:
            assert read(path, engine)["time"].values.tolist() == [(START + k * HOUR).item() for k in (0, 6, 12, 18)]


def test_durations_that_the_units_of_the_file_cannot_hold(tmp_path: Path) -> None:
    days = {"units": "days", "dtype": "i8"}
    path = written(tmp_path / "a.nc", series(pd.to_timedelta(["1D"])), a=days)
    refused(path, series(pd.to_timedelta(["36h"])), pnc_vol.RangeError, "cannot be stored exactly.*'days'")
    pnc_vol.to_netcdf(series(pd.to_timedelta(["2D"])), path, append_dim="time")
    assert read(path, decode_timedelta=True)["a"].values.astype("m8[D]").tolist() == [
        pd.Timedelta(days=1), pd.Timedelta(days=2)
    ]  # fmt: skip
    with netCDF4.Dataset(path, "a") as file:
        # newer versions of xarray have written it
        file["a"].setncattr("dtype", "timedelta64[ns]")
    refused(path, series([3]), TypeError, "holds numbers, and in the file durations")


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian"])
def test_another_calendar(tmp_path: Path, calendar: str) -> None:
    theirs = cftime.num2date([1, 2], "days since 2000-01-01", calendar)
    path = written(tmp_path / "a.nc", series([1.0, 2.0], theirs))
    refused(path, series([1.0], [START]), pnc_vol.RangeError, f"convert_calendar.'{calendar}'")
    refused(
        path,
        series([1.0], [cftime.datetime(2001, 1, 1, calendar="all_leap")]),
        pnc_vol.RangeError,
        "calendar 'all_leap'",
    )
    written(path, series([1.0], [START]))
    refused(path, series([1.0], theirs[:1]), pnc_vol.RangeError, "is a date of the calendar")


@pytest.mark.parametrize(
    ("encoding", "value", "said"),
    [
        ({"dtype": "i2"}, 70000.0, "70000.0 is outside of what the file stores: int16"),
        ({"dtype": "i2"}, 70000, "70000 is outside"),
        ({"dtype": "i2"}, 1.5, "1.5 is no whole number"),
        ({"dtype": "i2"}, np.nan, "has no _FillValue"),
        ({"dtype": "u1"}, -1, "-1 is outside"),
        ({"dtype": "i8"}, 2.0**63, "is outside"),
        ({"dtype": "f4"}, 1e39, "is beyond float32"),
        ({"dtype": "f4"}, 2**24 + 1, "16777217 is not exact as float32"),
        ({"dtype": "i2", "_FillValue": -1}, -1, "fill value, and would read as missing"),
        ({"dtype": "f8", "_FillValue": -999.0}, -999.0, "fill value, and would read as missing"),
        ({"dtype": "i2", "scale_factor": 0.1, "_FillValue": -9}, 3276.8, "with its scale_factor and add_offset"),
        ({"dtype": "i2", "scale_factor": 0.1, "_FillValue": -9}, -0.9, "would read as missing"),
        ({"dtype": "i1", "_Unsigned": "true", "_FillValue": -1}, 256, "uint8, from 0 to 255"),
        ({"dtype": "i2"}, np.inf, "is outside|no whole"),
        ({"dtype": "f8"}, 1j, "complex"),
        ({"dtype": "f8"}, "text", "holds texts, and numbers"),
        ({"dtype": "f8"}, START, "holds times, and the file has numbers with no units"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_values_that_do_not_fit(tmp_path: Path, encoding: dict[str, Any], value: Any, said: str, lazy: bool) -> None:
    if lazy:
        pytest.importorskip("dask", reason="dask is not installed")
    whole = encoding["dtype"] != "f8" and "_FillValue" not in encoding
    path = written(tmp_path / "a.nc", series([1, 2] if whole else [1.0, 2.0]), a=encoding)
    more = series([value])
    refused(path, more.chunk({"time": 1}) if lazy else more, (pnc_vol.RangeError, TypeError), said)  # type: ignore[arg-type]


def test_unsigned_and_missing_values_are_stored_as_the_file_says(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", series([1.0, 254.0]), a={"dtype": "i1", "_Unsigned": "true", "_FillValue": -1})
    pnc_vol.to_netcdf(series([200.0, np.nan]), path, append_dim="time")
    for engine in ENGINES:
        np.testing.assert_array_equal(read(path, engine)["a"], [1, 254, 200, np.nan])
    written(path, series([1.0, 2.0]), a={"dtype": "i2", "missing_value": -5})
    pnc_vol.to_netcdf(series([np.nan]), path, append_dim="time")
    assert read(path, mask_and_scale=False)["a"].values.tolist() == [1, 2, -5]


def test_texts_that_are_too_long_for_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", series(["ab", "ä"]))
    refused(path, series(["abc"]), pnc_vol.RangeError, "takes 3 bytes, and the file has 2")
    refused(path, series([1]), TypeError, "holds numbers, and texts in the file")
    refused(path, series(np.array(["a", None], object)), pnc_vol.RangeError, "a text is missing")
    pnc_vol.to_netcdf(series(["ö", ""]), path, append_dim="time")
    for engine in ENGINES:
        assert read(path, engine)["a"].values.tolist() == ["ab", "ä", "ö", ""]
    written(path, series(["a", "b"]))
    pnc_vol.to_netcdf(series(["c"]), path, append_dim="time")
    pnc_vol.to_netcdf(series(["d"]), path, region={"time": slice(1, 2)})
    for engine in ENGINES:
        assert read(path, engine)["a"].values.tolist() == ["a", "d", "c"]
    characters = read(path, concat_characters=False, decode_cf=False)
    pnc_vol.to_netcdf(characters, path, append_dim="time")
    assert read(path)["a"].values.tolist() == ["a", "d", "c"] * 2
    written(path, series(np.array([b"ab"])))
    refused(path, series(["ä"]), pnc_vol.RangeError, "is not ascii")


def test_what_was_not_decoded_is_not_encoded(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", series([1.0], [START]), a={"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1})
    raw = read(path, decode_cf=False)
    raw["time"] = raw["time"] + 1
    raw["time"].attrs = read(path, decode_cf=False)["time"].attrs
    pnc_vol.to_netcdf(raw, path, append_dim="time")
    assert read(path)["a"].values.tolist() == [1.0, 1.0]
    assert read(path)["time"].values.tolist() == [START.item(), (START + 24 * HOUR).item()]
    raw["time"] = raw["time"] + 1
    raw["time"].attrs = {}
    refused(path, raw, TypeError, "holds numbers, and in the file times")
    raw["time"].attrs["units"] = "days since 1900-01-01"
    refused(path, raw, ValueError, "has the attribute units='days since 1900-01-01'")
    written(path, series([1.0], units="K"))
    refused(path, series([1.0], units="degC"), ValueError, "units='degC', and the file has 'K'")


def test_an_encoding_that_contradicts_the_file(tmp_path: Path) -> None:
    same = {"a": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}, "time": {"units": "hours since 2000-01-01"}}
    path = written(tmp_path / "a.nc", series([1.0], [START]), **same)
    pnc_vol.to_netcdf(series([1.0], [START + HOUR]), path, append_dim="time", encoding=same)
    for name, wrong in (
        ("a", {"dtype": "i4"}),
        ("a", {"scale_factor": 0.1}),
        ("time", {"units": "days since 2000-01-01"}),
    ):
        refused(path, series([1.0], [START]), ValueError, f"encoding= has .* for '{name}'", encoding={name: wrong})


def test_a_variable_that_is_written_again_keeps_its_encoding(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", series([1, 2], [START, START + 24 * HOUR]), a={"dtype": "i2"})
    before = path.read_bytes()
    with pytest.raises(pnc_vol.RangeError, match="no whole number"):
        pnc_vol.to_netcdf(series([1.5, 2.0]), path, mode="a")
    with pytest.raises(ValueError, match="length 2 along axis 0"):
        pnc_vol.to_netcdf(series([1.0, 2.0, 3.0]), path, mode="a")
    assert path.read_bytes() == before
    pnc_vol.to_netcdf(series([3.0, 4.0], long_name="new"), path, mode="a")
    assert read(path)["a"].values.tolist() == [3, 4]
    assert read(path)["a"].attrs == {"long_name": "new"}


# ------------------------------------------------------------------------------------------ dimensions and regions


def test_a_further_variable_has_the_unlimited_dimension_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", series([1.0, 2.0], [START, START + 24 * HOUR]))
    more = xr.Dataset({"b": (("time", "x"), np.ones((2, 3)))})
    pnc_vol.to_netcdf(more, path, mode="a")
    with netCDF4.Dataset(path) as file:
        assert file["b"].dimensions == ("time", "x")
        assert list(file.dimensions) == ["time", "x"]
    with pytest.raises(ValueError, match="existing dimension 'time'"):
        pnc_vol.to_netcdf(more.rename(b="c").isel(time=[0]), path, mode="a")
    with pytest.raises(ValueError, match=r"use transpose\('time', ...\)"):
        pnc_vol.to_netcdf(more.rename(b="c").transpose("x", "time"), path, mode="a")


def test_variables_that_the_dataset_or_the_file_lacks(tmp_path: Path) -> None:
    both = series([1.0, 2.0]).assign(b=("time", [1.0, 2.0]), fixed=("x", [5.0]))
    path = written(tmp_path / "a.nc", both)
    refused(path, both[["a"]], ValueError, r"\['b'\].*fill_missing=True")
    refused(path, both.assign(c=both["a"]), ValueError, r"\['c'\].*fill_missing=True")
    pnc_vol.to_netcdf(both[["a"]].assign(c=both["a"]), path, append_dim="time", fill_missing=True)
    for engine in ENGINES:
        found = read(path, engine)
        assert found["a"].values.tolist() == [1, 2, 1, 2]
        assert found["b"].values[:2].tolist() == [1, 2]
        assert found["c"].values[2:].tolist() == [1, 2]
    with pytest.raises(ValueError, match="fill_missing= is for append_dim="):
        pnc_vol.to_netcdf(both, path, fill_missing=True)
    other = both.assign(a=(("time", "y"), np.ones((2, 2))), c=both["a"])
    refused(path, other, ValueError, "has the dimensions")


def test_a_region_that_is_looked_up(tmp_path: Path) -> None:
    times = START + np.arange(6) * 24 * HOUR
    ds = xr.Dataset({"a": (("time", "x"), np.zeros((6, 4)))}, {"time": times, "x": [1.5, 2.5, 3.5, 4.5]})
    path = written(tmp_path / "a.nc", ds)
    part = ds.isel(time=slice(2, 4), x=slice(1, 3)) + 1
    pnc_vol.to_netcdf(part, path, region="auto")
    meant = ds.copy(deep=True)
    meant["a"][2:4, 1:3] = 1
    xr.testing.assert_identical(read(path), meant)
    pnc_vol.to_netcdf(ds.isel(time=[5]) + 2, path, region={"time": "auto", "x": slice(0, 4)}, mode="a")
    meant["a"][5] = 2
    xr.testing.assert_identical(read(path), meant)
    # a dimension without a coordinate begins at 0
    pnc_vol.to_netcdf(ds.isel(time=[0], x=[0, 1]).drop_vars("x") + 3, path, region="auto")
    meant["a"][0, :2] = 3
    for engine in ENGINES:
        xr.testing.assert_identical(read(path, engine), meant)
    late = ds.isel(time=[0]).assign_coords(time=[times[-1] + HOUR])
    for wrong, error, said in (
        (late, KeyError, "not all values of the coordinate 'time'"),
        (ds.isel(time=[0, 2]), ValueError, "not side by side"),
        (ds.isel(time=[1, 0]), ValueError, "not side by side"),
        (part.assign(b=part["a"]), ValueError, "has no 'b'"),
    ):
        with pytest.raises(error, match=said):
            pnc_vol.to_netcdf(wrong, path, region="auto")
    with pytest.raises(ValueError, match="needs a file that exists"):
        pnc_vol.to_netcdf(part, path, region="auto", mode="w")
    with pytest.raises(ValueError, match="also in region"):
        pnc_vol.to_netcdf(part, path, region="auto", append_dim="time")
    for wrong in ("all", {"time": 3}):
        with pytest.raises(TypeError, match="region"):
            pnc_vol.to_netcdf(part, path, region=wrong)  # type: ignore[arg-type]
    xr.testing.assert_identical(read(path), meant)


# --------------------------------------------------------------------------------------------- the old file stays


class Odd:
    """Something that no file can hold."""


def test_the_old_file_stays_if_a_dataset_cannot_be_written(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", series([1.0, 2.0]))
    before = path.read_bytes()
    odd = xr.Dataset({"a": ("time", np.array([Odd(), Odd()], object))})
    for wrong, kwargs in (
        (series([1.0]), {"unlimited_dims": "nope"}),
        (odd, {}),
        (series([1.0]), {"encoding": {"b": {}}}),
    ):
        with pytest.raises((ValueError, TypeError, KeyError)):
            pnc_vol.to_netcdf(wrong, path, **kwargs)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def failing(*_: Any) -> Any:
    raise RuntimeError("this task fails")


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
@pytest.mark.parametrize("buffer_size", [64, 1 << 20])
def test_the_old_file_stays_if_a_task_of_dask_fails(tmp_path: Path, scheduler: str, buffer_size: int) -> None:
    dask = pytest.importorskip("dask", reason="dask is not installed")
    da = pytest.importorskip("dask.array")
    path = written(tmp_path / "a.nc", series(np.arange(8.0)))
    before = path.read_bytes()
    blocks = da.concatenate([da.ones(8, chunks=1), da.ones(1).map_blocks(failing, dtype=float, meta=np.empty(0))])
    for kwargs in ({"unlimited_dims": "time"}, {"append_dim": "time"}):
        with dask.config.set(scheduler=scheduler), pytest.raises(RuntimeError, match="this task fails"):
            pnc_vol.to_netcdf(series(blocks), path, buffer_size=buffer_size, **kwargs)  # type: ignore[arg-type]
        xr.testing.assert_identical(read(path), series(np.arange(8.0)))
        assert list(tmp_path.iterdir()) == [path]
        if "append_dim" not in kwargs:
            assert path.read_bytes() == before
    pnc_vol.to_netcdf(series(np.arange(2.0)), path, append_dim="time")
    assert read(path)["a"].values.tolist() == [*range(8), 0, 1]
    assert not pnc_vol.check(path)


def test_what_is_written_later_takes_the_name_when_it_is_whole(tmp_path: Path) -> None:
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    path = written(tmp_path / "a.nc", series(np.arange(3.0)))
    path.chmod(0o640)
    new = series(da.arange(6.0, chunks=2))
    rest = pnc_vol.to_netcdf(new, path, unlimited_dims="time", compute=False)
    assert read(path).sizes["time"] == 3
    rest = pickle.loads(pickle.dumps(rest))
    rest.compute()
    xr.testing.assert_identical(read(path), new.compute())
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o640
    rest.compute()
    xr.testing.assert_identical(read(path), new.compute())
    # another file has the name since: blocks do not go into it
    pnc_vol.to_netcdf(series([7.0]), path)
    with pytest.raises(OSError, match="removed or replaced"):
        rest.compute()
    assert read(path)["a"].values.tolist() == [7]
    with pytest.raises(FileExistsError):
        pnc_vol.to_netcdf(new, path, mode="x", compute=False)
    # what replaces nothing can be looked at before; nothing is left of what cannot be encoded
    with pytest.raises((TypeError, ValueError)):
        pnc_vol.to_netcdf(new.assign(b=("time", np.array([Odd()] * 6, object))), tmp_path / "b.nc", compute=False)
    assert list(tmp_path.iterdir()) == [path]
    rest = pnc_vol.to_netcdf(new, tmp_path / "b.nc", unlimited_dims="time", compute=False)
    assert read(tmp_path / "b.nc").sizes["time"] == 0
    rest.compute()
    xr.testing.assert_identical(read(tmp_path / "b.nc"), new.compute())
