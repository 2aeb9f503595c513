"""The text of a stack: what it means, and what it says when it means nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from other_process import fresh

import pnc_vol
from pnc_vol.drivers.base import parse_stack, written_layer
from pnc_vol.drivers.stack import registered, stack_capabilities
from pnc_vol.testing.driver_suite import Wrapper, extents_of, open_stack, register
from pnc_vol.testing.faults import TraceSystem


def opened(spec: str, **kwargs):
    return open_stack(spec, None, writable=True, **kwargs)


names = st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True)
keys = st.from_regex(r"[a-z_][a-z0-9_]*", fullmatch=True)
values = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
layers = st.tuples(names, st.dictionaries(keys, values, max_size=4))


def typed(options):
    return {key: (type(value), value) for key, value in options.items()}


@given(st.lists(layers, min_size=1, max_size=4))
def test_what_is_written_is_parsed(wanted: list[tuple[str, dict[str, object]]]) -> None:
    found = parse_stack(" | ".join(written_layer(name, options) for name, options in wanted))
    assert [(layer.name, typed(layer.options)) for layer in found] == [(n, typed(o)) for n, o in wanted]


@given(st.text(alphabet="ab1|(),='\" \t-.", max_size=30))
def test_any_text_is_a_stack_or_an_error(text: str) -> None:
    try:
        layers = parse_stack(text)
    except ValueError:
        return
    assert parse_stack(" | ".join(written_layer(layer.name, layer.options) for layer in layers)) == layers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ('"a ""b"" c"', 'a "b" c'),
        ("'1'", "1"),
        ("a(1).json", "a(1).json"),
        ("'a | b, (c'", "a | b, (c"),
        (" true ", True),
        ("False", False),
        ("1e3", 1000.0),
        ("out|in.json", "out|in.json"),
        ("", ""),
    ],
)
def test_values(text: str, value: object) -> None:
    (layer, last) = parse_stack(f" a-b_1 ( file={text}, limit=5)|posix")
    assert (layer.name, typed(layer.options)) == ("a-b_1", typed({"file": value, "limit": 5}))
    assert last.name == "posix"


@pytest.mark.parametrize("spec", ["trace(limit=5) | memory", "trace(file='a, b''s.json', limit=7) | trace | memory"])
def test_an_open_stack_describes_itself(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    driver = opened(spec)
    assert parse_stack(driver.describe()) == parse_stack(spec)
    driver.close()


@pytest.mark.parametrize("text", ["", "|", "posix |", "a b", "a(x", "a(x)", "a(1=2)", "a() b", "a | | b"])
def test_what_is_no_stack(text: str) -> None:
    with pytest.raises(ValueError, match="in the driver"):
        parse_stack(text)


def test_the_left_one_is_on_top() -> None:
    register("one", type("One", (Wrapper,), {"name": "one"}))
    driver = opened("one | trace(limit=5) | memory")
    assert driver.describe() == "one | trace(limit=5) | memory"
    assert driver.inner.inner.name == "memory"


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"Unknown driver type 'posx'; known: .*memory, mpio, .*posix, .*trace"):
        opened("trace | posx")


def test_wrappers_and_roots_in_the_wrong_place() -> None:
    with pytest.raises(ValueError, match="names no driver below 'trace'"):
        opened("trace")
    with pytest.raises(ValueError, match=r"'memory' in the driver .* can only be the last"):
        opened("memory | posix")


def test_options_that_a_driver_does_not_have() -> None:
    for spec in ("trace(nonsense=1) | memory", "memory(nonsense=1)", "trace(comm=1) | memory"):
        with pytest.raises(ValueError, match=r"nonsense|comm"):
            opened(spec)


def test_functions_can_be_registered_if_they_say_what_they_are() -> None:
    def root(path, *, writable, system, comm, hints, content="x"):
        made, data = opened("memory"), content.encode() + hints["h"].encode()
        made.write(extents_of((0, len(data), 0)), np.frombuffer(data, np.uint8))
        return made

    with pytest.raises(ValueError, match="'root' or a 'wrapper'"):
        register("mine", root)
    register("mine", root, "root")
    register("over", lambda inner, deep=1: [inner := Wrapper(inner) for _ in range(deep)][-1], "wrapper")
    driver = opened("over(deep=3) | mine(content=ab)", hints={"h": "!"})
    assert driver.inner.inner.inner.content() == b"ab!"
    with pytest.raises(ValueError, match="consists of letters"):
        register("a b", root, "root")


def test_what_is_below_a_wrapper_that_fails_is_closed(tmp_path: Path) -> None:
    def failing(inner):
        raise RuntimeError("no")

    register("failing", failing, "wrapper")
    (tmp_path / "file").touch()
    system = TraceSystem()
    with pytest.raises(RuntimeError):
        open_stack("failing | trace | posix", str(tmp_path / "file"), writable=True, system=system)
    assert [call.name for call in system.log] == ["open", "close"]


def test_files_must_exist_and_have_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_stack("posix", str(tmp_path / "none"), writable=True)
    with pytest.raises(ValueError, match="needs the path"):
        opened("posix")


def test_mpio_needs_a_path() -> None:
    """In a process of its own: MPI can be started once in a process."""
    pytest.importorskip("mpi4py", reason='mpi4py is not installed (pip install "pnc-vol[mpi]")')
    done = fresh(opened, "mpio")
    assert "ValueError" in done.stderr
    assert "needs the path" in done.stderr


def test_which_roots_keep_a_file() -> None:
    assert stack_capabilities("trace | posix").keeps_file
    assert not stack_capabilities("trace | memory").keeps_file
    kinds = registered()
    assert (kinds["posix"], kinds["memory"], kinds["trace"]) == ("root", "root", "wrapper")


def test_memory_starts_with_the_file_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    driver = open_stack("memory", str(path), writable=True)
    driver.resize(1)
    assert driver.content() == b"a"
    driver.close()
    assert path.read_bytes() == b"abc"
    assert open_stack("memory", str(tmp_path / "none"), writable=True).size() == 0
    with pytest.raises(ValueError, match="'mpio'"):
        opened("memory", comm=SimpleNamespace(rank=0, size=2, mpi=None))


def test_traces_of_ranks_have_files_of_their_own(tmp_path: Path) -> None:
    register("plain", lambda path, **_: opened("memory"), "root")
    for rank in range(2):
        comm = SimpleNamespace(rank=rank, size=2, mpi=None)
        opened(f"trace(file={tmp_path}/run.json) | plain", comm=comm).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.0.json", "run.1.json"]


def test_a_stack_imports_only_what_it_names() -> None:
    program = (
        "import sys, pnc_vol.drivers.stack as s; s.open_stack('memory', None, writable=True)\n"
        "assert not {'mpi4py', 'pnc_vol.drivers.mpio', 'pnc_vol.drivers.trace'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_file_with_a_driver_of_ours_is_opened_without_asking_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That reads the metadata of every package: with hundreds of them it takes longer than all the rest."""

    def asked(**_: object) -> None:
        raise LookupError("asked")

    monkeypatch.setattr("importlib.metadata.entry_points", asked)
    for driver in ("memory", "trace | memory"):
        with pnc_vol.File("any", "w", driver=driver) as f:
            f["x"] = [1]
    with pytest.raises(LookupError, match="asked"):
        pnc_vol.File("any", "w", driver="other")
