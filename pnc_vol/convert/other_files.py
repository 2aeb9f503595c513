"""Which values of an HDF5 file are in other files.

Knows: h5py's creation properties: external storage, virtual sources. Does not know: what is done about it.

Rule: nothing here opens another file, asks for a shape, or follows a link.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.convert import inspect_hdf5

__all__ = ["outside"]


def outside(dataset: Any) -> str:
    """The other files that hold values of a dataset, in words; empty if all are in the dataset's own file.

    HDF5 keeps values in other files as external storage, and shows those of other datasets as virtual ones. Reading the
    values, and even asking for the shape of a virtual dataset, opens these files, wherever they are.
    """
    return _outside(dataset.file, dataset.id, set()) if inspect_hdf5.is_hdf5(dataset) else ""


def _outside(file: Any, oid: Any, seen: set[Any]) -> str:
    import h5py

    plist = oid.get_create_plist()
    files = [plist.get_external(i)[0].decode("utf-8", "replace") for i in range(plist.get_external_count())]
    if files:
        return f"external storage, in {_some(files)}"
    if plist.get_layout() != h5py.h5d.VIRTUAL:
        return ""
    seen.add(inspect_hdf5.identity_of(oid))
    sources = [(plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)) for i in range(plist.get_virtual_count())]
    files = [name for name, _ in sources if name != "."]
    if files:
        return f"virtual, with values from {_some(files)}"
    for _, name in sources:
        path = name.replace("%%", "%")
        if "%" in name.replace("%%", "") or not _only_hard(file, path):
            return f"virtual, with values from what {name!r} stands for"
        found = h5py.h5o.open(file.id, path.encode("utf-8", "surrogateescape")) if path in file else None
        if isinstance(found, h5py.h5d.DatasetID) and inspect_hdf5.identity_of(found) not in seen:
            there = _outside(file, found, seen)
            if there:
                return there
    return ""


def _only_hard(file: Any, path: str) -> bool:
    """Whether no step of a path is a soft or an external link."""
    import h5py

    steps = [step for step in path.split("/") if step and step != "."]
    for n in range(1, len(steps) + 1):
        link = file.get("/" + "/".join(steps[:n]), getlink=True)
        if link is None:
            return True
        if not isinstance(link, h5py.HardLink):
            return False
    return True


def _some(names: list[str]) -> str:
    """The first of several names, each once."""
    different = list(dict.fromkeys(names))
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return ", ".join(map(repr, different[:3])) + more
