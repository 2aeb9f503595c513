"""A registry finds plug-ins by a name: drivers, layouts, stores, hints, and what takes care of files at an opening.

Knows: names, entry points, which plug-ins come with this package. Does not know: what any of them does.

Rules
-----
1. Nothing else of the core names a module of a plug-in. The core works without the folders of plug-ins: what is in a
   folder that is not there has no name (`own`).
2. A plug-in is imported when its name is used for the first time. Those of other packages are entry points of the same
   group, which are searched only for a name that is not known yet, because it takes as long to import
   `importlib.metadata` as the rest of the package.

======================  =====================================================================================
group                   what a name stands for
======================  =====================================================================================
``pnc_vol.drivers``     a `drivers.base.Driver` or `Wrapper`
``pnc_vol.layouts``     a `layout.base.Layout`
``pnc_vol.stores``      a function that opens a `queue.stores.Store`
``pnc_vol.recoveries``  what takes care of what an earlier job left of a file: `file.leftovers.Recovery`, by the name
                        of its notes
``pnc_vol.hints``       what is known of a wrapper that hints alone ask for: `drivers.stack.Hinted`
``pnc_vol.sets``        what finds files that consist of several files: `file.file_sets.FileSets`
======================  =====================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pnc_vol.system import CACHES_NOTED, LOGS_NOTED, REAL, exists

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Registry", "own", "restored"]

T = TypeVar("T")

_OWN: dict[str, dict[str, str]] = {
    "pnc_vol.drivers": {"cache": "pnc_vol.cache.wrapper:CacheDriver", "remote": "pnc_vol.remote.driver:RemoteDriver"},
    "pnc_vol.layouts": {
        "blob": "pnc_vol.blob.layout:BlobLayout",
        "hdf5blob": "pnc_vol.blob.layout:Hdf5BlobLayout",
    },
    "pnc_vol.stores": {"log": "pnc_vol.burst.beginning:begin_log"},
    # caches first: they hold the header that logs are replayed upon
    "pnc_vol.recoveries": {
        CACHES_NOTED: "pnc_vol.cache.hints:CacheRecovery",
        LOGS_NOTED: "pnc_vol.burst.leftovers:LogRecovery",
    },
    "pnc_vol.hints": {"cache": "pnc_vol.cache.hints:HINTED"},
    "pnc_vol.sets": {"blob": "pnc_vol.blob.set_opening:BlobSets"},
}
_HERE = os.path.dirname(__file__)


def own(group: str) -> dict[str, str]:
    """Return the plug-ins of this package in a group, ``"module:object"`` by name, whose folders are there.

    Examples
    --------
    >>> own("pnc_vol.unknown")
    {}
    """
    return {
        name: where
        for name, where in _OWN.get(group, {}).items()
        if exists(REAL, os.path.join(_HERE, where.split(".")[1]))
    }


class Registry(Generic[T]):
    """The names of one group.

    Parameters
    ----------
    group : str, of entry points.
    what : str, for the message about a name that nobody knows.
    core : mapping of str to str, ``"module:object"`` of what the core itself has by name.
    made : callable, makes of a name and what was loaded what `find` returns, or raises; by default it is that itself.

    Examples
    --------
    >>> words = Registry[str]("pnc_vol.examples", "word")
    >>> words.register("a", "A")
    >>> words.find("a"), words.names()
    ('A', ['a'])
    >>> words.find("b")
    Traceback (most recent call last):
    ValueError: Unknown word 'b'; known: a
    """

    __slots__ = ("_core", "_known", "_made", "derived", "group", "what")

    def __init__(
        self, group: str, what: str, core: Mapping[str, str] | None = None, made: Callable[[str, Any], T] | None = None
    ) -> None:
        self.group, self.what = group, what
        self._core = {**(core or {}), **own(group)}
        self._made = made
        self._known: dict[str, T] = {}
        self.derived: dict[str, Any] = {}
        """What its user made of entries; it is emptied when something is registered."""
        _all.append(self)

    def register(self, name: str, thing: Any) -> None:
        """Let a name stand for something; a second thing of the same name replaces the first.

        Raises
        ------
        ValueError, TypeError
            It is none of this group.
        """
        self._known[name] = thing if self._made is None else self._made(name, thing)
        self.derived.clear()

    def own(self) -> list[str]:
        """Return the names of this package that are there, and what was registered by hand, without a search for
        others."""
        return list(dict.fromkeys((*self._core, *self._known)))

    def names(self) -> list[str]:
        """Return all names, sorted; those of other packages included."""
        return sorted({*self._core, *self._known, *self._entry_points()})

    def __contains__(self, name: str) -> bool:
        return name in self._known or name in self._core or name in self._entry_points()

    def loaded(self) -> Iterator[T]:
        """Return what was used or registered already."""
        return iter(self._known.values())

    def find(self, name: str) -> T:
        """Return what a name stands for.

        Raises
        ------
        ValueError
            Nothing has this name.
        ImportError
            The package that registers it cannot be imported.
        """
        found = self._known.get(name)
        if found is None:
            if name in self._core:
                module, _, thing = self._core[name].partition(":")
                self.register(name, getattr(import_module(module), thing))
            else:
                points = self._entry_points()
                if name not in points:
                    raise ValueError(f"Unknown {self.what} {name!r}; known: {', '.join(self.names())}")
                self.register(name, points[name].load())
            found = self._known[name]
        return found

    def _entry_points(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self.group)}


_all: list[Registry[Any]] = []


@contextmanager
def restored() -> Iterator[None]:
    """Let names stand after the block for what they stood for before; for tests that register something.

    Examples
    --------
    >>> words = Registry[str]("pnc_vol.examples", "word")
    >>> with restored():
    ...     words.register("a", "A")
    >>> words.names()
    []
    """
    before = [(registry, dict(registry._known)) for registry in _all]
    try:
        yield
    finally:
        for registry, known in before:
            registry._known = known
            registry.derived.clear()
