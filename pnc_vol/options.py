"""All options of a file, in one frozen object.

Knows: the names and defaults of the options, and the three ways to set them. This is the only module that
reads the environment. Does not know: files, MPI (an `MPI.Info` is only asked for its items).

Rules
-----
1. Precedence: environment, then `info`, then ``hints=``, then keyword arguments, as PnetCDF has it.
2. PnetCDF's hint names are understood (``nc_var_align_size``...); ours carry the same meaning. Hints that
   are unknown here are kept in `Options.hints` and passed to MPI-IO.
3. A wrong value raises `ValueError`, whose text names the option and the values that it accepts.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from pnc_vol.system import REAL, System

__all__ = ["Options", "resolve"]

KIB = 1024
MIB = 1024 * KIB

VERSIONS = {
    "CDF-1": 1, "CDF-2": 2, "CDF-5": 5, "CDF1": 1, "CDF2": 2, "CDF5": 5,
    "NETCDF3_CLASSIC": 1, "NETCDF3_64BIT_OFFSET": 2, "NETCDF3_64BIT": 2, "NETCDF3_64BIT_DATA": 5,
    "1": 1, "2": 2, "5": 5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one open file.

    version : 1, 2 or 5; the CDF version of a new file (keyword ``format="CDF-5"``).
    driver : str, the driver stack, e.g. ``"trace | posix"``; "" picks posix, or mpio with a communicator.
    buffer_size : int, bytes of posted data held in memory before the queue drains.
    var_align, record_align : int, bytes, as PnetCDF's ``nc_var_align_size``, ``nc_record_align_size``.
    header_reserve : int or None, bytes kept free behind the header; None: 0 if the first flush is the
        close, else as much as the header, at least 4 KiB.
    publish : "create" (an empty file is under its name at once) or "close" (all or nothing at close).
    on_overflow : "raise" or "clip".
    strict : bool, reading data beyond the end of a short file is an error.
    external_links : "below", "any" or "none", where the files that external links lead to may be.
    ordered : bool, of overlapping writes of several ranks between two flushes the highest rank's wins.
    collective_timeout : float or None, seconds to wait for the other ranks in a collective call.
    durable : bool, every flush and close is ``durable=True``.
    separator : str, between the names of a path in a variable's name.
    layout : str, where the elements of variables live: "canonical", or a layout of another package.
    transport : "auto", "collective", "independent" or "aggregate": how ranks write at a flush.
    aggrs_per_node : int, ranks of a node that write for others (``nc_num_aggrs_per_node``); 0: as useful.
    store : str, where posted data are kept until a flush: "memory", "log", or a store of another package.
    burst_buf : bool, keep posted writes in a log on fast storage until a flush (``nc_burst_buf``).
    burst_buf_dirname : str, folder for the log; "" is the file's.
    burst_buf_del_on_close : bool, remove the log at the close.
    burst_buf_flush_buffer_size : int, bytes of memory that a flush reads the log with; 0 is `buffer_size`.
    burst_buf_overwrite : bool, remove logs that a killed job of the same file left.
    burst_buf_shared_logs : bool, the ranks of a node share one pair of log files.
    burst_buf_sync : "none", "flush" or "each", when the log is brought to stable storage.
    burst_buf_capacity : int, bytes that a rank's log may take; 0 is no limit.
    locking : bool, "best-effort" or None, whether a file that is written is locked against other processes; None is
        "best-effort" with a warning where the file system has no locks. HDF5_USE_FILE_LOCKING outdoes it.
    recover : bool or "any-file", replay the logs that a killed job left of this file before it is used; or those of
        another file that had its name, too.
    hints : mapping, hints that MPI-IO may know.
    system : System, the door to the operating system's files.
    """

    version: int = 5
    driver: str = ""
    buffer_size: int = 64 * MIB
    var_align: int = 4
    record_align: int = 4
    header_reserve: int | None = None
    publish: str = "create"
    on_overflow: Literal["raise", "clip"] = "raise"
    strict: bool = False
    external_links: str = "below"
    ordered: bool = False
    collective_timeout: float | None = 300.0
    durable: bool = False
    separator: str = "_"
    layout: str = "canonical"
    transport: str = "auto"
    aggrs_per_node: int = 0
    store: str = "memory"
    burst_buf: bool = False
    burst_buf_dirname: str = ""
    burst_buf_del_on_close: bool = True
    burst_buf_flush_buffer_size: int = 0
    burst_buf_overwrite: bool = False
    burst_buf_shared_logs: bool = False
    burst_buf_sync: str = "none"
    burst_buf_capacity: int = 0
    locking: bool | str | None = None
    recover: bool | Literal["any-file"] = False
    hints: Mapping[str, str] = field(default_factory=dict)
    system: System = REAL

    @property
    def drain_reserve(self) -> int:
        """Bytes kept for the header of a file that is drained before its first flush.

        A pure function of the options, so that all ranks place data alike without a word exchanged.
        """
        return max(self.header_reserve or 0, 64 * KIB, self.buffer_size // 64)


def _size(name: str, text: Any) -> int:
    try:
        value = int(text) if isinstance(text, str) else operator.index(text)
    except (TypeError, ValueError):
        value = -1
    if value < 0:
        raise ValueError(f"option {name}={text!r}: a number of bytes >= 0 is needed")
    return value


def _count(name: str, text: Any) -> int:
    try:
        return _size(name, text)
    except ValueError:
        raise ValueError(f"option {name}={text!r}: a number >= 0 is needed") from None


def _recover(name: str, text: Any) -> bool | Literal["any-file"]:
    if text == "any-file":
        return "any-file"
    try:
        return _flag(name, text)
    except ValueError:
        raise ValueError(f"option {name}={text!r}: true, false or any-file is needed") from None


def _choice(*words: str) -> Callable[[str, Any], str]:
    def parse(name: str, text: Any) -> str:
        if text not in words:
            raise ValueError(f"option {name}={text!r}: one of {', '.join(words)} is needed")
        return str(text)

    return parse


def _flag(name: str, text: Any) -> bool:
    known = {
        "1": True,
        "true": True,
        "enable": True,
        "yes": True,
        "0": False,
        "false": False,
        "disable": False,
        "no": False,
    }
    value = text if isinstance(text, bool) else known.get(str(text).lower())
    if value is None:
        raise ValueError(f"option {name}={text!r}: true or false is needed")
    return value


_BEST_EFFORT = "best-effort"


def _locking(name: str, text: Any) -> bool | str | None:
    if text is None or str(text).lower() == "none":
        return None
    if str(text).lower().replace("_", "-") == _BEST_EFFORT:
        return _BEST_EFFORT
    try:
        return _flag(name, text)
    except ValueError:
        raise ValueError(f"option {name}={text!r}: true, false or best-effort is needed") from None


def _seconds(name: str, text: Any) -> float | None:
    if text is None or str(text).lower() == "none":
        return None
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = -1.0
    if not value > 0:
        raise ValueError(f"option {name}={text!r}: seconds > 0 or None are needed")
    return value


def _version(name: str, text: Any) -> int:
    version = VERSIONS.get(str(text).upper())
    if version is None:
        raise ValueError(f"option format={text!r}: one of CDF-1, CDF-2, CDF-5 is needed")
    return version


def _separator(name: str, text: Any) -> str:
    if not isinstance(text, str) or not text or "/" in text or not text.isprintable():
        raise ValueError(f"option separator={text!r}: printable characters without '/' are needed")
    return text


def _text(name: str, text: Any) -> str:
    return "" if text is None else str(text)


_PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "version": _version,
    "driver": _text,
    "buffer_size": _size,
    "var_align": _size,
    "record_align": _size,
    "header_reserve": lambda name, text: None if text is None else _size(name, text),
    "publish": _choice("create", "close"),
    "on_overflow": _choice("raise", "clip"),
    "strict": _flag,
    "external_links": _choice("below", "any", "none"),
    "ordered": _flag,
    "collective_timeout": _seconds,
    "durable": _flag,
    "separator": _separator,
    "layout": _text,
    "transport": _choice("auto", "collective", "independent", "aggregate"),
    "aggrs_per_node": _count,
    "store": _text,
    "burst_buf": _flag,
    "burst_buf_dirname": _text,
    "burst_buf_del_on_close": _flag,
    "burst_buf_flush_buffer_size": _size,
    "burst_buf_overwrite": _flag,
    "burst_buf_shared_logs": _flag,
    "burst_buf_sync": _choice("none", "flush", "each"),
    "burst_buf_capacity": _size,
    "locking": _locking,
    "recover": _recover,
}

_HINT_NAMES = {
    "nc_var_align_size": "var_align",
    "nc_header_align_size": "var_align",
    "nc_record_align_size": "record_align",
    "nc_header_reserve": "header_reserve",
    "pnc_buffer_size": "buffer_size",
    "pnc_publish": "publish",
    "pnc_on_overflow": "on_overflow",
    "pnc_strict": "strict",
    "pnc_external_links": "external_links",
    "pnc_ordered": "ordered",
    "pnc_collective_timeout": "collective_timeout",
    "pnc_durable": "durable",
    "pnc_separator": "separator",
    "pnc_layout": "layout",
    "pnc_transport": "transport",
    "pnc_driver": "driver",
    "pnc_locking": "locking",
    "nc_num_aggrs_per_node": "aggrs_per_node",
    "pnc_store": "store",
    "nc_burst_buf": "burst_buf",
    "nc_burst_buf_dirname": "burst_buf_dirname",
    "nc_burst_buf_del_on_close": "burst_buf_del_on_close",
    "nc_burst_buf_flush_buffer_size": "burst_buf_flush_buffer_size",
    "nc_burst_buf_overwrite": "burst_buf_overwrite",
    "nc_burst_buf_shared_logs": "burst_buf_shared_logs",
    "nc_burst_buf_sync": "burst_buf_sync",
    "nc_burst_buf_capacity": "burst_buf_capacity",
}

_HDF5_LOCKING: dict[str, bool | str] = {
    "TRUE": True, "1": True, "FALSE": False, "0": False, "BEST_EFFORT": _BEST_EFFORT,
}  # fmt: skip

_KEYWORDS = {"format": "version", "alignment_interval": "var_align"}


def keyword_names() -> frozenset[str]:
    """The keyword arguments of `File` that are options."""
    return frozenset(_PARSERS) - {"version", "driver", "locking"} | {"format", "hints", "system"}


def _apply(options: Options, hints: Mapping[str, Any]) -> Options:
    changes: dict[str, Any] = {}
    unknown = dict(options.hints)
    for key, value in hints.items():
        name = _HINT_NAMES.get(key)
        if name is None:
            unknown[key] = str(value)
        else:
            changes[name] = _PARSERS[name](key, value)
    return replace(options, hints=unknown, **changes)


def parse_hints(text: str) -> dict[str, str]:
    """Hints in PnetCDF's syntax, ``"key=value;key=value"``.

    Raises
    ------
    ValueError
        A part without ``=``.
    """
    hints = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"hint {part.strip()!r}: 'key=value' is needed, parts are separated by ';'")
        hints[key.strip()] = value.strip()
    return hints


def resolve(
    keywords: Mapping[str, Any],
    *,
    info: Any = None,
    environ: Mapping[str, str] | None = None,
) -> Options:
    """The options of a file from all that may set them.

    Parameters
    ----------
    keywords : mapping
        Keyword arguments of `File` (see `keyword_names`), with ``driver`` and ``hints`` among them.
    info : mpi4py.MPI.Info or mapping, optional
        MPI hints.
    environ : mapping, optional
        The process's environment by default; ``PNETCDF_HINTS``, ``PNC_VOL_HINTS`` and ``HDF5_USE_FILE_LOCKING`` are
        read.

    Raises
    ------
    TypeError
        An option that does not exist.
    ValueError
        A value that the option does not take.
    """
    environ = os.environ if environ is None else environ
    known = {f.name for f in fields(Options)}
    changes: dict[str, Any] = {}
    hints: Mapping[str, Any] = {}
    for key, value in keywords.items():
        name = _KEYWORDS.get(key, key)
        if name == "hints":
            hints = value or {}
        elif name == "system":
            changes[name] = _system if value is None else value
        elif name in known:
            changes[name] = _PARSERS[name](key, value)
        else:
            raise TypeError(f"File() has no option {key!r}")
    options = _apply(replace(Options(system=_system), **changes), hints)
    if info is not None:
        options = _apply(options, dict(info.items()))
    for variable in ("PNETCDF_HINTS", "PNC_VOL_HINTS"):
        if text := environ.get(variable):
            options = _apply(options, parse_hints(text))
    if options.store == "log":
        # two words for one thing: what looks for logs asks for the second
        options = replace(options, burst_buf=True)
    locking = environ.get("HDF5_USE_FILE_LOCKING", "").upper()
    if locking in _HDF5_LOCKING:
        # as in HDF5, where other words mean nothing
        options = replace(options, locking=_HDF5_LOCKING[locking])
    return options


_system: System = REAL


def system_for_all(system: System) -> None:
    """Use a system for all files that this process opens from now on without ``system=``."""
    global _system
    _system = system


def hint_all(hints: str) -> None:
    """Add hints for all files that this process opens from now on, as if the environment had them last.

    Parameters
    ----------
    hints : str
        In the syntax of ``PNC_VOL_HINTS``.
    """
    os.environ["PNC_VOL_HINTS"] = ";".join(filter(None, (os.environ.get("PNC_VOL_HINTS"), hints)))


def reach_children(folder: str) -> None:
    """Let every Python that this process starts look for modules in a folder first.

    Parameters
    ----------
    folder : str, absolute.
    """
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *(entry for entry in before if entry and entry != folder)])


def launched(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process was started by ``mpiexec`` or its like, as one rank of several perhaps.

    Parameters
    ----------
    environ : mapping, optional
        The process's environment by default.
    """
    environ = os.environ if environ is None else environ
    return any(name in environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID"))
