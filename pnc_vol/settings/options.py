"""`Options` has all options of a file, in one tuple.

Knows: the names and defaults of the options, and the three ways to set them. This is the only module that
reads the environment. Does not know: files, MPI (an `MPI.Info` is only asked for its items).

Rules
-----
1. Precedence: environment, then `info`, then ``hints=``, then keyword arguments, as PnetCDF has it; a hint file
   (`hint_files`) comes last.
2. PnetCDF's hint names are understood (``nc_var_align_size``...); ours carry the same meaning. Hints that
   are unknown here are kept in `Options.hints` and passed to MPI-IO.
3. A wrong value raises `ValueError`, whose text names the option and the values that it accepts.
4. A field says all about its option (type, default, what reads a value, hints), so no second table can contradict it.
   The tuple is flat: groups would give each option a second name, one for users and one for the code.

`Options` is a named tuple, as are other bundles that every program makes: to define a frozen dataclass of these fields
takes 2.9 ms at import, a named tuple 0.8. What only carries state within one act is a plain class with slots. A module
of our own that put off the making of dataclasses was given up: it had to imitate what other libraries look at.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pnc_vol.errors import did_you_mean
from pnc_vol.system import REAL, System

if TYPE_CHECKING:
    from pnc_vol.settings.hint_files import Match

__all__ = ["Options", "resolve"]

KIB, MIB = 1 << 10, 1 << 20

VERSIONS = {
    "CDF-1": 1, "CDF-2": 2, "CDF-5": 5, "CDF1": 1, "CDF2": 2, "CDF5": 5,
    "NETCDF3_CLASSIC": 1, "NETCDF3_64BIT_OFFSET": 2, "NETCDF3_64BIT": 2, "NETCDF3_64BIT_DATA": 5,
    "1": 1, "2": 2, "5": 5,
}  # fmt: skip


def _size(name: str, text: Any) -> int:
    try:
        value = int(text) if isinstance(text, str) else operator.index(text)
    except (TypeError, ValueError):
        value = -1
    if value < 0:
        raise ValueError(f"option {name}={text!r}: a number of bytes >= 0 is needed")
    return value


def _size_or_none(name: str, text: Any) -> int | None:
    return None if text is None else _size(name, text)


def _count(name: str, text: Any) -> int:
    try:
        return _size(name, text)
    except ValueError:
        raise ValueError(f"option {name}={text!r}: a number >= 0 is needed") from None


def _recover(name: str, text: Any) -> bool | Literal["any-file"]:
    return "any-file" if text == "any-file" else _flag(name, text, "true, false or any-file")


def _choice(*words: str) -> Callable[[str, Any], str]:
    def parse(name: str, text: Any) -> str:
        if text not in words:
            raise ValueError(f"option {name}={text!r}: one of {', '.join(words)} is needed")
        return str(text)

    return parse


def _flag(name: str, text: Any, words: str = "true or false") -> bool:
    known = {
        "1": True, "true": True, "enable": True, "yes": True,
        "0": False, "false": False, "disable": False, "no": False,
    }  # fmt: skip
    value = text if isinstance(text, bool) else known.get(str(text).lower())
    if value is None:
        raise ValueError(f"option {name}={text!r}: {words} is needed")
    return value


_BEST_EFFORT = "best-effort"


def _locking(name: str, text: Any) -> bool | str | None:
    if text is None or str(text).lower() == "none":
        return None
    if str(text).lower().replace("_", "-") == _BEST_EFFORT:
        return _BEST_EFFORT
    return _flag(name, text, "true, false or best-effort")


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


_transport = _choice("auto", "collective", "independent", "aggregate")


def _text(name: str, text: Any) -> str:
    return "" if text is None else str(text)


_PARSERS: dict[str, Callable[[str, Any], Any]] = {}
_HINT_NAMES: dict[str, str] = {}
_NONE: Mapping[str, str] = MappingProxyType({})


def _opt(name: str, default: Any, parse: Callable[[str, Any], Any], *hints: str) -> Any:
    """Return the default of an option; notes what turns a given value into the stored one, and the hints that set
    it."""
    _PARSERS[name] = parse
    _HINT_NAMES.update(dict.fromkeys(hints, name))
    return default


class Options(NamedTuple):
    """The options of one open file.

    version : 1, 2 or 5; the CDF version of a new file (keyword ``format="CDF-5"``).
    driver : str, the driver stack, e.g. ``"trace | posix"``; "" picks posix, or mpio with a communicator.
    buffer_size : int, bytes of posted data held in memory before the queue drains.
    var_align, record_align : int, bytes, as PnetCDF's ``nc_var_align_size``, ``nc_record_align_size``.
    header_reserve : int or None, bytes kept free behind the header; None: 0 if the first flush is the
        close, else as much as the header, at least 4 KiB.
    publish : "create" (an empty file appears under its name at once) or "close" (the whole file appears at the close).
    on_overflow : "raise" or "clip".
    strict : bool, reading data beyond the end of a short file is an error.
    external_links : "below", "any" or "none", where the files that external links lead to may be.
    hdf5 : "auto", "pass" or "refuse", what opening an HDF5 file for reading does: the real h5py opens it, or an error
        says how to convert it; "auto" is "pass" while `pnc_vol.patch` is in force, else "refuse".
    ordered : bool, if several ranks write the same elements between two flushes, the highest rank wins.
    collective_timeout : float or None, seconds to wait for the other ranks in a collective call.
    durable : bool, every flush and close is ``durable=True``.
    separator : str, between the names of a path in a variable's name.
    layout : str, where the elements of variables live: "canonical", or a layout of another package; by default what the
        file says, and "canonical" for a new file.
    subfiles, ranks_per_subfile : int, files of a new blob set (``layout="blob"``), or ranks that share one; 0 of both
        is one file for each node.
    transport : "auto", "collective", "independent" or "aggregate": how ranks write at a flush.
    aggrs_per_node : int, ranks of a node that write for others (``nc_num_aggrs_per_node``); 0: as useful.
    store : str, where posted data are kept until a flush: "memory", "log", or a store of another package.
    burst_buf : bool, keep posted writes in a log on fast storage until a flush (``nc_burst_buf``).
    burst_buf_dirname : str, folder for the log; "" is the folder of the file.
    burst_buf_del_on_close : bool, remove the log at the close.
    burst_buf_flush_buffer_size : int, bytes of memory that a flush reads the log with; 0 is `buffer_size`.
    burst_buf_overwrite : bool, remove logs that a killed job of the same file left.
    burst_buf_shared_logs : bool, the ranks of a node share one pair of log files.
    burst_buf_sync : "none", "flush" or "each", when the log is brought to stable storage.
    burst_buf_capacity : int, bytes that a rank's log may take; 0 is no limit.
    locking : bool, "best-effort" or None, whether a file that is written is locked against other processes; None is
        "best-effort" with a warning where the file system has no locks. HDF5_USE_FILE_LOCKING overrides it.
    recover : bool or "any-file", replay the logs that a killed job left of this file before it is used; or those of
        another file that had its name, too.
    hints : mapping, hints that MPI-IO may know.
    storage_options : mapping or None, for fsspec's file system, if the file is an address.
    deferred_close : bool, the close of the file returns after a flush, see `file.deferred`; set by a hint file alone.
    sources : mapping of str to str, by hint, what set it: ``"hints="``, ``"info"``, a line of a hint file...
    system : System, which makes all calls of the operating system.
    """

    version: int = _opt("version", 5, _version)
    driver: str = _opt("driver", "", _text, "pnc_driver")
    buffer_size: int = _opt("buffer_size", 64 * MIB, _size, "pnc_buffer_size")
    var_align: int = _opt("var_align", 4, _size, "nc_var_align_size", "nc_header_align_size")
    record_align: int = _opt("record_align", 4, _size, "nc_record_align_size")
    header_reserve: int | None = _opt("header_reserve", None, _size_or_none, "nc_header_reserve")
    publish: str = _opt("publish", "create", _choice("create", "close"), "pnc_publish")
    on_overflow: Literal["raise", "clip"] = _opt("on_overflow", "raise", _choice("raise", "clip"), "pnc_on_overflow")
    strict: bool = _opt("strict", False, _flag, "pnc_strict")
    external_links: str = _opt("external_links", "below", _choice("below", "any", "none"), "pnc_external_links")
    hdf5: str = _opt("hdf5", "auto", _choice("auto", "pass", "refuse"), "pnc_hdf5")
    ordered: bool = _opt("ordered", False, _flag, "pnc_ordered")
    collective_timeout: float | None = _opt("collective_timeout", 300.0, _seconds, "pnc_collective_timeout")
    durable: bool = _opt("durable", False, _flag, "pnc_durable")
    separator: str = _opt("separator", "_", _separator, "pnc_separator")
    layout: str = _opt("layout", "", _text, "pnc_layout")
    subfiles: int = _opt("subfiles", 0, _count, "pnc_subfiles")
    ranks_per_subfile: int = _opt("ranks_per_subfile", 0, _count, "pnc_ranks_per_subfile")
    transport: str = _opt("transport", "auto", _transport, "pnc_transport")
    aggrs_per_node: int = _opt("aggrs_per_node", 0, _count, "nc_num_aggrs_per_node")
    store: str = _opt("store", "memory", _text, "pnc_store")
    burst_buf: bool = _opt("burst_buf", False, _flag, "nc_burst_buf")
    burst_buf_dirname: str = _opt("burst_buf_dirname", "", _text, "nc_burst_buf_dirname")
    burst_buf_del_on_close: bool = _opt("burst_buf_del_on_close", True, _flag, "nc_burst_buf_del_on_close")
    burst_buf_flush_buffer_size: int = _opt("burst_buf_flush_buffer_size", 0, _size, "nc_burst_buf_flush_buffer_size")
    burst_buf_overwrite: bool = _opt("burst_buf_overwrite", False, _flag, "nc_burst_buf_overwrite")
    burst_buf_shared_logs: bool = _opt("burst_buf_shared_logs", False, _flag, "nc_burst_buf_shared_logs")
    burst_buf_sync: str = _opt("burst_buf_sync", "none", _choice("none", "flush", "each"), "nc_burst_buf_sync")
    burst_buf_capacity: int = _opt("burst_buf_capacity", 0, _size, "nc_burst_buf_capacity")
    locking: bool | str | None = _opt("locking", None, _locking, "pnc_locking")
    recover: bool | Literal["any-file"] = _opt("recover", False, _recover)
    storage_options: Mapping[str, Any] | None = _opt("storage_options", None, lambda _, given: given)
    hints: Mapping[str, str] = _NONE
    deferred_close: bool = False
    sources: Mapping[str, str] = _NONE
    system: System = REAL

    @property
    def drain_reserve(self) -> int:
        """Bytes kept for the header of a file that is drained before its first flush: the same on all ranks."""
        return max(self.header_reserve or 0, 64 * KIB, self.buffer_size // 64)


_HDF5_LOCKING = {"TRUE": True, "1": True, "FALSE": False, "0": False, "BEST_EFFORT": _BEST_EFFORT}

_KEYWORDS = {"format": "version", "alignment_interval": "var_align"}


def keyword_names() -> frozenset[str]:
    """Return the keyword arguments of `File` that are options."""
    return frozenset(_PARSERS) - {"version", "driver", "locking"} | {"format", "hints", "hints_file", "system"}


def hint_text(options: Options, hint: str) -> str:
    """Return the value in force of a hint of this package, as it would be given."""
    value = getattr(options, _HINT_NAMES[hint])
    return str(value).lower() if isinstance(value, bool) else str(value)


def hint_checks() -> dict[str, Callable[[str, Any], Any]]:
    """Return what checks the value of each hint of this package: ``check(name, value)`` raises `ValueError`."""
    return {hint: _PARSERS[name] for hint, name in _HINT_NAMES.items()}


def hints_file(argument: Any, environ: Mapping[str, str] | None = None) -> str:
    """Return the hint file to use, "" for none: ``PNC_VOL_HINTS_FILE``, else the argument, else ``MPI_HINTS_CONFIG``.

    Parameters
    ----------
    argument : str, bytes, path-like or None
        ``hints_file=`` of `File`.
    environ : mapping, optional
        The process's environment by default.
    """
    environ = os.environ if environ is None else environ
    given = "" if argument is None else os.fsdecode(argument)
    return environ.get("PNC_VOL_HINTS_FILE") or given or environ.get("MPI_HINTS_CONFIG", "")


def _hints_of(name: str) -> list[str]:
    return [hint for hint, option in _HINT_NAMES.items() if option == name]


def parse_hints(text: str) -> dict[str, str]:
    """Return hints in PnetCDF's syntax, ``"key=value;key=value"``.

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


_READ = ("PNETCDF_HINTS", "PNC_VOL_HINTS", "HDF5_USE_FILE_LOCKING")
_plain: dict[Any, Options] = {}  # of files of which no argument says anything: most are


def resolve(
    keywords: Mapping[str, Any],
    *,
    info: Any = None,
    environ: Mapping[str, str] | None = None,
    from_file: Match | None = None,
) -> Options:
    """Return the options of a file from all that may set them.

    Parameters
    ----------
    keywords : mapping
        Keyword arguments of `File` (see `keyword_names`), with ``driver`` and ``hints`` among them.
    info : mpi4py.MPI.Info or mapping, optional
        MPI hints.
    environ : mapping, optional
        The process's environment by default; the variables in `_READ` are read.
    from_file : Match, optional
        What a hint file says of the file.

    Raises
    ------
    TypeError
        An option that does not exist.
    ValueError
        A value that the option does not take.
    """
    environ = os.environ if environ is None else environ
    texts = tuple(map(environ.get, _READ))
    plain = (_system, texts) if keywords == {"hints": None} and info is None and from_file is None else None
    if plain in _plain:
        return _plain[plain]
    changes: dict[str, Any] = {"system": _system}
    unknown: dict[str, str] = {}
    sources: dict[str, str] = {}

    def apply(given: Mapping[str, Any], source: str | Mapping[str, str]) -> None:
        sources.update(dict.fromkeys(given, source) if isinstance(source, str) else source)
        for key, value in given.items():
            name = _HINT_NAMES.get(key)
            if name is None:
                unknown[key] = str(value)
            else:
                changes[name] = _PARSERS[name](key, value)

    if from_file is not None:
        apply(from_file.hints, from_file.places)
        changes["deferred_close"] = from_file.guarded
    for key, value in keywords.items():
        name = _KEYWORDS.get(key, key)
        if name == "system":
            changes[name] = _system if value is None else value
        elif name in _PARSERS:
            changes[name] = _PARSERS[name](key, value)
            sources |= dict.fromkeys(_hints_of(name), f"argument {key}")
        elif name != "hints":
            raise TypeError(f"File() has no option {key!r}{did_you_mean(key, keyword_names())}")
    apply(keywords.get("hints") or {}, "hints=")
    if info is not None:
        apply(dict(info.items()), "info")
    for variable, text in zip(_READ[:2], texts, strict=False):
        if text:
            apply(parse_hints(text), variable)
    if changes.get("store") == "log":
        # two names for one option; the code that looks for logs reads the second
        changes["burst_buf"] = True
    locking = (texts[2] or "").upper()
    if locking in _HDF5_LOCKING:
        # as in HDF5, where other words mean nothing
        changes["locking"] = _HDF5_LOCKING[locking]
    made = Options(**changes, hints=unknown, sources=sources)
    return made if plain is None else _plain.setdefault(plain, made)


def collective_timeout(keywords: Mapping[str, Any], *, hints: Any = None, info: Any = None) -> float | None:
    """Return seconds to wait for other ranks; the default if arguments are wrong, as the others must be told of that,
    too."""
    given = {name: value for name, value in keywords.items() if name == "collective_timeout"}
    try:
        return resolve({**given, "hints": hints}, info=info).collective_timeout
    except (TypeError, ValueError, AttributeError):
        return Options().collective_timeout


_system: System = REAL


def system_for_all(system: System) -> None:
    """Use a system for all files that this process opens from now on without ``system=``."""
    global _system
    _system = system


def hint_all(hints: str) -> None:
    """Add hints (as ``PNC_VOL_HINTS`` has them) for all files opened from now on, as if the environment had them."""
    os.environ["PNC_VOL_HINTS"] = ";".join(filter(None, (os.environ.get("PNC_VOL_HINTS"), hints)))


def reach_children(folder: str) -> None:
    """Let every Python that this process starts look for modules in a folder (an absolute path) first."""
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *(entry for entry in before if entry and entry != folder)])


def look_beside() -> None:
    """Let HDF5, not loaded yet, look for external storage beside the file that names it, if the user chose no place."""
    os.environ.setdefault("HDF5_EXTFILE_PREFIX", "${ORIGIN}")


def shell_variable(name: str, default: str = "") -> str:
    """Return a variable of the user's terminal or shell, such as ``NO_COLOR``; `default` if it is empty or not set."""
    return os.environ.get(name) or default


def launched(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether this process (or one with another `environ`) was started by ``mpiexec`` or its like."""
    environ = os.environ if environ is None else environ
    return any(name in environ for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID"))
