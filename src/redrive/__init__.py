"""Redrive: the dead-letter system for Python consumers.

Every public name is imported when it is first used, so that `redrive --help` does not wait for what it does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.errors import Failed, Permanent, RedriveError, Transient
    from redrive.flow.backoff import constant, custom, exponential, immediate, linear, never
    from redrive.flow.classify import Classifier, Verdict
    from redrive.limits import Fair, Rate
    from redrive.model import Category, Failure, Letter, Message, State
    from redrive.policy import Again, HoldKey, Policy, Storm

__version__ = "0.1.0"

__all__ = [
    "Again",
    "Category",
    "Classifier",
    "Failed",
    "Failure",
    "Fair",
    "HoldKey",
    "Letter",
    "Message",
    "Permanent",
    "Policy",
    "Rate",
    "Redrive",
    "RedriveError",
    "State",
    "Storm",
    "Transient",
    "Verdict",
    "constant",
    "custom",
    "exponential",
    "immediate",
    "linear",
    "never",
]

_HOMES = {
    "redrive.app": ("Redrive",),
    "redrive.errors": ("Failed", "Permanent", "RedriveError", "Transient"),
    "redrive.flow.backoff": ("constant", "custom", "exponential", "immediate", "linear", "never"),
    "redrive.flow.classify": ("Classifier", "Verdict"),
    "redrive.model": ("Category", "Failure", "Letter", "Message", "State"),
    "redrive.policy": ("Again", "HoldKey", "Policy", "Storm"),
    "redrive.limits": ("Fair", "Rate"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'redrive' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
