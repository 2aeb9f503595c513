"""The registry has the names that ``layout=`` of a file takes.

Knows: names, entry points. Does not know: what a layout does.

Rules
-----
1. A file that is not canonical says which layout it has (`mapping.tree.Tree.layout`). What a user asks for has to agree
   with it: data that are looked for where they are not would read as zeros. A canonical file has no word of it.
2. Names are those of a `Registry`, with entry points in the group ``pnc_vol.layouts``: classes derived from `Layout`.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.errors import MissingPackageError, NotYetError
from pnc_vol.format.model import Header
from pnc_vol.layout.base import Layout
from pnc_vol.layout.canonical import CanonicalLayout
from pnc_vol.mapping.names import load_marker, marker_attr
from pnc_vol.plugins import Registry

__all__ = [
    "CANONICAL",
    "GROUP",
    "header_paths",
    "layout_class",
    "layout_of",
    "refuse_other_layouts",
    "register",
    "registered",
]

GROUP = "pnc_vol.layouts"

CANONICAL = CanonicalLayout.name


def _checked(name: str, layout: Any) -> type[Layout]:
    if not (isinstance(layout, type) and issubclass(layout, Layout)):
        raise TypeError(f"The layout {name!r} is {layout!r}; a class derived from pnc_vol.layout.base.Layout is needed")
    return layout


_registry = Registry[type[Layout]](GROUP, "layout", made=_checked)
_registry.register(CANONICAL, CanonicalLayout)


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
    _registry.register(name, layout)


def registered() -> list[str]:
    """Return all names that ``layout=`` takes now, sorted; those of other packages included.

    Examples
    --------
    >>> "canonical" in registered()
    True
    """
    return _registry.names()


def layout_class(name: str) -> type[Layout]:
    """Return the class of a name.

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
    return _registry.find(name)


def layout_of(path: str, asked: str, stated: str, *, empty: bool) -> type[Layout]:
    """Return the layout that a file is opened with: a file that is there has the one that it says.

    Parameters
    ----------
    path : str, for messages.
    asked : str, the option, or "".
    stated : str, what the file says; "" if it says nothing.
    empty : bool, it has no variables yet, so that it may have any layout if it says nothing.

    Raises
    ------
    MissingPackageError
        It has one that is not installed.

    Examples
    --------
    >>> layout_of("x.nc", "", "", empty=False).name
    'canonical'
    """
    try:
        return layout_class(stated or (asked if empty else "") or CANONICAL)
    except ValueError:
        raise MissingPackageError(
            f"{path}: its data have the layout {stated!r}, which no installed package provides (known: "
            f"{', '.join(registered())}); install the one that registers {stated!r} under the entry points {GROUP!r}"
        ) from None


def refuse_other_layouts(path: str, header: Header) -> None:
    """Refuse a file whose values are not where its header says, for programs that look for them there.

    Raises
    ------
    NotYetError
    """
    marker = marker_attr(header.attrs)
    layout = None if marker is None else load_marker(marker, path, []).get("layout")
    if isinstance(layout, str):
        raise NotYetError(
            f"{path}: its values are where the layout {layout!r} has them, and not where the header says; this works "
            "on ordinary NetCDF files: open it with pnc_vol.File and copy its objects to a new file"
        )


def header_paths(path: str, asked: str) -> list[str]:
    """Return the names under which the header of `path` may be, in the order in which they are to be tried.

    Of no stated layout these are names of layouts that were used; a set of several files is looked for by `FileSets`.
    """
    if asked:
        return [layout_class(asked).header_path(path)]
    return list(dict.fromkeys(layout.header_path(path) for layout in _registry.loaded()))
