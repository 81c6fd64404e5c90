import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from redrive.proof import forget

pytest_plugins = ["tests.servers.fixtures", "tests.longest_first"]

# a machine that has much else to do is no failure
settings.register_profile("redrive", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("redrive")

# the shell lets what runs in its background ignore Ctrl-C, and so would every command that a test interrupts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def without_keys() -> Iterator[None]:
    """Each test is a process of its own to the keys of lineage: none knows those of the test before."""
    forget()
    yield
    forget()
