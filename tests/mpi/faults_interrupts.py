"""Ctrl-C on one rank, and a forked child."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from fault_scenarios import RANK, SIZE, caught, holds, opened, scenario


@scenario
def interrupted() -> None:
    """Ctrl-C on one rank inside a flush: it leaves, and the others are told."""
    from pnc_vol.flush import transport

    def run() -> None:
        with opened() as f:
            x = f.create_dataset("x", (SIZE,), "i4")
            x[RANK] = RANK
            f.flush()
            x[RANK] = 9
            execute = transport.execute
            if RANK == 1:

                def interrupt(*args: Any, **kwargs: Any) -> None:
                    raise KeyboardInterrupt

                transport.execute = interrupt  # type: ignore[assignment]
            try:
                f.flush()
            finally:
                transport.execute = execute

    try:
        told = caught(run)
    except KeyboardInterrupt:
        told = {"type": "KeyboardInterrupt", "text": ""}
    if RANK == 1:
        assert told["type"] == "KeyboardInterrupt"
    else:
        assert told["type"] == "RankError", told
        assert "KeyboardInterrupt" in told["text"]
        assert told["ranks"] == [1]


@scenario
def interrupted_close() -> None:
    """Ctrl-C on one rank inside close: the others are told too."""
    from pnc_vol.flush import transport

    f = opened(driver="posix")
    f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    execute = transport.execute
    if RANK == 1:

        def interrupt(*args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

        transport.execute = interrupt  # type: ignore[assignment]
    try:
        told = caught(f.close)
    except KeyboardInterrupt:
        told = {"type": "KeyboardInterrupt", "text": ""}
    finally:
        transport.execute = execute
    assert told["type"] == ("KeyboardInterrupt" if RANK == 1 else "RankError"), told
    assert not f


@scenario
def forked_child() -> None:
    """A child of one rank can neither use the file nor harm it."""
    f = opened(driver="posix")
    f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    if RANK == 1:
        child = os.fork()
        if child == 0:
            kind = caught(f.flush)["type"]
            os._exit(0 if kind == "ForkedFileError" else 1)
        assert os.waitpid(child, 0)[1] == 0
    f.flush()
    f.close()
    holds("x", np.arange(SIZE))
