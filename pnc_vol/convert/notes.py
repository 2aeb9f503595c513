"""What a conversion says of content that the target represents in another way, or keeps in part.

Knows: both files' objects, the ledger. Does not know: how anything is copied.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.convert import inspect_hdf5
from pnc_vol.convert.report import Ledger
from pnc_vol.mapping.names import MARKER

__all__ = ["of_attribute", "of_fill_values", "of_order", "of_spellings"]

SPELLINGS = {
    "string": "fixed-length string -> char with a trailing length dimension",
    "vlen_string": "string -> char with a trailing length dimension",
    "bool": 'bool -> byte with dtype="bool"',
    "enum": "enum -> integer with flag_values and flag_meanings",
    "complex": "complex -> trailing dimension of 2",
    "float16": "float16 -> float",
    "array": "array type -> more axes",
    "opaque": "opaque -> ubyte with a trailing dimension",
    "longdouble": "long double -> ubyte with a trailing dimension",
    "datetime": "date -> int64",
    "composite": "compound, reference or array of varying length -> a variable for each of its parts",
}


def of_order(ledger: Ledger, source: Any, target: Any) -> None:
    """Note the order of a group's members if the file will not have it: NetCDF orders its variables alone."""
    node = target.id.node
    if node.order is None and inspect_hdf5.is_tracked(source):
        datasets = [name for name, child in node.children.items() if hasattr(child, "shape")]
        kept = [*(name for name in node.children if name not in datasets), *datasets, *node.links]
        if kept != [name for name in inspect_hdf5.members(source) if name in kept]:
            ledger.drop(source.name, "order of groups, types and links among the datasets")


def of_attribute(ledger: Ledger, source: Any, name: str, where: str, shape: tuple[int, ...] | None) -> None:
    """Note how an attribute of an HDF5 file is kept."""
    if len(shape or ()) > 1:
        ledger.spell(where, f"shape {shape} -> one axis, and the shape in {MARKER}")
    if inspect_hdf5.is_plain_netcdf(source, name):
        ledger.spell(where, "as netCDF-4 stores it -> an attribute of NetCDF, a text or one value")
    elif details := inspect_hdf5.attribute_details(source, name):
        ledger.drop(where, details)


def of_fill_values(ledger: Ledger, source: Any, target: Any, paths: list[str], *, to_netcdf: bool) -> None:
    """Note which fill values are attributes, too, as NetCDF has them."""
    for path in paths:
        mine, its = ("_FillValue" in side[path].attrs for side in (source, target))
        if to_netcdf and its and not mine:
            ledger.spell(f"{path}@_FillValue", "fill value -> attribute _FillValue")
        elif not to_netcdf and mine:
            ledger.spell(f"{path}@_FillValue", "attribute _FillValue -> fill value, and the attribute")


def of_spellings(ledger: Ledger, target: Any, paths: list[str], bare: dict[str, str]) -> None:
    """Note which conventions the NetCDF file uses for what was copied."""
    for path in paths:
        node = target[path].id.node
        if path.count("/") > 1 or node.cdf_name != node.name:
            ledger.spell(path, f"path -> variable name {node.cdf_name}")
        if node.element.kind in SPELLINGS:
            ledger.spell(path, SPELLINGS[node.element.kind])
        if node.is_placeholder and not node.parts:
            ledger.spell(path, f"no elements -> scalar placeholder, and the shape in {MARKER}")
    for path, name in bare.items():
        ledger.spell(path, f"netCDF-4 dimension without a variable -> dimension {name}")
