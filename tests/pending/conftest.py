"""What the tests of pending share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The machines that run these tests are busy; how long an example takes says nothing.
settings.register_profile("pending", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.load_profile("pending")
