"""What the doctor finds, as plain data."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "fine"
    WARNING = "warning"  # it works, and one day it will hurt
    FAILURE = "failure"  # it does not work, or it loses something


class Finding(Struct, frozen=True):
    """One thing that was looked at, and what to do about it."""

    level: Level
    about: str  # `store`, `transports.default`, `admin`, …
    text: str
    mend: str = ""  # what to do about it


class Diagnosis(Struct, frozen=True):
    """Everything that was found, in the order it was looked at."""

    findings: list[Finding]

    @property
    def worst(self) -> Level:
        found = {finding.level for finding in self.findings}
        return next((level for level in (Level.FAILURE, Level.WARNING) if level in found), Level.FINE)


def fine(about: str, text: str) -> Finding:
    return Finding(Level.FINE, about, text)


def warning(about: str, text: str, mend: str) -> Finding:
    return Finding(Level.WARNING, about, text, mend)


def failure(about: str, text: str, mend: str) -> Finding:
    return Finding(Level.FAILURE, about, text, mend)
