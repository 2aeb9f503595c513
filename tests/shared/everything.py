"""A file in which every marker occurs that a marker can hold, and how to look at all of a file.

Used by tests that damage such files, and by tests that must keep all that is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import pnc_vol as h5py


def write(path: Any, only: str = "", **options: Any) -> None:
    """Make the file.

    Parameters
    ----------
    only : one of `SECTIONS`, or empty for all of them
    """
    with h5py.File(path, "w", **options) as f:
        a, t = f.require_group("A"), f.create_dataset("t", (4, 2), "f4", fillvalue=-1)
        a["B"] = np.arange(3, dtype="i4")
        t[...] = np.arange(8).reshape(4, 2)
        for name, section in SECTIONS.items():
            if only in ("", name):
                section(f)


def _axes(f: h5py.File) -> None:
    f["A_B"] = 7
    f["time"] = np.arange(4.0)
    f["time"].make_scale("the time")
    f["lat"] = np.array([1.0, 2.0], "f4")
    f["lat"].make_scale()
    f["other"] = np.array([5.0, 6.0])
    f["other"].make_scale("other")
    t = f["t"]
    t.dims[0].attach_scale(f["time"])
    t.dims[1].attach_scale(f["lat"])
    t.dims[1].attach_scale(f["other"])
    t.dims[0].label = "when"
    long = f.create_dataset("long", (5, 2), "f8", maxshape=(None, 2))
    long[...] = np.arange(10).reshape(5, 2)
    f.create_dataset("short", (3,), "i2", maxshape=(None,))[...] = [1, 2, 3]
    f.create_dataset("bounded", (2, 3), "i4", maxshape=(None, 6))[...] = 4
    f.create_dataset("zero", (4, 0), "i4")
    f.create_dataset("later", (0, 0), "i4", maxshape=(None, 0))
    f.create_dataset("null", data=h5py.Empty("f4"))
    f.create_dataset("tracked", (1,), "i4", track_order=True).attrs["z"] = 1
    f["tracked"].attrs["a"] = 2


def _types(f: h5py.File) -> None:
    f["half"] = np.array([1.5, 2.5], "f2")
    f["big"] = np.array([1, 2], ">i4")
    f["flag"] = np.array([True, False])
    f["flag"].attrs["dtype"] = "bool"
    f["z"] = np.array([1 + 2j, 3 - 4j])
    f["colour"] = np.array([0, 1, 1], h5py.enum_dtype({"RED": 0, "DARK GREEN": 1}, "i1"))
    f["big_enum"] = np.array([0, 1], h5py.enum_dtype({"NO": 0, "YES": 1}, ">i2"))
    f["fixed"] = np.array([b"abc", b"d"], "S3")
    f["utf8"] = np.array([b"ab", b"cd"], h5py.string_dtype("utf-8", 2))
    f.create_dataset("ascii", data=[b"x", b"yz"], dtype=h5py.string_dtype("ascii"))
    f["text"] = ["Kiel", "Tromsø"]
    f.create_dataset("filled", (2,), "c8", fillvalue=1 + 1j)
    f.create_dataset("filled_text", (2,), "S4", fillvalue=b"none")
    f.create_dataset("vectors", (2,), "(2,3)i4")[...] = np.arange(12).reshape(2, 2, 3)
    f["opaque"] = np.array([b"abc", b"xyz"], "V3")
    stamps = np.array(["2020-01-01", "NaT"], "M8[s]")
    f["stamps"] = stamps.astype(h5py.opaque_dtype(stamps.dtype))
    f.create_dataset("longdouble", (2,), "g")[...] = 1


def _composites(f: h5py.File) -> None:
    dt = np.dtype([("x", "f8"), ("s", "S4"), ("v", "f4", (2,)), ("p", [("q", "i2")])])
    f.create_dataset("compound", (3,), dt)["x"] = [1, 2, 3]
    f.create_dataset("growing", (2,), [("a", "i4"), ("b", h5py.string_dtype())], maxshape=(None,))[0] = (1, "one")
    f.create_dataset("nothing", data=h5py.Empty([("a", "i4")]))
    tracks = f.create_dataset("tracks", (3,), h5py.vlen_dtype("i4"))
    tracks[0], tracks[2] = [1, 2, 3], [4]
    words = f.create_dataset("words", (2,), h5py.vlen_dtype(h5py.string_dtype()))
    words[0] = np.array(["a", "bcd"], object)
    f.create_dataset("pairs", (2,), np.dtype((h5py.string_dtype(), (2,))))[0] = ["a", "b"]
    f.create_dataset("refs", (2,), h5py.ref_dtype)[0] = f["t"].ref
    f.create_dataset("regions", (2,), h5py.regionref_dtype)[0] = f["t"].regionref[1:3, [0, 1]]


def _attributes(f: h5py.File) -> None:
    for owner in (f["t"], f["A"], f):
        attrs = owner.attrs
        attrs["units"] = "K"
        attrs["matrix"] = np.arange(4).reshape(2, 2)
        attrs["one"] = np.array([1])
        attrs["names"] = ["a", "bc"]
        attrs["fixed"] = np.bytes_(b"abc")
        attrs["many"] = np.array([b"ab", b"c"], "S2")
        attrs["yes"] = True
        attrs["z"] = 1 + 2j
        attrs["nothing"] = h5py.Empty("f4")
        attrs["a/b"] = "slash"
        attrs["half"] = np.float16(1.5)
        attrs["big"] = np.array([1, 2], ">i4")
        attrs.create("choice", 1, dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, "i1"))
        attrs["compound"] = np.array([(1, 2.5), (3, 4)], [("a", "i4"), ("b", "f4")])
        attrs["opaque"] = np.void(b"abc")
        attrs["ref"] = f["t"].ref


def _groups_and_links(f: h5py.File) -> None:
    f.create_group("empty/deep")
    ordered = f.create_group("ordered", track_order=True)
    ordered["z"], ordered["a"] = 1, 2
    f["again"] = f["A/B"]
    f["A/up"] = f["/"]
    f["soft"] = h5py.SoftLink("/A/B")
    f["A/circle"] = h5py.SoftLink("/A/circle")
    f["nowhere"] = h5py.SoftLink("/no/such")
    f["elsewhere"] = h5py.ExternalLink("other.nc", "/y")
    f["named"] = np.dtype([("a", "i4"), ("s", "S3")])
    f["named"].attrs["about"] = "a type"


SECTIONS = {
    "axes": _axes,
    "types": _types,
    "composites": _composites,
    "attributes": _attributes,
    "links": _groups_and_links,
}

# ------------------------------------------------------------------------------------------------ looking


def portrait(path: Any, **options: Any) -> dict[str, Any]:
    """All that a user sees of a file, as text, by path: kinds, types, shapes, scales, attributes, values, errors."""
    with h5py.File(path, "r", **options) as f:
        return dict(seen(f))


def seen(f: h5py.File) -> Iterator[tuple[str, Any]]:
    """As `portrait`, of an open file."""
    stack: list[h5py.Group] = [f]
    while stack:
        group = stack.pop()
        yield group.name, _told(lambda group=group: [list(group), _attributes_of(group)])
        for name in group:
            link = group.get(name, getlink=True)
            where = f"{group.name.rstrip('/')}/{name}"
            if not isinstance(link, h5py.HardLink):
                yield where, repr(vars(link) if hasattr(link, "__dict__") else (type(link).__name__, link.path))
                continue
            member = group[name]
            if isinstance(member, h5py.Group):
                own = member.id.node.path
                if own == where:
                    stack.append(member)
                else:
                    yield where, f"another name of {own}"
            else:
                yield where, _told(lambda member=member: _said(member))


def _told(look: Any) -> Any:
    """What a look shows, or the error that it ends with, if it is one of ours."""
    try:
        return look()
    except h5py.PncVolError as error:
        return f"{type(error).__name__}: {error}"


def _attributes_of(obj: Any) -> Any:
    return {
        name: _told(lambda name=name: (repr(obj.attrs[name]), getattr(obj.attrs[name], "dtype", None)))
        for name in obj.attrs
    }


def _said(obj: Any) -> Any:
    if not isinstance(obj, h5py.Dataset):
        return [obj.name, repr(obj.dtype), _attributes_of(obj)]
    axes = [] if not obj.shape else [(dim.label, [scale.name for scale in dim.values()]) for dim in obj.dims]
    return [
        obj.name,
        repr(obj.dtype),
        repr(dict(obj.dtype.metadata or {})),
        obj.shape,
        obj.maxshape,
        obj.is_scale,
        axes,
        _told(lambda: repr(obj.fillvalue)),
        _attributes_of(obj),
        _told(lambda: _listed(obj[()])),
    ]


def _listed(values: Any) -> Any:
    """Values as text; those of a reference are its path and its region."""
    if isinstance(values, np.ndarray) and not values.size:
        return values.shape
    if isinstance(values, np.ndarray):
        return [_listed(item) for item in values.tolist()] if values.dtype.hasobject else repr(values.tolist())
    if isinstance(values, list):
        return [_listed(item) for item in values]
    if isinstance(values, h5py.Reference):
        return values.path, values.region
    return repr(values)
