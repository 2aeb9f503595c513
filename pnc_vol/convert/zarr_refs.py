"""zarr finds each chunk of each variable in a NetCDF file by references in kerchunk's format.

Knows: headers, where variables lie, zarr's metadata (version 2). Does not know: zarr; kerchunk, which reads no CDF-5.

Rules
-----
1. A chunk is a range of the file as it is: big-endian, without filters. A record of a variable is one chunk; a variable
   without records is one, or is cut along its first axis into equal chunks of some MiB.
2. Small record variables (coordinates, mostly) are in the references themselves: a chunk for each number would be a
   request for each.
3. What the file does not hold has no reference: zarr then shows the fill value.
4. A variable is an array in the group of its dataset. What a dataset of several variables consists of (compounds, rows
   of varying length) are arrays under the variables' names, as NetCDF programs see them.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from pnc_vol.api.file import File
from pnc_vol.api.opening import is_address
from pnc_vol.convert.new_files import check_names, published
from pnc_vol.errors import DefinitionError, MissingPackageError
from pnc_vol.extents.model import Extents
from pnc_vol.format import model
from pnc_vol.format.model import CHAR, TYPES, Attr, Header, Var, attr_values
from pnc_vol.layout.registry import CANONICAL
from pnc_vol.mapping.names import MARKER
from pnc_vol.mapping.tree import GroupNode
from pnc_vol.system import REAL
from pnc_vol.system.full_io import write_whole

__all__ = ["references", "write_references"]

CHUNK = 16 << 20
"""Bytes of a chunk of a variable that is cut."""
INLINE = 32 << 10
"""Bytes of a record variable that is in the references themselves."""
_FILL, _ALL = "_FillValue", ".zmetadata"


def references(path: str | os.PathLike[str], *, url: str | None = None, inline: int = INLINE) -> dict[str, Any]:
    """Return the references of a file, by key.

    Parameters
    ----------
    path : path-like, or an address.
    url : str, optional
        Under which readers will find the file; by default the address, or the absolute path.
    inline : int
        Record variables of up to so many bytes are in the references themselves.

    Returns
    -------
    dict
        ``"x/.zarray"`` and its like are JSON text, ``"x/0.0"`` is ``[url, first byte, bytes]``.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is a set of subfiles, or has another layout: there its chunks are not contiguous.

    Examples
    --------
    >>> with File("refs.nc", "w") as f:
    ...     f["x"] = [1, 2, 3]
    >>> references("refs.nc", url="https://host/refs.nc")["x/0"]
    ['https://host/refs.nc', 108, 24]
    """
    name = os.fspath(path)
    with File(name) as f:
        session = f.id.handle.session
        if session.disk.layout.name != CANONICAL:
            text = f"the file has the layout {session.disk.layout.name!r}, in which chunks are scattered"
            raise DefinitionError(f"{name}: {text}; repack or replay it into one file of the canonical layout first")
        where = url or (name if is_address(name) else os.path.abspath(name))
        return _consolidated(dict(_Arrays(f, where, inline).entries()))


def write_references(
    path: str, target: str, *, url: str | None = None, inline: int = INLINE, overwrite: bool = False
) -> int:
    """Write the references of a file, as JSON, or, if the target's name ends so, as a folder of parquet files.

    Returns
    -------
    int
        References that were written.

    Raises
    ------
    FileExistsError
        The target exists, and `overwrite` is False.
    MissingPackageError
        Parquet needs fsspec, pandas, and pyarrow or fastparquet.
    OSError, ValueError
        As `references`.
    """
    check_names(path, target, overwrite=overwrite, system=REAL)
    found = references(path, url=url, inline=inline)
    if target.endswith((".parquet", ".parq")):
        _write_parquet(found, target)
    else:
        with published(target, overwrite=overwrite, system=REAL) as temporary:
            write_whole(REAL, temporary, json.dumps({"version": 1, "refs": found}).encode())
    return len(found)


def _consolidated(found: dict[str, Any]) -> dict[str, Any]:
    """Return the same, and in each group the metadata of all below: zarr lists nested groups of references by these
    alone."""
    metadata = {key: json.loads(value) for key, value in found.items() if key.rpartition("/")[2].startswith(".z")}
    for group in [key.removesuffix(".zgroup") for key in metadata if key.endswith(".zgroup")]:
        below = {key.removeprefix(group): value for key, value in metadata.items() if key.startswith(group)}
        found[group + _ALL] = json.dumps({"zarr_consolidated_format": 1, "metadata": below})
    return found


def _write_parquet(found: dict[str, Any], target: str) -> None:
    try:
        # Optional packages, for this one form of references.
        import fsspec
        from fsspec.implementations.reference import LazyReferenceMapper

        made = LazyReferenceMapper.create(target, fs=fsspec.filesystem("file"), record_size=100_000)
        # metadata first: from it the mapper knows how many chunks an array has
        for key in sorted(
            (key for key in found if not key.endswith(_ALL)),
            key=lambda key: (not key.rpartition("/")[2].startswith("."), key),
        ):
            value = found[key]
            made[key] = value if isinstance(value, list) else value.encode()
        made.flush()
    except ImportError as error:
        text = f'references in parquet need kerchunk and fastparquet ({error}): pip install "pnc-vol[refs]"'
        raise MissingPackageError(text) from error


class _Arrays:
    """The references to one file.

    Parameters
    ----------
    file : File
    url : str, of every reference.
    inline : int, as of `references`.
    """

    def __init__(self, file: File, url: str, inline: int) -> None:
        session = file.id.handle.session
        self.file, self.url, self.inline = file, url, inline
        self.driver, self.tree = session.disk.driver, session.defs.tree
        self.header: Header = session.disk.header
        self.uids: tuple[int, ...] = session.disk.layout.uids
        self.nbytes, self.stride = self.driver.size(), model.record_size(self.header)

    def entries(self) -> Iterator[tuple[str, Any]]:
        """Yield all keys with their values."""
        groups: list[str] = [""]
        self.file.visititems(lambda name, thing: groups.append(f"{name}/") if hasattr(thing, "keys") else None)
        for group in groups:
            attrs = self.file[group or "/"].attrs
            plain_attrs = {name: plain for name in attrs if (plain := _plain(attrs[name])) is not None}
            yield f"{group}.zgroup", json.dumps({"zarr_format": 2})
            yield f"{group}.zattrs", json.dumps(plain_attrs)
        taken: set[str] = set()
        for uid, var in zip(self.uids, self.header.vars, strict=True):
            node = self.tree.datasets[uid]
            held = isinstance(node.parent, GroupNode) and node.parent.children.get(node.name) is node
            name = node.path.strip("/") if held else var.name
            name = var.name if name in taken else name
            taken.add(name)
            yield from self._array(name, var)

    def _array(self, name: str, var: Var) -> Iterator[tuple[str, Any]]:
        header, dtype = self.header, TYPES[var.type].dtype
        shape, inner = model.shape(header, var), model.inner_bytes(header, var)
        chunks = list(shape)
        whole = b""
        if model.is_record(header, var):
            if 0 < inner * shape[0] <= self.inline:
                whole = self._records(var, inner, shape[0])
            else:
                chunks[0] = 1
        elif shape and inner > CHUNK and 0 not in shape:
            chunks[0] = _rows(shape[0], CHUNK * shape[0] // inner)
        attrs = {attr.name: plain for attr in var.attrs if (plain := _value(attr)) is not None}
        fill = attrs.pop(_FILL, None) if var.type != CHAR else None
        yield (
            f"{name}/.zarray",
            json.dumps(
                {
                    "zarr_format": 2,
                    "shape": shape,
                    "chunks": [max(1, n) for n in chunks],
                    "dtype": dtype.str,
                    "order": "C",
                    "compressor": None,
                    "filters": None,
                    "fill_value": _fill(fill),
                }
            ),
        )
        attrs.pop(MARKER, None)
        attrs.pop(_FILL, None)
        yield f"{name}/.zattrs", json.dumps({"_ARRAY_DIMENSIONS": [header.dims[i].name for i in var.dims], **attrs})
        rest = ".0" * (len(shape) - 1)
        if whole:
            yield f"{name}/0{rest}", "base64:" + base64.b64encode(whole).decode()
        elif 0 not in shape:
            of_record = model.is_record(header, var)
            nbytes = inner if of_record or not shape else inner // shape[0] * chunks[0]
            step = self.stride if of_record else nbytes
            for i in range(math.ceil(shape[0] / chunks[0]) if shape else 1):
                first = var.begin + i * step
                if first + nbytes <= self.nbytes:
                    yield f"{name}/{i}{rest}", [self.url, first, nbytes]

    def _records(self, var: Var, inner: int, n: int) -> bytes:
        """Return all values of a record variable, one record behind another; nothing if the file does not hold them
        all."""
        record = np.arange(n, dtype=np.int64)
        memory = np.zeros(n * inner, np.uint8)
        extents = Extents(var.begin + record * self.stride, np.full(n, inner, np.int64), record * inner)
        return memory.tobytes() if self.driver.read(extents, memory) == memory.nbytes else b""


def _rows(n: int, most: int) -> int:
    """Return the largest divisor of `n` up to `most`, so that the last chunk is as long as the others; at least 1."""
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return max(k for k in (*small, *(n // k for k in small)) if k <= max(1, most))


def _value(attr: Attr) -> Any:
    return _plain(attr.data.rstrip(b"\0") if attr.type == CHAR else attr_values(attr))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; None for what JSON, or zarr, does not have."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufSOU":
        shown = [_plain(one) for one in value.ravel().tolist()]
        if None in shown:
            return None
        return shown[0] if len(shown) == 1 else np.array(shown, object).reshape(value.shape).tolist()
    if isinstance(value, np.generic):
        return _plain(value.item())
    return value if isinstance(value, (str, int, float, bool)) else None


def _fill(value: Any) -> Any:
    """Return a fill value as zarr's metadata has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
