"""Names of h5py that exist here so that code can mention them, and refuse by name when they are used.

Knows: nothing else. Does not know: files.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.errors import NotYetError

__all__ = [
    "Datatype",
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


class Datatype(_Absent):
    """A named (committed) type; making one raises `NotYetError`."""

    _instead = "give the dtype where it is used"


class VirtualLayout(_Absent):
    """The layout of a virtual dataset; making one raises `NotYetError`."""

    _instead = "CDF has no virtual datasets; copy the sources into one dataset"


class VirtualSource(_Absent):
    """A source of a virtual dataset; making one raises `NotYetError`."""

    _instead = "CDF has no virtual datasets; copy the sources into one dataset"


def register_driver(name: str, set_fapl: Any) -> None:
    """Not supported: HDF5's drivers have no place here.

    Raises
    ------
    NotYetError
        Always.
    """
    raise NotYetError("register_driver takes drivers of HDF5; use the entry points pnc_vol.drivers for one of ours")


def unregister_driver(name: str) -> None:
    """Not supported.

    Raises
    ------
    NotYetError
        Always.
    """
    raise NotYetError("unregister_driver takes drivers of HDF5; use the entry points pnc_vol.drivers for one of ours")


def registered_drivers() -> frozenset[str]:
    """The words that ``File(driver=...)`` takes."""
    from pnc_vol.drivers.stack import registered

    return frozenset(registered()) | {"sec2", "stdio", "core"}
