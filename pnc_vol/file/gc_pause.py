"""Pauses of Python's collector of cycles, for work that makes very many small objects and no cycles.

Knows: `gc`. Does not know: what is done meanwhile.

The collector looks at all objects again and again while their number grows: for headers of 10^5 variables that is a
third of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["without_collector"]

P = ParamSpec("P")
R = TypeVar("R")


def without_collector(function: Callable[P, R]) -> Callable[P, R]:
    """Do without the collector while `function` runs.

    Examples
    --------
    >>> without_collector(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @wraps(function)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return quiet
