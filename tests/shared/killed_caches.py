"""What a kill at this moment would leave of caches, and what the ranks of a job hold."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pnc_vol
from pnc_vol.cache.held_bytes import HeldBytes
from pnc_vol.cache.hints import CacheHints
from pnc_vol.cache.local_store import JobCaches
from pnc_vol.drivers.base import OpenContext
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.errors import PncVolWarning


def after_a_kill(path: Path, nvms: Sequence[Path], copies: Path) -> dict[str, Any]:
    """What a replay brings to the file, if all processes are killed now."""
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    folders = []
    for folder in (folder for nvm in nvms for folder in nvm.glob(f"pnccache-{path.name}-*")):
        target = copies / str(len(folders)) / folder.name
        target.mkdir(parents=True, mode=0o700)
        # Threads go on meanwhile: bytes leave the cache file after the log has said that they are in the file.
        for pattern in ("*.cache", "*.extents"):
            for one in folder.glob(pattern):
                shutil.copy(one, target)
        if any(target.glob("*.extents")):
            folders.append(str(target))
    copy = shutil.copy(path, copies)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        if folders:
            pnc_vol.replay(copy, folders, any_file=True)
        with open(copy, "rb") as whole, pnc_vol.File(whole) as f:
            return {name: f[name][...].tolist() for name in f} | {name: len(f.attrs[name]) for name in f.attrs}


def stores_of(path: Path, folders: Sequence[Path], *, named: Sequence[str] = ("host",), flush: str = "") -> list[Any]:
    """What the ranks of a job hold, each with a cache in a folder; the hosts that the note beside the file names."""
    places = [(host, str(folders[0])) for host in named]
    stores = []
    for rank, folder in enumerate(folders):
        context = OpenContext(name=str(path))
        job = JobCaches("job", rank, len(folders), places, {rank: str(folder)})
        hints = CacheHints("enable", str(folder), **({"flush": flush} if flush else {}))
        stores.append(HeldBytes(PosixDriver.open(str(path), context), hints, context, job))
    return stores
