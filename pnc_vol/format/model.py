"""What a classic NetCDF file says of itself: dimensions, attributes, variables, a header.

Knows: the words of the specification. Does not know: bytes, files, numpy, HDF5's words.
Values of attributes stay as the big-endian bytes of the file until someone asks for them
(`format.types.attr_values`), so that opening a file of 100,000 variables decodes no value.

Source: NetCDF classic format specification (CDF-1, CDF-2) and PnetCDF's CDF-5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

__all__ = ["Attr", "Dim", "Facts", "Finding", "Header", "Var"]


class Dim(NamedTuple):
    """A dimension.

    name : str, NFC-normalised when we wrote it, as in the file when another program did (bytes that are no
        UTF-8 as surrogate escapes).
    size : int, elements; 0 means the record (unlimited) dimension, as in the file.
    """

    name: str
    size: int


class Attr(NamedTuple):
    """An attribute.

    name : str
    type : int, NC type code (see `format.types`).
    nelems : int, number of values.
    data : bytes, the values as in the file: big-endian, without the padding.
    """

    name: str
    type: int
    nelems: int
    data: bytes


class Var(NamedTuple):
    """A variable.

    name : str
    dims : tuple of int, indices into `Header.dims`, slowest first.
    attrs : tuple of Attr
    type : int, NC type code.
    begin : int, bytes from the start of the file to the first value; -1 while it is not placed.
    """

    name: str
    dims: tuple[int, ...]
    attrs: tuple[Attr, ...]
    type: int
    begin: int = -1


class Facts:
    """What follows from the definitions of a header, found once; None until somebody asks.

    Headers that differ in begins and in the number of records alone have one of these in common. So nothing here may
    depend on these. (A cache outside of the header would have to be emptied by somebody.)

    inner_sizes, padded_sizes : list of int, see `format.sizes`.
    record_vars : list of int, see `format.sizes`.
    var_at : list of int, of a header that was read without a finding: where the entry of each variable starts.
    within_limits : bool, `format.limits` has looked at all but the begins.
    digest : bytes, see `flush.agree`.
    encoded : the bytes of all objects, see `format.encode`.
    """

    inner_sizes: list[int] | None = None
    padded_sizes: list[int] | None = None
    record_vars: list[int] | None = None
    var_at: list[int] | None = None
    within_limits: bool = False
    digest: bytes | None = None
    encoded: Any = None


@dataclass(frozen=True, slots=True)
class Header:
    """A whole header.

    version : int, 1, 2 or 5 (CDF-1, CDF-2, CDF-5).
    numrecs : int, records that the file holds.
    facts : Facts
    """

    version: int
    numrecs: int = 0
    dims: tuple[Dim, ...] = ()
    attrs: tuple[Attr, ...] = ()
    vars: tuple[Var, ...] = ()
    facts: Facts = field(default_factory=Facts, init=False, compare=False, repr=False)

    def with_numrecs(self, numrecs: int) -> Header:
        """The same definitions with another number of records."""
        if numrecs == self.numrecs:
            return self
        return self._of_these(Header(self.version, numrecs, self.dims, self.attrs, self.vars))

    def with_begins(self, begins: Iterable[int]) -> Header:
        """The same definitions with variables that begin there.

        Examples
        --------
        >>> Header(5, vars=(Var("a", (), (), 6), Var("b", (), (), 6))).with_begins([80, 88]).vars[1].begin
        88
        """
        name, dims, attrs, code, _ = zip(*self.vars, strict=True) if self.vars else ((),) * 5
        made = map(tuple.__new__, repeat(Var), zip(name, dims, attrs, code, begins, strict=True))
        return self.with_vars(tuple(made))

    def with_vars(self, variables: tuple[Var, ...]) -> Header:
        """The same definitions, of which `variables` differ in their begins alone."""
        return self._of_these(Header(self.version, self.numrecs, self.dims, self.attrs, variables))

    def _of_these(self, made: Header) -> Header:
        object.__setattr__(made, "facts", self.facts)
        return made


class Finding(NamedTuple):
    """Something that a reader or a checker has to say about the bytes of a file.

    severity : str, ``"error"`` or ``"warning"``.
    offset : int, bytes from the start of the file to the field.
    field : str, the field in the words of the specification, e.g. ``"var[3].begin"``.
    value : object, what was found there.
    message : str, what is wrong, in one line.
    """

    severity: str
    offset: int
    field: str
    value: object
    message: str
