"""Options that several verbs have.

Knows: typer. Does not know: what a verb does with them.
"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["AllowSparse", "FollowExternal"]

FollowExternal = Annotated[
    bool, typer.Option("--follow-external", help="Also read the values that an HDF5 file keeps in other files.")
]
AllowSparse = Annotated[
    bool, typer.Option("--allow-sparse", help="Accept a file whose header declares far more values than it holds.")
]
