"""Options: four ways to set them, in their order, and values that they refuse."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import pytest
from other_process import fresh

import pnc_vol
from pnc_vol.settings.options import Options, keyword_names, parse_hints, resolve
from pnc_vol.testing.faults import HookedSystem


def options(keywords: dict[str, Any] | None = None, *, info: Any = None, env: dict[str, str] | None = None) -> Options:
    return resolve(keywords or {}, info=info, environ=env or {})


def test_defaults() -> None:
    made = options()
    assert made == Options()
    assert (made.version, made.driver, made.buffer_size) == (5, "", 64 << 20)
    assert (made.publish, made.on_overflow, made.durable, made.ordered) == ("create", "raise", False, False)
    assert type(made.system).__name__ == "System"
    with pytest.raises(AttributeError):
        made.version = 1  # type: ignore[misc]


def test_environment_over_info_over_hints_over_keywords() -> None:
    keywords = {"buffer_size": 1, "hints": {"pnc_buffer_size": "2"}}
    info = {"pnc_buffer_size": "3"}
    assert options({"buffer_size": 1}).buffer_size == 1
    assert options(keywords).buffer_size == 2
    assert options(keywords, info=info).buffer_size == 3
    assert options(keywords, info=info, env={"PNETCDF_HINTS": "pnc_buffer_size=4"}).buffer_size == 4
    both = {"PNETCDF_HINTS": "pnc_buffer_size=4", "PNC_VOL_HINTS": "pnc_buffer_size=5"}
    assert options(keywords, info=info, env=both).buffer_size == 5


def test_what_one_way_does_not_say_another_may() -> None:
    made = options(
        {"var_align": 512, "hints": {"nc_record_align_size": "1024"}},
        info={"nc_header_reserve": "2048"},
        env={"PNETCDF_HINTS": "pnc_durable=true;cb_nodes=3"},
    )
    assert (made.var_align, made.record_align, made.header_reserve, made.durable) == (512, 1024, 2048, True)
    assert made.hints == {"cb_nodes": "3"}


def test_hints_that_nobody_knows_are_passed_on_in_the_same_order_of_precedence() -> None:
    made = options(
        {"hints": {"a": "1", "b": "1", "c": "1"}}, info={"b": "2", "c": "2"}, env={"PNETCDF_HINTS": " c = 3 ; d=x=y;"}
    )
    assert made.hints == {"a": "1", "b": "2", "c": "3", "d": "x=y"}


def test_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PNC_VOL_HINTS", "nc_header_reserve=20000")
    with pnc_vol.File(tmp_path / "x.nc", "w", header_reserve=0) as f:
        f["x"] = np.arange(3)
    assert (tmp_path / "x.nc").stat().st_size > 20000


def with_an_mpi_info() -> None:
    from mpi4py import MPI

    info = MPI.Info.Create({"nc_var_align_size": "64", "striping_unit": "8"})
    made = resolve({}, info=info, environ={})
    info.Free()
    assert made.var_align == 64
    assert made.hints == {"striping_unit": "8"}


def test_an_mpi_info() -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    assert not fresh(with_an_mpi_info).stderr


@pytest.mark.parametrize(
    ("text", "version"),
    [("CDF-5", 5), ("cdf5", 5), (5, 5), ("NETCDF3_CLASSIC", 1), ("NETCDF3_64BIT_OFFSET", 2), ("CDF-2", 2), (1, 1)],
)
def test_versions(text: Any, version: int) -> None:
    assert options({"format": text}).version == version


@pytest.mark.parametrize("value", [True, "true", "enable", "YES", "1"])
def test_flags(value: Any) -> None:
    assert options({"strict": value}).strict is True
    assert options({"strict": value, "hints": {"pnc_strict": "disable"}}).strict is False


def test_numbers_may_be_numpy_s_or_text() -> None:
    assert options({"buffer_size": np.int32(7)}).buffer_size == 7
    assert options({"buffer_size": "65536"}).buffer_size == 65536
    assert options({"header_reserve": None}).header_reserve is None
    assert options({"collective_timeout": "2.5"}).collective_timeout == 2.5
    assert options({"collective_timeout": None}).collective_timeout is None
    assert options(env={"PNC_VOL_HINTS": "pnc_collective_timeout=none"}).collective_timeout is None


BAD = [
    ("buffer_size", -1), ("buffer_size", "much"), ("buffer_size", 1.5), ("buffer_size", None), ("var_align", -4),
    ("record_align", "x"), ("header_reserve", -1), ("publish", "later"), ("on_overflow", "wrap"), ("strict", "maybe"),
    ("ordered", 2), ("durable", None), ("collective_timeout", 0), ("collective_timeout", -3),
    ("collective_timeout", "soon"), ("format", "CDF-3"), ("format", "NETCDF4"), ("separator", ""), ("separator", "/"),
    ("separator", 5), ("separator", "\n"), ("transport", "pigeon"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_values_that_are_refused(name: str, value: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=re.escape(f"option {name}={value!r}: ")):
        options({name: value})
    with pytest.raises(ValueError, match=f"option {name}="):
        pnc_vol.File(tmp_path / "x.nc", "w", **{name: value})
    assert not (tmp_path / "x.nc").exists()


def test_a_refused_hint_is_named_as_it_was_given() -> None:
    with pytest.raises(ValueError, match="option nc_var_align_size='wide'"):
        options(env={"PNETCDF_HINTS": "nc_var_align_size=wide"})
    with pytest.raises(ValueError, match="option pnc_publish='never'"):
        options(info={"pnc_publish": "never"})


@pytest.mark.parametrize("text", ["x", "a=1;b", "=3"])
def test_hints_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="'key=value' is needed"):
        parse_hints(text)


def test_an_option_that_does_not_exist() -> None:
    with pytest.raises(TypeError, match=r"no option 'bufer_size'; did you mean 'buffer_size'\?"):
        options({"bufer_size": 3})


def test_every_keyword_is_an_option() -> None:
    names = keyword_names()
    assert {"buffer_size", "format", "hints", "system", "publish", "header_reserve"} <= names
    assert "driver" not in names
    assert "version" not in names
    fields = set(Options._fields)
    assert names - {"format", "hints_file"} <= fields


def test_another_system() -> None:
    mine = HookedSystem()
    assert options({"system": mine}).system is mine
    assert options({"system": None}).system is options().system


def test_the_reserve_of_a_drain_is_a_function_of_the_options() -> None:
    assert options().drain_reserve == 1 << 20
    assert options({"buffer_size": 64 << 10}).drain_reserve == 64 << 10
    assert options({"header_reserve": 5 << 20}).drain_reserve == 5 << 20
