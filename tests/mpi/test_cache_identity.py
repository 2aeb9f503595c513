"""The identity programs over a node-local cache that the environment alone asks for: the bytes of one process without.

Over ``cache | posix`` and ``cache | mpio``, by several transports, coherent and not, with 1 and 4 threads, on ranks
dealt to 1, 2 and 4 nodes; and the burst buffer's log over the cache.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import ranks_burst as logged
import ranks_identity as programs
from crash import fast_folder

from pnc_vol.system import temporary_directory
from pnc_vol.testing.mpi import missing, run_mpi

HERE = Path(__file__).parent
IMMEDIATE, AT_CLOSE = "", "e10_cache_flush_flag=flush_onclose;"
CHOSEN = [
    (1, 1, "enable", 4, AT_CLOSE, ["mpio", "posix"]),
    (2, 2, "coherent", 4, IMMEDIATE, ["mpio", "posix"]),
    (4, 2, "coherent", 1, IMMEDIATE, ["mpio-aggregate", "posix"]),
    (4, 4, "enable", 4, AT_CLOSE, ["mpio", "posix-ordered"]),
    (3, 2, "enable", 1, AT_CLOSE, ["mpio-aggregate", "posix-aggregate"]),
]
"""Ranks, nodes, mode, threads, when data are carried, variants."""
PLACES = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (4, 4)]
EVERY = [
    (
        *place,
        mode,
        threads,
        when,
        ["mpio", "mpio-collective", "mpio-aggregate", "mpio-ordered", "posix", "posix-aggregate"],
    )
    for place, mode, threads, when in itertools.product(PLACES, ["enable", "coherent"], [1, 4], [IMMEDIATE, AT_CLOSE])
]
SEVERAL = ["private", "shared-100000", "shared-ordered", "nodes"]
LOGGED = [
    pytest.param(2, 2, "coherent", 4, ["private-1"]),
    *(
        pytest.param(
            *place, mode, 4, ["private", "shared-100000", "shared-ordered", "nodes"], marks=pytest.mark.nightly
        )
        for place, mode in itertools.product(PLACES, ["enable", "coherent"])
    ),
]

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process writes without a cache."""
    folder = tmp_path_factory.mktemp("serial")
    for program in dict.fromkeys([*programs.PROGRAMS, *logged.PROGRAMS]):
        programs.run(program, str(folder), "", None)
    return folder


def compare(
    serial: Path, folder: Path, expected: list[tuple[str, str]], *program: object, ranks: int, env: dict[str, str]
) -> None:
    """Run a job over a cache; `expected` are the variants and the programs that must have the bytes of one process."""
    hints = env.pop("hints")
    with temporary_directory(fast_folder()) as nvm:
        env["PNC_VOL_HINTS"] = f"{hints}e10_cache_path={nvm}"
        run_mpi(ranks, *program, timeout=600, env=env)
        assert not list(Path(nvm).iterdir()), "no cache was left behind"
    wrong = [one for one in expected if (folder / one[0] / one[1]).read_bytes() != (serial / one[1]).read_bytes()]
    assert not wrong


def same_bytes(
    serial: Path, folder: Path, ranks: int, nodes: int, mode: str, threads: int, when: str, variants: list[str]
) -> None:
    # Where one rank writes before another's data, nothing is written before the flush.
    packed = {"drains", "uneven"}
    expected = [
        (variant, f"{program.__name__}.nc")
        for variant, program in itertools.product(variants, programs.PROGRAMS)
        if not (program.__name__ in packed and "ordered" in variant)
    ]
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes), "hints": f"e10_cache={mode};e10_cache_threads={threads};{when}"}
    compare(serial, folder, expected, HERE / "ranks_identity.py", folder, *variants, ranks=ranks, env=env)


@pytest.mark.parametrize(("ranks", "nodes", "mode", "threads", "when", "variants"), CHOSEN)
def test_the_same_bytes_as_without(
    serial: Path, tmp_path: Path, ranks: int, nodes: int, mode: str, threads: int, when: str, variants: list[str]
) -> None:
    same_bytes(serial, tmp_path, ranks, nodes, mode, threads, when, variants)


@pytest.mark.nightly
@pytest.mark.parametrize(("ranks", "nodes", "mode", "threads", "when", "variants"), EVERY)
def test_the_same_bytes_in_every_mode(
    serial: Path, tmp_path: Path, ranks: int, nodes: int, mode: str, threads: int, when: str, variants: list[str]
) -> None:
    same_bytes(serial, tmp_path, ranks, nodes, mode, threads, when, variants)


@pytest.mark.parametrize(("ranks", "nodes", "mode", "threads", "variants"), LOGGED)
def test_a_log_over_the_cache(
    serial: Path, tmp_path: Path, ranks: int, nodes: int, mode: str, threads: int, variants: list[str]
) -> None:
    expected = [(one, f"{program.__name__}.nc") for one, program in itertools.product(variants, logged.PROGRAMS)]
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes), "hints": f"e10_cache={mode};e10_cache_threads={threads};"}
    compare(serial, tmp_path, expected, HERE / "ranks_burst.py", "same", tmp_path, *variants, ranks=ranks, env=env)
