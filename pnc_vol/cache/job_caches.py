"""The ranks of a job have their caches of one file in one folder on each node.

Knows: hosts, directories, ranks and their nodes. Does not know: what is in a cache, whether a folder is there.

Every rank knows the directories of its node, to read what its peers hold, and every place once, for the note by which a
recovery finds all caches. Ranks tell them merged in a tree, so that nobody gets a word of each rank. (Instead of one
note there could be a file for each folder; every opening would then have to list a directory to find them.)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pnc_vol.append_log.private_folders import name_of_folders
from pnc_vol.ranks.comm import Comm

__all__ = ["PREFIX", "JobCaches"]

PREFIX = "pnccache-"


@dataclass(frozen=True, slots=True)
class JobCaches:
    """Where the ranks of a job have their caches of one file.

    token : str, random, the same on all ranks.
    rank : int, this one.
    ranks : int, all.
    places : sequence of (str, str), each host with a directory there, once.
    directories : mapping of int to str, those of the ranks of this node; absolute paths.
    """

    token: str
    rank: int
    ranks: int
    places: Sequence[tuple[str, str]]
    directories: Mapping[int, str]

    @classmethod
    def of(cls, comm: Comm, token: str, host: str, directory: str) -> JobCaches:
        """Ask the ranks (collective).

        token : str, that of rank 0 counts.
        directory : str, of this rank.
        """
        nodes = comm.nodes()
        places = comm.merge("open cache", [[host, directory, [[comm.rank, comm.rank]]]], _joined_places)
        token = comm.broadcast("open cache", token)
        peers = nodes.ranks(nodes.of(comm.rank))
        runs = ((range(first, last + 1), there) for _, there, ranks in places for first, last in ranks)
        known = {rank: there for run, there in runs for rank in peers if rank in run}
        return cls(token, comm.rank, comm.size, [(at, there) for at, there, _ in places], known)

    def folder(self, path: str, rank: int) -> str:
        """Return the folder of the caches that a rank of this node and others have of a file, `path`."""
        return os.path.join(self.directories[rank], self._name(path))

    def noted(self, path: str) -> list[str]:
        """Return all folders, each with its host, once."""
        return [f"{host}:{os.path.join(directory, self._name(path))}" for host, directory in self.places]

    def _name(self, path: str) -> str:
        return name_of_folders(PREFIX, path) + self.token


def _joined_places(one: list[Any], other: list[Any]) -> list[Any]:
    """Return hosts and directories of ranks and of higher ones; the ranks as first and last of each run."""
    known = {(host, directory): list(runs) for host, directory, runs in one}
    for host, directory, runs in other:
        own_runs = known.setdefault((host, directory), [])
        if own_runs and own_runs[-1][1] + 1 == runs[0][0]:
            own_runs[-1] = [own_runs[-1][0], runs[0][1]]
            runs = runs[1:]
        own_runs += runs
    return [(*place, runs) for place, runs in known.items()]
