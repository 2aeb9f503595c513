"""Files that are open for reading in a forked child: they go on there, if they are the same files."""

from __future__ import annotations

import gc
import os
import pathlib
import threading

import numpy as np
import pytest
from kills import ended

import pnc_vol
from pnc_vol.errors import ForkedFileError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture
def written(path: pathlib.Path) -> pathlib.Path:
    """Records, names below a group, a compound."""
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("r", data=np.arange(12.0).reshape(4, 3), maxshape=(None, 3))
        f["g/x"] = np.arange(5000)
        f["g/x"].attrs["units"] = "K"
        f["rows"] = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
    return path


def opened() -> int:
    """Descriptors of this process."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_objects_of_the_parent_are_read_in_the_child(written: pathlib.Path) -> None:
    with pnc_vol.File(written) as f:
        r, x = f["r"], f["g/x"]

        def use() -> None:
            before = opened()
            assert r[1].tolist() == [3, 4, 5]
            assert opened() == before + (before > 0)
            assert x[::1000].tolist() == [0, 1000, 2000, 3000, 4000]
            assert (x.attrs["units"], f["rows"][1]["b"], sorted(f)) == ("K", 4.5, ["g", "r", "rows"])
            request = x.iget(slice(7, 9))
            request.wait()
            assert request.array.tolist() == [7, 8]
            # another one is that of a map; the file is not opened again for other objects
            assert opened() <= before + 2
            with pytest.raises(OSError, match="write intent"):
                r[0] = 1
            f.close()
            assert opened() == before

        ended(use)
        assert r[3].tolist() == [9, 10, 11]
        ended(lambda: (x[0], ended(lambda: x[4:6].tolist() == [4, 5] or os._exit(3))))


def test_a_child_that_does_not_use_the_file_opens_none(written: pathlib.Path) -> None:
    with pnc_vol.File(written) as f:
        os.rename(written, written.with_suffix(".moved"))

        def leave() -> None:
            f.close()
            gc.collect()

        ended(leave)
        assert f["r"][0].tolist() == [0, 1, 2]


def test_threads_of_a_child_open_it_once(written: pathlib.Path) -> None:
    with pnc_vol.File(written) as f:
        x = f["g/x"]

        def use() -> None:
            before, wrong = opened(), []

            def read() -> None:
                for at in range(50):
                    if x[at] != at:
                        wrong.append(at)

            threads = [threading.Thread(target=read) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong
            assert opened() == before + (before > 0)

        ended(use)


def test_what_threads_of_the_parent_hold_does_not_stop_the_child(written: pathlib.Path) -> None:
    with pnc_vol.File(written) as f:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with f.id.handle.session.lock:
                held.set()
                done.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            assert held.wait(60)

            def use() -> None:
                assert f["r"][2].tolist() == [6, 7, 8]
                f["r"].refresh()
                f.close()

            ended(use)
        finally:
            done.set()
            thread.join()


def test_another_file_under_the_name_is_an_error(written: pathlib.Path) -> None:
    with pnc_vol.File(written) as f:
        r = f["r"]
        with pnc_vol.File(written.with_suffix(".new"), "w") as other:
            other["r"] = np.zeros((4, 3))
        os.replace(written.with_suffix(".new"), written)

        def use() -> None:
            for _ in range(2):
                with pytest.raises(ForkedFileError, match=r"is another one now.*open it again in the child"):
                    r[0]

        ended(use)
        assert r[1].tolist() == [3, 4, 5]
        os.remove(written)

        def gone() -> None:
            with pytest.raises(ForkedFileError, match=r"cannot be opened again \(No such file"):
                r[0]

        ended(gone)


def test_another_file_in_the_same_inode_is_an_error(written: pathlib.Path) -> None:
    """As when the system gives the number of a removed file to a new one."""
    with pnc_vol.File(written) as f, pnc_vol.File(written.with_suffix(".new"), "w") as other:
        other["r"] = np.zeros((4, 3))
        other.flush()
        written.write_bytes(written.with_suffix(".new").read_bytes())

        def use() -> None:
            with pytest.raises(ForkedFileError, match="is another one now"):
                f["r"][0]

        ended(use)


def test_records_that_a_writer_appends_do_not_make_it_another_file(written: pathlib.Path) -> None:
    def append() -> None:
        with pnc_vol.File(written, "r+") as more:
            more["r"].resize(6, axis=0)
            more["r"][5] = 50

    with pnc_vol.File(written) as f:
        ended(append)

        def use() -> None:
            assert f["r"][:, 0].tolist() == [0, 3, 6, 9]
            f["r"].refresh()
            assert f["r"][:, 0].tolist() == [0, 3, 6, 9, 0, 50]

        ended(use)
        assert f["r"].shape == (4, 3)


def test_what_is_written_beside_the_reader_stays_the_writer_s(written: pathlib.Path) -> None:
    with pnc_vol.File(written, "r+") as writing, pnc_vol.File(written) as f:
        writing["r"][0] = 7

        def use() -> None:
            with pytest.raises(ForkedFileError, match="opened before a fork; open it again"):
                f["r"][0]

        ended(use)
        assert f["r"][0].tolist() == [7, 7, 7]
