"""A layout of another package: the values of each variable in a raw file of its own, beside the file with the header.

pip install examples/plugin_layout
File("x.nc", "w", layout="rawfiles")      # x.nc has the definitions, x.nc.raw/temperature the values, big-endian

Rules
-----
1. The raw file of a variable has its name, and its elements in C order, records included; what was not written is 0.
2. A variable cannot be renamed, as it is where the first of its hard links goes, nor can its strings grow. Records that
   are cut off cannot come again before a flush. One that is deleted leaves its file, for the next of its name.
3. A flush is not one step: a program that is killed in it, or that cannot write any more, leaves some raw files as they
   were, and some as they will be. What gets another shape is made anew in the same file, and may be neither.
4. A raw file has its name on stable storage as soon as it is made: a durable flush syncs what is in the files alone.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

import numpy as np

import pnc_vol
from pnc_vol.drivers.base import Driver, OpenContext
from pnc_vol.drivers.stack import open_stack
from pnc_vol.errors import DefinitionError
from pnc_vol.extents.model import Extents, Runs, before
from pnc_vol.format.model import Header
from pnc_vol.format.placing import inner_bytes, place
from pnc_vol.layout.base import SHIFT, Layout
from pnc_vol.layout.registry import register
from pnc_vol.layout.subfiles import Subfiles
from pnc_vol.mapping.tree import Tree
from pnc_vol.settings.options import Options
from pnc_vol.system import exists, is_folder


class RawMap(NamedTuple):
    """Where the elements of one variable lie: one after another in the file of a number."""

    number: int
    itemsize: int
    inner: int

    def extents(self, runs: Runs) -> Extents:
        length = runs.length * self.itemsize
        return Extents((self.number << SHIFT) + runs.start * self.itemsize, length, before(length))


class RawFolder:
    """The raw files of one open file: a number for each variable, by uid, and how they are opened."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.kept: set[int] = set()

    def number(self, uid: int, name: str) -> int:
        number = self.numbers.setdefault(uid, len(self.numbers) + 1)
        self.names[number] = name
        return number

    def begin(self, path: str, uids: tuple[int, ...], stack: str, context: OpenContext, *, created: bool) -> None:
        self.path, self.stack, self.context = path + ".raw", stack, context
        self.kept = {self.numbers[uid] for uid in uids}
        system = context.system
        if created and is_folder(system, self.path):
            for name in system.listdir(self.path):
                system.unlink(os.path.join(self.path, name))
        elif context.writable and not is_folder(system, self.path):
            system.mkdir(self.path)
            system.fsync_dir(os.path.dirname(self.path) or ".")

    def open(self, number: int) -> Driver | None:
        path = os.path.join(self.path, self.names[number])
        system, writable = self.context.system, self.context.writable
        there = exists(system, path)
        if writable:
            system.close(system.open(path, os.O_RDWR | os.O_CREAT | (0 if number in self.kept else os.O_TRUNC)))
            if not there:
                system.fsync_dir(self.path)
        elif not there:
            return None
        return open_stack(self.stack, path, self.context)


class RawFiles(Layout):
    """One raw file for each variable."""

    name = "rawfiles"

    def __init__(self, options: Options) -> None:
        self.folder = RawFolder()
        super().__init__(options)

    def anew(self) -> RawFiles:
        made = super().anew()
        made.folder = self.folder
        return made

    def with_begins(self, new: Header, uids: tuple[int, ...], tree: Tree, *, reserve: int, least: int) -> Header:
        wanted = dict(zip(uids, new.vars, strict=True))
        for uid, var in zip(self.uids, self.header.vars, strict=True):
            now = wanted.get(uid)
            if now and (now.name, inner_bytes(new, now)) != (var.name, inner_bytes(self.header, var)):
                raise DefinitionError(f"{var.name!r} has a raw file: it keeps its name and the size of its elements")
        # The begins are valid and mean nothing: there are no data in this file.
        return place(new, header_extent=least)

    def made_maps(self) -> dict[int, RawMap]:
        found = {}
        for uid, var, itemsize in zip(self.uids, self.header.vars, self.itemsizes, strict=True):
            nbytes = inner_bytes(self.header, var)
            inner = max(1, nbytes // itemsize) if uid in self.record_uids else 0
            found[uid] = RawMap(self.folder.number(uid, var.name), itemsize, inner)
        return found

    def over(self, driver: Driver, path: str, stack: str, context: OpenContext, *, created: bool) -> Driver:
        assert self.maps is not None  # all variables have numbers from here on
        self.folder.begin(path, self.uids, stack, context, created=created)
        return Subfiles(driver, self.folder.open, earlier=self.folder.kept)


def main(path: str) -> None:
    """Write a file of this layout, and look at it without pnc_vol."""
    register("rawfiles", RawFiles)
    with pnc_vol.File(path, "w", layout="rawfiles") as f:
        f["x"] = np.arange(6.0).reshape(2, 3)
        steps = f.create_dataset("steps", (0,), "i4", maxshape=(None,))
        for i in range(3):
            steps.resize(i + 1, axis=0)
            steps[i] = 10 * i
    for name, dtype in (("x", ">f8"), ("steps", ">i4")):
        print(f"{path}.raw/{name}:", np.fromfile(os.path.join(path + ".raw", name), dtype).tolist())
    with pnc_vol.File(path) as f:  # the file says which layout it has
        print("x[:, 1]:", f["x"][:, 1].tolist(), "steps:", f["steps"][...].tolist())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "raw.nc")
