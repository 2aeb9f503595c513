"""The command ``pnc-vol``, run within this process, where starting Python again tests nothing; or on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import warnings
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

(MAIN,) = (found for found in entry_points(group="console_scripts") if found.name == "pnc-vol")


def verb(*args: Any, code: int | None = None) -> SimpleNamespace:
    """Run ``pnc-vol ARGS...``; gives ``code``, ``out``, ``err`` and, as bytes, ``raw``."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before, ended = sys.argv, 0
    try:
        sys.argv = ["pnc-vol", *map(str, args)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            # as a program has it: a warning is shown
            warnings.simplefilter("always")
            try:
                MAIN.load()()
            except SystemExit as end:
                ended = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.argv = before
    raw, told = (stream.buffer.getvalue() for stream in (out, err))  # type: ignore[attr-defined]
    if code is not None:
        assert ended == code, raw + told
    return SimpleNamespace(code=ended, out=raw.decode(errors="replace"), err=told.decode(), raw=raw)


def verbs() -> list[str]:
    """All verbs that the command names."""
    return re.findall(r"(?m)^  (\w+)  +[A-Z]", verb("--help", code=0).out.partition("Commands:")[2])


def on_a_terminal(*args: Any, **env: str) -> bytes:
    """What ``pnc-vol ARGS...`` shows on a terminal; a line ends with CR and LF there."""
    mine, theirs = os.openpty()
    shown = b""
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | env
    command = [sys.executable, "-m", "pnc_vol.cli", *map(str, args)]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.STDOUT, env=environment):
        os.close(theirs)
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while part := os.read(mine, 1 << 16):
                shown += part
    os.close(mine)
    return shown
