"""``pnc-vol view``: files in a browser.

Knows: what the user is told: the address, the way from another computer. Does not know: HTTP, objects.
"""

from __future__ import annotations

import errno
import getpass
import importlib
import socket
import webbrowser
from typing import Annotated

import typer

from pnc_vol.cli.show import expected, fail, refuse_address, safe
from pnc_vol.settings.options import look_beside

__all__ = ["command"]


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="NetCDF classic or HDF5 files, blob sets, or link files.",
            show_default=False,
        ),
    ],
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Show files in a web browser: tree, attributes, line plots, heat maps."""
    look_beside()
    try:
        # only now: it needs h5grove, an optional package
        server = importlib.import_module("pnc_vol.viewer.server")
    except ImportError as missing:
        fail("view", f'it needs {missing.name}: pip install "pnc-vol[view]"')
    for each in files:
        refuse_address(each)
    with expected(files[0]):
        try:
            viewer = server.Viewer(files, port=port)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or error.filename is not None:
                raise
            fail(f"port {port}", "it is in use, or not allowed; give another one with --port, or none for a free one")
    own = viewer.port
    print(f"{viewer.address}")
    print("From another computer, first run there, and leave it open:")
    print(f"  ssh -N -L {own}:127.0.0.1:{own} {safe(getpass.getuser())}@{safe(socket.gethostname())}")
    print("The address contains a password: whoever has it can read the files. Ctrl-C ends.", flush=True)
    if not no_browser:
        _show(viewer.address)
    viewer.serve()
    print("pnc-vol view has ended.")


def _show(address: str) -> None:
    """Open a browser with windows; one for terminals would take this one."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    if type(browser) is not webbrowser.GenericBrowser:
        browser.open(address)
