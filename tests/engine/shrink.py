"""A failure is made small, and printed as a script that runs without the engine.

Knows: programs. Does not know: how they are run: `fails` is asked whether a smaller one still fails in the same way.

A script is made by the acts themselves: they are done with a file that writes down what it is told (`Spoken`).
"""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from acts import ACTS, CASTS, HELPERS, Step, numeric
from model import EMPTY, HELPER, REFERENCES, Data, Impossible, Model, Values, cells, literal, need
from options import EXAMPLES, OPTIONS, OTHER, PLUGINS, Config, arguments, hints_file, normal
from run import Program

# ------------------------------------------------------------------------------------------------ smaller


def kind_of(told: str) -> str:
    """What stays the same of a message while the program becomes smaller."""
    error, _, text = told.partition(":")
    place = re.search(r"\([\w/]+\.py:\w+\)$", told)
    words = re.sub(r"'[^']*'|\"[^\"]*\"|[\w./-]*/[\w./-]*|\W|\d|_", " ", text)
    return f"{error} {place.group() if place else ' '.join(words.split()[:4])}"


def shrunk(
    program: Program, told: str, fails: Callable[[Program], str], most: int = 1000, seconds: float = 60
) -> tuple[Program, str]:
    """A program from which nothing more can be taken, and what it fails with.

    Parameters
    ----------
    fails : callable
        What goes wrong with a program, "" if nothing does.
    most, seconds : number
        Programs that are tried, and how long.
    """
    wanted, tried, end = kind_of(told), 0, time.monotonic() + seconds
    again = True
    while again and tried < most and time.monotonic() < end:
        again = False
        for smaller in _smaller(program):
            if repr(smaller) == repr(program):
                continue
            tried += 1
            found = fails(smaller)
            if found and kind_of(found) == wanted:
                program, told, again = smaller, found, True
                break
            if tried >= most or time.monotonic() > end:
                break
    return program, told


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them: great pieces first."""
    steps, config = program.steps, program.config
    size = len(steps) // 2
    while size:
        for begin in range(len(steps) - size, -1, -max(size, 1)):
            yield _with(program, steps[:begin] + steps[begin + size :], config)
        size //= 2
    yield _with(program, steps, normal({name: config[name] for name in ("ranks", "nodes")}))
    for name, option in OPTIONS.items():
        for value in option.values:
            if value == config[name]:
                break
            yield _with(program, steps, normal(config | {name: value}))
    for i, step in reversed(list(enumerate(steps))):
        for args in _simpler(step.args):
            yield _with(program, [*steps[:i], step._replace(args=args), *steps[i + 1 :]], config)


def _with(program: Program, steps: list[Step], config: Config) -> Program:
    return Program(program.seed, config, _that_mean_something(steps))


def _that_mean_something(steps: list[Step]) -> list[Step]:
    """The acts that can be done when those before are."""
    model, kept = Model(), []
    for step in steps:
        with suppress(Impossible):
            fitting = step._replace(args=step.args | _fitting(model, step.act, step.args))
            ACTS[step.act].effect(model, **fitting.args)
            kept.append(fitting)
    return kept


def _fitting(model: Model, act: str, args: dict[str, Any]) -> dict[str, Any]:
    """Values as an act needs them now that it, or its dataset, has become smaller or of another type."""
    values = args.get("values")
    if values is None or act == "store":
        return {}
    if act == "create":
        return {"values": values._replace(shape=args["shape"], kind=args["kind"])}
    data = model.data(args["path"])
    if act == "mask":
        need(len(data.shape) == args["flags"].ndim)
        flags = args["flags"][tuple(map(slice, data.shape))]
        return {"flags": flags, "values": values._replace(shape=(int(flags.sum()),), kind=data.kind)}
    if act == "write_many":
        shape = (sum(map(math.prod, args["counts"])),)
    elif act == "decomposed":
        shape = (sum(args["lengths"]),)
    else:
        shape = values.shape and cells(data.shape, args.get("at", ...)).shape
    cast = act == "write" and numeric(data) and values.kind in CASTS
    return {"values": values._replace(shape=shape, kind=values.kind if cast else data.kind)}


WORDS = {"iput": "assign", "iput and wait": "iput", "from": "assign", "iget": "index", "collective": "index",
         "astype": "index", "into": "index", "asstr": "index", "create": "set", "modify": "set", "all": "one",
         "durable": "plain", "sync": "plain", "dataset": "plain", "raise": "close", "forget": "close"}  # fmt: skip
"""For ways to do something, simpler ones."""


def _simpler(args: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Arguments of which one is simpler, with what depends on it."""
    for name, value in args.items():
        if name in ("way", "how") and value in WORDS:
            yield args | {name: WORDS[value]}
        elif name in ("look", "whole") and value:
            yield args | {name: False}
        elif name == "kind" and value and value not in REFERENCES:
            yield args | {name: "i4"}
        elif name == "at" and value:
            yield args | {name: (Ellipsis,)}
        elif name == "shape":
            for shape in _shorter(value):
                most = args.get("maxshape")
                more = {"maxshape": (most and shape and most[-len(shape) :]) or None} if "maxshape" in args else {}
                yield args | {name: shape} | more
        elif name == "size":
            yield args | {name: value // 2}
        elif name == "starts":
            for some in (slice(1), slice(1, None)):
                yield args | {one: args[one][some] for one in ("starts", "counts", "lengths") if args.get(one, [0])[1:]}
        elif name == "value" and isinstance(value, str):
            yield from (args | {name: value[:n]} for n in (1, len(value) // 2))
        elif isinstance(value, Values):
            others = [{"start": 1}, {"kind": "i4"}, *({"shape": shape} for shape in _shorter(value.shape))]
            yield from (args | {name: value._replace(**one)} for one in others)
        if name in ("fill", "maxshape", "values") and "maxshape" in args:
            yield args | {name: None}


def _shorter(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Shapes with fewer axes, then with shorter ones."""
    if shape:
        yield from ((), shape[1:], tuple(min(n, 2) for n in shape))
    for i, n in enumerate(shape):
        yield from ((*shape[:i], less, *shape[i + 1 :]) for less in (1, n // 2, n - 1) if 0 < less < n)


# ------------------------------------------------------------------------------------------------- script


class Script:
    """Lines of Python."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = 0
        self.indent = ""

    def add(self, line: str) -> int:
        self.lines.append(self.indent + line)
        return len(self.lines) - 1


class Spoken:
    """An object of which every use becomes a line."""

    def __init__(self, script: Script, text: str, line: int | None = None) -> None:
        self.__dict__.update(_script=script, _text=text, _line=line)

    def _name(self) -> str:
        """The text by which it is used; the result of a call gets a name."""
        script, line = self._script, self._line
        if line is not None:
            script.names += 1
            name = f"v{script.names}"
            call = script.lines[line].lstrip()
            script.lines[line] = f"{script.lines[line][: -len(call)]}{name} = {call}"
            self.__dict__.update(_text=name, _line=None)
        return str(self._text)

    def __getattr__(self, name: str) -> Spoken:
        if name.startswith("__"):
            raise AttributeError(name)
        return Spoken(self._script, f"{self._name()}.{name}")

    def __getitem__(self, at: Any) -> Spoken:
        return Spoken(self._script, f"{self._name()}[{index_code(at)}]")

    def __setitem__(self, at: Any, value: Any) -> None:
        self._script.add(f"{self._name()}[{index_code(at)}] = {code(value)}")

    def __delitem__(self, at: Any) -> None:
        self._script.add(f"del {self._name()}[{index_code(at)}]")

    def __call__(self, *args: Any, **more: Any) -> Spoken:
        given = [code(arg) for arg in args] + [f"{name}={code(value)}" for name, value in more.items()]
        call = f"{self._name()}({', '.join(given)})"
        if call.startswith("h5py."):
            return Spoken(self._script, call)
        return Spoken(self._script, call, self._script.add(call))

    def __enter__(self) -> Spoken:
        self._script.add(f"with {self._name()}:")
        self._script.indent += "    "
        return self

    def __exit__(self, *error: Any) -> None:
        self._script.indent = self._script.indent[4:]


def code(value: Any) -> str:
    """A value as Python text."""
    if isinstance(value, Spoken):
        return value._name()
    if isinstance(value, list) and any(isinstance(one, Spoken) for one in value):
        return f"[{', '.join(map(code, value))}]"
    if isinstance(value, Values):
        return literal(value.array)
    if isinstance(value, (np.ndarray, np.generic)):
        return literal(np.asarray(value)) + ("" if np.ndim(value) else "[()]")
    if isinstance(value, np.dtype):
        return f"np.dtype({value.str!r})"
    if isinstance(value, str) and len(value) > 60 and value == value[:5] * (len(value) // 5):
        return f"{value[:5]!r} * {len(value) // 5}"
    return repr(value)


def index_code(at: Any) -> str:
    if isinstance(at, tuple):
        return ", ".join(index_code(part) for part in at) + ("," if len(at) == 1 else "") if at else "()"
    if isinstance(at, slice):
        ends = [("" if one is None else repr(one)) for one in (at.start, at.stop)]
        return ":".join(ends) + (f":{at.step}" if at.step not in (None, 1) else "")
    if at is Ellipsis:
        return "..."
    return code(at)


class Speaking:
    """In place of a `Run`: acts that are done with it become lines."""

    twin = apart = False

    def __init__(self, config: Config, script: Script) -> None:
        self.config, self.script, self.model = config, script, Model()
        self.size = config["ranks"]
        self.shared = self.size > 1
        self.rank = 0 if self.size == 1 else Spoken(script, "comm.rank")
        self.kept: dict[int, Any] = {}
        self.h: Any = Spoken(script, "h5py")
        self._file = Spoken(script, "f")

    @property
    def f(self) -> Any:
        return self._file

    @f.setter
    def f(self, made: Any) -> None:
        """``run.f = run.open(...)`` has been written down."""

    def open(self, mode: str) -> Any:
        if hints := arguments(self.config, "FOLDER", mode).get("environment"):
            self.script.add(f"os.environ['PNC_VOL_HINTS'] = ';'.join(map('='.join, {_in_folder(hints)}.items()))")
        target = "other" if mode == "r+" and self._inside_twice else "f"
        self.script.add(
            f"{target} = h5py.File(PATH, {mode!r}{given_text(self.config, mode)}{', comm=comm' * (self.size > 1)})"
        )
        return Spoken(self.script, target)

    _inside_twice = False

    def given(self, values: Values) -> Any:
        return Spoken(self.script, literal(values.array) + ("" if values.shape else "[()]"))

    def same(self, got: Any, expected: Any) -> None:
        self.script.add(f"np.testing.assert_array_equal({code(got)}, {code(expected)})")

    def settle(self) -> None:
        if self.size > 1:
            self.script.add("f.sync()")
            self.barrier()

    def barrier(self) -> None:
        if self.size > 1:
            self.script.add("comm.barrier()")

    def first(self, call: Callable[[], Any]) -> None:
        if self.size == 1:
            call()
            return
        self.script.add("if comm.rank == 0:")
        self.script.indent += "    "
        call()
        self.script.indent = self.script.indent[4:]

    def call(self, function: Any) -> Any:
        return Spoken(self.script, function.__name__)

    def refuses(self, error: str, call: Callable[[], Any]) -> None:
        line = len(self.script.lines)
        found = call()
        tried = [f"    {one}" for one in self.script.lines[line:] or [code(found)]]
        after = [f"except h5py.{error}:", "    pass", "else:", "    raise AssertionError('nothing is refused')"]
        self.script.lines[line:] = ["try:", *tried, *after]

    def whole(self) -> None:
        self._check("f")

    def _check(self, f: str) -> None:
        for path in self.model.paths(Data):
            if self.model.data(path).kind in REFERENCES:
                continue
            self.script.add(
                f"np.testing.assert_array_equal({f}[{path!r}][()], {code(self.model.objects[path].values)})"
            )
        for path in self.model.paths(Data) + self.model.paths(dict):
            for key, value in self.model.attrs(path).items():
                where = f"{f}[{path or '/'!r}].attrs[{key!r}]"
                if isinstance(value, str) and value == EMPTY:
                    self.script.add(f"assert {where} == h5py.Empty('f4')")
                    continue
                self.script.add(f"np.testing.assert_array_equal({where}, {code(value)})")

    def end(self, how: str) -> None:
        self.kept.clear()
        if how == "raise":
            self.script.add("f.__exit__(ValueError, ValueError('in a with block'), None)")
        else:
            self.script.add("del f" if how == "forget" else "f.close()")

    def read_elsewhere(self) -> None:
        with Spoken(self.script, "open(PATH, 'rb') as disk, h5py.File(disk) as other"):
            self.script.add("assert other")
            self._check("other")

    def step(self, step: Step) -> None:
        one = ACTS[step.act]
        with suppress(Impossible):
            expected = one.effect(self.model, **step.args)
            self._inside_twice = step.act == "twice"
            one.do(self, expected, **step.args)


def given_text(config: Config, mode: str) -> str:
    """The keywords of `File`, as a script has them."""
    given = arguments(config, "FOLDER", mode)
    return "".join(f", {name}={_in_folder(value)}" for name, value in given.items() if name != "environment")


def _in_folder(value: Any) -> str:
    return re.sub(r"'FOLDER/(\w+(\.json)?)'", r"FOLDER + '/\1'", repr(value))


def script(program: Program, told: str = "", *, before: str = "", after: str = "") -> str:
    """A program as lines of Python, with what went wrong.

    Parameters
    ----------
    before, after : str
        Lines of an event: before the first opening, and after the last act.
    """
    config, out = program.config, Script()
    run = Speaking(config, out)
    run.open(config["created"])
    for step in program.steps:
        run.step(step)
    if not after:
        run.settle()
        run.whole()
        run.end("close")
        if config["deferred"]:
            out.add("h5py.finalize()")
        if config["stack"] != "memory":
            run.open("r")
            run.whole()
            run.end("close")
    body = "\n".join(out.lines)
    head = [f'"""{told}\n\nMade from the seed {program.seed}."""', "import os, tempfile", "import numpy as np"]
    head += ["import pnc_vol as h5py"]
    if config["ranks"] > 1:
        nodes = f"MPIR_CVAR_NUM_CLIQUES={config['nodes']} " if config["nodes"] > 1 else ""
        head += [f"# {nodes}mpiexec -n {config['ranks']} python -m mpi4py THIS", "from mpi4py import MPI"]
        head += ["comm = MPI.COMM_WORLD"]
    for name in PLUGINS:
        if name in (config["layout"], config["stack"], config["store"]):
            where, module, room, what = PLUGINS[name]
            head += [f"import sys; sys.path.append({str(EXAMPLES / where)!r}); import {module} as plugin"]
            head += [f"from {room} import register; register({name!r}, plugin.{what})"]
    folder = "tempfile.mkdtemp()"
    if config["ranks"] > 1:
        folder = f"comm.bcast({folder} if comm.rank == 0 else None, 0)"
    head += [f"FOLDER = {folder}", "PATH = FOLDER + '/x.nc'"]
    if config["stack"] == "object":
        head += ["import io", "PATH = io.BytesIO()"]
    for name in ("nvm", "logs"):
        if f"/{name}" in body + before + after:
            head.append(f"os.makedirs(FOLDER + '/{name}', exist_ok=True)")
    if "/hints.json" in body + before + after:
        head.append(f"open(FOLDER + '/hints.json', 'w').write({hints_file(config, 'FOLDER')!r})")
    if "else." in body or "show(" in body:
        head += [f"with h5py.File(FOLDER + '/else.nc', 'w') as f: f['e'] = {code(OTHER['else.nc'])}"]
        head += [f"{code(OTHER['else.bin'])}.tofile(FOLDER + '/else.bin')"]
    for helper in HELPERS:
        if f"{helper.__name__}(" in body:
            head.append(re.sub(r": (Any|str|int)\b| -> (Any|None)", "", inspect.getsource(helper)))
    if "values(" in body:
        head.append(HELPER)
    return "\n".join([*head, *([before] if before else []), body, *([after] if after else []), ""])
