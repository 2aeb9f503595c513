"""Chunks, filters and creation flags, which CDF does not have, are checked as h5py checks them, remembered and shown.

This module is h5py's ``filters``, too: it has the class that filter packages derive from; no filter can be applied.

Knows: h5py's rules for chunks, filters and creation flags, filter numbers. Does not know: the tree, files, compression.

Rules
-----
1. What h5py refuses is refused with the same builtin, so that a mistake shows up here too.
2. What was accepted is kept in `DatasetNode.ignored` and shown by the dataset's properties while the file is open.
3. One `PncVolWarning` per kind and process says that the option is not stored; a ported script runs on. Of several
   ranks the first one warns (`warn_of_storage`), since all create the same datasets.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from pnc_vol.errors import DefinitionError, OperationError
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.warn import warn_once

__all__ = [
    "FilterRefBase", "Gzip", "Storage", "check_storage", "chunks_of", "decode", "encode", "filters_of",
    "given_options", "guess_chunk", "warn_of_storage",
]  # fmt: skip

encode: tuple[str, ...] = ()
decode: tuple[str, ...] = ()


class FilterRefBase(Mapping[str, Any]):
    """Names a filter with its options; ``create_dataset(compression=...)`` takes one, and only remembers it.

    filter_id : int or None, HDF5's number of the filter.
    filter_options : tuple
    """

    filter_id: int | None = None
    filter_options: tuple[Any, ...] = ()

    def _as_keywords(self) -> dict[str, Any]:
        return {"compression": self.filter_id, "compression_opts": self.filter_options}

    def __getitem__(self, key: str) -> Any:
        return self._as_keywords()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._as_keywords())

    def __len__(self) -> int:
        return len(self._as_keywords())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FilterRefBase):
            return NotImplemented
        return (self.filter_id, self.filter_options) == (other.filter_id, other.filter_options)

    def __hash__(self) -> int:
        return hash((self.filter_id, self.filter_options))


class Gzip(FilterRefBase):
    """HDF5's own compression."""

    filter_id = 1

    def __init__(self, level: int = 4) -> None:
        self.filter_options = (level,)


def guess_chunk(shape: tuple[int, ...], maxshape: tuple[int | None, ...] | None, typesize: int) -> tuple[int, ...]:
    """Return a useful chunk shape, as ``create_dataset(chunks=True)`` has it."""
    return guess_chunks(shape, maxshape, typesize)


Shape = tuple[int, ...]

OPTIONS = frozenset(
    ("chunks", "compression", "compression_opts", "shuffle", "fletcher32", "scaleoffset", "track_times", "track_order",
     "fill_time", "allow_unknown_filter", "rdcc_nslots", "rdcc_nbytes", "rdcc_w0", "efile_prefix", "virtual_prefix",
     "dcpl", "dapl")
)  # fmt: skip
"""Keywords of ``create_dataset`` that are handled here."""
_OPTIONAL = OPTIONS.union(("maxshape", "fillvalue", "external", "decomposition", "dims"))

FILTER_IDS = {"gzip": 1, "shuffle": 2, "fletcher32": 3, "szip": 4, "scaleoffset": 6, "lzf": 32000}
CHUNK_BYTES = 1 << 20
"""Size that chunks are guessed to have at most."""


def given_options(options: dict[str, Any], *, tracked: bool) -> dict[str, Any]:
    """Return the keywords of ``create_dataset`` without those that are None, the default of each; others are told as
    wrong.

    tracked : bool, while ``get_config().track_order`` is set; None stands for False then, as in h5py.

    Examples
    --------
    >>> given_options({"fillvalue": None, "chunks": (2,), "chunk": None}, tracked=False)
    {'chunks': (2,), 'chunk': None}
    """
    found = {"track_order": True, **options} if tracked else options
    return {name: value for name, value in found.items() if value is not None or name not in _OPTIONAL}


def check_storage(
    shape: Shape | None, maxshape: tuple[int | None, ...] | None, dtype: np.dtype[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Check the storage options of a new dataset.

    Parameters
    ----------
    shape : tuple of int, or None for an empty dataset
    maxshape : tuple or None, checked by the caller
    dtype : dtype of the elements
    options : keywords out of `OPTIONS`

    Returns
    -------
    dict
        What is to be remembered; empty if nothing was asked for.

    Raises
    ------
    TypeError, ValueError
        As h5py does for the same keywords.
    """
    if not options:
        return {}
    compression, level = _compression(
        options.get("compression"), options.get("compression_opts"), bool(options.get("allow_unknown_filter"))
    )
    chunks = options.get("chunks")
    shuffle, fletcher32 = bool(options.get("shuffle")), bool(options.get("fletcher32"))
    scaleoffset = _scaleoffset(options.get("scaleoffset"), dtype, fletcher32) if shape else options.get("scaleoffset")
    filtered = compression is not None or shuffle or fletcher32 or scaleoffset is not None
    if not shape:
        if chunks or filtered:
            kind = "Empty" if shape is None else "Scalar"
            raise TypeError(f"{kind} datasets don't support chunk/filter options")
        chunks = None
    else:
        if chunks is False and (filtered or maxshape is not None):
            raise DefinitionError("Chunked format required for given storage options; leave chunks=False out")
        chunks = _chunks(chunks, shape, maxshape, dtype.itemsize)
        if chunks is None and (filtered or maxshape is not None):
            chunks = guess_chunks(shape, maxshape, dtype.itemsize)
        if compression == "szip" and chunks is not None and level[1] > prod(chunks):
            raise DefinitionError(f"szip's pixels per block {level[1]} are more than the elements of a chunk {chunks}")
    ignored: dict[str, Any] = {}
    if chunks is not None:
        ignored["chunks"] = list(chunks)
    if compression is not None:
        ignored["compression"], ignored["compression_opts"] = compression, level
    ignored |= {name: True for name, given in (("shuffle", shuffle), ("fletcher32", fletcher32)) if given}
    if scaleoffset is not None:
        ignored["scaleoffset"] = int(scaleoffset)
    _flags(options, ignored)
    return ignored


def _compression(compression: Any, level: Any, unknown: bool = False) -> tuple[str | int | None, Any]:
    """Name (or number) of the filter, and its setting."""
    if hasattr(compression, "filter_id"):
        return _named(compression.filter_id, tuple(compression.filter_options))
    if compression is None:
        if level is not None:
            raise TypeError("Compression method must be specified")
        return None, None
    if compression is True and level is not None:
        compression = "gzip"
    elif isinstance(compression, (int, np.integer)) and (compression is True or 0 <= compression < 10):
        if level is not None:
            raise TypeError("Conflict in compression options")
        compression, level = "gzip", 4 if compression is True else int(compression)
    if compression == "gzip":
        level = 4 if level is None else level
        if level not in range(10):
            raise DefinitionError(f"GZIP setting must be an integer from 0-9, not {level!r}")
        return "gzip", int(level)
    if compression == "lzf":
        if level is not None:
            raise DefinitionError("LZF compression filter accepts no options")
        return "lzf", None
    if compression == "szip":
        return "szip", _szip(level)
    if isinstance(compression, (int, np.integer)):
        if compression < 256 and compression not in FILTER_IDS.values() and not unknown:
            # below 256 are HDF5's own filters
            raise DefinitionError(f"Unknown compression filter number: {compression}")
        return int(compression), level
    raise DefinitionError(f'Compression filter "{compression}" is unavailable; one of gzip, lzf, szip is known')


def _named(number: int, options: tuple[Any, ...]) -> tuple[str | int, Any]:
    """Return a filter that was given by HDF5's number, as an object such as hdf5plugin's."""
    name = {1: "gzip", 4: "szip", 32000: "lzf"}.get(number)
    if name is None:
        return int(number), options
    return name, None if name == "lzf" else options[0] if len(options) == 1 else options


def _szip(level: Any) -> tuple[str, int]:
    message = "SZIP options must be a 2-tuple ('ec'|'nn', even integer 0-32)"
    try:
        method, pixels = ("nn", 8) if level is None else level
    except TypeError:
        raise TypeError(message) from None
    if method not in ("ec", "nn") or not 0 < pixels <= 32 or pixels % 2:
        raise DefinitionError(message)
    return method, pixels


def _scaleoffset(value: Any, dtype: np.dtype[Any], fletcher32: bool) -> int | None:
    if value is None:
        return None
    if value < 0:
        raise DefinitionError("scale factor must be >= 0")
    if dtype.kind == "f":
        if value is True:
            raise DefinitionError("integer scaleoffset must be provided for floating point types")
    elif dtype.kind not in "iu":
        raise TypeError("scale/offset filter only supported for integer and floating-point types")
    if fletcher32:
        raise DefinitionError("fletcher32 cannot be used with potentially lossy scale/offset filter")
    return 0 if value is True else int(value)


def _chunks(chunks: Any, shape: Shape, maxshape: tuple[int | None, ...] | None, itemsize: int) -> Shape | None:
    if chunks is None:
        return None
    if chunks is True:
        return guess_chunks(shape, maxshape, itemsize)
    if chunks is False:
        raise TypeError("'chunks' argument must be None or a sequence object")
    if isinstance(chunks, (int, np.integer)):
        chunks = (chunks,)
    if isinstance(chunks, (str, bytes)):
        raise DefinitionError(f"chunks={chunks!r}: a chunk shape must be a tuple of integers")
    chunks = tuple(operator.index(n) for n in chunks)
    if len(chunks) != len(shape):
        raise DefinitionError("'chunks' must have same rank as dataset shape")
    if any(n < 0 for n in chunks):
        raise OverflowError(f"chunks={chunks}: a chunk dimension cannot be negative")
    if 0 in chunks:
        raise DefinitionError(f"chunks={chunks}: All chunk dimensions must be positive")
    limits = shape if maxshape is None else maxshape
    if any(limit is not None and n > limit for n, limit in zip(chunks, limits, strict=True)):
        raise DefinitionError(
            f"Chunk shape must not be greater than data shape in any dimension. {chunks} is not compatible with {shape}"
        )
    return tuple(chunks)


def guess_chunks(shape: Shape, maxshape: tuple[int | None, ...] | None, itemsize: int) -> Shape:
    """Return a chunk shape of at most about 1 MiB: the longest axis is halved until it fits.

    An unlimited axis without elements counts as 1024, as in h5py.
    """
    chunks = [n or 1024 for n in shape]
    while prod(chunks) * max(1, itemsize) > CHUNK_BYTES and max(chunks) > 1:
        at = chunks.index(max(chunks))
        chunks[at] = -(-chunks[at] // 2)
    return tuple(chunks)


def _flags(options: Mapping[str, Any], ignored: dict[str, Any]) -> None:
    """Check the keywords that are only checked or noted."""
    times, order, fill_time = options.get("track_times"), options.get("track_order"), options.get("fill_time")
    if times not in (True, False, None):
        raise TypeError("track_times must be either True or False")
    if order not in (True, False, None):
        raise TypeError("track_order must be either True or False")
    if fill_time not in (None, "alloc", "never", "ifset"):
        raise DefinitionError(
            f"fill_time must be one of the following choices: 'alloc', 'never' or 'ifset', but it is {fill_time}."
        )
    for name, given in (("track_times", times), ("track_order", order)):
        if given:
            ignored[name] = True
    if fill_time is not None:
        ignored["fill_time"] = fill_time
    ignored |= {name: options[name] for name in ("efile_prefix", "virtual_prefix") if options.get(name)}


class CopiedChunks(tuple[int, ...]):
    """Chunks of a dataset that another one is made like: nobody asked for them."""

    __slots__ = ()


def warn_of_storage(ignored: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Warn, once per kind, of options that are not stored.

    Parameters
    ----------
    ignored : what `check_storage` made of the options
    options : the keywords of ``create_dataset``
    """
    for kind in ("compression", "shuffle", "fletcher32", "scaleoffset", "track_times"):
        if kind in ignored:
            warn_once(kind, "CDF cannot hold this storage option; it is remembered while the file is open, not stored")
    chunks = options.get("chunks")
    if chunks is not None and not isinstance(chunks, CopiedChunks):
        warn_once("chunks", "CDF has no chunks; the shape is remembered while the file is open, not stored")


# ----------------------------------------------------------------------------------------- what is shown


def chunks_of(node: DatasetNode) -> Shape | None:
    """Return the chunk shape that was asked for; a guess for a dataset that can grow; else None."""
    chunks = node.ignored.get("chunks")
    if chunks is not None:
        return tuple(chunks)
    if node.away is not None:
        return None
    if node.maxshape is not None and node.shape is not None:
        return guess_chunks(node.shape, node.maxshape, node.element.itemsize)
    return None


def filters_of(node: DatasetNode) -> dict[str, int]:
    """Return the names and numbers of the filters that were asked for, in the order HDF5 would apply them."""
    ignored = node.ignored
    names: list[Any] = [name for name in ("scaleoffset", "shuffle") if name in ignored]
    if "compression" in ignored:
        names.append(ignored["compression"])
    if "fletcher32" in ignored:
        names.append("fletcher32")
    return {("deflate" if name == "gzip" else str(name)): FILTER_IDS.get(name, name) for name in names}


class Storage:
    """The part of `Dataset` that shows chunks, filters and other storage that was asked for; CDF has none of it."""

    _id: Any

    @property
    def _node(self) -> DatasetNode:
        return self._id.check_node()  # type: ignore[no-any-return]

    @property
    def chunks(self) -> Shape | None:
        """The chunk shape that was asked for (CDF has none), or a useful one for a dataset that can grow."""
        return chunks_of(self._node)

    @property
    def compression(self) -> str | None:
        """The compression that was asked for; nothing is compressed."""
        name = self._node.ignored.get("compression")
        return name if name is None or isinstance(name, str) else "unknown"

    @property
    def compression_opts(self) -> Any:
        """The setting that was asked for."""
        return self._node.ignored.get("compression_opts")

    @property
    def shuffle(self) -> bool:
        """Whether it was asked for."""
        return "shuffle" in self._node.ignored

    @property
    def fletcher32(self) -> bool:
        """Whether it was asked for."""
        return "fletcher32" in self._node.ignored

    @property
    def scaleoffset(self) -> int | None:
        """The setting that was asked for; values are stored whole."""
        return self._node.ignored.get("scaleoffset")

    @property
    def filter_ids(self) -> tuple[int, ...]:
        """HDF5's numbers of the filters that were asked for."""
        return tuple(filters_of(self._node).values())

    @property
    def filter_names(self) -> tuple[str, ...]:
        """Names of the filters that were asked for."""
        return tuple(filters_of(self._node))

    @property
    def external(self) -> list[tuple[str, int, int]] | None:
        """Name, offset and size of each raw file that holds a part of the data; None if they are in this file."""
        oid: Any = self._id
        return None if oid.check_node().away is None else oid.external()

    @property
    def is_virtual(self) -> bool:
        """Whether the data are those of other datasets; see `Group.create_virtual_dataset`."""
        away = self._node.away
        return away is not None and away.sources is not None

    def virtual_sources(self) -> list[Any]:
        """Return what a virtual dataset is made of: ``vspace``, ``file_name``, ``dset_name`` and ``src_space`` of each
        source.

        Raises
        ------
        RuntimeError
            It is not virtual.
        """
        oid: Any = self._id
        if not self.is_virtual:
            raise OperationError("Not a virtual dataset")
        return oid.sources()  # type: ignore[no-any-return]

    def iter_chunks(self, sel: Any = None) -> Iterator[tuple[slice, ...]]:
        """Return the pieces of `chunks` that cover the dataset, or the selection, as tuples of slices.

        Parameters
        ----------
        sel : slice or tuple of slice, optional

        Raises
        ------
        TypeError
            `chunks` is None.
        ValueError
            The selection is not within the dataset.

        Examples
        --------
        >>> with pnc_vol.File("chunks.nc", "w") as f:
        ...     x = f.create_dataset("x", (4,), "i4", maxshape=(8,))
        ...     list(x.iter_chunks())
        [(slice(0, 4, 1),)]
        """
        shape, chunks = self._node.shape or (), self.chunks
        if not chunks:
            raise TypeError("Chunked dataset required")
        wanted = [slice(None)] * len(shape) if sel is None else [sel] if isinstance(sel, (slice, int)) else list(sel)
        if len(wanted) != len(shape):
            raise DefinitionError("Invalid selection - selection region must have same rank as dataset")
        axes = []
        for part, dim, chunk in zip(wanted, shape, chunks, strict=True):
            start, stop = (part, part + 1) if isinstance(part, int) else (part.start or 0, part.stop or dim)
            if not 0 <= start < stop <= dim:
                raise DefinitionError("Invalid selection - selection region must be within dataset space")
            first = range(start - start % chunk, stop, chunk)
            axes.append([slice(max(start, at), min(stop, at + chunk), 1) for at in first])
        return itertools.product(*axes)
