"""`patch` puts this package, and modules that stand for h5py's, in the place of h5py.

Knows: ``sys.modules``, what h5py's modules hold (`lowlevel`). Does not know: files.

Rules
-----
1. `patch` never replaces an h5py that was imported, unless told to: objects of both would be mixed in one program.
2. Under `patch`, ``h5py`` has this package's own classes and functions; its ``__version__`` alone is h5py's, because
   programs compare it with the h5py that they need.
"""

from __future__ import annotations

import functools
import sys
import types
from contextlib import AbstractContextManager
from typing import Any

from pnc_vol.api import attrs, dataset, dims, filters, group, lowlevel, mappings, objects, views
from pnc_vol.api.lowlevel import Standin
from pnc_vol.api.module import version
from pnc_vol.errors import OperationError
from pnc_vol.mapping import dtypes
from pnc_vol.optional import note_real, real_modules

__all__ = ["patch", "submodule"]


class _H5py(Standin):
    """Stands for h5py: this package's names, and the version of the h5py whose interface it has."""

    def __init__(self, package: types.ModuleType) -> None:
        names = {name: value for name, value in package.__dict__.items() if not name.startswith("_")}
        super().__init__("h5py", {**names, "__all__": package.__all__, "__path__": []})
        self.__version__ = version.version
        self.__file__ = package.__file__
        self._package = package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'h5py' (pnc_vol) has no attribute {name!r}")
        try:
            return getattr(self._package, name)
        except AttributeError:
            raise AttributeError(f"module 'h5py' (pnc_vol) has no attribute {name!r}") from None

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(self._package)})


@functools.cache
def _standins() -> dict[str, types.ModuleType]:
    """Return the modules that stand for h5py and for the submodules that its users import."""
    package = sys.modules["pnc_vol"]
    found = lowlevel.contents()
    links = found.pop("_hl.links")
    contents: dict[str, dict[str, Any]] = {
        **found,
        "_hl": {},
        "_hl.attrs": {"AttributeManager": attrs.AttributeManager},
        "_hl.base": found["_hl.base"] | {name: getattr(m, name) for m in (dtypes, mappings) for name in m.__all__},
        "_hl.dataset": {
            "Dataset": dataset.Dataset, "AsStrView": views.AsStrView, "AsTypeView": views.AsTypeView,
            "FieldsView": views.FieldsView, "Empty": dtypes.Empty,
        },
        "_hl.datatype": {"Datatype": objects.Datatype},
        "_hl.dims": {"DimensionManager": dims.DimensionManager, "DimensionProxy": dims.DimensionProxy},
        "_hl.files": {"File": package.File},
        "_hl.group": {"Group": group.Group, **links},
    }  # fmt: skip
    modules: dict[str, types.ModuleType] = {"h5py": _H5py(package)}
    for name, names in contents.items():
        modules[f"h5py.{name}"] = lowlevel.Standin(f"h5py.{name}", names)
    modules |= {"h5py.filters": filters, "h5py._hl.filters": filters, "h5py.version": version}
    for name, made in modules.items():
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(modules[parent], leaf, made)
    return modules


def submodule(name: str) -> types.ModuleType:
    """Return a module of h5py that this package stands for, such as ``"h5t"``."""
    return _standins()[f"h5py.{name}"]


def patch(*, force: bool = False) -> AbstractContextManager[Any]:
    """Make ``import h5py`` give this package, in this process, from now on.

    Parameters
    ----------
    force : bool
        Also when the real h5py was imported; modules that hold it already keep it.

    Returns
    -------
    context manager
        Its exit, or ``undo()``, puts everything back as it was.

    Raises
    ------
    RuntimeError
        The real h5py was imported already.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.patch(force=True):
    ...     import h5py
    ...     h5py.File is pnc_vol.File
    True
    """
    present = sys.modules.get("h5py")
    if present is not None and not isinstance(present, Standin) and not force:
        raise OperationError(
            "patch(): the real h5py is imported already; call pnc_vol.patch() before anything imports h5py, "
            "or patch(force=True) if no object of it will be used"
        )
    return _Patch()


class _Patch(AbstractContextManager[Any]):
    """A patch that is in force from the moment it is made."""

    def __init__(self) -> None:
        self._saved = {name: made for name, made in sys.modules.items() if _is_h5py(name)}
        for name in self._saved:
            del sys.modules[name]
        if not isinstance(self._saved.get("h5py"), Standin):
            note_real(self._saved)
        sys.modules.update(_standins())

    def undo(self) -> None:
        """Put everything back as it was."""
        for name in [name for name in sys.modules if _is_h5py(name)]:
            del sys.modules[name]
        sys.modules.update(self._saved or real_modules())

    def __enter__(self) -> _Patch:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.undo()


def _is_h5py(name: str) -> bool:
    return name == "h5py" or name.startswith("h5py.")
