"""Optional packages: one place that imports them, and one message that names the extra which installs them.

Knows: which extra of pnc_vol brings which package. Does not know: what the package is used for.

The core needs numpy alone. h5py, which brings an HDF5 library, is needed to read and write HDF5 files and for nothing
else: the types, references and link classes that programs see are this package's own.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from pnc_vol.errors import MissingPackageError

__all__ = ["require", "require_h5py"]


def require_h5py(purpose: str) -> ModuleType:
    """Import h5py, which pnc_vol itself does not need.

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
    return require("h5py", "hdf5", purpose)


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
