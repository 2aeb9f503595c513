"""A hint file is JSON with hints for the files of some names, and names of files whose close is deferred.

The format is that of MPIWRAP, of the Exascale10 (E10) software; ``docs/reference/hint-files.md`` describes it.

Knows: the grammar, and how the entry of a file is found. Does not know: who reads the file; what a hint means.

Rules
-----
1. One entry counts for a file: one of its path, else one of its directory, else the longest that matches. Hints of
   several entries are not combined, so that one line says where a hint is from. MPIWRAP's text and its code differ in
   how ``Path`` is matched; these are the rules of its text, made complete.
2. What is not understood is an error that names file, line and column: a hint that is silently ignored costs a run.
   Entries of other files are checked, too, so that the first run finds it, not the first that opens such a file.
3. The typographic quotes of E10's document are accepted, with a warning, in a text that is no JSON with them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from json.decoder import JSONDecoder
from typing import Any, NamedTuple, NoReturn

from pnc_vol.errors import HintsFileError, did_you_mean
from pnc_vol.warn import warn_outside

__all__ = ["HintFile", "Match"]

_DEEPEST = 8
"""Levels of nesting; the format has three."""
_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f", '"'))
_BLANKS = " \t\r\n"

_TOP = ("Guardnames", "File", "Directory")
_MPI_HINTS = frozenset((
    "access_style", "cb_block_size", "cb_buffer_size", "cb_config_list", "cb_nodes", "collective_buffering", "chunked",
    "chunked_item", "chunked_size", "direct_io", "e10_collective_mode", "file_perm", "filename", "ind_rd_buffer_size",
    "ind_wr_buffer_size", "io_node_list", "nb_proc", "num_io_nodes", "start_iodevice", "striping_factor",
    "striping_unit",
))  # fmt: skip
"""Of the MPI standard, ROMIO and E10."""
_FAMILIES = ("romio_", "mpich_", "ompi_", "mca_", "cray_", "gpfs_", "panfs_", "pvfs2_", "beegfs_", "IBM_")
"""How hints begin that one MPI library or file system knows."""


class Match(NamedTuple):
    """What a hint file says of one file.

    hints : dict of str to str
    places : dict of str to str, where each hint is in the hint file, such as ``"hints.json, line 4"``.
    guarded : bool, whether the close of the file is deferred.
    """

    hints: Mapping[str, str]
    places: Mapping[str, str]
    guarded: bool


class _Node(NamedTuple):
    """A value of the JSON text and where it begins; of an object the keys' places, too."""

    value: Any
    at: int
    keys: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class _PathHints:
    """One entry of ``File`` or ``Directory``: `path` is absolute, or a name without slashes."""

    kind: str
    path: str
    hints: Mapping[str, str]
    places: Mapping[str, str]


class HintFile:
    """The content of a hint file.

    Parameters
    ----------
    text : bytes
    path : str, the file, for messages.
    known : mapping of str to callable
        The hints of this package, and what checks their values: ``check(name, value)`` raises `ValueError`.

    Raises
    ------
    HintsFileError
        It is no hint file; with line and column.

    Examples
    --------
    >>> text = b'{"Guardnames": "out", "File": [{"Path": "/scratch/out", "Type": "MPI", "cb_nodes": "64"}]}'
    >>> HintFile(text, "hints.json", {}).match("/scratch/out_0001.nc")
    Match(hints={'cb_nodes': '64'}, places={'cb_nodes': 'hints.json, line 1'}, guarded=True)
    """

    def __init__(self, text: bytes, path: str, known: Mapping[str, Callable[[str, Any], Any]]) -> None:
        self.path = path
        self._known = known
        self._text = self._decoded(text)
        try:
            top = _parsed(self._text, self._fail)
        except HintsFileError:
            plain = self._text.translate(_QUOTES)
            if plain == self._text:
                raise
            # as many characters as before: places stay
            self._text = plain
            top = _parsed(plain, self._fail)
            warn_outside(f'{path}: typographic quotes were read as "; write plain ones')
        self._check_keys(top, _TOP)
        guards = top.value.get("Guardnames")
        self.guards: tuple[str, ...] = ()
        if guards is not None:
            names = self._expect(guards, str, "a text with names, separated by commas")
            self.guards = tuple(name.strip() for name in names.split(",") if name.strip())
        self._entries = [
            self._entry(kind, node)
            for kind in ("File", "Directory")
            if kind in top.value
            for node in self._expect(top.value[kind], list, "a list of entries [{...}]")
        ]

    def match(self, path: str) -> Match:
        """Return what this file says of `path`, which is made absolute; links are not followed."""
        path = os.path.abspath(path)
        folder, name = os.path.split(path)
        guarded = name.startswith(self.guards)
        best: tuple[tuple[int, int], _PathHints] | None = None
        for entry in self._entries:
            score = _score(entry, path, folder, name)
            if score > (0, 0) and (best is None or score > best[0]):
                best = score, entry
        return Match({}, {}, guarded) if best is None else Match(best[1].hints, best[1].places, guarded)

    def _entry(self, kind: str, node: _Node) -> _PathHints:
        fields = self._expect(node, dict, "an entry {...}")
        if "Path" not in fields:
            self._fail(node.at, f"an entry of {kind!r} needs a 'Path'")
        path = self._expect(fields["Path"], str, "a path as text")
        if not path.strip():
            self._fail(fields["Path"].at, "'Path' is empty")
        if kind == "Directory" or "/" in path:
            path = os.path.abspath(path)
        if "Type" in fields and self._expect(fields["Type"], str, "'MPI'") != "MPI":
            self._fail(fields["Type"].at, f"'Type' is {fields['Type'].value!r}; only 'MPI' is known")
        hints, places = {}, {}
        for key, value in fields.items():
            if key in ("Path", "Type"):
                continue
            if not (key in self._known or key in _MPI_HINTS or key.startswith(_FAMILIES)):
                names = {*self._known, *_MPI_HINTS, "Path", "Type"}
                self._fail(node.keys[key], f"{key!r} is no hint that is known here{did_you_mean(key, names)}")
            hints[key] = self._hint(key, value)
            places[key] = f"{self.path}, line {self._line(node.keys[key])}"
        return _PathHints(kind, path, hints, places)

    def _hint(self, key: str, node: _Node) -> str:
        if not isinstance(node.value, (str, int)):
            self._fail(node.at, f"the value of a hint is a text, an integer, true or false, not {_kind(node)}")
        text = str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
        if key in self._known:
            try:
                self._known[key](key, text)
            except ValueError as error:
                self._fail(node.at, str(error))
        return text

    def _expect(self, node: _Node, kind: type, what: str) -> Any:
        if not isinstance(node.value, kind):
            self._fail(node.at, f"{what} is needed here, not {_kind(node)}")
        return node.value

    def _check_keys(self, node: _Node, allowed: Collection[str]) -> None:
        for key in self._expect(node, dict, "an object {...}"):
            if key not in allowed:
                self._fail(
                    node.keys[key], f"{key!r} is no key of a hint file{did_you_mean(key, allowed)}; "
                    f"the keys are {', '.join(allowed)}"
                )  # fmt: skip

    def _decoded(self, text: bytes) -> str:
        try:
            return text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self._text = text[: error.start].decode("utf-8-sig")
            return self._fail(len(self._text), f"byte {error.start} is not UTF-8")

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

    def _fail(self, at: int, what: str) -> NoReturn:
        line = self._line(at)
        column = at - self._text.rfind("\n", 0, at)
        raise HintsFileError(f"{self.path}, line {line}, column {column}: {what}", line=line, column=column)


def _score(entry: _PathHints, path: str, folder: str, name: str) -> tuple[int, int]:
    """Return how well an entry matches: exact before long, long before short; (0, 0) if it does not match."""
    whole = path if entry.path.startswith("/") else name
    length = len(entry.path)
    if entry.kind == "Directory":
        if entry.path == folder:
            return 2, length
        return (1, length) if (folder + "/").startswith(entry.path.rstrip("/") + "/") else (0, 0)
    if entry.path == whole:
        # of two that are exact the one with a directory says more
        return 3, length
    return (1, length) if whole.startswith(entry.path) or whole.endswith(entry.path) else (0, 0)


def _kind(node: _Node) -> str:
    value = node.value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return f"the text {value!r}" if isinstance(value, str) else f"the number {value}"


def _parsed(text: str, fail: Callable[[int, str], NoReturn]) -> _Node:
    """Return the JSON value that a text is, with places, which the parser of the standard library does not keep."""
    node, end = _value(text, _skip(text, 0), fail, 0)
    end = _skip(text, end)
    if end < len(text):
        fail(end, f"the text goes on behind its end: {text[end : end + 10]!r}")
    return node


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


_scan = JSONDecoder(parse_constant=lambda word: float("nan")).raw_decode


def _value(text: str, at: int, fail: Callable[[int, str], NoReturn], depth: int) -> tuple[_Node, int]:
    opening = text[at : at + 1]
    if depth > _DEEPEST:
        fail(at, f"more than {_DEEPEST} levels of nesting")
    if opening not in ("{", "["):
        try:
            value, end = _scan(text, at)
        except ValueError as error:
            fail(getattr(error, "pos", at), getattr(error, "msg", str(error)))
        return _Node(value, at), end
    items: dict[str, _Node] = {}
    keys: dict[str, int] = {}
    listed: list[_Node] = []
    closing = "}" if opening == "{" else "]"
    now = _skip(text, at + 1)
    while text[now : now + 1] != closing:
        if listed:
            if text[now : now + 1] != ",":
                fail(now, f"',' or '{closing}' is needed here")
            now = _skip(text, now + 1)
        key = ""
        if opening == "{":
            if text[now : now + 1] != '"':
                fail(now, "a key in double quotes is needed here")
            node, end = _value(text, now, fail, depth + 1)
            key = node.value
            if key in items:
                fail(now, f"the key {key!r} is there twice")
            keys[key] = now
            now = _skip(text, end)
            if text[now : now + 1] != ":":
                fail(now, f"':' is needed behind the key {key!r}")
            now = _skip(text, now + 1)
        node, end = _value(text, now, fail, depth + 1)
        items[key] = node
        listed.append(node)
        now = _skip(text, end)
    return _Node(items if opening == "{" else listed, at, keys), now + 1
