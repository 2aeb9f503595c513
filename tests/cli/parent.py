"""A script that ``pnc-vol run`` runs: it starts Python processes in every way, each of which writes a file.

Knows: h5py alone. Run with the name of a file, or with ``child`` and a name, it is such a process.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys


def work(name: str) -> None:
    import h5py

    with h5py.File(name, "w") as f:
        f["x"] = [1, 2, 3]


def start_all() -> None:
    for how in ("spawn", "forkserver", "fork"):
        child = multiprocessing.get_context(how).Process(target=work, args=(how,))
        child.start()
        child.join()
        assert child.exitcode == 0
    subprocess.run([sys.executable, __file__, "program"], check=True)
    subprocess.run([sys.executable, __file__, "child", "grandchild"], check=True)
    idle = "import sys; print([name for name in sys.modules if 'pnc_vol' in name or name == 'numpy'])"
    subprocess.run([sys.executable, "-c", idle], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        subprocess.run([sys.executable, __file__, sys.argv[2]], check=True)
    elif sys.argv[1:]:
        work(sys.argv[1])
    else:
        start_all()
