"""The verbs of ``pnc-vol``, each loaded when it is asked for.

Knows: the names of the verbs and what the overview says of them. Does not know: what they do.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

__all__ = ["VERBS", "app"]

VERBS = {
    "convert": "Copy an HDF5 file to NetCDF, or a NetCDF file to HDF5, and report what was kept.",
    "dump": "Print a file as CDL, the text that ncgen reads, as ncdump does.",
    "ls": "List the contents of a file: names, shapes, types.",
    "check": "Check files against the format, and whether other programs can read them.",
    "diff": "Compare objects, attributes, dimensions and values of two files.",
    "repack": "Free the space of deleted and moved datasets.",
    "link": "Make an HDF5 file that shows the values of a NetCDF file, without a copy.",
    "refs": "Write references, by which zarr programs read a NetCDF file as it is.",
    "log": "Print burst-buffer logs: header, entries, sizes, states.",
    "replay": "Write the burst-buffer logs of a killed job into its file.",
    "run": "Run a script with pnc_vol instead of h5py.",
    "plan": "Run a script, and print what each flush writes.",
    "profile": "Sum where the time of collective writes went, from timelines of ranks.",
    "doctor": "Say what is installed and in force, what the file system can do, what would be faster.",
    "view": "Show files in a web browser.",
    "demo": "Write a small HDF5 file, convert it, and read it with other programs.",
}
"""Each verb has a module of its name, with its function `command`; the text is that of the overview."""

_STYLE: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
_OF_THE_SCRIPT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""What follows the script's name belongs to the script, its options included."""


class _Verbs(TyperGroup):
    """The commands of the table: ``pnc-vol --help`` loads none of them, a verb only what it needs itself.

    The types of click's objects are left open: typer brings click as a package or as a part of its own, by version.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # typer offers these names when a verb is misspelled
        names: Any = dict.fromkeys(VERBS)
        self.commands = names

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None if there is none."""
        if cmd_name not in VERBS:
            return None
        single = typer.Typer(**_STYLE)
        settings = _OF_THE_SCRIPT if cmd_name in ("run", "plan") else {}
        function = importlib.import_module(f"pnc_vol.cli.{cmd_name}").command
        single.command(cmd_name, context_settings=settings)(function)
        return typer.main.get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the overview from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(
    cls=_Verbs,
    help="NetCDF CDF-5 files behind h5py's interface: convert, list, check and compare them.",
    no_args_is_help=True,
    **_STYLE | {"add_completion": True},
)


def _version(wanted: bool) -> None:
    if wanted:
        # the package is loaded already, as the parent of this module
        print(f"pnc-vol {importlib.import_module('pnc_vol').__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """NetCDF CDF-5 files behind h5py's interface: convert, list, check and compare them."""
