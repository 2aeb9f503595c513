"""What goes wrong on one rank, and what all ranks are told; one program with many scenarios.

``ranks_faults.py DIR DRIVER [SCENARIO...]`` runs every scenario in turn, each with files of its own, and rank 0 prints
one line of JSON for each: its name, the tracebacks of ranks where an assertion failed, the seconds that it took. One
that takes longer than 20 seconds ends the whole job with the stacks of all ranks.
"""

from __future__ import annotations

# each registers its scenarios, in this order
import faults_arguments  # noqa: F401
import faults_collectives  # noqa: F401
import faults_definitions  # noqa: F401
import faults_interrupts  # noqa: F401
import faults_leaving  # noqa: F401
import faults_opening  # noqa: F401
import faults_system_calls  # noqa: F401
import faults_transports  # noqa: F401
from fault_scenarios import main

if __name__ == "__main__":
    main()
