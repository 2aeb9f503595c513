"""``python -m pnc_vol.bench reads``: parts of an 8192 x 8192 array, and of record variables.

A file is written once by each peer, untimed, and is in the page cache; each read opens nothing. Every result is
compared with numpy's. Knows: selections. Does not know: what a library does with one.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import Watch
from pnc_vol.bench.serial import Peer, Work, check, installed, times
from pnc_vol.system import REAL, exists

__all__ = ["peers", "works"]

Array = npt.NDArray[Any]

VARIABLES = 20


def works(scale: float) -> list[Work]:
    """The works, at `scale` times their real size."""
    return [_parts(scale), _records(scale)]


def _parts(scale: float) -> Work:
    n = times(scale**0.5, 8192, least=16)
    values = functools.cache(lambda: np.random.default_rng(0).random((n, n), "f4"))
    rng = np.random.default_rng(1)
    columns = rng.permutation(n)[: min(64, n)].tolist()
    rows = sorted(rng.permutation(n)[: times(scale**0.5, 1000)].tolist())
    edge = min(1000, n // 2)
    title = f"of {n} x {n}"
    parts: dict[str, tuple[int, Callable[[Any], Any]]] = {
        f"{len(columns)} columns {title}, one call each": (len(columns), lambda a: [a[:, k] for k in columns]),
        f"[::7, ::3] {title}": (1, lambda a: a[::7, ::3]),
        f"{len(rows):,} listed rows {title}": (1, lambda a: a[rows]),
        f"block of {edge} x {edge} {title}": (1, lambda a: a[n // 4 : n // 4 + edge, n // 3 : n // 3 + edge]),
        f"random mask, 1 in 100, {title}": (1, lambda a: a[mask()]),
        f"whole {title}": (1, lambda a: a[:, :]),
    }
    mask = functools.cache(lambda: np.random.default_rng(2).random((n, n)) < 0.01)
    phases = list(parts)
    sizes = {
        phase: 4 * size
        for phase, size in zip(
            phases,
            (len(columns) * n, -(-n // 7) * -(-n // 3), len(rows) * n, edge**2, n * n // 100, n * n),
            strict=True,
        )
    }

    def run(peer: Any, watch: Watch) -> None:
        _write_once(peer, "array", {"x": values()}, records=False)
        mask()
        with peer.opened("array", ["x"]) as found:
            for phase, (_, part) in parts.items():
                if phase in without and peer.name in without[phase]:
                    continue
                with watch(phase):
                    got = peer.native(part(found["x"]))
                check(
                    f"{phase}, {peer.name}", np.stack(got) if isinstance(got, list) else got, _expected(part, values())
                )

    # PnetCDF-Python indexes like netCDF4 but has no lists, nor masks
    no_lists = {"PnetCDF-Python": "has no lists of rows, nor masks"}
    no_masks = no_lists | {"netCDF4": "has masks of one axis only"}
    without = {phases[2]: no_lists, phases[4]: no_masks}
    return Work({phase: (sizes[phase], calls) for phase, (calls, _) in parts.items()}, run, without)


def _expected(part: Callable[[Any], Any], values: Array) -> Array:
    expected = part(values)
    return np.stack(expected) if isinstance(expected, list) else np.asarray(expected)


def _records(scale: float) -> Work:
    steps, edge = times(scale, 1000), 64
    names = [f"v{i}" for i in range(VARIABLES)]
    title = f"of {VARIABLES} record variables of {steps:,} x {edge} x {edge}"
    parts: dict[str, tuple[int, int, Callable[[Any], Any]]] = {
        f"one variable {title}": (steps * edge**2, 1, lambda v: [v["v7"][:, :, :]]),
        f"one cell through time {title}": (steps, 1, lambda v: [v["v7"][:, edge // 2, edge // 3]]),
        f"one time step of all {title}": (
            VARIABLES * edge**2, VARIABLES, lambda v: [v[name][steps // 2] for name in names],
        ),
    }  # fmt: skip

    @functools.cache
    def values() -> dict[str, Array]:
        rng = np.random.default_rng(3)
        return {name: rng.random((steps, edge, edge), "f4") for name in names}

    def run(peer: Any, watch: Watch) -> None:
        _write_once(peer, "records", values(), records=True)
        with peer.opened("records", names) as found:
            for phase, (_, _, part) in parts.items():
                with watch(phase):
                    got = peer.native(part(found))
                check(f"{phase}, {peer.name}", np.stack(got), np.stack(part(values())))

    return Work({phase: (4 * size, calls) for phase, (size, calls, _) in parts.items()}, run)


def _write_once(peer: Any, what: str, values: dict[str, Array], *, records: bool) -> None:
    if not exists(REAL, peer.file(what)):
        peer.write(what, values, records)


# ------------------------------------------------------------------------------------------------------- peers


class _Peer(Peer):
    """A library that opens a file and gives objects that are indexed."""

    def file(self, what: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.folder, f"{what}.{self.name}")

    def native(self, got: Any) -> Any:
        """What was read, in the machine's byte order and in memory of its own."""
        return got

    @contextlib.contextmanager
    def opened(self, what: str, names: list[str]) -> Iterator[dict[str, Any]]:
        """Variables by name, until the file is closed."""
        f = self.open(self.file(what))
        found = {name: f.variables[name] for name in names}
        try:
            yield found
        finally:
            # scipy's memory map cannot be closed while arrays refer to it
            found.clear()
            f.close()

    def open(self, path: str) -> Any:
        raise NotImplementedError

    def write(self, what: str, values: dict[str, Array], records: bool) -> None:
        raise NotImplementedError


class _H5py(_Peer):
    def write(self, what: str, values: dict[str, Array], records: bool) -> None:
        with self.module.File(self.file(what), "w") as f:
            for name, x in values.items():
                grows = {"maxshape": (None, *x.shape[1:]), "chunks": (1, *x.shape[1:])} if records else {}
                f.create_dataset(name, data=x, **grows)

    @contextlib.contextmanager
    def opened(self, what: str, names: list[str]) -> Iterator[dict[str, Any]]:
        with self.module.File(self.file(what), "r") as f:
            yield {name: f[name] for name in names}


class _NetCDF4(_Peer):
    def write(self, what: str, values: dict[str, Array], records: bool) -> None:
        with self.module.Dataset(self.file(what), "w", format="NETCDF3_64BIT_DATA") as f:
            f.set_fill_off()
            variables = [
                f.createVariable(name, x.dtype, _dimensions(f, f.createDimension, x, None if records else x.shape[0]))
                for name, x in values.items()
            ]
            for variable, x in zip(variables, values.values(), strict=True):
                variable[:] = x

    def open(self, path: str) -> Any:
        f = self.module.Dataset(path)
        f.set_auto_mask(False)
        return f


class _Scipy(_Peer):
    """scipy.io.netcdf_file over a memory map, CDF-2; results are made native, which a user would have to do, too."""

    def write(self, what: str, values: dict[str, Array], records: bool) -> None:
        with self.module.netcdf_file(self.file(what), "w", version=2) as f:
            for name, x in values.items():
                dims = _dimensions(f, f.createDimension, x, None if records else x.shape[0])
                f.createVariable(name, x.dtype, dims)[:] = x

    def open(self, path: str) -> Any:
        return self.module.netcdf_file(path, "r", mmap=True)

    def native(self, got: Any) -> Any:
        return [x.astype(x.dtype.newbyteorder("=")) for x in got] if isinstance(got, list) else self.native([got])[0]


class _PnetCDF(_Peer):
    def write(self, what: str, values: dict[str, Array], records: bool) -> None:
        f = self.module.File(self.file(what), mode="w", format="NC_64BIT_DATA")
        made = {
            name: f.def_var(name, x.dtype, _dimensions(f, f.def_dim, x, -1 if records else x.shape[0]))
            for name, x in values.items()
        }
        f.enddef()
        for name, x in values.items():
            made[name].iput_var(x, start=(0,) * x.ndim, count=x.shape)
        f.wait_all()
        f.close()

    def open(self, path: str) -> Any:
        return self.module.File(path, mode="r")


def _dimensions(f: Any, define: Callable[[str, Any], Any], x: Array, first: int | None) -> tuple[str, ...]:
    """The dimensions of an array, defined if they are not there yet; `first` is the length of the first one."""
    dims = tuple(f"d{i}" for i in range(x.ndim))
    for dim, n in zip(dims, (first, *x.shape[1:]), strict=True):
        if dim not in f.dimensions:
            define(dim, n)
    return dims


class _Numpy(_Peer):
    """A mapping of native bytes, copied: what the machine can carry."""

    def write(self, what: str, values: dict[str, Array], records: bool) -> None:
        shape = next(iter(values.values())).shape
        self.shape = (shape[0], len(values), *shape[1:])
        out = self._mapped(what, self.shape, os.O_RDWR | os.O_CREAT)
        for i, x in enumerate(values.values()):
            out[:, i] = x

    def _mapped(self, what: str, shape: tuple[int, ...], flags: int = os.O_RDONLY) -> Array:
        """The file as an array; it lives as long as the array."""
        fd = REAL.open(self.file(what), flags)
        try:
            nbytes = 4 * int(np.prod(shape))
            writable = flags != os.O_RDONLY
            if writable:
                REAL.ftruncate(fd, nbytes)
            return np.frombuffer(REAL.mmap(fd, nbytes, writable=writable), "f4").reshape(shape)
        finally:
            REAL.close(fd)

    @contextlib.contextmanager
    def opened(self, what: str, names: list[str]) -> Iterator[dict[str, Any]]:
        count = len(names)
        size = REAL.stat(self.file(what)).st_size // 4
        inner = (64, 64) if what == "records" else (round(size**0.5),)
        whole = self._mapped(what, (size // count // int(np.prod(inner)), count, *inner))
        yield {name: whole[:, i] for i, name in enumerate(names)}

    def native(self, got: Any) -> Any:
        return [np.array(x) for x in got] if isinstance(got, list) else np.array(got)


def peers(folder: str) -> dict[str, Any]:
    """Those that are installed; for the others the reason."""
    return installed(
        folder,
        {
            "pnc_vol": _H5py,
            "h5py": _H5py,
            "netCDF4": _NetCDF4,
            "scipy mmap": _Scipy,
            "PnetCDF-Python": _PnetCDF,
            "numpy.memmap": _Numpy,
        },
    )
