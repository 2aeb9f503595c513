"""How many axes an array can have.

Knows: numpy's limit. Does not know: files, whose variables may have up to 1,024 axes.
"""

from __future__ import annotations

import numpy as np

from pnc_vol.errors import SelectionValueError

__all__ = ["MOST_AXES", "refuse_axes"]

MOST_AXES = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32


def refuse_axes(number: int) -> None:
    """Complain of a selection with more axes than arrays have.

    Raises
    ------
    SelectionValueError
    """
    raise SelectionValueError(
        f"The selection has {number} axes, and arrays have at most {MOST_AXES}; select a single index of some axes"
    )
