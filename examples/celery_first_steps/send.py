"""Sends two sums. Somebody has put a text into the second one, so it dies in the worker."""

from __future__ import annotations

from tasks import add

add.delay(2, 2)
add.delay("3", 4)
print("sent two sums")
