"""In place of a rank, for ``mpiexec``: ends as the rank does, which another process forks (`jobs`).

Knows: nothing that takes long to load.
"""

from __future__ import annotations

import json
import os
import socket
import sys

MESSAGE = 1 << 16


def stand_in(place: str, given: str) -> None:
    """Hand the environment and the descriptors of this process over, and wait for the end of the rank."""
    pipe = socket.socket(socket.AF_UNIX)
    pipe.connect(place)
    env = {key: value for key, value in os.environ.items() if key.startswith(("PMI", "MPI", "OMP"))}
    socket.send_fds(pipe, [json.dumps([env, given]).encode()], [1, 2, int(env["PMI_FD"])])
    code = int(pipe.recv(MESSAGE) or b"1")
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    stand_in(sys.argv[1], sys.argv[2])
