"""A plug-in of pytest: xarray writes with pnc_vol where ``engine="pnc_vol"`` is asked for, or none; and reads so.

It also writes the outcome of each test, with the reason, into a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import xarray
from xarray.backends import api, plugins

from pnc_vol import to_netcdf

ENGINE = "pnc_vol"


def _swapped(original: Any) -> Any:
    def write(
        self: Any, path: Any = None, mode: str = "w", *args: Any, engine: str | None = None, **kwargs: Any
    ) -> Any:
        if engine not in (None, ENGINE):
            return original(self, path, mode, *args, engine=engine, **kwargs)
        for name, value in zip(("format", "group"), args, strict=False):
            kwargs[name] = value
        given = {name: value for name, value in kwargs.items() if value is not None}
        return to_netcdf(self, path, mode=mode, **given)

    return write


def _guess(original: Any) -> Any:
    ours = plugins.list_engines()[ENGINE]

    def guess(spec: Any, *args: Any, **kwargs: Any) -> Any:
        return ENGINE if ours.guess_can_open(spec) else original(spec, *args, **kwargs)

    return guess


def pytest_configure() -> None:
    for kind in (xarray.Dataset, xarray.DataArray, xarray.DataTree):
        kind.to_netcdf = _swapped(kind.to_netcdf)
    plugins.guess_engine = api.plugins.guess_engine = _guess(plugins.guess_engine)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    report = (yield).get_result()
    if report.when == "call" or report.outcome != "passed":
        reason = ""
        if report.outcome != "passed" and call.excinfo is not None:
            reason = " ".join(str(call.excinfo.getrepr(style="value")).split())[:200]
        name = item.nodeid.partition("::")[2]
        with open(os.environ["PNC_VOL_XARRAY_RESULTS"], "a") as file:
            file.write(f"{report.outcome}\t{name}\t{reason}\n")
