"""Run by test_own_paths.py on several ranks: ``ranks_own_paths.py FOLDER``."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scenarios
from mpi4py import MPI

import pnc_vol
from pnc_vol.drivers.base import OpenContext
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.drivers.stack import register

world = MPI.COMM_WORLD
FOLDER = sys.argv[1]


class Drawer(PosixDriver):
    """Files of a folder, under addresses; which rank asked and created is kept."""

    name = "drawer"
    capabilities = replace(
        PosixDriver.capabilities, keeps_file=False, own_paths=True, several_processes=True, takes_descriptor=False
    )
    asked, created = 0, 0

    @classmethod
    def exists(cls, path: str, context: OpenContext) -> bool:
        cls.asked += 1
        return os.path.exists(cls.within(path))

    @classmethod
    def within(cls, path: str) -> str:
        assert path.startswith("drawer://")
        return os.path.join(FOLDER, path.removeprefix("drawer://"))

    @classmethod
    def open(cls, path: str | None, context: OpenContext) -> Any:
        assert path is not None
        if context.new:
            cls.created += 1
            open(cls.within(path), "wb").close()
        return super().open(cls.within(path), context)


class Alone(Drawer):
    name = "alone"
    capabilities = replace(Drawer.capabilities, several_processes=False)


register("drawer", Drawer)
register("alone", Alone)


def opened(mode: str, name: str = "x.nc", driver: str = "drawer", **keywords: Any) -> pnc_vol.File:
    return pnc_vol.File(f"drawer://{name}", mode, driver=driver, comm=world, **keywords)


def shared() -> None:
    for spec in ("drawer", "trace | drawer"):
        Drawer.asked = Drawer.created = 0
        with opened("w", driver=spec) as f:
            x = f.create_dataset("x", (world.size, 1000), "f8")
            steps = f.create_dataset("steps", (0, world.size), "i4", maxshape=(None, world.size))
            x[world.rank] = world.rank + 1
            f.flush()
            assert x[(world.rank + 1) % world.size, 5] == (world.rank + 1) % world.size + 1
            steps.resize(3, axis=0)
            steps[:, world.rank] = world.rank
        assert (Drawer.asked, Drawer.created) == ((1, 1) if world.rank == 0 else (0, 0))
        with opened("a", driver=spec) as f:
            f["x"][world.rank, 0] = -1
        with opened("r", driver=spec) as f:
            assert f["x"][:, :2].tolist() == [[-1, rank + 1] for rank in range(world.size)]
            assert f["steps"][:].tolist() == [list(range(world.size))] * 3
    whole = pnc_vol.File(os.path.join(FOLDER, "x.nc"))
    assert np.array_equal(whole["x"][:, 1], np.arange(world.size) + 1)
    whole.close()


def modes() -> None:
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            opened(mode, "nothing.nc")
    opened("x", "once.nc").close()
    with pytest.raises(FileExistsError):
        opened("x", "once.nc")
    world.Barrier()
    if world.rank == 0:
        with open(os.path.join(FOLDER, "bad.nc"), "wb") as bad:
            bad.write(b"no header")
    world.Barrier()
    with pytest.raises(OSError, match="drawer://bad"):
        opened("r", "bad.nc")


def moved() -> None:
    with opened("w", "moved.nc", header_reserve=0) as f:
        f["x"] = np.arange(10)
        f.flush()
        f.attrs["long"] = np.arange(5000)
        with pytest.raises(pnc_vol.DefinitionError, match="need data to be moved"):
            f.flush()
        del f.attrs["long"]
    with opened("r", "moved.nc") as f:
        assert f["x"][:].tolist() == list(range(10))


def refused() -> None:
    with pytest.raises(ValueError, match=f"'alone' does not declare several_processes: {world.size} ranks"):
        opened("w", "alone.nc", driver="alone")
    assert not os.path.exists(os.path.join(FOLDER, "alone.nc"))


scenarios.run({"shared": shared, "modes": modes, "moved": moved, "refused": refused})
