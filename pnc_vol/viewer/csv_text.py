"""Values as CSV: each with as few digits as tell it from all others.

Knows: arrays of real numbers. Does not know: requests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

__all__ = ["csv_of"]


def csv_of(values: np.ndarray[Any, Any]) -> bytes:
    """The lines of an array of real numbers with one axis or two; with one, a line for each value.

    numpy's own writer takes a call of Python for each row and 25 characters for each value.
    """
    if values.dtype.kind in "bf" and values.dtype.itemsize < 4:
        values = values.astype("i4" if values.dtype.kind == "b" else "f4")
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    if not values.size:
        return b""
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    text = text[1:-1].replace(b",", b"\n") if values.ndim == 1 else text[2:-2].replace(b"],[", b"\n")
    if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        # JSON has no word for these
        words = [str(value).encode() for value in values[~finite].tolist()]
        pieces = text.split(b"null")
        text = b"".join(part for pair in zip(pieces, [*words, b""], strict=True) for part in pair)
    return text + b"\n"
