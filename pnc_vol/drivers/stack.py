"""A text names a stack of drivers, and a register their names.

    "posix"                            a root
    "trace | posix"                    a wrapper above a root: a call reaches the leftmost driver first
    "trace(file=t.json) | posix"       with options

Knows: names, and how a driver is opened. Does not know: what a driver does.

Rules
-----
1. Names are those of a `Registry`, with entry points in the group ``pnc_vol.drivers``.
2. An entry point is a class: a `Wrapper` is a wrapper, another `Driver` a root.
3. If a wrapper cannot be opened, the drivers below it are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from pnc_vol.drivers.base import Capabilities, Driver, Layer, OpenContext, Wrapper, parse_stack
from pnc_vol.plugins import Registry

__all__ = [
    "Hinted",
    "Kind",
    "Layer",
    "asked_by_hints",
    "default_stack",
    "hinted",
    "knows",
    "open_stack",
    "parse_stack",
    "register",
    "registered",
    "stack_capabilities",
    "stack_exists",
    "takes_hints",
    "without_hinted",
]

Kind = Literal["root", "wrapper"]

GROUP = "pnc_vol.drivers"

_CORE = {
    "memory": "pnc_vol.drivers.memory:MemoryDriver",
    "mpio": "pnc_vol.drivers.mpio:MpioDriver",
    "posix": "pnc_vol.drivers.posix:PosixDriver",
    "trace": "pnc_vol.drivers.trace:TraceDriver",
}


class _Entry(NamedTuple):
    """How a driver is opened, and what it declares.

    make : callable, takes the path or the driver below, the `OpenContext`, and the options.
    declares : callable, from the capabilities of what is below to those of this driver; a root ignores the argument.
    exists : callable or None, as `Driver.exists`.
    """

    kind: Kind
    make: Callable[..., Driver]
    declares: Callable[[Capabilities], Capabilities]
    exists: Callable[[str, OpenContext], bool] | None = None


_PLAIN = Capabilities()

_MOST_STACKS = 64
"""Stacks that are remembered until a driver is registered."""


def register(name: str, factory: Callable[..., Driver], kind: Kind | None = None) -> None:
    """Let stacks name a driver.

    Parameters
    ----------
    name : str
        A word of letters, digits, ``-`` and ``_``. A second driver of the same name replaces the first.
    factory : class or function
        A `Wrapper` class, another `Driver` class, or a function: a root's takes ``(path, *, writable, system, comm,
        hints, **options)``, a wrapper's ``(inner, **options)``. A function has the capabilities of its attribute
        ``capabilities``, if it has one, and ``exists``, if its paths are its own.
    kind : {"root", "wrapper"}, optional
        Needed for a function; a class shows it.

    Raises
    ------
    ValueError
        The name is no such word, or the kind is missing.
    """
    _registry.register(name, factory if kind is None else (factory, kind))


def _made_entry(name: str, given: Any) -> _Entry:
    """Return the entry of a driver; `given`: a class, or what `register` takes with its kind."""
    factory, kind = given if isinstance(given, tuple) else (given, None)
    if not name.replace("-", "_").replace("_", "a").isalnum():
        raise ValueError(f"A driver's name consists of letters, digits, '-' and '_', not {name!r}")
    make: Callable[..., Driver] = factory
    own = getattr(factory, "capabilities", Capabilities())
    if isinstance(factory, type) and issubclass(factory, Wrapper):
        return _Entry(kind or "wrapper", factory.over, factory.declares)
    if kind is None and not isinstance(factory, type):
        raise ValueError(f"Say whether {name!r} is a 'root' or a 'wrapper': register(name, factory, kind)")
    if kind == "wrapper":
        return _Entry(kind, lambda inner, context, **options: make(inner, **options), lambda below: below)
    opens = factory.open if isinstance(factory, type) and issubclass(factory, Driver) else _opened_by_keywords(make)
    return _Entry("root", opens, lambda below: own, getattr(factory, "exists", None))


_registry = Registry[_Entry](GROUP, "driver type", _CORE, _made_entry)


class Hinted(Protocol):
    """What is known of a wrapper that hints alone put in front of a stack; small, as it is loaded with any hint.

    checks : mapping of str to callable, of each of its hints what checks a value: ``check(hint, value)`` raises
        `ValueError`.
    when_off : mapping of str to str, the hints that `File.hints` shows where the wrapper is not in the stack.
    """

    checks: Mapping[str, Callable[[str, Any], Any]]
    when_off: Mapping[str, str]

    def asked(self, hints: Mapping[str, str], *, writable: bool) -> bool:
        """Return whether hints ask for the wrapper.

        Raises
        ------
        ValueError
            A hint has a wrong value.
        """


hinted = Registry[Hinted]("pnc_vol.hints", "wrapper that hints ask for")


def _opened_by_keywords(factory: Callable[..., Driver]) -> Callable[..., Driver]:
    """Return a root that is opened by a function, which is told what it needs by keywords."""

    def make(path: str | None, context: OpenContext, **options: Any) -> Driver:
        given = {"writable": context.writable, "system": context.system, "comm": context.comm, "hints": context.hints}
        taken = given.keys() & options.keys()
        if taken:
            raise TypeError(f"got an unexpected keyword argument {taken.pop()!r}")
        return factory(None if context.new and not own_paths else path, **given, **options)

    own_paths = getattr(factory, "capabilities", Capabilities()).own_paths
    return make


def registered() -> dict[str, Kind]:
    """Return all names that a stack may use now, with their kinds, sorted; loads the drivers of other packages.

    A plug-in that cannot be imported is left out here, and raises its own error when a stack names it.

    Examples
    --------
    >>> registered()["posix"]
    'root'
    """
    kinds: dict[str, Kind] = {}
    for name in _registry.names():
        try:
            kinds[name] = _registry.find(name).kind
        except ImportError:
            continue
    return kinds


def knows(name: str) -> bool:
    """Return whether a stack may use a name; what other packages register is looked for only if the name is none of
    ours."""
    return name in _registry


def asked_by_hints(hints: Mapping[str, str], *, writable: bool) -> list[str]:
    """Return wrappers that hints alone put in front of a stack.

    Raises
    ------
    ValueError
        A hint of one of them has a wrong value.
    """
    return [name for name in hinted.own() if hinted.find(name).asked(hints, writable=writable)]


def takes_hints(hints: Mapping[str, str]) -> bool:
    """Return whether a wrapper knows one of these hints, whether it asks for the wrapper or not."""
    return any(not hints.keys().isdisjoint(hinted.find(name).checks) for name in hinted.own()) if hints else False


def without_hinted(spec: str) -> str:
    """Return a stack without those of its uppermost wrappers that hints may have put there: they have no options."""
    while True:
        above, bar, below = spec.partition(" | ")
        if not bar or above not in hinted.own():
            return spec
        spec = below


def _looked_up(spec: str) -> list[tuple[Layer, _Entry]]:
    """Return the layers of a stack with their drivers; a file that is opened asks several times."""
    found: list[tuple[Layer, _Entry]] | None = _registry.derived.get(spec)
    if found is not None:
        return found
    layers = [(layer, _registry.find(layer.name)) for layer in parse_stack(spec)]
    *above, (last, bottom) = layers
    if bottom.kind != "root":
        raise ValueError(
            f"The driver {spec!r} names no driver below '{last.name}', which is a wrapper: write '{last.name} | posix'"
        )
    for layer, entry in above:
        if entry.kind != "wrapper":
            raise ValueError(f"'{layer.name}' in the driver {spec!r} is a root; it can only be the last driver")
    if len(_registry.derived) < _MOST_STACKS:
        _registry.derived[spec] = layers
    return layers


def default_stack(shared: bool) -> str:
    """Return the stack of a file for which no driver was asked; `shared` if it has a communicator.

    Examples
    --------
    >>> default_stack(True), default_stack(False)
    ('mpio', 'posix')
    """
    return "mpio" if shared else "posix"


def stack_capabilities(spec: str) -> Capabilities:
    """Return what a stack declares of itself, without opening it.

    Raises
    ------
    ValueError
        As `open_stack`.
    ImportError
        A plug-in cannot be imported.

    Examples
    --------
    >>> stack_capabilities("trace | posix").keeps_file, stack_capabilities("memory").keeps_file
    (True, False)
    """
    found = _PLAIN
    for _, entry in reversed(_looked_up(spec)):
        found = entry.declares(found)
    return found


def stack_exists(spec: str, path: str, context: OpenContext) -> bool:
    """Return whether there is something under a path of a stack that declares `own_paths`; see `Driver.exists`.

    Raises
    ------
    OSError
        It cannot be known.
    """
    exists = _looked_up(spec)[-1][1].exists
    if exists is None:
        raise NotImplementedError(f"the driver {spec!r} does not say whether {path!r} exists")
    return exists(path, context)


def open_stack(spec: str, path: str | None, context: OpenContext | None = None, **fields: Any) -> Driver:
    """Open a stack on a file that exists; every rank of the communicator together.

    Parameters
    ----------
    spec : str
        Names from top to bottom, e.g. ``"trace | posix"``.
    path : str or None
        None where the root keeps no file.
    context : OpenContext, optional
        By default one is made of the keywords.
    **fields
        Fields of `OpenContext`: ``writable=``, ``system=``, ``comm=``, ``hints=``, ``fd=``, ``new=``.

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
    if fields or context is None:
        context = OpenContext(**fields) if context is None else context._replace(**fields)
    *above, (bottom, root) = _looked_up(spec)
    driver = _made(bottom, root, path, context)
    try:
        for layer, entry in reversed(above):
            driver = _made(layer, entry, driver, context)
    except BaseException:
        driver.close()
        raise
    return driver


def _made(layer: Layer, entry: _Entry, below: Any, context: OpenContext) -> Driver:
    try:
        made = entry.make(below, context, **layer.options)
    except TypeError as error:
        if any(text in str(error) for text in ("unexpected keyword argument", "multiple values for")):
            raise ValueError(f"The driver '{layer.name}' does not take these options: {error}") from error
        raise
    made.options = layer.options
    return made
