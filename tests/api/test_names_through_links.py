"""The name of an object that was reached through links is the path that was asked for: as in h5py, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

import pnc_vol


def linked(h: Any, folder: Path) -> Any:
    """A file with links of all kinds, open."""
    with h.File(folder / "target.nc", "w") as target:
        target["tg/x"] = [1, 2, 3]
        target.create_group("tg/sub")
    f = h.File(folder / "linked.nc", "w")
    f["real/x"] = [1, 2, 3]
    f["real/sub/y"] = 1
    f.create_group("real/sub/deep")
    f["soft"], f["relative"] = h.SoftLink("/real"), h.SoftLink("real/sub")
    f["hard"], f["a/x"], f["a/soft"] = f["real"], f["real/x"], h.SoftLink("/real/x")
    f["outside"], f["outside x"] = h.ExternalLink("target.nc", "/tg"), h.ExternalLink("target.nc", "/tg/x")
    f["chain"] = h.SoftLink("/soft/sub")
    return f


STARTS = ("/", "soft", "relative", "hard", "a", "outside", "chain", "real", "soft/sub", "hard/sub")
NAMES = ("x", "sub", "sub/y", "y", "deep", "soft", "/soft/x", "./sub/", "sub//y", "/", "/hard", "/real/x", "outside/x")
WAYS: dict[str, Callable[[Any], Any]] = {
    "an item": lambda f: everywhere(lambda start, name: f[start][name]),
    "get": lambda f: everywhere(lambda start, name: f[start].get(name)),
    "one path": lambda f: everywhere(lambda start, name: f[f"{start}/{name}"]),
    "bytes": lambda f: told(lambda: f[b"soft/x"]),
    "items": lambda f: [(key, one.name) for start in STARTS for key, one in sorted(f[start].items())],
    "values": lambda f: sorted(one.name for start in STARTS for one in f[start].values()),
    "visititems": lambda f: [visited(f[start]) for start in STARTS if start not in ("/", "a")],
    "require_group": lambda f: told(lambda: f["soft"].require_group("sub")),
    "create_group": lambda f: told(lambda: f["soft"].create_group("made/in")),
    "create_dataset": lambda f: told(lambda: f["hard"].create_dataset("made here", data=[1])),
    "create_dataset, other way": lambda f: told(lambda: f["soft"].create_dataset("c", (2,), "i4", chunks=True)),
    "require_dataset": lambda f: told(lambda: f["soft"].require_dataset("x", (3,), f["real/x"].dtype)),
    "above": lambda f: told(lambda: f["soft/sub/y"].parent.parent["x"]),
    "equality": lambda f: (f["soft/x"] == f["real/x"], hash(f["hard"]) == hash(f["real"]), f["a/x"] == f["hard/x"]),
    "repr": lambda f: (repr(f["soft"]), repr(f["hard/x"]).partition(" shape")[0].partition(":")[0]),
    "the name leads back": lambda f: f[f["chain/y"].name] == f["real/sub/y"],
}


def everywhere(look: Callable[[str, str], Any]) -> list[Any]:
    return [told(look, start, name) for start, name in itertools.product(STARTS, NAMES)]


def told(look: Callable[..., Any], *given: str) -> Any:
    try:
        found = look(*given)
    except KeyError:
        return "KeyError"
    return found and (found.name, found.parent.name, Path(found.file.filename).name)


def visited(group: Any) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    group.visititems(lambda path, one: seen.append((path, one.name)))
    return seen


@pytest.mark.parametrize("way", WAYS)
def test_names_are_those_of_h5py(way: str, tmp_path: Path) -> None:
    found = []
    for h in (pnc_vol, h5py):
        folder = tmp_path / h.__name__
        folder.mkdir()
        with linked(h, folder) as f:
            found.append(WAYS[way](f))
    assert found[0] == found[1]


def test_a_name_that_leads_elsewhere_by_now_is_given_up(tmp_path: Path) -> None:
    with linked(pnc_vol, tmp_path) as f:
        x, y = f["soft/x"], f["hard/sub/y"]
        del f["soft"]
        assert x.name == "/real/x"
        assert x.parent.name == "/real"
        del f["real"]
        assert y.name == "/hard/sub/y"
        del f["hard"], f["a"]
        assert x.name is None
