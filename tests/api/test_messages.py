"""Messages: where it happened, what was asked, what to do."""

from __future__ import annotations

import datetime
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import ConversionError, NotFoundError, SelectionError

KIND = np.dtype([("east", "i4"), ("north", "f4")])


@pytest.fixture
def f(tmp_path: pathlib.Path) -> Iterator[pnc_vol.File]:
    with pnc_vol.File(tmp_path / "x.nc", "w") as file:
        file.create_dataset("sea/temperature", (4, 6), "f8").attrs["units"] = "K"
        file.create_dataset("sea/record", (2, 3), "i4", maxshape=(None, 3))
        file.create_dataset("sea/wind", (3,), KIND)
        yield file


WRONG = {
    "ds[4]": "Index (4) out of range for (0-3) on axis 0",
    "ds[0, -9]": "Index (-9) out of range for (0-5) on axis 1",
    "ds[:, [0, 9]]": "Fancy indexing out of range for (0-5) on axis 1: 9",
    "ds[0, 0, 0]": "3 indexing arguments for 2 dimensions",
    "ds[:, 1.5]": "can't process 1.5 on axis 1",
    "ds[:, [True, False]]": "boolean index of 2 did not match indexed array of 6 on axis 1",
    "ds[:, [0.5]]": "must have integer dtypes, not float64 (axis 1)",
    "ds[::0]": "Step must not be 0 (got ::0)",
    "ds.iget(9)": "Index (9) out of range for (0-3) on axis 0",
    "ds.iput((0, 9), 1)": "Index (9) out of range for (0-5) on axis 1",
    "ds.iput_many([[9, 0]], [[1, 1]], [1])": "starts[0] = (9, 0)",
    "ds.iget_many([[9, 0]], [[1, 1]])": "starts[0] = (9, 0)",
    "ds.__setitem__(7, 1)": "Index (7) out of range for (0-3) on axis 0",
    "ds.__setitem__((slice(None), 0), np.ones(5))": "Can't broadcast (5,) -> (4,): axis 0 takes 4 values or 1, not 5",
    "ds.__setitem__((0, slice(1, 4)), np.ones(2))": "Can't broadcast (2,) -> (3,): axis 1 takes 3 values or 1, not 2",
    "ds.__setitem__(..., np.ones((9, 4, 6)))": "the selection has 2 axes, the values have 3",
    "ds.iput(0, np.ones(5))": "axis 1 takes 6 values or 1, not 5",
    "ds.astype('f4')[4]": "Index (4) out of range for (0-3) on axis 0",
    "ds.read_direct(np.empty(6), np.s_[9])": "Index (9) out of range for (0-3) on axis 0",
}


@pytest.mark.parametrize("line", WRONG)
def test_an_index_says_which_axis_of_which_dataset(f: pnc_vol.File, line: str) -> None:
    with pytest.raises(SelectionError) as told:
        eval(line, {"ds": f["sea/temperature"], "np": np})
    assert WRONG[line] in str(told.value)
    assert str(told.value).endswith(" (dataset '/sea/temperature', shape (4, 6))")


def test_fields(f: pnc_vol.File) -> None:
    with pytest.raises(ValueError, match=r"Field eats does not.*has east, north; did you mean 'east'\?.*'/sea/wind'"):
        f["sea/wind"]["eats"]
    with pytest.raises(NotImplementedError, match=r"iput: .*'/sea/wind'.*several variables.*ds\[\.\.\.\] = x"):
        f["sea/wind"].iput(0, np.zeros((), KIND))


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("f['sea/temprature']", "temperature"),
        ("f['see/temperature']", "sea"),
        ("f['sea']['Temperature']", "temperature"),
        ("f['sea/temperature'].attrs['unit']", "units"),
        ("f['sea/temperature'].attrs.__delitem__('Units')", "units"),
        ("f.__delitem__('sea/temperatur')", "temperature"),
        ("f.move('sea/recrod', 'r')", "record"),
        ("f.copy('sae', 'copy')", "sea"),
        ("pnc_vol.File('x.nc', bufer_size=1)", "buffer_size"),
        ("pnc_vol.File('x.nc', lockng=True)", "locking"),
        ("f.create_dataset('z', (2,), maxhape=(None,))", "maxshape"),
        ("f.create_dataset('z', (2,), compresion='gzip')", "compression"),
        ("f.require_dataset('z', (2,), 'f4', fillvalu=1)", "fillvalue"),
    ],
)
def test_an_unknown_name_offers_near_ones(f: pnc_vol.File, line: str, near: str) -> None:
    with pytest.raises(Exception, match=f"did you mean '{near}'") as told:
        eval(line, {"f": f, "pnc_vol": pnc_vol})
    assert str(told.value) == str(told.value) == str(pickle.loads(pickle.dumps(told.value)))


def test_names_that_are_not_near_are_not_offered(f: pnc_vol.File) -> None:
    with pytest.raises(NotFoundError) as told:
        f["xyz"]
    assert "mean" not in str(told.value)


def test_near_names_are_looked_for_when_the_text_is_shown(f: pnc_vol.File, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(pnc_vol.errors, "did_you_mean", lambda name, *among: asked.append(name) or "")
    with pytest.raises(KeyError) as told:
        f["se"]
    assert not asked
    assert str(told.value)
    assert asked == ["se"]


def test_modes(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="Invalid mode 'rw'; must be one of r, r\\+, w, w-, x, a"):
        pnc_vol.File(tmp_path / "y.nc", "rw")


def test_resize_speaks_of_maxshape(f: pnc_vol.File) -> None:
    with pytest.raises(TypeError, match=r"'/sea/temperature'.*\(4, 6\) is fixed: create it with maxshape=\(None, 6\)"):
        f["sea/temperature"].resize((5, 6))


@pytest.mark.parametrize(
    ("dtype", "fill"), [("i4", "a"), ("V3", 3), (pnc_vol.string_dtype(), 3)], ids=["number", "opaque", "text"]
)
def test_a_fill_value_that_does_not_convert_is_named(f: pnc_vol.File, dtype: Any, fill: Any) -> None:
    with pytest.raises(TypeError, match=f"fillvalue={fill!r}: "):
        f.create_dataset("z", (2,), dtype, fillvalue=fill)


INSTEAD: list[tuple[Any, str]] = [
    (None, "Empty('f4')"),
    ([1, None], "Empty('f4')"),
    ({"a": 1}, "attrs.update(x)"),
    (datetime.datetime(2020, 1, 1), "isoformat"),
    ([datetime.date(2020, 1, 1)], "days since"),
    (datetime.timedelta(1), "total_seconds"),
    (np.datetime64("2020-01-01"), "days since"),
    (np.array(["2020-01-01"], "M8[D]"), "(x - np.datetime64('2000-01-01')) / np.timedelta64(1, 'D')"),
    (np.timedelta64(1, "D"), "x / np.timedelta64(1, 's')"),
    ({1, 2}, "sorted(x)"),
    (2**70, "beyond 64 bits"),
    (pathlib.Path("x"), "str(x)"),
    (np.array(["a"]), "string_dtype()"),
    ([1, "a"], "not of one type"),
]


@pytest.mark.parametrize(("value", "instead"), INSTEAD, ids=lambda one: str(one)[:20])
def test_what_cannot_be_stored_says_what_to_do(f: pnc_vol.File, value: Any, instead: str) -> None:
    with pytest.raises(ConversionError) as told:
        f["sea"].attrs["made"] = value
    assert "attribute 'made' of '/sea'" in str(told.value)
    assert instead in str(told.value)
    if value is not None and not isinstance(value, (pathlib.Path, list)):
        with pytest.raises((ConversionError, TypeError)) as told:
            f["new"] = value
        assert instead in str(told.value)
    assert "new" not in f


def test_times_that_are_written_say_what_to_do(f: pnc_vol.File) -> None:
    with pytest.raises(ConversionError, match=r"'/sea/temperature'.*days since"):
        f["sea/temperature"][0] = np.array("2020-01-01", "M8[D]")
    with pytest.raises(ConversionError, match="days since"):
        f.create_dataset("time", (3,), "M8[ns]")
    days = (np.array(["2000-01-03"], "M8[D]") - np.datetime64("2000-01-01")) / np.timedelta64(1, "D")
    f["time"] = days
    assert f["time"][0] == 2


def test_dir_lists_public_names_only() -> None:
    # ``from pnc_vol import *`` must not need xarray
    assert set(dir(pnc_vol)) == {*pnc_vol.__all__, "to_netcdf"}
    for name in ("LogError", "AlreadyFlushedError", "SyncError", "RequestPendingError"):
        assert issubclass(getattr(pnc_vol, name), pnc_vol.PncVolError)
        assert name in pnc_vol.__all__


def test_a_file_and_its_attributes_say_what_they_are(f: pnc_vol.File) -> None:
    assert repr(f) == '<NetCDF file "x.nc" (mode r+)>'
    assert repr(f["sea/temperature"].attrs) == '<Attributes of "/sea/temperature" (1 names)>'


def test_bytes_that_are_no_utf8_are_refused_as_a_new_name(f: pnc_vol.File) -> None:
    name = b"\xff"
    for give in (
        lambda: f.create_group(name),
        lambda: f.create_dataset(name, (1,), "f4"),
        lambda: f.attrs.create(name, 1),
        lambda: f.attrs.__setitem__(name, 1),
        lambda: f.__setitem__(name, 1),
    ):
        with pytest.raises(pnc_vol.errors.DefinitionError, match=r"names in NetCDF files are UTF-8, .* another one"):
            give()
    assert name not in f
    assert name not in f.attrs
