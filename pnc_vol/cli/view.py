"""``pnc-vol view`` shows files in a browser.

Knows: what is printed for the user: the address, the way from another computer. Does not know: HTTP, objects.
"""

from __future__ import annotations

import errno
import getpass
import importlib
import socket
import webbrowser

from pnc_vol.cli.arguments import Options, Parser, Verb
from pnc_vol.cli.errors import expected, fail, refuse_address
from pnc_vol.cli.show import safe
from pnc_vol.settings.options import look_beside

__all__ = ["VERBS"]


def _arguments(parser: Parser) -> None:
    parser.files("files", metavar="FILE", help="NetCDF classic or HDF5 files, blob sets, or link files.")
    parser.add_argument("--port", type=int, default=0, help="Port on 127.0.0.1; 0 takes a free one.")
    parser.flag("--no-browser", help="Only print the address.")


def command(options: Options) -> int:
    """Show files in a web browser: tree, attributes, line plots, heat maps."""
    files, port = options.files, options.port
    if not 0 <= port < 1 << 16:
        fail("--port", f"{port} is no port; 0 to 65535 are")
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
    if not options.no_browser:
        _show(viewer.address)
    viewer.serve()
    print("pnc-vol view has ended.")
    return 0


def _show(address: str) -> None:
    """Open a browser with windows; one for terminals would take this one."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    if type(browser) is not webbrowser.GenericBrowser:
        browser.open(address)


VERBS: dict[str, Verb] = {"view": (_arguments, command)}
