"""How examples are drawn, in all tests; how tests are spread over workers; fixtures of several folders.

The same examples in every run, so that what fails is the change that is being tested. New ones are drawn by
``PNC_VOL_EXAMPLES=random pytest``, which belongs to a search for faults, not to a check of a change.

Modules that tests import lie in ``tests/shared`` and, for programs on ranks, in ``tests/mpi``: both are on the path
(``pythonpath`` in ``pyproject.toml``).
"""

from __future__ import annotations

import gc
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pnc_vol import plugins

if sys.dont_write_bytecode and not sys.pycache_prefix:
    # The tests start hundreds of processes, and each would spend half of its time compiling what it imports. Who wants
    # no bytecode beside the sources gets it in pytest's own folder.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(pathlib.Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# Their assertions say as much as those of a test.
pytest.register_assert_rewrite(*(path.stem for path in (pathlib.Path(__file__).parent / "shared").glob("*.py")))

# The machines that run these tests are busy; how long an example takes says nothing.
settings.register_profile("random", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.register_profile("same", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile(os.environ.get("PNC_VOL_EXAMPLES", "same"))

# What starts ranks, which want the cores for themselves.
RANKS = (
    "tests/mpi/",
    "tests/bench/test_ranks.py",
    "tests/api/test_mpi.py",
    "tests/drivers/test_mpio.py",
    "tests/testing/test_mpi.py",
)


def pytest_collection_finish() -> None:
    """What is there for the whole run is not searched for garbage again: a collection takes a tenth of the time."""
    gc.collect()
    gc.freeze()


# Files that take long, in seconds of a run of two workers on a busy machine: those that begin last must be short, or
# a worker waits for the other.
LONG = {
    "tests/parity/h5py_suite/test_suite.py": 130,
    "tests/test_docs.py": 90,
    "tests/testing/test_crash.py": 40,
    "tests/mpi/test_faults.py": 90,
    "tests/cache/test_faults.py": 70,
    "tests/cache/test_interrupted_rank.py": 40,
    "tests/mpi/test_burst.py": 70,
    "tests/queue/test_budget.py": 70,
    "tests/burst/test_faults.py": 40,
    "tests/burst/test_events.py": 40,
    "tests/engine/test_engine.py": 180,
    "tests/bench/test_serial.py": 60,
    "tests/test_examples.py": 50,
    "tests/testing/test_crash_of_sets.py": 45,
    "tests/bench/test_ranks.py": 45,
    "tests/blob/test_damaged_hdf5_sets.py": 40,
    "tests/cache/test_wrapper.py": 30,
    "tests/cli/test_verbs.py": 30,
    "tests/mpi/test_cache.py": 25,
    "tests/mpi/test_blob_life.py": 40,
    "tests/mpi/test_steps.py": 25,
    "tests/file/test_processes.py": 25,
    "tests/parity/test_model.py": 25,
    "tests/cache/test_caches.py": 25,
    "tests/cache/test_conformance.py": 20,
    "tests/mapping/test_false_markers.py": 20,
    "tests/mpi/test_scale.py": 20,
    "tests/mpi/test_logs.py": 20,
    "tests/mpi/test_cache_killed.py": 20,
    "tests/test_layers.py": 20,
    "tests/cache/test_cache_trouble.py": 15,
    "tests/format/test_malformed.py": 15,
    "tests/queue/test_store_suite.py": 15,
    "tests/mpi/test_semantics.py": 15,
    "tests/blob/test_damaged_sets.py": 15,
    "tests/interop/xarray/test_dask.py": 15,
}


@pytest.fixture(autouse=True, scope="module")
def garbage_collected() -> Iterator[None]:
    """What the tests of a file leave is collected at its end, or never searched again.

    Else it would be closed in the middle of a later test, which counts what is open; and each collection that a test
    asks for would take seconds at the end of a long run.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Of a file that is not there yet."""
    return tmp_path / "x.nc"


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder for logs."""
    made = tmp_path / "logs"
    made.mkdir()
    return made


@pytest.fixture
def nvm(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder for caches."""
    made = tmp_path / "nvm"
    made.mkdir()
    return made


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Any]:
    """The files of the test's folder on the loopback address, by ranges."""
    from pnc_vol.bench.range_server import serving

    with serving(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def names_restored() -> Iterator[None]:
    """What a test registers, such as a driver, is gone afterwards."""
    with plugins.restored():
        yield


@pytest.fixture(autouse=True)
def no_mpi_here() -> Iterator[None]:
    """MPI is started once in a process and ends with it, so programs that use it run in processes of their own."""
    before = "mpi4py.MPI" in sys.modules
    yield
    assert before or "mpi4py.MPI" not in sys.modules, "this test loads MPI into the process of pytest"


# Benchmarks, checks by slow tools, and long forms of what shorter tests hold: marked `long`, and run by .ci/run.
LONG_FORMS = (
    "tests/api/test_file_options.py",
    "tests/bench/",
    "tests/mpi/test_faults.py::test_posix_on_two_ranks",
    "tests/parity/h5py_suite/test_suite.py::test_the_same_",
    "tests/queue/test_budget.py",
)

# Sweeps over very many cases: every n-th of them is tried in an ordinary run (0: none), the others at night.
SWEEPS = {
    "tests/cache/test_cache_trouble.py::test_each_call": 3,
    "tests/cache/test_faults.py": 3,
    "tests/cache/test_interrupted_rank.py": 2,
    "tests/blob/test_damaged_hdf5_sets.py::test_a_damage": 5,
    "tests/blob/test_damaged_sets.py::test_a_damage": 3,
    "tests/file/test_processes.py": 2,
    "tests/interop/xarray/test_stored_encodings.py::test_the_old_file_stays_if_a_task": 4,
    "tests/format/test_malformed.py::test_case": 3,
    "tests/burst/test_faults.py::test_every_call_fails_once": 3,
    "tests/burst/test_types.py::test_every_type": 2,
    "tests/mapping/test_false_markers.py::test_the_catalogue": 5,
    "tests/mpi/test_blob_life.py::test_any_number": 2,
    "tests/mpi/test_blob_life.py::test_each_call": 0,
    "tests/mpi/test_blob_life.py::test_what_is_written": 2,
    "tests/mpi/test_cache_killed.py::test_killed": 2,
    "tests/mpi/test_logs.py::test_a_kill_while_a_log_is_begun_anew": 0,
    "tests/mpi/test_steps.py::test_some_calls": 4,
    "tests/cache/test_left_caches.py": 2,
    "tests/burst/test_unpublished.py::test_a_log_is_found": 4,
    "tests/testing/test_crash.py::test_every_state": 5,
    "tests/testing/test_crash_of_sets.py": 5,
}


# Tests of the core that need a plug-in; those in the folder of a plug-in all do. `.ci/seams` runs the rest without any.
NEEDS = {
    "tests/api/test_opened_twice.py::test_a_set": "blob",
    "tests/api/test_virtual.py::test_other_layouts_have_no_virtual_datasets": "blob",
    "tests/cache/test_interrupted_rank.py": "blob",
    "tests/engine/test_engine.py": "burst",
    "tests/engine/test_mutants.py": "burst",
    "tests/engine/test_reading_threads.py": "burst",
    "tests/file/reads/test_gathered.py::test_blobs": "blob",
    "tests/file/test_cancelling.py::test_a_log_whose_posts_were_all_cancelled": "burst",
    "tests/file/test_cancelling.py::test_what_hdf5_blobs": "blob",
    "tests/file/test_cancelling.py::test_what_is_cancelled_does_not_come_back_from_a_log": "burst",
    "tests/file/test_combinations.py": "blob",
    "tests/file/test_durable.py::test_a_close_after_a_failed_fsync_writes_all_the_same[True": "burst",
    "tests/file/test_durable.py::test_a_close_of_a_set": "blob",
    "tests/file/test_durable.py::test_a_file_over_another": "burst",
    "tests/file/test_durable.py::test_a_log": "burst",
    "tests/file/test_interrupted.py::test_an_act_into_which_ctrl_c_comes[log": "burst",
    "tests/file/test_interrupted.py::test_nothing_is_left_over[25-opened-log": "burst",
    "tests/file/test_interrupted.py::test_nothing_is_left_over[25-relaid-log": "burst",
    "tests/file/test_released.py::test_a_close_that_is_interrupted_while_a_log": "burst",
    "tests/file/test_released.py::test_a_forgotten_file_whose_close_is_interrupted_loses_nothing[cache": "cache",
    "tests/file/test_released.py::test_a_rank_whose_close": "burst",
    "tests/file/test_unpublished.py::test_a_close_that_could_not_rename_is_tried_again[set": "blob",
    "tests/layout/test_suite.py::test_a_layout_that_nobody_registered": "blob",
    "tests/queue/test_requests.py::test_a_request_that_went_to_the_file_when_it_was_posted_is_done[True": "burst",
    "tests/queue/test_requests.py::test_subarrays_that_overlap_and_exceed_the_budget": "blob",
    "tests/queue/test_store_suite.py::TestLog": "burst",
    "tests/drivers/test_own_paths.py::test_other_drivers": "remote",
    "tests/test_system.py::test_what_programs_do_on_a_system_that_has_less": "cache",
}
MISSING = {name for name in ("burst", "cache", "blob", "remote") if importlib.util.find_spec(f"pnc_vol.{name}") is None}
# They cannot even be imported without the plug-ins whose files they damage.
collect_ignore = ["engine/test_mutants.py"] if MISSING else []


# Tests of node-local caches, which there are only where the system can reserve space; see docs/develop/systems.md.
CACHES = (
    "tests/cache/",
    "tests/blob/test_blobs_killed.py::test_the_replay_of_a_killed_set_asks_for_its_leftovers_first[cache",
    "tests/blob/test_set_stack.py::test_a_flush_whose_drain_failed_is_tried_again",
    "tests/blob/test_set_stack.py::test_records_of_which_ranks_post_different_columns",
    "tests/blob/test_subfile_set.py::test_ranks_of_all_subfiles_are_told_what_failed_on_one",
    "tests/file/test_interrupted.py::test_nothing_is_left_over[25-opened-cache",
    "tests/file/test_interrupted.py::test_nothing_is_left_over[25-relaid-cache",
    "tests/file/test_released.py::test_a_forgotten_file_whose_close_is_interrupted_loses_nothing[cache",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: dict[str, int] = dict.fromkeys(SWEEPS, 0)
    for item in () if hasattr(os, "posix_fallocate") else items:
        if item.nodeid.startswith(CACHES):
            item.add_marker(pytest.mark.skip("this system has no posix_fallocate, and so no node-local caches"))
    for item in items if MISSING else ():
        missing = next((plugin for name, plugin in NEEDS.items() if item.nodeid.startswith(name)), "")
        if missing in MISSING:
            item.add_marker(pytest.mark.skip(f"the plug-in {missing} is not here"))
    for item in items:
        if item.get_closest_marker("nightly") is not None:
            continue
        if item.nodeid.startswith(LONG_FORMS):
            item.add_marker("long")
        for name, step in SWEEPS.items():
            if item.nodeid.startswith(name):
                if not step or seen[name] % step:
                    item.add_marker("nightly")
                seen[name] += 1


# What an ordinary run leaves out, and the command for it.
LEFT_OUT = {
    "long": "pytest -m long",
    "large": "pytest -m large",
    "services": "pip install 'pnc-vol[services]' && pytest -m services tests/services",
    "browser": "pip install 'pnc-vol[browser]' && pytest -m browser",
    "nightly": "pytest -m nightly",
}
_left_out: dict[str, int] = {}


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in LEFT_OUT.keys() & {each.name for each in item.iter_markers()}:
            _left_out[mark] = _left_out.get(mark, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = _left_out
    else:
        # of tests that kill ranks
        from segments import remove_segments

        remove_segments()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """All workers have collected the same tests."""
    _left_out.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which kinds of tests were left out, and how they are run."""
    if _left_out:
        terminalreporter.section("left out")
        for mark, command in LEFT_OUT.items():
            if mark in _left_out:
                terminalreporter.line(f"{_left_out[mark]:5} {mark}: {command}")
        terminalreporter.line("docs/develop/tests.md says what they need and how long they take")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than cores when all tests run (`-n auto` is the default), else none: workers take time to start.

    A quarter of the time of two workers on two cores was waiting: for the disk, for ranks, for time limits that are to
    be reached. More than 8 would have programs on ranks wait for each other.
    """
    some = config.args_source is pytest.Config.ArgsSource.ARGS and config.args != ["tests"]
    return 0 if some else min(len(os.sched_getaffinity(0)) + 1, 8)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """With ``pytest -n 2`` the tests of a file stay together, and long files come first.

    Of the files that start ranks one runs at a time, as long as there is another file to be run beside it.
    """
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Spread(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            others = (units for other, units in self.assigned_work.items() if other is not node)
            running = {file for units in others for file, tests in units.items() if not all(tests.values())}
            ranks = any(file.startswith(RANKS) for file in running)

            def order(file: str) -> tuple[bool, int, int]:
                return not (ranks and file.startswith(RANKS)), LONG.get(file, 0), len(self.workqueue[file])

            self.workqueue.move_to_end(max(self.workqueue, key=order), last=False)
            super()._assign_work_unit(node)

    return Spread(config, log)
