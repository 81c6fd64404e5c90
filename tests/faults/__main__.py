"""`python -m tests.faults`: kills workers at every step and prints where every message went."""

import asyncio
import sys

from tests.faults.scenarios import show

sys.exit(1 if asyncio.run(show()) else 0)
