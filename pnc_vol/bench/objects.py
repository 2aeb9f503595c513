"""``python -m pnc_vol.bench objects``: many small variables with three attributes each.

What a file of many objects costs, apart from its data: defining, closing, opening, listing names, reading all
attributes; then, in the same file, one more group, opening a variable by its name, and changing an attribute. Counts
and all values of one attribute are checked. Knows: the works, and the calls of each library for them.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.bench.measure import Watch
from pnc_vol.bench.serial import Peer, Work, clear, installed, times

__all__ = ["peers", "works"]

LOOKUPS = 1000
MAXIMUM = 99.5
ATTRIBUTES = {"units": "m s-1", "long_name": "a name of some length", "valid_max": MAXIMUM}


def works(scale: float) -> list[Work]:
    """10,000 and 100,000 variables, times `scale`."""
    return [_objects(times(scale, count, least=3)) for count in (10_000, 100_000)]


def _objects(count: int) -> Work:
    names = [f"v{i:06d}" for i in range(count)]
    looked = [names[(i * 7919) % count] for i in range(min(LOOKUPS, count))]
    title = f"{count:,} variables"
    whats = {
        "create": count, "close": 1, "open": 1, "list": 1, "read all attributes": 3 * count,
        f"open {len(looked):,} by name": len(looked),
        "reopen, write an attribute, close": 1,
        "reopen, create a group, close": 1,
    }  # fmt: skip
    phase = {what: f"{title}, {what}" for what in whats}

    def run(peer: Any, watch: Watch) -> None:
        clear(peer.path)
        with watch(phase["create"]):
            peer.create(names)
        with watch(phase["close"]):
            peer.close()
        with watch(phase["open"]):
            peer.open("r")
        with watch(phase["list"]):
            listed = peer.names()
        with watch(phase["read all attributes"]):
            read = peer.attributes(names)
        with watch(phase[f"open {len(looked):,} by name"]):
            peer.lookup(looked)
        peer.close()
        _check(title, peer, sorted(listed) == names and read == count * MAXIMUM)
        with watch(phase["reopen, write an attribute, close"]):
            peer.open("r+")
            peer.write_attribute(names[count // 2], "units", "km s-1")
            peer.close()
        if getattr(peer, "create_group", None):
            with watch(phase["reopen, create a group, close"]):
                peer.open("r+")
                peer.create_group("a group")
                peer.close()
        peer.open("r")
        _check(title, peer, peer.attribute(names[count // 2], "units") == "km s-1")
        peer.close()

    no_groups = dict.fromkeys(("netCDF4", "scipy", "PnetCDF-Python"), "has no groups in classic files")
    slow = {"netCDF4": "definitions take it quadratic time: 131 s for 10,000 variables without an attribute"}
    if count > 10_000:
        slow["netCDF4"] += ", hours for these"
    return Work(
        {phase[what]: (None, calls) for what, calls in whats.items()},
        run,
        {phase["reopen, create a group, close"]: no_groups},
        slow,
        hopeless=frozenset(slow) if count >= 10_000 else frozenset(),
    )


def _check(title: str, peer: Any, right: bool) -> None:
    if not right:
        raise AssertionError(f"{title}, {peer.path}: not what was written")


class _H5py(Peer):
    """h5py, and pnc_vol."""

    def create(self, names: list[str]) -> None:
        self.file = self.module.File(self.path, "w")
        for name in names:
            attrs = self.file.create_dataset(name, (4,), "f4").attrs
            for key, value in ATTRIBUTES.items():
                attrs[key] = value

    def open(self, mode: str) -> None:
        self.file = self.module.File(self.path, mode)

    def close(self) -> None:
        self.file.close()

    def names(self) -> list[str]:
        return list(self.file)

    def attributes(self, names: list[str]) -> float:
        total = 0.0
        for name in names:
            total += float(dict(self.file[name].attrs)["valid_max"])
        return total

    def lookup(self, names: list[str]) -> None:
        for name in names:
            self.file[name]

    def attribute(self, name: str, key: str) -> Any:
        return self.file[name].attrs[key]

    def write_attribute(self, name: str, key: str, value: str) -> None:
        self.file[name].attrs[key] = value

    def create_group(self, name: str) -> None:
        self.file.create_group(name)


class _NetCDF4(_H5py):
    def create(self, names: list[str]) -> None:
        self.file = self.module.Dataset(self.path, "w", format="NETCDF3_64BIT_DATA")
        self.file.set_fill_off()
        self.file.createDimension("n", 4)
        for name in names:
            self.file.createVariable(name, "f4", ("n",)).setncatts(ATTRIBUTES)

    def open(self, mode: str) -> None:
        self.file = self.module.Dataset(self.path, mode)

    def names(self) -> list[str]:
        return list(self.file.variables)

    def attributes(self, names: list[str]) -> float:
        total = 0.0
        for name in names:
            variable = self.file.variables[name]
            total += float({key: variable.getncattr(key) for key in variable.ncattrs()}["valid_max"])
        return total

    def lookup(self, names: list[str]) -> None:
        for name in names:
            self.file.variables[name]

    def attribute(self, name: str, key: str) -> Any:
        return self.file.variables[name].getncattr(key)

    def write_attribute(self, name: str, key: str, value: str) -> None:
        self.file.variables[name].setncattr(key, value)

    create_group = None  # type: ignore[assignment]


class _Scipy(_NetCDF4):
    """scipy.io.netcdf_file, CDF-2."""

    def create(self, names: list[str]) -> None:
        self.file = self.module.netcdf_file(self.path, "w", version=2)
        self.file.createDimension("n", 4)
        for name in names:
            variable = self.file.createVariable(name, "f4", ("n",))
            for key, value in ATTRIBUTES.items():
                setattr(variable, key, value)

    def open(self, mode: str) -> None:
        self.file = self.module.netcdf_file(self.path, "r" if mode == "r" else "a", mmap=False)

    def attributes(self, names: list[str]) -> float:
        total = 0.0
        for name in names:
            total += float(dict(self.file.variables[name]._attributes)["valid_max"])
        return total

    def attribute(self, name: str, key: str) -> Any:
        return getattr(self.file.variables[name], key).decode()

    def write_attribute(self, name: str, key: str, value: str) -> None:
        setattr(self.file.variables[name], key, value)


class _PnetCDF(_NetCDF4):
    """PnetCDF-Python, CDF-5."""

    def create(self, names: list[str]) -> None:
        self.file = self.module.File(self.path, mode="w", format="NC_64BIT_DATA")
        n = self.file.def_dim("n", 4)
        for name in names:
            variable = self.file.def_var(name, self.module.NC_FLOAT, (n,))
            for key, value in ATTRIBUTES.items():
                variable.put_att(key, value)

    def open(self, mode: str) -> None:
        self.file = self.module.File(self.path, mode=mode)

    def attributes(self, names: list[str]) -> float:
        total = 0.0
        for name in names:
            variable = self.file.variables[name]
            total += float({key: variable.get_att(key) for key in variable.ncattrs()}["valid_max"])
        return total

    def attribute(self, name: str, key: str) -> Any:
        return self.file.variables[name].get_att(key)

    def write_attribute(self, name: str, key: str, value: str) -> None:
        self.file.redef()
        self.file.variables[name].put_att(key, value)
        self.file.enddef()


def peers(folder: str) -> dict[str, Any]:
    """Those that are installed; for the others the reason."""
    return installed(
        folder, {"pnc_vol": _H5py, "h5py": _H5py, "netCDF4": _NetCDF4, "scipy": _Scipy, "PnetCDF-Python": _PnetCDF}
    )
