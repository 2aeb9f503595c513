"""What the tests of headers share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The machines that run these tests are busy; how long an example takes says nothing.
settings.register_profile("format", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("format")
