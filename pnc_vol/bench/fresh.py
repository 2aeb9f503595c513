"""One work of one peer in a process that does nothing else: ``python -m pnc_vol.bench.fresh``.

Takes the benchmark's module, a folder, a scale, the number of the work and the name of the peer.
Prints the peak memory of each phase over what was resident at its start, as JSON; bytes. Knows: works and peers.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings

from pnc_vol.bench.measure import Watch, warm_up


def main(module: str, folder: str, scale: str, number: str, peer: str) -> None:
    """Do the work once and print what it took."""
    warnings.simplefilter("ignore")
    warm_up()
    bench = importlib.import_module(module)
    work = bench.works(float(scale))[int(number)]
    watch = Watch(trim=True)
    work.run(bench.peers(folder)[peer], watch)
    print(json.dumps(watch.memory))


if __name__ == "__main__":
    main(*sys.argv[1:])
