"""A module is loaded when something of it is used for the first time.

Knows: the names of modules. Does not know: what they do.

Rules
-----
1. A module is loaded late if a serial program that opens, writes and reads plain files never needs it: each file that
   is loaded takes time, and with ten thousand ranks a call to a metadata server. What one function needs, or few, is
   imported in these; `late` is for a module that many functions of another one need. Modules of hot functions are not
   loaded late.
2. Type checkers and the tests of the layers see an ordinary import beside it, which is for them alone::

       if TYPE_CHECKING:
           from pnc_vol.disk import existing
       else:
           existing = late("pnc_vol.disk.existing")

3. A file of several ranks is opened with all of them that it may need (`pnc_vol.file.opening`): a rank that
   cannot load a module, since it has no descriptor or no memory left, would otherwise fail alone between two calls in
   which ranks meet.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["late"]


class _Late:
    """Stands for a module: asks the module for each attribute."""

    __slots__ = ("_found", "_module")

    def __init__(self, module: str) -> None:
        self._module = module
        self._found: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._found is None:
            self._found = importlib.import_module(self._module)
        return getattr(self._found, name)


def late(module: str) -> Any:
    """Return a module that is loaded when an attribute of it is asked for.

    Examples
    --------
    >>> late("pnc_vol.errors").FormatError.__name__
    'FormatError'
    """
    return _Late(module)
