"""What is reachable, what is unsafe, and how to mend it. Every rule is a function that yields what it found."""

from redrive.doctor.examine import examine
from redrive.doctor.findings import Diagnosis, Finding, Level

__all__ = ["Diagnosis", "Finding", "Level", "examine"]
