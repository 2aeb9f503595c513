"""``group.copy`` copies an object of the real h5py into a file of this package.

Knows: what both kinds of objects have in common. Does not know: sessions, trees.

Rules
-----
1. Groups, datasets, attributes, soft and external links, and scales that are datasets of the same copy are copied;
   what holds references is not: what is left out is told in one warning.
2. Data go through in blocks, so that a copy needs little memory whatever the dataset's size.
3. A virtual dataset, or one in raw files, is copied with its values.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from pnc_vol.api import paths
from pnc_vol.api.copied_references import BLOCK_BYTES, refers
from pnc_vol.api.hdf5_files import admit, is_sound, of_scales, with_rows
from pnc_vol.api.objects import Datatype, ExternalLink, HardLink, SoftLink, class_of
from pnc_vol.errors import OperationError
from pnc_vol.extents.blocks import blocks
from pnc_vol.optional import require_h5py
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    from pnc_vol.api.group import Group

__all__ = ["copy_foreign"]


class _Copy:
    """One copy, with what it left out."""

    def __init__(self, *, shallow: bool, with_attrs: bool, expand_soft: bool, expand_external: bool) -> None:
        self.shallow, self.with_attrs = shallow, with_attrs
        self.expand_soft, self.expand_external = expand_soft, expand_external
        self.left_out: list[str] = []
        self.made: dict[Any, Any] = {}
        self.scaled: list[tuple[Any, Any]] = []

    def into(self, group: Group, name: str, source: Any, *, members: bool = True) -> None:
        known = self.made.get(source.id)
        if known is not None:
            group[name] = known
            return
        if isinstance(source, class_of("dataset")):
            made: Any = self._dataset(group, name, source)
        elif isinstance(source, Datatype):
            group[name] = source.dtype
            made = group[name]
        else:
            made = group.create_group(name)
        if made is None:
            return
        self.made[source.id] = made
        if self.with_attrs:
            self._attributes(source, made)
        if members and isinstance(source, class_of("group")):
            for each in source:
                self._member(source, each, made)

    def _member(self, source: Any, name: str, made: Any) -> None:
        link = source.get(name, getlink=True)
        expanded = self.expand_soft if isinstance(link, SoftLink) else self.expand_external
        if not isinstance(link, HardLink) and not (expanded and name in source):
            soft = isinstance(link, SoftLink)
            made[name] = SoftLink(link.path) if soft else ExternalLink(link.filename, link.path)
            return
        self.into(made, name, source[name], members=not self.shallow)

    def _dataset(self, group: Group, name: str, source: Any) -> Any:
        if refers(source.dtype):
            self.left_out.append(source.name)
            return None
        made = group.create_dataset_like(name, source, track_times=None)
        if source.shape is not None:
            for block in blocks(source.shape, max(source.dtype.itemsize, 1), BLOCK_BYTES):
                made[block] = with_rows(source[block], source.dtype, source.shape)
        self.scaled.append((source, made))
        return made

    def _attributes(self, source: Any, made: Any) -> None:
        made_of_scales = of_scales(source) if isinstance(source, class_of("dataset")) else ()
        for name in source.attrs:
            if name in made_of_scales:
                continue
            found = source.attrs.get_id(name)
            if refers(found.dtype):
                self.left_out.append(f"{source.name}@{name}")
                continue
            value = source.attrs[name]
            if found.shape is not None:
                value = with_rows(value, found.dtype, found.shape)
            made.attrs.create(name, value, dtype=None if found.shape is None else found.dtype)

    def finish(self) -> None:
        """Attach scales to their axes, and tell what was left out."""
        for source, made in self.scaled:
            if source.is_scale:
                name = source.attrs.get("NAME", b"")
                made.make_scale(name.decode() if isinstance(name, bytes) else str(name))
        for source, made in self.scaled:
            labels, scales = (is_sound(source, name) for name in ("DIMENSION_LABELS", "DIMENSION_LIST"))
            for axis, dimension in enumerate(source.dims):
                if labels and dimension.label:
                    made.dims[axis].label = dimension.label
                for scale in dimension.values() if scales else ():
                    if scale.id in self.made:
                        made.dims[axis].attach_scale(self.made[scale.id])
        if self.left_out:
            warn_outside(
                f"references of the HDF5 file were not copied: {', '.join(self.left_out[:5])}"
                f"{' ...' if len(self.left_out) > 5 else ''}; 'pnc-vol convert' keeps them"
            )


def copy_foreign(
    group: Group,
    source: Any,
    dest: Any,
    name: Any,
    *,
    shallow: bool,
    expand_soft: bool,
    expand_external: bool,
    with_attrs: bool,
) -> None:
    """Copy an object of the real h5py as `Group.copy` does; see there for the arguments and the errors."""
    # it may come from a file that h5py has opened without us
    admit(require_h5py("Copying from an HDF5 file"))
    target = group
    if isinstance(dest, class_of("group")):
        target, dest = dest, name or posixpath.basename(source.name)
    if not dest or dest in target:
        raise OperationError(f"Unable to copy object to {dest!r} (destination object already exists)")
    copy = _Copy(shallow=shallow, with_attrs=with_attrs, expand_soft=expand_soft, expand_external=expand_external)
    session = target._check()
    with session.lock, session.defs.tree.adding(paths.slot(target._node, dest, "copy object").group):
        copy.into(target, dest, source)
        copy.finish()
