"""Take calls of the operating system away from every Python that is started with this folder on its path.

    PYTHONPATH=tests/shared/without PNC_VOL_WITHOUT=fallocate pytest -n 0 tests/file

They are gone before anything is imported, as on a system that does not have them. Knows: `os`, `fcntl`.
"""

import fcntl
import os

CALLS = {
    "ofd_locks": [(fcntl, "F_OFD_SETLK"), (fcntl, "F_OFD_SETLKW"), (fcntl, "F_OFD_GETLK")],
    "tmpfile": [(os, "O_TMPFILE")],
    "copy_file_range": [(os, "copy_file_range")],
    "attributes": [(os, "getxattr"), (os, "setxattr"), (os, "listxattr"), (os, "removexattr")],
    "fallocate": [(os, "posix_fallocate")],
    "fdatasync": [(os, "fdatasync")],
    "memory_files": [(os, "memfd_create")],
}

for name in filter(None, os.environ.get("PNC_VOL_WITHOUT", "").split(",")):
    for module, call in CALLS[name]:
        # what an older Python does not know is not there either
        if hasattr(module, call):
            delattr(module, call)
