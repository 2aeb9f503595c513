"""`convert` turns HDF5 files into NetCDF files and back, with a report of what was kept.

Knows: both kinds of file through their h5py-like objects, temporary names, the report. Does not know: how values
are copied (`convert.transfer`), how either format is laid out.

Rules
-----
1. The direction follows from the first bytes of the source, never from its name.
2. The target has its final name only when it is whole: it is written under a temporary name beside it.
3. Memory does not grow with the datasets: values go through in blocks.
4. Paths stored inside the source are not followed: links are reported, not opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pnc_vol.api.file import File
from pnc_vol.convert import declared_size, inspect_hdf5
from pnc_vol.convert.copied_values import CopiedValues
from pnc_vol.convert.either import Kind, kind_of, open_either
from pnc_vol.convert.new_files import Progress, check_names, published
from pnc_vol.convert.report import Ledger, LossError, Report
from pnc_vol.convert.transfer import Transfer
from pnc_vol.errors import PncVolError, ShortFileWarning
from pnc_vol.optional import require_h5py
from pnc_vol.system import REAL, System

__all__ = ["LossError", "Report", "convert"]

MIB = 1024 * 1024
BUFFER = 2 * MIB
"""Bytes of the target's queue: what is smaller is written together."""


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    block_bytes: int = 16 * MIB,
    strict: bool = False,
    overwrite: bool = False,
    compression: str | int | None = None,
    compression_opts: Any = None,
    follow_external: bool = False,
    allow_sparse: bool = False,
    system: System = REAL,
    **options: Any,
) -> Report:
    """Copy an HDF5 file into a NetCDF file, or a NetCDF file into an HDF5 file.

    Parameters
    ----------
    source, target : path-like
        The source's content decides the direction.
    progress : callable, optional
        Called as ``progress(done, total, path)`` after each block, in bytes of values.
    block_bytes : int
        Bytes of values held at once; a compressed chunk may be up to four times as large.
    strict : bool
        Raise `LossError`, and write no target, if something cannot be kept.
    overwrite : bool
        Replace the target if it exists.
    compression, compression_opts
        For an HDF5 target, as h5py's `create_dataset` takes them.
    follow_external : bool
        Copy values that an HDF5 source keeps in other files: external storage, and virtual datasets of other files.
        Otherwise such a dataset is among the lost, and no other file is opened.
    allow_sparse : bool
        Convert a file that declares far more values than it holds (by more than 64 MiB and four times its size). They
        are written to the target as fill values.
    system : System
        The calls of the operating system, for the target; an HDF5 target is written by the HDF5 library.
    **options
        For a NetCDF target, as `pnc_vol.File` takes them: ``format="CDF-2"``, ``separator="."``...

    Returns
    -------
    Report

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False, or it is the source.
    FileNotFoundError
        There is no source, or no folder for the target.
    NotCDFError
        The source is neither HDF5 nor classic NetCDF.
    MissingPackageError
        h5py, which reads and writes the HDF5 file, is not installed; the extra `hdf5` brings it.
    ValueError
        h5py has no such compression.
    LossError
        Something cannot be kept and `strict` is True.
    LimitError
        The source declares far more than it holds, and `allow_sparse` is False.
    OSError
        The target's file system has no room for the values; reading or writing failed. There is no target then, or the
        old one.

    Examples
    --------
    >>> report = convert("in.h5", "out.nc")                            # doctest: +SKIP
    >>> report.complete                                                # doctest: +SKIP
    True
    """
    started = time.monotonic()
    source, target = os.fspath(source), os.fspath(target)
    check_names(source, target, overwrite=overwrite, system=system)
    kind = kind_of(source, system=system)
    if kind == "netcdf" and options:
        raise TypeError(f"convert() to HDF5 has no option {min(options)!r}; it belongs to NetCDF targets")
    if kind == "hdf5" and (compression is not None or compression_opts is not None):
        raise TypeError("convert() to NetCDF cannot compress: the format has no compression; leave the option out")
    if compression is not None:
        _check_compression(compression, compression_opts)
    storage = {"compression": compression, "compression_opts": compression_opts} if compression is not None else {}
    ledger = Ledger()
    with published(target, overwrite=overwrite, system=system) as temporary:
        with (
            _damage_named(source) if kind == "hdf5" else contextlib.nullcontext(),
            _admitted(source, kind, target, follow=follow_external, allow=allow_sparse, packed=bool(storage)) as reader,
            _new_file(temporary, reader, kind, system, options) as writer,
        ):
            values = CopiedValues(
                reader, writer, ledger,
                to_netcdf=kind == "hdf5", block_bytes=block_bytes, progress=progress,
                widest=partial(_check_strings, source, target, allow=allow_sparse),
            )  # fmt: skip
            Transfer(values, storage=storage, follow_external=follow_external).run()
            for path, nbytes in _missing(reader) if kind == "netcdf" else ():
                why = f"{nbytes} bytes are missing at the end of the file; the fill value stands for them"
                ledger.lose(path, "values", why)
        report = ledger.report(
            source, target, "HDF5 -> NetCDF" if kind == "hdf5" else "NetCDF -> HDF5", time.monotonic() - started
        )
        if strict and ledger.lost:
            first = ledger.lost[0]
            number = f"{len(ledger.lost)} thing{'s' if len(ledger.lost) > 1 else ''}"
            raise LossError(
                f"{number} cannot be kept, the first is {first.what} of {first.path} ({first.why}); "
                "convert without strict=True to leave them out.",
                report,
            )
    return replace(report, seconds=time.monotonic() - started)


@contextlib.contextmanager
def _damage_named(source: str) -> Iterator[None]:
    """Yield an error of a damaged file in place of what h5py raises in its own code."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError) as error:
        places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, PncVolError) or "h5py" not in places[-1]:
            raise
        first = (str(error).strip("'\"").splitlines() or [type(error).__name__])[0]
        text = f"the HDF5 library cannot read it ({first}); the file is damaged: use another copy"
        raise OSError(errno.EIO, text, source) from error


def _check_compression(name: object, opts: object) -> None:
    """Refuse what h5py cannot compress with, before anything is made.

    Raises
    ------
    ValueError
    """
    h5py = require_h5py("Writing an HDF5 file")
    try:
        with h5py.File("compression", "w", driver="core", backing_store=False) as probe:
            probe.create_dataset("x", (1,), "u1", chunks=(1,), compression=name, compression_opts=opts)
    except (ValueError, TypeError) as error:
        known = ", ".join(each for each in ("gzip", "lzf", "szip") if each in h5py.filters.encode)
        text = f"compression={name!r} is not possible: {error}; h5py here has {known}, and 0 to 9 for levels of gzip"
        raise ValueError(text) from None


def _missing(reader: File) -> list[tuple[str, int]]:
    """Return the datasets of which a file that was cut does not have all values, and how many bytes of each are
    missing."""
    session = reader.id.handle.session
    paths = {node.cdf_name: node.path for node in reader.id.node.tree.datasets.values()}
    return [(paths.get(name, name), nbytes) for name, nbytes in declared_size.missing_data(session)]


@contextlib.contextmanager
def _admitted(source: str, kind: Kind, target: str, *, follow: bool, allow: bool, packed: bool) -> Iterator[Any]:
    """Yield the open source, if what it declares is there, and the target has room for it."""
    with warnings.catch_warnings():
        # the report lists what is missing
        warnings.simplefilter("ignore", ShortFileWarning)
        opened = open_either(source, kind=kind)
    with opened as reader:
        size = declared_size.declared_by(reader, follow_external=follow)
        declared_size.refuse_sparse(source, size, allowed=allow)
        if not packed:
            declared_size.refuse_full(os.path.dirname(REAL.realpath(target)), size.declared)
        yield reader


def _check_strings(source: str, target: str, path: str, nbytes: int, held: int, *, allow: bool) -> None:
    """Refuse strings that get one common width would take far more than the source holds."""
    declared_size.refuse_wide(source, path, nbytes, held, allowed=allow)
    declared_size.refuse_full(os.path.dirname(REAL.realpath(target)), nbytes)


def _new_file(path: str, source: Any, source_kind: Kind, system: System, options: dict[str, Any]) -> Any:
    """Return an empty file of the other kind, which keeps the order of its members if the source does."""
    tracked = inspect_hdf5.is_tracked(source["/"])
    if source_kind == "hdf5":
        ordered = {"track_order": tracked and not inspect_hdf5.is_netcdf4(source)}
        # Values go to their places from the blocks in which they are read: there is no use in a large queue.
        return File(path, "w", system=system, **{"buffer_size": BUFFER} | ordered | options)
    # The version bounds allow attributes above 64 KiB; files stay readable by every HDF5 since 1.8.
    return require_h5py("Writing an HDF5 file").File(path, "w", track_order=tracked, libver=("v108", "latest"))
