"""`Report` says what a conversion did, and what it could not keep.

Knows: paths and sentences. Does not know: files, formats.

Rules
-----
1. `Report.lost` is content: objects, values, attributes, links that the target does not have.
2. `Report.dropped` is storage only: chunks, compression and the like. Every value is in the target.
3. `Report.by_convention` is content that the target represents in another way.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, field
from typing import NamedTuple

from pnc_vol.errors import DefinitionError

__all__ = ["Dropped", "Ledger", "Loss", "LossError", "Report", "Represented"]


class Represented(NamedTuple):
    """Content that the target represents in another way.

    path : str, in the source.
    what : str, e.g. ``"group path -> variable name A_B"``.
    """

    path: str
    what: str


class Dropped(NamedTuple):
    """A storage option that the target does not have.

    path : str, in the source.
    what : str, e.g. ``"gzip 4"``.
    """

    path: str
    what: str


class Loss(NamedTuple):
    """Content that could not be kept.

    path : str, in the source.
    what : str, what is missing.
    why : str
    """

    path: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion did.

    source, target : str, paths of the files.
    direction : str, ``"HDF5 -> NetCDF"`` or ``"NetCDF -> HDF5"``.
    groups, datasets, attributes : int, written to the target; the root group is not counted.
    bytes : int, bytes of values read.
    seconds : float
    peak_bytes : int, the largest resident memory that this process ever had.
    by_convention : tuple of Represented
    dropped : tuple of Dropped
    lost : tuple of Loss
    """

    source: str
    target: str
    direction: str
    groups: int
    datasets: int
    attributes: int
    bytes: int
    seconds: float
    peak_bytes: int
    by_convention: tuple[Represented, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    lost: tuple[Loss, ...] = ()

    @property
    def complete(self) -> bool:
        """True if all content was kept."""
        return not self.lost


class LossError(DefinitionError):
    """Something could not be kept, and ``strict=True`` was asked for; no target was written.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


@dataclass(slots=True)
class Ledger:
    """A report while it is being made."""

    groups: int = 0
    datasets: int = 0
    attributes: int = 0
    bytes: int = 0
    by_convention: list[Represented] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)

    def spell(self, path: str, what: str) -> None:
        """Note that content is represented in another way."""
        self.by_convention.append(Represented(path, what))

    def drop(self, path: str, what: str) -> None:
        """Note a storage option that is lost."""
        self.dropped.append(Dropped(path, what))

    def lose(self, path: str, what: str, why: object) -> None:
        """Note lost content; of an exception, its first line."""
        text = str(why).strip().splitlines()
        self.lost.append(Loss(path, what, text[0] if text else type(why).__name__))

    def report(self, source: str, target: str, direction: str, seconds: float) -> Report:
        """Return the report, with the memory that the process has needed so far."""
        # Linux counts KiB, macOS bytes
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return Report(
            source, target, direction,
            self.groups, self.datasets, self.attributes, self.bytes, seconds, peak,
            tuple(self.by_convention), tuple(self.dropped), tuple(self.lost),
        )  # fmt: skip
