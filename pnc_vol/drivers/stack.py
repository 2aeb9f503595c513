"""The text that names a stack of drivers, and the register of the words in it.

    "posix"                            a root
    "trace | posix"                    a wrapper on a root: the left one is on top, what is asked meets it first
    "trace(file=t.json) | posix"       with options

Knows: names, and how a driver is opened. Does not know: what a driver does.

Rules
-----
1. A driver of this package is imported when a stack first names it; one of another package is found by its entry point
   in the group ``pnc_vol.drivers``, which is searched only for a name that is not known yet.
2. An entry point is a class: a `Wrapper` is a wrapper, another `Driver` a root.
3. If a wrapper cannot be put on, what is below it is closed.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pnc_vol.drivers.base import Driver, Ranks, Wrapper
from pnc_vol.system import REAL, System

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "Kind",
    "Layer",
    "knows",
    "open_stack",
    "parse_stack",
    "register",
    "registered",
    "root_keeps_file",
    "root_takes_descriptor",
]

Kind = Literal["root", "wrapper"]

GROUP = "pnc_vol.drivers"

_BUILTIN = {
    "memory": "pnc_vol.drivers.memory:MemoryDriver",
    "mpio": "pnc_vol.drivers.mpio:MpioDriver",
    "posix": "pnc_vol.drivers.posix:PosixDriver",
    "trace": "pnc_vol.drivers.trace:TraceDriver",
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One word of a stack.

    name : str
    options : what stood in brackets; numbers, ``true`` and ``false`` are read as such, other values are text.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: Kind
    make: Callable[..., Driver]
    keeps_file: bool = True
    takes_descriptor: bool = False


_registry: dict[str, _Entry] = {}


def register(name: str, factory: Callable[..., Driver], kind: Kind | None = None) -> None:
    """Let stacks name a driver.

    Parameters
    ----------
    name : str
        A word of letters, digits, ``-`` and ``_``. A second driver of the same name replaces the first.
    factory : class or function
        A `Wrapper` class, another `Driver` class, or a function: a root's takes ``(path, *, writable, system, comm,
        hints, **options)``, a wrapper's ``(inner, **options)``.
    kind : {"root", "wrapper"}, optional
        Needed for a function; a class shows it.

    Raises
    ------
    ValueError
        The name is no such word, or the kind is missing.
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"A driver's name is a word of letters, digits, '-' and '_', not {name!r}")
    make: Callable[..., Driver] = factory
    if isinstance(factory, type):
        kind = kind or ("wrapper" if issubclass(factory, Wrapper) else "root")
        if issubclass(factory, Wrapper):
            make = factory.over
        elif issubclass(factory, Driver):
            make = factory.open
    elif kind == "wrapper":
        make = _without_surroundings(factory)
    if kind is None:
        raise ValueError(f"Say whether {name!r} is a 'root' or a 'wrapper': register(name, factory, kind)")
    keeps_file = bool(getattr(factory, "keeps_file", True))
    _registry[name] = _Entry(kind, make, keeps_file, bool(getattr(factory, "takes_descriptor", False)))


def _without_surroundings(factory: Callable[..., Driver]) -> Callable[..., Driver]:
    def make(inner: Driver, *, writable: bool, system: System, comm: Any, hints: Any, **options: Any) -> Driver:
        return factory(inner, **options)

    return make


def registered() -> dict[str, Kind]:
    """All names that a stack may use now, with their kinds, sorted; loads the drivers of other packages.

    A plug-in that cannot be imported is left out here, and raises its own error when a stack names it.

    Examples
    --------
    >>> registered()["posix"]
    'root'
    """
    found = dict.fromkeys((*_BUILTIN, *_registry, *_entry_points()))
    kinds: dict[str, Kind] = {}
    for name in sorted(found):
        try:
            kinds[name] = _entry(name).kind
        except ImportError:
            continue
    return kinds


def knows(name: str) -> bool:
    """Whether a stack may use a name; what other packages register is looked for only if the name is none of ours."""
    return name in _BUILTIN or name in _registry or name in _entry_points()


def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes as long to import as the rest of the package

    return {point.name: point for point in entry_points(group=GROUP)}


def _entry(name: str) -> _Entry:
    if name not in _registry:
        if name in _BUILTIN:
            module, _, attribute = _BUILTIN[name].partition(":")
            register(name, getattr(importlib.import_module(module), attribute))
        else:
            points = _entry_points()
            if name not in points:
                known = ", ".join(sorted({*_BUILTIN, *_registry, *points}))
                raise ValueError(f"Unknown driver type '{name}'; known: {known}")
            register(name, points[name].load())
    return _registry[name]


def parse_stack(spec: str) -> tuple[Layer, ...]:
    """The layers of a stack's text, top first; nothing is looked up.

    Raises
    ------
    ValueError
        The text is not a list of names with options.

    Examples
    --------
    >>> [layer.name for layer in parse_stack("trace(file=a.json, limit=10) | posix")]
    ['trace', 'posix']
    """
    layers = []
    for word in re.split(r"\|(?![^(]*\))", spec):
        match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", word, re.DOTALL)
        if match is None:
            raise ValueError(f"{word.strip()!r} in the driver {spec!r} is not a name or name(option=value, ...)")
        name, text = match[1], match[2]
        options = {}
        for part in re.split(r",(?=(?:[^\"']*[\"'][^\"']*[\"'])*[^\"']*$)", text) if text and text.strip() else ():
            key, equals, value = part.partition("=")
            if not equals or not key.strip().isidentifier():
                raise ValueError(f"{part.strip()!r} in the driver {spec!r} is not option=value")
            options[key.strip()] = _value(value.strip())
        layers.append(Layer(name, options))
    return tuple(layers)


def _value(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _looked_up(spec: str) -> list[tuple[Layer, _Entry]]:
    layers = [(layer, _entry(layer.name)) for layer in parse_stack(spec)]
    *above, (last, bottom) = layers
    if bottom.kind != "root":
        raise ValueError(
            f"The driver {spec!r} has nothing below '{last.name}', which stands on another driver: "
            f"write '{last.name} | posix'"
        )
    for layer, entry in above:
        if entry.kind != "wrapper":
            raise ValueError(f"'{layer.name}' in the driver {spec!r} keeps the bytes itself; it can only be the last")
    return layers


def root_keeps_file(spec: str) -> bool:
    """Whether the root of this stack keeps its bytes in the file of its path.

    Examples
    --------
    >>> root_keeps_file("trace | posix"), root_keeps_file("memory")
    (True, False)
    """
    return _looked_up(spec)[-1][1].keeps_file


def root_takes_descriptor(spec: str) -> bool:
    """Whether the root of this stack can be given an open descriptor; see `Driver.takes_descriptor`.

    Examples
    --------
    >>> root_takes_descriptor("trace | posix"), root_takes_descriptor("memory")
    (True, False)
    """
    return _looked_up(spec)[-1][1].takes_descriptor


def open_stack(
    spec: str,
    path: str | None,
    *,
    writable: bool,
    system: System = REAL,
    comm: Ranks | None = None,
    hints: Mapping[str, str] | None = None,
    fd: int = -1,
) -> Driver:
    """Open a stack on a file that exists; every rank of `comm` together.

    Parameters
    ----------
    spec : str
        Names from top to bottom, e.g. ``"trace | posix"``.
    path : str or None
        None where the root keeps no file.
    writable : bool
    system : System
        Where calls to the operating system go.
    comm : Ranks or None
        Who shares the file; None for this process alone.
    hints : mapping of str to str
    fd : int
        A descriptor of the file, which stays the caller's, for a root of which `root_takes_descriptor` is true; it
        opens `path` itself if this is below 0.

    Returns
    -------
    Driver
        The top of the stack.

    Raises
    ------
    ValueError
        An unknown name, a wrapper at the bottom, a root in the middle, an option that a driver does not have.
    ImportError
        The driver needs a package that is not installed; the text says which.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> driver = open_stack("memory", None, writable=True)
    >>> driver.describe()
    'memory'
    """
    surroundings: dict[str, Any] = {"writable": writable, "system": system, "comm": comm, "hints": dict(hints or {})}
    *above, (bottom, root) = _looked_up(spec)
    driver = _made(bottom, root, path, surroundings | ({"fd": fd} if fd >= 0 else {}))
    try:
        for layer, entry in reversed(above):
            driver = _made(layer, entry, driver, surroundings)
    except BaseException:
        driver.close()
        raise
    return driver


def _made(layer: Layer, entry: _Entry, below: Any, surroundings: dict[str, Any]) -> Driver:
    taken = set(layer.options) & set(surroundings)
    if taken:
        raise ValueError(f"'{taken.pop()}' is not an option of the driver '{layer.name}'")
    try:
        return entry.make(below, **surroundings, **layer.options)
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise ValueError(f"The driver '{layer.name}' does not take these options: {error}") from error
        raise
