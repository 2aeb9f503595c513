"""The note beside a file that says where its logs or caches are: lines with hosts, and many who change it at a time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from pnc_vol.append_log.private_folders import forget_folder, host_and_folder, note_folders, noted
from pnc_vol.testing.faults import HookedSystem

REAL = HookedSystem()


def test_lines_with_hosts(tmp_path: Path) -> None:
    note, here = str(tmp_path / "note"), str(tmp_path / "a:b")
    os.mkdir(here)
    note_folders(REAL, note, ["elsewhere:/nvm/x", f"{os.uname().nodename}:/gone", "/gone too", here], durable=False)
    assert [host_and_folder(line)[1] for line in noted(REAL, note)] == ["/nvm/x", "/gone", "/gone too", here]
    note_folders(REAL, note, ["/other"], durable=False)
    assert noted(REAL, note) == ["elsewhere:/nvm/x", here, "/other"], "what is gone on this host is not kept"
    for folder in ("/nvm/x", here, "/other"):
        forget_folder(REAL, note, folder)
    assert not os.path.exists(note)


def test_nobody_undoes_what_another_one_did(tmp_path: Path) -> None:
    note, names = str(tmp_path / "note"), [f"host:/nvm/{i}" for i in range(24)]
    note_folders(REAL, note, ["host:/kept", *names], durable=False)
    threads = [threading.Thread(target=forget_folder, args=(REAL, note, name[5:])) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert noted(REAL, note) == ["host:/kept"]
    assert os.listdir(tmp_path) == ["note"]
