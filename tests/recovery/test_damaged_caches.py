"""Logs of caches with right CRCs and wrong numbers: an error of this package, or data that the cache has."""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path
from zlib import crc32

import pytest
from kills import forked

import pnc_vol
from pnc_vol.append_log.records import RECORD_BYTES, decode_header, decode_records
from pnc_vol.drivers.cache.extent_log import FORMAT, SUFFIX, TABLES
from pnc_vol.errors import LogError

HUGE = [0, 1, 7, 2**31, 2**40, 2**43, 2**50, 2**61, 2**62, 2**63 - 1]
HUGER = [*HUGE, 2**63, 2**64 - 1]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file of a job that was killed, and its cache in ``nvm``."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "nvm").mkdir()

    def write(pipe: int) -> None:
        hints = {"e10_cache_path": str(folder / "nvm"), "e10_cache_flush_flag": "flush_onclose"}
        f = pnc_vol.File(folder / "x.nc", "w", hints=hints)
        d = f.create_dataset("x", (100, 50), "i4", maxshape=(None, 50))
        d[...] = 1
        f.flush()
        d.resize(60, axis=0)
        d[::7] = 3
        f["y"] = [1.0, 2.0]
        f.flush()
        os._exit(9)

    child, reading = forked(write)
    os.close(reading)
    os.waitpid(child, 0)
    return folder


@pytest.mark.parametrize("seed", range(12))
def test_numbers_that_no_file_has(killed: Path, tmp_path: Path, seed: int) -> None:
    refused = carried = 0
    for number in range(40):
        folder = tmp_path / str(number)
        shutil.copytree(killed, folder)
        (log,) = folder.glob(f"nvm/*/*{SUFFIX}")
        change(log, random.Random(f"{seed} {number}"))
        for salvage in (False, True):
            try:
                pnc_vol.replay(folder / "x.nc", log.parent, any_file=True, salvage=salvage)
                carried += 1
            except (LogError, FileNotFoundError):
                refused += 1
        pnc_vol.File(folder / "x.nc").close()
        shutil.rmtree(folder)
    assert refused > 5
    assert carried > 5


def change(log: Path, rng: random.Random) -> None:
    """Put a wrong number into a record, or into the table of one, and make the CRCs right again."""
    data = bytearray(log.read_bytes())
    header, begin = decode_header(FORMAT, bytes(data))
    records = decode_records(FORMAT, bytes(data)).records
    fields = FORMAT.dtype.fields
    assert fields is not None
    if rng.random() < 0.5:
        k = rng.randrange(len(records))
        name = rng.choice(["epoch", "table_end", "count", "nbytes", "checksum"])
        struct.pack_into("<Q", data, begin + k * RECORD_BYTES + fields[name][1], rng.choice(HUGER))
        if rng.random() < 0.6:
            struct.pack_into("<H", data, begin + k * RECORD_BYTES + fields["kind"][1], rng.choice(list(FORMAT.kinds)))
    else:
        k = rng.choice([n for n, record in enumerate(records) if record["count"]])
        first, last = (int(records[n]["table_end"]) if n >= 0 else 0 for n in (k - 1, k))
        path = log.with_suffix(TABLES[0])
        table = bytearray(path.read_bytes())
        struct.pack_into("<q", table, first + 8 * rng.randrange(2 * int(records[k]["count"])), rng.choice(HUGE))
        path.write_bytes(table)
        at = begin + k * RECORD_BYTES + fields["table_crc"][1]
        struct.pack_into("<I", data, at, crc32(bytes(table[first:last])))
    at = begin + k * RECORD_BYTES
    crc = crc32(bytes(data[at : at + RECORD_BYTES - 4]), crc32(header.log_id))
    struct.pack_into("<I", data, at + RECORD_BYTES - 4, crc)
    log.write_bytes(data)
