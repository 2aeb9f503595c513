"""``python -m pnc_vol.bench NAME``."""

from __future__ import annotations

import argparse
import platform

from pnc_vol.bench import io
from pnc_vol.bench.measure import print_table, to_json


def main() -> None:
    """Run one benchmark and print what came out."""
    parser = argparse.ArgumentParser(prog="python -m pnc_vol.bench", description=__doc__)
    parser.add_argument("name", choices=["io"])
    parser.add_argument("--quick", action="store_true", help="3 rounds; leaves out what takes minutes")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--dir", default=None, help="where the files go (default: where temporary files go)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args()
    results = io.run(quick=chosen.quick, rounds=chosen.rounds, folder=chosen.dir)
    if chosen.json:
        print(to_json(results))
        return
    print(f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}\n")
    print_table(results, io.PEERS)


if __name__ == "__main__":
    main()
