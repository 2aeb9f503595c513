"""The entry point of ``pnc-vol``.

Knows: whether typer is there. Does not know: the verbs; `app` hangs them up.
"""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of the process.

    Raises
    ------
    SystemExit
        Always: 2 if the command line is wrong, something cannot be read, or typer is missing; else what the verb says.
    """
    try:
        import typer  # noqa: F401
    except ImportError:
        print("pnc-vol: the command line needs typer and rich; pip install 'pnc-vol[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    # only now: it needs typer, an optional package
    from pnc_vol.cli.app import app

    if sys.argv[1:2] not in (["run"], ["plan"]):
        # what the user's own script warns of is shown with its place there
        warnings.showwarning = _show
    app(prog_name="pnc-vol")


def _show(
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
        text = f"pnc-vol: warning: {message}\n"
    print(text, end="", file=file or sys.stderr)


if __name__ == "__main__":
    main()
