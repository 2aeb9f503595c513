"""Notebooks and terminals show files, groups and datasets: as HTML that unfolds, or as a tree in text.

Knows: HTML, the objects that users hold. Does not know: files, requests.

Rules
-----
1. All that comes from a file is escaped: nothing in a file becomes markup, or steers a terminal.
2. Of the values, at most `SHOWN` are read, in one read, and only of the object that is shown itself. What cannot be
   read is left out: showing an object raises nothing.
3. At most `MOST` objects are shown. An object that has several names is shown under its main path.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from pnc_vol.api.scale_attrs import present
from pnc_vol.errors import printable
from pnc_vol.mapping.dtypes import check_enum_dtype, check_ref_dtype, check_string_dtype

__all__ = ["MOST", "SHOWN", "Text", "html_of", "tree_of", "type_name"]

MOST = 500
"""Objects in one text or page."""

SHOWN = 8
"""Values of a dataset or of an attribute."""

_STYLE = """<style>
.pnc-vol{font-family:sans-serif;font-size:90%;line-height:1.5}
.pnc-vol details{margin-left:1.2em}
.pnc-vol>details{margin-left:0}
.pnc-vol summary{cursor:pointer}
.pnc-vol .leaf{margin-left:2.2em}
.pnc-vol .name{font-weight:bold}
.pnc-vol .type,.pnc-vol .dims{opacity:.75}
.pnc-vol table{margin:0 0 .3em 1.2em;border-collapse:collapse}
.pnc-vol th,.pnc-vol td{text-align:left;vertical-align:top;padding:0 .8em 0 0}
.pnc-vol pre{margin:0 0 .3em 1.2em;white-space:pre-wrap}
</style>"""


class Text(str):
    """A text that an interactive session shows as it is, with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def type_name(dtype: np.dtype[Any]) -> str:
    """Return a type in words.

    Examples
    --------
    >>> type_name(np.dtype("f4")), type_name(np.dtype("S5"))
    ('float32', 'string[5]')
    """
    info = check_string_dtype(dtype)
    if info is not None:
        return "string" if info.length is None else f"string[{info.length}]"
    if check_enum_dtype(dtype) is not None:
        return f"enum({dtype.name})"
    if dtype.metadata is not None and "vlen" in dtype.metadata:
        return f"array({type_name(np.dtype(dtype.metadata['vlen']))})"
    referring = check_ref_dtype(dtype)
    if referring is not None:
        # h5py's classes have these names, too
        return "reference" if referring.__name__ == "Reference" else "region reference"
    if dtype.subdtype is not None:
        element, shape = dtype.subdtype
        return f"{type_name(element)}[{', '.join(map(str, shape))}]"
    if dtype.kind == "V" and dtype.names is None:
        return f"opaque[{dtype.itemsize}]"
    return dtype.name if dtype.names is None else f"compound({', '.join(dtype.names)})"


def _axes(dataset: Any) -> str:
    """Return the axes with their names and lengths: ``(time: 10, 3)``; an axis that can grow has a star."""
    if dataset.shape is None:
        return "(empty)"
    found = []
    limits = dataset.maxshape or dataset.shape
    for n, limit, axis in zip(dataset.shape, limits, dataset.id.node.seen_axes(), strict=True):
        # a coordinate variable is called like its dimension
        named = axis.label or (axis.dim_name if dataset.id.node.scale is None else "")
        name = axis.scales[0].name if axis.scales else named
        found.append((f"{name}: " if name else "") + f"{n}" + ("*" if limit != n else ""))
    return f"({', '.join(found)})"


def _members(group: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, object and a remark of each member; the object is None where only the remark is shown."""
    for name in group:
        link = group.get(name, getlink=True)
        if type(link).__name__ != "HardLink":
            yield name, None, repr(link)
            continue
        member = group[name]
        own = member.id.node.path
        if own == f"{group.id.node.path.rstrip('/')}/{name}":
            yield name, member, ""
        else:
            yield name, None, f"the same as {own}"


# -------------------------------------------------------------------------------------------------------- text


def tree_of(group: Any, *, attributes: bool = False) -> Text:
    """Return the objects below a group, one in a line; see `Group.tree`."""
    lines = [group.name + (f"  ({group.file.filename})" if group.name == "/" else "")]
    left = [MOST]

    def below(obj: Any, indent: str) -> None:
        rows: list[tuple[str, Any, bool]] = []
        if attributes:
            rows += [(f"@{name} = {_value(obj, name)}", None, False) for name in _names(obj)]
        if hasattr(obj, "keys"):
            for name, member, remark in _members(obj):
                left[0] -= 1
                if left[0] < 0:
                    rows.append(("...", None, False))
                    break
                rows.append((f"{name}  {remark or _summary(member)}".rstrip(), member, member is not None))
        for i, (text, member, more) in enumerate(rows):
            last = i == len(rows) - 1
            lines.append(f"{indent}{'└── ' if last else '├── '}{text}")
            if more:
                below(member, indent + ("    " if last else "│   "))

    below(group, "")
    return Text("\n".join(printable(line) for line in lines))


def _summary(obj: Any) -> str:
    """Return what is said of an object behind its name; nothing of a group."""
    if hasattr(obj, "shape"):
        return f"{_axes(obj)} {type_name(obj.dtype)}"
    return "" if hasattr(obj, "keys") else f"type {type_name(obj.dtype)}"


def _names(obj: Any) -> list[str]:
    """Return the names of the attributes, without those that HDF5 keeps for dimension scales."""
    hidden = present(obj.id.node)
    return [name for name in obj.attrs if name not in hidden]


def _value(obj: Any, name: str) -> str:
    """Return the value of an attribute, cut short."""
    try:
        value = obj.attrs[name]
    except (OSError, TypeError, ValueError, KeyError) as error:
        return f"cannot be read: {error}"
    if isinstance(value, (str, bytes)):
        return repr(value[:200]) + ("..." if len(value) > 200 else "")
    array = np.asarray(value) if getattr(value, "shape", ()) is not None else None
    if array is None:
        return "empty"
    if array.shape == ():
        return str(value)
    if array.ndim > 1 and 0 < array.size <= SHOWN:
        return _nested(array)
    size = f"{array.size} values" if array.ndim == 1 else f"values of shape {array.shape}"
    more = f", ... ({size})" if array.size > SHOWN else ""
    return f"[{', '.join(str(each) for each in array.ravel()[:SHOWN])}{more}]"


def _nested(array: Any) -> str:
    """Return all values of an array, with a pair of brackets for each axis."""
    return f"[{', '.join(map(_nested, array))}]" if getattr(array, "ndim", 0) else str(array)


# -------------------------------------------------------------------------------------------------------- HTML


def html_of(obj: Any) -> str:
    """Return an object as HTML, for notebooks."""
    if not obj or not (hasattr(obj, "shape") or hasattr(obj, "keys")):
        return f"<code>{escape(repr(obj))}</code>"
    found = [_STYLE, '<div class="pnc-vol">']
    if hasattr(obj, "shape"):
        title = (
            f"{_tag('name', obj.name or '(anonymous)')} {_tag('dims', _axes(obj))} {_tag('type', type_name(obj.dtype))}"
        )
        found += [f"<details open><summary>{title}</summary>", *_facts(obj), *_attributes(obj), *_preview(obj)]
        found.append("</details>")
    else:
        name = obj.file.filename if obj.name == "/" else obj.name
        found += [f"<details open><summary>{_tag('name', name)} {_counted(obj)}</summary>", *_attributes(obj)]
        found += [*_below(obj, [MOST]), "</details>"]
    return "\n".join([*found, "</div>"])


def _tag(kind: str, text: object) -> str:
    return f'<span class="{kind}">{escape(printable(str(text)))}</span>'


def _counted(group: Any) -> str:
    return _tag("type", f"group, {len(group)} member{'' if len(group) == 1 else 's'}")


def _below(group: Any, left: list[int]) -> Iterator[str]:
    """Yield the members of a group, folded."""
    for name, member, remark in _members(group):
        left[0] -= 1
        if left[0] < 0:
            yield '<div class="leaf">...</div>'
            return
        if member is None:
            yield f'<div class="leaf">{_tag("name", name)} {_tag("type", remark)}</div>'
            continue
        group = hasattr(member, "keys")
        title = f"{_tag('name', name)} {_counted(member) if group else _tag('type', _summary(member))}"
        inner = "".join(_attributes(member))
        if group or inner:
            yield f"<details><summary>{title}</summary>{inner}"
            yield from _below(member, left) if group else ()
            yield "</details>"
        else:
            yield f'<div class="leaf">{title}</div>'


def _table(rows: list[tuple[str, object]]) -> Iterator[str]:
    if rows:
        cells = (f"<tr><th>{_tag('key', name)}</th><td>{_tag('value', value)}</td></tr>" for name, value in rows)
        yield f"<table>{''.join(cells)}</table>"


def _attributes(obj: Any) -> Iterator[str]:
    yield from _table([(name, _value(obj, name)) for name in _names(obj)])


def _facts(dataset: Any) -> Iterator[str]:
    rows: list[tuple[str, object]] = [("shape", dataset.shape), ("type", type_name(dataset.dtype))]
    if dataset.shape is not None:
        rows += [("bytes", f"{dataset.nbytes:,}")]
        if dataset.maxshape != dataset.shape:
            rows.append(("maxshape", dataset.maxshape))
    yield from _table(rows)


def _preview(dataset: Any) -> Iterator[str]:
    """Yield the first values of a dataset."""
    if dataset.shape is None or not dataset.size:
        return
    where = (0,) * (len(dataset.shape) - 1) + (slice(0, SHOWN),) if dataset.shape else ()
    try:
        values = dataset[where]
    except (OSError, TypeError, ValueError, KeyError, RuntimeError):
        return
    more = " ..." if dataset.size > np.size(values) else ""
    if values.dtype.names is not None:
        yield _rows_of(np.atleast_1d(values), more)
        return
    yield f"<pre>{escape(printable(str(values) + more))}</pre>"


def _rows_of(values: Any, more: str) -> str:
    """Return a compound's elements, with a column for each field: its name, its type."""
    dtype = values.dtype
    head = "".join(f"<th>{_tag('name', each)} {_tag('type', type_name(dtype[each]))}</th>" for each in dtype.names)
    rows = [[row[each] for each in dtype.names] for row in values]
    cells = ("".join(f"<td>{_tag('value', each)}</td>" for each in row) for row in rows)
    body = "".join(f"<tr>{each}</tr>" for each in cells)
    return f"<table><tr>{head}</tr>{body}</table>" + (f"<pre>{more.strip()}</pre>" if more else "")
