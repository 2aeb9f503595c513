"""Copies of files, block by block: by the kernel or not, of any pieces, with a report of each block."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pnc_vol.drivers.block_copy import Descriptors, copy_blocks
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.testing.faults import FaultSystem, TraceSystem

BY_KERNEL = hasattr(os, "copy_file_range")


def content(nbytes: int) -> bytes:
    return np.random.default_rng(0).bytes(nbytes)


def extents(pieces: list[tuple[int, int, int]]) -> Extents:
    return Extents(*np.array(pieces, np.int64).reshape(-1, 3).T)


@pytest.mark.parametrize("fault", [None, errno.ENOSYS, errno.EXDEV, errno.EIO])
@pytest.mark.parametrize("block", [1 << 20, 100_000])
def test_the_kernel_copies_or_blocks_are_read_and_written(tmp_path: Path, fault: int | None, block: int) -> None:
    whole = content(3_000_000)
    (tmp_path / "whole").write_bytes(whole)
    # The second call fails: by then a block, or part of one, has been copied.
    system = FaultSystem(fail_at=2 if fault else 0, errno=fault or 0, mode="forever", calls={"copy_range"})
    with (tmp_path / "whole").open("rb") as source, (tmp_path / "copy").open("w+b") as target:
        files = Descriptors(system, source.fileno(), target.fileno())
        pieces = extents([(100, 1_500_000, 7), (2_000_000, 999_999, 1_600_000)])
        copied: list[tuple[str, int]] = []

        def copy() -> int:
            return copy_blocks(
                files.read, files.write, pieces, by_kernel=files.by_kernel, block=block,
                note=lambda verb, start, nbytes: copied.append((verb, nbytes)),
            )  # fmt: skip

        if fault == errno.EIO and BY_KERNEL:
            with pytest.raises(OSError) as caught:
                copy()
            assert caught.value.errno == errno.EIO
            return
        assert copy() == 2_499_999
        expected = bytes(7) + whole[100:1_500_100] + bytes(99_993) + whole[2_000_000:2_999_999]
        assert target.read() == expected
    assert sum(nbytes for verb, nbytes in copied if verb == "write") == 2_499_999
    assert any(verb == "read" for verb, _ in copied) == (fault is not None or not BY_KERNEL)
    assert max(nbytes for _, nbytes in copied) <= block


def test_short_pieces_are_read_and_written_together(tmp_path: Path) -> None:
    """A call of the kernel for each would take longer than their bytes."""
    whole = content(100_000)
    (tmp_path / "whole").write_bytes(whole)
    system = TraceSystem()
    with (tmp_path / "whole").open("rb") as source, (tmp_path / "copy").open("w+b") as target:
        files = Descriptors(system, source.fileno(), target.fileno())
        pieces = extents([(10 * i, 6, 6 * i) for i in range(10_000)])
        copy_blocks(files.read, files.write, pieces, by_kernel=files.by_kernel)
        assert target.read() == b"".join(whole[i : i + 6] for i in range(0, 100_000, 10))
    assert not system.matching(name="copy_range")
    assert len(system.log) < 10


def test_what_the_source_has_not_is_zeros_or_an_error() -> None:
    """Not what was in memory of the block before."""
    source, target = MemoryDriver(b"\1" * 2500), MemoryDriver(b"")
    assert copy_blocks(source.read, target.write, one_extent(0, 5000), block=1000) == 5000
    assert target.content() == b"\1" * 2500 + bytes(2500)
    with pytest.raises(EOFError, match="cut"):
        copy_blocks(source.read, target.write, one_extent(0, 5000), too_short=lambda: EOFError("cut"))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_ranks_share_the_blocks(size: int) -> None:
    whole = content(10_000)
    source, target = MemoryDriver(whole), MemoryDriver(b"")
    pieces = extents([(0, 1, 9_999), (1, 4_321, 5_678), (4_322, 5_678, 0)])
    shares = [copy_blocks(source.read, target.write, pieces, block=999, share=(rank, size)) for rank in range(size)]
    assert sum(shares) == 10_000
    assert max(shares) - min(shares) <= 999
    assert target.content() == whole[4_322:] + whole[1:4_322] + whole[:1]


def test_nothing_is_copied_of_nothing() -> None:
    def never(*_: Any) -> int:
        raise AssertionError

    assert copy_blocks(never, never, extents([])) == copy_blocks(never, never, one_extent(5, 0)) == 0
