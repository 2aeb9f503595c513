"""h5py's ``filters`` has the class that filter packages derive from; no filter can be applied.

Knows: filter numbers. Does not know: compression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pnc_vol.api.ignored_options import guess_chunks

__all__ = ["FilterRefBase", "Gzip", "decode", "encode", "guess_chunk"]

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
