"""The entry point of ``pnc-vol``.

Knows: whether typer is there. Does not know: the verbs; `app` hangs them up.
"""

from __future__ import annotations

import sys

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

    app(prog_name="pnc-vol")


if __name__ == "__main__":
    main()
