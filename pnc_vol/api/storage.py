"""A dataset's storage options: what was asked for, though CDF has none of it.

Knows: what `echo` remembers. Does not know: data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pnc_vol.api import echo
from pnc_vol.api.objects import HLObject
from pnc_vol.errors import OperationError
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["Storage"]

Shape = tuple[int, ...]


class Storage(HLObject):
    """The part of `Dataset` that speaks of chunks, filters and places outside the file."""

    @property
    def _node(self) -> DatasetNode:
        return self._id.check_node()  # type: ignore[no-any-return]

    @property
    def chunks(self) -> Shape | None:
        """The chunk shape that was asked for (CDF has none), or a useful one for a dataset that can grow."""
        return echo.chunks_of(self._node)

    @property
    def compression(self) -> str | None:
        """The compression that was asked for; nothing is compressed."""
        name = self._node.echo.get("compression")
        return name if name is None or isinstance(name, str) else "unknown"

    @property
    def compression_opts(self) -> Any:
        """The setting that was asked for."""
        return self._node.echo.get("compression_opts")

    @property
    def shuffle(self) -> bool:
        """Whether it was asked for."""
        return "shuffle" in self._node.echo

    @property
    def fletcher32(self) -> bool:
        """Whether it was asked for."""
        return "fletcher32" in self._node.echo

    @property
    def scaleoffset(self) -> int | None:
        """The setting that was asked for; values are stored whole."""
        return self._node.echo.get("scaleoffset")

    @property
    def filter_ids(self) -> tuple[int, ...]:
        """HDF5's numbers of the filters that were asked for."""
        return tuple(echo.filters_of(self._node).values())

    @property
    def filter_names(self) -> tuple[str, ...]:
        """Names of the filters that were asked for."""
        return tuple(echo.filters_of(self._node))

    @property
    def external(self) -> None:
        """None: data are never in other files."""
        self._check()

    @property
    def is_virtual(self) -> bool:
        """False."""
        self._check()
        return False

    def virtual_sources(self) -> Any:
        """Not for this dataset.

        Raises
        ------
        RuntimeError
            Always.
        """
        raise OperationError("Not a virtual dataset")

    def iter_chunks(self, sel: Any = None) -> Iterator[tuple[slice, ...]]:
        """The pieces of `chunks` that cover the dataset, or the selection, as tuples of slices.

        Raises
        ------
        TypeError
            `chunks` is None.
        ValueError
            The selection is not within the dataset.
        """
        return echo.iter_chunks(self._node.shape or (), self.chunks, sel)
