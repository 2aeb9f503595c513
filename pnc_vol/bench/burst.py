"""``python -m pnc_vol.bench burst`` posts to burst-buffer logs on devices, and flushes them.

Two programs: the checkpoint of FLASH-IO (24 unknowns of 80 blocks of 8 x 8 x 8 cells, each block posted by itself), and
many small requests as E3SM-IO makes them (60 variables, about 20,000 requests of 1 to 100 elements), one by one and as
lists of subarrays. pnc_vol with the queue in memory is what the others are compared with; posting and flushing (the
close included) are timed apart. h5py writes at once, so that most of its time is in the first.

Knows: the works. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import US, Job, Stopwatch, check, times
from pnc_vol.bench.peers import Spec, peer_of
from pnc_vol.system import REAL, is_folder

TMPFS = "/dev/shm"
CELLS, BLOCKS, UNKNOWNS = 8, 80, 24
VARIABLES, REQUESTS, LENGTH = 60, 20_000, 40_000


def main(job: Job) -> None:
    """Post to a log on each device, and flush it."""

    def logging(name: str, folder: str, **hints: str) -> Any:
        log = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": folder, **hints}
        return peer_of("pnc_vol", name, hints=log)

    peers = {
        US: peer_of("pnc_vol"),
        "log on tmpfs": logging("tmpfs", TMPFS) if is_folder(REAL, TMPFS) else f"{TMPFS} is not there",
        "log on disk": logging("disk", job.home),
        "log on disk, synced at flushes": logging("synced", job.home, nc_burst_buf_sync="flush"),
        "h5py": peer_of("h5py"),
    }
    blocks = times(job.options.scale, BLOCKS)
    values = np.random.default_rng(0).random((blocks, CELLS, CELLS, CELLS))

    def post(datasets: list[Any]) -> None:
        for dataset in datasets:
            for i in range(blocks):
                dataset[i] = values[i]

    _posted(job, peers, "FLASH-like", UNKNOWNS, values, post, UNKNOWNS * values.nbytes, UNKNOWNS * blocks)
    table = _pieces(job.options.scale)
    line, wanted = np.arange(float(LENGTH)), np.zeros(LENGTH)
    for _, start, count in table[table[:, 0] == VARIABLES - 1].tolist():
        wanted[start : start + count] = line[start : start + count]
    pieces = np.random.default_rng(2).permutation(table).tolist()

    def post_each(datasets: list[Any]) -> None:
        for variable, start, count in pieces:
            datasets[variable][start : start + count] = line[start : start + count]

    def post_lists(datasets: list[Any]) -> None:
        for variable, dataset in enumerate(datasets):
            rows = table[table[:, 0] == variable]
            values = np.concatenate([line[start : start + count] for _, start, count in rows.tolist()])
            dataset.iput_many(rows[:, 1:2], rows[:, 2:], values)

    nbytes = 8 * int(table[:, 2].sum())
    _posted(job, peers, "E3SM-like", VARIABLES, wanted, post_each, nbytes, len(table))
    peers["h5py"] = "has no lists of subarrays"
    _posted(job, peers, "E3SM-like in lists", VARIABLES, wanted, post_lists, nbytes, VARIABLES)


def _pieces(scale: float) -> npt.NDArray[Any]:
    """Return the variable, start and count of each request: no two overlap."""
    rng, most = np.random.default_rng(1), LENGTH // 100
    each = min(times(scale, REQUESTS) // VARIABLES + 1, most)
    starts = [np.sort(rng.choice(most, each, replace=False)) * 100 for _ in range(VARIABLES)]
    found = np.repeat(np.arange(VARIABLES), each), np.concatenate(starts), rng.integers(1, 101, VARIABLES * each)
    return np.stack(found, axis=1)


def _posted(
    job: Job, peers: Mapping[str, Any], title: str, variables: int, wanted: npt.NDArray[Any],
    post: Callable[[list[Any]], None], nbytes: int, requests: int,
) -> None:  # fmt: skip
    """Post to float64 variables of the shape of `wanted`, which is what the last one holds in the end."""
    specs = {f"v{i:02}": Spec(wanted.shape, "f8") for i in range(variables)}
    posting, flushing = f"{title}, post", f"{title}, flush"

    def run(peer: Any, watch: Stopwatch) -> None:
        made = list(peer.create(specs).values())
        with watch(posting):
            post(made)
        with watch(flushing):
            peer.close()
        check(peer.path, peer.whole([*specs][-1]), wanted)

    job.turns({posting: (nbytes, requests), flushing: (nbytes, 1)}, peers, run)
