"""Which programs read which version of the format, and what keeps one of them from reading a file.

Knows: versions that programs read, as measured (``tests/interop/test_readers.py``) or as they document it.
Does not know: files, markers.

Rules
-----
1. A program that does not read a file is no fault of the file: what is said here has the program's name as its field.
2. Each finding says what to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import check_limits, check_type
from pnc_vol.format.model import Finding, Header

__all__ = ["READERS", "Reader", "problems"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A program that reads NetCDF files.

    title : str, as its users know it.
    versions : tuple of int, of the classic format that it reads; none if it reads HDF5 alone.
    """

    title: str
    versions: tuple[int, ...]


READERS = {
    "netcdf4": Reader("the netCDF library (netCDF4-python, ncdump, xarray by default, NCO, CDO, ncview)", (1, 2, 5)),
    "pnetcdf": Reader("PnetCDF (C, and pnetcdf-python)", (1, 2, 5)),
    "scipy": Reader('scipy (`scipy.io.netcdf_file`, xarray\'s engine "scipy")', (1, 2)),
    "gdal": Reader("GDAL (gdalinfo, rasterio, QGIS)", (1, 2)),
    "netcdf-java": Reader("netCDF-Java (Panoply, THREDDS) without the C library", (1, 2)),
    "h5py": Reader("h5py", ()),
    "h5netcdf": Reader('h5netcdf (xarray\'s engine "h5netcdf")', ()),
}
"""By the name that ``pnc-vol check --for`` takes."""


def problems(header: Header, name: str) -> list[Finding]:
    """What keeps a program from reading a valid file; nothing if it reads it.

    Parameters
    ----------
    header : Header
    name : str, of `READERS`

    Raises
    ------
    ValueError
        No program of that name is known.

    Examples
    --------
    >>> problems(Header(2, 0, (), (), ()), "scipy")
    []
    >>> print(problems(Header(5, 0, (), (), ()), "scipy")[0].message.partition(":")[0])
    scipy reads CDF-1 and CDF-2, and this file is CDF-5
    """
    if name not in READERS:
        raise ValueError(f"unknown program {name!r}; known are {', '.join(READERS)}")
    versions = READERS[name].versions
    if header.version in versions:
        return []
    if not versions:
        there = f"{name} reads HDF5 alone, and this file is CDF-{header.version}"
        return [_finding(name, f"{there}: 'pnc-vol convert FILE NEW.h5' makes an HDF5 file of it")]
    asked = f"CDF-{max(versions)}"
    readable = " and ".join(f"CDF-{version}" for version in versions)
    beyond = list(_beyond(header, max(versions)))
    text = f"{name} reads {readable}, and this file is CDF-{header.version}"
    text += f": write it with File(path, 'w', format={asked!r})"
    text += ", and without what follows" if beyond else f", or use 'pnc-vol repack --format {asked} FILE NEW'"
    return [_finding(name, sentence) for sentence in (text, *beyond)]


def _finding(name: str, text: str) -> Finding:
    return Finding("error", -1, name, None, text)


def _beyond(header: Header, version: int) -> Iterator[str]:
    """What a version of the format cannot hold: types, and the first of lengths and sizes."""
    typed = [(f"global attribute {attr.name!r}", attr.type) for attr in header.attrs]
    for var in header.vars:
        typed.append((f"variable {var.name!r}", var.type))
        typed += [(f"attribute {attr.name!r} of variable {var.name!r}", attr.type) for attr in var.attrs]
    found = False
    for what, code in typed:
        try:
            check_type(what, code, version)
        except DefinitionError as error:
            found = True
            yield str(error).replace("use format='CDF-5', or ", "use ")
    if not found:
        try:
            check_limits(replace(header, version=version))
        except DefinitionError as error:
            yield str(error)
