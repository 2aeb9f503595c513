"""Arguments and options that several verbs have.

Knows: typer. Does not know: what a verb does with them.
"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["AllowSparse", "AsJson", "FollowExternal", "Quiet", "Script", "ScriptArguments"]

Script = Annotated[str, typer.Argument(help="A Python script that imports h5py.", show_default=False)]
ScriptArguments = Annotated[
    list[str] | None, typer.Argument(help="Arguments of the script, options included.", show_default=False)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

FollowExternal = Annotated[
    bool, typer.Option("--follow-external", help="Also read the values that an HDF5 file keeps in other files.")
]
AllowSparse = Annotated[
    bool, typer.Option("--allow-sparse", help="Accept a file whose header declares far more values than it holds.")
]
