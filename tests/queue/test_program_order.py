"""Random posts, flushes and reads of a file in memory order: the file behaves as numpy arrays do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from posting_machine import Machine

TestProgramOrder = pytest.mark.timeout(300)(Machine.TestCase)
TestProgramOrder.settings = settings(max_examples=60, stateful_step_count=60)
