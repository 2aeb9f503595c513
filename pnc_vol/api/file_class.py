"""The class of `File`: what is called when a program calls ``File(...)``.

Knows: that a file may be one of HDF5. Does not know: how one is opened (`hdf5_files`, `opening`).
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import TYPE_CHECKING, Any

from pnc_vol.errors import NotCDFError

__all__ = ["FileClass"]


class FileClass(ABCMeta):
    """A class whose instance may turn out to be h5py's own `File`; see the option ``hdf5``."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            try:
                return super().__call__(*args, **keywords)
            except NotCDFError:
                from pnc_vol.api import hdf5_files

                found = hdf5_files.instead(cls, args, keywords)
                if found is None:
                    raise
                return found

        @property
        def __signature__(cls) -> inspect.Signature:
            found = inspect.signature(cls.__init__)
            return found.replace(parameters=list(found.parameters.values())[1:])
