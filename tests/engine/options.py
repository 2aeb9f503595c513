"""All options of an opening with their values, and covering arrays over them.

Knows: names and values of options, what they are as arguments of `pnc_vol.File`. Does not know: what a program does.

A *configuration* is a dictionary with a value for every option of `OPTIONS`. The first value of each option is the
ordinary one: a failure is made small by going back to it. A line of the table is all that a new option needs: if it is
a keyword of `File` or a hint, nothing else has to know of it.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pnc_vol
from pnc_vol.file import combinations
from pnc_vol.layout.registry import layout_class
from pnc_vol.settings.options import Options, hint_checks

EXAMPLES = Path(__file__).parents[2] / "examples"
PLUGINS = {
    "rawfiles": ("plugin_layout", "pnc_vol_rawfiles", "pnc_vol.layout.registry", "RawFiles"),
    "verify": ("plugin_driver", "pnc_vol_verify", "pnc_vol.drivers.stack", "VerifyDriver"),
    "zipped": ("plugin_store", "pnc_vol_zipped", "pnc_vol.queue.stores", "ZippedStore.open"),
}
"""The examples of other packages' plug-ins: by name, their folder and module, whose `register` takes what of it."""

Config = dict[str, Any]


class Option(NamedTuple):
    """One option.

    name : str; values : tuple, the ordinary one first.
    how : what it is for `File`: "keyword", "hint", or "" for what `arguments` treats by itself.
    when : whether it has a meaning in a configuration; elsewhere it has its ordinary value.
    """

    name: str
    values: tuple[Any, ...]
    how: str = "keyword"
    when: Callable[[Config], bool] = lambda config: True


def logged(config: Config) -> bool:
    return config["store"] == "log"


def cached(config: Config) -> bool:
    return config["cache"] != "none" and in_file(config)


def in_file(config: Config) -> bool:
    return config["stack"] not in ("memory", "object")


def on_ranks(config: Config) -> bool:
    return config["ranks"] > 1


def in_subfiles(config: Config) -> bool:
    return config["layout"] in ("blob", "hdf5blob")


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("ranks", (1,), ""),
        Option("nodes", (1,), "", on_ranks),
        Option("stack", ("posix", "trace", "verify", "memory", "object"), ""),
        Option("layout", ("canonical", "blob", "hdf5blob", "rawfiles"), "", in_file),
        Option("store", ("memory", "log", "zipped"), ""),
        Option("cache", ("none", "flush_immediate", "flush_onclose", "flush_none", "coherent"), "", in_file),
        Option("publish", ("create", "close")),
        Option("durable", (False, True)),
        Option("buffer_size", (64 << 20, 64 << 10)),
        Option("header_reserve", (None, 0, 64, 20000)),
        Option("format", ("CDF-5", "CDF-2", "CDF-1")),
        Option("var_align", (4, 512)),
        Option("record_align", (4, 1024)),
        Option("ordered", (False, True)),
        Option("separator", ("_", "..")),
        Option("strict", (False, True)),
        Option("said", ("keywords", "hints", "info", "environment", "file"), "", in_file),
        Option("created", ("w", "x", "w-", "a"), "", in_file),
        Option("on_overflow", ("raise", "clip")),
        Option("external_links", ("below", "any", "none"), "keyword", in_file),
        Option("hdf5", ("auto", "pass", "refuse")),
        Option("libver", (None, "latest")),
        Option("track_order", (False, True)),
        Option("recover", (False, True, "any-file"), "keyword", in_file),
        Option("locking", (None, False, True, "best-effort"), "keyword", in_file),
        Option("deferred", (False, True), "", in_file),
        Option("burst_buf_capacity", (0, 5000, 100_000), "keyword", logged),
        Option("burst_buf_sync", ("none", "flush", "each"), "keyword", logged),
        Option("burst_buf_flush_buffer_size", (0, 1, 65536), "keyword", logged),
        Option("burst_buf_shared_logs", (False, True), "keyword", logged),
        Option("burst_buf_dirname", ("", "logs"), "", logged),
        Option("burst_buf_del_on_close", (True, False), "keyword", logged),
        Option("burst_buf_overwrite", (False, True), "keyword", logged),
        Option("e10_cache_threads", (1, 3), "hint", cached),
        Option("ind_wr_buffer_size", (512 << 10, 1000), "hint", cached),
        Option("pnc_cache_capacity", (0, 5000), "hint", cached),
        Option("pnc_cache_in_flight", (4 << 30, 10_000), "hint", cached),
        Option("e10_cache_discard_flag", ("enable", "disable"), "hint", cached),
        Option("subfiles", (0, 1, 2), "keyword", in_subfiles),
        Option("ranks_per_subfile", (0, 1, 2), "keyword", in_subfiles),
        Option("transport", ("auto", "aggregate", "independent", "collective"), "keyword", on_ranks),
        Option("aggrs_per_node", (0, 1, 2), "keyword", on_ranks),
        Option("cb_buffer_size", ("", "4096"), "hint", on_ranks),
        Option("cb_nodes", ("", "1", "3"), "hint", on_ranks),
        Option("cb_config_list", ("", "*:1"), "hint", on_ranks),
        Option("romio_cb_write", ("", "enable"), "hint", on_ranks),
        Option("romio_ds_write", ("", "disable"), "hint", on_ranks),
        Option("striping_unit", ("", "4096"), "hint", on_ranks),
        Option("striping_factor", ("", "3"), "hint", on_ranks),
    )
}

# the core is tested without the plug-ins of this package, too
for _name, _plugin in (("layout", "blob"), ("store", "burst"), ("cache", "cache")):
    if importlib.util.find_spec(f"pnc_vol.{_plugin}") is None:
        _values = tuple(
            value for value in OPTIONS[_name].values if value in ("canonical", "rawfiles", "memory", "zipped", "none")
        )
        OPTIONS[_name] = OPTIONS[_name]._replace(values=_values)


def ranks_options(ranks: tuple[int, ...], nodes: tuple[int, ...], *, mpi: bool) -> dict[str, Option]:
    """The table for programs on ranks; `mpi`: real ones, which have MPI-IO."""
    stacks: tuple[str, ...] = ("posix", "trace", "verify")
    if mpi:
        stacks += ("mpio", "trace | mpio", "mpio(derived_types=false)", "mpio(round_bytes=1000)")
    return OPTIONS | {
        "ranks": Option("ranks", ranks, ""),
        "nodes": Option("nodes", nodes, "", on_ranks),
        "stack": Option("stack", stacks, ""),
        "layout": OPTIONS["layout"]._replace(values=tuple(v for v in OPTIONS["layout"].values if v != "rawfiles")),
        # what waits for its close belongs to the process, which simulated ranks share
        "deferred": OPTIONS["deferred"]._replace(values=(False, True) if mpi else (False,)),
    }


def normal(config: Config, table: dict[str, Option] = OPTIONS) -> Config:
    """A configuration in which what has no meaning has its ordinary value."""
    made = {name: config.get(name, option.values[0]) for name, option in table.items()}
    for name, option in table.items():
        if not option.when(made):
            made[name] = option.values[0]
    if made["layout"] == "hdf5blob":
        # a set of HDF5 files gets its names at the close, whatever the option says
        made["publish"] = "close"
    return made


def refusal(config: Config) -> tuple[type[BaseException], str] | None:
    """The error with which the opening refuses a configuration, or None; by the table that the opening uses."""
    layout = layout_class(config["layout"])
    options = Options(
        burst_buf=logged(config),
        durable=config["durable"],
        publish=config["publish"],
        version=int(config["format"][-1]),
        driver="cache | posix" if cached(config) else "",
    )
    for one in combinations.REFUSED:
        if one.applies(layout, options, config["ranks"]):
            return one.error, one.text.format(layout=layout.name, version=options.version)
    return None


def covering(
    strength: int, chance: random.Random, table: dict[str, Option] = OPTIONS, fixed: Config | None = None
) -> Iterator[Config]:
    """Configurations that hold every combination of values of `strength` options that can occur together.

    Each new one is the best of some drawn at random around a combination that is missing yet. A combination that cannot
    occur, as an option has no meaning beside another one, is left out. One that is refused is in a configuration of its
    own: what is refused runs nothing.
    """
    fixed = fixed or {}
    values = {name: (fixed[name],) if name in fixed else option.values for name, option in table.items()}
    names = [name for name in values if len(values[name]) > 1]
    left: dict[frozenset[tuple[str, Any]], None] = {}
    for some in itertools.combinations(names, strength):
        left |= dict.fromkeys(
            frozenset(zip(some, each, strict=True)) for each in itertools.product(*(values[name] for name in some))
        )
    keys = list(left)
    chance.shuffle(keys)
    for key in keys:
        if key not in left:
            continue
        best: tuple[int, Config] | None = None
        refused: Config | None = None
        for _ in range(30):
            drawn = {name: chance.choice(values[name]) for name in values} | dict(key)
            made = normal(drawn, table)
            if not key <= made.items():
                # what it needs may be another option's value
                continue
            if refusal(made):
                refused = refused or made
                continue
            new = sum(all(made[name] == value for name, value in other) for other in keys[:400] if other in left)
            if best is None or new > best[0]:
                best = new, made
            if strength > 2:
                break
        if best is None:
            del left[key]
            if refused is not None:
                yield refused
            continue
        for some in itertools.combinations(names, strength):
            left.pop(frozenset((name, best[1][name]) for name in some), None)
        yield best[1]


# --------------------------------------------------------------------------------------- arguments of File


def load_plugins(*names: str) -> None:
    """Register the examples of other packages' layouts, drivers and stores."""
    for name in names or PLUGINS:
        folder, module, room, what = PLUGINS[name]
        if module not in sys.modules:
            sys.path.append(str(EXAMPLES / folder))
        import_module(room).register(name, attrgetter(what)(import_module(module)))


def arguments(config: Config, folder: str, mode: str = "w") -> dict[str, Any]:
    """The keywords of `File` that a configuration means.

    Parameters
    ----------
    folder : str
        Of the file; the log and the cache are in folders of it.
    """
    stack, layout, store, cache = (config[name] for name in ("stack", "layout", "store", "cache"))
    given: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for name, option in OPTIONS.items():
        value = config[name]
        if value == option.values[0] or (mode == "r" and name in ("publish", "locking", "recover")):
            continue
        if option.how == "keyword":
            given[name] = value
        elif option.how == "hint":
            hints[name] = str(value)
    if stack not in ("posix", "object"):
        given["driver"] = f"{stack} | posix" if stack in ("trace", "verify") else stack
    elif on_ranks(config):
        given["driver"] = "posix"
    if layout != "canonical" and mode in ("w", "x", "w-", "a"):
        given["layout"] = layout
    if store == "log":
        given["burst_buf"] = True
        if config["burst_buf_dirname"]:
            given["burst_buf_dirname"] = os.path.join(folder, "logs")
    elif store != "memory":
        given["store"] = store
    if cache != "none":
        hints["e10_cache_path"] = os.path.join(folder, "nvm")
        hints |= {"e10_cache": "coherent"} if cache == "coherent" else {"e10_cache_flush_flag": cache}
    if on_ranks(config):
        given["collective_timeout"] = 60
    if config["said"] != "keywords":
        others = as_hints(given)
        hints |= others if config["said"] != "file" else {}
    if config["deferred"] or config["said"] == "file":
        given["hints_file"] = os.path.join(folder, "hints.json")
    way = config["said"] if config["said"] in ("info", "environment") else "hints"
    return given | ({way: hints} if hints else {})


def put_into_environment(given: Config) -> None:
    """Take out of the keywords of `File` those hints that are in the environment, and put them there."""
    os.environ["PNC_VOL_HINTS"] = ";".join(f"{name}={value}" for name, value in given.pop("environment", {}).items())


HINTS = {
    name: hint
    for hint in hint_checks()
    for name in Options._fields
    if hint in (f"pnc_{name}", f"nc_{name}", f"nc_{name}_size", f"nc_num_{name}")
}
"""By option, the hint that says the same."""


def as_hints(given: dict[str, Any]) -> dict[str, str]:
    """Take out those keywords that are hints as well; these hints."""
    found = {HINTS[name]: given.pop(name) for name in HINTS if name in given}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def hints_file(config: Config, folder: str) -> str:
    """The content of the hint file that the arguments name."""
    entry = {"Path": "x.nc", "Type": "MPI"} | as_hints(arguments(config | {"said": "keywords"}, folder))
    found = {"Guardnames": "x.nc"} if config["deferred"] else {}
    return json.dumps(found | ({"File": [entry]} if config["said"] == "file" else {}))


OTHER = {"else.nc": np.arange(6, dtype="i4"), "else.bin": np.arange(10, 16, dtype="i4")}
"""Files beside the one that is tested, to which links, virtual datasets and data elsewhere lead."""


def beside(folder: str) -> None:
    """Make the other files."""
    with pnc_vol.File(os.path.join(folder, "else.nc"), "w") as f:
        f["e"] = OTHER["else.nc"]
    OTHER["else.bin"].tofile(os.path.join(folder, "else.bin"))


def prepare(config: Config, folder: str) -> Any:
    """Make the folders and files that the arguments name; what is to be opened: a path, or a file object."""
    put_into_environment({})
    if in_file(config):
        beside(folder)
    if cached(config):
        os.mkdir(os.path.join(folder, "nvm"))
    if config["burst_buf_dirname"]:
        os.mkdir(os.path.join(folder, "logs"))
    if config["deferred"] or config["said"] == "file":
        Path(folder, "hints.json").write_text(hints_file(config, folder))
    return io.BytesIO() if config["stack"] == "object" else os.path.join(folder, "x.nc")
