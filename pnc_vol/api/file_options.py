"""`FileOptions` lists the options of ``File`` for type checkers and editors.

Knows: names and types. Does not know: what they mean (`pnc_vol.settings.options`, docs/reference/options.md), or what
is checked when a file is opened. Nothing loads this when a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from pnc_vol.system import System

__all__ = ["FileOptions"]


class FileOptions(TypedDict, total=False):
    """Keywords of ``File`` that h5py's does not have, and those of h5py's drivers ``core`` and ``fileobj``."""

    format: str | int
    buffer_size: int | str
    var_align: int | str
    record_align: int | str
    header_reserve: int | str | None
    publish: Literal["create", "close"]
    on_overflow: Literal["raise", "clip"]
    strict: bool
    external_links: Literal["below", "any", "none"]
    hdf5: Literal["auto", "pass", "refuse"]
    ordered: bool
    collective_timeout: float | None
    durable: bool
    separator: str
    layout: str
    subfiles: int
    ranks_per_subfile: int
    transport: str
    aggrs_per_node: int
    store: str
    burst_buf: bool
    burst_buf_dirname: str
    burst_buf_del_on_close: bool
    burst_buf_flush_buffer_size: int | str
    burst_buf_overwrite: bool
    burst_buf_shared_logs: bool
    burst_buf_sync: Literal["none", "flush", "each"]
    burst_buf_capacity: int | str
    recover: bool | Literal["any-file"]
    storage_options: Mapping[str, Any] | None
    hints_file: str
    system: System
    # of drivers, as h5py has them
    backing_store: bool
    block_size: int
    fileobj: Any
