"""A Sphinx extension: what one program writes through h5py and through pnc_vol, side by side.

```{dumps} name
with h5py.File(path, "w") as f:
    ...
```

The program is shown, run twice in a folder of its own, and followed by what ``h5dump -A`` says of the one file and
``ncdump -h`` of the other. Where a tool is not installed, the page says so, and shows what ``pnc-vol`` says of the same
file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

__all__ = ["Dump", "Dumps", "both", "setup"]

DEBIAN = {"h5dump": "hdf5-tools", "ncdump": "netcdf-bin"}


class Dump(NamedTuple):
    """What a tool said of a file.

    caption : str, the command, and what is to be known of it.
    text : str
    """

    caption: str
    text: str


def write(name: str, program: str, module: Any, suffix: str, folder: str) -> str:
    """Run a program with h5py, or what stands in its place; the path of its file."""
    path = os.path.join(folder, name + suffix)
    with warnings.catch_warnings():
        # what CDF has no place for is accepted with a warning
        warnings.simplefilter("ignore", UserWarning)
        exec(compile(program, f"<{name}>", "exec"), {"h5py": module, "path": path})
    return path


def said(tool: str, options: list[str], path: str, instead: list[str]) -> Dump:
    """What a tool says of a file, or ``pnc-vol`` in its place."""
    folder, name = os.path.split(path)
    if shutil.which(tool) is not None:
        command, shown = [tool, *options, name], f"{tool} {' '.join(options)} {name}"
    else:
        command, shown = [sys.executable, "-m", "pnc_vol.cli", *instead, name], f"pnc-vol {' '.join(instead)} {name}"
        shown += f" (where these pages were made, {tool} is not installed; Debian: {DEBIAN[tool]})"
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=environment, timeout=60)
    return Dump(shown, done.stdout.rstrip("\n"))


def both(name: str, program: str) -> tuple[Dump, Dump]:
    """The two dumps of a program: h5py's file, pnc_vol's file.

    Parameters
    ----------
    name : str, of the files, without a suffix
    program : str
        Python; it writes the file `path` through the module `h5py`.
    """
    import h5py

    import pnc_vol

    with tempfile.TemporaryDirectory() as folder:
        one = write(name, program, h5py, ".h5", folder)
        other = write(name, program, pnc_vol, ".nc", folder)
        return said("h5dump", ["-A"], one, ["ls", "-r", "-v"]), said("ncdump", ["-h"], other, ["dump", "-h"])


class Dumps(SphinxDirective):
    """The directive ``dumps``."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        program = "\n".join(self.content) + "\n"
        self.env.note_dependency(__file__)
        pair = nodes.container(classes=["dumps"])
        for dump in both(self.arguments[0], program):
            half = nodes.container()
            half += nodes.paragraph("", "", nodes.literal(text=dump.caption))
            half += nodes.literal_block(dump.text, dump.text, language="none")
            pair += half
        return [nodes.literal_block(program, program, language="python"), pair]


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("dumps", Dumps)
    app.add_css_file("dumps.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
