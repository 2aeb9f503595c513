"""Every Python that a program under ``pnc-vol run`` starts reads this: ``import h5py`` gives pnc_vol there, too.

``pnc-vol run`` puts this folder into ``PYTHONPATH``, so that Python imports this file when it starts: children of
`multiprocessing` that are spawned or come from a fork server, and programs that are started with ``sys.executable``.
Python reads nothing else of ours when it starts, but a ``.pth`` file in ``site-packages``: that would run in every
Python of the environment, for ever, and an editable installation has none.

Knows: Python's import system. Does not know: pnc_vol, which is loaded when h5py is first imported.

Rules
-----
1. A child that does not import h5py is started as fast as before: nothing of pnc_vol is loaded.
2. A ``sitecustomize`` of the environment's own is run as if this one were not there.
3. A Python that does not have pnc_vol keeps its h5py and says so: it writes HDF5.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds pnc_vol for h5py, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "h5py":
            return None
        sys.meta_path.remove(self)
        try:
            import pnc_vol
        except ImportError as error:
            print(f"pnc-vol run: h5py writes HDF5 in {sys.executable}, which has no pnc_vol ({error})", file=sys.stderr)
            return None
        pnc_vol.patch()
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        # Python takes the specification of a module that it finds loaded by now.
        sys.modules[fullname].__spec__ = spec
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return sys.modules["h5py"]

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is made already."""


def _install() -> None:
    sys.meta_path.insert(0, _Finder())
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    own = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if own is not None and own.loader is not None:
        made = importlib.util.module_from_spec(own)
        sys.modules["sitecustomize"] = made
        own.loader.exec_module(made)


_install()
