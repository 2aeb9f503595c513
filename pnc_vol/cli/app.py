"""The verbs of ``pnc-vol``, hung up.

Knows: the names of the verbs. Does not know: what they do.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pnc_vol.cli import check, convert, demo, diff, dump, log, ls, plan, repack, replay, run

__all__ = ["app"]

app = typer.Typer(
    help="NetCDF CDF-5 files behind h5py's interface: convert, look at, check and compare them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        import pnc_vol

        print(f"pnc-vol {pnc_vol.__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """NetCDF CDF-5 files behind h5py's interface: convert, look at, check and compare them."""


app.command("convert")(convert.command)
app.command("dump")(dump.command)
app.command("ls")(ls.command)
app.command("check")(check.command)
app.command("diff")(diff.command)
app.command("repack")(repack.command)
app.command("log")(log.command)
app.command("replay")(replay.command)
# What follows the script's name belongs to the script: options of its own included.
_OF_THE_SCRIPT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
app.command("run", context_settings=_OF_THE_SCRIPT, add_help_option=True)(run.command)
app.command("plan", context_settings=_OF_THE_SCRIPT, add_help_option=True)(plan.command)
app.command("demo")(demo.command)
