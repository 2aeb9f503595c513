"""The names that ``layout=`` of a file takes.

Knows: names, entry points. Does not know: what a layout does.

Rules
-----
1. A layout of another package is found by its entry point in the group ``pnc_vol.layouts``, which is searched only for
   a name that is not known yet.
2. An entry point is a class derived from `Layout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnc_vol.layout.base import Layout
from pnc_vol.layout.canonical import CanonicalLayout

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "layout_class", "register", "registered"]

GROUP = "pnc_vol.layouts"

_known: dict[str, type[Layout]] = {CanonicalLayout.name: CanonicalLayout}


def register(name: str, layout: type[Layout]) -> None:
    """Let ``layout=`` name a layout.

    Parameters
    ----------
    name : str
        A second layout of the same name replaces the first.
    layout : class derived from Layout

    Raises
    ------
    TypeError
        It is no such class.
    """
    if not (isinstance(layout, type) and issubclass(layout, Layout)):
        raise TypeError(f"The layout {name!r} is {layout!r}; a class derived from pnc_vol.layout.base.Layout is needed")
    _known[name] = layout


def registered() -> list[str]:
    """All names that ``layout=`` takes now, sorted; those of other packages included.

    Examples
    --------
    >>> "canonical" in registered()
    True
    """
    return sorted({*_known, *_entry_points()})


def layout_class(name: str) -> type[Layout]:
    """The class of a name.

    Raises
    ------
    ValueError
        No layout has this name.
    ImportError
        The package that registers it cannot be imported.

    Examples
    --------
    >>> layout_class("canonical").affine
    True
    """
    found = _known.get(name)
    if found is None:
        points = _entry_points()
        if name not in points:
            raise ValueError(f"Unknown layout {name!r}; known: {', '.join(registered())}")
        register(name, points[name].load())
        found = _known[name]
    return found


def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes as long to import as the rest of the package

    return {point.name: point for point in entry_points(group=GROUP)}
