"""This is the only place that imports optional packages; its message names the extra that installs a missing one.

Knows: which extra of pnc_vol brings which package. Does not know: what the package is used for.

The core needs numpy alone. h5py, which brings an HDF5 library, is needed to read and write HDF5 files and for nothing
else: the types, references and link classes that programs see are this package's own.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import threading
from collections.abc import Mapping
from types import ModuleType

from pnc_vol.errors import MissingPackageError

__all__ = ["is_patched", "note_real", "real_modules", "require", "require_h5py", "take_h5py_out"]


def require_h5py(purpose: str) -> ModuleType:
    """Import the real h5py, which pnc_vol itself does not need; also while ``h5py`` is this package (`pnc_vol.patch`).

    Parameters
    ----------
    purpose : str
        What it is needed for, as the beginning of the message: ``"Reading in.h5"``.

    Returns
    -------
    module
        h5py.

    Raises
    ------
    MissingPackageError
        h5py is not installed; it is an ImportError.
    """
    return _beside_patch(purpose) if is_patched() else require("h5py", "hdf5", purpose)


def require(package: str, extra: str, purpose: str) -> ModuleType:
    """Import a package that an extra of pnc_vol installs.

    Parameters
    ----------
    package, extra : str
    purpose : str
        What it is needed for, as the beginning of the message.

    Raises
    ------
    MissingPackageError
        It is not installed; it is an ImportError.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackageError(f'{purpose} needs {package}: pip install "pnc-vol[{extra}]"', name=package) from error


# ------------------------------------------------------------------------------- the real h5py beside `pnc_vol.patch`

_BESIDE = "_h5py_beside_pnc_vol"
"""The package that the modules of the real h5py are in, while ``h5py`` is this package."""
_beside: dict[str, ModuleType] = {}
"""The modules of the real h5py that were put there, by their own names."""
_lock = threading.RLock()


def is_patched() -> bool:
    """Return whether ``h5py`` is this package in this process; see `pnc_vol.patch`."""
    return "_package" in getattr(sys.modules.get("h5py"), "__dict__", ())


def real_modules() -> dict[str, ModuleType]:
    """Return the modules of the real h5py that were loaded beside a patch: to be ``h5py`` again when the patch is
    undone."""
    return dict(_beside)


def note_real(modules: Mapping[str, ModuleType]) -> None:
    """Note the modules of a real h5py that a patch has replaced."""
    _beside.update(modules)


def _beside_patch(purpose: str) -> ModuleType:
    """Return the real h5py, while ``h5py`` is this package.

    Its modules import one another when their functions run (``from . import attrs``), and would find ours: they are
    given another package, in which they find their own.

    Raises
    ------
    MissingPackageError
        It is not installed.
    """
    with _lock:
        if not _beside:
            try:
                _beside.update(_imported())
            except ImportError as error:
                raise MissingPackageError(f'{purpose} needs h5py: pip install "pnc-vol[hdf5]"', name="h5py") from error
        if _BESIDE not in sys.modules:
            for name, module in _beside.items():
                alias = _BESIDE + name.removeprefix("h5py")
                spec = importlib.machinery.ModuleSpec(alias, None, is_package=hasattr(module, "__path__"))
                module.__spec__, module.__package__ = spec, spec.parent
                sys.modules[alias] = module
        return _beside["h5py"]


def _imported() -> dict[str, ModuleType]:
    """Return the modules of the real h5py, imported in the place of ours for a moment."""
    ours = take_h5py_out()
    try:
        importlib.import_module("h5py")
    finally:
        real = take_h5py_out()
        sys.modules.update(ours)
    return real


def take_h5py_out() -> dict[str, ModuleType]:
    """Return what is ``h5py`` in this process, with its submodules, and take it out of ``sys.modules``."""
    names = [name for name in sys.modules if name == "h5py" or name.startswith("h5py.")]
    return {name: sys.modules.pop(name) for name in names}
