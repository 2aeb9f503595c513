"""The blob layout by the public suite of layouts, with maps from what is posted and maps that leave out most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.blob.layout import BlobLayout
from pnc_vol.testing import layout_suite
from pnc_vol.testing.layout_suite import LayoutSuite


class TestDerivedMaps(LayoutSuite):
    layout = BlobLayout

    def test_a_plan_is_what_a_flush_does(self) -> None:
        """As soon as ranks have agreed on the places of elements, which they do at a flush."""
        with self.open("w") as f:
            self.define(f)
            f["table"][1:4, 1] = 5
            f["block"][:, 0] = 1
            early = f.plan()
            assert early.unplaced == ("/block", "/table")
            assert early.runs > 0
            assert early.writes == ()
            f.flush()
            f["table"][1:4, 1] = 6
            f["block"][:, 0] = 2
            plan = f.plan()
            f.flush()
            done = f.statistics()["last_flush"]
            assert (plan.runs, plan.extents, plan.nbytes) == (done["runs"], done["extents"], done["nbytes"])


class TestGivenMaps(TestDerivedMaps):
    """Each variable has a map that leaves out elements, which get a place when they are posted."""

    def define(self, file: pnc_vol.File) -> None:
        for name, (shape, dtype, axis) in layout_suite._SHAPES.items():
            inner = shape if axis is None else shape[1:]
            nelems = int(np.prod(inner))
            mine = pnc_vol.Decomposition.from_runs(np.arange(0, nelems, 2), shape=inner) if inner else None
            maxshape = None if axis is None else (None, *shape[1:])
            file.create_dataset(name, shape, dtype, maxshape=maxshape, decomposition=mine)

    @pytest.fixture
    def defined(self, _known: None) -> Iterator[tuple[Any, Any]]:
        with self.open("w") as f:
            self.define(f)
            for ds in f.values():
                ds[...] = np.ones(ds.shape, ds.dtype)
            f.flush()
            yield layout_suite._layout_of(f)
