"""What must be in a file after a crash or trouble, by docs/explain/promises.md, and whether it is.

Knows: what each act guarantees when it has returned. Does not know: how a crash came about (`events`).

A *moment* is what holds when an act has returned: the contents of the model, and from which kind of event on they are
safe. After an event, the file holds the last moment that is safe from it, or later ones, element by element.
"""

from __future__ import annotations

import copy
import os
import random
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import virtual_ranks
from acts import ACTS, Step, parts_of
from crash.promise import Contents, broken, plain
from model import EMPTY, NUMBERS, Data, Impossible, Model, leads_to, objects_of
from options import arguments, cached, logged, put_into_environment, refusal
from run import Run, World, Wrong, leftovers

import pnc_vol


@dataclass
class Moment:
    """What holds after an act.

    begin, end : int
        Changes of files before the act, and when it returned.
    mids : list of Contents
        What may be seen while it is under way, besides what is before and after it.
    safe : frozenset of str
        "kill": after a kill, as the file is; "recovered": after a kill and a recovery; "power", "power recovered".
    posted : dict
        By path, the elements that were posted since the last flush, of what a log has.
    published : bool, whether the file has its name.
    objects : dict, the datasets of the model by path.
    """

    step: Step | None
    begin: int
    end: int
    contents: Contents
    mids: list[Contents]
    safe: frozenset[str]
    posted: dict[str, Any] = field(default_factory=dict)
    published: bool = True
    objects: dict[str, Data] = field(default_factory=dict)


def contents(model: Model) -> Contents:
    """A model as what a reader sees."""
    datasets = {path: plain(model.objects[path].values.copy()) for path in model.paths(Data)}
    attrs = {f"{path}@{key}": _listed(value) for path in model.paths(Data) + model.paths(dict)
             for key, value in model.attrs(path).items()}  # fmt: skip
    links = [f"{path} -> {model.objects[path]}" for path in model.paths(str)]
    return Contents(datasets, attrs, frozenset([path for path in model.paths(dict) if path] + links))


def seen(f: Any) -> Contents:
    """What a reader sees of an open file, every name of it."""
    datasets: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    groups: set[str] = set()
    for path, found in (("", f), *objects_of(pnc_vol, f)):
        if isinstance(found, (pnc_vol.SoftLink, pnc_vol.ExternalLink)):
            groups.add(f"{path} -> {leads_to(found)}")
            continue
        attrs |= {f"{path}@{key}": _listed(value) for key, value in found.attrs.items() if key not in _OWN}
        if isinstance(found, pnc_vol.Dataset):
            try:
                values = np.asarray(found[()])
            except pnc_vol.SourceError:  # a source is too small: the model has fill values then
                values = np.full(found.shape, found.fillvalue, found.dtype)
            if pnc_vol.check_ref_dtype(found.dtype):
                values = np.array([b"there" if one else b"" for one in values.ravel()], object).reshape(values.shape)
            datasets[path] = plain(values)
        elif path:
            groups.add(path)
    return Contents(datasets, attrs, frozenset(groups))


_OWN = {"_FillValue", "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"}
"""Attributes that scales and fill values have."""


def _listed(value: Any) -> str:
    if isinstance(value, pnc_vol.Empty):
        value = EMPTY
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return repr([item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel()])
    return repr(array.tolist())


# ----------------------------------------------------------------------------------------- what is promised


def between(model: Model, step: Step) -> list[Contents]:
    """What a file may hold while an act is under way: new datasets before their values, posts before their cancel."""
    found = []
    changed = copy.deepcopy(model)
    try:
        ACTS[step.act].effect(changed, **step.args)
    except Impossible:
        return []
    new = [path for path in changed.paths(Data) if path not in model.objects]
    for path in [path for path in changed.paths() if path not in model.objects and "/" in path]:
        # groups on the way come first
        part, steps = copy.deepcopy(model), path.split("/")
        for n in range(1, len(steps)):
            part.objects.setdefault("/".join(steps[:n]), {})
            found.append(contents(part))
    if new:
        bare = copy.deepcopy(changed)
        for path in new:
            data = bare.objects[path]
            data.values = data.empty(data.shape)
        found.append(contents(bare))
    if step.act == "cancel":
        put = copy.deepcopy(model)
        put.data(step.args["path"]).put(step.args["at"], step.args["values"].array)
        found.append(contents(put))
    if step.act == "write_many":
        # of several values of an element, an interrupted call may have written any
        put, done = copy.deepcopy(model), 0
        for at, part, size in parts_of(step.args["starts"], step.args["counts"])[:-1]:
            put.data(step.args["path"]).put(at, step.args["values"].array[done : done + size].reshape(part))
            found.append(contents(put))
            done += size
    if step.act == "scale":
        found.append(contents(model))
    return found


FLUSHES = {"flush", "reader", "reopen", "close", "atomic"}


def at_once(step: Step | None, model: Model) -> bool:
    """Whether an act leaves nothing to the flush in atomic mode: it writes to a dataset whose place is known, or reads.

    The places of all are known after a flush, until something is defined.
    """
    if step is None or step.act not in ("write", "mask"):
        return step is not None and step.act in ("read", "read_many", "look", "refresh")
    kind = model.data(step.args["path"]).kind
    return kind in NUMBERS and step.args.get("way", "assign") in ("assign", "from")


def moment(run: Run, step: Step | None, begin: int, end: int, mids: list[Contents], *, failed: bool = False) -> Moment:
    """What holds now that an act has returned, or failed."""
    config, safe = run.config, set()
    if failed:
        return Moment(step, begin, end, contents(run.model), mids, frozenset(), {}, run.named)
    name = step.act if step else "open"
    how = step.args.get("how") if step else ""
    flushed = name in FLUSHES or (name == "cancel" and step is not None and step.args["whole"])
    closed = name in ("reopen", "close", "again")
    run.written = flushed or (run.written and at_once(step, run.model))
    # what a cache holds counts from the next flush on
    in_file = run.written and run.model.atomic and config["layout"] == "canonical" and not cached(config)
    through = closed or how in ("sync", "durable") or config["durable"]
    if flushed or in_file or name == "again" or step is None:
        kept_back = cached(config) and not (through and not (closed and config["cache"] == "flush_none"))
        safe |= {"recovered"} if kept_back else {"kill", "recovered"}
        durable = config["durable"] or how == "durable" or (logged(config) and config["burst_buf_sync"] != "none")
        if durable and flushed:
            safe |= {"power", "power recovered"}
    # One of several ranks cannot empty its log: what has no room waits in memory (docs/reference/burst-buffer.md).
    room = min(config["burst_buf_capacity"] or config["buffer_size"], config["buffer_size"])
    if logged(config) and (config["ranks"] == 1 or sum(run.model.data(p).cost for p in run.model.paths(Data)) < room):
        safe |= {"posts"} | ({"power posts"} if config["burst_buf_sync"] == "each" else set())
    # arrays of varying length wait in memory, and a warning says so; data elsewhere are never posted
    posted = {
        path: data.posted.copy()
        for path in run.model.paths(Data)
        if (data := run.model.data(path)).kind not in ("rows", "elsewhere")
    }
    if closed or step is None:
        # what is created has its name at once, or at the close
        run.named = config["publish"] == "create" or name in ("reopen", "close")
    published = run.named
    objects = {path: run.model.data(path) for path in run.model.paths(Data)}
    return Moment(step, begin, end, contents(run.model), mids, frozenset(safe), posted, published, objects)


@dataclass
class Promise:
    """What may be seen: `least` must be there, or what came later."""

    least: Moment | None
    allowed: list[Contents]
    last: Moment | None


def promise(moments: list[Moment], at: int, kind: str) -> Promise:
    """What is promised after a crash at a change, for readers before or after a recovery."""
    done = [one for one in moments if one.end <= at]
    anew = [n for n, one in enumerate(done) if one.step and one.step.act == "again" and one.published]
    # a new file in the place of an old one was not synced, but for its name
    held = done[anew[-1] :] if anew and "power" in kind else done
    least = next((one for one in reversed(held) if kind in one.safe and one.published), None)
    later = [one for one in moments if (least is None or one.end > least.end) and one.begin <= at]
    later += [one for one in moments if least is not None and one.end == least.end and one is not least]
    allowed = may_hold(least, later)
    if "power" in kind:
        # no flush is one of other files
        allowed += [Contents(_in_other_files(one), there=False) for one in moments]
    return Promise(least, allowed, done[-1] if done else None)


def _in_other_files(moment: Moment) -> dict[str, Any]:
    """The datasets of a moment whose elements are in other files."""
    return {
        path: moment.contents.datasets[path]
        for path, data in moment.objects.items()
        if any(part.file for part in data.parts)
    }


def may_hold(least: Moment | None, later: list[Moment]) -> list[Contents]:
    """What a file may hold of a moment that must be there, which comes first, and of those that began later."""
    allowed = [least.contents] if least else []
    for one in later:
        allowed += [one.contents, *one.mids]
    for n, one in enumerate(later):
        earlier = [*([least] if least else []), *later[:n]]
        allowed += [found for old in earlier if (found := _by_old_names(old, one)).datasets]
    return allowed


def _by_old_names(old: Moment, new: Moment) -> Contents:
    """Values of datasets that were moved meanwhile, by the names that the header in the file has of them still."""
    paths = {id(data): path for path, data in new.objects.items()}
    moved = {path: paths[id(data)] for path, data in old.objects.items() if id(data) in paths}
    values = {
        path: new.contents.datasets[to] for path, to in moved.items() if new.objects.get(path) is not old.objects[path]
    }
    return Contents(values, there=False)


# ---------------------------------------------------------------------------------------------- examining


def examine(
    run: Run, moments: list[Moment], kind: str, state: Any, chance: random.Random, *, begun: bool = False
) -> None:
    """Read what a crash has left; recover it in one of the ways; write to it, and read again.

    begun : bool, a recovery was begun, and killed: a reader may see what it has replayed.
    """
    config, at = run.config, state.at
    torn, known = state.torn, kind == "kill"
    first = promise(moments, at, kind)
    before = _listing(run.folder)
    readable = _read(run, must=first.least is not None, kind=kind)
    if _listing(run.folder) != before:
        raise Wrong("opening for reading changed the folder")
    if config["layout"] == "rawfiles" and _changed(_since(moments, first.least, at), ("resize", "delete")):
        return  # what gets another shape is written over in its raw file
    if readable is not None and first.least is not None:
        if begun and logged(config):
            complain_log(readable, moments, first, at, must=False, torn=torn)
        else:
            complain("opened for reading", readable, first.allowed, torn, known)
    after = promise(moments, at, "recovered" if kind == "kill" else "power recovered")
    if not all(one.published for one in moments if one.begin <= at):
        return  # what belongs to a file without its name is recovered under that of its temporary file
    try:
        recover(run, chance)
    except OSError as error:
        if after.least is not None and not (kind == "power" and isinstance(error, pnc_vol.LogError)):
            raise
        return
    readable = _read(run, must=after.least is not None, kind=kind)
    if readable is None:
        return
    posts = "posts" if kind == "kill" else "power posts"
    if after.least is not None:
        if logged(config):
            after = promise(moments, at, "recovered" if kind == "kill" else "power recovered")
            complain_log(
                readable, moments, after, at, must=after.last is not None and posts in after.last.safe, torn=torn
            )
        else:
            complain("recovered", readable, after.allowed, torn, known)
    go_on(run, readable, clean=kind == "kill")


def _listing(folder: str) -> list[tuple[str, int, int]]:
    """The files of a folder, with their sizes and times."""
    return sorted((one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in os.scandir(folder))


def _since(moments: list[Moment], least: Moment | None, at: int) -> list[Moment]:
    """The moments after one that were begun before a change of a file."""
    first = next((n for n, one in enumerate(moments) if one is least), -1) + 1
    return [one for one in moments[first:] if one.begin <= at]


def _changed(moments: list[Moment], acts: tuple[str, ...]) -> bool:
    """Whether one of these acts was among some moments."""
    return any(one.step is not None and one.step.act in acts for one in moments)


def complain(when: str, got: Contents, allowed: list[Contents], torn: bool, known: bool) -> None:
    if wrong := broken(got, allowed, torn=torn, all_known=known):
        raise Wrong(f"{when}: {wrong}")


def _read(run: Run, *, must: bool, kind: str) -> Contents | None:
    """What a reader sees; None if there is nothing to be read, and need not be."""
    try:
        with run.open("r") as f:
            return seen(f)
    except OSError as error:
        # with strict=True, data that a power failure took are an error
        if must and not (kind == "power" and isinstance(error, pnc_vol.ShortFileError)):
            raise
        return None


def recover(run: Run, chance: random.Random) -> None:
    """In one of the documented ways: by an opening, or by itself; by one process, or by any number of ranks."""
    layout = run.config["layout"]
    by_itself = (chance.random() < 0.5 and layout == "canonical") or layout == "hdf5blob"  # it opens for reading alone
    ranks = chance.choice((1, 1, 1, 1, 1, 2, 3, 4))
    # what waits for its close belongs to the process, which simulated ranks share
    alone = run.config["deferred"] or layout == "rawfiles" or refusal(run.config | {"ranks": ranks})
    if ranks == 1 or alone:
        recovered(run, None, by_itself=by_itself)
    else:
        (run.recovered_on or by_simulated_ranks)(run, ranks, by_itself)


def by_simulated_ranks(run: Run, ranks: int, by_itself: bool) -> None:
    """Some ranks in this process recover."""
    virtual_ranks.run(ranks, lambda comm: recovered(run, World(comm), by_itself=by_itself), timeout=60)


def recovered(run: Run, world: Any, *, by_itself: bool) -> None:
    """One process, or each of some ranks, recovers; `world`: that of the ranks, or None."""
    plain = {"publish": "create", "burst_buf_overwrite": False, "recover": run.config["recover"] or True}
    given = arguments(run.config | plain, run.folder, "r+")
    given |= {} if run.system is None else {"system": run.system}
    put_into_environment(given)

    def by_ranks() -> dict[str, Any]:
        return {} if world is None else {"comm": world.opening(), "driver": given.get("driver", "posix")}

    if by_itself:
        of_replays = {name: given[name] for name in ("burst_buf_dirname", "system") if name in given}
        of_replays["hints"] = given.get("hints") or given.get("info")
        pnc_vol.replay(run.place, **of_replays, **by_ranks())
    if run.config["layout"] != "hdf5blob":
        pnc_vol.File(run.place, "r+", **(given | by_ranks())).close()


def go_on(run: Run, before: Contents, *, clean: bool = True) -> None:
    """A file that survived is a file like any other."""
    if run.config["layout"] == "hdf5blob":
        return
    kept = run.config["cache"] == "flush_none"
    try:
        if kept:
            # an empty file begins anew when it is recovered, and its header is kept as well
            recover(run, random.Random(1))
        with run.open("r+") as f:
            f.attrs["afterwards"] = 1
        if kept:
            recover(run, random.Random(1))
    except pnc_vol.LogError:
        if clean:
            raise
        return  # a log that the other way to recover it left alone, and that a power failure has damaged
    with run.open("r") as f:
        again = seen(f)
    wanted = [Contents(before.datasets, {**before.attrs, "@afterwards": "1"}, before.groups)]
    if not clean:
        # elements that are missing at the end of the file read as the fill value, and as 0 once data were moved
        numbers = {path: array for path, array in before.datasets.items() if array.dtype.kind in "iuf"}
        wanted.append(Contents({p: np.where(array == 7, 0, array) for p, array in numbers.items()}, there=False))
    complain("written to afterwards", again, wanted, torn=False, known=True)
    file = run.place if os.path.exists(run.place) else f"{run.place}.0000"
    if errors := [one for one in pnc_vol.check(file, values=False) if one.severity == "error"]:
        raise Wrong(f"after the recovery it is no valid file: {errors[0]}")
    if not clean:
        return  # of a log of which nothing reached the disk the folder may be there
    # a spill file has its name for a moment, and nothing in it
    of_kills = r"else\.nc|\.pnctmp$|\.pnc(c|bb)\.\w+$|\.pncj|\.nc\.\d{4}$|\.spill$"
    left = [name for name in leftovers(run) if not re.search(of_kills, name)]
    if left:
        raise Wrong(f"left over after the recovery: {left}")


def complain_log(got: Contents, moments: list[Moment], after: Promise, at: int, *, must: bool, torn: bool) -> None:
    """A recovered log: posts that had returned are there, definitions may be those of the last flush or later ones."""
    every = after.allowed
    for name, array in got.datasets.items():
        values = [one.datasets[name] for one in every if name in one.datasets]
        if not values:
            raise Wrong(f"recovered: there is a dataset {name!r}, which never was")
        fits = [value for value in values if value.ndim == array.ndim]
        if not fits:
            raise Wrong(f"recovered: {name!r} has {array.ndim} axes")
    wanted_attrs = {key: {one.attrs.get(key) for one in every} for one in every for key in one.attrs}
    for key, value in got.attrs.items():
        if value not in wanted_attrs.get(key, set()):
            raise Wrong(f"recovered: attribute {key} is {value:.100}, not one of {wanted_attrs.get(key)}")
    last = after.last
    if not must or last is None:
        return
    begun = [one for one in moments if one.end > last.end and one.begin <= at]
    since = _since(moments, after.least, at)
    if _changed(since, ("move", "delete", "link", "again")):
        return
    for path, posted in last.posted.items():
        wanted = last.contents.datasets[path]
        if not posted.any() or any(path not in one.contents.datasets for one in begun):
            continue
        found = got.datasets.get(path)
        if found is None:
            raise Wrong(f"recovered: {path!r}, to which was posted, is not there")
        if any(one.step and one.step.act == "resize" and one.step.args["path"] == path for one in since):
            continue
        mays = [
            one.datasets[path] for moment in begun for one in (moment.contents, *moment.mids) if path in one.datasets
        ]
        for index in np.ndindex(posted.shape):
            if not posted[index]:
                continue
            mine = found[index] if all(i < n for i, n in zip(index, found.shape, strict=False)) else None
            if not any(np.array_equal(mine, may[index]) for may in (wanted, *mays)) and not torn:
                raise Wrong(f"recovered: {path}{[int(i) for i in index]} is {mine!r}, and {wanted[index]!r} was posted")


def after_trouble(run: Run, moments: list[Moment], *, closed: bool, quiet: bool) -> None:
    """A file that was closed after something went wrong: all acts before are in it, the last one perhaps.

    closed : bool
        The close succeeded: else what is there is that of a process that was killed.
    quiet : bool
        The program itself saw no error.
    """
    config = run.config
    if config["publish"] == "close" and not closed and not run.named:
        return
    last = moments[-1]
    allowed = [last.contents] if quiet else [one.contents for one in moments[-2:]] + last.mids
    if not closed:
        kept = next((n for n, one in reversed(list(enumerate(moments[:-1]))) if "recovered" in one.safe), None)
        if kept is None:
            return
        allowed = may_hold(moments[kept], moments[kept + 1 :])
        if config["layout"] == "rawfiles" and _changed(moments[kept + 1 :], ("resize", "delete")):
            return  # what gets another shape is written over in its raw file
    if not closed or config["cache"] == "flush_none":
        recover(run, random.Random(1))
    with run.open("r") as f:
        got = seen(f)
    if logged(config) and not closed:
        return
    complain("closed after the failure", got, allowed, torn=False, known=True)
    go_on(run, got)
