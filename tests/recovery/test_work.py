"""What a replay costs grows with the entries and datasets of the logs, and not with their square."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest

import pnc_vol
from pnc_vol.log.decoding import read_log
from pnc_vol.log.encoding import LogHeader, encode_header, encode_vara
from pnc_vol.mapping.tree import Node


def test_the_entries_without_coordinates_are_found_once() -> None:
    header = encode_header(LogHeader("out.nc", num_entries=3))
    log = read_log(header + b"".join(encode_vara(6, 0, (i,), (1,), 8 + 4 * i, 4) for i in range(3)), 20)
    assert log.entries.whole is log.entries.whole
    assert not log.entries.whole.any()


def test_datasets_are_found_without_walking_over_all(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paths that are made for a replay, by the number of datasets that it writes to."""
    made = 0
    path_of = Node.path.fget  # type: ignore[attr-defined]

    def path(node: Any) -> str:
        nonlocal made
        made += 1
        return str(path_of(node))

    counts = []
    for n in (20, 80):
        file = tmp_path / f"{n}.nc"
        child = os.fork()
        if not child:
            f = pnc_vol.File(file, "w", burst_buf=True, burst_buf_dirname=str(logs))
            datasets = [f.create_dataset(f"v{i}", (2,), "i4") for i in range(n)]
            f.flush()
            for dataset in datasets:
                dataset[:] = 1
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        made = 0
        with monkeypatch.context() as patch:
            patch.setattr(Node, "path", property(path))
            assert pnc_vol.replay(file, burst_buf_dirname=str(logs)).replayed == n
        counts.append(made / n)
    assert counts[1] <= counts[0] < 20
