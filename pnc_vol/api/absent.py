"""Drivers of HDF5 that a program registers: noted, and refused by name when a file is opened with one.

Knows: the words for drivers. Does not know: files.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.drivers.stack import registered

__all__ = ["register_driver", "registered_drivers", "unregister_driver"]


_foreign: set[str] = set()
"""Names of drivers of HDF5 that a program registered; opening a file with one is refused by name."""


def register_driver(name: str, set_fapl: Any) -> None:
    """Note the name of a driver of HDF5, for programs that do so when they start; none can carry a CDF file.

    A driver of ours is registered by the entry points ``pnc_vol.drivers``.
    """
    _foreign.add(name)


def unregister_driver(name: str) -> None:
    """Forget what `register_driver` noted.

    Raises
    ------
    KeyError
        The name is not known.
    """
    _foreign.remove(name)


def registered_drivers() -> frozenset[str]:
    """The words that ``File(driver=...)`` takes, and those that were noted."""
    return frozenset(registered()) | {"sec2", "stdio", "core"} | _foreign
