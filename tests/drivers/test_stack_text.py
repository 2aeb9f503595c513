"""The text of a stack, parsed and written: each gives back what the other was given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.drivers.stack import open_stack
from pnc_vol.drivers.stack_text import parse_stack, written_layer

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
        ("1e3", 1000.0),
    ],
)
def test_values(text: str, value: object) -> None:
    (layer, last) = parse_stack(f"trace(file={text}, limit=5)|posix")
    assert layer.options == {"file": value, "limit": 5}
    assert last.name == "posix"


@pytest.mark.parametrize("spec", ["trace(limit=5) | memory", "trace(file='a, b''s.json', limit=7) | trace | memory"])
def test_an_open_stack_describes_itself(spec: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    driver = open_stack(spec, None, writable=True)
    assert parse_stack(driver.describe()) == parse_stack(spec)
    driver.close()
