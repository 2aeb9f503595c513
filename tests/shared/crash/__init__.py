"""A crash simulator: what killed processes and power failures leave of a program's files, and what must be readable.

===========  =============================================================
module       what it does
===========  =============================================================
`recording`  every change that a program makes, by a `System`
`disk`       a tree of files in memory, on which changes are made again
`states`     what a kill, or a power failure, leaves of the changes
`promise`    what must be readable, and whether it is
`running`    scenarios, and their recordings
`examining`  states are rebuilt and opened
`acts`       changes of a file that exists, of which scenarios are made
`scenarios`  the ways in which pnc_vol changes a file
===========  =============================================================

``python tests/shared/crash --states 50000 --seed 1`` examines so many states of all scenarios.
"""

from crash.examining import Broken, examine
from crash.promise import NO_FILE, Contents, contents_of
from crash.recording import Recorder
from crash.running import Run, Scenario, fast_folder, record

__all__ = [
    "NO_FILE", "Broken", "Contents", "Recorder", "Run", "Scenario", "contents_of", "examine", "fast_folder", "record",
]  # fmt: skip
