"""``pnc-vol ls`` prints the tree of a file as h5py sees it.

Knows: groups, datasets, attributes. Does not know: which of the two formats it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from pnc_vol.api import display
from pnc_vol.api.opening import is_address
from pnc_vol.cli.arguments import Options, Parser, Verb, add_json
from pnc_vol.cli.errors import FAILED, each, expected, fail
from pnc_vol.cli.show import on_disk, painted, print_json, safe
from pnc_vol.convert import inspect_hdf5
from pnc_vol.convert.either import open_either
from pnc_vol.file.file_sets import is_set
from pnc_vol.system import REAL, exists, is_folder

__all__ = ["VERBS", "tree"]

#: Values of an attribute that are printed.
SHOWN = 8
WIDTH = 24


def _arguments(parser: Parser) -> None:
    parser.files(
        "files", metavar="FILE[/PATH]",
        help="NetCDF classic or HDF5 files, each with a path in it; - is standard input.",
    )  # fmt: skip
    parser.flag("-r", "--recursive", help="List everything below, by path.")
    parser.flag("-v", "--verbose", help="Also list attributes, dimensions and fill values.")
    add_json(parser)


def command(options: Options) -> int:
    """List the contents of files: names, shapes, types."""
    answers: list[dict[str, Any]] = []

    def one(file: str) -> None:
        if options.as_json:
            answers.append(_as_json(file, recursive=options.recursive))
            return
        if len(options.files) > 1:
            print(f"{'' if file is options.files[0] else chr(10)}{painted(safe(file), 'bold')}:")
        with _opened(file) as obj:
            for line in tree(obj, recursive=options.recursive, verbose=options.verbose):
                print(line)

    code = each(options.files, one)
    if options.as_json:
        print_json(answers)
    return code


@contextmanager
def _opened(file: str) -> Iterator[Any]:
    """Yield the object that is meant by ``FILE/PATH``."""
    path, inner = split(file)
    with expected(path, code=FAILED), on_disk(path) as there, open_either(there) as opened:
        yield _found(opened, inner, path) if inner else opened["/"]


def _found(file: Any, inner: str, path: str) -> Any:
    """Return an object of a file, or fail: there is none, or a link that leads to nothing."""
    try:
        return file[inner]
    except (KeyError, OSError):
        link = None
        with suppress(KeyError, OSError):
            link = file.get(inner, getlink=True)
        if not hasattr(link, "path"):
            fail(path, f"there is no object {inner!r}; see pnc-vol ls -r", FAILED)
        fail(path, f"{inner!r} is {link!r}, where nothing can be read; check that it is there", FAILED)


def _as_json(file: str, *, recursive: bool) -> dict[str, Any]:
    """Return the objects under one name with their attributes, by path, for JSON."""
    with _opened(file) as obj:
        found = [obj]
        if hasattr(obj, "keys"):
            names: list[str] = []
            if recursive:
                obj.visit(names.append)
            else:
                names = [name for name in obj if type(obj.get(name, getlink=True)).__name__ == "HardLink"]
            found += [obj[name] for name in names]
        return {"file": file, "objects": [_object(each) for each in found]}


def _object(obj: Any) -> dict[str, Any]:
    hidden = inspect_hdf5.bookkeeping(obj)
    names = [name for name in obj.attrs if name not in hidden]
    found = {"path": obj.name, "kind": inspect_hdf5.kind_of_object(obj)}
    if hasattr(obj, "shape"):
        axes = range(len(obj.shape or ()))
        found |= {
            "shape": obj.shape,
            "maxshape": obj.maxshape,
            "type": type_name(obj),
            "labels": [inspect_hdf5.axis_label(obj, axis) for axis in axes],
            "scales": [inspect_hdf5.axis_scales(obj, axis) for axis in axes],
        }
    return found | {"attributes": {name: _attribute(obj, name) for name in names}}


def _attribute(obj: Any, name: str) -> Any:
    try:
        return obj.attrs[name]
    except (OSError, TypeError, ValueError, KeyError) as error:
        return f"cannot be read: {error}"


def split(file: str) -> tuple[str, str]:
    """Return ``FILE/PATH`` as a file that exists and a path inside it.

    The longest leading part that is no directory counts as the file; an address is a file, whole.
    """
    if is_address(file):
        return file, ""

    parts = file.split("/")
    for n in range(len(parts), 0, -1):
        path = "/".join(parts[:n])
        if path and is_set(REAL, path):
            return path, "/".join(parts[n:])
        if path and exists(REAL, path):
            return (path, "/".join(parts[n:])) if n < len(parts) and not is_folder(REAL, path) else (file, "")
    return file, ""


def tree(obj: Any, *, recursive: bool, verbose: bool) -> Iterator[str]:
    """Yield the lines that describe an object, or a group's members."""
    if not hasattr(obj, "keys"):
        yield from _entry(str(obj.name).rpartition("/")[2], obj, verbose)
        return
    if verbose or recursive:
        yield f"{painted(f'{safe(obj.name):{WIDTH}}', 'blue')} Group"
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
            yield f"{painted(f'{safe(label):{WIDTH}}', 'blue')} Group"
            yield from _attributes(member, verbose)
            if recursive and not _cycle(member, group):
                yield from _members(member, recursive, verbose)
        else:
            yield from _entry(label, member, verbose)


def _cycle(member: Any, group: Any) -> bool:
    """Return whether a group is one of its own ancestors, as hard links in HDF5 may have it."""
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
    """Return ``{SCALAR}``, ``{NULL}`` or each axis with its limit: ``{10/Inf, 20}``."""
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
    """Return the type in words: ``float64``, ``string``, ``string[8]``, ``enum(int8)``; fields with their numpy
    types."""
    try:
        dtype = dataset.dtype
    except (TypeError, ValueError) as error:
        return f"type without a numpy equivalent ({safe(error)})"
    return safe(display.type_name(dtype) if dtype.names is None else str(dtype))


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
    """Return the value of an attribute, cut short."""
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


VERBS: dict[str, Verb] = {"ls": (_arguments, command)}
