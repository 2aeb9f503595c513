"""`check` refuses options of an opening that do not go together.

Knows: options, what layouts declare. Does not know: files, drivers. `docs/reference/combinations.md` shows the table.

Rules
-----
1. What cannot be made right is refused when the file is opened, by one clear error, on all ranks, before anything is
   made. What is not in this table works.
2. An existing file is opened as what it is, whatever layout is asked for: what goes with a layout alone is refused only
   where a file of that layout is created.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pnc_vol.drivers.base import parse_stack
from pnc_vol.layout.base import Layout
from pnc_vol.settings.options import Options

__all__ = ["REFUSED", "Refused", "check"]


class Refused(NamedTuple):
    """Two options that do not go together.

    one, other : str, as the page has them.
    applies : callable, given the layout, the options and the number of ranks.
    error : class of the error; text : str, what it says.
    new : bool, only where a file is created.
    """

    one: str
    other: str
    applies: Callable[[type[Layout], Options, int], bool]
    error: type[ValueError]
    text: str
    new: bool = False


def _cached(options: Options) -> bool:
    return any(layer.name == "cache" for layer in parse_stack(options.driver)) if options.driver else False


REFUSED = (
    Refused(
        "several ranks",
        "a layout with `several_ranks = False`",
        lambda layout, options, ranks: ranks > 1 and not layout.several_ranks,
        ValueError,
        "the ranks of a communicator cannot share a file with the layout {layout!r}",
    ),
    Refused(
        "`burst_buf=True`",
        "a layout of another package that is not `self_contained`",
        lambda layout, options, ranks: options.burst_buf and not (layout.self_contained or layout.several_files),
        ValueError,
        "a file with the layout {layout!r} cannot have a burst buffer log (nc_burst_buf)",
    ),
    Refused(
        "a node-local cache",
        "a layout of another package that is not `self_contained`",
        lambda layout, options, ranks: _cached(options) and not (layout.self_contained or layout.several_files),
        ValueError,
        "a file with the layout {layout!r} cannot have a node-local cache (e10_cache_path): what caches of its other "
        "files hold would not be found after a kill",
    ),
    Refused(
        '`format="CDF-1"`, `"CDF-2"`',
        '`layout="blob"`, `"hdf5blob"`',
        lambda layout, options, ranks: options.version != 5 and layout.several_files,
        ValueError,
        "a set of subfiles has 64-bit maps, which CDF-{version} cannot hold; leave format= out",
        new=True,
    ),
    Refused(
        '`publish="close"`',
        "a layout of another package that is not `self_contained`",
        lambda layout, options, ranks: (
            options.publish == "close" and not (layout.self_contained or layout.several_files)
        ),
        ValueError,
        "a file with the layout {layout!r} cannot have publish='close': its other files would be new while an older "
        "file with this name still counts",
        new=True,
    ),
)


def check(layout: type[Layout], options: Options, ranks: int, *, path: str = "", new: bool = False) -> None:
    """Refuse options that do not go together.

    Parameters
    ----------
    new : bool
        A file of this layout is about to be created; else what holds for every opening is looked at.

    Raises
    ------
    ValueError
        The same on all ranks; a `DefinitionError` where that is the layout's nature.

    Examples
    --------
    >>> from pnc_vol.layout.registry import layout_class
    >>> check(layout_class("blob"), Options(version=2), 1, path="x.nc", new=True)
    Traceback (most recent call last):
    ValueError: x.nc: a set of subfiles has 64-bit maps, which CDF-2 cannot hold; leave format= out
    """
    for refused in REFUSED:
        if refused.new == new and refused.applies(layout, options, ranks):
            text = refused.text.format(layout=layout.name, version=options.version)
            raise refused.error(f"{path}: {text}" if path else text)
