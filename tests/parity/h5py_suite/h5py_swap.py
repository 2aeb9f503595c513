"""A pytest plugin: run h5py's own tests, as they are installed, with pnc_vol in the place of h5py.

Knows: `pnc_vol.patch`, where the tests of the installed h5py are. Does not know: what should pass (`test_suite.py`).

Rules
-----
1. The installed h5py is never imported: `find_spec` says where its tests are, and they are loaded as ``h5py.tests``.
2. ``h5py.X`` is pnc_vol's, or what `lookalikes` has under that name. Of everything else a name may be imported and
   looked at, so
   that all files can be collected; using it ends the test as an expected failure which no ``assertRaises`` can catch.
3. What is replaced in the tests themselves: the look at the private ``Dataset._fast_reader``, which checks h5py's own
   shortcut and not what users see.

4. Tests for several ranks are skipped on one; on several nothing else is taken (``-k``), every rank writes its own
   results, and the name of their file is the same on all.

5. Where the environment asks for a node-local cache, what went through caches is counted.

``PNC_VOL_SUITE_RESULTS`` names a file that gets a line for each test: outcome, id, reason; its name ends with the rank.
``PNC_VOL_SUITE_MODE``: ``reopen``, ``check`` or ``mpi``, see `reopening` and `checking`.
``PNC_VOL_SUITE_ONLY`` names a file with the ids of the only tests to be run.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pnc_vol

HERE = Path(__file__).parent
LOW_LEVEL = (
    "h5", "h5a", "h5ac", "h5d", "h5ds", "h5f", "h5fd", "h5g", "h5i", "h5l", "h5o", "h5p", "h5pl", "h5r", "h5s", "h5t",
    "h5z", "_hl", "_objects", "_errors", "_conv", "_selector", "_proxy", "utils", "defs", "_npystrings",
)  # fmt: skip
MARKERS = ("network", "slow", "thread_unsafe", "parallel_threads_limit", "mpi_skip", "mpi")

results: dict[str, tuple[str, str]] = {}


def tests_folder() -> Path:
    """Where the tests of the installed h5py are.

    Raises
    ------
    ModuleNotFoundError
        h5py is not installed.
    """
    spec = importlib.machinery.PathFinder.find_spec("h5py")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("h5py is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "tests"


class Unprovided:
    """A name of h5py that pnc_vol does not have; using it ends the test."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _stop(self, *args: Any, **kwds: Any) -> Any:
        pytest.xfail(f"low-level: {self._name}")

    __call__ = __instancecheck__ = __subclasscheck__ = __iter__ = __len__ = __getitem__ = __enter__ = _stop
    __or__ = __ror__ = __and__ = __int__ = __index__ = _stop

    def __setattr__(self, name: str, value: Any) -> None:
        self._stop()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unprovided(f"{self._name}.{name}")


class Module(types.ModuleType):
    """A submodule of h5py: what there is of it, and `Unprovided` for the rest."""

    def __init__(self, name: str, *sources: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        for source in reversed(sources):
            self.__dict__.update({key: value for key, value in vars(source).items() if not key.startswith("__")})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or Unprovided(f"{self.__name__}.{name}".partition(".")[2])


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the submodules of h5py that pnc_vol does not have."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if not name.startswith("h5py.") or name.startswith("h5py.tests"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Module(spec.name, *found_for(spec.name.partition(".")[2]))

    def exec_module(self, module: types.ModuleType) -> None: ...


def found_for(tail: str, *more: Any) -> list[Any]:
    import lookalikes

    made = lookalikes.MODULES.get(tail)
    return [*([] if made is None else [made]), *more]


def install() -> None:
    """Put pnc_vol, the look-alikes and h5py's tests into ``sys.modules``."""
    pnc_vol.patch()
    h5py = sys.modules["h5py"]
    for name in [name for name in sys.modules if name.startswith("h5py.")]:
        tail = name.partition(".")[2]
        if tail not in ("filters", "version"):
            sys.modules[name] = Module(name, *found_for(tail, sys.modules[name]))
    sys.meta_path.insert(0, Finder())
    for name in LOW_LEVEL:
        setattr(h5py, name, importlib.import_module(f"h5py.{name}"))
    # what create_dataset accepts, checks and echoes: without it these tests would not look at the echo
    h5py.filters = Module("h5py.filters", h5py.filters)  # type: ignore[attr-defined]
    h5py.filters.encode = h5py.filters.decode = (  # type: ignore[attr-defined]
        "gzip", "szip", "lzf", "shuffle", "fletcher32", "scaleoffset",
    )  # fmt: skip
    folder = tests_folder()
    spec = importlib.util.spec_from_file_location(
        "h5py.tests", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    tests = importlib.util.module_from_spec(spec)
    sys.modules["h5py.tests"] = h5py.tests = tests  # type: ignore[attr-defined]
    spec.loader.exec_module(tests)


sys.path.insert(0, str(HERE))
install()
MODE = os.environ.get("PNC_VOL_SUITE_MODE", "plain")
RANK = SIZE = 0
if MODE == "mpi":
    from mpi4py import MPI

    RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
if MODE == "reopen":
    import reopening

    reopening.install()
elif MODE in ("check", "mpi"):
    import checking

    checking.install()
CACHED = "e10_cache_path" in os.environ.get("PNC_VOL_HINTS", "")
cached = {"files": 0, "off": 0, "bytes": 0}
if CACHED:
    from pnc_vol.cache.wrapper import CacheDriver

    really_close = CacheDriver.close

    def counted_close(self: CacheDriver) -> None:
        if self._writable and not self.holder.closed:
            cached["files"] += 1
            cached["off"] += bool(self.holder.trouble())
            cached["bytes"] += self.statistics()["cache.write_bytes"]
        really_close(self)

    CacheDriver.close = counted_close  # type: ignore[method-assign]


def pytest_configure(config: pytest.Config) -> None:
    for name in MARKERS:
        config.addinivalue_line("markers", name)


@pytest.fixture
def mpi_file_name(tmp_path: Path) -> Any:
    """A path that is the same on all ranks, in a folder that rank 0 has."""
    from mpi4py import MPI

    yield MPI.COMM_WORLD.bcast(str(tmp_path / "shared.h5"))
    MPI.COMM_WORLD.Barrier()


def name_of(nodeid: str) -> str:
    return nodeid.partition("h5py/tests/")[2] or nodeid


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import h5py.tests.common as common

    if only := os.environ.get("PNC_VOL_SUITE_ONLY"):
        wanted = set(Path(only).read_text().splitlines())
        items[:] = [item for item in items if name_of(item.nodeid) in wanted]
    for item in items:
        if SIZE < 2 and item.get_closest_marker("mpi"):
            item.add_marker(pytest.mark.skip(reason="needs several ranks"))

    original = common.TestCase.assertNumpyBehavior

    def without_fast_reader(self: Any, dset: Any, arr: Any, s: Any, skip_fast_reader: bool = True) -> Any:
        return original(self, dset, arr, s, skip_fast_reader=True)

    common.TestCase.assertNumpyBehavior = without_fast_reader


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Any:
    result = yield
    checking = sys.modules.get("checking")
    if checking is not None and checking.found:
        told = "; ".join(checking.found)
        checking.found.clear()
        raise AssertionError(told)
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    checking = sys.modules.get("checking")
    if checking is not None:
        terminalreporter.write_line("{files} files were checked, {validated} by ncvalidator".format(**checking.counts))
    if MODE == "reopen":
        terminalreporter.write_line("{reopened} reads of {reads} came after an opening".format(**reopening.counts))
    if CACHED:
        terminalreporter.write_line(
            "{files} files had a cache, {off} lost it, {bytes} bytes went to it".format(**cached)
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    name = name_of(report.nodeid)
    outcome, reason = report.outcome, ""
    if hasattr(report, "wasxfail"):
        outcome, reason = "low-level", str(report.wasxfail)
    elif outcome == "skipped" and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
    elif outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        lines = str(crash.message if crash is not None else report.longrepr).strip().splitlines()
        reason = lines[0] if lines else ""
    if results.get(name, ("passed", ""))[0] == "passed":
        results[name] = (str(outcome), " ".join(reason.split())[:200])


def pytest_sessionfinish() -> None:
    target = os.environ.get("PNC_VOL_SUITE_RESULTS")
    if target:
        target += str(RANK)
        lines = (f"{outcome}\t{name}\t{reason}\n" for name, (outcome, reason) in sorted(results.items()))
        Path(target).write_text("".join(lines))
