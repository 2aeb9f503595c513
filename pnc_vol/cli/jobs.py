"""``pnc-vol jobs``: job scripts for all combinations of a study, and their results in one table.

A description (YAML, JSON) says which nodes, ranks, aggregators, buffer sizes and cache modes to try. Each combination
gets a script for Slurm or PBS, and a hint file; a script submits them one after another.

Knows: the two schedulers' options, hint files, the benchmarks' JSON. Does not know: what a hint or a benchmark does.

Rules
-----
1. What the description holds is quoted for the shell; a value with a line break is refused.
2. Nothing is overwritten: the directory of the jobs must not exist.
3. A result appears under its name when its job has ended well. Jobs without one are in the table, too.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

import typer

from pnc_vol.cli.show import expected, fail, safe
from pnc_vol.errors import did_you_mean
from pnc_vol.full_io import read_whole, write_whole
from pnc_vol.system import REAL, exists, is_folder

__all__ = ["Job", "Study", "command", "jobs_of", "script"]

_INDEX, _CHAIN = "jobs.json", "submit.sh"
_MOST_BYTES = 1 << 24
_BENCHMARKS = ("coll_perf", "ior", "flash", "e3sm", "create")
_COLUMNS = ("job", "nodes", "ranks_per_node", "aggregators", "buffer_size", "cache", "state", "work", "peer", "seconds")


@dataclass(frozen=True, slots=True)
class Study:
    """A description; the first five with a list are combined.

    nodes, ranks_per_node, aggregators, buffer_sizes : tuples of int; bytes.
    cache : tuple of str, of the hint ``e10_cache``.
    benchmark : str; arguments : tuple of str
    output, cache_dir : str, directories: of the files on the global file system, and of the caches on each node.
    scheduler : "slurm" or "pbs"
    time : str; queue, account : str, "" for none.
    setup : tuple of str, lines of shell before the benchmark.
    launcher : str, what starts ranks: ``{ranks}`` and ``{ranks_per_node}`` are replaced.
    """

    name: str
    benchmark: str
    output: str
    nodes: tuple[int, ...] = (1,)
    ranks_per_node: tuple[int, ...] = (1,)
    aggregators: tuple[int, ...] = (0,)
    buffer_sizes: tuple[int, ...] = (0,)
    cache: tuple[str, ...] = ("disable",)
    cache_dir: str = ""
    arguments: tuple[str, ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = "slurm"
    time: str = "00:30:00"
    queue: str = ""
    account: str = ""
    setup: tuple[str, ...] = ()
    launcher: str = ""
    python: str = "python"


@dataclass(frozen=True, slots=True)
class Job:
    """One combination; 0 aggregators, or a buffer of 0 bytes, leave the choice to MPI."""

    nodes: int
    ranks_per_node: int
    aggregators: int
    buffer_size: int
    cache: str

    @property
    def name(self) -> str:
        """Unique in its study."""
        return f"n{self.nodes}-p{self.ranks_per_node}-a{self.aggregators}-b{self.buffer_size}-{self.cache}"


def study_of(told: Any) -> Study:
    """A description, checked.

    Raises
    ------
    ValueError
        What is wrong, and where.
    """
    if not isinstance(told, dict):
        raise ValueError(f"a description is a mapping of names to values, not {type(told).__name__}")
    known = {one.name: one for one in fields(Study)}
    made: dict[str, Any] = {}
    for key, value in told.items():
        if key not in known:
            raise ValueError(f"{key!r} is no key of a description{did_you_mean(str(key), known)}")
        made[key] = _value(key, str(known[key].type), value)
    for key in ("name", "benchmark", "output"):
        if not made.get(key):
            raise ValueError(f"{key!r} is missing")
    study = Study(**made)
    for key, words in (("benchmark", _BENCHMARKS), ("scheduler", ("slurm", "pbs"))):
        if getattr(study, key) not in words:
            raise ValueError(f"{key!r} is {getattr(study, key)!r}; one of {', '.join(words)} is needed")
    for mode in study.cache:
        if mode not in ("enable", "disable", "coherent"):
            raise ValueError(f"'cache' has {mode!r}; enable, disable or coherent is needed")
    if set(study.cache) != {"disable"} and not study.cache_dir:
        raise ValueError("'cache_dir' is missing: the directory of the caches on each node")
    if min((*study.nodes, *study.ranks_per_node)) < 1:
        raise ValueError("'nodes' and 'ranks_per_node' are at least 1")
    return study


def _value(key: str, kind: str, value: Any) -> Any:
    if kind == "str":
        return _line(key, value)
    if kind.startswith("Mapping"):
        if not isinstance(value, dict):
            raise ValueError(f"{key!r} is a mapping of hints to values")
        return {_line(key, hint): _line(key, word) for hint, word in value.items()}
    if key == "arguments" and isinstance(value, str):
        value = shlex.split(value)
    several = value if isinstance(value, list) else [value]
    if not several and key not in ("arguments", "setup"):
        raise ValueError(f"{key!r} is an empty list")
    if "int" in kind:
        for one in several:
            if isinstance(one, bool) or not isinstance(one, int) or one < 0:
                raise ValueError(f"{key!r} has {one!r}; numbers >= 0 are needed")
        return tuple(several)
    # YAML reads on, off, yes and no as true and false
    words = {True: "enable", False: "disable"}
    return tuple(words[one] if key == "cache" and isinstance(one, bool) else _line(key, one) for one in several)


def _line(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"{key!r} has {value!r}; a text is needed")
    text = str(value)
    if not text.isprintable():
        raise ValueError(f"{key!r} has {text!r}; printable text in one line is needed")
    return text


def jobs_of(study: Study) -> list[Job]:
    """All combinations."""
    axes = (study.nodes, study.ranks_per_node, study.aggregators, study.buffer_sizes, study.cache)
    return [Job(*one) for one in dict.fromkeys(itertools.product(*axes))]


def hint_file(study: Study, job: Job) -> str:
    """The hint file of a job; see ``docs/reference/hint-files.md``."""
    hints = dict(study.hints)
    if job.aggregators:
        hints["cb_nodes"] = str(job.aggregators)
    if job.buffer_size:
        hints["cb_buffer_size"] = str(job.buffer_size)
    hints["e10_cache"] = job.cache
    if job.cache != "disable":
        hints["e10_cache_path"] = study.cache_dir
    return json.dumps({"Directory": [{"Path": study.output, "Type": "MPI", **hints}]}, indent=2)


def script(study: Study, job: Job, folder: str) -> str:
    """The job script."""
    ranks = job.nodes * job.ranks_per_node
    name = f"{study.name}-{job.name}"
    if study.scheduler == "slurm":
        head = [("--job-name=", name), ("--nodes=", job.nodes), ("--ntasks-per-node=", job.ranks_per_node)]
        head += [("--time=", study.time), ("--output=", os.path.join(folder, f"{job.name}.out"))]
        head += [("--partition=", study.queue), ("--account=", study.account)]
        mark, launcher, on_nodes = "#SBATCH ", "srun -n {ranks}", f"srun -N {job.nodes} --ntasks-per-node=1 mkdir -p "
    else:
        head = [("-N ", name), ("-l ", f"select={job.nodes}:mpiprocs={job.ranks_per_node}")]
        head += [("-l ", f"walltime={study.time}"), ("-j ", "oe"), ("-o ", os.path.join(folder, f"{job.name}.out"))]
        head += [("-q ", study.queue), ("-A ", study.account)]
        mark, launcher, on_nodes = "#PBS ", "mpiexec -n {ranks}", "pbsdsh -- mkdir -p "
    launcher = study.launcher or launcher
    start = launcher.replace("{ranks}", str(ranks)).replace("{ranks_per_node}", str(job.ranks_per_node))
    words = [study.python, "-m", "mpi4py", "-m", "pnc_vol.bench", study.benchmark, "--json", "--peers", "pnc_vol"]
    words += ["--dir", study.output, *study.arguments]
    result = shlex.quote(f"{job.name}.json")
    lines = ["#!/bin/bash", *(f"{mark}{option}{value}" for option, value in head if value != "")]
    lines += ["set -euo pipefail", f"cd {shlex.quote(folder)}", *study.setup]
    lines += [f"mkdir -p {shlex.quote(study.output)}"]
    if job.cache != "disable":
        # where the launcher is the user's own, the directory is theirs to make
        made = "mkdir -p " if study.launcher else on_nodes
        lines += [f"{made}{shlex.quote(study.cache_dir)}"]
    lines += [f"export PNC_VOL_HINTS_FILE=$PWD/{shlex.quote(f'{job.name}.hints')}"]
    lines += [f"{start} {shlex.join(words)} > {result}.part", f"mv {result}.part {result}"]
    return "\n".join(lines) + "\n"


def chain(study: Study, jobs: Sequence[Job]) -> str:
    """A script that submits the jobs so that each begins when the one before has ended."""
    first, next_one = {
        "slurm": ("sbatch --parsable", "sbatch --parsable --dependency=afterany:$id"),
        "pbs": ("qsub", "qsub -W depend=afterany:$id"),
    }[study.scheduler]
    lines = ["#!/bin/bash", "set -euo pipefail", 'cd "$(dirname "$0")"']
    lines += [f"id=$({first if not i else next_one} {shlex.quote(f'{job.name}.sh')})" for i, job in enumerate(jobs)]
    return "\n".join(lines) + "\n"


def command(
    source: Annotated[
        str,
        typer.Argument(metavar="STUDY", help="A description (YAML, JSON); or a directory of jobs.", show_default=False),
    ],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Write the jobs into this new directory.")] = "jobs",
    csv: Annotated[str, typer.Option("--csv", metavar="FILE", help="Of a directory: write the results as CSV.")] = "",
    plot: Annotated[
        str, typer.Option("--plot", metavar="FILE.png", help="Of a directory: draw the bandwidths (needs matplotlib).")
    ] = "",
) -> None:
    """Write Slurm or PBS scripts for all combinations of a study, or collect their results from the directory.

    Exit code: 0; 1 if jobs have no result yet.
    """
    if is_folder(REAL, source):
        _collect(source, csv, plot)
        return
    with expected(source):
        text = read_whole(REAL, source, limit=_MOST_BYTES)
    try:
        study = study_of(_parsed(source, text))
    except ValueError as error:
        fail(source, str(error))
    if exists(REAL, to):
        fail(to, "it is there already; give another directory with --to")
    jobs = jobs_of(study)
    folder = os.path.abspath(to)
    with expected(to):
        REAL.mkdir(folder)
        for job in jobs:
            write_whole(REAL, os.path.join(folder, f"{job.name}.sh"), script(study, job, folder).encode(), mode=0o777)
            write_whole(REAL, os.path.join(folder, f"{job.name}.hints"), hint_file(study, job).encode())
        write_whole(REAL, os.path.join(folder, _CHAIN), chain(study, jobs).encode(), mode=0o777)
        index = {"study": asdict(study), "jobs": [asdict(job) for job in jobs]}
        write_whole(REAL, os.path.join(folder, _INDEX), json.dumps(index, indent=1).encode())
    typer.echo(f"{len(jobs)} jobs in {safe(folder)}; submit them with {safe(os.path.join(to, _CHAIN))}")


def _parsed(path: str, text: bytes) -> Any:
    what = "it is no description of a study"
    if path.endswith(".json"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            fail(path, f"{what}: line {error.lineno} is no JSON")
        except UnicodeDecodeError:
            fail(path, what)
    try:
        import yaml
    except ImportError:
        fail(path, 'reading YAML needs PyYAML (pip install "pnc-vol[jobs]"); or write the description as .json')
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        fail(path, what + (f": line {mark.line + 1} is no YAML" if mark else ""))


def _rows(folder: str) -> list[dict[str, Any]]:
    """A row for each job and each work that its benchmark measured."""
    if not exists(REAL, os.path.join(folder, _INDEX)):
        fail(folder, f"it has no {_INDEX}; name a directory that 'pnc-vol jobs STUDY' made, or a description")
    with expected(folder):
        index = json.loads(read_whole(REAL, os.path.join(folder, _INDEX), limit=_MOST_BYTES))
    rows: list[dict[str, Any]] = []
    for told in index["jobs"]:
        job = Job(**told)
        row = {"job": job.name, **told}
        path = os.path.join(folder, f"{job.name}.json")
        if not exists(REAL, path):
            rows.append({**row, "state": "no result"})
            continue
        try:
            results = json.loads(read_whole(REAL, path, limit=_MOST_BYTES))["results"]
            for one in results:
                for peer, seconds in one["seconds"].items():
                    if seconds:
                        took = statistics.median(seconds)
                        rate = one["bytes"] / took / 2**20 if one["bytes"] and took else ""
                        done = {"work": one["work"], "peer": peer, "seconds": took, "mib_per_second": rate}
                        rows.append({**row, "state": "done", **done})
        except (ValueError, KeyError, TypeError) as error:
            rows.append({**row, "state": f"unreadable: {type(error).__name__}"})
    return rows


def _collect(folder: str, csv: str, plot: str) -> None:
    rows = _rows(folder)
    columns = (*_COLUMNS, "mib_per_second")
    if csv:
        text = "\n".join([",".join(columns), *(",".join(_cell(row.get(one, "")) for one in columns) for row in rows)])
        with expected(csv):
            write_whole(REAL, csv, (text + "\n").encode())
    done = [row for row in rows if row["state"] == "done"]
    for row in rows:
        rate = row.get("mib_per_second", "")
        shown = f"{row['seconds']:10.4f} s {rate:10.1f} MiB/s  {row['work']}" if rate != "" else ""
        typer.echo(safe(f"{row['job']:32s} {row['state']:10s} {shown}".rstrip()))
    if plot:
        _draw([row for row in done if row["mib_per_second"] != ""], plot)
    if len(done) < len(rows):
        raise typer.Exit(1)


def _cell(value: Any) -> str:
    text = f"{value:.9g}" if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


def _draw(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        fail("--plot", 'matplotlib is not installed (pip install "pnc-vol[plot]")')
    works = list(dict.fromkeys(row["work"] for row in rows))
    jobs = list(dict.fromkeys(row["job"] for row in rows))
    figure = Figure(figsize=(8, 1.5 + 0.35 * max(1, len(jobs) * len(works))), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / max(1, len(works))
    for i, work in enumerate(works):
        mine = [row for row in rows if row["work"] == work]
        places = [jobs.index(row["job"]) + i * height for row in mine]
        axes.barh(places, [row["mib_per_second"] for row in mine], height=height, label=work)
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(jobs))], jobs)
    axes.invert_yaxis()
    axes.set_xlabel("MiB/s")
    if works:
        axes.legend(fontsize="small")
    with expected(path):
        figure.savefig(path, dpi=120)
    typer.echo(f"{safe(path)} was drawn")
