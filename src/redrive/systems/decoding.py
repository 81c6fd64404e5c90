"""How the systems read bodies: each those of the letters of its transports."""

from __future__ import annotations

import logging

from redrive.errors import MissingExtra
from redrive.forensics.decoded import masked_body, whole_body
from redrive.forensics.redact import Redactor
from redrive.forensics.views import DecodedBody
from redrive.model import Letter
from redrive.systems.base import System, resolved
from redrive.systems.discover import systems

log = logging.getLogger("redrive")


def decoded_body(letter: Letter, redactor: Redactor | None) -> DecodedBody | None:
    """The body of that letter in its schema, masked by that redactor, or as it is without one. None if no system that
    is installed with its libraries knows the schema."""
    found = (_decoded(system, letter, redactor) for system in systems().values() if letter.transport in system.bodies)
    return next(filter(None, found), None)


def _decoded(system: System, letter: Letter, redactor: Redactor | None) -> DecodedBody | None:
    try:
        decoded = resolved(system.bodies[letter.transport], system.extra)(letter)
        if decoded is None:
            return None
        return whole_body(decoded) if redactor is None else masked_body(decoded, redactor)
    except MissingExtra:
        return None
    except Exception as error:  # a system of a stranger's that is broken; the letter is shown all the same
        log.warning("the system %r cannot read the body of letter %s: %s", system.name, letter.id, type(error).__name__)
        return None
