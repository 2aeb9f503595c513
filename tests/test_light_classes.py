"""Classes that cost little to define mean what those of the standard library mean."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar, NamedTuple

import pytest

from pnc_vol import light_classes as light


@light.dataclass(frozen=True, slots=True)
class Place:
    """Frozen, with all kinds of fields."""

    number: int
    text: str = "a"
    rows: list[int] = light.field(default_factory=list)
    seen: dict[str, int] = light.field(default_factory=dict, init=False, compare=False, repr=False)
    size: ClassVar[int] = 3


@light.dataclass(slots=True, eq=False, repr=False)
class Base:
    """One that others derive from."""

    name: str


@light.dataclass(slots=True, eq=False, repr=False)
class Derived(Base):
    """With more fields."""

    children: dict[str, int] = light.field(default_factory=dict)


@light.dataclass(slots=True)
class Rounded:
    """Changed when it is made."""

    value: int = 0

    def __post_init__(self) -> None:
        self.value = round(self.value, -1)


class Pair(light.NamedTuple):
    """A named tuple."""

    one: int
    two: str = "b"

    @property
    def both(self) -> str:
        return f"{self.one}{self.two}"


class Standard(NamedTuple):
    """The same of the standard library."""

    one: int
    two: str = "b"


class Empty(light.NamedTuple):
    """Whose first object is made by another way than a call; see the test."""

    one: int
    two: int = 2


def test_a_frozen_dataclass() -> None:
    made = Place(3)
    assert (made.number, made.text, made.rows, made.seen, made.size) == (3, "a", [], {}, 3)
    assert made == Place(3, "a", rows=[]) != Place(4)
    assert repr(made) == "Place(number=3, text='a', rows=[])"
    with pytest.raises(dataclasses.FrozenInstanceError, match="number"):
        made.number = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match="number"):
        Place()  # type: ignore[call-arg]
    assert Place(1).rows is not Place(1).rows
    assert not hasattr(made, "__dict__")
    match made:
        case Place(number, text):
            assert (number, text) == (3, "a")


def test_equal_objects_have_one_hash() -> None:
    @light.dataclass(frozen=True, slots=True)
    class Key:
        name: str
        note: str = light.field(default="", compare=False)

    assert {Key("a", "x"), Key("a", "y")} == {Key("a")}
    with pytest.raises(TypeError, match="unhashable"):
        hash(Rounded(1))


def test_a_derived_dataclass_has_the_fields_of_its_base() -> None:
    made = Derived("n", {"a": 1})
    assert (made.name, made.children, Derived("n").children) == ("n", {"a": 1}, {})
    made.name = "m"
    assert made.name == "m"
    assert made != Derived("m", {"a": 1})
    assert [each.name for each in light.fields(Derived)] == ["name", "children"]
    assert Derived.__slots__ == ("children",)


def test_what_follows_the_fields_runs() -> None:
    assert Rounded(17) == Rounded(value=20)


@pytest.mark.parametrize("replace", [light.replace, dataclasses.replace])
def test_replace(replace: Any) -> None:
    changed = replace(Place(3, "b", [1]), number=4)
    assert changed == Place(4, "b", [1])
    with pytest.raises(TypeError):
        replace(changed, wrong=1)


def test_the_standard_library_knows_the_fields() -> None:
    assert dataclasses.is_dataclass(Place)
    assert dataclasses.asdict(Place(1)) == {"number": 1, "text": "a", "rows": [], "seen": {}}
    assert [each.name for each in dataclasses.fields(Place)] == ["number", "text", "rows", "seen"]


@pytest.mark.parametrize("made", [Place(3, "b", [1]), Derived("n", {"a": 1}), Pair(1)])
def test_copies_and_pickles(made: Any) -> None:
    names = [each.name for each in light.fields(made)] if dataclasses.is_dataclass(made) else ["one", "two"]
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(other) is type(made)
        assert [getattr(other, name) for name in names] == [getattr(made, name) for name in names]


def test_a_named_tuple() -> None:
    made = Pair(1)
    assert made == (1, "b") == Pair(one=1)
    assert made.both == "1b"
    assert repr(made) == "Pair(one=1, two='b')"
    assert made._replace(two="c") == Pair._make((1, "c"))
    assert made._asdict() == {"one": 1, "two": "b"}
    assert (Pair._fields, Pair._field_defaults) == (Standard._fields, Standard._field_defaults)
    for wrong in ({}, {"one": 1, "three": 3}):
        for kind in (Pair, Standard):
            with pytest.raises(TypeError):
                kind(**wrong)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        made.one = 2  # type: ignore[misc]
    match made:
        case Pair(one, two):
            assert (one, two) == made


def test_a_tuple_that_was_made_by_its_base_has_the_methods() -> None:
    made = tuple.__new__(Empty, (1, 2))
    assert made._replace(two=3) == Empty(1, 3)
    assert made._asdict() == {"one": 1, "two": 2}
    assert repr(made) == "Empty(one=1, two=2)"
