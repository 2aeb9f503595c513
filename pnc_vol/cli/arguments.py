"""The command lines of verbs are parsed by argparse; options that several verbs have are declared here.

Knows: argparse. Does not know: what a verb does.

Rules
-----
1. A module of verbs has a table ``VERBS``: for each verb a function that declares its arguments, and the verb itself,
   which takes the parsed arguments and returns the exit code. Its docstring is the verb's description.
2. Options may stand before, between and after files. ``--help`` describes all; ``-h`` prints the usage and the first
   paragraph. Where a verb has an option ``-h`` of its own, as ncdump has, this holds for ``-h`` without a file.
3. What is wrong with a command line is one line on standard error, as all errors of this command are; exit code 2.
"""

from __future__ import annotations

import argparse
import importlib
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from pnc_vol.cli.errors import fail
from pnc_vol.cli.main import VERBS, columns

__all__ = [
    "Options", "Parser", "Verb", "add_allow_sparse", "add_follow_external", "add_json", "add_quiet", "at_least",
    "parser_of", "run_verb",
]  # fmt: skip

Options = argparse.Namespace


class Parser(argparse.ArgumentParser):
    """A parser of one verb, whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        verb = self.prog.rpartition(" ")[2]
        fail(verb, f"{message.replace('unrecognized arguments', 'unknown arguments')}; see pnc-vol {verb} --help")

    def exit_with_short_help(self) -> NoReturn:
        """Print the usage and what the verb does, in few lines, and exit with 0."""
        first = (self.description or "").partition("\n\n")[0]
        print(f"{self.format_usage()}\n{textwrap.fill(' '.join(first.split()), columns())}\n")
        print(textwrap.fill(f"{self.prog} --help describes the arguments.", columns()))
        self.exit()

    def options(self) -> Iterable[str]:
        """Return the names of all options."""
        return self._option_string_actions

    def flag(self, *names: str, help: str) -> None:
        """Add an option without a value, False by default."""
        self.add_argument(*names, action="store_true", help=help)

    def files(self, name: str, *, metavar: str, help: str) -> None:
        """Add one or more names of files."""
        self.add_argument(name, nargs="+", metavar=metavar, help=help)

    def parse(self, words: Sequence[str]) -> Options:
        """Return the arguments, with options before, between and behind files; what follows ``--`` are files."""
        options: list[str] = []
        files: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                files += rest
            elif word == "-" or not word.startswith("-"):
                files.append(word)
            else:
                action = self._with_value(word)
                value = next(rest, None) if action is not None else None
                if action is not None and value is not None and value.startswith("-"):
                    # argparse would take the value for an option
                    options += [word[:-1]] if len(word) > 2 and not word.startswith("--") else []
                    options.append(f"{action.option_strings[-1]}={value}")
                else:
                    options += [word] if value is None else [word, value]
        return self.parse_args([*options, "--", *files] if files else options)

    def _with_value(self, word: str) -> argparse.Action | None:
        """Return the option whose value is the next word; of short options in one word, that may be the last one."""
        known = self._option_string_actions
        if word.startswith("--"):
            action = known.get(word)
            return action if action is not None and action.nargs is None else None
        for at, letter in enumerate(word[1:], 2):
            action = known.get(f"-{letter}")
            if action is None or action.nargs is None:
                return action if at == len(word) else None
        return None


Verb = tuple[Callable[[Parser], None], Callable[[Options], int]]


class _Layout(argparse.HelpFormatter):
    """Help whose description keeps its paragraphs."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(super(_Layout, self)._fill_text(one, width, indent) for one in paragraphs)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if action.nargs not in ("+", "*"):
            return super()._format_args(action, default_metavar)
        (name,) = self._metavar_formatter(action, default_metavar)(1)
        return f"{name}..." if action.nargs == "+" else f"[{name}...]"

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


class _ShortHelp(argparse.Action):
    """``-h``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        parser.exit_with_short_help()


def parser_of(verb: str) -> tuple[Parser, Callable[[Options], int]]:
    """Return the parser of a verb, and the verb itself."""
    declare, command = importlib.import_module(f"pnc_vol.cli.{VERBS[verb][0]}").VERBS[verb]
    parser = Parser(
        f"pnc-vol {verb}",
        description=command.__doc__, formatter_class=_Layout, add_help=False, allow_abbrev=False,
        conflict_handler="resolve",
    )  # fmt: skip
    # the verb's own -h, declared later, takes the place of this one
    parser.add_argument("-h", action=_ShortHelp, nargs=0, help=argparse.SUPPRESS)
    parser.add_argument("--help", action="help", help="Print this text; -h alone prints less.")
    declare(parser)
    return parser, command


def run_verb(verb: str, words: Sequence[str]) -> int:
    """Run a verb with its arguments; the exit code."""
    parser, command = parser_of(verb)
    if list(words) == ["-h"]:
        parser.exit_with_short_help()
    if verb not in ("run", "plan"):
        return command(parser.parse(words))
    # what follows the script's name belongs to the script, options included
    at = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    options = parser.parse_args(words[: at + 1])
    options.args = list(words[at + 1 :])
    return command(options)


def at_least(least: int) -> Callable[[str], int]:
    """Return a type of argument: an integer that is not below `least`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is below {least}")
        return value

    number.__name__ = "integer"
    return number


def add_quiet(parser: Parser) -> None:
    """Add ``-q``: errors only."""
    parser.flag("-q", "--quiet", help="Print errors only.")


def add_json(parser: Parser) -> None:
    """Add ``--json``, as `as_json`."""
    parser.add_argument("--json", dest="as_json", action="store_true", help="Print JSON instead of text.")


def add_follow_external(parser: Parser) -> None:
    """Add ``--follow-external``: values in other files are read."""
    parser.flag("--follow-external", help="Also read the values that an HDF5 file keeps in other files.")


def add_allow_sparse(parser: Parser) -> None:
    """Add ``--allow-sparse``: files that declare far more values than they hold are read."""
    parser.flag("--allow-sparse", help="Accept a file whose header declares far more values than it holds.")
