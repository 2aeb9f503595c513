"""A store of another package: chosen by its name, told of a flush, left when it has no room."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.queue import stores
from pnc_vol.queue.memory import MemoryStore


def test_a_registered_store_takes_posts_until_it_is_full(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Small] = []

    class Small(MemoryStore):
        taken = flushes = 0

        def put_run(self, *args: Any) -> bool:
            return self.taken < 2 and super().put_run(*args)

        def put(self, *args: Any) -> bool:
            self.taken += 1
            return self.taken <= 2 and super().put(*args)

        def after_flush(self) -> bool:
            self.flushes += 1
            self.taken = 0
            return True

    def small(context: stores.StoreContext) -> Small:
        made.append(Small(context.backlog))
        return made[0]

    stores.register("small", small)
    assert "small" in stores.registered()
    with pnc_vol.File(path, "w", store="small") as f:
        x = f.create_dataset("x", (10,), "i4")
        for i in range(10):
            x[i : i + 1] = np.array([i], "i8")
        queue = f.id.handle.session.posted.queue
        assert queue.stores == [made[0], queue.memory]
        assert x[...].tolist() == list(range(10))
        f.flush()
        assert made[0].flushes >= 1
    with pnc_vol.File(path) as f:
        assert f["x"][...].tolist() == list(range(10))


def test_an_unknown_store_touches_no_file(path: pathlib.Path) -> None:
    path.write_bytes(b"kept")
    with pytest.raises(ValueError, match="memory"):
        pnc_vol.File(path, "w", store="nothing")
    assert path.read_bytes() == b"kept"
    with pytest.raises(ValueError, match="word of letters"):
        stores.register("a b", lambda context: MemoryStore(context.backlog))
