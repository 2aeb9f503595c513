"""A name leads to an object by h5py's path rules over the tree.

Knows: ``/``, ``.``, bytes, trailing slashes. Does not know: users' objects, sessions, data.

Rules
-----
1. A leading ``/`` starts at the root; empty parts and ``.`` are nothing; ``..`` does not lead up, and is no name (HDF5
   has it as a name like any other, which other tools would misread).
2. `slot` looks and changes nothing; `Slot.open` makes the missing groups, so that all checks come first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pnc_vol.errors import (
    BlockedPathError,
    DefinitionError,
    LinkExistsError,
    NameExistsError,
    NotFoundError,
    NotYetError,
)
from pnc_vol.mapping.tree import DatasetNode, GroupNode

__all__ = ["LeadsOutside", "Outside", "Slot", "asked", "components", "find", "link_of", "lookup", "slot", "text_of"]

Found = GroupNode | DatasetNode
"""What a name can lead to; of a named type, or something in another file, the functions here give an object of their
own."""


class Outside(NamedTuple):
    """Where an external link leads: a path in another file."""

    filename: str
    path: str


class LeadsOutside(BlockedPathError):
    """A path on which something is to be made, or a link is asked for, leads into another file.

    outside : Outside, where to.
    rest : str, the path from there on.
    """

    def __init__(self, text: str, outside: Outside, rest: str) -> None:
        super().__init__(text)
        self.outside, self.rest = outside, rest


def text_of(name: object, *, stored: bool = False) -> str:
    """Return the name as text.

    Parameters
    ----------
    stored : bool
        A name that is looked for, not given: files of other programs have names that are no UTF-8, and lone surrogates
        stand for their bytes.

    Raises
    ------
    TypeError
        Neither str nor bytes.
    ValueError
        Not Unicode (lone surrogates, bytes that are not UTF-8), or a NUL inside.
    """
    if isinstance(name, bytes):
        text = name.decode("utf-8", "surrogateescape")
    elif isinstance(name, str):
        text = name
    else:
        raise TypeError(f"A name should be string or bytes, not {type(name)}")
    if not text.isascii():
        try:
            text.encode("utf-8", "surrogateescape" if stored else "strict")
        except UnicodeEncodeError:
            if isinstance(name, str):
                # as h5py does
                raise
            problem = f"name {name!r}: names in NetCDF files are UTF-8, and this one is not; give it another one"
            raise DefinitionError(problem) from None
    if "\0" in text:
        raise DefinitionError(f"name {name!r}: a name cannot hold a NUL character")
    return text


def components(name: str) -> list[str]:
    """Return the parts of a path that count.

    Examples
    --------
    >>> components("//a/./b/")
    ['a', 'b']
    """
    return [part for part in name.split("/") if part and part != "."]


def asked(base: str, name: object) -> str:
    """Return the absolute path that a name means in the group of the path `base`, whatever links are on the way.

    Examples
    --------
    >>> asked("/g", "./a//b"), asked("/g", b"/a")
    ('/g/a/b', '/a')
    """
    text = text_of(name, stored=True)
    return "/" + "/".join(components(text if text.startswith("/") else f"{base}/{text}"))


def _start(group: GroupNode, name: str) -> GroupNode:
    return group.tree.root if name.startswith("/") else group


def lookup(group: GroupNode, name: object) -> Any:
    """Return the object of that name, or None; an `Outside` if it is in another file."""
    text = text_of(name, stored=True)
    return _walked(group, text)[0] if text else None


def find(group: GroupNode, name: object) -> Any:
    """Return the object of that name.

    Raises
    ------
    NotFoundError
        There is none; the text says which part of the path is missing.
    """
    if type(name) is str and name.isascii():
        # What most names are: a member's.
        member = group.children.get(name)
        if member is not None:
            return member
    text = text_of(name, stored=True)
    if not text:
        raise NotFoundError("Unable to open object (the name is an empty string)")
    found, last, part = _walked(group, text)
    if found is None:
        raise _missing(last, part, text)
    return found


def _walked(group: GroupNode, text: str, steps: int = 0) -> tuple[Any, Any, str]:
    """Return the object of a path, or None; the last object on the way without a soft link, and its member that leads
    further."""
    node: Any = _start(group, text)
    parts = components(text)
    for at, part in enumerate(parts):
        inside = isinstance(node, GroupNode)
        child = node.children.get(part) if inside else None
        if child is None and inside and node.links:
            # most files have none
            from pnc_vol.mapping import links

            child = node.links.get(part)
            if isinstance(child, links.Soft):
                path = "/".join((child.path, *parts[at + 1 :]))
                return _walked(node, path, steps + 1)[0] if steps < links.MOST_STEPS else None, node, part
            if isinstance(child, links.External):
                return Outside(child.filename, "/".join((child.path, *parts[at + 1 :]))), node, part
            if isinstance(child, links.Hard):
                child = child.node
        if child is None:
            return None, node, part
        node = child
    return node, node, ""


def _missing(node: Any, part: str, text: str) -> NotFoundError:
    if not isinstance(node, GroupNode):
        kind = "dataset" if isinstance(node, DatasetNode) else "named type"
        return NotFoundError(f"Unable to open object {text!r} ({node.path!r} is a {kind} and has no members)")
    if part in node.links:
        return NotFoundError(f"Unable to open object {text!r} (the link {part!r} in group {node.path!r} leads nowhere)")
    return NotFoundError(
        f"Unable to open object (object {part!r} doesn't exist in group {node.path!r})",
        name=part,
        among=(node.children, node.links),
    )


def missing(group: GroupNode, name: object, message: str) -> NotFoundError:
    """Return the error for a path that leads nowhere; it offers names that are nearly the last one."""
    *above, leaf = components(text_of(name, stored=True))
    node = lookup(group, "/".join(above)) if above else group
    among = (node.children, node.links) if isinstance(node, GroupNode) else ()
    return NotFoundError(message, name=leaf, among=among)


def link_of(group: GroupNode, name: object) -> tuple[GroupNode, str] | None:
    """Return the group and the name of a link, which may lead nowhere; None if there is no such member.

    Raises
    ------
    LeadsOutside
        It is in another file.
    """
    text = text_of(name, stored=True)
    parts = components(text)
    if not parts:
        return None
    above = lookup(group, ("/" if text.startswith("/") else "./") + "/".join(parts[:-1]))
    if isinstance(above, Outside):
        raise LeadsOutside(f"{text!r} leads to another file, {above.filename!r}", above, parts[-1])
    if not isinstance(above, GroupNode) or not (parts[-1] in above.children or parts[-1] in above.links):
        return None
    return above, parts[-1]


class Slot(NamedTuple):
    """A place for a new object.

    group : GroupNode, the deepest group on the way that exists.
    missing : names of the groups to make below it.
    leaf : str, the new object's name; empty if the path leads to an object that exists.
    """

    group: GroupNode
    missing: tuple[str, ...]
    leaf: str
    asked: str

    def check_free(self, what: str, *, as_link: bool = False) -> None:
        """Complain if the name is taken.

        Raises
        ------
        NameExistsError
            It is; with `as_link` the subclass that is also an OSError, as h5py has it for links.
        """
        if self.group.parent is None and self.group is not self.group.tree.root:
            raise NotYetError("a group without a name cannot have members: give it a name first (f[name] = group)")
        taken = not self.missing and (self.leaf in self.group.children or self.leaf in self.group.links)
        if not self.leaf or taken:
            error = LinkExistsError if as_link else NameExistsError
            raise error(f"Unable to {what} {self.asked!r} (name already exists); delete it first or use another name")

    def check_ends_in_name(self, what: str) -> None:
        """Refuse a path that ends with a slash: h5py takes what is behind it for the name of a dataset.

        Raises
        ------
        DefinitionError
        """
        if self.leaf and self.asked.endswith("/"):
            raise DefinitionError(
                f"Unable to {what} {self.asked!r} (name parameter cannot be an empty string); leave out the last '/'"
            )

    def open(self) -> GroupNode:
        """Return the parent of the new object; missing groups are made."""
        group = self.group
        for name in self.missing:
            group = group.tree.add_group(group, name)
        return group


def slot(group: GroupNode, name: object, what: str) -> Slot:
    """Return where an object of that name would go.

    Raises
    ------
    ValueError
        An empty name.
    BlockedPathError
        A dataset or a named type stands in the way, or a link that leads nowhere.
    LeadsOutside
        An external link stands there.
    """
    text = text_of(name)
    if not text:
        raise DefinitionError(f"Unable to {what} (the name is an empty string)")
    if "/" not in text and text not in (".", ".."):
        return Slot(group, (), text, text)
    parts = components(text)
    if ".." in parts:
        raise DefinitionError(f"Unable to {what} {text!r}: '..' cannot be the name of an object")
    node = _start(group, text)
    if not parts:
        return Slot(node, (), "", text)
    for at, part in enumerate(parts[:-1]):
        child: Any = node.children.get(part)
        if child is None and part in node.links:
            child = lookup(node, part)
            problem = f"Unable to {what} {text!r}: the link {part!r} leads "
            if child is None:
                raise BlockedPathError(f"{problem}nowhere; make the group first to which it should lead")
            if isinstance(child, Outside):
                raise LeadsOutside(f"{problem}to another file, {child.filename!r}", child, "/".join(parts[at + 1 :]))
        if child is None:
            return Slot(node, tuple(parts[at:-1]), parts[-1], text)
        if not isinstance(child, GroupNode):
            kind = "Dataset" if isinstance(child, DatasetNode) else "Datatype"
            raise BlockedPathError(
                f"Unable to {what} {text!r}: Incompatible object ({kind} {child.path!r}) already exists"
            )
        node = child
    return Slot(node, (), parts[-1], text)
