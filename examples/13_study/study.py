"""A study: one benchmark with every combination of ranks and cache, and one table of what they reached (ReFrame).

On this machine, in an environment with ``pip install "pnc-vol[study]"``::

    reframe -C settings.py -c study.py -r --system=here --performance-report

`README.md` has the same for a cluster, and how to combine more.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_before, sanity_function, variable


@rfm.simple_test
class CollPerf(rfm.RunOnlyRegressionTest):
    """A 3-D array, one block for each rank, written and read together."""

    descr = "write and read one array together"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]

    ranks = parameter([1, 2, 4])
    cache = parameter(["disable", "enable"])

    ranks_per_node = variable(int, value=0)
    block = variable(int, value=128)
    cb_nodes = variable(int, value=0)
    cb_buffer_size = variable(int, value=0)
    cache_dir = variable(str, value="/tmp")
    output = variable(str, value=".")
    python = variable(str, value=sys.executable)

    @run_before("run")
    def set_job(self) -> None:
        """What the scheduler has to know, and the command of each rank."""
        self.num_tasks = self.ranks
        if self.ranks_per_node:
            self.num_tasks_per_node = self.ranks_per_node
        hints = {"e10_cache": self.cache}
        if self.cache != "disable":
            hints["e10_cache_path"] = self.cache_dir
        for hint in ("cb_nodes", "cb_buffer_size"):
            if getattr(self, hint):
                hints[hint] = getattr(self, hint)
        self.executable = self.python
        self.executable_opts = [
            *("-m", "mpi4py", "-m", "pnc_vol.bench", "coll_perf", "--json", "--no-memory", "--peers", "pnc_vol"),
            *("--dir", self.output, "-b", str(self.block)),
            *("--hints", "'" + ";".join(f"{hint}={value}" for hint, value in hints.items()) + "'"),
        ]

    @sanity_function
    def values_were_right(self) -> object:
        """The benchmark compares what it read with what it wrote: it ends with 0 only if both are equal."""
        return sn.assert_eq(self.job.exitcode, 0)

    @run_before("performance")
    def read_results(self) -> None:
        """The median of each phase."""
        if self.is_dry_run():
            return
        printed = Path(self.stagedir, sn.evaluate(self.stdout)).read_text()
        for one in json.loads(printed)["results"]:
            rate = one["bytes"] / statistics.median(one["seconds"]["pnc_vol"]) / 2**20
            name = one["work"].split(" of ")[0].replace(", ", "_").replace(" ", "_")
            self.perf_variables[name] = sn.make_performance_function(sn.defer(round(rate, 1)), "MiB/s")
