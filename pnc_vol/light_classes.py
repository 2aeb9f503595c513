"""Dataclasses and named tuples that cost little to define; they mean what those of the standard library mean.

`dataclasses.dataclass` compiles up to nine functions for each class, `typing.NamedTuple` one and the type of each
field: 1.4 to 4 million instructions for a dataclass of five fields, 0.9 million for such a tuple, where a plain class
takes 0.07. A script of one small file meets 77 of them, and makes objects of half of them. Here the standard library
makes a class's `__init__` or `__new__`, when its first object is made; the other functions are the same for all.

Knows: the fields of a class. Does not know: what they hold.

Rules
-----
1. Type checkers see the standard library's. What is here is used in the same words; `dataclasses.asdict`, copies and
   pickles work as with those.
2. Annotations are strings (``from __future__ import annotations``). A class may be `frozen`, have `slots`, and have no
   `eq` and no `repr`. There is no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter, namedtuple
    from operator import attrgetter

    _MISSING = object()

    class _Field:
        """A field of a dataclass: what ``field(...)`` was given."""

        __slots__ = ("default", "given", "init", "make", "name")

        def __init__(self, given) -> None:
            self.name = ""
            self.given = given
            self.default = given.get("default", _MISSING)
            self.make = given.get("default_factory", _MISSING)
            self.init = given.get("init", True)

        @property
        def metadata(self):
            return self.given.get("metadata", {})

    def field(**given):
        """A field that is more than a name and a default: what `dataclasses.field` takes."""
        return _Field(given)

    def fields(record):
        """The fields of a dataclass or of an object of one."""
        return tuple(record.__light_fields__.values())

    def replace(record, **changes):
        """An object like `record` but for `changes`."""
        values = {name: getattr(record, name) for name, each in record.__light_fields__.items() if each.init}
        return type(record)(**{**values, **changes})

    def dataclass(*, frozen=False, slots=False, eq=True, repr=True):
        """Makes the class that it decorates a dataclass."""

        def define(cls):
            inherited = getattr(cls, "__light_fields__", {})
            own = {}
            for name, hint in cls.__annotations__.items():
                if not hint.startswith("ClassVar"):
                    given = cls.__dict__.get(name, _MISSING)
                    known = isinstance(given, _Field)
                    own[name] = given if known else _Field({} if given is _MISSING else {"default": given})
                    own[name].name = name
            if slots:
                cls = _slotted(cls, own, inherited)
            known = cls.__light_fields__ = {**inherited, **own}
            cls.__dataclass_fields__ = _StandardFields()
            cls.__match_args__ = tuple(name for name, each in known.items() if each.init)
            cls.__init__ = _first_init(cls, frozen)
            if repr:
                cls.__repr__ = _repr
            if eq:
                cls.__eq__, cls.__hash__ = _comparison(cls, frozen)
            if frozen:
                cls.__setattr__ = cls.__delattr__ = _refuse
                cls.__getstate__, cls.__setstate__ = _state, _set_state
            return cls

        return define

    def _slotted(cls, own, inherited):
        """The class with slots, which can only be given when a class is made."""
        left_out = {"__dict__", "__weakref__", *own}
        body = {key: value for key, value in cls.__dict__.items() if key not in left_out}
        body["__slots__"] = tuple(name for name in own if name not in inherited)
        body["__qualname__"] = cls.__qualname__
        return type(cls)(cls.__name__, cls.__bases__, body)

    def _first_init(cls, frozen):
        def __init__(self, *args, **named) -> None:
            cls.__init__ = _standard(cls, init=True, frozen=frozen).__init__
            cls.__init__(self, *args, **named)

        return __init__

    def _standard(cls, **options):
        """A dataclass of the standard library with the same fields."""
        import dataclasses

        body = {each.name: dataclasses.field(**each.given) for each in fields(cls)}
        body["__annotations__"] = dict.fromkeys(body, "object")
        if hasattr(cls, "__post_init__"):
            body["__post_init__"] = cls.__post_init__
        made = type(cls.__name__, (), {**body, "__module__": cls.__module__, "__qualname__": cls.__qualname__})
        return dataclasses.dataclass(repr=False, eq=False, match_args=False, **options)(made)

    def _comparison(cls, frozen):
        values = attrgetter(*(each.name for each in fields(cls) if each.given.get("compare", True)))

        def __eq__(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        return __eq__, (lambda self: hash(values(self))) if frozen else None

    def _repr(self) -> str:
        shown = (each.name for each in fields(self) if each.given.get("repr", True))
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def _refuse(self, name, *_value) -> None:
        import dataclasses

        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _state(self):
        return [getattr(self, each.name) for each in fields(self)]

    def _set_state(self, state) -> None:
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)

    class _StandardFields:
        """`__dataclass_fields__`: those of the standard library, for who asks."""

        def __get__(self, _record, cls):
            return _standard(cls, init=False).__dataclass_fields__

    class _Tuple(tuple):
        """What named tuples have before the first object of a class is made."""

        __slots__ = ()

        def __new__(cls, *args, **named):
            _complete(cls)
            return cls.__new__(cls, *args, **named)

        @classmethod
        def _make(cls, values):
            _complete(cls)
            return cls._make(values)

        def _replace(self, /, **named):
            _complete(type(self))
            return self._replace(**named)

        def _asdict(self):
            _complete(type(self))
            return self._asdict()

        def __repr__(self) -> str:
            _complete(type(self))
            return repr(self)

        def __getnewargs__(self):
            return tuple(self)

    def _complete(cls) -> None:
        """Give a class what `collections.namedtuple` makes."""
        owner = next(each for each in cls.__mro__ if "_fields" in each.__dict__)
        defaults = tuple(owner._field_defaults.values())
        made = namedtuple(owner.__name__, owner._fields, defaults=defaults)
        for name in ("__new__", "_make", "_replace", "_asdict", "__repr__"):
            if name not in owner.__dict__:
                setattr(owner, name, made.__dict__[name])

    class _Definition(type):
        """Makes a tuple with names of ``class A(NamedTuple)``."""

        def __new__(meta, name, bases, body):
            if not bases:
                return super().__new__(meta, name, bases, body)
            names = tuple(body.get("__annotations__", ()))
            defaults = {each: body.pop(each) for each in names if each in body}
            body.update((each, _tuplegetter(i, None)) for i, each in enumerate(names))
            body.update(__slots__=(), _fields=names, _field_defaults=defaults, __match_args__=names)
            return type(name, (_Tuple,), body)

    class NamedTuple(metaclass=_Definition):
        """The base of named tuples."""
