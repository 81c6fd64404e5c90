"""The suites are shipped code; their assertions explain themselves all the same."""

import pytest

pytest.register_assert_rewrite("redrive.testing.transports", "redrive.testing.stores")
