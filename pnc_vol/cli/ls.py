"""``pnc-vol ls``: the tree of a file as h5py sees it.

Knows: groups, datasets, attributes. Does not know: which of the two formats it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from pnc_vol.api.arguments import is_address
from pnc_vol.cli.show import FAILED, expected, fail, safe
from pnc_vol.interop import inspect_hdf5
from pnc_vol.interop.hdf5 import open_either
from pnc_vol.layout.subfiles import names_set
from pnc_vol.mapping.special import check_enum_dtype, check_string_dtype
from pnc_vol.system import REAL, exists, is_folder

__all__ = ["command", "tree"]

#: Values of an attribute that are printed.
SHOWN = 8
WIDTH = 24


def command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE[/PATH]", help="A NetCDF classic or HDF5 file, and a path in it.", show_default=False
        ),
    ],
    recursive: Annotated[bool, typer.Option("-r", "--recursive", help="List everything below, by path.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Also list attributes, dimensions and fill values.")
    ] = False,
) -> None:
    """List the contents of a file: names, shapes, types."""

    path, inner = split(file)
    with expected(path, code=FAILED), open_either(path) as opened:
        if inner and inner not in opened:
            fail(path, f"there is no object {inner!r}; see pnc-vol ls -r", FAILED)
        for line in tree(opened[inner or "/"], recursive=recursive, verbose=verbose):
            print(line)


def split(file: str) -> tuple[str, str]:
    """``FILE/PATH`` as a file that exists and a path inside it.

    The longest leading part that is no directory counts as the file; an address is a file, whole.
    """
    if is_address(file):
        return file, ""

    parts = file.split("/")
    for n in range(len(parts), 0, -1):
        path = "/".join(parts[:n])
        if path and names_set(REAL, path):
            return path, "/".join(parts[n:])
        if path and exists(REAL, path):
            return (path, "/".join(parts[n:])) if n < len(parts) and not is_folder(REAL, path) else (file, "")
    return file, ""


def tree(obj: Any, *, recursive: bool, verbose: bool) -> Iterator[str]:
    """Lines that describe an object, or a group's members."""
    if not hasattr(obj, "keys"):
        yield from _entry(str(obj.name).rpartition("/")[2], obj, verbose)
        return
    if verbose or recursive:
        yield f"{safe(obj.name):{WIDTH}} Group"
        yield from _attributes(obj, verbose)
    yield from _members(obj, recursive, verbose)


def _members(group: Any, recursive: bool, verbose: bool) -> Iterator[str]:
    for name in group:
        label = f"{group.name.rstrip('/')}/{name}" if recursive else name
        try:
            link = group.get(name, getlink=True)
            if type(link).__name__ != "HardLink":
                yield f"{safe(label):{WIDTH}} {safe(repr(link))}"
                continue
            member = group[name]
        except (KeyError, OSError, TypeError) as error:
            yield f"{safe(label):{WIDTH}} cannot be opened: {safe(error)}"
            continue
        if hasattr(member, "keys"):
            yield f"{safe(label):{WIDTH}} Group"
            yield from _attributes(member, verbose)
            if recursive and not _cycle(member, group):
                yield from _members(member, recursive, verbose)
        else:
            yield from _entry(label, member, verbose)


def _cycle(member: Any, group: Any) -> bool:
    """Whether a group is one of its own ancestors, as hard links in HDF5 may have it."""
    path = str(group.name)
    while True:
        if group.file[path or "/"] == member:
            return True
        if path in ("", "/"):
            return False
        path = path.rpartition("/")[0]


def _entry(label: str, obj: Any, verbose: bool) -> Iterator[str]:
    if not hasattr(obj, "shape"):
        yield f"{safe(label):{WIDTH}} Type {safe(obj.dtype)}"
        return
    yield f"{safe(label):{WIDTH}} Dataset {_extent(obj)} {type_name(obj)}"
    if verbose:
        yield from _details(obj)
    yield from _attributes(obj, verbose)


def _extent(dataset: Any) -> str:
    """``{SCALAR}``, ``{NULL}`` or each axis with its limit: ``{10/Inf, 20}``."""
    if dataset.shape is None:
        return "{NULL}"
    if dataset.shape == ():
        return "{SCALAR}"
    limits = dataset.maxshape or dataset.shape
    axes = [
        f"{n}" if n == limit else f"{n}/{'Inf' if limit is None else limit}"
        for n, limit in zip(dataset.shape, limits, strict=True)
    ]
    return "{" + ", ".join(axes) + "}"


def type_name(dataset: Any) -> str:
    """The type in words: ``float64``, ``string``, ``string[8]``, ``enum(int8)``."""

    try:
        dtype = dataset.dtype
    except (TypeError, ValueError) as error:
        return f"type without a numpy equivalent ({safe(error)})"
    info = check_string_dtype(dtype)
    if info is not None:
        return "string" if info.length is None else f"string[{info.length}]"
    if check_enum_dtype(dtype) is not None:
        return f"enum({safe(dtype.name)})"
    return safe(dtype.name if dtype.names is None else str(dtype))


def _details(dataset: Any) -> Iterator[str]:

    if (scale := inspect_hdf5.scale_name(dataset)) is not None:
        yield f"    dimension scale {safe(repr(scale)) if scale else ''}".rstrip()
    for axis in range(len(dataset.shape or ())):
        label, scales = inspect_hdf5.axis_label(dataset, axis), inspect_hdf5.axis_scales(dataset, axis)
        if label or scales:
            yield f"    axis {axis}: {safe(', '.join(filter(None, [label, *scales])))}"
    if (fill := inspect_hdf5.chosen_fill(dataset)) is not None:
        yield f"    fill value {safe(fill)}"
    if inspect_hdf5.is_hdf5(dataset):
        if options := inspect_hdf5.storage_options(dataset):
            yield f"    {safe(options)}"
    else:
        yield f"    variable {safe(dataset.id.node.cdf_name)}"


def _attributes(obj: Any, verbose: bool) -> Iterator[str]:
    if not verbose:
        return

    hidden = inspect_hdf5.bookkeeping(obj)
    for name in obj.attrs:
        if name not in hidden:
            yield f"    @{safe(name)} = {_shown(obj, name)}"


def _shown(obj: Any, name: str) -> str:
    """The value of an attribute, cut short."""
    import numpy as np

    try:
        value = obj.attrs[name]
    except (OSError, TypeError, ValueError, KeyError) as error:
        return f"cannot be read: {safe(error)}"
    if isinstance(value, (str, bytes)):
        text = repr(value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value)
        return safe(text if len(text) <= 200 else text[:200] + "...")
    if type(value).__name__ == "Empty":
        return f"empty {value.dtype}"
    array = np.asarray(value)
    values = ", ".join(repr(v) if isinstance(v, (str, bytes)) else str(v) for v in array.flat[:SHOWN])
    more = f", ... {array.size} values" if array.size > SHOWN else ""
    brackets = f"[{values}{more}]" if array.shape else values
    return safe(f"{brackets} {array.dtype.name if array.dtype.kind != 'O' else ''}".rstrip())
