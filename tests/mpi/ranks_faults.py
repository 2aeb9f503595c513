"""What goes wrong on one rank, and what all ranks are told; one program with many scenarios.

``ranks_faults.py DIR DRIVER [SCENARIO...]`` runs every scenario in turn, each with files of its own
(``tests/shared/scenarios.py``, which must be on the path of modules).
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
