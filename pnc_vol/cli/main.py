"""The command ``pnc-vol`` has a table of verbs and an overview, and calls one verb.

Knows: the names of the verbs and where they are. Does not know: what they do.

Rules
-----
1. ``pnc-vol --help`` loads neither numpy nor a verb; a verb loads its own module and what that needs.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TextIO

__all__ = ["VERBS", "columns", "main"]

ABOUT = "NetCDF CDF-5 files behind h5py's interface: convert, list, check and compare them."
VERBS = {
    "convert": ("convert", "Copy an HDF5 file to NetCDF, or a NetCDF file to HDF5, and report what was kept."),
    "dump": ("dump", "Print a file as CDL, the text that ncgen reads, as ncdump does."),
    "ls": ("ls", "List the contents of a file: names, shapes, types."),
    "check": ("check", "Check files against the format, and whether other programs can read them."),
    "diff": ("diff", "Compare objects, attributes, dimensions and values of two files."),
    "repack": ("convert", "Free the space of deleted and moved datasets."),
    "link": ("link", "Make an HDF5 file that shows the values of a NetCDF file, without a copy."),
    "refs": ("link", "Write references, by which zarr programs read a NetCDF file as it is."),
    "log": ("logs", "Print burst-buffer logs: header, entries, sizes, states."),
    "replay": ("logs", "Write the burst-buffer logs of a killed job into its file."),
    "run": ("run", "Run a script with pnc_vol instead of h5py."),
    "plan": ("run", "Run a script, and print what each flush writes."),
    "profile": ("profile", "Sum where the time of collective writes went, from timelines of ranks."),
    "doctor": ("doctor", "Say what is installed and in force, what the file system can do, what would be faster."),
    "view": ("view", "Show files in a web browser."),
    "demo": ("demo", "Write a small HDF5 file, convert it, and read it with other programs."),
}
"""Each verb's module, in which `VERBS` has its arguments and its function, and the text of the overview."""

OPTIONS = {
    "--version": "Print the version.",
    "--install-completion": "Let the Tab key complete verbs and options in this shell.",
    "--show-completion": "Print the script that does so.",
    "-h": "Print the names of the verbs.",
    "--help": "Print this text.",
}


def main(words: Sequence[str] | None = None) -> None:
    """Run the command.

    Parameters
    ----------
    words : sequence of str, optional
        The arguments; by default those of the process.

    Raises
    ------
    SystemExit
        Always: 2 if the command line is wrong or something cannot be read; else the exit code of the verb.
    """
    given = list(sys.argv[1:] if words is None else words)
    first = given[0] if given else "--help"
    try:
        if first in VERBS:
            if first not in ("run", "plan"):
                # what the user's own script warns of is shown with its place there
                warnings.showwarning = _show_warning
            code = importlib.import_module("pnc_vol.cli.arguments").run_verb(first, given[1:])
        else:
            code = _overview(first, given[1:])
    except BrokenPipeError:
        # the reader of the output has seen enough; Python must not flush it at exit
        sys.stdout = None
        code = 1
    except KeyboardInterrupt:
        code = 130
    raise SystemExit(code)


def _overview(option: str, rest: Sequence[str]) -> int:
    """Carry out an option that stands in place of a verb; the exit code."""
    if option == "--help":
        print("\n".join(_help()))
    elif option == "-h":
        print("\n".join(_short_help()))
    elif option == "--version":
        # the package is loaded already, as the parent of this module
        print(f"pnc-vol {sys.modules['pnc_vol'].__version__}")
    elif option in ("--install-completion", "--show-completion", "--complete"):
        return int(importlib.import_module("pnc_vol.cli.completion").act(option, rest))
    else:
        from difflib import get_close_matches

        kind = "option" if option.startswith("-") else "verb"
        known = [name.rpartition(" ")[2] for name in OPTIONS] if kind == "option" else list(VERBS)
        like = get_close_matches(option, known, 1)
        meant = f"do you mean {like[0]}?" if like else "pnc-vol --help lists them"
        shown = option if option.isprintable() else ascii(option)
        print(f"pnc-vol: {shown}: there is no such {kind}; {meant}", file=sys.stderr)
        return 2
    return 0


def columns() -> int:
    """Return the width of help; shutil, which would ask the environment, too, takes long to load."""
    try:
        return min(os.get_terminal_size().columns, 120)
    except OSError:
        return 100


_USAGE = "Usage: pnc-vol [OPTIONS] VERB [ARGS]..."


def _short_help() -> Iterator[str]:
    """Yield the lines of the short overview."""
    yield from (_USAGE, "", ABOUT, "")
    line = "Verbs:"
    for name in VERBS:
        if len(line) + len(name) + 1 > columns():
            yield line
            line = " " * 6
        line += f" {name}"
    yield from (line, "", "pnc-vol --help says what each does, pnc-vol VERB -h how it is used.")


def _help() -> Iterator[str]:
    """Yield the lines of the overview."""
    yield from (_USAGE, "", f"  {ABOUT}")
    verbs = {name: about for name, (_, about) in VERBS.items()}
    for title, table in (("Options", OPTIONS), ("Commands", verbs)):
        yield from ("", f"{title}:")
        first = max(map(len, table)) + 4
        width = columns() - first
        for name, about in table.items():
            line = ""
            label = f"  {name}".ljust(first)
            for word in about.split():
                if line and len(line) + len(word) >= width:
                    yield label + line
                    label, line = " " * first, ""
                line += f" {word}" if line else word
            yield label + line
    yield from ("", "pnc-vol VERB --help describes a verb.")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of this package in one line, without places in its code; others as Python does."""
    if not any(each.__module__ == "pnc_vol.errors" for each in category.__mro__):
        text = warnings.formatwarning(message, category, filename, lineno, line)
    else:
        text = importlib.import_module("pnc_vol.cli.errors").at_the_terminal(f"pnc-vol: warning: {message}\n")
    print(text, end="", file=file or sys.stderr)
