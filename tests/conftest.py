"""How examples are drawn, in all tests.

The same examples in every run, so that what fails is the change that is being tested. New ones are drawn by
``PNC_VOL_EXAMPLES=random pytest``, which belongs to a search for faults, not to a check of a change.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The machines that run these tests are busy; how long an example takes says nothing.
settings.register_profile("random", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.register_profile("same", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile(os.environ.get("PNC_VOL_EXAMPLES", "same"))
