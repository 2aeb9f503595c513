"""How a name leads to an object: h5py's path rules over the tree.

Knows: ``/``, ``.``, bytes, trailing slashes. Does not know: users' objects, sessions, data.

Rules
-----
1. A leading ``/`` starts at the root; empty parts and ``.`` are nothing; ``..`` does not lead up, and is no name (HDF5
   has it as a name like any other, which other tools would misread).
2. `slot` looks and changes nothing; `Slot.open` makes the missing groups, so that all checks come first.
"""

from __future__ import annotations

from typing import NamedTuple

from pnc_vol.errors import DefinitionError, LinkExistsError, NameExistsError, NotFoundError, NotYetError
from pnc_vol.mapping.tree import DatasetNode, GroupNode

__all__ = ["Slot", "components", "find", "lookup", "slot", "text_of"]

Found = GroupNode | DatasetNode


def text_of(name: object) -> str:
    """The name as text.

    Raises
    ------
    TypeError
        Neither str nor bytes.
    ValueError
        Not Unicode (lone surrogates, bytes that are not UTF-8), or a NUL inside.
    """
    if isinstance(name, str):
        if not name.isascii():
            name.encode("utf-8")
    elif isinstance(name, bytes):
        name = name.decode("utf-8")
    else:
        raise TypeError(f"A name should be string or bytes, not {type(name)}")
    if "\0" in name:
        raise DefinitionError(f"name {name!r}: a name cannot hold a NUL character")
    return name


def components(name: str) -> list[str]:
    """The parts of a path that count.

    Examples
    --------
    >>> components("//a/./b/")
    ['a', 'b']
    """
    return [part for part in name.split("/") if part and part != "."]


def _start(group: GroupNode, name: str) -> GroupNode:
    return group.tree.root if name.startswith("/") else group


def lookup(group: GroupNode, name: object) -> Found | None:
    """The object of that name, or None."""
    text = text_of(name)
    if not text:
        return None
    node: Found | None = _start(group, text)
    for part in components(text):
        node = node.children.get(part) if isinstance(node, GroupNode) else None
        if node is None:
            return None
    return node


def find(group: GroupNode, name: object) -> Found:
    """The object of that name.

    Raises
    ------
    NotFoundError
        There is none; the text says which part of the path is missing.
    """
    if type(name) is str:
        # What most names are: a member's.
        member = group.children.get(name)
        if member is not None:
            return member
    text = text_of(name)
    if not text:
        raise NotFoundError("Unable to open object (the name is an empty string)")
    node: Found = _start(group, text)
    for part in components(text):
        if isinstance(node, DatasetNode):
            raise NotFoundError(f"Unable to open object {text!r} ({node.path!r} is a dataset and has no members)")
        child = node.children.get(part)
        if child is None:
            raise NotFoundError(f"Unable to open object (object {part!r} doesn't exist in group {node.path!r})")
        node = child
    return node


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
        if not self.leaf or (not self.missing and self.leaf in self.group.children):
            error = LinkExistsError if as_link else NameExistsError
            raise error(f"Unable to {what} {self.asked!r} (name already exists); delete it first or use another name")

    def open(self) -> GroupNode:
        """The parent of the new object; missing groups are made."""
        group = self.group
        for name in self.missing:
            group = group.tree.add_group(group, name)
        return group


def slot(group: GroupNode, name: object, what: str, *, below_dataset: type[Exception] = NameExistsError) -> Slot:
    """Where an object of that name would go.

    Raises
    ------
    ValueError
        An empty name.
    NotYetError
        None, h5py's anonymous objects.
    Exception
        `below_dataset`, if a dataset stands in the way.
    """
    if name is None:
        raise NotYetError(f"Unable to {what}: objects without a name (name=None) are not supported; give it a name")
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
        child = node.children.get(part)
        if isinstance(child, DatasetNode):
            raise below_dataset(
                f"Unable to {what} {text!r}: Incompatible object (Dataset {child.path!r}) already exists"
            )
        if child is None:
            return Slot(node, tuple(parts[at:-1]), parts[-1], text)
        node = child
    return Slot(node, (), parts[-1], text)
