"""``register_driver`` notes drivers of HDF5; a file that is opened with one is refused.

Knows: the words for drivers. Does not know: files.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.drivers.stack import registered

__all__ = ["register_driver", "registered_drivers", "unregister_driver"]


_foreign: set[str] = set()
"""Names of drivers of HDF5 that a program registered; opening a file with one is refused by name."""


def register_driver(name: str, set_fapl: Any) -> None:
    """Note the name of a driver of HDF5, for programs that register one when they start.

    No driver of HDF5 can read or write a CDF file; `File` refuses it by name. A driver of pnc_vol is registered by the
    entry points ``pnc_vol.drivers``.

    Parameters
    ----------
    name : str
    set_fapl : callable
        Not used.
    """
    _foreign.add(name)


def unregister_driver(name: str) -> None:
    """Remove a name that `register_driver` noted.

    Parameters
    ----------
    name : str

    Raises
    ------
    KeyError
        The name is not known.
    """
    _foreign.remove(name)


def registered_drivers() -> frozenset[str]:
    """Return the driver names that ``File(driver=...)`` takes, and those that were registered."""
    return frozenset(registered()) | {"sec2", "stdio", "core"} | _foreign
