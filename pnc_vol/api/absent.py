"""Names of h5py that exist here so that code can mention them, and refuse by name when they are used.

Knows: nothing else. Does not know: files.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.errors import NotYetError

__all__ = [
    "VirtualLayout",
    "VirtualSource",
    "register_driver",
    "registered_drivers",
    "unregister_driver",
]  # fmt: skip


class _Absent:
    _instead = ""

    def __init__(self, *args: Any, **kwds: Any) -> None:
        raise NotYetError(f"{type(self).__name__} is not supported; {self._instead}")


class VirtualLayout(_Absent):
    """The layout of a virtual dataset; making one raises `NotYetError`."""

    _instead = "CDF has no virtual datasets; copy the sources into one dataset"


class VirtualSource(_Absent):
    """A source of a virtual dataset; making one raises `NotYetError`."""

    _instead = "CDF has no virtual datasets; copy the sources into one dataset"


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
    from pnc_vol.drivers.stack import registered

    return frozenset(registered()) | {"sec2", "stdio", "core"} | _foreign
