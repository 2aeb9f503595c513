"""A node that stops: what was not on stable storage is gone, what ``nc_burst_buf_sync`` promises is there."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.disk.identity import ATTRIBUTE
from pnc_vol.errors import LogRefusedError
from pnc_vol.log import short_posts
from pnc_vol.system import REAL
from pnc_vol.testing.faults import CHANGING, HookedSystem

PAGE = 4096
Tree = dict[str, bytes | None]
"""Files by path, with their content, and folders, with None."""


class Losing(HookedSystem):
    """Knows what of a tree of files is on stable storage: contents since their fsync, names since that of the folder.

    images : list of (operations that had returned, name of a way to stop, tree, identities by path)
    """

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(REAL)
        self.root = root
        self.random = np.random.default_rng(4)
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, int]] = {}
        self.handles: dict[int, int] = {}
        """Inodes that were met; held, so that none is given to another file."""
        self.identities: dict[int, bytes] = {}
        """Extended attributes, by inode, since the fsync of their file."""
        self.images: list[tuple[int, str, Tree, dict[str, bytes]]] = []
        self.done = self.calls = 0
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
            self.call("fsync_dir", (str(folder),), {})

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in CHANGING:
            self.calls += 1
            if self.calls % 4 == 0:
                self.stop()
        result = super().call(name, args, kwargs)
        if name in ("fsync", "fdatasync"):
            inode = self.hold(f"/proc/self/fd/{args[0]}", follow=True)
            self.contents[inode] = self.content(inode)
            if found := self.identity(inode):
                self.identities[inode] = found
        if name == "fsync_dir":
            inode = self.hold(args[0])
            self.names[inode] = self.listed(inode)
        return result

    def hold(self, path: str, *, follow: bool = False) -> int:
        fd = os.open(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
        inode = os.fstat(fd).st_ino
        if inode in self.handles:
            os.close(fd)
        else:
            self.handles[inode] = fd
        return inode

    def content(self, inode: int) -> bytes:
        return pathlib.Path(f"/proc/self/fd/{self.handles[inode]}").read_bytes()

    def identity(self, inode: int) -> bytes:
        try:
            return os.getxattr(f"/proc/self/fd/{self.handles[inode]}", ATTRIBUTE)
        except OSError:
            return b""

    def listed(self, inode: int) -> dict[str, int]:
        folder = f"/proc/self/fd/{self.handles[inode]}"
        return {name: self.hold(os.path.join(folder, name)) for name in os.listdir(folder)}

    # ------------------------------------------------------------------------------------------ stops

    def stop(self) -> None:
        """What a stop at this moment would leave: only what is safe, or any part of the rest, too."""
        for way in ("nothing more", "some pages", "some pages"):
            tree: Tree = {}
            named: dict[str, bytes] = {}
            self._collect(self.hold(str(self.root)), "", tree, named, chance=way != "nothing more")
            self.images.append((self.done, way, tree, named))

    def _collect(self, inode: int, path: str, tree: Tree, named: dict[str, bytes], *, chance: bool) -> None:
        if not stat.S_ISDIR(os.fstat(self.handles[inode]).st_mode):
            safe = self.identities.get(inode, b"")
            if found := self.identity(inode) if chance and self.random.integers(0, 2) else safe:
                named[path] = found
            tree[path] = self._survived(inode) if chance else self.contents.get(inode, b"")
            return
        tree[path] = None
        names = self.names.get(inode, {})
        if chance and self.random.integers(0, 2):
            names = self.listed(inode)
        for name, child in names.items():
            self._collect(child, f"{path}/{name}", tree, named, chance=chance)

    def _survived(self, inode: int) -> bytes:
        """Page by page what is safe or what was written since."""
        safe, now = self.contents.get(inode, b""), self.content(inode)
        made = bytearray(now if self.random.integers(0, 2) else safe)
        for at in range(0, len(made), PAGE):
            source = now if self.random.integers(0, 2) else safe
            made[at : at + PAGE] = source[at : at + PAGE].ljust(len(made[at : at + PAGE]), b"\0")
        return bytes(made)

    def close_handles(self) -> None:
        for fd in self.handles.values():
            os.close(fd)


def restore(root: pathlib.Path, tree: Tree, named: dict[str, bytes]) -> None:
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in tree.items():
        if content is not None:
            pathlib.Path(f"{root}{name}").write_bytes(content)
        elif name:
            os.mkdir(f"{root}{name}", 0o700)
    for name, identity in named.items():
        os.setxattr(f"{root}{name}", ATTRIBUTE, identity)


def program(f: Any, small: bool) -> Iterator[int]:
    """Posts, one after another, and flushes; what is yielded are the posts that a flush has brought to the file.

    small : bool, all are small, and wait in the slot of the commit log.
    """
    x = f.create_dataset("x", (40,), "i4")
    r = f.create_dataset("r", (0, 300), "f8", maxshape=(None, 300))
    flushed = 0
    for i in range(14):
        if i % 2 and not small:
            r.resize(i // 2 + 1, axis=0)
            r[i // 2] = i + 1
        else:
            x[i] = i + 1
        yield flushed
        if i % 5 == 4:
            f.flush()
            flushed = i + 1
            yield flushed


def posts(path: pathlib.Path, small: bool) -> int:
    """How many posts a file holds; they must be the first ones."""
    with pnc_vol.File(path) as f:
        x = f["x"][:] if "x" in f else np.zeros(40, "i4")
        r = f["r"][...] if "r" in f else np.zeros((0, 300))
    other = [i % 2 == 1 and not small for i in range(14)]
    there = [bool(r.shape[0] > i // 2 and r[i // 2, 0]) if other[i] else bool(x[i]) for i in range(14)]
    n = there.index(False) if False in there else 14
    wanted_x, wanted_r = np.zeros(40, "i4"), np.zeros_like(r)
    for i in range(n):
        if other[i]:
            wanted_r[i // 2] = i + 1
        else:
            wanted_x[i] = i + 1
    np.testing.assert_array_equal(x, wanted_x)
    np.testing.assert_array_equal(r, wanted_r)
    return n


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="the test needs Linux")
@pytest.mark.parametrize(("sync", "small"), [("flush", False), ("each", False), ("flush", True)])
def test_what_is_promised_survives_the_stop_of_a_node(
    sync: str, small: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_posts, "STRETCH", 1)
    root = tmp_path / "root"
    (root / "logs").mkdir(parents=True)
    system, path = Losing(root), root / "x.nc"
    options = {"burst_buf_dirname": str(root / "logs")}
    promised = []
    f = pnc_vol.File(path, "w", burst_buf=True, burst_buf_sync=sync, system=system, **options)
    made = 0
    for flushed in program(f, small):
        if len(promised) == 0 or flushed == promised[-1][0]:
            made += 1
        promised.append((flushed, made))
        system.done += 1
        system.stop()
    f.close()
    system.done += 1
    system.stop()
    promised.append((14, 14))
    system.close_handles()
    assert len(system.images) > 100
    for done, way, tree, named in system.images:
        if not done:
            continue
        restore(root, tree, named)
        least = promised[done - 1][0 if sync == "flush" else 1]
        assert path.exists() or not least
        if not path.exists():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
            try:
                pnc_vol.replay(path, **options)
            except LogRefusedError:
                # The identity of a file that was just made comes after it.
                assert not least
                continue
            except pnc_vol.errors.LogError:
                # What no flush and no post has promised may be there in pieces; it is not taken unasked.
                assert sync == "flush"
                pnc_vol.replay(path, **options, salvage=True)
            n = posts(path, small)
        assert least <= n, f"{n} of {least} posts survived, {done} operations, {way}"
