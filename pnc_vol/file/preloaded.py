"""A file of several ranks is opened with these modules loaded, as none may be loaded while ranks wait for each other.

Knows: the names of modules that ordinary work with an open file loads late. Does not know: what they do.

Rules
-----
1. A module that such work loads after the opening is a defect: `tests/mpi/test_loading.py` finds it.
2. What a module imports at its head comes with it, and is not named here. What only an option needs is loaded by the
   opening that has it.
"""

from __future__ import annotations

from pnc_vol.late import load

__all__ = ["load_all"]

_MODULES = """
    api.attrs api.dims api.fill_values api.linking api.scale_attrs api.views
    disk.existing disk.identity
    drivers.mmap_guard drivers.staged
    extents.blocks extents.decomposition extents.place extents.selection extents.subarrays
    file.drain file.filling file.held_ranges file.post file.resizing
    file.reads.composite_values file.reads.fetch file.reads.gathered
    exchange.aggregators exchange.two_phase flush.differences flush.failures flush.stream
    format.convert format.decode
    mapping.attribute_encoding mapping.conventions mapping.describe mapping.encoding mapping.links mapping.unflatten
    queue.spill
    system.two_threads
"""


def load_all() -> None:
    """Load them.

    Raises
    ------
    OSError, MemoryError, ImportError
        One cannot be loaded.
    """
    load(["json", "signal", "unicodedata", *(f"pnc_vol.{name}" for name in _MODULES.split())])
