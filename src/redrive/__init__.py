"""Redrive: the dead-letter system for Python consumers."""

from redrive.app import Redrive
from redrive.errors import Permanent, RedriveError, Transient
from redrive.flow.backoff import constant, custom, exponential, immediate, linear, never
from redrive.model import Category, Failure, Letter, Message, State
from redrive.policy import Again, Policy

__version__ = "0.1.0"

__all__ = [
    "Again",
    "Category",
    "Failure",
    "Letter",
    "Message",
    "Permanent",
    "Policy",
    "Redrive",
    "RedriveError",
    "State",
    "Transient",
    "constant",
    "custom",
    "exponential",
    "immediate",
    "linear",
    "never",
]
