"""What two programs told is the same: values, and arrays by shape, type and values."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(theirs: Any, ours: Any) -> None:
    if isinstance(theirs, (list, tuple)):
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            same(one, other)
    elif isinstance(theirs, np.ndarray):
        assert theirs.dtype == ours.dtype
        assert theirs.shape == ours.shape
        np.testing.assert_array_equal(theirs, ours)
    else:
        assert theirs == ours
